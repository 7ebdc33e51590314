"""Downloads from servers that misbehave: what still works, and the words for what does not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controlpanel.lib.text import N_, Worded
from jobs.adapters.addresses import AddressRefused
from jobs.adapters.transfer import TransferError, read_state
from jobs.domain.transfer import CHUNK, Limits, Place, Resolved, Source
from tests.fakes.hub import Hub
from tests.functional.fetching import DATA, NAME, PROBE, REPO, SIZE, TOKEN, Shop
from tests.waiting import wait_for

SECRET = "signature="


@pytest.fixture
def shop(tmp_path: Path, settings: Any) -> Iterator[Shop]:
    """A hub with one model of five chunks and a bit."""
    with Hub() as hub:
        hub.add(REPO, NAME, DATA)
        settings.PANEL_PRIVATE_HOSTS = hub.private
        yield Shop(hub, tmp_path)


def refused(shop: Shop, source: Source | None = None, limits: Limits | None = None) -> TransferError:
    """The error of a download that has to fail; nothing secret is in it, and nothing has the file's name."""
    with pytest.raises(TransferError) as caught:
        shop.fetch(source, limits)
    assert TOKEN not in str(caught.value)
    assert SECRET not in str(caught.value)
    assert not shop.target.exists()
    return caught.value


def test_a_server_that_ignores_range_is_read_in_one_go(shop: Shop) -> None:
    shop.hub.fault("ignore_range")
    assert shop.fetch().received == SIZE
    assert shop.target.read_bytes() == DATA


def test_without_ranges_a_resumed_download_reads_over_what_it_has(shop: Shop) -> None:
    shop.hub.fault("ignore_range")
    shop.hub.throttle.rate = 60e6
    with pytest.raises(TransferError):
        shop.fetch(stop=shop.stop_after(3 * CHUNK))
    shop.hub.throttle.rate = None
    state = read_state(shop.target)
    assert state is not None and state.done
    shop.fetch()
    assert shop.target.read_bytes() == DATA


def test_a_server_that_stops_to_answer_ranges_half_way_is_an_error(shop: Shop) -> None:
    shop.hub.throttle.rate = 60e6
    threading.Thread(
        target=lambda: (
            wait_for(lambda: shop.hub.bytes_sent > CHUNK, 10, "the first chunk"),
            shop.hub.fault("ignore_range"),
        )
    ).start()
    shop.hub.fault("cut", after=3 * 1024**2)
    assert refused(shop).code == "http_200"


@pytest.mark.parametrize("lie", [1000, -1000], ids=["more", "less"])
@pytest.mark.parametrize("kind", ["size", "size ignore_range"], ids=["ranges", "one go"])
def test_a_lie_about_the_size_is_not_believed(shop: Shop, lie: int, kind: str) -> None:
    for name in kind.split():
        shop.hub.fault(name, after=lie)
    assert refused(shop).code == "changed"


def test_a_file_shorter_than_promised_is_never_finished(shop: Shop) -> None:
    shop.hub.fault("size", after=5000)
    error = refused(shop, shop.source(known=False))
    assert error.code in {"unreachable", "changed", "http_206"}


def test_a_file_of_unknown_size_is_refused(shop: Shop) -> None:
    shop.hub.fault("no_length")
    assert refused(shop).code == "no_size"


def test_a_size_that_no_model_has_is_refused(shop: Shop) -> None:
    shop.hub.fault("size", after=2**50)
    assert refused(shop, shop.source(known=False)).code == "too_large"


def test_packed_bytes_are_refused(shop: Shop) -> None:
    shop.hub.fault("headers", headers={"Content-Encoding": "gzip"})
    assert refused(shop).code == "packed"


def test_another_part_than_was_asked_for_is_not_used(shop: Shop) -> None:
    shop.hub.fault("headers", headers={"Content-Range": f"bytes 1-{CHUNK}/{SIZE}"})
    assert refused(shop).code == "http_206"


def test_a_token_that_cannot_be_sent_is_not_told(shop: Shop) -> None:
    place = Place(shop.hub.resolve_url(REPO, NAME), {"Authorization": f"Bearer {TOKEN}\n"})
    error = refused(shop, replace(shop.source(), resolve=lambda: place), Limits(patience=0.5, spare=0))
    assert error.code == "unreachable"


