"""Questions to a model hub: a real server on this machine, asked with the real library."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters import hub as asked
from jobs.adapters.hub import HubError, repository, resolve, search
from jobs.adapters.transfer import fetch
from jobs.domain.hf_files import HubFile
from jobs.domain.transfer import Limits, Source
from tests.fakes.hub import Hub
from tests.fakes.hub_files import COMMIT, GRANTED, NO_LICENCE, REJECTED, WAITING

REPO = "org/model-GGUF"
FILE = "model-Q8_0.gguf"
CONTENT = b"GGUF" + bytes(1000)
TOKEN = "hf_a_secret_token"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub with one repository."""
    with Hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        server.add(REPO, FILE, CONTENT)
        server.add(REPO, "README.md", b"# Model", lfs=False)
        yield server


def refusal(*, token: str | None = None) -> HubError:
    """What the hub refuses to say about the file."""
    with pytest.raises(HubError) as caught:
        resolve(REPO, "main", FILE, token=token)
    error = caught.value
    assert TOKEN not in str(error) + repr(error) + repr(error.message)
    return error


def test_a_search_finds_repositories(hub: Hub) -> None:
    hub.add("other/thing", "x.gguf", CONTENT)
    (found,) = search("model gguf")
    assert (found.repo, found.downloads, found.likes, found.gated) == (REPO, 1200, 34, False)
    assert found.updated is not None
    (request,) = hub.requests("/api/models")
    assert "filter=gguf" in request.query


def test_a_search_that_finds_nothing_is_empty(hub: Hub) -> None:
    assert search("no such thing\n\x00" + "x" * 5000) == []


def test_a_repository_lists_its_files_with_sizes_and_hashes(hub: Hub) -> None:
    found = repository(REPO)
    stored = hub.repositories[REPO].files[FILE]
    assert (found.repo, found.commit, found.gated) == (REPO, COMMIT, False)
    assert found.files == (HubFile(FILE, len(CONTENT), stored.sha256), HubFile("README.md", 7, None))
    assert found.link == f"{hub.endpoint}/{REPO}"


def test_a_file_is_located_on_another_host_without_the_token(hub: Hub) -> None:
    hub.repository(REPO).tokens[TOKEN] = GRANTED
    found = resolve(REPO, COMMIT, FILE, token=TOKEN)
    assert found.url.startswith(f"{hub.files_host}/cdn/")
    assert found.headers == {}
    assert (found.size, found.commit) == (len(CONTENT), COMMIT)
    assert found.sha256 == hub.repositories[REPO].files[FILE].sha256
    assert hub.requests("/resolve/")[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_a_file_that_the_hub_itself_sends_takes_the_token_along(hub: Hub) -> None:
    found = resolve(REPO, "", "README.md", token=TOKEN)
    assert found.url == hub.resolve_url(REPO, "README.md")
    assert found.headers == {"Authorization": f"Bearer {TOKEN}"}
    assert found.sha256 is None
    assert TOKEN not in repr(found)


def test_without_a_token_none_is_sent_even_if_the_home_folder_has_one(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    search("model")
    repository(REPO)
    resolve(REPO, "main", FILE)
    assert not any("authorization" in seen.headers for seen in hub.seen)


def test_a_name_with_spaces_and_letters_of_any_kind_is_asked_for_as_it_is(hub: Hub) -> None:
    name = "größe/mein Modell #1 100%.gguf"
    hub.add(REPO, name, CONTENT)
    assert resolve(REPO, "main", name).size == len(CONTENT)
    assert name in {file.path for file in repository(REPO).files}


def test_a_gated_repository_says_which_of_three_things_is_missing(hub: Hub) -> None:
    gated = hub.repository(REPO)
    gated.gated = "manual"
    nobody = refusal()
    assert (nobody.code, nobody.link) == ("no_token", f"{hub.endpoint}/{REPO}")
    assert nobody.link in str(nobody)
    gated.tokens[TOKEN] = NO_LICENCE
    licence = refusal(token=TOKEN)
    assert (licence.code, licence.link) == ("licence", f"{hub.endpoint}/{REPO}")
    assert "accept" in str(licence)
    gated.tokens[TOKEN] = REJECTED
    rejected = refusal(token=TOKEN)
    assert rejected.code == "denied"
    assert "refused" in str(rejected)
    gated.tokens[TOKEN] = WAITING
    waiting = refusal(token=TOKEN)
    assert waiting.code == "denied"
    assert "not answered" in str(waiting)
    gated.tokens[TOKEN] = GRANTED
    assert resolve(REPO, "main", FILE, token=TOKEN).size == len(CONTENT)


def test_a_gated_file_is_downloaded_through_its_links_without_showing_the_token_elsewhere(
    hub: Hub, tmp_path: Path, settings: Any
) -> None:
    settings.PANEL_PRIVATE_HOSTS = hub.private
    stored = hub.add(REPO, FILE, b"GGUF" + os.urandom(20_000_000))
    hub.repository(REPO).gated = "auto"
    hub.repository(REPO).tokens[TOKEN] = GRANTED
    hub.link_requests = 3
    source = Source(hub.resolve_url(REPO, FILE), lambda: resolve(REPO, COMMIT, FILE, token=TOKEN))
    limits = Limits(connections=2, spare=0)
    fetched = fetch(source, tmp_path / FILE, limits, on_progress=lambda _: None, stop=lambda: None)
    assert fetched.sha256 == stored.sha256
    assert len(hub.requests("/resolve/")) > 1
    assert not any("authorization" in seen.headers for seen in hub.requests("/cdn/"))


def test_a_wrong_token_is_called_wrong(hub: Hub) -> None:
    hub.repository(REPO).gated = "auto"
    assert refusal(token=TOKEN).code == "bad_token"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("Please enable access to public gated repositories in your fine-grained token settings.", "gated"),
        ("Access to this resource is disabled.", "disabled"),
        ("", "no access"),
    ],
)
def test_other_refusals_with_a_token_are_denials(hub: Hub, said: str, words: str) -> None:
    hub.fault("status", "/org/*", code=403, headers={"X-Error-Message": said})
    error = refusal(token=TOKEN)
    assert error.code == "denied"
    assert words in str(error)


