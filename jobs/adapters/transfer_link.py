"""Where a file's bytes are now: links resolved, redirects followed, answers checked before a byte is used."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urljoin

import httpx

from controlpanel.lib.text import Worded
from jobs.adapters.addresses import GuardedClient, origin_of
from jobs.adapters.transfer_error import (
    CHANGED,
    DENIED,
    HTML,
    NO_SIZE,
    NOT_THERE,
    PACKED,
    REDIRECTS,
    STATUS,
    TOO_LARGE,
    TransferError,
)
from jobs.domain.transfer import MAX_SIZE, Source

MAX_REDIRECTS = 10
PROBE = 16  # bytes
LONGEST_WAIT = 60.0  # seconds that a server may ask to wait
REFUSALS = (401, 403, 404, 410)

_RANGE = re.compile(r"bytes (\d{1,16})-(\d{1,16})/(\d{1,16})")


class Later(Exception):
    """An answer that may be better next time; `error` is what to say when it never is.

    `refused` says that the link does not work, `renew` that a new one may (always after a refusal);
    `wait` is what the server asks for in seconds.
    """

    def __init__(
        self, error: Worded, *, refused: bool = False, renew: bool = False, wait: float = 0.0
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.refused = refused
        self.renew = renew or refused
        self.wait = wait


@dataclass(frozen=True)
class Spot:
    """A resolved link; its number tells it from later ones."""

    number: int
    url: httpx.URL = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class Facts:
    """What a first answer says of the file; `mark` is its ETag or date."""

    size: int
    mark: str | None
    ranges: bool
    start: bytes


class Link:
    """The current link to a file, shared by all connections. Safe for threads.

    Headers (tokens) go to the origin that they were given for, and never after a redirect to another one.
    """

    def __init__(self, source: Source, client: GuardedClient, marks: set[str]) -> None:
        self._source = source
        self._client = client
        self._lock = threading.Lock()
        self._spot: Spot | None = None
        self._number = 0
        self._marks = marks

    @property
    def host(self) -> str:
        """The host of the files as far as it is known, else that of the source."""
        return self._spot.url.host if self._spot else httpx.URL(self._source.url).host

    def renew(self, number: int) -> None:
        """Let the link with this number be resolved again."""
        with self._lock:
            if self._spot is not None and self._spot.number == number:
                self._spot = None

    def number(self) -> int:
        """Return the number of the link in use; resolves one when there is none."""
        return self._current().number

    def probe(self) -> Facts:
        """Ask for the first bytes, and return what the answer says of the file; Later or TransferError."""
        with self._open(0, PROBE) as response:
            size = self._size(response)
            mark = _mark(response)
            if mark is not None and not self._marks:
                self._marks.add(mark)
            self._check_mark(mark)
            start = b""
            for piece in response.iter_raw():
                start += piece
                if len(start) >= min(PROBE, size):
                    break
        if re.match(rb"\s*<(?:!doctype|html|\?xml)", start, re.IGNORECASE):
            raise TransferError("html", HTML, host=self.host)
        return Facts(size, mark, response.status_code == 206, start)

    @contextmanager
    def range(self, at: int, end: int, size: int, ranges: bool) -> Iterator[Iterator[bytes]]:
        """Open bytes at..end of a file of this size, or all of it from its start where ranges do not work.

        Raises Later, TransferError or an error of httpx.
        """
        with self._open(at if ranges else 0, end if ranges else size, ranges=ranges) as response:
            if self._size(response) != size:
                raise TransferError("changed", CHANGED)
            self._check_mark(_mark(response))
            if (response.status_code == 206) != ranges:
                raise Later(TransferError("http_200", STATUS, host=self.host, status=200), refused=True)
            found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if ranges and (found is None or int(found[1]) != at):
                raise Later(TransferError("http_206", STATUS, host=self.host, status=206), refused=True)
            yield response.iter_raw()

    def _current(self) -> Spot:
        with self._lock:
            if self._spot is None:
                found = self._source.resolve()
                told = (found.size, self._source.size), (found.sha256, self._source.sha256)
                if any(None not in pair and pair[0] != pair[1] for pair in told):
                    raise TransferError("changed", CHANGED)
                self._number += 1
                self._spot = Spot(self._number, httpx.URL(found.url), dict(found.headers))
            return self._spot

    @contextmanager
    def _open(self, at: int, end: int, *, ranges: bool = True) -> Iterator[httpx.Response]:
        spot = self._current()
        url, headers, seen = spot.url, dict(spot.headers), set()
        asked = {"Range": f"bytes={at}-{end - 1}"} if ranges else {}
        while True:
            response = self._client.exchange(url, headers | asked)
            try:
                if response.has_redirect_location:
                    seen.add(str(url))
                    target = self._client.check(_joined(url, response.headers["Location"]))
                    if str(target) in seen or len(seen) > MAX_REDIRECTS:
                        raise TransferError("redirect_loop", REDIRECTS, host=target.host)
                    if origin_of(target) != origin_of(url):
                        headers = {}
                    url = target
                    continue
                self._check_answer(response)
                self._settle(spot, url, headers)
                yield response
                return
            finally:
                response.close()

    def _settle(self, spot: Spot, url: httpx.URL, headers: Mapping[str, str]) -> None:
        """Let the next request go straight to where this one ended."""
        with self._lock:
            if self._spot is spot and url != spot.url:
                self._spot = Spot(spot.number, url, headers)

    def _check_answer(self, response: httpx.Response) -> None:
        status, host = response.status_code, response.request.url.host
        if status in (200, 206):
            if response.headers.get("Content-Encoding", "identity").lower() not in ("identity", ""):
                raise TransferError("packed", PACKED, host=host)
            if response.headers.get("Content-Type", "").lower().startswith("text/html"):
                raise TransferError("html", HTML, host=host)
            return
        if status in REFUSALS:
            text = NOT_THERE if status in (404, 410) else DENIED
            raise Later(TransferError(f"http_{status}", text, host=host, status=status), refused=True)
        if status == 416:
            raise TransferError("changed", CHANGED)
        error = TransferError(f"http_{status}", STATUS, host=host, status=status)
        if status in (408, 425, 429) or status >= 500:
            raise Later(error, wait=_asked_wait(response))
        raise error

    def _size(self, response: httpx.Response) -> int:
        if response.status_code == 206:
            found = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
            text = found[3] if found else ""
        else:
            text = response.headers.get("Content-Length", "")
        if not (text.isascii() and text.isdecimal()) or int(text) == 0:
            raise TransferError("no_size", NO_SIZE, host=response.request.url.host)
        if int(text) > MAX_SIZE:
            raise TransferError("too_large", TOO_LARGE, host=response.request.url.host, size=text[:30])
        return int(text)

    def _check_mark(self, mark: str | None) -> None:
        """Compare an answer's mark with those seen before; hosts of one file may give it several.

        Where the source has a hash, the hub is asked whether the file is still that one.
        """
        if mark is None or mark in self._marks:
            return
        found = self._source.resolve() if self._source.sha256 else None
        if found is None or found.sha256 != self._source.sha256:
            raise TransferError("changed", CHANGED)
        self._marks.add(mark)


def _joined(url: httpx.URL, location: str) -> str:
    try:
        return urljoin(str(url), location)
    except ValueError:
        return ""


def _mark(response: httpx.Response) -> str | None:
    etag = response.headers.get("ETag", "")
    if etag.startswith('"'):
        return str(etag)[:200].strip('"')
    date = response.headers.get("Last-Modified")
    return str(date)[:200] if date else None


def _asked_wait(response: httpx.Response) -> float:
    text = response.headers.get("Retry-After", "")
    return min(float(text), LONGEST_WAIT) if text.isascii() and text.isdecimal() else 0.0