def test_a_web_page_instead_of_the_file_is_named_as_such(shop: Shop) -> None:
    shop.hub.fault("html")
    error = refused(shop)
    assert error.code == "html"
    assert "web page" in str(error)
    assert shop.left() == set()


def test_what_is_no_gguf_is_refused_before_it_is_fetched(shop: Shop) -> None:
    shop.hub.add(REPO, NAME, b"PK\x03\x04" + DATA)
    assert refused(shop, shop.source(known=False)).code == "not_gguf"
    assert shop.hub.bytes_sent == PROBE


def test_a_plain_address_without_size_and_hash_is_fetched(shop: Shop) -> None:
    fetched = shop.fetch(shop.source(known=False))
    assert (fetched.size, fetched.sha256) == (SIZE, shop.sha256)
    assert shop.target.read_bytes() == DATA


@pytest.mark.parametrize("known", [True, False], ids=["hub", "address"])
def test_a_file_that_changes_half_way_is_said_to_have_changed(shop: Shop, known: bool) -> None:
    source = shop.source(known=known)
    other = DATA[:4] + DATA[4:][::-1]
    shop.hub.throttle.rate = 30e6

    def change() -> None:
        wait_for(lambda: shop.hub.bytes_sent > CHUNK, 10, "the first chunk")
        shop.hub.add(REPO, NAME, other)

    thread = threading.Thread(target=change)
    thread.start()
    error = refused(shop, source)
    thread.join()
    assert error.code == "changed"
    assert "Start over" in str(error)


def test_a_file_that_changed_while_the_download_was_paused_is_said_to_have(shop: Shop) -> None:
    shop.hub.throttle.rate = 60e6
    with pytest.raises(TransferError):
        shop.fetch(stop=shop.stop_after(2 * CHUNK))
    before = read_state(shop.target)
    shop.hub.add(REPO, NAME, DATA[:4] + DATA[4:][::-1])
    assert refused(shop).code == "changed"
    assert read_state(shop.target) == before


def test_another_mark_of_the_same_file_is_no_change(shop: Shop) -> None:
    shop.fetch(replace(shop.source(), etag="that-of-another-host"))
    assert shop.target.read_bytes() == DATA
    assert shop.resolved == 2


def test_a_server_that_ends_each_connection_after_a_megabyte_still_gives_the_file(shop: Shop) -> None:
    shop.hub.fault("cut", after=1_000_000)
    assert shop.fetch().received <= SIZE
    assert shop.target.read_bytes() == DATA
    assert shop.hub.bytes_sent <= SIZE + PROBE
    assert len(shop.hub.requests("/resolve/")) == 1


def test_a_slow_connection_does_not_hold_the_others_up(shop: Shop) -> None:
    shop.hub.fault("slow", times=2, after=4_000_000)  # the first bytes, and one of the connections
    shop.fetch()
    assert shop.target.read_bytes() == DATA
    assert sorted(seen.sent for seen in shop.hub.requests("/cdn/"))[-1] == CHUNK
    speeds = [progress.speed for progress in shop.progress]
    assert max(speeds) > 12e6


@pytest.mark.slow
def test_a_chunk_on_a_slow_connection_is_gone_on_with_on_another(shop: Shop) -> None:
    shop.hub.fault("slow", times=2, after=100_000)  # the first bytes, and a chunk that would take 84 s
    began = time.monotonic()
    shop.fetch()
    assert time.monotonic() - began < 30
    assert shop.target.read_bytes() == DATA
    assert len(shop.hub.requests("/cdn/")) == 1 + 6 + 1


