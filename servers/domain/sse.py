"""Incremental reader of llama-server's event stream: bytes in, payloads of events out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MAX_LINE = 4 * 1024 * 1024  # bytes; a chunk with all log probabilities stays far below


class StreamBroken(Exception):
    """The bytes are not an event stream that can be read on."""


@dataclass(frozen=True)
class ServerEvent:
    """One event: its payload, and whether it came as data or as llama.cpp's older `error:` field."""

    kind: Literal["data", "error"]
    data: str


class EventReader:
    """Cuts a stream of bytes, split anywhere, into events; `done` is set once [DONE] was read."""

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self.done = False
        self._max_line = max_line
        self._rest = bytearray()
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events completed by this chunk; raises StreamBroken for a line or event too long."""
        events: list[ServerEvent] = []
        searched = len(self._rest)
        self._rest += chunk
        start = 0
        while (end := self._rest.find(b"\n", max(start, searched))) >= 0:
            self._line(bytes(self._rest[start:end]), events)
            start = end + 1
        if start:
            del self._rest[:start]
        if len(self._rest) > self._max_line:
            raise StreamBroken("a line of the event stream is too long")
        return events

    def _line(self, line: bytes, events: list[ServerEvent]) -> None:
        # A line end never lies inside a character of UTF-8, so a whole line decodes on its own.
        line = line.removesuffix(b"\r")
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._size += len(value)
            if self._size > self._max_line:
                raise StreamBroken("an event of the stream is too long")
            self._data.append(value.decode("utf-8", "replace"))
        elif name == b"error":
            events.append(ServerEvent("error", value.decode("utf-8", "replace")))

    def _dispatch(self, events: list[ServerEvent]) -> None:
        if not self._data:
            return
        data = "\n".join(self._data)
        self._data = []
        self._size = 0
        if data.strip() == "[DONE]":
            self.done = True
        elif not self.done:
            events.append(ServerEvent("data", data))
