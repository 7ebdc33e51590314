"""Files that are no models, or want to be too much for the reader."""

import io
import os
import struct
import time
import tracemalloc
from functools import cached_property
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlpanel.llamacpp.gguf import GgufError, GgufHeader, read_header
from tests.unit.gguf_samples import (
    ARRAY,
    STRING,
    U32,
    array,
    build,
    mtp_model,
    string,
    u32,
)


def _refused(raw: bytes) -> GgufError:
    with pytest.raises(GgufError) as caught:
        read_header(io.BytesIO(raw))
    return caught.value


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (b"", "empty"),
        (b"<!DOCTYPE html><html>", "HTML page"),
        (b"\n\n <HTML><body>404", "HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "git-LFS pointer"),
        (b"PK\x03\x04" + bytes(60), "zip archive"),
        (b"\x1f\x8b" + bytes(60), "gzip"),
        (b"GGML" + bytes(60), "GGML format"),
        (b'\x10\x00\x00\x00\x00\x00\x00\x00{"a"', "safetensors"),
        (b'{"error": "Invalid username or password."}', "JSON"),
        (bytes(100), "zero bytes"),
        (b"\x7fELF and more", "ELF"),
    ],
)
def test_a_file_that_is_no_gguf_is_called_what_it_is(raw: bytes, word: str) -> None:
    problem = _refused(raw)
    assert problem.code == "not_gguf"
    assert word in str(problem)


def test_versions_that_llama_cpp_does_not_read_are_refused() -> None:
    assert _refused(build(version=1)).code == "version"
    assert _refused(build(version=9)).code == "version"
    assert read_header(io.BytesIO(build(version=2))).version == 2


def test_a_big_endian_file_is_named_as_such() -> None:
    problem = _refused(build(order=">"))
    assert problem.code == "big_endian"
    assert "big-endian" in str(problem)


def test_a_header_that_ends_early_is_truncated_at_every_byte() -> None:
    raw = build([string("general.architecture", "llama"), u32("a", 1)], [("t", [4], 0, 0)], alignment=1)
    for end in range(4, len(raw)):
        problem = _refused(raw[:end])
        assert problem.code == "truncated_header", end
        assert "truncated" in str(problem)


HOSTILE = {
    "key count": build(key_count=2**63),
    "tensor count": build(tensor_count=2**63),
    "key length": b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**62) + bytes(64),
    "string length": build([("k", STRING, struct.pack("<Q", 2**62))]),
    "array length": build([array("k", U32, 2**60, b"")]),
    "array of strings": build([array("k", STRING, 60_000_000, b"")]),
    "string in an array": build([array("k", STRING, 1, struct.pack("<Q", 2**63))]),
    "nested array": build([array("k", ARRAY, 1, struct.pack("<IQ", U32, 1) + bytes(4))]),
    "unknown type": build([("k", 77, bytes(8))]),
    "unknown item type": build([array("k", 77, 1, bytes(8))]),
    "same key twice": build([u32("k", 1), u32("k", 2)]),
    "same tensor twice": build(tensors=[("t", [1], 0, 0), ("t", [1], 0, 0)]),
    "dimensions": build(tensors=[("t", [1] * 5, 0, 0)]),
    "elements": build(tensors=[("t", [2**40, 2**40], 0, 0)]),
    "offset": build(tensors=[("t", [1], 0, 2**63)]),
    "uneven rows": build(tensors=[("t", [33], 8, 0)]),
    "tensor name": build(tensors=[("t" * 300, [1], 0, 0)]),
    "alignment 0": build([u32("general.alignment", 0)]),
    "alignment 3": build([u32("general.alignment", 3)]),
    "alignment text": build([string("general.alignment", "x")]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_absurd_claims_end_at_once_with_words_and_little_memory(name: str) -> None:
    raw = HOSTILE[name]
    tracemalloc.start()
    started = time.perf_counter()
    problem = _refused(raw)
    took = time.perf_counter() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert problem.code in ("limit", "corrupt", "truncated_header")
    assert len(str(problem)) > 30
    assert took < 2
    assert peak < 4 * 1024 * 1024


def test_a_sparse_file_full_of_claims_is_given_up_in_time(tmp_path: Path) -> None:
    """Zero bytes read as empty strings: the longest walk that a cheap file can ask for."""
    path = tmp_path / "sparse.gguf"
    path.write_bytes(build([array("k", STRING, 7_900_000, b"")]))
    os.truncate(path, 4 * 1024**3)
    started = time.perf_counter()
    read_header(path)
    assert time.perf_counter() - started < 20  # about 1 s on an idle core


def test_a_header_larger_than_the_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sparse.gguf"
    with path.open("wb") as file:
        file.write(build(key_count=3, alignment=1))
        for number in range(3):
            file.write(build([array(f"k{number}", 0, 60_000_000, b"")], alignment=1)[24:])
            file.seek(60_000_000, os.SEEK_CUR)
        file.truncate()
    with pytest.raises(GgufError) as caught:
        read_header(path)
    assert caught.value.code == "limit"
    assert "header bytes" in str(caught.value)


VALID = mtp_model()


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(VALID) - 1), st.binary(min_size=1, max_size=16))
def test_a_damaged_file_is_read_or_refused_but_never_crashes(pos: int, junk: bytes) -> None:
    raw = VALID[:pos] + junk + VALID[pos + len(junk) :]
    try:
        header = read_header(io.BytesIO(raw))
    except GgufError as problem:
        assert str(problem)
    else:
        _read_all(header)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_random_bytes_after_the_magic_never_crash(junk: bytes) -> None:
    try:
        header = read_header(io.BytesIO(b"GGUF\x03\x00\x00\x00" + junk))
    except GgufError as problem:
        assert str(problem)
    else:
        _read_all(header)


def _read_all(header: GgufHeader) -> None:
    """Ask every property, whose code also runs on damaged values."""
    for name, member in vars(GgufHeader).items():
        if isinstance(member, property | cached_property):
            getattr(header, name)
    assert header.quant is None or isinstance(header.quant, str)


def test_unreadable_places_are_explained(tmp_path: Path) -> None:
    def code_of(path: Path) -> str:
        with pytest.raises(GgufError) as caught:
            read_header(path)
        assert str(path) in str(caught.value) or "\x00" in str(path)
        return caught.value.code

    assert code_of(tmp_path / "nothing.gguf") == "missing"
    assert code_of(tmp_path) == "directory"
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    assert code_of(pipe) == "not_a_file"
    assert code_of(tmp_path / "nul\x00.gguf") == "unreadable"


def test_a_file_without_permission_says_so(tmp_path: Path) -> None:
    path = tmp_path / "locked.gguf"
    path.write_bytes(VALID)
    path.chmod(0)
    user = os.geteuid()
    if user == 0:  # root may read everything, so it takes another user
        os.seteuid(65534)
    try:
        with pytest.raises(GgufError) as caught:
            read_header(path)
    finally:
        os.seteuid(user)
    assert caught.value.code == "unreadable"
    assert "permissions" in str(caught.value)
