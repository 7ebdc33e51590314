"""Headers of files that are not here yet, read over the network from a server that may misbehave."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from controlpanel.llamacpp.gguf import GgufError
from jobs.adapters import peek as peeked
from jobs.adapters.addresses import AddressRefused
from jobs.adapters.hub import HubError
from jobs.adapters.peek import PeekError, peek, peek_address
from jobs.domain.hf import BadReference
from tests.fakes.hub import Hub
from tests.fakes.hub_files import GRANTED
from tests.unit.gguf_samples import STRING, TYPE_F16, U32, array, build, string, text, u32

REPO = "org/model-GGUF"
FILE = "model-F16-00001-of-00002.gguf"
TOKEN = "hf_a_secret_token"
WORDS = 150_000
DATA = 8 * 1024 * 1024


def model() -> bytes:
    """A file of 13 MB whose header takes 4.5 MB, of which the parser skips a part."""
    keys = [
        string("general.architecture", "qwen35"),
        u32("qwen35.context_length", 262_144),
        u32("split.count", 2),
        array("tokenizer.ggml.tokens", STRING, WORDS, b"".join(text(f"token {n:06}") for n in range(WORDS))),
        array("tokenizer.ggml.token_type", U32, WORDS, struct.pack("<I", 1) * WORDS),
        array("tokenizer.ggml.merges", STRING, 10_000, b"".join(text(f"{n}") for n in range(10_000))),
    ]
    return build(keys, [("blk.0.attn_q.weight", (1024, 4096), TYPE_F16, 0)], bytes(DATA))


MODEL = model()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Hub]:
    """A hub with one shard of a model, whose two hosts the panel may connect to."""
    with Hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        settings.PANEL_PRIVATE_HOSTS = server.private
        server.add(REPO, FILE, MODEL)
        yield server


def refused(address: str) -> PeekError:
    """Why the header at an address cannot be read."""
    with pytest.raises(PeekError) as caught:
        peek_address(address)
    return caught.value


def test_the_header_of_a_file_on_the_hub_is_read_without_loading_the_file(hub: Hub) -> None:
    header = peek(f"{REPO}/{FILE}")
    assert (header.architecture, header.context_length, header.split_count) == ("qwen35", 262_144, 2)
    assert header.file_size == len(MODEL)
    assert (header.vocabulary, header.missing_bytes) == (WORDS, 0)
    assert hub.bytes_sent < 6 * 1024 * 1024
    assert {seen.status for seen in hub.requests("/cdn/")} == {206}
    assert len(hub.requests("/cdn/")) < 6


@pytest.mark.parametrize(
    "form", ["{0}/{1}", "{2}/{0}/blob/main/{1}", "{2}/{0}/resolve/main/{1}?download=true"]
)
def test_each_way_to_name_a_file_of_the_hub_leads_to_its_header(hub: Hub, form: str) -> None:
    assert peek(form.format(REPO, FILE, hub.endpoint)).architecture == "qwen35"


def test_of_a_later_shard_the_first_is_read(hub: Hub) -> None:
    hub.add(REPO, FILE.replace("00001-of", "00002-of"), b"not this one")
    assert peek(f"{REPO}/{FILE.replace('00001-of', '00002-of')}").architecture == "qwen35"


def test_the_header_at_any_other_address_is_read(hub: Hub) -> None:
    assert peek(hub.file_url(REPO, FILE)).architecture == "qwen35"
    assert not hub.requests("/api/")


def test_the_token_reaches_the_hub_only(hub: Hub) -> None:
    hub.repository(REPO).gated = "auto"
    hub.repository(REPO).tokens[TOKEN] = GRANTED
    with pytest.raises(HubError, match="accept") as caught:
        peek(f"{REPO}/{FILE}")
    assert caught.value.code == "no_token"
    peek(f"{REPO}/{FILE}", token=TOKEN)
    assert not any("authorization" in seen.headers for seen in hub.requests("/cdn/"))


def test_a_token_does_not_follow_a_redirect_to_another_host(hub: Hub) -> None:
    hub.add(REPO, "small.gguf", MODEL, lfs=False)
    hub.repository(REPO).tokens[TOKEN] = GRANTED
    peek(f"{REPO}/small.gguf", token=TOKEN)
    sent = [seen for seen in hub.requests("/resolve/main/small") if seen.method == "GET"]
    assert all(seen.headers["authorization"] == f"Bearer {TOKEN}" for seen in sent)
    hub.fault("redirect", "/first/*", location=hub.file_url(REPO, FILE))
    peek_address(f"{hub.endpoint}/first/x.gguf", {"Authorization": f"Bearer {TOKEN}"})
    assert hub.requests("/first/")[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert not any("authorization" in seen.headers for seen in hub.requests("/cdn/"))


def test_a_server_that_ignores_ranges_is_read_from_the_start(hub: Hub) -> None:
    hub.fault("ignore_range")
    assert peek(f"{REPO}/{FILE}").vocabulary == WORDS


def test_a_server_that_ends_every_connection_early_is_asked_again(hub: Hub) -> None:
    hub.fault("cut", after=300_000)
    assert peek(f"{REPO}/{FILE}").vocabulary == WORDS
    assert hub.bytes_sent < 7 * 1024 * 1024


def test_a_server_that_never_sends_what_it_promises_is_given_up(hub: Hub) -> None:
    hub.add(REPO, "empty.gguf", b"")
    hub.fault("size", after=10**9)
    with pytest.raises((PeekError, GgufError)):
        peek_address(hub.file_url(REPO, "empty.gguf"))
    assert len(hub.seen) < 10


def test_a_file_that_changes_half_way_is_not_mixed(hub: Hub) -> None:
    hub.fault("swap", after=1_000_000)
    error = refused(hub.file_url(REPO, FILE))
    assert error.code == "changed"


def test_a_stalled_server_is_given_up(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peeked, "STALL", 0.5)
    hub.fault("stall", after=100_000)
    begun = time.monotonic()
    assert refused(hub.file_url(REPO, FILE)).code == "stalled"
    assert time.monotonic() - begun < 10


def test_a_slow_server_is_given_up(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peeked, "SECONDS", 1.0)
    hub.fault("slow", after=200_000)
    begun = time.monotonic()
    assert refused(hub.file_url(REPO, FILE)).code == "stalled"
    assert time.monotonic() - begun < 10


def test_a_web_page_is_called_one(hub: Hub) -> None:
    hub.fault("html")
    error = refused(hub.file_url(REPO, FILE))
    assert error.code == "html"
    assert "web page" in str(error)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 429, 500, 503])
def test_an_error_status_is_said_without_the_query_of_the_address(hub: Hub, status: int) -> None:
    hub.fault("status", code=status)
    error = refused(f"{hub.file_url(REPO, FILE)}?key=secret")
    assert error.code == f"http_{status}"
    assert "secret" not in str(error)


def test_a_redirect_in_a_circle_ends(hub: Hub) -> None:
    hub.fault("loop")
    assert refused(hub.file_url(REPO, FILE)).code == "redirect_loop"


@pytest.mark.parametrize("target", ["http://[::1", ""])
def test_a_redirect_to_nowhere_is_said(hub: Hub, target: str) -> None:
    hub.fault("redirect", location=target)
    assert refused(hub.file_url(REPO, FILE)).code in {"hub_down", "redirect_loop"}


@pytest.mark.parametrize(
    "target",
    ["file:///etc/passwd", "http://169.254.169.254/latest", "https://127.0.0.1:1/x", "http://10.0.0.1/"],
)
def test_a_redirect_to_where_the_panel_must_not_go_is_refused(hub: Hub, target: str) -> None:
    hub.fault("redirect", location=target)
    with pytest.raises(AddressRefused):
        peek_address(hub.file_url(REPO, FILE))


def test_an_address_of_this_machine_is_refused_unless_it_is_listed(hub: Hub, settings: Any) -> None:
    settings.PANEL_PRIVATE_HOSTS = ""
    with pytest.raises(AddressRefused):
        peek(f"https://127.0.0.1:{hub.port + 1}/x.gguf")
    with pytest.raises(AddressRefused):
        peek(hub.file_url(REPO, FILE))
    assert hub.seen == []


@pytest.mark.parametrize(
    "content",
    [b"", b"GGUF", b"<!DOCTYPE html>", MODEL[:1_000_000], b"GGUF\x03\0\0\0" + b"\xff" * 16, bytes(3_000_000)],
    ids=["empty", "short", "page", "cut", "counts", "zeros"],
)
def test_what_is_no_whole_header_is_said_in_the_words_of_the_parser(hub: Hub, content: bytes) -> None:
    hub.add(REPO, "odd.gguf", content)
    with pytest.raises(GgufError):
        peek_address(hub.file_url(REPO, "odd.gguf"))
    assert hub.bytes_sent <= max(len(content), 1_000_000)


def test_a_header_without_end_costs_a_bounded_number_of_bytes(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peeked, "MAX_BYTES", 2 * 1024 * 1024)
    assert refused(hub.file_url(REPO, FILE)).code == "too_large"
    assert hub.bytes_sent < 4 * 1024 * 1024


def test_a_server_that_is_away_is_said_to_be(settings: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    settings.PANEL_PRIVATE_HOSTS = address
    assert refused(f"http://{address}/x.gguf").code == "hub_down"


@pytest.mark.parametrize("text", ["org/name", "some words", "https://huggingface.co/org/name"])
def test_a_text_that_names_no_file_is_refused(text: str) -> None:
    with pytest.raises(PeekError) as caught:
        peek(text)
    assert caught.value.code == "no_file"


def test_a_text_that_is_no_reference_is_refused() -> None:
    with pytest.raises(BadReference):
        peek("file:///etc/passwd")
