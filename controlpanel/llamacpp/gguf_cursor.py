"""Bounded, buffered reading of a GGUF header that may be damaged or hostile."""

from __future__ import annotations

import struct
from typing import BinaryIO

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.gguf_errors import GgufError, limit, one_line

MAX_HEADER_BYTES = 128 * 1024 * 1024
MAX_KEYS = 16_384
MAX_TENSORS = 65_536
MAX_KEY_BYTES = 1_024
MAX_NAME_BYTES = 256
MAX_STRING_BYTES = 16 * 1024 * 1024
MAX_ARRAY_LENGTH = 64 * 1024 * 1024
MAX_STRINGS = 8_000_000
MAX_DIMENSIONS = 4
MAX_ELEMENTS = 1 << 62

_BLOCK = 256 * 1024
_U64 = struct.Struct("<Q")


class Cursor:
    """A forward-only view on a stream of `size` bytes, read in blocks."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self.size = size
        self._stream = stream
        self._buffer = b""
        self._pos = 0
        self._base = 0

    @property
    def position(self) -> int:
        """Return the byte offset in the file of the next byte to be read."""
        return self._base + self._pos

    def truncated(self) -> GgufError:
        """Return the error for a file that ends inside its header."""
        text = N_(
            "The file is truncated: it ends after %(size)s bytes, inside its header. "
            "The download did not finish: download it again."
        )
        return GgufError("truncated_header", Message(text, {"size": self.size}))

    def require(self, count: int) -> None:
        """Raise at once if the file cannot hold `count` more bytes."""
        end = self.position + count
        if end > self.size:
            raise self.truncated()
        if end > MAX_HEADER_BYTES:
            raise limit("header bytes", end, MAX_HEADER_BYTES)

    def _fill(self, count: int) -> None:
        """Make at least `count` bytes available in the buffer."""
        missing = count - (len(self._buffer) - self._pos)
        if missing <= 0:
            return
        self.require(count)
        parts = [self._buffer[self._pos :]]
        self._base += self._pos
        self._pos = 0
        wanted = max(missing, _BLOCK)
        while wanted > 0:
            part = self._stream.read(wanted)
            if not part:
                break
            parts.append(part)
            wanted -= len(part)
        self._buffer = b"".join(parts)
        if len(self._buffer) < count:
            raise self.truncated()

    def peek(self, count: int) -> bytes:
        """Return the next `count` bytes without moving on."""
        self._fill(count)
        return self._buffer[self._pos : self._pos + count]

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        data = self.peek(count)
        self._pos += count
        return data

    def skip(self, count: int) -> None:
        """Move on by `count` bytes without keeping them."""
        self.require(count)
        inside = len(self._buffer) - self._pos
        if count <= inside:
            self._pos += count
            return
        self._base = self.position + count
        self._buffer = b""
        self._pos = 0
        self._stream.seek(count - inside, 1)

    def unpack(self, form: struct.Struct) -> int | float:
        """Return the next scalar."""
        self._fill(form.size)
        (value,) = form.unpack_from(self._buffer, self._pos)
        self._pos += form.size
        return value  # type: ignore[no-any-return]

    def u32(self) -> int:
        """Return the next unsigned 32-bit number."""
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        """Return the next unsigned 64-bit number."""
        return int.from_bytes(self.take(8), "little")

    def text(self, what: str, bound: int) -> str:
        """Return the next name, refused when longer than `bound` bytes."""
        length = self.u64()
        if length > bound:
            raise limit(f"length of {what}", length, bound)
        return one_line(self.take(length))

    def skip_strings(self, count: int) -> None:
        """Move on by `count` strings, walking their lengths inside the buffered blocks."""
        self.require(8 * count)
        unpack = _U64.unpack_from
        while count:
            self._fill(8)
            buffer, pos = self._buffer, self._pos
            last = len(buffer) - 8
            while count and pos <= last:
                (length,) = unpack(buffer, pos)
                if length > MAX_STRING_BYTES:
                    raise limit("length of a string", length, MAX_STRING_BYTES)
                pos += 8 + length
                count -= 1
            self.skip(pos - self._pos)
