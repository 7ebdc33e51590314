"""The fake llama-server fails in the words of real builds, so that the panel names the real causes."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from controlpanel.llamacpp.capabilities import capabilities_from
from controlpanel.llamacpp.rules import diagnose
from controlpanel.llamacpp.serverlog import milestone
from tests.fakes import llama_flags
from tests.fakes.llama_faults import BLACK
from tests.fakes.running_llama import SECONDS, fake, ready, run
from tests.waiting import wait_for

MTP = ("--spec-type", "mtp", "-np", "1")
PICTURE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]


def test_the_fork_is_probed_as_the_fork(tmp_path: Path) -> None:
    path = llama_flags.install(tmp_path, dialect="fork", cards="24576,16384")
    found = capabilities_from(
        run(path, "--help").stdout, run(path, "--version").stderr, run(path, "--list-devices").stdout
    )
    assert (found.build, found.mtp_value, found.turboquant, found.log) == (9123, "mtp", True, "old")
    assert [(card.name, card.total) for card in found.devices] == [("CUDA0", 24576), ("CUDA1", 16384)]


def test_the_fork_tells_of_each_step_of_a_start_and_of_its_drafts(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"dialect": "fork", "cards": "24576,24576", "draft": 78, "accepted": 39}
    with ready(
        tmp_path, *MTP, "--mmproj", "/m/p.gguf", "-c", "8192", say="line 1\nline 2", **flags
    ) as server:
        server.chat()
        wait_for(lambda: "is listening on" in server.log(), SECONDS, "the end of the start")
        wait_for(lambda: "line 2\n" in server.log(), SECONDS, "the end of the request")
        seen = [stage for line in server.log().splitlines() if (stage := milestone(line))]
        assert list(dict.fromkeys(seen)) == [
            "loading", "context", "warmup", "mtp", "vision", "loaded", "listening",
        ]  # fmt: skip
        assert "llama_kv_cache:      CUDA1 KV buffer size =" in server.log()
        assert (
            "\ndraft acceptance rate = 0.50000 (   39 accepted /    78 generated)\nline 1\nline 2\n"
            in server.log()
        )
        assert server.get("/slots").json()[0] == {
            "id": 0, "n_ctx": 8192, "speculative": True, "is_processing": False,
        }  # fmt: skip


def test_a_server_that_could_not_start_mtp_goes_on_without(tmp_path: Path) -> None:
    with ready(tmp_path, "--spec-type", "draft-mtp", mtp_error="no such thing") as server:
        assert server.get("/slots").json()[0]["speculative"] is False
        assert diagnose(server.log(), "launch", 0)[0].cause_key == "speculation_off"


@pytest.mark.parametrize(
    "arguments, flags, cause",
    [
        (["-c", "262144"], {"max_ctx": 131072}, "oom_kv_cache"),
        (["--tensor-split", "2,1"], {"bad_split": "2,1", "cards": "24576,24576"}, "oom_model_buffer"),
        (["--parallel", "2", "--spec-type", "mtp"], {}, "mtp_one_slot"),
        (["-fa", "off", "-ctv", "q8_0"], {}, "v_cache_needs_fa"),
        (["--spec-type", "draft-mtp"], {}, "spec_type_renamed"),
    ],
)
def test_a_start_fails_as_the_fork_s_do(
    tmp_path: Path, arguments: list[str], flags: dict[str, Any], cause: str
) -> None:
    with fake(tmp_path, *arguments, dialect="fork", **flags) as server:
        assert server.process.wait(SECONDS) == 1
        best = diagnose(server.log(), ("launch", "gpu"), 1)[0]
        assert (best.cause_key, best.passing) == (cause, False)
        assert "listening" not in server.log()


def test_less_than_the_limit_starts(tmp_path: Path) -> None:
    arguments = [*MTP, "-c", "4096", "--tensor-split", "1,1", "-fa", "on", "-ctv", "q8_0"]
    with ready(tmp_path, *arguments, dialect="fork", max_ctx=4096, bad_split="2,1") as server:
        assert server.get("/props").json()["build_info"] == "b9123-67f38aa53"


def test_pictures_are_black_only_with_mtp(tmp_path: Path) -> None:
    flags: dict[str, Any] = {"dialect": "fork", "black_images": True, "reply": "a tree"}
    ask = {"messages": [{"role": "user", "content": PICTURE}]}
    with ready(tmp_path, *MTP, "--mmproj", "/m/p.gguf", **flags) as server:
        assert server.chat(**ask).json()["choices"][0]["message"]["content"] == BLACK
        assert server.chat().json()["choices"][0]["message"]["content"] == "a tree"
        assert diagnose(server.log(), "mtp", 0) == []
        assert diagnose(server.log(), "mtp", None)[0].cause_key == "mtp_vision"
    with ready(tmp_path, "--mmproj", "/m/p.gguf", **flags) as server:
        assert server.chat(**ask).json()["choices"][0]["message"]["content"] == "a tree"


def test_the_fork_aborts_at_its_stop(tmp_path: Path) -> None:
    with ready(tmp_path, dialect="fork", abort_at_stop=True) as server:
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(SECONDS) == -signal.SIGABRT
        assert server.log().endswith("double free or corruption (!prev)\n")


def test_memory_grows_at_its_rate_once_it_is_ready(tmp_path: Path) -> None:
    with ready(tmp_path) as server:
        before = resident(server.process.pid)
        llama_flags.set_flags(server.path, memory_mib=60, memory_rate=200)
        wait_for(lambda: resident(server.process.pid) - before >= 20, SECONDS, "some memory")
        wait_for(lambda: resident(server.process.pid) - before >= 58, SECONDS, "all the memory")


def resident(pid: int) -> float:
    """MiB of main memory that a process has touched."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * 4096 / 1024**2


def test_the_first_starts_crash_and_the_next_goes_well(tmp_path: Path) -> None:
    flags: dict[str, Any] = {
        "crash_first": 2,
        "exit_code": -signal.SIGSEGV,
        "exit_text": "Segmentation fault",
    }
    for number in (1, 2):
        with fake(tmp_path, **flags) as server:
            assert server.process.wait(SECONDS) == -signal.SIGSEGV
            assert "loading model '" in server.log() and server.log().endswith("\nSegmentation fault\n")
            assert llama_flags.starts(server.path) == number
    with ready(tmp_path, **flags) as server:
        assert llama_flags.starts(server.path) == 3


def test_a_running_server_ends_when_it_is_told_to(tmp_path: Path) -> None:
    with ready(tmp_path) as server:
        llama_flags.set_flags(server.path, exit_after=0, exit_code=7, exit_text="CUDA error: unknown error")
        assert server.process.wait(SECONDS) == 7
        assert server.log().endswith("\nCUDA error: unknown error\n")
