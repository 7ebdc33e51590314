"""The work memory of a projector that sees pictures.

It is at most 2 x pixels x 12 + patches x 4 x (12 x embedding + 2 x feed-forward) bytes.
"""

from __future__ import annotations

from controlpanel.llamacpp.gguf_header import GgufHeader

# Those of which the server tries a picture of 46 x 46 tokens when it starts.
_WARM_TOKENS = ("qwen2vl_merger", "qwen2.5vl_merger", "qwen3vl_merger")
_WARM_SIDE = 46
_FIXED_SIZE = ("mlp", "mlp_norm", "ldp", "ldpv2", "gemma3")


def projector_work(header: GgufHeader) -> int | None:
    """Return the bound in bytes, None for kinds whose sizes are not known here."""
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
