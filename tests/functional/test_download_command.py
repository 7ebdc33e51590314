"""manage.py download against a local hub, with a worker in this process."""

import io
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from jobs.models import Download, Job
from jobs.services import jobs
from jobs.services.downloads import WantedFile
from tests.fakes.hub import Hub
from tests.hubs import REPO

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("models_folder")]


@pytest.fixture
def worker() -> Iterator[None]:
    """A thread that does queued jobs."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            for pk in Job.objects.filter(state=Job.State.QUEUED).values_list("pk", flat=True):
                jobs.execute(pk)
            time.sleep(0.1)
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    yield
    stop.set()
    thread.join(60)


def command(*arguments: str) -> tuple[int, Any]:
    out = io.StringIO()
    try:
        call_command("download", *arguments, "--json", stdout=out)
    except SystemExit as end:
        return int(str(end.code)), json.loads(out.getvalue())
    return 0, json.loads(out.getvalue())


@pytest.mark.usefixtures("worker")
def test_files_of_a_repository_are_downloaded_and_registered(hub_files: dict[str, WantedFile]) -> None:
    code, value = command(REPO, *hub_files)
    assert code == 0, value
    assert value["state"] == "complete"
    assert {file["name"]: file["sha256"] for file in value["files"]} == {
        name: file.sha256 for name, file in hub_files.items()
    }
    assert all(Path(model["path"]).is_file() for model in value["models"])
    assert {model["kind"] for model in value["models"]} == {"model", "mmproj"}


@pytest.mark.usefixtures("worker")
def test_an_address_is_downloaded(model_hub: Hub, hub_files: dict[str, WantedFile]) -> None:
    name = next(iter(hub_files))
    code, value = command(model_hub.file_url(REPO, name))
    assert (code, value["state"]) == (0, "complete"), value


def test_without_waiting_the_download_is_queued(hub_files: dict[str, WantedFile]) -> None:
    code, value = command(REPO, next(iter(hub_files)), "--no-wait")
    assert (code, value["state"], value["models"]) == (0, "queued", [])
    assert Download.objects.get().state == "queued"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((REPO,), "no_file"),
        ((REPO, "absent.gguf"), "no_file"),
        (("nobody/nothing", "x.gguf"), "not_found_repo"),
        (("file:///etc/passwd",), "bad_reference"),
        (("just words",), "bad_reference"),
        ((REPO, "Q4_K_M", "--token", "absent"), "not_found"),
        ((REPO, "Q4_K_M", "--folder", "/absent"), "not_found"),
    ],
)
@pytest.mark.usefixtures("hub_files")
def test_what_is_wrong_is_said_in_words(arguments: tuple[str, ...], error: str) -> None:
    code, value = command(*arguments)
    assert (code, value["error"]) == (1, error), value
    assert value["detail"]
    assert not Download.objects.exists()
