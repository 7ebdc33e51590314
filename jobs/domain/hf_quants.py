"""The quantisation in the name of a file: which it is, and which of two is the finer one."""

from __future__ import annotations

import re

_LABEL = re.compile(
    r"(?<![A-Za-z0-9])(?P<label>(?:UD[-_])?(?:"
    r"IQ[1-9]_(?:XXS|XS|NL|KSS|KS|KT|KL|K|S|M|L)(?:_(?:XS|S|M|L|XL))?"
    r"|Q[1-9]_(?:K(?:_(?:XXS|XS|S|M|L|XL|XXL|P))?|[01](?:_(?:4_4|4_8|8_8))?|K[SMLP])"
    r"|TQ[1-9]_(?:0|1S|4S)|MXFP4(?:_MOE)?|NVFP4|BF16|F[P]?16|F[P]?32"
    r")(?:_R(?:4|8|16))?)(?![A-Za-z0-9])",
    re.IGNORECASE,
)
_SPELT = {"FP16": "F16", "FP32": "F32"}
_WHOLE = {"F32": 32.0, "BF16": 16.1, "F16": 16.0, "MXFP4": 4.25, "MXFP4_MOE": 4.25, "NVFP4": 4.5}
_DIGIT = re.compile(r"(?:I|T)?Q([1-9])_(.*)")
# Bits per weight above the digit, roughly what the mixtures come to.
_MORE = {
    "0": 0.5,
    "1": 0.9,
    "1S": 0.5,
    "4S": 0.5,
    "K": 0.58,
    "K_XXS": 0.2,
    "K_XS": 0.3,
    "K_S": 0.5,
    "K_M": 0.85,
    "K_L": 0.9,
    "K_P": 0.92,
    "K_XL": 0.95,
    "K_XXL": 0.97,
    "XXS": 0.1,
    "XS": 0.25,
    "KSS": 0.0,
    "KS": 0.25,
    "KT": 0.1,
    "KL": 0.45,
    "NL": 0.5,
    "S": 0.45,
    "M": 0.7,
    "L": 0.8,
}
UNKNOWN_BITS = 0.0


def label_of(path: str) -> str:
    """Return the label in a file's name, else in its folders' names, in its usual spelling; "" for none."""
    for part in reversed(path.split("/")):
        found = _last(part)
        if found is not None:
            return spelt(found["label"])
    return ""


def without_label(name: str) -> str:
    """Return a file's name without its label and the separators around it."""
    found = _last(name)
    if found is None:
        return name
    before, after = name[: found.start()], name[found.end() :]
    return f"{before.rstrip('-_.')}{after}".strip("-_.")


def spelt(label: str) -> str:
    """Return a label as most people write it: UD-Q4_K_XL, F16."""
    upper = label.upper().replace("UD_", "UD-")
    return _SPELT.get(upper, upper)


def bits_of(label: str) -> float:
    """Return about how many bits a weight takes; UNKNOWN_BITS for a label that says nothing."""
    plain = re.sub(r"_R(?:4|8|16)$", "", spelt(label).removeprefix("UD-"))
    if plain in _WHOLE:
        return _WHOLE[plain]
    match = _DIGIT.fullmatch(plain)
    if match is None:
        return UNKNOWN_BITS
    return int(match[1]) + _MORE.get(match[2], 0.5)


def _last(name: str) -> re.Match[str] | None:
    return next(reversed([*_LABEL.finditer(name)]), None)
