"""Whether another start may go well without a change is told of every cause of a server's failure."""

from __future__ import annotations

from collections import defaultdict

import pytest

from controlpanel.llamacpp.rule_types import Diagnosis
from controlpanel.llamacpp.rules import AREAS, diagnose

AT_START = ("launch", "gpu", "host", "container")
LATER = ("runtime", "gpu", "host", "container")
FULL = "alloc_buffer: allocating 4480.00 MiB on device 0: cudaMalloc failed: out of memory"


def test_each_cause_of_a_server_has_one_answer_in_all_areas() -> None:
    answers: dict[str, set[bool]] = defaultdict(set)
    for name in ("launch", "mtp", "vision", "runtime", "gpu", "host", "container"):
        for rule in AREAS[name]:
            answers[rule.cause_key].add(rule.passing)
    assert [key for key, found in answers.items() if len(found) > 1] == []


@pytest.mark.parametrize(
    "key, log, exit_code, areas",
    [
        ("crashed", "Segmentation fault (core dumped)", 139, AT_START),
        ("killed", "load_tensors: loading model tensors", -9, AT_START),
        (
            "port_in_use",
            "start: couldn't bind HTTP server socket, hostname: 0.0.0.0, port: 8080",
            1,
            AT_START,
        ),
        ("supervisor_timeout", "health check timed out after 120s", 1, AT_START),
        ("illegal_memory_access", "CUDA error: an illegal memory access was encountered", -6, LATER),
        ("oom_first_request", "listening on http://0.0.0.0:1\nCUDA error: out of memory", -6, LATER),
        ("oom_vision_encoder", "processing image...\nCUDA error: out of memory", -6, LATER),
        ("xid79", "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.", 1, LATER),
        ("xid31", "NVRM: Xid (PCI:0000:01:00): 31, pid=1, MMU Fault", 1, LATER),
        ("host_oom", "Out of memory: Killed process 7 (llama-server) total-vm:1kB", -9, LATER),
        ("group_memory_limit", "Memory cgroup out of memory: Killed process 7 (llama-server)", -9, LATER),
        ("too_many_open_files", "accept: Too many open files", 1, LATER),
        ("disk_full", "write: No space left on device", 1, LATER),
    ],
)
def test_what_may_have_passed_is_worth_another_start(
    key: str, log: str, exit_code: int, areas: tuple[str, ...]
) -> None:
    best = diagnose(log, areas, exit_code)[0]
    assert (best.cause_key, best.passing) == (key, True)


@pytest.mark.parametrize(
    "key, log",
    [
        ("unknown_argument", "error: invalid argument: --frobnicate"),
        ("bad_value", 'error while handling argument "-c": stoi'),
        ("model_path_wrong", "failed to open GGUF file '/m.gguf' (No such file or directory)"),
        ("truncated_gguf", "tensor 'a' data is not within the file bounds, model is corrupted or incomplete"),
        ("mtp_one_slot", "srv    load_model: MTP currently supports only n_parallel=1; got 4"),
        ("mtp_heads_missing", "context type MTP requested but model doesn't contain MTP layers"),
        ("v_cache_needs_fa", "llama_init_from_model: V cache quantization requires flash_attn"),
        ("oom_model_buffer", f"{FULL}\nerror loading model: unable to allocate CUDA0 buffer"),
        ("oom_kv_cache", f"{FULL}\nfailed to allocate buffer for kv cache"),
        ("oom_gpu", FULL),
        ("oom_vision_projector", f"clip_model_loader: model size: 858.99 MiB\n{FULL}"),
        ("no_kernel_image", "CUDA error: no kernel image is available for execution on the device"),
        ("driver_too_old", "CUDA driver version is insufficient for CUDA runtime version"),
        (
            "shared_lib_missing",
            "error while loading shared libraries: libllama.so: cannot open shared object",
        ),
    ],
)
def test_what_only_a_change_mends_is_not(key: str, log: str) -> None:
    best = diagnose(log, AT_START, 1)[0]
    assert (best.cause_key, best.passing) == (key, False)


def test_a_note_about_a_server_that_runs_does_not_keep_it_from_starting_again() -> None:
    best = diagnose("warning: no usable GPU found, --gpu-layers option will be ignored", AT_START, 1)[0]
    assert (best.cause_key, best.passing) == ("cpu_only_build", True)


def test_a_diagnosis_stored_before_there_was_an_answer_reads_as_not_passing() -> None:
    stored = diagnose("Segmentation fault", AT_START, 139)[0].to_json()
    assert Diagnosis.from_json(stored).passing is True
    del stored["passing"]
    assert Diagnosis.from_json(stored).passing is False
