"""Downloads from a local hub in this process: from the wish to the registered model."""

import hashlib
import threading
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from controlpanel.lib.errors import Refused
from jobs.adapters import transfer
from jobs.models import Download, HubToken, Job, ModelArtifact, ModelFolder
from jobs.services import artifacts, downloads, hub_tokens, jobs, model_files
from jobs.services.audit import Actor
from jobs.services.downloads import State, Wanted, WantedFile
from jobs.services.hosts import local_host
from tests.fakes.hub import Hub
from tests.fakes.hub_files import GRANTED
from tests.hubs import REPO
from tests.models import tiny_models
from tests.waiting import wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("models_folder")]


def wanted(*files: WantedFile, **more: object) -> Wanted:
    return Wanted("tiny", files, REPO, "main", **more)  # type: ignore[arg-type]


def start(wish: Wanted, actor: Actor | None = None) -> Download:
    return downloads.request_download(actor or Actor.cli(), local_host(), wish)


def work(download: Download) -> Download:
    """Do the newest job of a download in this process."""
    job = Job.objects.filter(subject_kind="download", subject_id=str(download.pk)).first()
    assert job is not None
    jobs.execute(job.pk)
    download.refresh_from_db()
    return download


def in_background(download: Download) -> threading.Thread:
    job = Job.objects.filter(subject_kind="download", subject_id=str(download.pk)).first()
    assert job is not None

    def run() -> None:
        jobs.execute(job.pk)
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_download_ends_as_registered_and_verified_models(
    hub_files: dict[str, WantedFile], models_folder: Path
) -> None:
    done = work(start(wanted(*hub_files.values())))
    assert (done.state, done.received) == (State.COMPLETE, done.total), done.error_text
    found = {artifact.file_name: artifact for artifact in ModelArtifact.objects.all()}
    assert set(found) == set(hub_files)
    for name, artifact in found.items():
        assert Path(artifact.path) == models_folder / REPO / name
        assert artifact.source == {"repo": REPO, "revision": "main", "path": name}
        assert artifact.sha256 == [hub_files[name].sha256]
        assert artifact.verified_at is not None and artifact.complete
    assert {a.kind for a in found.values()} == {"model", "mmproj"}
    assert not list(models_folder.rglob("*.part*"))


def test_a_plain_address_is_downloaded_without_a_hash(
    model_hub: Hub, hub_files: dict[str, WantedFile]
) -> None:
    name = next(iter(hub_files))
    url = model_hub.file_url(REPO, name)
    done = work(start(Wanted("by address", (WantedFile(url),))))
    assert done.state == State.COMPLETE, done.error_text
    artifact = ModelArtifact.objects.get()
    assert (artifact.source, artifact.verified_at) == ({"url": url}, None)


def test_a_paused_download_goes_on_where_it_was(model_hub: Hub, tmp_path: Path) -> None:
    big = tmp_path / "big.gguf"
    big.write_bytes(b"GGUF" + b"\1" * (6 * transfer_chunk()))
    stored = model_hub.add(REPO, "big.gguf", big)
    model_hub.connection_rate = 4.0 * 1024**2
    digest = hashlib.sha256(big.read_bytes()).hexdigest()
    download = start(wanted(WantedFile("big.gguf", stored.size, digest)))
    thread = in_background(download)
    target = Path(download.folder) / "big.gguf"
    wait_for(lambda: (state := transfer.read_state(target)) and state.chunks, 60, "the first chunk")
    downloads.pause(Actor.cli(), download)
    thread.join(30)
    assert not thread.is_alive()
    download.refresh_from_db()
    assert download.state == State.PAUSED and not target.exists()
    kept = transfer.read_state(target)
    assert kept is not None
    model_hub.connection_rate = None
    model_hub.forget()
    downloads.resume(Actor.cli(), download)
    done = work(download)
    # The header says nothing of a model: it arrives whole, and is refused for what it is.
    assert target.exists() and done.state == State.FAILED
    assert model_hub.bytes_sent <= stored.size - kept.done + transfer_chunk()


def transfer_chunk() -> int:
    from jobs.domain.transfer import CHUNK

    return CHUNK


