"""What a server's log tells of each answer: its speed, how deep in the context, what came of its drafts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

_EVENT = re.compile(
    rb"id +(?P<begun>\d{1,3}) \| task -?\d+ \| processing task"
    rb"|(?<!prompt )eval time = +(?P<ms>\d{1,12}(?:\.\d{1,6})?) ms / +(?P<tokens>\d{1,12}) (?:tokens|runs)"
    rb"|draft acceptance(?: rate)? = [\d.]+ \( *(?P<accepted>\d{1,12}) accepted"
    rb" / *(?P<drafted>\d{1,12}) generated\)"
    rb"|id +(?P<ended>\d{1,3}) \| task -?\d+ \| stop processing: n_tokens = (?P<depth>\d{1,12})"
)
# A server that logs its requests quotes what people write, which may be the very words of a timing.
_QUOTED = re.compile(rb"\"(?:content|prompt|input)\"\s*:")
_LONGEST = 400  # bytes of a line before the telling part


@dataclass(frozen=True)
class Answer:
    """One answer. `drafted` is None without speculation; `depth` are the tokens of its slot at its end.

    `alone`: no other slot worked meanwhile, as far as that is known. `line` is what the
    log says of its drafts, else of its speed, and `offset` the byte at which that begins.
    """

    tokens: int
    seconds: float
    offset: int
    line: str
    accepted: int = 0
    drafted: int | None = None
    depth: int = 0
    alone: bool = False


@dataclass
class Timings:
    """Reads answers out of a log that comes in pieces of whole lines, without a gap between them."""

    _alone: dict[bytes, bool] = field(default_factory=dict)  # slots at work, and whether none worked beside
    _last: Answer | None = None

    def read(self, text: bytes, base: int = 0) -> Iterator[Answer]:
        """Yield the answers that end in this piece, which begins at the byte `base` of the log."""
        for match in _EVENT.finditer(text):
            start = text.rfind(b"\n", 0, match.start()) + 1
            if match.start() - start > _LONGEST or _QUOTED.search(text, start, match.start()):
                continue
            if match["begun"]:
                self._begin(match["begun"])
            elif match["ms"]:
                tokens, seconds = int(match["tokens"]), float(match["ms"]) / 1000
                self._last = Answer(tokens, seconds, base + start, _line(text, start, match.end()))
            elif match["drafted"] and self._last is not None:
                self._last = replace(
                    self._last,
                    accepted=int(match["accepted"]),
                    drafted=int(match["drafted"]),
                    offset=base + start,
                    line=_line(text, start, match.end()),
                )
            elif match["ended"]:
                alone = self._alone.pop(match["ended"], False)
                if self._last is not None:
                    yield replace(self._last, depth=int(match["depth"]), alone=alone)
                self._last = None

    def _begin(self, slot: bytes) -> None:
        for other in self._alone:
            self._alone[other] = False
        self._alone[slot] = not self._alone


def _line(text: bytes, start: int, end: int) -> str:
    stop = text.find(b"\n", end, end + 100)
    return text[start : end if stop < 0 else stop].decode("utf-8", "replace").rstrip()
