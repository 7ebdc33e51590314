"""manage.py fit: the estimate as JSON or text, errors in words, and one server that proves it."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from
from jobs.models import Build
from jobs.services.hosts import local_host
from tests.engines import running
from tests.models import plain_model, tiny_models

HELP = Path(__file__).parent.parent / "data" / "help"
_SIZE = re.compile(r"(\w+) buffer size = +([\d.]+) MiB")


def run(*args: str | Path) -> str:
    """The command's answer."""
    out = StringIO()
    call_command("fit", *map(str, args), stdout=out)
    return out.getvalue()


def fit(*args: str | Path) -> dict[str, Any]:
    """The command's answer as JSON."""
    value: dict[str, Any] = json.loads(run(*args, "--json"))
    return value


def refused(*args: str | Path) -> dict[str, Any]:
    """The JSON error of a command that ends with 1."""
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("fit", *map(str, args), "--json", stdout=out)
    assert ended.value.code == 1
    value: dict[str, Any] = json.loads(out.getvalue())
    return value


def add_build(name: str, capabilities: Capabilities, state: str = Build.State.READY) -> None:
    """A build of this host."""
    Build.objects.create(
        host=local_host(), name=name, path=f"/{name}", state=state, capabilities=capabilities.to_dict()
    )


def test_each_card_has_its_terms_total_and_capacity(tmp_path: Path) -> None:
    model, mmproj = tiny_models(tmp_path)
    flags = ("-c", "8192", "-np", "1", "-ts", "3,1", "--spec-type", "draft-mtp", "-ngl", "all")
    found = fit("--gguf", model, "--mmproj", mmproj, "--gpus", "24576,8192", *flags)
    assert set(found) == {"devices", "host", "verdict", "why"}
    first, second = found["devices"]
    assert set(first) == {"name", "terms", "total", "capacity"}
    assert first["total"] == pytest.approx(sum(first["terms"].values()), abs=0.01)
    assert (first["capacity"], second["capacity"]) == (24576, 8192)
    assert first["terms"]["kv"] == 4 and first["terms"]["mtp_kv"] == 4 and "kv" not in second["terms"]
    assert found["host"]["prompt_cache"] == 8192
    assert found["verdict"] == "fits" and found["why"] == []
    assert fit("--gguf", model, "--gpus", "600", *flags[:4])["verdict"] == "tight"
    assert fit("--gguf", model, "--gpus", "5", *flags[:4])["verdict"] == "does not fit"


def test_flags_are_taken_in_every_spelling(tmp_path: Path) -> None:
    model, _ = tiny_models(tmp_path)
    start = ("--gguf", model, "--gpus", "24576")
    short = fit(*start, "-c", "4096", "-np", "2", "-ctk", "q8_0", "-ctv", "q8_0", "-no-kvu", "-ub", "256")
    long = ("--cache-type-k", "q8_0", "--cache-type-v", "q8_0", "--no-kv-unified", "--ubatch_size", "256")
    assert fit(*start, "--ctx-size", "4096", "--parallel", "2", *long) == short
    assert short["devices"][0]["terms"]["kv"] == pytest.approx(1.0625, abs=0.001)
    assert fit(*start, "-np", "-1") == fit(*start)
    assert fit(*start, "-nkvo", "-kvo", "--swa-full", "-np", "2") == fit(*start, "-np", "2")
    without = fit(*start, "-nkvo", "--cpu-moe", "--swa-full", "-cram", "0")
    assert "kv" not in without["devices"][0]["terms"] and without["host"]["prompt_cache"] == 0


def test_the_fork_is_known_by_its_words(tmp_path: Path) -> None:
    model, _ = tiny_models(tmp_path)
    start = ("--gguf", model, "--gpus", "24576", "-np", "1", "-c", "4096")
    fork = fit(*start, "--spec-type", "mtp")["devices"][0]["terms"]
    upstream = fit(*start, "--spec-type", "draft-mtp")["devices"][0]["terms"]
    assert fork["mtp_recurrent"] > upstream["mtp_recurrent"]
    assert fork["mtp_weights"] > upstream["mtp_weights"]
    turbo = fit(*start, "-ctk", "turbo4", "-ctv", "turbo4")["devices"][0]["terms"]
    assert turbo["kv"] == pytest.approx(0.66, abs=0.01)


@pytest.mark.django_db
def test_flags_that_take_no_memory_are_passed_over_with_a_build_and_without(tmp_path: Path) -> None:
    model, _ = tiny_models(tmp_path)
    add_build("new", capabilities_from((HELP / "upstream-b11434.txt").read_text()))
    start = ("--gguf", model, "--gpus", "24576", "-np", "1", "-c", "4096")
    flags = ("--temp", "0.7", "--top-k", "20", "-s", "-1", "--rope-scaling", "yarn", "--rope-scale", "4")
    flags += ("--log-prefix", "--no-log-timestamps", "--fit", "off", "-nocb", "--no-warmup", "-tb", "4")
    flags += ("--reasoning-budget", "-1", "--sleep-idle-seconds", "60", "--jinja")
    assert fit(*start, *flags) == fit(*start)
    assert fit(*start, *flags, "--build", "new") == fit(*start, "--build", "new")
    assert fit(*start, "--no-mmap") == fit(*start)


