"""Downloads from a hub that behaves: whole, paused, resumed, limited, repaired, one at a time."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.transfer import TransferError, discard, part_path, read_state, state_path, verify
from jobs.domain.transfer import CHUNK, Limits, Resolved
from tests.fakes.hub import Hub
from tests.functional.fetching import DATA, NAME, PROBE, REPO, SIZE, TOKEN, Shop
from tests.waiting import wait_for


@pytest.fixture
def shop(tmp_path: Path, settings: Any) -> Iterator[Shop]:
    """A hub with one model of five chunks and a bit."""
    with Hub() as hub:
        hub.add(REPO, NAME, DATA)
        settings.PANEL_PRIVATE_HOSTS = hub.private
        yield Shop(hub, tmp_path)


def paused(shop: Shop, size: int) -> None:
    """Fetch until so many bytes were sent."""
    shop.hub.throttle.rate = 60e6
    with pytest.raises(TransferError) as caught:
        shop.fetch(stop=shop.stop_after(size))
    assert caught.value.code == "stopped"
    shop.hub.throttle.rate = None


def test_a_file_arrives_whole_over_several_connections_and_only_then_has_its_name(shop: Shop) -> None:
    fetched = shop.fetch()
    assert fetched.sha256 == shop.sha256
    assert fetched.size == SIZE
    assert fetched.received == SIZE
    assert shop.target.read_bytes() == DATA
    assert shop.target.stat().st_mode & 0o777 == 0o600
    assert shop.left() == {NAME}
    assert shop.hub.bytes_sent == SIZE + PROBE
    ranges = {seen.headers["range"] for seen in shop.hub.requests("/cdn/")}
    assert len(ranges) == 1 + 6  # the first bytes, then six chunks


def test_the_token_is_sent_to_the_hub_alone(shop: Shop) -> None:
    shop.fetch()
    assert {seen.headers.get("authorization") for seen in shop.hub.requests("/resolve/")} == {
        f"Bearer {TOKEN}"
    }
    assert {seen.headers.get("authorization") for seen in shop.hub.requests("/cdn/")} == {None}
    assert all(seen.host.startswith("localhost") for seen in shop.hub.requests("/cdn/"))


def test_the_hub_is_asked_once_for_many_requests(shop: Shop) -> None:
    shop.fetch()
    assert len(shop.hub.requests("/resolve/")) == 1


def test_a_paused_download_goes_on_where_it_was(shop: Shop) -> None:
    paused(shop, 3 * CHUNK)
    state = read_state(shop.target)
    assert state is not None
    assert part_path(shop.target).stat().st_mode & 0o777 == 0o600
    assert not shop.target.exists()
    had = state.done
    assert shop.fetch().received == SIZE - had
    assert shop.target.read_bytes() == DATA
    assert shop.hub.bytes_sent <= SIZE + 4 * CHUNK + 2 * PROBE


def test_progress_counts_what_an_earlier_attempt_had(shop: Shop) -> None:
    paused(shop, 3 * CHUNK)
    state = read_state(shop.target)
    assert state is not None
    shop.progress.clear()
    shop.hub.throttle.rate = 20e6
    shop.fetch()
    done = [progress.done for progress in shop.progress if progress.phase == "fetching"]
    assert done == sorted(done)
    assert done[0] >= state.done
    assert {progress.total for progress in shop.progress} == {SIZE}
    assert 10e6 < shop.progress[-1].speed < 30e6
    assert shop.progress[-1].eta is not None


def test_a_stop_is_obeyed_within_a_second_whatever_the_server_does(shop: Shop) -> None:
    shop.hub.fault("stall", after=1000)
    stopped = threading.Event()
    said: list[float] = []

    def stop() -> str | None:
        if stopped.is_set() and not said:
            said.append(time.monotonic())
        return "cancel" if stopped.is_set() else None

    caught: list[TransferError] = []

    def attempt() -> None:
        try:
            shop.fetch(limits=Limits(spare=0), stop=stop)
        except TransferError as error:
            caught.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    wait_for(lambda: shop.hub.bytes_sent >= 4000, 10, "all connections to stand still")
    stopped.set()
    thread.join(10)
    assert time.monotonic() - said[0] < 1
    assert caught[0].code == "stopped"
    assert "cancel" in str(caught[0])


def test_a_stop_does_not_wait_for_a_hub_that_is_silent(shop: Shop) -> None:
    asked, silent = threading.Event(), threading.Event()

    def resolve() -> Resolved:
        asked.set()
        silent.wait(30)
        return shop.resolve()

    began: list[float] = []

    def stop() -> str | None:
        if asked.is_set():
            began.append(time.monotonic())
            return "cancel"
        return None

    with pytest.raises(TransferError):
        shop.fetch(replace(shop.source(), resolve=resolve), stop=stop)
    assert time.monotonic() - began[0] < 1
    silent.set()
    assert shop.left() == set()


def test_a_limit_holds_for_all_connections_together(shop: Shop) -> None:
    began = time.monotonic()
    shop.fetch(limits=Limits(rate=20e6, spare=0))
    assert SIZE / 20e6 * 0.9 < time.monotonic() - began < SIZE / 20e6 * 2


def test_two_downloads_of_one_file_exclude_each_other(shop: Shop) -> None:
    shop.hub.throttle.rate = 20e6
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(shop.fetch()))
    thread.start()
    wait_for(lambda: shop.hub.bytes_sent > CHUNK, 10, "the first download to begin")
    with pytest.raises(TransferError) as caught:
        shop.fetch()
    assert caught.value.code == "busy"
    assert NAME in str(caught.value)
    with pytest.raises(TransferError):
        discard(shop.target)
    shop.hub.throttle.rate = None
    thread.join(30)
    assert results and shop.target.read_bytes() == DATA


def test_a_file_that_is_there_and_right_is_not_fetched_again(shop: Shop) -> None:
    shop.target.write_bytes(DATA)
    assert shop.fetch().received == 0
    assert shop.hub.bytes_sent == 0
    assert shop.left() == {NAME}


@pytest.mark.parametrize("content", [b"GGUF other", b"x" * SIZE], ids=["size", "bytes"])
def test_another_file_of_that_name_is_left_alone(shop: Shop, content: bytes) -> None:
    shop.target.write_bytes(content)
    with pytest.raises(TransferError) as caught:
        shop.fetch()
    assert caught.value.code == "exists"
    assert shop.target.read_bytes() == content
    assert shop.left() == {NAME}


def test_a_state_that_was_cut_short_is_used_as_far_as_it_goes(shop: Shop) -> None:
    paused(shop, 4 * CHUNK)
    path = state_path(shop.target)
    before = read_state(shop.target)
    path.write_bytes(path.read_bytes()[:-30])
    after = read_state(shop.target)
    assert before is not None and after is not None
    assert len(after.chunks) == len(before.chunks) - 1
    assert shop.fetch().received == SIZE - after.done
    assert shop.target.read_bytes() == DATA


@pytest.mark.parametrize("state", [b"", b"\0" * 500, b'{"version": 99}\n', b"[" * 100_000])
def test_without_a_state_the_download_starts_over(shop: Shop, state: bytes) -> None:
    paused(shop, 3 * CHUNK)
    state_path(shop.target).write_bytes(state)
    assert shop.fetch().received == SIZE
    assert shop.target.read_bytes() == DATA


def test_a_chunk_that_went_bad_on_the_disk_is_fetched_again_and_no_other(shop: Shop) -> None:
    paused(shop, 4 * CHUNK)
    state = read_state(shop.target)
    assert state is not None
    with part_path(shop.target).open("r+b") as file:
        file.seek(min(state.chunks) * CHUNK + 99)
        file.write(b"damaged")
    assert shop.fetch().received == SIZE - state.done + CHUNK
    assert shop.target.read_bytes() == DATA


def test_a_wrong_hash_throws_the_file_away_and_says_so(shop: Shop) -> None:
    shop.hub.fault("corrupt", after=2 * CHUNK)
    with pytest.raises(TransferError) as caught:
        shop.fetch()
    assert caught.value.code == "checksum"
    assert shop.left() == set()
    shop.hub.faults.clear()
    shop.fetch()
    assert shop.target.read_bytes() == DATA


def test_a_partial_file_can_be_thrown_away(shop: Shop) -> None:
    paused(shop, 2 * CHUNK)
    discard(shop.target)
    assert shop.left() == set()


def test_a_file_on_the_disk_is_compared_with_its_hash(tmp_path: Path) -> None:
    file = tmp_path / NAME
    file.write_bytes(DATA)
    verify(file, hashlib.sha256(DATA).hexdigest(), lambda progress: None, lambda: None)
    with pytest.raises(TransferError) as wrong:
        verify(file, "0" * 64, lambda progress: None, lambda: None)
    assert wrong.value.code == "checksum"
    with pytest.raises(TransferError) as stopped:
        verify(file, "0" * 64, lambda progress: None, lambda: "cancel")
    assert stopped.value.code == "stopped"
