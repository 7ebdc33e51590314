"""manage.py import-command: what a profile stores of a pasted command, as JSON or text, refusals in words."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from
from jobs.models import Build
from jobs.services.hosts import local_host

HELP = Path(__file__).parent.parent / "data" / "help"


def run(*args: str) -> str:
    """The command's answer."""
    out = StringIO()
    call_command("import-command", *args, stdout=out)
    return out.getvalue()


def imported(*args: str) -> dict[str, Any]:
    """The command's answer as JSON."""
    value: dict[str, Any] = json.loads(run(*args, "--json"))
    return value


def refused(*args: str) -> dict[str, Any]:
    """The JSON error of a command that ends with 1."""
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("import-command", *args, "--json", stdout=out)
    assert ended.value.code == 1
    value: dict[str, Any] = json.loads(out.getvalue())
    return value


def add_build(name: str, help_name: str) -> None:
    """A ready build of this host."""
    capabilities = capabilities_from((HELP / help_name).read_text())
    Build.objects.create(
        host=local_host(),
        name=name,
        path=f"/{name}",
        state=Build.State.READY,
        capabilities=capabilities.to_dict(),
    )


def test_the_answer_holds_everything_a_profile_needs() -> None:
    found = imported(
        "CUDA_VISIBLE_DEVICES=0 llama-server -m /m.gguf --mmproj /p.gguf --port 8081 -a big -c 4096 --jinja"
    )
    report = found.pop("report")
    assert found == {
        "settings": {"ctx_size": 4096},
        "model": "/m.gguf",
        "mmproj": "/p.gguf",
        "port": 8081,
        "alias": "big",
        "extra": ["--jinja"],
        "env": {"CUDA_VISIBLE_DEVICES": "0"},
        "policy": {},
    }
    flags = ["CUDA_VISIBLE_DEVICES", "-m", "--mmproj", "--port", "-a", "-c", "--jinja"]
    assert [line["flag"] for line in report] == flags
    assert all(set(line) == {"kind", "flag", "text"} and line["text"] for line in report)


def test_a_text_that_begins_with_a_flag_is_taken_as_the_text() -> None:
    assert imported("-m a -c 4096")["settings"] == {"ctx_size": 4096}
    assert imported("--ctx-size 4096")["settings"] == {"ctx_size": 4096}


@pytest.mark.django_db
def test_a_build_decides_what_the_words_mean() -> None:
    add_build("new", "upstream-b11434.txt")
    add_build("fork", "help-fork.txt")
    Build.objects.create(
        host=local_host(),
        name="broken",
        path="/broken",
        state=Build.State.FAILED,
        capabilities=Capabilities().to_dict(),
    )
    text = "llama-server --spec-type mtp --no-mmap -ctk turbo4 --not-a-flag"
    new, fork = imported(text, "--build", "new"), imported(text, "--build", "fork")
    assert new["settings"] == {"speculation": "mtp", "load_mode": "none"}
    assert fork["settings"] == {"speculation": "mtp", "load_mode": "none", "cache_type_k": "turbo4"}
    assert [line["kind"] for line in new["report"]] == ["renamed", "renamed", "wrong", "wrong"]
    assert [line["kind"] for line in fork["report"]] == ["mapped", "mapped", "mapped", "wrong"]
    assert "draft-mtp" in new["report"][0]["text"]
    for name in ("broken", "other"):
        error = refused("llama-server -m a", "--build", name)
        assert error["error"] == "no_such_build" and "new" in error["detail"]


def test_what_is_no_command_is_refused_in_words() -> None:
    for text in ("", "hello", "llama-server -m 'a", "llama-server \udcff", "x" * 70_000):
        error = refused(text)
        assert error["error"] == "not_a_command" and len(error["detail"]) > 20
    with pytest.raises(CommandError, match="TEXT"):
        call_command("import-command")


def test_the_text_says_the_same_and_no_secret() -> None:
    lines = run("llama-server -m /m.gguf --api-key hunter2 --mtp").splitlines()
    assert [line.split()[0] for line in lines] == ["mapped", "managed", "wrong"]
    assert "hunter2" not in "".join(lines)
    assert "Speculation" in lines[2]
