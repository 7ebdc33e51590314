"""What a build tells about a model file before it is started."""

import io

import pytest

from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.gguf import read_header
from controlpanel.llamacpp.gguf_builds import BuildFacts, Verdict, judge, wanted_words
from controlpanel.llamacpp.gguf_facts import GgufFacts, read_facts
from controlpanel.llamacpp.helptext import Flag
from tests.unit.gguf_mutations import real_headers
from tests.unit.gguf_samples import build, mtp_model, projector, string

MMPROJ = (Flag(names=("--mmproj",), hint="FILE"),)
NEW = Capabilities(mtp_value="draft-mtp", cache_types=("f16", "q8_0"), flags=MMPROJ)
FORK = Capabilities(mtp_value="mtp", cache_types=("f16", "turbo4"), flags=MMPROJ)
OLD = Capabilities(cache_types=("f16",))
SURE = {"general.architecture", "q4_K", "dequantize_row_q4_K"}


def model(kind: int = 12, architecture: str = "qwen35", *, raw: bytes = b"") -> GgufFacts:
    """A model with one kind of tensor."""
    data = raw or build(
        [string("general.architecture", architecture)], [("blk.0.attn_norm.weight", [256], kind, 0)]
    )
    return read_facts([read_header(io.BytesIO(data), 1 << 40)])


def verdict(facts: GgufFacts, capabilities: Capabilities, *words: str) -> Verdict:
    """What a build with these words in its libraries makes of a file."""
    return judge(facts, BuildFacts("b", capabilities, frozenset({*SURE, *words})))


def reasons(found: Verdict) -> str:
    """All reasons as one text."""
    return " ".join(str(problem.message) for problem in found.problems)


def test_a_build_whose_libraries_name_the_architecture_runs_the_model() -> None:
    assert verdict(model(), NEW, "qwen35") == Verdict("b", True, ())


def test_a_build_that_does_not_name_it_cannot() -> None:
    found = verdict(model(), NEW)
    assert found.runs is False
    assert "qwen35" in reasons(found)


@pytest.mark.parametrize("words", [None, frozenset[str](), frozenset({"q4_K"})])
def test_without_libraries_that_could_be_read_it_is_unknown(words: frozenset[str] | None) -> None:
    found = judge(model(), BuildFacts("b", NEW, words))
    assert found.runs is None
    assert "unknown" in reasons(found)


def test_q2_0_collides_with_a_type_of_the_turboquant_forks() -> None:
    facts = model(42)
    assert verdict(facts, NEW, "qwen35", "dequantize_row_q2_0").runs is True
    assert verdict(facts, NEW, "qwen35").runs is False
    assert verdict(facts, FORK, "qwen35").runs is False
    assert "Q2_0" in reasons(verdict(facts, FORK, "qwen35"))
    stripped = BuildFacts("b", NEW, frozenset({"general.architecture", "q4_K", "qwen35"}))
    assert judge(facts, stripped).runs is None


@pytest.mark.parametrize("kind", [45, 46])
def test_turboquant_weights_need_such_a_build(kind: int) -> None:
    facts = model(kind)
    assert verdict(facts, FORK, "qwen35", "tq3_1s", "tq4_1s").runs is True
    assert verdict(facts, NEW, "qwen35").runs is False
    assert "TurboQuant" in reasons(verdict(facts, NEW, "qwen35"))
    assert judge(facts, BuildFacts("b", NEW, None)).runs is False


def test_a_type_that_nobody_knows_is_unknown() -> None:
    found = verdict(model(250), NEW, "qwen35")
    assert found.runs is None
    assert "type 250" in reasons(found)


def test_a_newer_type_is_asked_for_and_an_old_one_is_taken_for_granted() -> None:
    assert verdict(model(39), NEW, "qwen35").runs is False
    assert verdict(model(39), NEW, "qwen35", "mxfp4").runs is True
    assert "mxfp4" in wanted_words(model(39))
    assert verdict(model(14), NEW, "qwen35").runs is True


def test_mtp_heads_are_of_no_use_to_a_build_without_mtp() -> None:
    found = verdict(model(raw=mtp_model()), OLD, "qwen35")
    assert found.runs is True
    assert "no use" in reasons(found)
    assert verdict(model(raw=mtp_model()), NEW, "qwen35").problems == ()


def test_the_fork_takes_heads_of_two_architectures_and_only_from_the_model_itself() -> None:
    alone = mtp_model().replace(b"blk.0.attn_norm.weight", b"blk.2.attn_norm.weight")
    assert verdict(model(raw=alone), FORK, "qwen35").runs is False
    assert verdict(model(raw=alone), NEW, "qwen35").runs is True
    other = mtp_model().replace(b"qwen35", b"mimo22")
    assert "qwen35moe only" in reasons(verdict(model(raw=other), FORK, "mimo22"))


def test_a_projector_needs_mmproj_and_a_known_kind() -> None:
    facts = model(raw=projector())
    assert verdict(facts, NEW, "qwen3vl_merger").runs is True
    assert verdict(facts, NEW).runs is None
    assert verdict(facts, OLD, "qwen3vl_merger").runs is False


def test_what_is_no_model_runs_nowhere() -> None:
    found = verdict(model(raw=build([string("general.type", "adapter")])), NEW)
    assert found.runs is False
    assert "adapter" in reasons(found)


def test_an_unknown_tokenizer_is_a_doubt() -> None:
    facts = model(raw=real_headers()[0])
    assert facts.pre_tokenizer == "qwen35"
    assert verdict(facts, NEW, "qwen35").runs is True
    raw = build(
        [string("general.architecture", "llama"), string("tokenizer.ggml.pre", "brand-new")],
        [("blk.0.attn_norm.weight", [256], 12, 0)],
    )
    assert verdict(model(raw=raw), NEW, "llama").runs is None
