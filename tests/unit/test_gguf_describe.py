"""What the panel tells a person about a model file and its parts."""

import os
from pathlib import Path

from controlpanel.llamacpp.gguf import describe, examine
from tests.unit.gguf_samples import build, mtp_model, projector, string, u32

VALID = mtp_model()


def test_a_complete_model_is_described_without_problems(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(VALID)
    assert describe(path) == {
        "architecture": "qwen35",
        "file_size": len(VALID),
        "quant": "Q8_0",
        "context_length": 4096,
        "mtp_heads": 1,
        "projector": None,
        "complete": True,
        "problems": [],
    }


def test_a_projector_is_described_with_its_type(tmp_path: Path) -> None:
    path = tmp_path / "mmproj.gguf"
    path.write_bytes(projector())
    found = describe(path)
    assert (found["architecture"], found["projector"], found["mtp_heads"]) == ("clip", "qwen3vl_merger", 0)
    assert found["complete"]


def test_truncated_data_is_described_with_the_missing_bytes(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(VALID[:-100])
    found = describe(path)
    assert not found["complete"]
    assert len(found["problems"]) == 1
    assert "truncated" in found["problems"][0]
    assert "100 of" in found["problems"][0]


def test_announced_heads_without_their_tensor_are_no_heads(tmp_path: Path) -> None:
    path = tmp_path / "headless.gguf"
    path.write_bytes(mtp_model(heads=1, tensor=False))
    found = describe(path)
    assert found["mtp_heads"] == 0
    assert found["complete"]
    assert "blk.2.nextn.eh_proj.weight" in found["problems"][0]


def test_heads_that_the_metadata_do_not_announce_are_no_heads(tmp_path: Path) -> None:
    path = tmp_path / "unannounced.gguf"
    path.write_bytes(mtp_model(heads=0, tensor=True))
    found = describe(path)
    assert found["mtp_heads"] == 0
    assert "qwen35.nextn_predict_layers" in found["problems"][0]


def test_a_tensor_type_of_a_fork_is_told(tmp_path: Path) -> None:
    path = tmp_path / "fork.gguf"
    path.write_bytes(build([string("general.architecture", "llama")], [("t", [32], 45, 0)], bytes(64)))
    assert "45" in describe(path)["problems"][0]


def test_a_file_without_architecture_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "nameless.gguf"
    path.write_bytes(build())
    assert "architecture" in describe(path)["problems"][0]


def _write_shards(folder: Path, present: list[int]) -> Path:
    parts = [
        mtp_model(heads=1, tensor=False, parts=(0, 2)),
        build(
            [u32("split.no", 1), u32("split.count", 2)],
            [("blk.2.nextn.eh_proj.weight", [64, 32], 8, 0)],
            bytes(64 * 34),
        ),
    ]
    for number in present:
        (folder / f"big-{number:05d}-of-00002.gguf").write_bytes(parts[number - 1])
    return folder / f"big-{present[0]:05d}-of-00002.gguf"


def test_the_parts_of_a_model_are_taken_together(tmp_path: Path) -> None:
    first = _write_shards(tmp_path, [1, 2])
    model = examine(first)
    assert (model.mtp_heads, model.complete, model.problems) == (1, True, ())
    assert [path.name for path in model.shards] == ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"]
    assert model.size == sum(path.stat().st_size for path in model.shards)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    found = describe(_write_shards(tmp_path, [1]))
    assert not found["complete"]
    assert "big-00002-of-00002.gguf" in found["problems"][0]


def test_a_truncated_part_is_named(tmp_path: Path) -> None:
    first = _write_shards(tmp_path, [1, 2])
    second = tmp_path / "big-00002-of-00002.gguf"
    os.truncate(second, second.stat().st_size - 10)
    found = describe(first)
    assert not found["complete"]
    assert found["problems"][0].startswith("big-00002-of-00002.gguf is truncated")


def test_a_later_part_points_to_the_first(tmp_path: Path) -> None:
    _write_shards(tmp_path, [1, 2])
    found = describe(tmp_path / "big-00002-of-00002.gguf")
    assert "part 2 of 2" in found["problems"][0]


def test_a_part_under_another_name_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "renamed.gguf"
    path.write_bytes(mtp_model(parts=(0, 2)))
    found = describe(path)
    assert not found["complete"]
    assert "name" in found["problems"][0]
