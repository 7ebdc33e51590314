"""What the log of a running server adds to its meter: signs of work, and answers with their prompts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from servers.domain.timings import Answer, Timings

# A line begins with what the server says of itself; what people wrote stands behind a quotation mark.
_WORK = re.compile(rb"^[^\"\n]{0,120}\| (?:(processing task)|stop processing)", re.MULTILINE)
_PROMPT = re.compile(
    rb"^[^\"\n]{0,120}prompt eval time = +(\d{1,12}(?:\.\d{1,6})?) ms / +(\d{1,12}) tokens", re.MULTILINE
)


@dataclass(frozen=True)
class News:
    """What new text of a log told: requests begun and ended, answers, and `prompts` as (tokens, seconds)."""

    begun: int = 0
    ended: int = 0
    answers: tuple[Answer, ...] = ()
    prompts: tuple[tuple[int, float], ...] = ()


@dataclass
class LogReader:
    """Reads a log that comes in pieces; a line that has no end yet waits for the next one."""

    _timings: Timings = field(default_factory=Timings)
    _rest: bytes = b""

    def read(self, text: bytes) -> News:
        """Return the news of the next piece."""
        whole, end, rest = (self._rest + text).rpartition(b"\n")
        self._rest = rest[-65536:]
        whole += end
        if not whole:
            return News()
        begun = [bool(found) for found in _WORK.findall(whole)]
        return News(
            begun=begun.count(True),
            ended=begun.count(False),
            answers=tuple(self._timings.read(whole)),
            prompts=tuple((int(tokens), float(ms) / 1000) for ms, tokens in _PROMPT.findall(whole)),
        )
