"""Searching a log, its errors and its line numbers, over the whole file."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application
from django.urls import reverse
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.adapters.hostlink import HostLink
from jobs.adapters.runs import log_path
from jobs.logs import search
from jobs.logs.ansi import plain
from jobs.logs.index import LogIndex
from jobs.logs.render import level
from jobs.logs.search import Errors, Found, Hits, Limits, Place, Rule, Text
from jobs.models import Run
from tests.web import cookies

LINE = b"0.12.345.678 I slot print_timing: id  0 | draft = 0.5\n"


def limits(seconds: float = 60) -> Limits:
    return Limits(threading.Event(), time.monotonic() + seconds)


def find(data: bytes, rule: Rule, at: int = 0, way: Any = "here", first: int = 0) -> Found:
    def read(start: int, end: int) -> bytes:
        return data[max(start, first) : end]

    return Hits(rule).find(read, first, len(data), Place(at, way), limits())


def begins(data: bytes) -> list[int]:
    found = [0, *(at + 1 for at, byte in enumerate(data) if byte == 10)]
    return [at for at in found if at < len(data)]


def lines_of(data: bytes) -> list[tuple[int, str]]:
    """The shown text of each line by its first byte."""
    raw = data.split(b"\n")
    return [(at, plain(raw[place].decode("utf-8", "replace"))) for place, at in enumerate(begins(data))]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that every line is near the edge of one."""
    monkeypatch.setattr(search, "BLOCK", 64)


PARTS = st.lists(
    st.sampled_from(
        [
            b"needle",
            b"Needle",
            b"need",
            b"le",
            b" ",
            b"\n",
            b"\x1b[31m",
            b"\x1b[0m",
            b"\xff",
            b"\0",
            "中".encode(),
        ]
    )
)


@settings(max_examples=200)
@given(PARTS, st.booleans(), st.integers(0, 200))
def test_a_search_finds_what_the_page_shows(parts: list[bytes], fold: bool, at: int) -> None:
    data = b"".join(parts)
    expected = [begin for begin, text in lines_of(data) if "needle" in (text.lower() if fold else text)]
    rule = Text.of("needle", fold)
    after = [begin for begin in expected if begin >= at] or expected
    found = find(data, rule, at)
    assert (found.count, found.at) == (len(expected), after[0] if after else None)
    assert found.index == (expected.index(after[0]) + 1 if after else None)
    before = [begin for begin in expected if begin < at] or expected
    assert find(data, rule, at, "prev").at == (before[-1] if before else None)
    assert find(data, rule, at, "count").at is None


def test_matches_at_the_edges_of_blocks_are_found_once(small_blocks: None) -> None:
    for offset in range(70):
        data = b"x" * offset + b"\n" + b"needle\n" + b"y" * 30 + b"\nneedle"
        wanted = [offset + 1, offset + 39]
        assert find(data, Text.of("needle", False)).count == 2
        assert find(data, Text.of("needle", False)).at == wanted[0]
        assert find(data, Text.of("needle", False), len(data), "prev").at == wanted[1]
        assert find(data, Text.of("needle", False), wanted[0], "next").at == wanted[1]
        assert find(data, Text.of("needle", False), wanted[1], "next").at == wanted[0]