@pytest.mark.django_db
def test_a_build_decides_which_flags_there_are(tmp_path: Path) -> None:
    model, _ = tiny_models(tmp_path)
    add_build("new", capabilities_from((HELP / "upstream-b11434.txt").read_text()))
    add_build("fork", capabilities_from((HELP / "help-fork.txt").read_text()))
    add_build("broken", Capabilities(), Build.State.FAILED)
    start = ("--gguf", model, "--gpus", "24576", "-np", "1", "-c", "4096", "--build")
    found = fit(*start, "new", "--spec-type", "draft-mtp,ngram-mod", "--metrics", "-a", "x", "--port", "1")
    assert found["devices"][0]["terms"]["mtp_kv"] == 2
    assert "draft-mtp" in refused(*start, "fork", "--spec-type", "draft-mtp")["detail"]
    assert "no flag --no-mmap" in refused(*start, "new", "--no-mmap")["detail"]
    assert fit(*start, "fork", "--no-mmap")["verdict"] == "fits"
    assert "turbo4" in refused(*start, "new", "-ctk", "turbo4")["detail"]
    for name in ("broken", "other"):
        error = refused(*start, name)
        assert error["error"] == "no_such_build" and "new" in error["detail"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("-ot", "exps=CPU"), "-ot"),
        (("-md", "x.gguf"), "-md"),
        (("--gpu", "3"), "--gpu"),
        (("--device", "CUDA0"), "does not take --device into account"),
        (("-c",), "needs a value"),
        (("-c", "many"), "ctx_size cannot be many"),
        (("stray",), "stray"),
        (("-np", "0"), "slots cannot be 0"),
        (("-ctk", "q9"), "q9"),
        (("--spec-type", "draft-eagle3"), "draft-eagle3"),
        (("-ts", "1,1,1"), "names 3 GPUs"),
    ],
)
def test_what_the_estimate_cannot_tell_is_refused_in_words(
    tmp_path: Path, flags: tuple[str, ...], words: str
) -> None:
    model, _ = tiny_models(tmp_path)
    error = refused("--gguf", model, "--gpus", "24576", *flags)
    assert error["error"] == "no_estimate" and words in error["detail"]


def test_wrong_files_and_cards_are_refused_in_words(tmp_path: Path) -> None:
    model, mmproj = tiny_models(tmp_path)
    (tmp_path / "page.gguf").write_bytes(b"<!DOCTYPE html>")
    assert refused("--gguf", tmp_path / "none", "--gpus", "1")["error"] == "missing"
    assert refused("--gguf", tmp_path / "page.gguf", "--gpus", "1")["error"] == "not_gguf"
    assert "is a projector" in refused("--gguf", mmproj, "--gpus", "1")["detail"]
    assert "no projector" in refused("--gguf", model, "--mmproj", model, "--gpus", "1")["detail"]
    plain = plain_model(tmp_path)
    assert "no MTP heads" in refused("--gguf", plain, "--gpus", "1", "--spec-type", "draft-mtp")["detail"]
    for gpus in ("", "x", "1,,2", "-5", "1e3", "9" * 30, "²"):
        assert refused("--gguf", model, f"--gpus={gpus}")["error"] == "bad_gpus"
    with pytest.raises(CommandError, match="--gguf"):
        call_command("fit", "--gpus", "1")


def test_the_text_says_the_same(tmp_path: Path) -> None:
    model, _ = tiny_models(tmp_path)
    text = run("--gguf", model, "--gpus", "24576", "-np", "1")
    assert "GPU0" in text and re.search(r"kv +2\.00 MiB", text)
    assert text.rstrip().splitlines()[-1].startswith("! GPU layers is auto")


def test_a_running_server_takes_what_the_estimate_says(tmp_path: Path) -> None:
    model, mmproj = tiny_models(tmp_path)
    flags = ("-c", "3000", "-np", "2", "-ctk", "q8_0", "-ctv", "q8_0", "-ub", "256")
    flags += ("--spec-type", "draft-mtp", "--spec-draft-n-max", "2")
    host = fit("--gguf", model, "--mmproj", mmproj, "--gpus", "0", *flags)["host"]
    with running(tmp_path, "-m", model, "--mmproj", mmproj, *flags, "-lv", "4") as server:
        log = server.log()
    said: dict[str, list[float]] = {}
    # The server tries its settings first; what it keeps is logged after its last look at the file.
    for kind, size in _SIZE.findall(log[log.rindex("load_tensors: loading model tensors") :]):
        said.setdefault(kind, []).append(float(size))
    assert host["weights"] + host["mtp_weights"] == pytest.approx(sum(said["model"]), abs=0.01)
    assert [host["kv"], host["mtp_kv"]] == pytest.approx(said["KV"], abs=0.01)
    assert [host["recurrent"] + host["mtp_recurrent"]] == pytest.approx(said["RS"], abs=0.01)
    assert host["compute"] > said["compute"][0]
    assert host["compute"] + host["mtp_compute"] + host["mmproj_compute"] > sum(said["compute"][:3])