def test_a_canceled_download_leaves_nothing(model_hub: Hub, tmp_path: Path) -> None:
    big = tmp_path / "big.gguf"
    big.write_bytes(b"GGUF" + b"\1" * (4 * transfer_chunk()))
    model_hub.add(REPO, "big.gguf", big)
    model_hub.connection_rate = 2.0 * 1024**2
    download = start(wanted(WantedFile("big.gguf", big.stat().st_size)))
    thread = in_background(download)
    target = Path(download.folder) / "big.gguf"
    wait_for(transfer.part_path(target).exists, 60, "the partial file")
    downloads.cancel(Actor.cli(), download)
    assert work(download).state == State.CANCELED
    thread.join(30)
    assert not [path for path in Path(download.folder).rglob("*") if path.is_file()]


def test_a_download_of_the_same_file_is_refused(hub_files: dict[str, WantedFile]) -> None:
    first, second = hub_files.values()
    download = start(wanted(first))
    with pytest.raises(Refused, match="gets one of these files already"):
        start(wanted(second, first))
    work(download)
    with pytest.raises(Refused, match="on the host already"):
        start(wanted(first))
    assert start(wanted(first, second)).state == State.QUEUED


@pytest.mark.parametrize(
    "wish",
    [
        Wanted("none", (), REPO),
        Wanted("no model", (WantedFile("README.md"),), REPO),
        Wanted("outside", (WantedFile("../../x.gguf"),), REPO),
        Wanted("repo", (WantedFile("x.gguf"),), "../x"),
        Wanted("file", (WantedFile("file:///etc/x.gguf"),)),
        Wanted("slow", (WantedFile("x.gguf"),), REPO, rate=10),
        Wanted("huge", (WantedFile("x.gguf", 1 << 50),), REPO),
    ],
    ids=lambda wish: wish.name,
)
def test_what_cannot_be_downloaded_is_refused(wish: Wanted) -> None:
    with pytest.raises(Refused):
        start(wish)
    assert not Download.objects.exists() and not Job.objects.exists()


def test_an_address_in_the_private_network_is_refused(settings: Any, model_hub: Hub) -> None:
    url = model_hub.file_url(REPO, "x.gguf")
    settings.PANEL_PRIVATE_HOSTS = ""
    done = work(start(Wanted("private", (WantedFile(url),))))
    assert done.state == State.FAILED
    assert "PANEL_PRIVATE_HOSTS" in done.error_text or "https" in done.error_text
    assert not model_hub.requests("x.gguf")


def test_a_token_goes_to_the_hub_and_nowhere_else(
    model_hub: Hub, hub_files: dict[str, WantedFile], bob: User
) -> None:
    secret = "hf_abcdefghijklmnop"
    model_hub.repository(REPO).gated = "auto"
    model_hub.repository(REPO).tokens[secret] = GRANTED
    refused = work(start(wanted(*hub_files.values())))
    assert refused.state == State.FAILED
    downloads.cancel(Actor.cli(), refused)
    actor = Actor(bob, "web")
    token = hub_tokens.add_token(actor, "mine", secret, shared=False)
    done = work(start(wanted(*hub_files.values(), token=token), actor))
    assert done.state == State.COMPLETE, done.error_text
    for seen in model_hub.seen:
        if "/cdn/" in seen.path:
            assert secret not in str(seen.headers)
    rows = [*Download.objects.values(), *Job.objects.values(), *HubToken.objects.values()]
    assert secret not in str(rows)


def test_tokens_are_of_one_person_or_of_all(alice: User, bob: User, charlie: User) -> None:
    mine = hub_tokens.add_token(Actor(charlie, "web"), "mine", "hf_one", shared=False)
    ours = hub_tokens.add_token(Actor(alice, "web"), "ours", "hf_two", shared=True)
    assert set(hub_tokens.usable(charlie)) == {mine, ours}
    assert set(hub_tokens.usable(bob)) == {ours}
    assert hub_tokens.secret_of(mine) == "hf_one"
    with pytest.raises(Refused, match="admin"):
        hub_tokens.add_token(Actor(bob, "web"), "x", "hf_three", shared=True)
    for token in (mine, ours):
        with pytest.raises(Refused, match="not yours"):
            hub_tokens.delete_token(Actor(bob, "web"), token)
    with pytest.raises(Refused, match="already"):
        hub_tokens.add_token(Actor(alice, "web"), "ours", "hf_four", shared=True)
    for nonsense in ("", "two words", "naïve", "x" * 1000):
        with pytest.raises(Refused) as caught:
            hub_tokens.add_token(Actor(bob, "web"), "x", nonsense, shared=False)
        assert not nonsense or nonsense not in str(caught.value)
    hub_tokens.delete_token(Actor(alice, "web"), ours)
    assert not hub_tokens.usable(bob).exists()


