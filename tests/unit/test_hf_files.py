"""The files of a repository become choices that a person can compare."""

from __future__ import annotations

import time

import pytest

from jobs.domain.hf import HubPlace
from jobs.domain.hf_files import (
    MAX_CHOICES,
    Catalogue,
    HubFile,
    Kind,
    catalogue,
    chosen,
    first_shard,
    nothing_to_run,
    suggested,
)
from jobs.domain.hf_quants import UNKNOWN_BITS, bits_of, label_of, without_label

GB = 10**9

USUAL = {
    ".gitattributes": 3_000,
    "README.md": 20_000,
    "config.json": 900,
    "imatrix_unsloth.gguf_file": 13_000_000,
    "Qwen3.5-27B-imatrix.gguf": 13_000_000,
    "Qwen3.5-27B-Q8_0.gguf": 28 * GB,
    "Qwen3.5-27B-Q4_K_M.gguf": 17 * GB,
    "Qwen3.5-27B-UD-Q4_K_XL.gguf": 18 * GB,
    "Qwen3.5-27B-IQ4_XS.gguf": 15 * GB,
    "Qwen3.5-27B-UD-IQ2_M.gguf": 10 * GB,
    "Qwen3.5-27B-Q2_K.gguf": 11 * GB,
    "BF16/Qwen3.5-27B-BF16-00002-of-00002.gguf": 4 * GB,
    "BF16/Qwen3.5-27B-BF16-00001-of-00002.gguf": 50 * GB,
    "mmproj-F32.gguf": 2 * GB,
    "mmproj-BF16.gguf": 1 * GB,
    "mmproj-F16.gguf": 1 * GB,
    "mtp-Qwen3.5-27B-Q8_0.gguf": 1 * GB,
    "mtp-Qwen3.5-27B-BF16.gguf": 2 * GB,
}


def of(sizes: dict[str, int]) -> Catalogue:
    """The choices of files with these sizes."""
    return catalogue(HubFile(path, size, "0" * 64) for path, size in sizes.items())


def named(*paths: str) -> Catalogue:
    """The choices of files of one GB each."""
    return of(dict.fromkeys(paths, GB))


def test_a_usual_repository_is_sorted_into_models_projectors_companions_and_the_rest() -> None:
    found = of(USUAL)
    quants = ["BF16", "Q8_0", "UD-Q4_K_XL", "Q4_K_M", "IQ4_XS", "UD-IQ2_M", "Q2_K"]
    assert [model.quant for model in found.models] == quants
    assert {model.base for model in found.models} == {"Qwen3.5-27B"}
    assert [choice.quant for choice in found.projectors] == ["F16", "BF16", "F32"]
    assert [choice.quant for choice in found.companions] == ["BF16", "Q8_0"]
    assert {choice.kind for choice in found.companions} == {Kind.COMPANION}
    assert "Qwen3.5-27B-imatrix.gguf" in {file.path for file in found.others}
    assert len(found.others) == 5


def test_shards_are_one_choice_with_their_sizes_summed_and_in_order() -> None:
    model = of(USUAL).models[0]
    assert [file.name for file in model.files] == [
        "Qwen3.5-27B-BF16-00001-of-00002.gguf",
        "Qwen3.5-27B-BF16-00002-of-00002.gguf",
    ]
    assert (model.size, model.shards, model.complete) == (54 * GB, 2, True)


def test_a_missing_shard_makes_a_choice_incomplete() -> None:
    (model,) = named("m-Q8_0-00001-of-00003.gguf", "m-Q8_0-00003-of-00003.gguf").models
    assert (model.complete, model.shards, len(model.files)) == (False, 3, 2)
    assert suggested([model]) is None


def test_a_shard_with_an_impossible_number_is_no_choice() -> None:
    found = named("m-00005-of-00003.gguf", "m-00000-of-00003.gguf", "m-00001-of-99999.gguf")
    assert found.models == ()
    assert len(found.others) == 3


