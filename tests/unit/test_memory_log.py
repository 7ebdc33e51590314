"""Buffers out of logs of both dialects, and out of anything else."""

from __future__ import annotations

import json
import time

import pytest

from controlpanel.llamacpp.memory_log import MAX_DEVICES, MAX_TEXT, Buffers, read_buffers
from controlpanel.llamacpp.memory_types import HOST
from tests.unit.memory_headers import LOGS

DRY_RUN = """\
0.00.061.314 I srv    load_model: loading model '/models/tiny.gguf'
0.00.061.340 I cmn  common_init_: fitting params to device memory ...
0.00.062.000 I load_tensors:      CUDA0 model buffer size =     0.00 MiB
0.00.063.000 I llama_kv_cache:      CUDA0 KV buffer size =    64.00 MiB
0.00.064.000 I sched_reserve:      CUDA0 compute buffer size =   300.00 MiB
0.00.066.124 I common_fit_params: fitting params to free memory took 0.00 seconds
"""
TARGET = """\
0.00.066.721 I load_tensors: loading model tensors, this can take a while... (load_mode = mmap)
0.00.067.202 I load_tensors:   CPU_Mapped model buffer size =   100.00 MiB
0.00.067.203 I load_tensors:        CUDA0 model buffer size =  1000.50 MiB
0.00.067.333 I llama_context: constructing llama_context
0.00.067.342 I llama_context:  CUDA_Host  output buffer size =     0.58 MiB
0.00.067.364 I llama_kv_cache:      CUDA0 KV buffer size =    16.00 MiB
0.00.067.365 I llama_kv_cache:      CUDA0 KV buffer size =     4.00 MiB
0.00.067.366 I llama_kv_cache: size =   20.00 MiB (  4096 cells,   2 layers,  1/1 seqs), K (f16):   10.00 MiB
0.00.067.416 I llama_memory_recurrent:      CUDA0 RS buffer size =     2.00 MiB
0.00.068.557 I sched_reserve:      CUDA0 compute buffer size =   120.00 MiB
0.00.068.558 I sched_reserve:  CUDA_Host compute buffer size =    12.00 MiB
"""
DRAFT = """\
0.00.121.474 I llama_context: constructing llama_context
0.00.121.502 I llama_context:  CUDA_Host  output buffer size =     0.42 MiB
0.00.121.551 I llama_kv_cache:      CUDA0 KV buffer size =     8.00 MiB
0.00.128.710 I sched_reserve:      CUDA0 compute buffer size =    55.00 MiB
0.00.128.711 I sched_reserve:  CUDA_Host compute buffer size =     6.00 MiB
"""
PROJECTOR = """\
0.00.128.858 I clip_ctx: CLIP using CUDA0 backend
0.00.128.925 I load_hparams: model size:         1.11 MiB
0.00.128.927 I load_hparams: metadata size:      0.01 MiB
0.00.168.493 I reserve_compute_meta:      CUDA0 compute buffer size =    39.39 MiB
0.00.168.494 I reserve_compute_meta:        CPU compute buffer size =     0.50 MiB
"""
AGAIN = "0.00.171.538 I sched_reserve:      CUDA0 compute buffer size =    56.00 MiB\n"
TABLE = """\
breakdown_print: | memory breakdown [MiB] | total   free    self   model   context   compute |
breakdown_print: |   - CUDA0 (RTX 5090)   | 32606 =  912 + (29598 = 26349 +    2647 +     601) + 2095 |
breakdown_print: |   - Host               |                 31144 = 30940 +       0 +     203        |
"""


def test_the_real_load_counts_by_device_and_term() -> None:
    found = read_buffers(DRY_RUN + TARGET + DRAFT + PROJECTOR + AGAIN)
    assert found.devices == {
        "CPU": {"mmproj_compute": 0.5},
        "CPU_Mapped": {"weights": 100.0},
        "CUDA0": {
            "weights": 1000.5,
            "kv": 20.0,
            "recurrent": 2.0,
            "compute": 120.0,
            "mtp_kv": 8.0,
            "mtp_compute": 56.0,
            "mmproj": 1.11,
            "mmproj_compute": 39.39,
        },
        "CUDA_Host": {"output": 1.0, "compute": 12.0, "mtp_compute": 6.0},
    }
    assert found.backend == "CUDA"
    assert found.by_place()[0] == found.devices["CUDA0"]
    assert found.by_place()[HOST] == {
        "weights": 100.0,
        "output": 1.0,
        "compute": 12.0,
        "mtp_compute": 6.0,
        "mmproj_compute": 0.5,
    }


