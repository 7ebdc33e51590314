"""Tensor types by name: those of llama.cpp, and those that only one fork knows."""

from __future__ import annotations

import re

from controlpanel.llamacpp.gguf_types import TENSOR_TYPES

TURBOQUANT = "TurboQuant"
IK = "ik_llama.cpp"

# Numbers above those of llama.cpp: (name, the fork that gave it). Types of a KV cache are in no file.
FORK_TYPES: dict[int, tuple[str, str]] = {
    36: ("I2_S", IK),
    45: ("TQ3_1S", TURBOQUANT),
    46: ("TQ4_1S", TURBOQUANT),
    133: ("Q6_0", IK),
    134: ("IQ1_BN", IK),
    135: ("IQ2_BN", IK),
    137: ("IQ2_K", IK),
    138: ("IQ3_K", IK),
    139: ("IQ4_K", IK),
    140: ("IQ5_K", IK),
    141: ("IQ6_K", IK),
    144: ("IQ4_KS", IK),
    145: ("IQ2_KS", IK),
    146: ("IQ4_KSS", IK),
    152: ("IQ5_KS", IK),
    153: ("IQ2_KT", IK),
    154: ("IQ3_KT", IK),
    155: ("IQ4_KT", IK),
    156: ("IQ3_KS", IK),
    157: ("IQ2_KL", IK),
    158: ("IQ1_KT", IK),
}

# In every llama.cpp since GGUF came up, so that no build needs to be asked.
OLD_TYPES = frozenset({*range(0, 4), *range(6, 31)})

# The short names end longer ones ("tq2_0"), and a linker keeps only the longer: a function tells better.
_AMBIGUOUS = {"Q1_0": "dequantize_row_q1_0", "Q2_0": "dequantize_row_q2_0"}
_K_QUANT = re.compile(r"Q\d_K")


def type_label(number: int) -> str:
    """Return the name of a tensor type, with its number where forks disagree about it."""
    known = TENSOR_TYPES.get(number)
    if known is not None:
        return known.name
    fork = FORK_TYPES.get(number)
    return f"{fork[0]} ({number})" if fork else f"type {number}"


def fork_of(number: int) -> str | None:
    """Return the only fork known to use a tensor type in files, None for all others."""
    fork = FORK_TYPES.get(number)
    return fork[1] if fork and number not in TENSOR_TYPES else None


def type_word(number: int) -> str | None:
    """Return the text that the libraries of a build contain when it knows the type; None: nothing is sure."""
    known = TENSOR_TYPES.get(number)
    name = known.name if known else FORK_TYPES[number][0] if number in FORK_TYPES else None
    if name is None:
        return None
    if name in _AMBIGUOUS:
        return _AMBIGUOUS[name]
    return "q" + name[1:] if _K_QUANT.fullmatch(name) else name.lower()