def test_a_repository_with_thousands_of_files_is_sorted_at_once() -> None:
    names = [f"m{number}-Q8_0.gguf" for number in range(3000)] + [f"mmproj-m{n}.gguf" for n in range(3000)]
    begun = time.monotonic()
    found = named(*names)
    assert len(found.choices) == MAX_CHOICES
    assert len(found.others) == len(names) - MAX_CHOICES
    assert time.monotonic() - begun < 2


def test_shards_of_a_known_choice_are_kept_together_when_there_are_too_many_choices() -> None:
    names = [f"a{number:03}.gguf" for number in range(MAX_CHOICES - 1)]
    names += ["b-00001-of-00002.gguf", "b-00002-of-00002.gguf", "c.gguf"]
    found = named(*names)
    assert [choice.path for choice in found.models if choice.shards == 2] == ["b-00001-of-00002.gguf"]
    assert all(choice.complete for choice in found.models)
    assert [file.path for file in found.others] == ["c.gguf"]


@pytest.mark.parametrize(
    ("path", "first"),
    [
        ("Q8/m-00003-of-00005.gguf", "Q8/m-00001-of-00005.gguf"),
        ("m-00001-of-00005.GGUF", "m-00001-of-00005.GGUF"),
        ("m.gguf", "m.gguf"),
    ],
)
def test_the_facts_are_in_the_first_shard(path: str, first: str) -> None:
    assert first_shard(path) == first


def test_a_size_that_the_hub_does_not_say_makes_the_sum_unknown() -> None:
    files = [HubFile("m-00001-of-00002.gguf", 5), HubFile("m-00002-of-00002.gguf")]
    assert catalogue(files).models[0].size is None


def test_projectors_and_companions_belong_to_the_only_model_whatever_their_names() -> None:
    model = of(USUAL).models[3]
    assert [choice.path for choice in model.projectors] == [
        "mmproj-F16.gguf",
        "mmproj-BF16.gguf",
        "mmproj-F32.gguf",
    ]
    assert model.companions[0].quant == "Q8_0"


def test_with_several_models_names_decide_what_belongs_together() -> None:
    found = named(
        "Qwen3-VL-8B-Instruct-Q4_K_M.gguf",
        "Qwen3-VL-4B-Instruct-Q4_K_M.gguf",
        "mmproj-Qwen3-VL-8B-Instruct-F16.gguf",
        "Qwen3-VL-4B-mmproj-f16.gguf",
        "mmproj-model-f32.gguf",
        "mtp-Qwen3-VL-8B-Instruct-Q8_0.gguf",
    )
    models = {model.base: model for model in found.models}
    eight, four = models["Qwen3-VL-8B-Instruct"], models["Qwen3-VL-4B-Instruct"]
    general = "mmproj-model-f32.gguf"
    assert [choice.path for choice in eight.projectors] == ["mmproj-Qwen3-VL-8B-Instruct-F16.gguf", general]
    assert [choice.path for choice in four.projectors] == ["Qwen3-VL-4B-mmproj-f16.gguf", general]
    assert len(eight.companions) == 1
    assert four.companions == ()


def test_a_model_with_mtp_in_the_middle_of_its_name_is_a_model() -> None:
    found = named("Qwen3.5-27B-MTP-Q8_0.gguf", "Qwen3.5-27B-Q8_0.gguf", "mtp-Qwen3.5-27B-BF16.gguf")
    assert len(found.models) == 2
    assert all(len(model.companions) == 1 for model in found.models)


@pytest.mark.parametrize(
    "path",
    [
        "lora-adapter.gguf",
        "ggml-vocab-qwen2.gguf",
        "m.imatrix.gguf",
        "m.gguf.part1of3",
        "m.safetensors",
        "imatrix.dat",
    ],
)
def test_what_is_no_model_is_left_out(path: str) -> None:
    found = named(path)
    assert found.choices == ()
    assert [file.path for file in found.others] == [path]


def test_the_suggestion_is_the_finest_that_fits_or_the_usual_one() -> None:
    models = of(USUAL).models
    assert suggested(models, 20 * GB) is models[2]
    assert suggested(models, 12 * GB) is models[5]
    assert suggested(models, GB) is None
    usual = suggested(models)
    assert usual is not None
    assert usual.quant == "Q4_K_M"
    assert suggested([]) is None