def test_a_server_that_loads_again_is_read_once() -> None:
    assert read_buffers(DRY_RUN + TARGET + DRY_RUN + TARGET) == read_buffers(TARGET)


def test_the_word_that_a_context_begins_may_be_missing() -> None:
    lines = [line for line in (TARGET + DRAFT).splitlines() if "constructing" not in line]
    assert read_buffers("\n".join(lines)) == read_buffers(TARGET + DRAFT)


def test_two_models_of_one_file_map_it_once_but_fill_a_card_twice() -> None:
    again = (
        "load_tensors: loading model tensors, this can take a while... (mmap = true, direct_io = false)\n"
        "load_tensors:   CPU_Mapped model buffer size =   100.00 MiB\n"
        "load_tensors:        CUDA0 model buffer size =   400.00 MiB\n"
    )
    found = read_buffers(TARGET + again).devices
    assert found["CPU_Mapped"]["weights"] == 100.0 and found["CUDA0"]["weights"] == 1400.5


def test_parts_of_one_model_are_added() -> None:
    line = "load_tensors:   CPU_Mapped model buffer size =   100.00 MiB\n"
    assert read_buffers(line + line).devices["CPU_Mapped"]["weights"] == 200.0


@pytest.mark.parametrize("name", ["fork-q8-turbo4", "fork-turbo4"])
def test_a_log_of_the_fork_is_read(name: str) -> None:
    found = read_buffers((LOGS / f"{name}.log").read_text(encoding="utf-8"))
    assert found.backend == "CPU"
    host = found.by_place()[HOST]
    assert host["weights"] == 3.73 and host["mmproj_compute"] == 51.79
    assert host["mtp_compute"] == 15.02 and host["mtp_kv"] == 2.0 and host["recurrent"] == 1.14


def test_lines_wrapped_in_json_or_colours_are_read() -> None:
    plain = "sched_reserve:        CPU compute buffer size =     9.52 MiB"
    for line in (
        json.dumps({"type": "log", "time": 1, "level": "info", "msg": f"{plain}\n"}, separators=(",", ":")),
        f"\x1b[34m0.00.137.186\x1b[0m I {plain}\x1b[0m",
        f"........{plain}",
    ):
        assert read_buffers(line).devices == {"CPU": {"compute": 9.52}}, line


def test_the_table_at_the_end_is_read_and_that_of_the_dry_run_is_not() -> None:
    found = read_buffers(TABLE + DRY_RUN + TARGET + TABLE.replace("26349", "26000"))
    assert found.breakdown == {
        "CUDA0": {"model": 26000.0, "context": 2647.0, "compute": 601.0},
        "Host": {"model": 30940.0, "context": 0.0, "compute": 203.0},
    }
    assert read_buffers(TABLE + DRY_RUN).breakdown == {}


def test_what_is_no_size_is_nothing() -> None:
    for text in (
        "",
        "\0\xff" * 100,
        "sched_reserve: CPU compute buffer size = lots MiB",
        "sched_reserve: CPU compute buffer size = 1.2.3 MiB",
        "sched_reserve: CPU compute buffer size = 99999999999999999999 MiB",
        "a person says: CPU compute buffer size = 5.00 MiB",
        '{"type":"log","msg":{"buffer size =": 1}}',
    ):
        found = read_buffers(text)
        assert not any(any(terms.values()) for terms in found.devices.values()), text
        assert found.backend == "CPU"


def test_a_log_without_end_is_bounded() -> None:
    line = (
        "load_tensors: DEV{} model buffer size = 1.00 MiB\nllama_kv_cache: DEV{} KV buffer size = 1.00 MiB\n"
    )
    text = "".join(line.format(number, number) for number in range(3000))
    began = time.monotonic()
    found = read_buffers(text + TARGET * 5000 + "x" * MAX_TEXT)
    assert len(found.devices) <= MAX_DEVICES
    assert time.monotonic() - began < 20
    assert read_buffers("\n" * MAX_TEXT + TARGET) == Buffers()
