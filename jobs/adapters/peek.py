"""Reads the header of a GGUF file that is not here yet: a few MB by Range requests, never the file."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Mapping
from typing import BinaryIO, cast

import httpx

from controlpanel.lib.text import N_, Worded
from controlpanel.llamacpp.gguf import GgufHeader, read_header
from jobs.adapters.addresses import GuardedClient, guarded_client, origin_of
from jobs.adapters.hub import endpoint, resolve
from jobs.domain.hf import HubPlace, WebFile, parse
from jobs.domain.hf_files import first_shard

FIRST_BLOCK = 512 * 1024  # bytes
NEXT_BLOCKS = 1024 * 1024
MAX_BYTES = 32 * 1024 * 1024  # bytes fetched in all: the largest vocabularies take 15 MB
SECONDS = 60.0
STALL = 10.0
MAX_REDIRECTS = 5
MAX_RETRIES = 4  # without a single byte in between

_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")

NO_FILE = N_("This names a repository, not a file: choose one of its .gguf files.")
NO_NAME = N_("This is not the address of a file. Write https://host/path/file.gguf, or owner/name/file.gguf.")
STATUS = N_("%(host)s answered %(status)s instead of the file.")
NOT_THERE = N_("There is no such file on %(host)s (it answered %(status)s).")
NO_ACCESS = N_("%(host)s does not give this file to everybody (it answered %(status)s).")
BUSY = N_("%(host)s takes no more requests from here for now. Try again in a few minutes.")
NO_ANSWER = N_("%(host)s cannot be reached (%(why)s).")
TOO_SLOW = N_("%(host)s is too slow: the header of the file did not arrive in time. Try again later.")
REDIRECTS = N_("%(host)s redirects too often.")
NO_SIZE = N_("%(host)s does not say how large the file is, so its header cannot be checked.")
CHANGED = N_("The file on %(host)s changed while its header was read. Try again.")
BROKEN = N_("%(host)s keeps ending the connection before it has sent what it promised.")
TOO_LARGE = N_("The header of this file takes more than %(limit)s MB: it is damaged, or not a model.")
HTML = N_(
    "%(host)s answered a web page instead of a file. Paste the address of the file itself: the one that its "
    "download button leads to."
)
PACKED = N_("%(host)s sends the file in packed form, which cannot be read piece by piece.")


class PeekError(Worded):
    """The header could not be fetched; str() says why, without the address's query and without a token.

    `code` is one of no_file, html, http_<status>, hub_down, stalled, redirect_loop, bad_answer, changed,
    too_large.
    """

    def __init__(self, code: str, text: str, **params: object) -> None:
        super().__init__(text, **params)
        self.code = code


def peek(text: str, *, token: str | None = None) -> GgufHeader:
    """Return the header of what a person pasted: a file of the hub or any address of a file.

    Raises BadReference, HubError, AddressRefused, PeekError, or GgufError for what is no GGUF file.
    """
    place = parse(text, endpoint())
    if isinstance(place, WebFile):
        return peek_address(place.url)
    if place is None:
        raise PeekError("no_file", NO_NAME)
    if not place.file:
        raise PeekError("no_file", NO_FILE)
    return peek_hub(place, token=token)


def peek_hub(place: HubPlace, *, token: str | None = None) -> GgufHeader:
    """Return the header of a file of the hub; of a model in shards that of the first, which has the facts."""
    found = resolve(place.repo, place.revision, first_shard(place.file), token=token)
    return peek_address(found.url, found.headers)


def peek_address(url: str, headers: Mapping[str, str] | None = None) -> GgufHeader:
    """Return the header of the file at an address; `headers` go to that origin only."""
    with guarded_client(stall=STALL, connections=1) as client:
        stream = RemoteFile(client, client.check(url), headers or {})
        return read_header(cast(BinaryIO, stream), stream.size)


class RemoteFile(io.RawIOBase):
    """A remote file as a seekable stream that fetches blocks as they are asked for.

    `size` is the file's size in bytes. Reading raises PeekError or AddressRefused.
    """

    def __init__(self, client: GuardedClient, url: httpx.URL, headers: Mapping[str, str]) -> None:
        self._client = client
        self._url = url
        self._headers = headers
        self._origin = origin_of(url)
        self._host = url.host
        self._end = time.monotonic() + SECONDS
        self._block = b""
        self._start = 0  # place of the block in the file
        self._next = FIRST_BLOCK
        self._ranges = True  # the server sends parts
        self._place = 0
        self._fetched = 0
        self._etag: str | None = None
        self.size = -1
        self._load(0)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the place of the next byte."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place; nothing is fetched before the next read."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self.size}[whence]
        self._place = max(0, base + offset)
        return self._place

    def read(self, size: int = -1) -> bytes:
        """Return at most `size` bytes, fewer at the end of a block; b"" at the end of the file."""
        if self._place >= self.size:
            return b""
        if not self._start <= self._place < self._start + len(self._block):
            self._load(self._place)
        at = self._place - self._start
        data = self._block[at : at + size] if size >= 0 else self._block[at:]
        self._place += len(data)
        return data

    def _load(self, start: int) -> None:
        """Fetch the block that begins at `start`, over several connections when they break."""
        # Without parts each block costs all the bytes before it, so there have to be few of them.
        wanted, tries = self._next if self._ranges else 2 * self._next, 0
        self._next = NEXT_BLOCKS if self._ranges else wanted
        block = bytearray()
        while not block or len(block) < min(wanted, self.size - start):
            before = len(block)
            try:
                self._request(block, start, start + wanted)
            except httpx.TimeoutException as error:
                raise PeekError("stalled", TOO_SLOW, host=self._host) from error
            except httpx.TransportError as error:
                if len(block) == before and (tries := tries + 1) >= MAX_RETRIES:
                    why = str(error) or type(error).__name__
                    raise PeekError("hub_down", NO_ANSWER, host=self._host, why=why) from error
            else:
                if self.size == 0:
                    break
                if len(block) == before and (tries := tries + 1) >= MAX_RETRIES:
                    raise PeekError("bad_answer", BROKEN, host=self._host)
        self._block, self._start = bytes(block), start

    def _request(self, block: bytearray, start: int, end: int) -> None:
        """Add bytes of the file from start + len(block) to end, as many as arrive."""
        first = start + len(block)
        url = self._url
        if time.monotonic() > self._end:
            raise PeekError("stalled", TOO_SLOW, host=self._host)
        for _ in range(MAX_REDIRECTS):
            own = self._headers if origin_of(url) == self._origin else {}
            headers = {**own, "Range": f"bytes={first}-{end - 1}"}
            with self._client.stream("GET", url, headers=headers) as answer:
                if answer.next_request is not None:
                    # What is no web address has no origin either, so it is refused here.
                    url = self._client.check(str(answer.next_request.url))
                    continue
                skip = self._check(answer, first)
                self._take(answer, block, skip, end - start)
                return
        raise PeekError("redirect_loop", REDIRECTS, host=self._host)

    def _check(self, answer: httpx.Response, first: int) -> int:
        """Learn the file's size, refuse what is not the same file; return how many bytes come too early."""
        host, status = self._host, answer.status_code
        if status >= 400 and status != 416:
            text = {401: NO_ACCESS, 403: NO_ACCESS, 404: NOT_THERE, 410: NOT_THERE, 429: BUSY}.get(
                status, STATUS
            )
            raise PeekError(f"http_{status}", text, host=host, status=status)
        if answer.headers.get("Content-Type", "").lower().startswith("text/html"):
            raise PeekError("html", HTML, host=host)
        if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise PeekError("bad_answer", PACKED, host=host)
        if status == 206:
            told = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
            if told is None or int(told[1]) != first:
                raise PeekError("bad_answer", NO_SIZE, host=host)
            size, skip = int(told[3]), 0
        elif status == 200:
            length = answer.headers.get("Content-Length", "")
            if not length.isdecimal() or len(length) > 18:
                raise PeekError("bad_answer", NO_SIZE, host=host)
            size, skip = int(length), first
            self._ranges = False
        elif status == 416 and self.size < 0:
            # An empty file has no first byte to send.
            size, skip = 0, 0
        else:
            raise PeekError(f"http_{status}", STATUS, host=host, status=status)
        etag = answer.headers.get("ETag")
        if self.size < 0:
            self.size, self._etag = size, etag
        if size != self.size or (etag and self._etag and etag != self._etag):
            raise PeekError("changed", CHANGED, host=host)
        return skip

    def _take(self, answer: httpx.Response, block: bytearray, skip: int, length: int) -> None:
        """Append the body's bytes after the first `skip` until the block has `length`."""
        if answer.status_code == 416:
            return
        for part in answer.iter_raw(64 * 1024):
            self._fetched += len(part)
            if self._fetched > MAX_BYTES:
                raise PeekError("too_large", TOO_LARGE, limit=MAX_BYTES >> 20)
            if time.monotonic() > self._end:
                raise PeekError("stalled", TOO_SLOW, host=self._host)
            block += part[skip:]
            skip = max(0, skip - len(part))
            if len(block) >= length:
                del block[length:]
                return
