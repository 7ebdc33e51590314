"""A log's range, download and page."""

from __future__ import annotations

import os
import re
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import AsyncClient
from django.urls import reverse

from jobs.adapters.hostlink import link
from jobs.adapters.runs import log_path
from jobs.models import Run

NAMES = ["log-range", "log-search", "log-errors", "log-line", "log-download", "run-log"]
TAG = re.compile(r"<[^>]*>")
TEXT = "".join(f"line {n} 中 <&>\n" for n in range(100))


@pytest.fixture
def written(run: Run) -> Run:
    """A run with a hundred lines in its log."""
    log_path(run.pk).write_text(TEXT)
    return run


def get_range(client: Any, run: Run, **query: Any) -> tuple[int, int, str]:
    response = client.get(reverse("log-range", args=[run.pk]), query)
    assert response.status_code == 200
    body = response.content.decode()
    start, end = re.findall(r'class="lf" data-start="(\d+)" data-end="(\d+)"', body)[0]
    return int(start), int(end), unescape(TAG.sub("", body))


def test_a_range_is_exactly_what_was_asked_for(written: Run, charlie: User, signed_in: Any) -> None:
    data = TEXT.encode()
    start, end, text = get_range(signed_in(charlie), written, start=5, end=300)
    assert (start, end) == (5, 300)
    assert text == data[5:300].decode("utf-8", "replace")


def test_a_range_can_begin_or_end_at_a_line(written: Run, charlie: User, signed_in: Any) -> None:
    client, data = signed_in(charlie), TEXT.encode()
    start, end, text = get_range(client, written, start=5, end=300, align="start")
    assert start == data.index(b"\n") + 1
    assert text == data[start:300].decode("utf-8", "replace")
    start, end, text = get_range(client, written, start=0, end=300, align="end")
    assert end == data.rindex(b"\n", 0, 300) + 1
    assert text == data[:end].decode()


def test_a_range_inside_one_long_line_still_brings_text(run: Run, charlie: User, signed_in: Any) -> None:
    log_path(run.pk).write_text("界" * 1000)
    client = signed_in(charlie)
    assert get_range(client, run, start=1, end=600, align="start") == (3, 600, "界" * 199)
    assert get_range(client, run, start=0, end=301, align="end") == (0, 300, "界" * 100)


def test_a_range_is_bounded_and_says_how_far_it_goes(run: Run, charlie: User, signed_in: Any) -> None:
    log_path(run.pk).write_bytes(b"x" * 99 + b"\n")
    os.truncate(log_path(run.pk), 5_000_000)
    start, end, text = get_range(signed_in(charlie), run, start=0, end=5_000_000)
    assert (start, end) == (0, 1024 * 1024)


def test_an_aligned_range_has_at_most_a_thousand_lines(run: Run, charlie: User, signed_in: Any) -> None:
    log_path(run.pk).write_text("a\n" * 20_000)
    client = signed_in(charlie)
    assert get_range(client, run, start=0, end=40_000, align="start") == (38_000, 40_000, "a\n" * 1000)
    assert get_range(client, run, start=0, end=40_000, align="end") == (0, 2000, "a\n" * 1000)


def test_a_range_of_empty_lines_is_bounded_too(run: Run, charlie: User, signed_in: Any) -> None:
    log_path(run.pk).write_text("\n" * 50_000)
    assert get_range(signed_in(charlie), run, start=10, end=50_000) == (10, 20_010, "\n" * 20_000)


def around(client: Any, run: Run, at: int) -> tuple[int, int, int]:
    body = client.get(reverse("log-range", args=[run.pk]), {"around": at}).content.decode()
    start, end, here = re.findall(
        r'data-start="(\d+)" data-end="(\d+)" data-first="\d+" data-here="(\d+)"', body
    )[0]
    shown = unescape(TAG.sub("", body))
    assert shown == log_path(run.pk).read_bytes()[int(start) : int(end)].decode("utf-8", "replace")
    return int(start), int(end), int(here)


def test_the_lines_around_a_byte_are_whole_lines(run: Run, charlie: User, signed_in: Any) -> None:
    line = "0123456 中\n".encode()
    log_path(run.pk).write_bytes(line * 50_000)
    client = signed_in(charlie)
    for at in (0, 5, len(line) - 1, 25_000 * len(line), 25_000 * len(line) + 7, 50_000 * len(line) - 1):
        start, end, here = around(client, run, at)
        assert here == at - at % len(line)
        assert start % len(line) == end % len(line) == 0
        assert start <= here < end
        assert (end - start) / len(line) <= 1000
    assert around(client, run, 25_000 * len(line))[0] < 24_501 * len(line)


