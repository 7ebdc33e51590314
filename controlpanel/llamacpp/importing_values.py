"""What a field stores for the words that llama-server takes."""

from __future__ import annotations

from controlpanel.llamacpp.meaning_decimals import DECIMAL, stored
from controlpanel.llamacpp.meaning_kinds import CONTEXT, LAYERS, NUMBER, whole
from controlpanel.llamacpp.meanings import MEANINGS

_MTP = frozenset({"mtp", "draft-mtp"})
_ON_OFF = {
    **dict.fromkeys(("on", "1", "true", "enabled"), "on"),
    **dict.fromkeys(("off", "0", "false", "disabled"), "off"),
    **dict.fromkeys(("auto", "-1"), "auto"),
}


def field_value(key: str, given: str, earlier: object) -> object | None:
    """Return a field's value for a word; None for the word that says what an empty field says.

    `earlier` is what the field has from a flag before this one. A word that means nothing comes back as it
    is, for the field to refuse.
    """
    kind = MEANINGS[key].kind
    number = whole(given)
    if kind is LAYERS:
        return "auto" if number == -1 else given if number is None else number
    if kind in (NUMBER, CONTEXT):
        if number == -1 and key in ("parallel", "threads", "sleep_idle"):
            return None
        return given if number is None else number
    if kind is DECIMAL:
        found = stored(given)
        return given if found is None else found
    if key in ("flash_attn", "fit"):
        return _ON_OFF.get(given.lower(), given)
    if key == "speculation":
        kinds = set(given.split(","))
        return "mtp" if kinds <= _MTP else given
    if key == "load_mode" and earlier == "mlock" and given in ("mmap", "none"):
        # In the older dialect --mlock stands beside --mmap and --no-mmap.
        return earlier
    return given
