"""Which projector and which heads belong to which model."""

import io

import pytest

from controlpanel.llamacpp.gguf import read_header
from controlpanel.llamacpp.gguf_facts import GgufFacts, read_facts
from controlpanel.llamacpp.gguf_fit import heads_fit, projector_fit
from controlpanel.llamacpp.gguf_report import partner_of
from tests.unit.gguf_mutations import real_headers
from tests.unit.gguf_samples import array, boolean, build, mtp_model, string, u32


def facts(raw: bytes) -> GgufFacts:
    """The facts of a whole file."""
    return read_facts([read_header(io.BytesIO(raw), 1 << 40)])


def text_model(width: int | None = 32, name: str = "Qwen3.5 27B", architecture: str = "qwen35") -> GgufFacts:
    """A text model."""
    keys = [string("general.architecture", architecture)]
    keys += [string("general.name", name)] if name else []
    keys += [u32(f"{architecture}.embedding_length", width)] if width is not None else []
    return facts(build(keys, [("blk.0.attn_norm.weight", [32], 0, 0)]))


def mmproj(width: int = 32, name: str = "Qwen3.5 27B", kind: str = "qwen3vl_merger") -> GgufFacts:
    """A projector."""
    keys = [
        string("general.architecture", "clip"),
        boolean("clip.has_vision_encoder", True),
        string("clip.projector_type", kind),
        u32("clip.vision.projection_dim", width),
    ]
    keys += [string("general.name", name)] if name else []
    return facts(build(keys, [("mm.0.weight", [4, 4], 1, 0)]))


def test_the_tiny_projector_fits_the_tiny_model() -> None:
    model, projector = (facts(raw) for raw in real_headers())
    assert projector_fit(projector, model).fits is True
    assert projector_fit(projector, model).problems == ()


def test_another_width_is_refused_with_both_numbers() -> None:
    fit = projector_fit(mmproj(5120), text_model(4096))
    assert fit.fits is False
    assert fit.problems[0].level == "error"
    assert "5120" in str(fit.problems[0].message) and "4096" in str(fit.problems[0].message)


@pytest.mark.parametrize(
    "projector, model",
    [
        ("Qwen3.5 27B", "Qwen3.5-27B-UD-Q4_K_XL"),
        ("mmproj-Qwen3.5-27B-F16", "Qwen3.5 27B Instruct"),
        ("Qwen3.5 27B", "Huihui Qwen3.5 27B Abliterated"),
        ("", "Qwen3.5 27B"),
        ("Vision projector", "Qwen3.5 27B"),
    ],
)
def test_names_of_one_model_agree(projector: str, model: str) -> None:
    fit = projector_fit(mmproj(32, projector), text_model(32, model))
    assert (fit.fits, fit.problems) == (True, ())


@pytest.mark.parametrize(
    "projector, model", [("Qwen3.5 9B", "Qwen3.5 27B"), ("Qwen3-VL 8B", "Qwen3.5 8B"), ("Ornith", "Qwen3.5")]
)
def test_equal_widths_under_another_name_are_a_warning(projector: str, model: str) -> None:
    fit = projector_fit(mmproj(32, projector), text_model(32, model))
    assert fit.fits is True
    assert [problem.level for problem in fit.problems] == ["warning"]
    assert projector in str(fit.problems[0].message)


def test_a_projector_of_another_family_is_a_warning() -> None:
    fit = projector_fit(mmproj(32, "", "gemma3"), text_model(32))
    assert [problem.level for problem in fit.problems] == ["warning"]
    assert "Gemma 3" in str(fit.problems[0].message) and "qwen35" in str(fit.problems[0].message)


def test_widths_that_the_files_do_not_say_are_unknown() -> None:
    assert projector_fit(mmproj(32), text_model(None)).fits is None
    assert projector_fit(mmproj(32, "", "mlp"), text_model(32, architecture="llama")).fits is None


def test_two_files_of_the_wrong_kinds_do_not_fit() -> None:
    assert projector_fit(text_model(), text_model()).fits is False
    assert projector_fit(mmproj(), mmproj()).fits is False
    assert heads_fit(text_model(), text_model()).fits is False
    assert partner_of(text_model(), "x", text_model()) is None


def heads() -> GgufFacts:
    """A file with heads alone."""
    raw = mtp_model().replace(b"blk.0.attn_norm.weight", b"blk.2.attn_norm.weight")
    found = facts(raw)
    assert found.content == "mtp heads"
    return found


def test_heads_fit_the_model_they_were_cut_from() -> None:
    plain = facts(mtp_model(0, False))
    assert plain.trunk_layers == 3
    trunk = build(
        [
            string("general.architecture", "qwen35"),
            string("general.name", "Tiny"),
            u32("qwen35.embedding_length", 32),
            u32("qwen35.block_count", 2),
        ],
        [("blk.0.attn_norm.weight", [32], 0, 0)],
    )
    assert heads_fit(heads(), facts(trunk)).fits is True
    wrong = heads_fit(heads(), plain)
    assert wrong.fits is False
    assert "2 here and 3 in the model" in str(wrong.problems[0].message)


@pytest.mark.parametrize(
    "architecture, width, tokens", [("llama", 32, 0), ("qwen35", 64, 0), ("qwen35", 32, 7)]
)
def test_heads_of_another_model_are_refused(architecture: str, width: int, tokens: int) -> None:
    keys = [string("general.architecture", architecture), u32(f"{architecture}.embedding_length", width)]
    keys += [array("tokenizer.ggml.tokens", 8, tokens, bytes(8 * tokens))] if tokens else []
    model = facts(build(keys, [("blk.0.attn_norm.weight", [32], 0, 0)]))
    fit = heads_fit(heads(), model)
    assert (fit.fits is False) is (not tokens)  # the heads do not name their vocabulary
