"""Damaged headers of real files are read or refused with words, in bounded time and memory."""

import io
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controlpanel.llamacpp.gguf import GgufError, read_header
from tests.unit.gguf_mutations import header_of, mutate, real_headers, use
from tests.unit.gguf_samples import array, build, string, u32

SECONDS, MIB = 5.0, 200
MEASURE = """
import re, sys, time
from controlpanel.llamacpp.gguf import GgufError, describe, examine
from controlpanel.llamacpp.gguf_report import Report, facts_of_model, to_json
began = time.process_time()
try:
    model = examine(sys.argv[1])
    to_json(Report(model, facts_of_model(model)), str)
    code = "read"
except GgufError as error:
    code = error.code
seconds = time.process_time() - began
peak = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())
print(code, seconds, int(peak[1]) / 1024)
"""

KEYS = [string("general.architecture", "llama"), u32("llama.block_count", 2)]
WORST = {
    "as many tensors as are allowed": build(
        KEYS, [(f"{n:05d}" + "x" * 250, [1, 1, 1, 1], n % 40, n) for n in range(60_000)]
    ),
    "as many keys as are allowed": build([u32(f"{n:05d}" + "k" * 1000, n) for n in range(16_000)]),
    "as many kept arrays as are allowed": build([array(f"a{n}", 4, 1024, bytes(4096)) for n in range(2000)]),
    "as many kept texts as are allowed": build([string(f"s{n}", "é" * 2000) for n in range(2000)]),
    "a long array of empty strings": build([array("k", 8, 7_900_000, bytes(63_200_000))]),
    "a long array of numbers": build([array("k", 0, 60_000_000, bytes(60_000_000))]),
    "a chat template of 16 MiB": build([*KEYS, string("tokenizer.chat_template", b"{" * (16 << 20))]),
    "per-layer heads for too many layers": build(
        [*KEYS, array("llama.attention.head_count", 4, 60_000_000, bytes(4))]
    ),
}


@pytest.mark.parametrize("name", WORST)
def test_the_worst_headers_take_little_time_and_memory(name: str, tmp_path: Path) -> None:
    path = tmp_path / "worst.gguf"
    path.write_bytes(WORST[name])
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True, timeout=100
    )
    code, seconds, mib = done.stdout.split()
    assert code in ("read", "limit", "corrupt", "truncated_header")
    assert float(seconds) < SECONDS
    assert float(mib) < MIB


@pytest.mark.parametrize("number", range(len(real_headers())))
def test_two_thousand_damaged_copies_of_a_real_header_are_read_or_refused(number: int) -> None:
    raw = real_headers()[number]
    chance = random.Random(number)
    ends: dict[str, int] = {}
    for _ in range(2000):
        began = time.process_time()
        code = use(mutate(raw, chance), chance.choice((None, 1 << 40)))
        assert time.process_time() - began < SECONDS
        ends[code] = ends.get(code, 0) + 1
    # The damage has to reach the deep parts of the reader as well as its first checks.
    assert {"read", "corrupt", "truncated_header", "limit"} <= ends.keys()
    assert ends["read"] > 100


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False), st.sampled_from(real_headers()))
def test_any_damage_to_a_real_header_is_answered(chance: random.Random, raw: bytes) -> None:
    assert use(mutate(raw, chance), 1 << 40)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["general.architecture", "general.alignment", "general.type", "split.count", "split.no"]
                + [
                    "llama.block_count",
                    "llama.nextn_predict_layers",
                    "llama.rope.scaling.factor",
                    "general.name",
                ]
                + ["general.sampling.temp", "tokenizer.chat_template", "clip.vision.projection_dim"]
            ),
            st.sampled_from([0, 4, 5, 6, 7, 8, 10, 12]),
            st.binary(min_size=8, max_size=8),
        ),
        unique_by=lambda key: key[0],
    )
)
def test_keys_of_an_unexpected_type_are_no_surprise(keys: list[tuple[str, int, bytes]]) -> None:
    widths = {0: 1, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 12: 8}
    rows = [
        string(key, value) if kind == 8 else (key, kind, value[: widths[kind]]) for key, kind, value in keys
    ]
    assert use(build(rows, [("blk.0.attn_norm.weight", [32], 0, 0)], bytes(128)))


@pytest.mark.parametrize("bad", [b"\x1b[31m", b"a\nb", b"a\rb", b"\xe2\x80\xaeb", b"\x00", b"\xff"])
def test_names_with_control_characters_cannot_steer_a_terminal(bad: bytes) -> None:
    name = (bad + b"weight").decode("utf-8", "surrogateescape")
    raw = build(KEYS, [("placeholder", [32], 0, 0)], bytes(128))
    raw = raw.replace(b"placeholder", bad.ljust(len(b"placeholder"), b"w"))
    header = read_header(io.BytesIO(raw))
    assert header.tensors[0].name.isprintable()
    assert name != header.tensors[0].name


def test_offsets_outside_of_the_file_are_missing_bytes_not_a_crash() -> None:
    raw = build(KEYS, [("t", [32], 0, 2**61)], bytes(128))
    header = read_header(io.BytesIO(raw))
    assert header.missing_bytes > 2**60
    with pytest.raises(GgufError):
        read_header(io.BytesIO(build(KEYS, [("t", [32], 0, 2**63)], bytes(128))))


def test_the_header_of_a_real_file_is_taken_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(real_headers()[0] + bytes(64))
    assert header_of(path) == real_headers()[0]
