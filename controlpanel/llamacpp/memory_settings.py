"""The settings of a profile as the memory estimate reads them: defaults and padding of the server applied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controlpanel.lib.text import N_
from controlpanel.llamacpp.meaning_kinds import whole
from controlpanel.llamacpp.memory_types import Dialect, EstimateError

AUTO_SLOTS = 4
BATCH, UBATCH = 2048, 512
CONTEXT_STEP = 256
CACHE_RAM = 8192
_DRAFT_MAX: dict[Dialect, int] = {"upstream": 3, "fork": 16}
VARIABLES = {
    "TURBO_AUTO_ASYMMETRIC": "turbo_auto_asymmetric",
    "TURBO_LAYER_ADAPTIVE": "turbo_layer_adaptive",
}
"""Variables of the environment that change what a cache takes, with the settings that stand for them."""

_ON = frozenset({"on", "true", "1", "enabled"})


@dataclass(frozen=True)
class Settings:
    """What a server would run with.

    `cells` are the tokens that each of `streams` caches holds, None when neither setting nor file says it;
    `gpu_layers` None means all. `shares` are the parts of the tensor split, empty for the server's own way.
    `raise_keys` and `protect_values` are what TurboQuant builds do unless a variable forbids it.
    `cache_ram` is in MiB, None for no limit. The fields whose names are words of the command line mean the
    same.
    """

    dialect: Dialect
    cells: int | None
    slots: int
    streams: int
    ubatch: int
    type_k: str
    type_v: str
    draft_type_k: str
    draft_type_v: str
    mtp: bool
    draft_max: int
    flash_attn: bool
    gpu_layers: int | None
    split_mode: str
    shares: tuple[float, ...]
    main_gpu: int
    cpu_moe: bool
    n_cpu_moe: int
    kv_offload: bool
    swa_full: bool
    mmproj_offload: bool
    cache_ram: int | None
    raise_keys: bool = True
    protect_values: bool = True

    @property
    def snapshots(self) -> int:
        """Return how many more states than one a slot keeps for taking drafts back."""
        return self.draft_max if self.mtp else 0


def read_settings(values: Mapping[str, object], dialect: Dialect, native_context: int | None) -> Settings:
    """Return the settings with the server's defaults; raise EstimateError for a value that has no meaning."""
    slots, unified = _slots(values)
    context = _number(values, "ctx_size", 0, 0) or native_context
    cells = None
    if context is not None:
        padded = _pad(context)
        cells = padded if unified else _pad(padded // slots or 1)
    batch = _number(values, "batch", BATCH, 1)
    if context is not None:
        batch = min(batch, context)
    cache_ram = _number(values, "cache_ram", CACHE_RAM, -1)
    layers = values.get("gpu_layers")
    gpu_layers = None if layers in (None, "auto", "all") else _number(values, "gpu_layers", 0, -2)
    return Settings(
        dialect=dialect,
        cells=cells,
        slots=slots,
        streams=1 if unified else slots,
        ubatch=min(batch, _number(values, "ubatch", UBATCH, 1)),
        type_k=_text(values, "cache_type_k", "f16"),
        type_v=_text(values, "cache_type_v", "f16"),
        draft_type_k=_text(values, "draft_type_k", "f16"),
        draft_type_v=_text(values, "draft_type_v", "f16"),
        mtp=_text(values, "speculation", "none") in ("mtp", "draft-mtp"),
        draft_max=_number(values, "draft_max", _DRAFT_MAX[dialect], 0),
        flash_attn=_text(values, "flash_attn", "auto") not in ("off", "0", "false", "disabled"),
        gpu_layers=None if gpu_layers is not None and gpu_layers < 0 else gpu_layers,
        split_mode=_text(values, "split_mode", "layer"),
        shares=_shares(values.get("tensor_split")),
        main_gpu=_number(values, "main_gpu", 0, 0),
        cpu_moe=_flag(values, "cpu_moe", False),
        n_cpu_moe=_number(values, "n_cpu_moe", 0, 0),
        kv_offload=_flag(values, "kv_offload", True),
        swa_full=_flag(values, "swa_full", False),
        mmproj_offload=_flag(values, "mmproj_offload", True),
        cache_ram=None if cache_ram < 0 else cache_ram,
        raise_keys=str(values.get("turbo_auto_asymmetric", 1)) != "0",
        protect_values=_protects(values.get("turbo_layer_adaptive")),
    )


def _slots(values: Mapping[str, object]) -> tuple[int, bool]:
    """Return the number of slots, and whether they share one cache."""
    slots = _number(values, "parallel", -1, -1)
    if slots == 0:
        raise EstimateError(N_("The number of slots cannot be 0: give 1 or more."))
    auto = slots < 0
    return AUTO_SLOTS if auto else slots, _flag(values, "kv_unified", auto)


def _protects(mode: object) -> bool:
    """Tell whether the build keeps outer layers better by itself; its other ways are not known here."""
    if mode is None:
        return True
    if str(mode) != "0":
        raise EstimateError(N_("The estimate does not take TURBO_LAYER_ADAPTIVE other than 0 into account."))
    return False


def _pad(tokens: int) -> int:
    return -(-tokens // CONTEXT_STEP) * CONTEXT_STEP


def _number(values: Mapping[str, object], key: str, default: int, low: int) -> int:
    value = values.get(key)
    if value is None:
        return default
    number = whole(value)
    if number is None or number < low:
        raise EstimateError(N_("%(key)s cannot be %(value)s."), key=key, value=str(value)[:60])
    return number


def _text(values: Mapping[str, object], key: str, default: str) -> str:
    value = values.get(key)
    return default if value is None else str(value).lower()


def _flag(values: Mapping[str, object], key: str, default: bool) -> bool:
    value = values.get(key)
    return default if value is None else value is True or str(value).lower() in _ON


def _shares(value: object) -> tuple[float, ...]:
    if value is None:
        return ()
    try:
        shares = tuple(float(part) for part in str(value).replace("/", ",").split(","))
    except ValueError:
        shares = (-1.0,)
    if not all(0 <= share < 1e9 for share in shares):
        text = N_("Give the tensor split as one share per GPU, such as 3,1; not %(value)s.")
        raise EstimateError(text, value=str(value)[:60])
    # The server takes "all zero" for its own way of splitting.
    return shares if any(shares) else ()
