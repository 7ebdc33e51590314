"""What a server keeps of the tokens it has seen: keys and values, and recurrent states. Sizes in bytes."""

from __future__ import annotations

from collections.abc import Sequence

from controlpanel.lib.text import N_
from controlpanel.llamacpp.memory_layers import ROLLBACK, Geometry, Layer
from controlpanel.llamacpp.memory_settings import Settings
from controlpanel.llamacpp.memory_types import Dialect, EstimateError

# Cache type -> (elements of a block, its bytes).
CACHE_TYPES: dict[str, tuple[int, int]] = {
    "f32": (1, 4),
    "f16": (1, 2),
    "bf16": (1, 2),
    "q8_0": (32, 34),
    "q5_1": (32, 24),
    "q5_0": (32, 22),
    "q4_1": (32, 20),
    "q4_0": (32, 18),
    "iq4_nl": (32, 18),
    "turbo4": (128, 68),
    "turbo3": (128, 50),
    "turbo2": (128, 34),
}
PLAIN_TYPES = frozenset({"f32", "f16", "bf16"})

_WINDOW_STEP = 256
_FLOAT = 4
# The fork replaces keys of a turbo type from this number of heads per KV head on.
_UPGRADE_GQA = 6
_TURBO_BLOCK = 128
# Two rotations of 128 x 128 and one scale per channel, all F32, beside the first layer of a cache.
_ROTATIONS = (2 * _TURBO_BLOCK * _TURBO_BLOCK + _TURBO_BLOCK) * _FLOAT
# Fewer layers than these have no protected first and last ones.
_BOUNDARY_LAYERS, _BOUNDARY = 8, 2


def check_types(dialect: Dialect, *types: str) -> None:
    """Raise EstimateError for a cache type that the dialect does not have."""
    offered = [name for name in CACHE_TYPES if dialect == "fork" or not name.startswith("turbo")]
    wrong = next((name for name in types if name not in offered), None)
    if wrong is not None:
        text = N_("No KV cache has the type %(type)s here. Known: %(known)s.")
        raise EstimateError(text, type=wrong[:60], known=", ".join(offered))


def key_type(geometry: Geometry, settings: Settings, type_k: str, type_v: str) -> str:
    """Return the type that keys really get: the fork changes turbo keys with many heads per KV head."""
    turbo = (
        settings.dialect == "fork" and settings.raise_keys and type_k.startswith("turbo") and type_k == type_v
    )
    return "q8_0" if turbo and (geometry.gqa or 0) >= _UPGRADE_GQA else type_k


def cache_sizes(
    geometry: Geometry, layers: Sequence[Layer], settings: Settings, type_k: str, type_v: str
) -> dict[int, int] | None:
    """Return the bytes of keys and values per layer, None when the context size is unknown.

    The types are those asked for. Raises EstimateError when a type does not fit the width of a row.
    """
    if settings.cells is None:
        return None
    type_k, asked_v = key_type(geometry, settings, type_k, type_v), type_v
    cached = [layer for layer in layers if layer.keys]
    sizes: dict[int, int] = {}
    rotated: set[bool] = set()
    # Without flash attention values lie transposed, all as wide as the widest.
    widest = max((layer.values for layer in cached), default=0)
    for layer in cached:
        value_type = _boundary(geometry, settings, layer.index, asked_v)
        values = layer.values if settings.flash_attn or not layer.values else widest
        row = _row(type_k, layer.keys, layer.head_k) + _row(value_type, values, layer.head_v)
        sizes[layer.index] = row * settings.streams * layer_cells(geometry, settings, layer)
        if type_k.startswith("turbo") and layer.window not in rotated:
            rotated.add(layer.window)
            sizes[layer.index] += _ROTATIONS
    return sizes


def layer_cells(geometry: Geometry, settings: Settings, layer: Layer) -> int:
    """Return the tokens that a layer's cache holds for each stream, 0 while the context size is unknown."""
    cells = settings.cells or 0
    if not layer.window or settings.swa_full:
        return cells
    slots = settings.slots if settings.streams == 1 else 1
    needed = min(cells, geometry.window * slots + settings.ubatch)
    return -(-needed // _WINDOW_STEP) * _WINDOW_STEP


def state_sizes(layers: Sequence[Layer], rows: int) -> dict[int, int]:
    """Return the bytes of recurrent state per layer for a number of rows."""
    return {layer.index: layer.state * _FLOAT * rows for layer in layers if layer.state}


def snapshots(geometry: Geometry, settings: Settings) -> int | None:
    """Return the states that each slot keeps beside its own, None when the build's rule is not known."""
    if not settings.snapshots or geometry.architecture not in ROLLBACK[settings.dialect]:
        return 0
    return settings.snapshots if geometry.nextn <= 1 else None


def _boundary(geometry: Geometry, settings: Settings, index: int, type_v: str) -> str:
    """Return the type of a layer's values: the fork keeps the outer layers better when they are turbo2."""
    protects = settings.dialect == "fork" and settings.protect_values
    if not protects or type_v != "turbo2" or geometry.count < _BOUNDARY_LAYERS:
        return type_v
    outer = index < _BOUNDARY or index >= geometry.count - _BOUNDARY
    return "q8_0" if outer else type_v


def _row(name: str, width: int, head: int) -> int:
    """Return the bytes of one token's keys or values; turbo types pad each head to their block."""
    if name.startswith("turbo") and head:
        width = width // head * (-(-head // _TURBO_BLOCK) * _TURBO_BLOCK)
    block, size = CACHE_TYPES[name]
    if width % block:
        text = N_(
            "A KV cache of type %(type)s needs rows of a multiple of %(block)s; this model's have %(width)s."
        )
        raise EstimateError(text, type=name, block=block, width=width)
    return width // block * size
