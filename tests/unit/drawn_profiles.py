"""Random settings and variables of a profile, as its form stores them; only those that a build can render."""

from __future__ import annotations

from hypothesis import strategies as st

from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.meaning_decimals import DECIMAL
from controlpanel.llamacpp.meaning_kinds import Meaning
from controlpanel.llamacpp.meanings import MEANINGS

_MILLION = 10**6
_UUIDS = ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-8932f937", "MIG-GPU-8932f937/1/0")

VARIABLES: dict[str, tuple[str, ...]] = {
    "CUDA_VISIBLE_DEVICES": (*_UUIDS, f"{_UUIDS[0]},GPU-1234abcd", "0,1", "-1"),
    "CUDA_DEVICE_ORDER": ("FASTEST_FIRST", "PCI_BUS_ID"),
    "GGML_CUDA_ENABLE_UNIFIED_MEMORY": ("1",),
    "GGML_CUDA_NO_PINNED": ("1",),
    "GGML_CUDA_DISABLE_GRAPHS": ("1",),
    "TURBO_AUTO_ASYMMETRIC": ("0", "1"),
    "TURBO_LAYER_ADAPTIVE": ("0", "7"),
    "LLAMA_ATTN_ROT_DISABLE": ("0", "1"),
    "MTMD_BACKEND_DEVICE": ("CUDA1", "Vulkan0"),
    "HIP_VISIBLE_DEVICES": ("0", "1,0"),
    "ROCR_VISIBLE_DEVICES": ("0,GPU-DEADBEEFDEADBEEF",),
    "GGML_VK_VISIBLE_DEVICES": ("2",),
    "OMP_NUM_THREADS": ("1", "1024"),
}
"""Values that each variable can have."""


def millionths(number: int) -> int | str:
    """So many millionths as a profile stores them."""
    whole, rest = divmod(abs(number), _MILLION)
    text = f"{whole}.{rest:06}".rstrip("0").rstrip(".")
    signed = f"-{text}" if number < 0 else text
    return signed if "." in text else int(signed)


def extremes(key: str, caps: Capabilities) -> list[object]:
    """What a field takes at its bounds, or all that it offers."""
    meaning = MEANINGS[key]
    offered: list[object] = list(meaning.offered(caps))
    if key == "tensor_split":
        return ["1", "3,1", "0.5/0.5", ",".join(["1"] * 15)]
    if key == "ctx_size":
        return [0, 256, meaning.high]
    bounds: list[object] = [meaning.low, meaning.high] if meaning.high else []
    if meaning.kind is DECIMAL:
        low, high = _bounds(meaning)
        bounds = [millionths(number) for number in (low, low + 1, high)]
    return [*offered, *bounds]


def _bounds(meaning: Meaning) -> tuple[int, int]:
    """The bounds of a decimal field in millionths."""
    return round(meaning.low * _MILLION), round(meaning.high * _MILLION)


def settings_of(
    caps: Capabilities, without: tuple[tuple[str, str], ...] = ()
) -> st.SearchStrategy[dict[str, object]]:
    """Settings of any fields; `without` are values that are left out."""
    special: dict[str, st.SearchStrategy[object]] = {
        "ctx_size": st.just(0) | st.integers(256, 16_777_216),
        "gpu_layers": st.integers(0, 10_000) | st.sampled_from(["auto", "all"]),
        "tensor_split": st.lists(st.integers(1, 99), min_size=1, max_size=8).map(
            lambda shares: ",".join(map(str, shares))
        ),
    }
    fields: dict[str, st.SearchStrategy[object]] = {}
    for key, meaning in MEANINGS.items():
        offered = [value for value in meaning.offered(caps) if (key, value) not in without]
        if key in special:
            fields[key] = special[key]
        elif offered:
            fields[key] = st.sampled_from(offered)
        elif meaning.kind is DECIMAL:
            fields[key] = st.integers(*_bounds(meaning)).map(millionths)
        else:
            fields[key] = st.integers(int(meaning.low), int(meaning.high))
    return st.fixed_dictionaries({}, optional=fields)


def environments() -> st.SearchStrategy[dict[str, str]]:
    """Variables of a profile."""
    fields = {name: st.sampled_from(values) for name, values in VARIABLES.items()}
    return st.fixed_dictionaries({}, optional=fields)
