"""Rules between fields, build and model files."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from
from controlpanel.llamacpp.command import Managed, Rendered, render
from controlpanel.llamacpp.command_rules import Case, check_rules
from controlpanel.llamacpp.facts import HostFacts, ModelFacts, facts_of
from controlpanel.llamacpp.gguf import examine, examine_header
from controlpanel.llamacpp.gguf_header import Value
from controlpanel.llamacpp.meanings import MEANINGS
from tests.unit.gguf_samples import mtp_model, projector
from tests.unit.memory_headers import big_qwen

HELP = Path(__file__).parent.parent / "data" / "help"
UPSTREAM = capabilities_from((HELP / "upstream-b11434.txt").read_text())
FORK = capabilities_from((HELP / "help-fork.txt").read_text())

Found = dict[str, str]


def big_model(**changes: Any) -> ModelFacts:
    """The facts of a model of 27 billion values with MTP heads, some of them changed."""
    header = big_qwen()
    keys: dict[str, Value] = {"general.name": "Qwen3.6-27B", "qwen35.rope.freq_base": 10_000_000.0}
    header = dataclasses.replace(header, metadata={**header.metadata, **keys})
    return dataclasses.replace(facts_of(examine_header(header, "M.gguf")), **changes)


def big_projector(**changes: Any) -> ModelFacts:
    """The facts of the projector that belongs to it."""
    facts = ModelFacts("clip", projector="qwen3vl_merger", projector_width=5120, name="Qwen3.6 27B")
    return dataclasses.replace(facts, **changes)


def shown(caps: Capabilities, values: Mapping[str, object], *extra: str, **more: Any) -> Rendered:
    """The rendered command of a profile; `more` are the model, mmproj, environment and host."""
    return render(caps, values, extra, Managed("/m/M.gguf", None, "NAME", 18080), **more)


def found(level: str, caps: Capabilities, values: Mapping[str, object], *extra: str, **more: Any) -> Found:
    """The sentences of one level by field."""
    problems = shown(caps, values, *extra, **more).problems
    return {problem.field: str(problem.message) for problem in problems if problem.level == level}


def warned(caps: Capabilities, values: Mapping[str, object], *extra: str, **more: Any) -> Found:
    """The warnings by field, of a profile without errors."""
    assert found("error", caps, values, *extra, **more) == {}
    return found("warning", caps, values, *extra, **more)


def refused(caps: Capabilities, values: Mapping[str, object], *extra: str, **more: Any) -> Found:
    """The errors by field."""
    return found("error", caps, values, *extra, **more)


@pytest.mark.parametrize("slots", [None, 2, 4])
def test_mtp_of_the_older_dialect_needs_one_slot(slots: int | None) -> None:
    values: dict[str, object] = {"speculation": "mtp", "draft_max": 3, "parallel": slots}
    assert "Slots to 1" in refused(FORK, values)["parallel"]
    assert refused(UPSTREAM, values) == {}
    assert refused(FORK, {**values, "parallel": 1}) == {}


def test_mtp_of_the_older_dialect_without_a_draft_length_is_warned_about() -> None:
    values: dict[str, object] = {"speculation": "mtp", "parallel": 1}
    assert "16" in warned(FORK, values)["draft_max"]
    assert warned(UPSTREAM, values) == {}


def test_mtp_of_the_older_dialect_is_known_for_two_architectures() -> None:
    values: dict[str, object] = {"speculation": "mtp", "parallel": 1, "draft_max": 3}
    other = ModelFacts("deepseek2", mtp_heads=1)
    assert "deepseek2" in warned(FORK, values, model=other)["speculation"]
    assert warned(UPSTREAM, values, model=other) == {}


def test_mtp_needs_heads_in_the_model_or_a_draft_file() -> None:
    values: dict[str, object] = {"speculation": "mtp", "parallel": 1, "draft_max": 3}
    headless = ModelFacts("qwen35", mtp_heads=0)
    for caps in (UPSTREAM, FORK):
        assert "no MTP heads" in refused(caps, values, model=headless)["speculation"]
        assert refused(caps, values, model=ModelFacts("qwen35")) == {}
    assert "speculation" not in refused(UPSTREAM, values, "-md", "/m/mtp-M.gguf", model=headless)


def test_files_in_the_wrong_field_or_of_another_model_are_refused(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(mtp_model())
    (tmp_path / "right.gguf").write_bytes(projector(width=32))
    (tmp_path / "wrong.gguf").write_bytes(projector(width=512))
    model, right, wrong = (
        facts_of(examine(tmp_path / f"{name}.gguf")) for name in ("model", "right", "wrong")
    )

    assert shown(UPSTREAM, {}, model=model, mmproj=right).problems == []
    text = refused(UPSTREAM, {}, model=model, mmproj=wrong)["mmproj"]
    assert "512" in text
    assert "32" in text
    swapped = refused(UPSTREAM, {}, model=right, mmproj=model)
    assert set(swapped) == {"model", "mmproj"}


def test_a_file_of_heads_alone_is_no_model() -> None:
    assert "without the model" in refused(UPSTREAM, {}, model=big_model(sidecar=True))["model"]
    assert refused(UPSTREAM, {}, model=big_model()) == {}


def test_the_fewest_drafted_tokens_are_below_the_most() -> None:
    values: dict[str, object] = {"speculation": "mtp", "parallel": 1, "draft_min": 4}
    assert "at most 3" in refused(UPSTREAM, values)["draft_min"]
    assert refused(FORK, values) == {}
    assert "at most 2" in refused(FORK, {**values, "draft_max": 2})["draft_min"]
    assert refused(UPSTREAM, {**values, "draft_max": 4}) == {}


def test_several_heads_draft_one_token_each() -> None:
    values: dict[str, object] = {"speculation": "mtp", "draft_max": 4}
    assert "3 MTP heads" in warned(UPSTREAM, values, model=big_model(mtp_heads=3))["draft_max"]
    assert warned(UPSTREAM, {**values, "draft_max": 3}, model=big_model(mtp_heads=3)) == {}
    assert warned(UPSTREAM, values, model=big_model()) == {}


def test_the_older_mtp_does_not_look_at_the_probability() -> None:
    values: dict[str, object] = {"speculation": "mtp", "parallel": 1, "draft_max": 3, "draft_p_min": "0.5"}
    assert "without looking" in warned(FORK, values)["draft_p_min"]
    assert warned(UPSTREAM, values) == {}


def test_the_cache_of_drafts_does_not_follow_the_main_one() -> None:
    values: dict[str, object] = {"speculation": "mtp", "cache_type_k": "q8_0", "cache_type_v": "q4_0"}
    assert "stays f16" in warned(UPSTREAM, values)["draft_type_k"]
    assert warned(UPSTREAM, {**values, "draft_type_k": "q8_0"}) == {}
    assert warned(UPSTREAM, {**values, "speculation": "none"}) == {}
    assert warned(UPSTREAM, {"speculation": "mtp", "cache_type_k": "bf16"}) == {}


def test_drafts_by_flags_among_the_extra_arguments_count_as_set() -> None:
    values: dict[str, object] = {"speculation": "mtp", "cache_type_k": "q8_0"}
    assert set(warned(UPSTREAM, values, "-ctkd", "q8_0")) == {"extra_args"}
    text = refused(FORK, {}, "--spec-type", "mtp", "-np", "2")["extra_args"]
    assert "Slots to 1" in text


def test_a_quantised_v_cache_of_drafts_needs_flash_attention() -> None:
    values: dict[str, object] = {"speculation": "mtp", "draft_type_v": "q8_0", "flash_attn": "off"}
    assert "Flash attention" in refused(UPSTREAM, values)["draft_type_v"]
    assert refused(UPSTREAM, {**values, "flash_attn": "auto"}) == {}
    assert refused(UPSTREAM, {**values, "draft_type_v": "f16"}) == {}
    assert refused(UPSTREAM, {**values, "speculation": "none"}) == {}


def test_what_drafts_makes_no_vectors() -> None:
    values: dict[str, object] = {"speculation": "mtp"}
    for flag in ("--embeddings", "--reranking"):
        assert "nothing to draft" in warned(UPSTREAM, values, flag)["speculation"]
        assert warned(UPSTREAM, {}, flag) == {}


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just([]), st.just("1,1")
) | st.sampled_from(("on", "off", "mtp", "yarn", "turbo4", "row", "tensor", "0", "-1", "1e9"))
KEYS = st.sampled_from(sorted(MEANINGS))
COUNTS = st.none() | st.integers(0, 1 << 53)
MODELS = st.builds(
    ModelFacts,
    context_length=COUNTS,
    mtp_heads=COUNTS,
    gqa=COUNTS,
    rope_freq_base=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    rope_scaling=st.none() | st.just("yarn"),
    original_context=COUNTS,
    expert_count=COUNTS,
    state_size=COUNTS,
)
HOSTS = st.builds(HostFacts, memory_mib=COUNTS, cores=COUNTS, gpus=COUNTS)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from((UPSTREAM, FORK)), st.dictionaries(KEYS, VALUES), MODELS, HOSTS)
def test_no_rule_fails_whatever_a_profile_holds(
    caps: Capabilities, values: dict[str, object], model: ModelFacts, host: HostFacts
) -> None:
    for problem in check_rules(Case(caps, values, (), model, None, {}, host)):
        assert problem.field in {*MEANINGS, "model", "mmproj", "extra_args"}
        assert str(problem.message)