def test_a_file_that_changed_on_the_disk_is_found_by_verify(hub_files: dict[str, WantedFile]) -> None:
    work(start(wanted(*hub_files.values())))
    artifact = ModelArtifact.objects.get(kind="model")
    model_files.verify(Actor.cli(), artifact)
    jobs.execute(Job.objects.filter(kind=model_files.VERIFY).latest("pk").pk)
    assert Job.objects.filter(kind=model_files.VERIFY).latest("pk").state == Job.State.SUCCEEDED
    path = Path(artifact.path)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    model_files.verify(Actor.cli(), artifact)
    jobs.execute(Job.objects.filter(kind=model_files.VERIFY).latest("pk").pk)
    job = Job.objects.filter(kind=model_files.VERIFY).latest("pk")
    artifact.refresh_from_db()
    assert (job.state, artifact.verified_at, artifact.complete) == (Job.State.FAILED, None, False)
    assert "download it again" in job.error_text


def test_a_model_is_removed_with_its_files(hub_files: dict[str, WantedFile]) -> None:
    work(start(wanted(*hub_files.values())))
    artifact = ModelArtifact.objects.get(kind="model")
    path = Path(artifact.path)
    model_files.remove(Actor.cli(), artifact)
    assert not ModelArtifact.objects.filter(kind="model").exists()
    jobs.execute(Job.objects.get(kind=model_files.REMOVE).pk)
    assert not path.exists()


def test_files_outside_the_folders_are_not_removed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    model, _projector = tiny_models(outside)
    artifact = artifacts.register_artifact(Actor.cli(), local_host(), str(model))
    with pytest.raises(Refused, match="outside"):
        model_files.remove(Actor.cli(), artifact)
    assert model.exists() and ModelArtifact.objects.filter(pk=artifact.pk).exists()


def test_a_registered_folder_is_scanned_and_opens_to_operators(tmp_path: Path, bob: User) -> None:
    folder = tmp_path / "library"
    (folder / "deep").mkdir(parents=True)
    tiny_models(folder / "deep")
    (folder / "page.gguf").write_text("<html>")
    (folder / "half.gguf.part").write_bytes(b"GGUF")
    with pytest.raises(Refused, match="Operators can register"):
        artifacts.register_artifact(Actor(bob, "web"), local_host(), str(folder / "deep" / "tiny-mtp.gguf"))
    row = model_files.add_folder(Actor.cli(), local_host(), str(folder))
    jobs.execute(Job.objects.get(kind=model_files.SCAN).pk)
    row.refresh_from_db()
    assert (row.found, ModelArtifact.objects.count()) == (2, 2), Job.objects.get().error_text
    model_files.scan(Actor.cli(), row)
    jobs.execute(Job.objects.filter(kind=model_files.SCAN).latest("pk").pk)
    assert ModelArtifact.objects.count() == 2
    artifacts.delete_artifact(Actor.cli(), ModelArtifact.objects.get(kind="model"))
    artifacts.register_artifact(Actor(bob, "web"), local_host(), str(folder / "deep" / "tiny-mtp.gguf"))
    model_files.delete_folder(Actor.cli(), row)
    assert not ModelFolder.objects.exists() and ModelArtifact.objects.count() == 2


@pytest.mark.parametrize("path", ["", "relative", "/nowhere/at/all", "/etc/../etc", "/etc/passwd", "/"])
def test_only_folders_that_are_there_are_registered(path: str) -> None:
    with pytest.raises(Refused):
        model_files.add_folder(Actor.cli(), local_host(), path)
