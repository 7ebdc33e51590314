"""The layers of a model as its header describes them: what each keeps between tokens.

Where the server has rules of its own per architecture, only architectures whose rules are known here are
described; for all others the cache is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from controlpanel.llamacpp.gguf_header import GgufHeader
from controlpanel.llamacpp.memory_types import Dialect

# Every n-th layer attends to everything, the others keep a recurrent state.
QWEN = ("qwen35", "qwen35moe", "qwen3next")
_INTERVAL = 4
# A layer without KV heads keeps a recurrent state.
_BY_HEADS = ("jamba", "granitehybrid", "plamo2", "lfm2", "lfm2moe", "nemotron_h", "nemotron_h_moe")
_BOTH = ("falcon-h1",)
_RECURRENT = ("mamba", "mamba2")
# Every n-th layer attends to everything, the others to a window; a pattern in the file goes first.
_PERIODS = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2, "cohere2": 4}
_PATTERN_IN_FILE = ("gemma4", "mimo2", "step35")
# They read the key of the window and attend to everything all the same, or do not read it.
_NO_WINDOW = ("phi3", "llama", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe")
# The caches of these hold more than keys and values, or are shared between layers by rules of their own.
_OWN_CACHE = (
    "deepseek32",
    "deepseek4",
    "glm-dsa",
    "glm5-next",
    "kimi-linear",
    "kimi_k3",
    "gemma3n",
    "t5",
) + ("llama4", "exaone-moe", "gemma4-assistant")
_NO_CACHE = (
    "bert",
    "nomic-bert",
    "nomic-bert-moe",
    "neo-bert",
    "eurobert",
    "modern-bert",
    "jina-bert-v2",
) + ("jina-bert-v3", "gemma-embedding", "wavtokenizer-dec", "dream", "llada", "llada-moe", "rnd1")
_STATE_KEYS = ("ssm.", "wkv.", "shortconv.", "kda.", "attention.indexer.", "rwkv", "token_shift_count")
# Architectures of which drafts can be taken back, so that a slot keeps one state per drafted token.
ROLLBACK: dict[Dialect, tuple[str, ...]] = {
    "upstream": ("qwen35", "qwen35moe", "qwen4exp", "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe")
    + ("kimi_k3", "deepseek4", "glm5_next", "bailingmoe3"),
    "fork": ("qwen35", "qwen35moe"),
}


@dataclass(frozen=True)
class Layer:
    """What a layer keeps: widths of keys and values per token (0: none), and floats of state per slot.

    `window` tells that it attends to the last tokens only; `head_k` and `head_v` are the widths of one head.
    """

    index: int
    keys: int = 0
    values: int = 0
    head_k: int = 0
    head_v: int = 0
    window: bool = False
    state: int = 0


@dataclass(frozen=True)
class Geometry:
    """The layers of a model; `trunk` and `mtp` are None when the file does not tell what they keep.

    `count` counts all layers, MTP layers included. `recurrent` tells of a state, even of unknown size.
    `gqa` is the number of heads per KV head, `window` the tokens of the window.
    """

    architecture: str
    count: int
    nextn: int
    trunk: tuple[Layer, ...] | None
    mtp: tuple[Layer, ...] | None
    recurrent: bool
    gqa: int | None
    window: int


def read_geometry(header: GgufHeader) -> Geometry | None:
    """Return the layers, None when the file does not even say how many there are."""
    architecture, count = header.architecture, header.block_count
    if architecture is None or not count or count > 4096:
        return None
    nextn = min(header.nextn_layers, count)
    reader = _Reader(header, architecture, count - nextn)
    layers = [reader.layer(index) for index in range(count)]
    known = [layer for layer in layers if layer is not None]
    trunk = tuple(layer for layer in known if layer.index < count - nextn)
    mtp = tuple(layer for layer in known if layer.index >= count - nextn)
    # The MTP layer of a model with windows has rules of its own.
    plain_mtp = len(mtp) == nextn and not any(layer.window for layer in known)
    heads, heads_kv = reader.at(header.head_count, 0), reader.at(header.head_count_kv, 0)
    return Geometry(
        architecture=architecture,
        count=count,
        nextn=nextn,
        trunk=trunk if len(trunk) == count - nextn else None,
        mtp=mtp if plain_mtp else None,
        recurrent=reader.keeps_state,
        gqa=None if heads is None or heads_kv is None else heads // heads_kv if heads_kv else 1,
        window=reader.window,
    )


class _Reader:
    """Reads one layer after the other from the header."""

    def __init__(self, header: GgufHeader, architecture: str, trunk: int) -> None:
        self.header = header
        self.architecture = architecture
        self.trunk = trunk
        self.window = self._key("attention.sliding_window") or 0
        self.keeps_state = architecture in (*QWEN, *_BY_HEADS, *_BOTH, *_RECURRENT) or any(
            key.startswith(tuple(header.arch_key(start) for start in _STATE_KEYS)) for key in header.metadata
        )
        self.is_windowed = self._windows()
        self.state = self._state()

    def layer(self, index: int) -> Layer | None:
        """Return a layer, None when the file or this module does not tell what it keeps."""
        if self.architecture in _NO_CACHE:
            return Layer(index)
        if self.architecture in _OWN_CACHE or self.is_windowed is None:
            return None
        recurrent = self._recurrent(index)
        if recurrent is None or (recurrent and self.state is None):
            return None
        state = (self.state or 0) if recurrent else 0
        if (recurrent and self.architecture not in _BOTH) or not self._has_cache(index):
            return Layer(index, state=state)
        return self._attention(index, state)

    def at(self, value: int | tuple[int, ...] | None, index: int) -> int | None:
        """Return the number of a layer, of a value for all layers or per layer."""
        if isinstance(value, tuple):
            return value[index] if index < len(value) else None
        return value

    def _key(self, name: str) -> int | None:
        return self.header.number(self.header.arch_key(name))

    def _attention(self, index: int, state: int) -> Layer | None:
        header = self.header
        heads = self.at(header.head_count, index)
        heads_kv = self.at(header.head_count_kv if header.head_count_kv is not None else heads, index)
        windowed = self.is_windowed is not None and self.is_windowed(index)
        fallback = header.embedding_length // heads if header.embedding_length and heads else None
        head_k, head_v = header.key_length or fallback, header.value_length or fallback
        if windowed:
            head_k = self._key("attention.key_length_swa") or head_k
            head_v = self._key("attention.value_length_swa") or head_v
        if heads_kv is None or head_k is None or head_v is None:
            return None
        # Multi-head latent attention keeps one compressed row, from which the values are made as well.
        latent = self._key("attention.key_length_mla") and self._key("attention.value_length_mla")
        values = 0 if latent else heads_kv * head_v
        return Layer(index, heads_kv * head_k, values, head_k, head_v, windowed, state)

    def _has_cache(self, index: int) -> bool:
        """Tell whether a layer that is not recurrent has a cache of its own."""
        if self.architecture.startswith("nemotron_h"):
            return bool(self.at(self.header.head_count_kv, index))
        return index < self.trunk - (self._key("attention.shared_kv_layers") or 0) or index >= self.trunk

    def _recurrent(self, index: int) -> bool | None:
        if index >= self.trunk or not self.keeps_state:
            return False
        if self.architecture in (*_RECURRENT, *_BOTH):
            return True
        if self.architecture in _BY_HEADS:
            heads = self.at(self.header.head_count_kv, index)
            if heads is None or not self.architecture.startswith("nemotron_h"):
                return None if heads is None else heads == 0
            width = self.at(self.header.numbers(self.header.arch_key("feed_forward_length")), index)
            return None if width is None else heads == 0 and width == 0
        if self.architecture not in QWEN:
            return None
        listed = self.header.metadata.get(self.header.arch_key("attention.recurrent_layers"))
        if isinstance(listed, tuple):
            return bool(listed[index]) if index < len(listed) else None
        return (index + 1) % (self._key("full_attention_interval") or _INTERVAL) != 0

    def _state(self) -> int | None:
        """Return the floats of state per slot and layer, None when the file does not say it."""
        short = self._key("shortconv.l_cache")
        if short and self.header.embedding_length:
            return self.header.embedding_length * (short - 1)
        kernel, inner = self._key("ssm.conv_kernel"), self._key("ssm.inner_size")
        state, groups = self._key("ssm.state_size"), self._key("ssm.group_count")
        if self.architecture in ("mamba", "jamba") and groups is None:
            groups = 0
        if kernel is None or inner is None or state is None or groups is None:
            return None
        return max(0, kernel - 1) * (inner + 2 * groups * state) + state * inner

    def _windows(self) -> Callable[[int], bool] | None:
        """Return which layers attend to a window only, None when that is not known."""
        key = self.header.arch_key("attention.sliding_window_pattern")
        listed, period = self.header.metadata.get(key), self.header.number(key)
        known = self.architecture in _PERIODS or self.architecture in _PATTERN_IN_FILE
        if not self.window or self.architecture in _NO_WINDOW:
            # Gemma 2 has a window that older files do not name.
            return None if self.architecture == "gemma2" and not self.window else lambda index: False
        if not known:
            return None
        if isinstance(listed, tuple):
            return lambda index: index < len(listed) and bool(listed[index])
        period = period or _PERIODS.get(self.architecture)
        if period is None:
            return None
        return lambda index: index % period < period - 1
