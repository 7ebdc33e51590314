"""Reading a llama-server's log in both dialects: how far it got, and what went wrong."""

from __future__ import annotations

import json
import re

MAX_TEXT = 1024 * 1024
MAX_LINE = 500

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_STAMP = re.compile(r"\d+\.\d\d\.\d{3}\.\d{3} ([IWED]) ")
# Progress dots end without a newline, so the next message follows them on their line.
_DOTS = re.compile(r"\.{3,}(?=[^.\s])")

# In the order of a start. A stage is reported when it begins, and may be reported more than once.
MILESTONES = ("loading", "context", "mtp", "vision", "warmup", "loaded", "listening")

_MILESTONES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("listening", re.compile(r"^(?:srv +)?\w+: (?:server is )?listening on (?:https?|unix)://")),
    ("loaded", re.compile(r"^(?:srv +)?\w+: model loaded$")),
    ("loading", re.compile(r"load_model: loading model '")),
    (
        "mtp",
        re.compile(
            r"creating MTP draft context|loading MTP head from|MTP draft head registered"
            r"|loading draft model '|speculative decoding context initialized"
        ),
    ),
    ("vision", re.compile(r"loaded multimodal model|^clip_model_loader: model name")),
    ("warmup", re.compile(r"warming up the model|^warmup: warmup with image")),
    ("context", re.compile(r"^llama_context: constructing|load_model: initializing(?: slots)?, n_slots")),
)

_ERROR = re.compile(
    r"^error[: ]|\berror: |GGML_ASSERT|GGML_ABORT|CUDA error|out of memory|insufficient memory"
    r"|\bfailed to |couldn't bind|unable to allocate|Unsupported cache type"
    r"|unknown (?:model architecture|projector type|buffer type|speculative)"
    r"|invalid (?:magic|ggml type|device|value)"
    r"|not supported|only supports|supports only|requires flash_attn|requires nextn|doesn't contain MTP"
    r"|not within the file bounds|mismatch between|missing tensor|wrong number of tensors|wrong shape"
    r"|cannot be used as main model|illegal split|key not found in model|terminate called|what\(\):"
    r"|[Ss]egmentation fault|[Ii]llegal instruction|Bus error|error while loading shared libraries",
)
# Said by healthy starts too, or about a dry run that the real attempt repeats.
_HARMLESS = re.compile(
    r"common_(?:params_)?fit|fit params|--cache-idle-slots requires|failed to measure"
    r"|failed to get memory usage|retrying without pipeline|failed to mlock"
    r"|failed to find free space|^#\d+ |^hint: "
)
_GENERIC = re.compile(
    r"exiting due to|: failed to load model(?:$|,| ')|failed to create.context with model"
    r"|failed to load model from |failed to load multimodal model|failed to create MTP context"
)
_REQUEST = re.compile(r"send_error: task id|got exception: |[Uu]nauthorized: ")
_TELLING_WARNING = re.compile(r"doesn't contain MTP layers|failed to initialize speculative decoding")


def strip_prefix(line: str) -> str:
    """Return a log line without colours, time stamp, level, JSON wrapping and progress dots before it."""
    return _split(line)[1]


def milestone(line: str) -> str | None:
    """Return the stage of a start that a line announces, None for any other line."""
    text = strip_prefix(line)
    return next((name for name, pattern in _MILESTONES if pattern.search(text)), None)


def last_errors(text: str, n: int = 3) -> list[str]:
    """Return at most `n` lines that tell best why a server ended, without prefixes and repetitions.

    Before the server listens, the first error is the cause and the others follow from it; afterwards the
    last ones matter. General last words are returned only when there is nothing better.
    """
    ranks: tuple[dict[str, None], ...] = ({}, {}, {})
    listening = False
    for line in re.split(r"[\r\n]+", text[-MAX_TEXT:]):
        level, plain = _split(line)
        if milestone(plain) == "listening":
            listening = True
            ranks = ({}, {}, {})
        rank = _rank(level, plain)
        if rank is not None:
            shown = plain[:MAX_LINE]
            if listening:
                ranks[rank].pop(shown, None)
            ranks[rank][shown] = None
    found = next((list(lines) for lines in ranks if lines), [])
    return found[-n:] if listening else found[:n]


def _rank(level: str, text: str) -> int | None:
    """Return 0 for a telling error, 1 for general last words, 2 for a failed request, None for no error."""
    if not text or text.startswith(" ") or _HARMLESS.search(text):
        return None
    if level in ("I", "D") or (level == "W" and not _TELLING_WARNING.search(text)):
        return None
    if level == "" and not _ERROR.search(text) and not _GENERIC.search(text) and not _REQUEST.search(text):
        return None
    if _REQUEST.search(text):
        return 2
    return 1 if _GENERIC.search(text) else 0


def _split(line: str) -> tuple[str, str]:
    """Return the level letter (empty in the older dialect) and the text of a line."""
    line = _ANSI.sub("", line).rstrip("\r\n")
    dots = _DOTS.match(line)
    if dots:
        line = line[dots.end() :]
    if line.startswith('{"type":"log"'):
        return _from_json(line)
    stamp = _STAMP.match(line)
    if stamp is None:
        return "", line.rstrip()
    text = line[stamp.end() :].rstrip()
    dots = _DOTS.match(text)
    return stamp[1], text[dots.end() :] if dots else text


def _from_json(line: str) -> tuple[str, str]:
    try:
        record = json.loads(line)
        return str(record.get("level", ""))[:1].upper(), str(record.get("msg", "")).rstrip()
    except (ValueError, AttributeError, RecursionError):
        return "", line