def test_a_standing_connection_is_replaced_and_the_link_resolved_again(shop: Shop) -> None:
    shop.hub.fault("stall", times=3, after=CHUNK // 2)
    shop.fetch()
    assert shop.target.read_bytes() == DATA
    assert 2 <= len(shop.hub.requests("/resolve/")) <= 4
    assert shop.hub.bytes_sent <= SIZE + PROBE


def test_a_server_that_never_sends_a_byte_is_given_up(shop: Shop) -> None:
    shop.hub.fault("stall", after=16)
    error = refused(shop, limits=Limits(stall=0.5, patience=2.0, spare=0))
    assert error.code == "stalled"
    assert read_state(shop.target) is not None


def test_a_signed_link_that_expires_is_resolved_again(shop: Shop) -> None:
    shop.hub.link_requests = 3
    shop.fetch()
    assert shop.target.read_bytes() == DATA
    assert len(shop.hub.requests("/resolve/")) >= 3
    assert shop.hub.bytes_sent == SIZE + PROBE


@pytest.mark.parametrize(
    ("status", "words"), [(401, "does not give"), (403, "does not give"), (404, "no such file"), (418, "418")]
)
def test_a_refusal_that_lasts_is_told_soon(shop: Shop, status: int, words: str) -> None:
    shop.hub.fault("status", code=status)
    error = refused(shop, limits=Limits(spare=0))
    assert error.code == f"http_{status}"
    assert words in str(error)
    assert len(shop.hub.requests("/cdn/")) <= 3
    assert shop.left() == set()


def test_a_busy_server_is_asked_again_when_it_said(shop: Shop) -> None:
    shop.hub.fault("status", code=429, times=2, headers={"Retry-After": "1"})
    shop.fetch()
    assert shop.target.read_bytes() == DATA
    assert len(shop.hub.requests("/cdn/")) < 20


def test_trouble_that_passes_is_waited_out(shop: Shop) -> None:
    shop.hub.fault("status", code=503, times=3)
    shop.fetch()
    assert shop.target.read_bytes() == DATA


def test_trouble_that_lasts_is_told_with_its_status(shop: Shop) -> None:
    shop.hub.fault("status", code=503)
    error = refused(shop, limits=Limits(patience=2.0, spare=0))
    assert error.code == "http_503"


def test_a_server_that_is_away_is_said_to_be(shop: Shop, settings: Any) -> None:
    settings.PANEL_PRIVATE_HOSTS = "127.0.0.1:9"
    source = Source("http://127.0.0.1:9/m.gguf", lambda: Place("http://127.0.0.1:9/m.gguf?signature=x"))
    error = refused(shop, source, Limits(patience=1.0, spare=0))
    assert error.code == "unreachable"
    assert "127.0.0.1" in str(error)


def test_a_loop_of_redirects_ends(shop: Shop) -> None:
    shop.hub.fault("loop", path="*/resolve/*")
    assert refused(shop).code == "redirect_loop"
    assert len(shop.hub.seen) < 12


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "http://10.0.0.1/model.gguf",
        "https://10.0.0.1/model.gguf",
        "https://[fd00:ec2::254]/latest",
        "http://169.254.169.254/latest/meta-data",
        "https://user:hunter2@example.com/model.gguf",
        "http://example.com/model.gguf",
        "https://localhost:1/model.gguf",
        "gopher://example.com/",
        "http://[::1/",
    ],
)
def test_a_redirect_to_a_forbidden_place_is_not_followed(shop: Shop, location: str) -> None:
    shop.hub.fault("redirect", path="*/resolve/*", location=location)
    with pytest.raises(AddressRefused) as caught:
        shop.fetch()
    assert caught.value.code == "refused_address"
    assert "hunter2" not in str(caught.value)
    assert shop.left() == set()


def test_headers_for_the_hub_do_not_follow_a_redirect_to_another_port(shop: Shop, settings: Any) -> None:
    with Hub() as other:
        other.add(REPO, NAME, DATA)
        settings.PANEL_PRIVATE_HOSTS = f"{shop.hub.private},127.0.0.1:{other.port}"
        location = f"{other.endpoint}/cdn/{REPO}/{NAME}"
        shop.hub.fault("redirect", path="*/resolve/*", location=location)
        shop.fetch()
        assert {seen.headers.get("authorization") for seen in other.seen} == {None}
    assert shop.target.read_bytes() == DATA


class HubSays(Worded):
    """An error as resolving a link raises it."""

    def __init__(self, code: str) -> None:
        super().__init__(N_("The hub says %(code)s."), code=code)
        self.code = code


def test_what_the_hub_refuses_is_passed_on_as_it_is(shop: Shop) -> None:
    def resolve() -> Resolved:
        raise HubSays("licence")

    with pytest.raises(HubSays):
        shop.fetch(replace(shop.source(), resolve=resolve))
    assert shop.left() == set()


def test_a_hub_that_is_away_for_a_moment_is_asked_again(shop: Shop) -> None:
    asked = iter(["hub_down", "rate_limit"])

    def resolve() -> Resolved:
        for code in asked:
            raise HubSays(code)
        return shop.resolve()

    shop.fetch(replace(shop.source(), resolve=resolve))
    assert shop.target.read_bytes() == DATA
