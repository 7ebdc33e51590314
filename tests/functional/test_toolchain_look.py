"""What the panel finds on this host for building, asked of real programs and of the fake cards."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from controlpanel.lib.errors import Refused
from jobs.adapters.toolchain import look
from jobs.domain.versions import parse_version
from jobs.models import Host, Job
from jobs.services import jobs, toolchains
from jobs.services.audit import Actor
from jobs.services.hosts import local_host
from tests.fakes.nvml import nvml_library  # noqa: F401


def script(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" + text + "\n")
    path.chmod(0o755)
    return path


def test_programs_are_found_with_their_versions() -> None:
    found = look()
    for name in ("git", "cmake"):
        said = subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout
        assert found.programs[name].path == shutil.which(name)
        assert found.programs[name].version == parse_version(said) != ""
    [first, *_others] = found.compilers
    assert first.kind == "gcc" and first.major > 0 and Path(first.path).name in ("g++", "c++")
    assert found.cores == len(os.sched_getaffinity(0))
    assert found.memory_mib and found.disk_free and found.glibc


def test_what_is_not_there_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = look()
    assert not {"git", "cmake", "ninja", "make"} & set(found.programs)
    assert found.compilers == ()


def test_a_program_that_fails_hangs_or_floods_counts_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jobs.adapters.toolchain.SECONDS", 0.5)
    script(tmp_path, "git", "exit 3")
    script(tmp_path, "cmake", "exec sleep 60")
    script(tmp_path, "ninja", "exec yes 1.2.3")
    script(tmp_path, "make", "echo GNU Make 4.3")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    found = look()
    assert not {"git", "cmake", "ninja"} & set(found.programs)
    assert found.programs["make"].version == "4.3"


def test_compilers_of_one_file_count_once_and_toolkits_have_their_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path, "g++-13", "echo 'g++-13 (Debian 13.2.0-1) 13.2.0'")
    (tmp_path / "g++").symlink_to("g++-13")
    script(tmp_path, "clang++-18", "echo 'Debian clang version 18.1.8'")
    script(tmp_path, "nvcc", "echo 'Cuda compilation tools, release 12.4, V12.4.131'")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = look()
    assert [(c.kind, c.major) for c in found.compilers] == [("gcc", 13), ("clang", 18)]
    assert (found.nvccs[0].version, found.nvccs[0].on_path) == ("12.4", True)


def test_cards_and_driver_are_read_apart(nvml_library: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library))
    found = look()
    assert [(gpu.name, gpu.arch) for gpu in found.gpus] == [("NVIDIA GeForce RTX 3090", "86")] * 2
    assert found.driver and found.driver_cuda == "13.0"
    assert found.architectures == ("86",)


@pytest.mark.django_db(transaction=True)
def test_a_look_is_asked_for_once_and_kept_on_the_host() -> None:
    host = local_host()
    assert toolchains.toolchain_of(host) is None
    toolchains.request_look(Actor.cli(), host)
    with pytest.raises(Refused):
        toolchains.request_look(Actor.cli(), host)
    jobs.execute(Job.objects.get().pk)
    host.refresh_from_db()
    kept = toolchains.toolchain_of(host)
    assert kept is not None and "git" in kept.programs
    looked = host.toolchain_at
    toolchains.keep_current()
    assert Host.objects.get(pk=host.pk).toolchain_at == looked
