"""Heads for multi-token prediction: the key that announces them, and the tensor without which none work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.gguf_header import GgufHeader

_HEAD = ".nextn.eh_proj.weight"
_TRUNK = "blk.0.attn_norm.weight"


@dataclass(frozen=True)
class Mtp:
    """What a file has of MTP.

    `announced` layers by the metadata, `tensors` that project a head, `tensor` by which builds find the
    heads. `usable` counts heads that work, None while the part with the tensor may be one that was not read.
    `missing` is "key", "tensor" or "". `separate`: the file holds heads without the model they belong to.
    """

    announced: int
    tensors: int
    tensor: str
    usable: int | None
    missing: str
    separate: bool


def read_mtp(parts: Sequence[GgufHeader], whole: bool) -> Mtp:
    """Return what the parts of a model have of MTP; `whole` when no part is missing."""
    header = parts[0]
    names = frozenset[str]().union(*(part.tensor_names for part in parts))
    announced = header.nextn_layers
    heads = sum(name.endswith(_HEAD) for name in names)
    found = header.mtp_tensor in names
    if announced and found:
        usable: int | None = announced
    else:
        usable = 0 if whole or not announced else None
    missing = ""
    if announced and not found and whole:
        missing = "tensor"
    elif heads and not announced:
        missing = "key"
    separate = bool(usable) and whole and _TRUNK not in names
    return Mtp(announced, heads, header.mtp_tensor, usable, missing, separate)


def mtp_words(mtp: Mtp) -> Message:
    """Return in one sentence whether the file can predict several tokens."""
    if mtp.missing == "tensor":
        text = N_("The key announces %(count)s MTP layers, but the tensor %(tensor)s is missing.")
        return Message(text, {"count": mtp.announced, "tensor": mtp.tensor})
    if mtp.missing == "key":
        text = N_("The tensors of MTP heads are there, but the key that announces them is missing.")
        return Message(text)
    if mtp.usable is None:
        return Message(N_("The key announces MTP heads; their tensor may be in a part that was not read."))
    if not mtp.usable:
        return Message(N_("No MTP heads."))
    if mtp.separate:
        return Message(
            N_("MTP heads only (%(count)s): to be used beside their model."), {"count": mtp.usable}
        )
    return Message(N_("MTP heads: %(count)s."), {"count": mtp.usable})