@pytest.mark.parametrize(
    ("place", "path"),
    [
        (
            HubPlace("a/b", file="BF16/Qwen3.5-27B-BF16-00002-of-00002.gguf"),
            "BF16/Qwen3.5-27B-BF16-00001-of-00002.gguf",
        ),
        (HubPlace("a/b", file="mmproj-F16.gguf"), "mmproj-F16.gguf"),
        (HubPlace("a/b", quant="q8_0"), "Qwen3.5-27B-Q8_0.gguf"),
        (HubPlace("a/b", quant="Q4_K_XL"), "Qwen3.5-27B-UD-Q4_K_XL.gguf"),
        (HubPlace("a/b", quant="bf16", folder="BF16"), "BF16/Qwen3.5-27B-BF16-00001-of-00002.gguf"),
        (HubPlace("a/b", quant="Q3_K_S"), None),
        (HubPlace("a/b", file="other.gguf", quant="Q8_0"), None),
        (HubPlace("a/b"), None),
    ],
)
def test_a_pasted_place_finds_its_choice(place: HubPlace, path: str | None) -> None:
    found = chosen(of(USUAL), place)
    assert (found.path if found else None) == path


def test_a_repository_without_a_model_says_what_it_has_instead() -> None:
    assert nothing_to_run(of(USUAL)) is None
    assert "another format" in str(nothing_to_run(named("model-00001-of-00002.safetensors")))
    assert "additions" in str(nothing_to_run(named("mmproj-F16.gguf")))
    assert "no GGUF" in str(nothing_to_run(named("README.md")))


@pytest.mark.parametrize(
    ("path", "label", "base"),
    [
        ("Qwen3.5-27B-Q4_K_M.gguf", "Q4_K_M", "Qwen3.5-27B.gguf"),
        ("llama-2-7b.Q5_K_S", "Q5_K_S", "llama-2-7b"),
        ("gemma-3-27b-it-qat-q4_0", "Q4_0", "gemma-3-27b-it-qat"),
        ("model.i1-IQ3_XXS", "IQ3_XXS", "model.i1"),
        ("gpt-oss-120b-mxfp4", "MXFP4", "gpt-oss-120b"),
        ("gpt-oss-20b-MXFP4_MOE", "MXFP4_MOE", "gpt-oss-20b"),
        ("Model-UD-Q2_K_XL", "UD-Q2_K_XL", "Model"),
        ("Model-fp16", "F16", "Model"),
        ("Model-IQ4_KSS", "IQ4_KSS", "Model"),
        ("Model-Q8_0_R8", "Q8_0_R8", "Model"),
        ("Model-TQ3_1S", "TQ3_1S", "Model"),
        ("Model-Q4_0_4_8", "Q4_0_4_8", "Model"),
        ("Model-Q6_K-v2", "Q6_K", "Model-v2"),
        ("F16", "F16", ""),
        ("Falcon-7B-F16K", "", "Falcon-7B-F16K"),
        ("IQ-test-7B", "", "IQ-test-7B"),
        ("Q4_K_M/model", "Q4_K_M", "Q4_K_M/model"),
    ],
)
def test_the_label_is_read_from_the_name(path: str, label: str, base: str) -> None:
    assert label_of(path) == label
    if "/" not in path:
        assert without_label(path) == base


def test_finer_quantisations_take_more_bits() -> None:
    order = ["F32", "F16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q4_K_S", "Q4_0", "IQ4_XS", "Q3_K_M"]
    order += ["IQ3_M", "IQ3_XXS", "Q2_K", "IQ2_XS", "IQ1_M", "IQ1_S"]
    bits = [bits_of(label) for label in order]
    assert all(one >= other for one, other in zip(bits, bits[1:], strict=False))
    assert bits_of("UD-Q4_K_XL") > bits_of("Q4_K_M")
    assert bits_of("") == UNKNOWN_BITS
