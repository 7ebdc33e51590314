"""Registering and probing binaries: real ones, and files that are none."""

import os
import stat
import sys
from pathlib import Path

import pytest

from controlpanel.lib.errors import Refused
from jobs.adapters import probe
from jobs.adapters.commands import CommandError, run_bounded
from jobs.adapters.probe import ProbeError, fingerprint, probe_binary
from jobs.models import AuditEntry, Build, Job
from jobs.registry import WorkFailed
from jobs.services.audit import Actor
from jobs.services.builds import delete_build, probe_now, register_build
from jobs.services.hosts import local_host


def script(path: Path, body: str) -> Path:
    """An executable Python script."""
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_bundled_engine_is_probed_for_real() -> None:
    found = probe_binary(Path(sys.prefix) / "bin" / "panel-llama-server")
    assert found.mtp_value == "draft-mtp"
    assert "q8_0" in found.cache_types and not found.turboquant
    assert found.has("--ctx-size") and found.load_mode == "load-mode"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("print('usage: something else')", "llama-server"),
        ("import time; time.sleep(600)", "did not end within"),
        ("import sys\nwhile True: sys.stdout.write('x' * 65536)", "printed more than"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "signal 4"),
        ("import sys; sys.exit(3)", "llama-server"),
    ],
    ids=["another program", "hangs", "endless output", "illegal instruction", "fails"],
)
def test_a_file_that_is_no_llama_server_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    monkeypatch.setattr(probe, "SECONDS", 3.0)
    with pytest.raises(ProbeError, match=words):
        probe_binary(script(tmp_path / "binary", body))


def test_a_grandchild_that_keeps_the_pipe_open_is_ended(tmp_path: Path) -> None:
    path = script(tmp_path / "parent", "import os, time\nif os.fork() == 0:\n    time.sleep(600)\nprint('x')")
    with pytest.raises(CommandError, match="did not end"):
        run_bounded([str(path)], seconds=2, limit=1000, env=dict(os.environ))


@pytest.mark.parametrize("kind", ["missing", "folder", "not executable", "relative"])
def test_paths_that_cannot_be_run_are_refused_with_their_reason(tmp_path: Path, kind: str) -> None:
    plain = tmp_path / "plain"
    plain.write_text("text")
    paths = {
        "missing": (tmp_path / "none", "does not exist"),
        "folder": (tmp_path, "is a folder"),
        "not executable": (plain, "may not be executed"),
        "relative": (Path("llama-server"), "absolute"),
    }
    path, words = paths[kind]
    with pytest.raises(ProbeError, match=words):
        probe.check_executable(path)


def test_the_fingerprint_changes_with_a_library_beside_the_binary(tmp_path: Path) -> None:
    binary = script(tmp_path / "llama-server", "pass")
    library = tmp_path / "libllama.so.1"
    library.write_bytes(b"one")
    before = fingerprint(binary)
    library.write_bytes(b"another")
    assert fingerprint(binary) != before


@pytest.mark.django_db(transaction=True)
def test_registering_writes_row_job_and_audit_together() -> None:
    build = register_build(
        Actor.cli(), local_host(), "  Engine  ", str(Path(sys.prefix) / "bin" / "panel-llama-server")
    )
    assert (build.name, build.state) == ("Engine", Build.State.PROBING)
    assert Job.objects.filter(kind="build.probe", subject_id=str(build.pk)).count() == 1
    assert AuditEntry.objects.filter(action="build.register", source="cli").count() == 1
    probe_now(build)
    build.refresh_from_db()
    assert (build.state, build.capabilities["mtp_value"]) == (Build.State.READY, "draft-mtp")
    with pytest.raises(Refused, match="already"):
        register_build(Actor.cli(), local_host(), "Engine", build.path)


@pytest.mark.django_db(transaction=True)
def test_a_failed_probe_is_kept_with_its_reason(tmp_path: Path) -> None:
    build = register_build(Actor.cli(), local_host(), "Wrong", str(script(tmp_path / "x", "print('hello')")))
    with pytest.raises(WorkFailed):
        probe_now(build)
    build.refresh_from_db()
    assert build.state == Build.State.FAILED and "llama-server" in build.error
    delete_build(Actor.cli(), build)
    assert not Build.objects.filter(pk=build.pk).exists()
