"""A log page without a browser that stays for a whole run, and comes back after each lost connection."""

from __future__ import annotations

import random
import re
import threading
import time
from html import unescape
from pathlib import Path

from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from jobs.runtime.procs import alive
from tests.fakes.fake_llama_server import FLOOD_TEXT
from tests.soak_report import Report
from tests.soak_watch import Server

SILENT = 60.0  # seconds; the server sends something each 10 s
REFUSED = (4400, 4401, 4403, 4404)  # codes after which a page does not come back by itself
TAG = re.compile(r"<[^>]*>")
PIECE = re.compile(
    r'<span class="lf" data-start="(\d+)" data-end="(\d+)"([^>]*)>(.*)</span></div>\s*$', re.DOTALL
)
GAP = re.compile(r'<button type="button" class="log-gap" data-start="(\d+)" data-end="(\d+)"')
NUMBERED = re.compile(rb"^\S+ I flood line (\d+): (.*)$")


class Viewer(threading.Thread):
    """Follows the log of one run and compares each piece with the file as it arrives.

    As the page of a reader who does not follow the end: a snapshot that begins after the last byte is a gap
    with a name, anything else has to go on where the text before it ended.
    """

    def __init__(self, address: str, cookie: str, server: Server, log: Path, report: Report) -> None:
        super().__init__(name=f"viewer of {server.run_id}", daemon=True)
        self.server, self.log = server, log
        self.end = -1  # the byte after the last one that arrived, in whichever connection
        self._url = f"ws{address.removeprefix('http')}/ws/?topics=log:{server.run_id}"
        self._origin, self._cookie, self._report = address, cookie, report
        self._cursor = -1  # where the next piece of this connection has to begin
        self._left = threading.Event()
        self._opened = 0

    def run(self) -> None:
        attempt = 0
        while not self._left.is_set():
            try:
                with connect(
                    self._url,
                    origin=Origin(self._origin),
                    additional_headers={"Cookie": self._cookie},
                    max_size=None,
                    proxy=None,
                    open_timeout=10,
                    close_timeout=1,
                ) as socket:
                    attempt, self._cursor = 0, -1
                    self._opened += 1
                    if self._opened > 1:
                        self._report.counts["viewer: connections taken up again"] += 1
                    self._listen(socket)
            except (OSError, WebSocketException):
                attempt += 1
            if not self._left.is_set():
                time.sleep(min(0.5 * 2**attempt, 5) * random.uniform(0.5, 1))

    def leave(self) -> None:
        """End the thread."""
        self._left.set()
        if self.is_alive():
            self.join(15)

    def whole(self) -> bool:
        """True when all that is in the file has arrived."""
        return self.end == self.log.stat().st_size

    def _listen(self, socket: ClientConnection) -> None:
        heard = time.monotonic()
        while not self._left.is_set():
            if not alive(self.server.proc) and self.whole():
                self._left.set()
                return
            try:
                message = socket.recv(timeout=0.5)
            except TimeoutError:
                if time.monotonic() - heard > SILENT:
                    self._report.violation(f"viewer: an open connection was silent for {SILENT:.0f} s")
                    return
                continue
            except ConnectionClosed as closed:
                code = closed.rcvd.code if closed.rcvd else 1006
                if code in REFUSED:
                    self._report.violation(f"viewer: the connection was refused with code {code}")
                return
            heard = time.monotonic()
            assert isinstance(message, str)
            if message.startswith(f'<div id="log-{self.server.run_id}"'):
                self._take(message)

    def _take(self, message: str) -> None:
        for start, end in GAP.findall(message):
            self._go_on("gap", int(start), int(end))
            self._report.counts["viewer: gaps named by the panel"] += 1
        found = PIECE.search(message)
        if found is None:
            self._wrong("a message without a piece of the log", message[:200])
            return
        start, end, text = int(found[1]), int(found[2]), unescape(TAG.sub("", found[4]))
        if "data-snapshot" in found[3]:
            if start > self.end >= 0:
                self._report.counts["viewer: gaps named by a snapshot"] += 1
            self._cursor = start
        self._go_on("piece", start, end)
        with self.log.open("rb") as file:
            file.seek(start)
            data = file.read(end - start)
        if text.encode() != data:
            self._wrong(f"bytes {start} to {end} are not those of the file", text[:200])
        self._report.counts["viewer: pieces compared with the file"] += 1
        self._report.counts["viewer: bytes compared with the file"] += end - start

    def _go_on(self, what: str, start: int, end: int) -> None:
        if start != self._cursor:
            self._wrong(f"a {what} begins at byte {start}, the text before it ended at {self._cursor}", "")
        self._cursor = end
        self.end = max(self.end, end)

    def _wrong(self, words: str, shown: str) -> None:
        self._report.violation(f"viewer of run {self.server.run_id}: {words} {shown!r}")


def check_numbers(log: Path, report: Report) -> None:
    """Look whether a flood's numbered lines are in the file without a gap, the last one perhaps cut."""
    expected = 0
    with log.open("rb") as file:
        for line in file:
            found = NUMBERED.match(line)
            if found is None:
                continue
            if int(found[1]) != expected or (line.endswith(b"\n") and found[2] != FLOOD_TEXT.encode()):
                report.violation(f"{log}: line {expected} was expected, found {line[:200]!r}")
                return
            expected += 1
    if not expected:
        report.violation(f"{log}: no numbered line at all")
    report.counts["numbered lines found in logs"] += expected
