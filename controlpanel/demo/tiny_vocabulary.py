"""The tiny model's tokens, and its table "token -> next token" as output matrices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

WIDTH = 384
# Dimensions of the residual stream above the vocabulary: features that the projector writes for each image
# patch, and where the attention layer puts what it read of them.
CONST, IMAGE, COLOUR = WIDTH - 1, WIDTH - 2, WIDTH - 8
READ_IMAGE, READ_COLOUR = WIDTH - 9, WIDTH - 16

REPLY = (
    "Hello! I am a tiny deterministic language model made for tests, and this reply is always identical. "
    "Each token simply selects its fixed successor, so nothing here was learned from data. "
    "My purpose: prove that the real llama-server loads weights, fills KV cache, streams tokens, "
    "counts timings plus verifies drafted guesses with multi-token prediction. "
    "When you attach one image, attention reads pixel features instead. Goodbye."
)
COLOURS = ("Black", "White", "Red", "Green", "Blue")
MIXED = "Mixed"
IMAGE_REPLY = (" is the", " main", " color", " of", " this picture.")
CONTROL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
)
USER_TOKENS = ("<think>", "</think>")


@dataclass
class Vocabulary:
    """Token texts in GPT-2's byte alphabet, and the ids that the successor table needs."""

    tokens: list[str] = field(default_factory=list)
    types: list[int] = field(default_factory=list)
    merges: list[str] = field(default_factory=list)
    reply: list[int] = field(default_factory=list)
    colours: list[int] = field(default_factory=list)
    image_reply: list[int] = field(default_factory=list)
    special: dict[str, int] = field(default_factory=dict)

    def add(self, text: str, kind: int) -> int:
        self.tokens.append(text)
        self.types.append(kind)
        return len(self.tokens) - 1


def _byte_alphabet() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


def make_vocabulary() -> Vocabulary:
    from gguf import TokenType

    alphabet = _byte_alphabet()
    normal = int(TokenType.NORMAL)
    vocabulary = Vocabulary()

    def word(text: str) -> int:
        return vocabulary.add("".join(alphabet[byte] for byte in text.encode()), normal)

    for byte in range(256):
        vocabulary.add(alphabet[byte], normal)
    for first, second in (("h", "e"), ("i", "n"), (alphabet[32], "t")):
        vocabulary.add(first + second, normal)
        vocabulary.merges.append(f"{first} {second}")
    vocabulary.reply = [word((" " if n else "") + text) for n, text in enumerate(REPLY.split(" "))]
    vocabulary.colours = [word(text) for text in (*COLOURS, MIXED)]
    vocabulary.image_reply = [word(text) for text in IMAGE_REPLY]
    for text in CONTROL_TOKENS:
        vocabulary.special[text] = vocabulary.add(text, int(TokenType.CONTROL))
    for text in USER_TOKENS:
        vocabulary.special[text] = vocabulary.add(text, int(TokenType.USER_DEFINED))
    return vocabulary


def successor_tables(vocabulary: Vocabulary, miss: int) -> tuple[Any, Any]:
    """Output matrices (tokens x WIDTH) of the model and of its MTP head."""
    import numpy as np

    end = vocabulary.special["<|im_end|>"]
    reply, colours, tail = vocabulary.reply, vocabulary.colours, vocabulary.image_reply
    follows = dict(zip(reply, [*reply[1:], end], strict=True))
    follows |= dict.fromkeys(colours, tail[0])
    follows |= dict(zip(tail, [*tail[1:], end], strict=True))
    # Any other token ends a prompt, and there the reply starts: with a colour if there was an image.
    starts = [token for token in range(len(vocabulary.tokens)) if token not in follows]

    table = np.zeros((len(vocabulary.tokens), WIDTH), np.float32)
    for token, successor in follows.items():
        table[successor, token] = 4
    for last in (reply[-1], tail[-1]):
        table[reply[0], last] = 3  # where the end token is forbidden, the reply starts again
    table[reply[0], starts] = 4
    for n, colour in enumerate(colours[:-1]):
        table[colour, starts] = 3
        table[colour, READ_COLOUR + n] = 2
    table[colours[-1], starts] = 3
    table[colours[-1], READ_IMAGE] = 1.4

    draft = table.copy()
    if miss:
        draft[reply[0], reply[miss - 1 : -1 : miss]] = 8
    return table, draft
