"""Changes of a diagnosis in the inputs of a build."""

import pytest

from controlpanel.llamacpp.rule_types import Change
from jobs.domain.buildspec import BuildInputs
from jobs.domain.mending import facts, mended
from jobs.domain.programs import Compiler, Nvcc, Toolchain

TOOLCHAIN = Toolchain(
    compilers=(Compiler("/opt/gcc/bin/g++-13", "gcc", "13.2.0", 13),),
    nvccs=(Nvcc("/usr/local/cuda/bin/nvcc", "12.4"),),
    cores=12,
    memory_mib=16384,
)
INPUTS = BuildInputs(
    "https://example.org/x.git",
    backend="cuda",
    architectures=("86",),
    definitions=(("GGML_CUDA_FORCE_MMQ", "ON"), ("GGML_LTO", "ON")),
)


@pytest.mark.parametrize(
    ("field", "value", "becomes"),
    [
        ("jobs", "half", 2),  # 16 GiB are enough for five at a time
        ("architectures", ["80", "90"], ("80", "90")),
        ("targets", ["llama-server"], ("llama-server",)),
        ("host_compiler", "g++-13", "/opt/gcc/bin/g++-13"),
        ("host_compiler", "g++-12", "/usr/bin/g++-12"),
        ("host_compiler", "", ""),
        ("nvcc", "/usr/local/cuda-12.9/bin/nvcc", "/usr/local/cuda-12.9/bin/nvcc"),
        ("fa_quants", "", ""),
        ("ref", "", ""),
        ("native", False, False),
        ("ccache", False, False),
        ("definitions", [["GGML_LTO", None]], (("GGML_CUDA_FORCE_MMQ", "ON"),)),
        (
            "definitions",
            [["GGML_LTO", "OFF"], ["GGML_CUDA_NO_VMM", "ON"]],
            (("GGML_CUDA_FORCE_MMQ", "ON"), ("GGML_LTO", "OFF"), ("GGML_CUDA_NO_VMM", "ON")),
        ),
    ],
)
def test_a_change_is_made_in_its_field_and_nowhere_else(field: str, value: object, becomes: object) -> None:
    found = mended(INPUTS, [Change(field, value)], TOOLCHAIN)
    assert getattr(found, field) == becomes
    assert {**found.to_dict(), field: None} == {**INPUTS.to_dict(), field: None}


def test_half_of_a_chosen_number_of_jobs_is_at_least_one() -> None:
    chosen = BuildInputs("x", jobs=16)
    assert mended(chosen, [Change("jobs", "half")], None).jobs == 8
    assert mended(BuildInputs("x", jobs=1), [Change("jobs", "half")], None).jobs == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("targets", ["llama-bench"]),  # without llama-server there would be nothing to run
        ("definitions", [["LLAMA_BUILD_UI", "OFF"]]),  # the panel sets it by itself
        ("native", "no"),
        ("jobs", 4),
        ("repository", "https://elsewhere.example/x.git"),
        ("anything", "else"),
    ],
)
def test_a_change_that_does_not_fit_is_left_out(field: str, value: object) -> None:
    assert mended(INPUTS, [Change(field, value)], TOOLCHAIN) == INPUTS


def test_the_rules_are_told_what_the_host_has() -> None:
    assert facts(INPUTS, None) == {"architectures": ("86",), "targets": INPUTS.targets}
    assert facts(INPUTS, TOOLCHAIN)["nvccs"] == [{"path": "/usr/local/cuda/bin/nvcc", "version": "12.4"}]
