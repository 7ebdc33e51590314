"""The memory of computations: an upper bound, and what one measured start makes of it. Sizes in bytes.

A server reserves its work memory for one computation of u tokens (-ub, rounded up to a multiple of the
slots). What lies in it all the time is known to the byte:

    u x cells x m                            the mask, m = 2 (upstream) or 6 (fork); 4 without flash
                                             attention; layers with a window have one more
    head x head x 4                          upstream's rotations of quantised keys and values

with the cells of one cache. Beside it the largest of these has to fit, of which only w is not known:

    u x w x 4                                what one layer computes at a time
    u x w x 4 x 9/10 + s                     with one layer's cache as F16, s: see `unpacked`
    u x w x 4 x r + slots x (2 + n) x state  with recurrent states, upstream n of them kept for drafts
    rows x vocabulary x 4 + u x w x 4 x 2/5  the scores of the tokens that are asked for, without the masks
    u x heads x cells x 4                    without flash attention, added

The bound takes the sum of all instead of the largest, and for w a width that no known layer has:

    w = 8 x embedding + the most of  3 x feed-forward (+ 2 x embedding per expert in use)
                                     3 x (2 x queries + 2 x keys and values)
                                     6 x state inputs

It takes at least the masks of one computation with what one feed-forward has at a time, or the scores.

A measured start tells w, as a part of that width (see memory_learn). A server of several cards that hold all
layers prepares four computations at once: each card has the mask four times, the fork its F16 once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controlpanel.llamacpp.gguf_header import GgufHeader
from controlpanel.llamacpp.memory_cache import PLAIN_TYPES, key_type, layer_cells, snapshots
from controlpanel.llamacpp.memory_layers import Geometry, Layer
from controlpanel.llamacpp.memory_settings import Settings
from controlpanel.llamacpp.memory_types import HOST

DRIVER = 600 * 1024 * 1024
"""What the driver and its libraries take of a card that a server uses: 300 to 600 MiB."""
DRIVER_LEAST = 250 * 1024 * 1024

GATE = "blk.0.ffn_gate.weight"
"""A model whose layers have two feed-forward inputs, which are there at the same time, has this tensor."""

_FLOAT = 4
_MIN_TOKENS = 64
_COPIES = 4
# Of the work of a layer, what is there beside an unpacked cache, and beside recurrent states: more per token
# while a slot has few tokens of a computation.
_BESIDE_CACHE = 0.9
_BESIDE_SCORES = 0.4
_SMALL_CACHE = 0.25
_FEW_TOKENS, _BESIDE_STATES_FEW, _BESIDE_STATES = 40, 1.05, 0.86
# With no more tokens than these, what a layer takes cannot be told from the states.
_TELLING_TOKENS = 64
# States of a slot beside those kept for drafts; the bound has one more.
_STATES = 2
# The side of the matrix that rotates quantised values.
_VALUE_ROTATION = 64


@dataclass(frozen=True)
class Work:
    """The work memory of one context on one card in bytes, by what it is made of.

    `fixed` lies there all the time; `layer` is the width that no layer has, for all tokens, and `least` the
    same for few. `attention` is what attention takes without flash attention. `beside` is the part of a
    layer's work that is there together with `states`; when it is `telling`, a size tells what a layer takes.
    It never takes less than `floor`.
    """

    fixed: int
    layer: int
    least: int
    attention: int
    scores: int
    cache: int
    states: int
    more_states: int
    beside: float
    telling: bool
    floor: int

    def bound(self) -> int:
        """Return what it is at most."""
        layer = max(self.layer, self.least)
        known = self.fixed + self.attention + self.scores + self.cache + self.states + self.more_states
        return known + layer

    def corrected(self, part: float) -> int:
        """Return what it is when a layer takes this part of the width."""
        return self.fixed + round(
            max(size + share * self.layer * part for size, share in self._candidates(self.cache))
        )

    def part(self, measured: float) -> float | None:
        """Return the part of the width that makes it this size, None when the size does not tell it."""
        left = measured - self.fixed
        if not self.telling:
            return None
        # A small cache may well have been beside less than the largest work.
        small = self.cache < _SMALL_CACHE * left
        candidates = self._candidates(0 if small else self.cache)
        parts = [(left - size) / (share * self.layer) for size, share in candidates]
        return min(parts) if min(parts) > 0 else None

    def _candidates(self, cache: int) -> Iterable[tuple[int, float]]:
        """Return what may be the largest: bytes that are known, and the share of a layer's work beside."""
        yield self.attention, 1.0
        if cache:
            yield cache, _BESIDE_CACHE
        if self.states:
            yield self.states, self.beside
        if self.scores:
            # They are made last, when the masks are not needed any more.
            yield self.scores - self.fixed, _BESIDE_SCORES


