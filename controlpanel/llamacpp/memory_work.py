"""Upper bounds for the memory of computations, which no formula gives exactly. Sizes in bytes.

A context's work memory is at most

    rows x vocabulary x 4                    the scores of the tokens that are asked for
    + u x cells x m                          the mask, m = 2 bytes (upstream) or 6 (fork)
    + u x w x 4                              what one layer computes at a time
    + one layer's quantised cache as F16     flash attention on upstream; the fork takes it at run time
    + 2 x u x heads x cells x 4              only without flash attention

with u tokens per computation (at least 64), and the width of a layer
w = 8 x embedding + 3 x feed-forward (experts in use) + 4 x (queries + keys + values) + 4 x (state inputs).
With several cards the mask is there four times: the server prepares four computations at once.
A projector's is at most 2 x pixels x 12 + patches x 4 x (12 x embedding + 2 x feed-forward).
"""

from __future__ import annotations

from controlpanel.llamacpp.gguf_header import GgufHeader
from controlpanel.llamacpp.memory_layers import Geometry
from controlpanel.llamacpp.memory_settings import Settings

DRIVER = 600 * 1024 * 1024
"""What the driver and its libraries take of a card that a server uses: 300 to 600 MiB."""

_MASK = {"upstream": 2, "fork": 6}
_MIN_TOKENS = 64
_COPIES = 4
# Those of which the server tries a picture of 46 x 46 tokens when it starts.
_WARM_TOKENS = ("qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger")
_WARM_SIDE = 46
_FIXED_SIZE = ("mlp", "mlp_norm", "ldp", "ldpv2", "gemma3")


def output_rows(settings: Settings, draft: bool = False) -> int:
    """Return for how many tokens a context reserves scores."""
    if settings.dialect == "fork":
        return settings.ubatch
    rows = settings.slots if draft else settings.slots * (1 + settings.snapshots)
    return min(settings.ubatch, rows)


def layer_width(header: GgufHeader) -> int | None:
    """Return the floats per token while a layer is computed, None when the file does not say enough."""

    def number(key: str) -> int:
        return _most(header.numbers(header.arch_key(key))) or 0

    embedding, heads = header.embedding_length, _most(header.head_count)
    feed = number("feed_forward_length")
    if number("expert_count"):
        experts = number("expert_used_count") * number("expert_feed_forward_length")
        feed = max(feed, experts + number("expert_shared_feed_forward_length"))
    if not embedding or not (feed or number("ssm.inner_size")):
        return None
    head = max(header.key_length or 0, header.value_length or 0) or embedding // (heads or 1)
    attention = 2 * (heads or 0) * head + 2 * (_most(header.head_count_kv) or heads or 0) * head
    state = number("ssm.inner_size") + 2 * number("ssm.group_count") * number("ssm.state_size")
    return 8 * embedding + 3 * feed + 4 * attention + 4 * state


def work_size(
    header: GgufHeader, geometry: Geometry, settings: Settings, *, rows: int, scratch: int, cards: int
) -> int | None:
    """Return the bound for one context on one card; `rows` of scores are made there, 0 for none."""
    width, cells = layer_width(header), settings.cells
    vocabulary = header.vocabulary
    if width is None or cells is None or (rows and vocabulary is None):
        return None
    tokens = max(settings.ubatch, _MIN_TOKENS)
    windowed = geometry.trunk is not None and any(layer.window for layer in geometry.trunk)
    masks = (2 if windowed else 1) * (_COPIES if cards > 1 else 1)
    size = rows * (vocabulary or 0) * 4 + tokens * width * 4
    size += masks * tokens * cells * _MASK[settings.dialect]
    if not settings.flash_attn:
        size += 2 * tokens * (_most(header.head_count) or 0) * cells * 4
    return size + (scratch if settings.dialect == "upstream" else 0)


def projector_work(header: GgufHeader) -> int | None:
    """Return the bound for a projector that sees pictures, None for kinds whose sizes are not known here."""
    facts = header.projector
    patch = header.number("clip.vision.patch_size")
    embedding = header.number("clip.vision.embedding_length")
    feed = header.number("clip.vision.feed_forward_length")
    if facts is None or facts.audio or not patch or not embedding or feed is None:
        return None
    if facts.type in _WARM_TOKENS:
        side = _WARM_SIDE * patch * (header.number("clip.vision.spatial_merge_size") or 2)
    elif facts.type in _FIXED_SIZE:
        side = header.number("clip.vision.image_size") or 0
    else:
        side = 0
    if not side:
        return None
    return 2 * side * side * 12 + (side // patch) ** 2 * 4 * (12 * embedding + 2 * feed)


def _most(value: int | tuple[int, ...] | None) -> int | None:
    return max(value, default=0) if isinstance(value, tuple) else value