def test_what_is_not_there_is_named(hub: Hub) -> None:
    cases = [
        (("org/none", "main", FILE), "not_found_repo", "org/none"),
        ((REPO, "v9", FILE), "not_found_revision", "v9"),
        ((REPO, "main", "none.gguf"), "not_found_file", "none.gguf"),
        ((REPO, "main", "../x.gguf"), "not_found_file", "x.gguf"),
        (("../../api", "main", FILE), "not_found_repo", "api"),
    ]
    for (repo, revision, file), code, name in cases:
        with pytest.raises(HubError) as caught:
            resolve(repo, revision, file)
        assert caught.value.code == code
        assert name in str(caught.value)
    with pytest.raises(HubError) as caught:
        repository("org/none", token=TOKEN)
    assert caught.value.code == "not_found_repo"
    with pytest.raises(HubError) as caught:
        repository(REPO, "v9")
    assert caught.value.code == "not_found_revision"


@pytest.mark.parametrize(
    ("set_to", "used"),
    [
        ("", "https://huggingface.co"),
        ("https://mirror.example.org/", "https://mirror.example.org"),
        ("mirror.example.org", "https://mirror.example.org"),
    ],
)
def test_the_hub_in_use_is_the_one_of_the_environment(
    set_to: str, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", set_to)
    assert asked.endpoint() == used


def test_two_people_asking_at_once_do_not_mix_their_tokens(hub: Hub) -> None:
    hub.repository(REPO).gated = "auto"
    hub.repository(REPO).tokens |= {f"hf_{number}": GRANTED for number in range(8)}
    threads = [
        threading.Thread(target=resolve, args=(REPO, "main", FILE), kwargs={"token": f"hf_{number}"})
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sent = sorted(seen.headers["authorization"] for seen in hub.requests("/resolve/"))
    assert sent == [f"Bearer hf_{number}" for number in range(8)]


CHILD = """
import sys
from jobs.adapters import hub
assert not {"huggingface_hub", "httpx2"} & set(sys.modules), "imported too early"
assert hub.search("model")[0].repo == "org/model-GGUF"
assert hub.repository("org/model-GGUF").files
print(hub.resolve("org/model-GGUF", "main", "model-Q8_0.gguf").size)
"""


def in_child(**env: str) -> subprocess.CompletedProcess[str]:
    """Ask the hub three questions in a process of its own."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return subprocess.run(
        [sys.executable, "-c", CHILD], env=kept | env, capture_output=True, text=True, timeout=60, check=False
    )


def test_asking_writes_nothing_into_the_home_folder_and_tells_nobody(hub: Hub, tmp_path: Path) -> None:
    done = in_child(HF_ENDPOINT=hub.endpoint, HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(len(CONTENT))
    assert [*tmp_path.rglob("*")] == []
    assert {seen.path.split("/")[1] for seen in hub.seen} == {"api", "org"}
    assert not hub.requests("agent")


def test_the_proxy_of_the_environment_is_used(hub: Hub, tmp_path: Path) -> None:
    # As a proxy the hub gets whole addresses, whose host exists for nobody else.
    done = in_child(
        HF_ENDPOINT="http://hub.invalid", http_proxy=hub.endpoint, HOME=str(tmp_path), no_proxy="localhost"
    )
    assert "hub.invalid" in done.stdout + done.stderr + str([seen.host for seen in hub.seen])
    assert hub.seen
    assert {seen.host for seen in hub.seen} == {"hub.invalid"}