def output_rows(settings: Settings, draft: bool = False) -> int:
    """Return for how many tokens a context reserves scores."""
    if settings.dialect == "fork":
        return _tokens(settings)
    rows = settings.slots if draft else settings.slots * (1 + settings.snapshots)
    return min(settings.ubatch, rows)


def target_work(
    header: GgufHeader, geometry: Geometry, settings: Settings, places: Sequence[int], cards: int
) -> dict[int, Work | None]:
    """Return the work memory of the model's own context by place, None where the file says too little."""
    types = (key_type(geometry, settings, settings.type_k, settings.type_v), settings.type_v)
    copies = _copies(geometry, settings, cards)
    found: dict[int, Work | None] = {}
    for place in sorted(set(places)):
        local = [layer for layer in geometry.trunk or () if places[layer.index] == place]
        rows = output_rows(settings) if place == places[-1] else 0
        kept = snapshots(geometry, settings)
        found[place] = _work(header, geometry, settings, place, local, types, rows, copies, kept or 0)
    return found


def draft_work(
    header: GgufHeader, geometry: Geometry, settings: Settings, places: Sequence[int], cards: int
) -> dict[int, Work | None]:
    """Return the work memory of the MTP context by place, None where the file says too little."""
    types = (settings.draft_type_k, settings.draft_type_v)
    mine = set(places[geometry.count - geometry.nextn : geometry.count])
    if not settings.kv_offload:
        mine = {HOST}
    copies = _copies(geometry, settings, cards)
    found: dict[int, Work | None] = {}
    for place in sorted({*mine, places[-1]}):
        rows = output_rows(settings, draft=True) if place == places[-1] else 0
        found[place] = _work(header, geometry, settings, place, geometry.mtp or (), types, rows, copies, 0)
    return found


def unpacked(
    geometry: Geometry,
    settings: Settings,
    layers: Iterable[Layer],
    types: tuple[str, str],
    packed: Iterable[str],
) -> int:
    """Return the bytes for one layer's cache as F16, of keys and of values whose type is one of `packed`."""
    keys, values = (name in packed for name in types)
    if settings.cells is None or not settings.flash_attn:
        return 0
    sizes = (
        (layer.keys * keys + layer.values * values) * layer_cells(geometry, settings, layer)
        for layer in layers
    )
    return 2 * max(sizes, default=0) * settings.streams


def run_time_cache(
    geometry: Geometry, settings: Settings, layers: Iterable[Layer], types: tuple[str, str]
) -> int:
    """Return what the fork takes of a card while it computes: quantised caches as F16, in no buffer."""
    if settings.dialect != "fork":
        return 0
    return unpacked(geometry, settings, layers, types, set(types) - PLAIN_TYPES)


def layer_width(header: GgufHeader) -> int | None:
    """Return the floats per token that no layer exceeds, None when the file does not say enough."""

    def number(key: str) -> int:
        return _most(header.numbers(header.arch_key(key))) or 0

    embedding, heads = header.embedding_length, _most(header.head_count)
    feed = 3 * number("feed_forward_length")
    if number("expert_count"):
        used = number("expert_used_count")
        experts = used * number("expert_feed_forward_length") + number("expert_shared_feed_forward_length")
        feed = max(feed, 3 * experts) + 2 * used * (embedding or 0)
    if not embedding or not (feed or number("ssm.inner_size")):
        return None
    head = max(header.key_length or 0, header.value_length or 0) or embedding // (heads or 1)
    attention = 2 * (heads or 0) * head + 2 * (_most(header.head_count_kv) or heads or 0) * head
    state = number("ssm.inner_size") + 2 * number("ssm.group_count") * number("ssm.state_size")
    return 8 * embedding + max(feed, 3 * attention, 6 * state)