@pytest.mark.parametrize("at", [0, 1, 12_345, 10**9, 999_999_999_999_999_999])
@pytest.mark.parametrize(
    "data", [b"", b"\n", b"no end", b"\n" * 5000, b"\xff\x00\x80" * 40_000, b"y" * 3_000_000]
)
def test_any_byte_number_has_lines_around_it(
    data: bytes, at: int, run: Run, charlie: User, signed_in: Any
) -> None:
    log_path(run.pk).write_bytes(data)
    body = signed_in(charlie).get(reverse("log-range", args=[run.pk]), {"around": at}).content.decode()
    start, end, here = map(
        int, re.findall(r'data-start="(\d+)" data-end="(\d+)".* data-here="(\d+)"', body)[0]
    )
    assert 0 <= start <= here <= end <= len(data)
    if data:
        assert start < end


def test_a_colour_goes_on_from_the_text_before_a_range(run: Run, charlie: User, signed_in: Any) -> None:
    log_path(run.pk).write_text("\x1b[31mred\n" + "still red\n" * 3 + "\x1b[0mplain\n")
    client = signed_in(charlie)
    address = reverse("log-range", args=[run.pk])
    assert (
        '<span class="ansi31">still red</span>'
        in client.get(address, {"start": 9, "end": 19}).content.decode()
    )
    assert "ansi31" not in client.get(address, {"start": 43, "end": 60}).content.decode()


def test_what_was_removed_from_the_head_is_not_shown(written: Run, charlie: User, signed_in: Any) -> None:
    data = TEXT.encode()
    log_start = data.index(b"\n") + 1
    with log_path(written.pk).open("r+b") as file:
        file.write(b"\0" * log_start)
    Run.objects.filter(pk=written.pk).update(log_start=log_start)
    start, _end, text = get_range(signed_in(charlie), written, start=0, end=200)
    assert start == log_start
    assert "\ufffd" not in text[:-1]
    assert link("local").log_tail(written.pk, 500, log_start) == (log_start, data[log_start:])


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"start": "-1", "end": "5"},
        {"start": "a", "end": "5"},
        {"start": "9" * 40, "end": "1"},
        {"start": "٣", "end": "5"},
        {"around": ""},
        {"around": "1e3"},
        {"around": "9" * 40},
    ],
)
def test_a_range_without_numbers_is_refused(query: Any, written: Run, charlie: User, signed_in: Any) -> None:
    assert signed_in(charlie).get(reverse("log-range", args=[written.pk]), query).status_code == 400


@pytest.mark.parametrize("name", NAMES)
def test_logs_are_for_people_with_a_role(
    name: str, written: Run, dora: User, signed_in: Any, client: Any
) -> None:
    address = reverse(name, args=[written.pk])
    assert client.get(address).status_code == 302
    assert signed_in(dora).get(address).status_code == 403


@pytest.mark.parametrize("name", NAMES)
def test_a_log_of_no_run_is_not_found(name: str, charlie: User, signed_in: Any) -> None:
    address = reverse(name, args=["20300101-000000-00000000"])
    query = {"start": 0, "end": 1, "at": 0, "q": "x"}
    assert signed_in(charlie).get(address, query).status_code == 404


@pytest.mark.django_db(transaction=True)
async def test_the_download_is_the_file(written: Run, charlie: User) -> None:
    client = AsyncClient()
    await client.aforce_login(charlie)
    response = await client.get(reverse("log-download", args=[written.pk]))
    blocks = [block async for block in response.streaming_content]
    assert b"".join(blocks).decode() == TEXT
    assert response["Content-Disposition"] == f'attachment; filename="{written.pk}.log"'
    assert response["Content-Type"].startswith("text/plain")


def test_the_page_follows_its_log(written: Run, charlie: User, signed_in: Any) -> None:
    page = signed_in(charlie).get(reverse("run-log", args=[written.pk])).content.decode()
    assert f'id="log-{written.pk}"' in page
    assert f"topics=log:{written.pk}" in page
    assert "style=" not in page


def test_a_tail_is_the_last_lines(written: Run) -> None:
    data = TEXT.encode()
    lines = data.splitlines(keepends=True)
    start, tail = link("local").log_tail(written.pk, 3)
    assert tail == b"".join(lines[-3:])
    assert start == len(data) - len(tail)
    with log_path(written.pk).open("ab") as file:
        file.write(b"unfinished")
    assert link("local").log_tail(written.pk, 2)[1] == lines[-1] + b"unfinished"
    assert link("local").log_tail(written.pk, 1000) == (0, data + b"unfinished")


def test_a_log_that_is_not_there_reads_as_empty(run: Run) -> None:
    log_path(run.pk).unlink()
    assert link("local").log_size(run.pk) == (0, 0)
    assert link("local").log_tail(run.pk, 5) == (0, b"")
    assert list(link("local").log_download(run.pk)) == []
