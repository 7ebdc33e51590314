"""Rules between fields, build and model files."""

from pathlib import Path

import pytest

from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from
from controlpanel.llamacpp.command import Managed, Rendered, render
from controlpanel.llamacpp.facts import ModelFacts, facts_of
from controlpanel.llamacpp.gguf import examine
from tests.unit.gguf_samples import mtp_model, projector

HELP = Path(__file__).parent.parent / "data" / "help"
UPSTREAM = capabilities_from((HELP / "upstream-b11434.txt").read_text())
FORK = capabilities_from((HELP / "help-fork.txt").read_text())


def _render(
    caps: Capabilities,
    values: dict[str, object],
    *extra: str,
    model: ModelFacts | None = None,
    mmproj: ModelFacts | None = None,
) -> Rendered:
    return render(caps, values, extra, Managed("/m/M.gguf", None, "NAME", 18080), model, mmproj)


def _found(rendered: Rendered, level: str) -> dict[str, str]:
    return {p.field: str(p.message) for p in rendered.problems if p.level == level}


@pytest.mark.parametrize("slots", [None, 2, 4])
def test_mtp_of_the_older_dialect_needs_one_slot(slots: int | None) -> None:
    values: dict[str, object] = {"speculation": "mtp", "draft_max": 3, "parallel": slots}
    assert "Slots to 1" in _found(_render(FORK, values), "error")["parallel"]
    assert _found(_render(UPSTREAM, values), "error") == {}
    assert _found(_render(FORK, {**values, "parallel": 1}), "error") == {}


def test_mtp_of_the_older_dialect_without_a_draft_length_is_warned_about() -> None:
    values: dict[str, object] = {"speculation": "mtp", "parallel": 1}
    assert "16" in _found(_render(FORK, values), "warning")["draft_max"]
    assert _found(_render(UPSTREAM, values), "warning") == {}


def test_mtp_of_the_older_dialect_is_known_for_two_architectures() -> None:
    values: dict[str, object] = {"speculation": "mtp", "parallel": 1, "draft_max": 3}
    other = ModelFacts("deepseek2", mtp_heads=1)
    assert "deepseek2" in _found(_render(FORK, values, model=other), "warning")["speculation"]
    assert _found(_render(UPSTREAM, values, model=other), "warning") == {}


def test_mtp_needs_heads_in_the_model_or_a_draft_file() -> None:
    values: dict[str, object] = {"speculation": "mtp", "parallel": 1, "draft_max": 3}
    headless = ModelFacts("qwen35", mtp_heads=0)
    for caps in (UPSTREAM, FORK):
        assert "no MTP heads" in _found(_render(caps, values, model=headless), "error")["speculation"]
        assert _found(_render(caps, values, model=ModelFacts("qwen35")), "error") == {}
    with_draft = _render(UPSTREAM, values, "-md", "/m/mtp-M.gguf", model=headless)
    assert "speculation" not in _found(with_draft, "error")


def test_a_quantised_v_cache_needs_flash_attention() -> None:
    values: dict[str, object] = {"cache_type_v": "q8_0", "flash_attn": "off"}
    assert "Flash attention" in _found(_render(UPSTREAM, values), "error")["cache_type_v"]
    assert _found(_render(UPSTREAM, {**values, "cache_type_v": "bf16"}), "error") == {}
    assert _found(_render(UPSTREAM, {"cache_type_v": "q8_0"}), "error") == {}
    assert _found(_render(UPSTREAM, {"cache_type_k": "q8_0", "flash_attn": "off"}), "error") == {}


def test_a_context_above_the_native_one_is_warned_about_per_slot() -> None:
    model = ModelFacts("qwen35", context_length=4096)
    assert "4096" in _found(_render(UPSTREAM, {"ctx_size": 8192}, model=model), "warning")["ctx_size"]
    assert _found(_render(UPSTREAM, {"ctx_size": 8192, "parallel": 2}, model=model), "warning") == {}
    assert _found(_render(UPSTREAM, {"ctx_size": 4096}, model=model), "warning") == {}
    yarn = _render(UPSTREAM, {"ctx_size": 8192}, "--rope-scaling", "yarn", "--rope-scale", "2", model=model)
    assert _found(yarn, "warning") == {}


def test_files_in_the_wrong_field_or_of_another_model_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(mtp_model())
    (tmp_path / "right.gguf").write_bytes(projector(width=32))
    (tmp_path / "wrong.gguf").write_bytes(projector(width=512))
    model, right, wrong = (
        facts_of(examine(tmp_path / f"{name}.gguf")) for name in ("model", "right", "wrong")
    )

    assert _render(UPSTREAM, {}, model=model, mmproj=right).problems == []
    text = _found(_render(UPSTREAM, {}, model=model, mmproj=wrong), "error")["mmproj"]
    assert "512" in text
    assert "32" in text
    swapped = _found(_render(UPSTREAM, {}, model=right, mmproj=model), "error")
    assert set(swapped) == {"model", "mmproj"}