@pytest.mark.parametrize("block", [64, 1024 * 1024])
def test_more_than_the_most_are_not_counted_but_gone_to(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(search, "BLOCK", block)
    monkeypatch.setattr(search, "MOST", 5)
    data = b"needle\nother\n" * 20
    rule = Text.of("needle", False)
    assert find(data, rule, 0) == Found(0, 1, 5, True, True)
    assert find(data, rule, 0, "next") == Found(13, 2, 5, True, True)
    assert find(data, rule, 13 * 10, "here") == Found(130, None, 5, True, True)
    assert find(data, rule, 13 * 10, "next") == Found(143, None, 5, True, True)
    assert find(data, rule, 13 * 10, "prev") == Found(117, None, 5, True, True)
    assert find(data, rule, 13 * 19, "next").at == 0
    assert find(data, rule, 0, "prev").at == 13 * 19


def test_five_matches_are_not_more_than_five(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST", 5)
    assert find(b"needle\n" * 5, Text.of("needle", False)) == Found(0, 1, 5, False, True)


def test_a_log_that_grows_is_not_looked_through_again() -> None:
    data = LINE * 10 + b"an error here\n" + b"half a li"
    read_from: list[int] = []

    def read(start: int, end: int) -> bytes:
        read_from.append(start)
        return data[start:end]

    hits = Hits(Errors())
    assert hits.find(read, 0, len(data), Place(0, "count"), limits()).count == 1
    first = len(LINE) * 10 + 14
    data = data + b"ne with an error\n"
    read_from.clear()
    assert hits.find(read, 0, len(data), Place(0, "count"), limits()).count == 2
    assert min(read_from) == first


def test_an_unfinished_line_counts_as_it_is_now() -> None:
    data = b"error" + b"s are many" + b"\nan error\n"
    hits = Hits(Errors())

    def read(start: int, end: int) -> bytes:
        return data[start:end]

    counts = [hits.find(read, 0, end, Place(0, "count"), limits()).count for end in (5, 15, 16, 24, 25)]
    assert counts == [1, 0, 0, 1, 1]


ERROR_LINES = st.lists(
    st.sampled_from(
        [
            b"0.00.014.261 E srv  load_model: broken\n",
            b"0.00.014.261 I srv: 0 errors, none failed\n",
            b"E \n",
            b"THE END\n",
            b"-- Looking for x - failed\n",
            b"terror\n",
            b"\x1b[31merr\x1b[0mor: x\n",
            b"\x1b[1mE \x1b[0mx\n",
            b"FATAL\r\n",
            b"x" * 395 + b" error\n",
            b"x" * 390 + b" error\n",
            b"\xff failure\n",
            b"\n",
            b"failed",
        ]
    )
)


@settings(max_examples=200)
@given(ERROR_LINES)
def test_errors_are_the_lines_that_the_page_shows_as_errors(lines: list[bytes]) -> None:
    data = b"".join(lines)
    expected = [begin for begin, text in lines_of(data) if level(text) == " e"]
    found = find(data, Errors())
    assert (found.count, found.at) == (len(expected), expected[0] if expected else None)


def test_text_that_was_removed_is_not_found() -> None:
    data = b"error 1\nerror 2\nerror 3\n"
    assert find(data, Errors(), 0, first=8) == Found(8, 1, 2, False, True)
    assert find(data, Errors(), 8, "prev", first=8).at == 16


def test_a_search_ends_in_time_and_the_next_one_goes_on(small_blocks: None) -> None:
    data = b"nothing to see\n" * 100 + b"needle\n"
    hits = Hits(Text.of("needle", False))
    calls = 0
    while True:
        calls += 1
        found = hits.find(lambda a, b: data[a:b], 0, len(data), Place(0, "here"), limits(0))
        if found.complete:
            break
        assert found.at is None
    assert (found.at, found.count) == (1500, 1)
    assert calls > 10


def test_a_search_stops_when_it_is_told_to(small_blocks: None) -> None:
    data = b"nothing to see\n" * 1000
    stop = threading.Event()
    reads = 0

    def read(start: int, end: int) -> bytes:
        nonlocal reads
        reads += 1
        if reads == 3:
            stop.set()
        return data[start:end]

    found = Hits(Text.of("needle", False)).find(
        read, 0, len(data), Place(0, "here"), Limits(stop, time.monotonic() + 60)
    )
    assert not found.complete
    assert reads == 3


@given(st.lists(st.sampled_from([b"a\n", b"bc", b"\n", b"\r"])), st.integers(0, 100))
def test_a_line_number_is_the_line_ends_before_it_and_one(parts: list[bytes], at: int) -> None:
    data = b"".join(parts)
    at = min(at, len(data))
    index = LogIndex(1)
    assert index.line(lambda a, b: data[a:b], at, limits()) == data[:at].count(b"\n") + 1


def ask(client: Any, run: Run, name: str, **query: Any) -> Any:
    response = client.get(reverse(name, args=[run.pk]), query)
    assert response.status_code == 200, response.content
    assert response["Cache-Control"] == "no-store"
    return response.json()


def test_a_viewer_searches_a_log_of_many_blocks(run: Run, charlie: User, signed_in: Any) -> None:
    filler = b"y" * 120_000 + b"\n"
    offsets = []
    with log_path(run.pk).open("wb") as file:
        for number in range(20):
            file.write(filler)
            offsets.append(file.tell())
            file.write(f"Needle {number} 中\n".encode())
    client = signed_in(charlie)
    expected = {"at": offsets[0], "index": 1, "count": 20, "more": False, "complete": True}
    assert ask(client, run, "log-search", q="needle", at=0) == expected
    walked, at = [], 0
    for _ in range(20):
        at = ask(client, run, "log-search", q="needle", at=at, go="next")["at"]
        walked.append(at)
    assert walked == offsets
    assert ask(client, run, "log-search", q="needle", case=1, at=0)["count"] == 0
    assert ask(client, run, "log-search", q="7 中", at=10**17)["at"] == offsets[7]
    assert ask(client, run, "log-line", at=offsets[19]) == {"line": 40, "complete": True}
    assert ask(client, run, "log-line", at=10**17) == {"line": 41, "complete": True}


def test_a_log_that_was_replaced_is_counted_anew(run: Run, charlie: User, signed_in: Any) -> None:
    client, log = signed_in(charlie), log_path(run.pk)
    log.write_text("an error\n" * 50)
    assert ask(client, run, "log-errors", at=0, go="count")["count"] == 50
    assert ask(client, run, "log-line", at=450)["line"] == 51
    log.write_text("fine\n")
    assert ask(client, run, "log-errors", at=0, go="count")["count"] == 0
    log.unlink()
    assert ask(client, run, "log-errors", at=0) == {
        "at": None,
        "index": None,
        "count": 0,
        "more": False,
        "complete": True,
    }
    assert ask(client, run, "log-line", at=450)["line"] == 1


def test_lines_have_no_number_once_their_beginning_was_removed(
    run: Run, charlie: User, signed_in: Any
) -> None:
    log_path(run.pk).write_text("a\nb\n")
    Run.objects.filter(pk=run.pk).update(log_start=2)
    assert ask(signed_in(charlie), run, "log-line", at=2) == {"line": None, "complete": True}


@pytest.mark.parametrize(
    "query",
    [
        {"at": "0"},
        {"q": "", "at": "0"},
        {"q": "x" * 201, "at": "0"},
        {"q": "a\nb", "at": "0"},
        {"q": "x"},
        {"q": "x", "at": "-1"},
        {"q": "x", "at": "9" * 30},
        {"q": "x", "at": "0", "go": "up"},
    ],
)
def test_a_search_without_sense_is_refused(query: Any, run: Run, charlie: User, signed_in: Any) -> None:
    assert signed_in(charlie).get(reverse("log-search", args=[run.pk]), query).status_code == 400


@pytest.mark.parametrize("text", ["(a+)+$", "\0", "\x1b[31m", "\ud800", "%s", "'\"<"])
def test_any_text_is_searched_as_it_is(text: str, run: Run) -> None:
    log_path(run.pk).write_bytes(b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\n(A+)+$ %s '\"<\n")
    link = HostLink()
    found = link.log_search(run.pk, Text.of(text, True), Place(0, "here"), 0, threading.Event())
    assert found.at == (34 if text in {"(a+)+$", "%s", "'\"<"} else None)


@pytest.mark.django_db(transaction=True)
async def test_the_work_stops_when_the_browser_leaves(
    monkeypatch: pytest.MonkeyPatch, run: Run, charlie: User
) -> None:
    began, ended = threading.Event(), threading.Event()

    def slow(_self: HostLink, *args: Any) -> Found:
        began.set()
        if args[-1].wait(60):
            ended.set()
        return Found(None, None, 0, False, False)

    monkeypatch.setattr(HostLink, "log_search", slow)
    cookie = "; ".join(
        f"{name}={value}" for name, value in (await asyncio.to_thread(cookies, charlie)).items()
    )
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "path": reverse("log-search", args=[run.pk]),
        "query_string": b"q=x&at=0",
        "headers": [(b"host", b"localhost"), (b"cookie", cookie.encode())],
    }
    browser = ApplicationCommunicator(get_asgi_application(), scope)
    await browser.send_input({"type": "http.request", "body": b""})
    assert await asyncio.to_thread(began.wait, 30)
    await browser.send_input({"type": "http.disconnect"})
    assert await asyncio.to_thread(ended.wait, 30)
    await browser.wait(30)