def _work(
    header: GgufHeader,
    geometry: Geometry,
    settings: Settings,
    place: int,
    layers: Sequence[Layer],
    types: tuple[str, str],
    rows: int,
    copies: int,
    kept: int,
) -> Work | None:
    width, cells, vocabulary = layer_width(header), settings.cells, header.vocabulary
    if width is None or cells is None or (rows and vocabulary is None):
        return None
    tokens, fork = _tokens(settings), settings.dialect == "fork"
    fixed = tokens * _mask_cells(geometry, settings) * _mask(settings, 1 if place == HOST else copies)
    if not fork:
        fixed += _rotations(layers, types)
    heads = 0 if settings.flash_attn else _most(header.head_count) or 0
    # The graph itself makes F16 of F32; on a card flash attention does of all other types.
    packed = {"f32"} if place == HOST or fork else {*types} - {"f16"}
    state = _state(header, layers) * _FLOAT
    each = tokens // settings.slots
    return Work(
        fixed=fixed,
        layer=tokens * width * _FLOAT,
        least=_MIN_TOKENS * width * _FLOAT,
        attention=tokens * heads * cells * _FLOAT,
        scores=rows * (vocabulary or 0) * _FLOAT,
        cache=unpacked(geometry, settings, layers, types, packed),
        states=state * settings.slots * (_STATES + (0 if fork else kept)),
        more_states=state * settings.slots * (1 + (kept if fork else 0)),
        beside=_BESIDE_STATES_FEW if each <= _FEW_TOKENS else _BESIDE_STATES,
        telling=not state or each > _TELLING_TOKENS,
        floor=_floor(header, geometry, settings, layers, rows),
    )


def _floor(
    header: GgufHeader, geometry: Geometry, settings: Settings, layers: Sequence[Layer], rows: int
) -> int:
    """Return what the work memory is at least: masks and one layer's feed-forward, or the scores."""
    tokens = _tokens(settings)
    if settings.cells is not None:
        tokens = min(tokens, settings.cells)
    whole = any(layer.keys and not layer.window for layer in layers)
    masks = tokens * (settings.cells or 0) * _mask(settings, 1) if whole else 0
    feed = _most(header.numbers(header.arch_key("feed_forward_length"))) or 0
    gates = 2 * feed if GATE in header.tensor_names else 0
    width = (header.embedding_length or 0) + gates if layers else 0
    return max(masks + tokens * width * _FLOAT, rows * (header.vocabulary or 0) * _FLOAT)


def _copies(geometry: Geometry, settings: Settings, cards: int) -> int:
    """Return how many computations a server of several cards prepares at once: only with all layers there."""
    everything = settings.gpu_layers is None or settings.gpu_layers > geometry.count
    moved = settings.cpu_moe or settings.n_cpu_moe or not settings.kv_offload
    several = cards > 1 and settings.split_mode == "layer" and everything and not moved
    return _COPIES if several else 1


def _tokens(settings: Settings) -> int:
    """Return for how many tokens a computation is reserved: as many for each slot."""
    return -(-settings.ubatch // settings.slots) * settings.slots


def _mask(settings: Settings, copies: int) -> int:
    """Return the bytes of a mask's element: F16, or F32 from which the fork makes F16 for flash attention."""
    if settings.flash_attn and settings.dialect == "upstream":
        return 2 * copies
    return 4 * copies + (2 if settings.flash_attn else 0)


def _mask_cells(geometry: Geometry, settings: Settings) -> int:
    """Return the cells that a mask has columns for, of the layers with a window too."""
    kinds = {layer.window: layer_cells(geometry, settings, layer) for layer in geometry.trunk or ()}
    return (settings.cells or 0) + kinds.get(True, 0)


def _rotations(layers: Sequence[Layer], types: tuple[str, str]) -> int:
    """Return the bytes of the matrices that rotate quantised keys and values, once per kind of layer."""
    keys, values = (name not in PLAIN_TYPES for name in types)
    size = 0
    for window in (False, True):
        head = max((layer.head_k for layer in layers if layer.window is window), default=0)
        if head:
            size += (keys * head**2 + values * _VALUE_ROTATION**2) * _FLOAT
    return size


def _state(header: GgufHeader, layers: Sequence[Layer]) -> int:
    """Return the floats of one layer's state without what its convolution keeps, the larger of both."""
    inner, size = (header.number(header.arch_key(f"ssm.{key}")) or 0 for key in ("inner_size", "state_size"))
    kept = max((layer.state for layer in layers), default=0)
    return max(min(kept, inner * size), kept - inner * size)


def _most(value: int | tuple[int, ...] | None) -> int | None:
    return max(value, default=0) if isinstance(value, tuple) else value
