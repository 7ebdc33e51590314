"""Variables of a profile: known names with checked values, and refusals that say what to do instead."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from
from controlpanel.llamacpp.environment import KNOWN, check_environment
from controlpanel.llamacpp.problems import errors
from tests.unit.drawn_profiles import VARIABLES

HELP = Path(__file__).parent.parent / "data" / "help"
UPSTREAM = capabilities_from((HELP / "upstream-b11434.txt").read_text())
FORK = capabilities_from((HELP / "help-fork.txt").read_text())
UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"


def refused(name: str, value: object = "1", caps: Capabilities = UPSTREAM) -> str:
    """The one error of one variable."""
    found = errors(check_environment({name: value}, caps))
    assert len(found) == 1 and found[0].field == "environment", found
    return str(found[0].message)


def hints(environment: dict[str, object], caps: Capabilities = UPSTREAM) -> list[str]:
    """What is said of variables that can be set."""
    found = check_environment(environment, caps)
    assert errors(found) == []
    assert {problem.field for problem in found} <= {"environment"}
    return [str(problem.message) for problem in found]


def test_every_known_variable_has_a_help_text_and_takes_its_values() -> None:
    assert set(VARIABLES) == set(KNOWN)
    for name, values in VARIABLES.items():
        assert KNOWN[name].name == name and len(KNOWN[name].help) > 20
        for value in values:
            assert errors(check_environment({name: value}, FORK)) == [], (name, value)


@pytest.mark.parametrize(
    "value",
    [UUID, f"{UUID},GPU-1234abcd", "MIG-8932f937-d72c-4106-c12f-20bd9faed9f6", f"MIG-{UUID}/1/0", "-1"],
)
def test_gpus_by_uuid_are_taken_without_a_hint(value: str) -> None:
    assert hints({"CUDA_VISIBLE_DEVICES": value}) == []


def test_gpus_by_number_get_the_hint_that_the_order_may_change() -> None:
    (text,) = hints({"CUDA_VISIBLE_DEVICES": "0,1"})
    assert "CUDA_DEVICE_ORDER" in text and "UUID" in text
    assert len(hints({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"})) == 1
    assert hints({"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == []


@pytest.mark.parametrize(
    "value",
    ["", "0,", ",0", "0;1", "-2", "0,-1", "CUDA0", "GPU-", "GPU-xyz", f"{UUID},0", "100", "0 ,1", "all"]
    + ["MIG-1", "GPU-8932f937\n"],
)
def test_what_names_no_gpu_is_refused(value: str) -> None:
    assert "CUDA_VISIBLE_DEVICES" in refused("CUDA_VISIBLE_DEVICES", value)


def test_a_gpu_named_twice_is_refused() -> None:
    assert "twice" in refused("CUDA_VISIBLE_DEVICES", f"{UUID},{UUID.lower().replace('gpu', 'GPU')}")
    assert "twice" in refused("GGML_VK_VISIBLE_DEVICES", "1,1")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("TURBO_LAYER_ADAPTIVE", "3", "0, 1, 2, 5, 6, 7"),
        ("TURBO_AUTO_ASYMMETRIC", "off", "0, 1"),
        ("LLAMA_ATTN_ROT_DISABLE", "true", "0, 1"),
        ("GGML_CUDA_NO_PINNED", "0", "every value switches it on"),
        ("GGML_CUDA_ENABLE_UNIFIED_MEMORY", "", "Remove the row"),
        ("CUDA_DEVICE_ORDER", "pci", "PCI_BUS_ID"),
        ("OMP_NUM_THREADS", "0", "1 to 1024"),
        ("OMP_NUM_THREADS", "٤", "1 to 1024"),
        ("MTMD_BACKEND_DEVICE", "/dev/nvidia0", "CUDA1"),
        ("HIP_VISIBLE_DEVICES", "GPU-1234", "numbers"),
        ("CUDA_VISIBLE_DEVICES", "0\x00", "control character"),
        ("CUDA_VISIBLE_DEVICES", "0\x1b[1m", "control character"),
        ("CUDA_VISIBLE_DEVICES", "0," * 2_000, "1000 characters"),
        ("CUDA_VISIBLE_DEVICES", 0, "no text"),
        ("CUDA_VISIBLE_DEVICES", None, "no text"),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_right(name: str, value: object, words: str) -> None:
    assert words in refused(name, value, FORK)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("LLAMA_ARG_CTX_SIZE", "the field Context size"),
        ("LLAMA_ARG_NO_KV_OFFLOAD", "the field KV cache on the GPU"),
        ("LLAMA_ARG_TOP_K", "the field Top-k"),
        ("LLAMA_ARG_THINK", "the field Reasoning format"),
        ("LLAMA_ARG_LOAD_MODE", "the field Load mode"),
        ("LLAMA_ARG_MODEL", "the field Model"),
        ("LLAMA_ARG_PORT", "the field Port"),
        ("LLAMA_ARG_HOST", "own address"),
        ("LLAMA_ARG_OVERRIDE_TENSOR", "--override-tensor into the extra arguments"),
        ("LLAMA_ARG_NOT_THERE", "none of the variables"),
        ("LLAMA_API_KEY", "no secrets"),
        ("HF_TOKEN", "no secrets"),
        ("MY_PASSWORD", "no secrets"),
        ("LD_PRELOAD", "programs and libraries"),
        ("LD_LIBRARY_PATH", "programs and libraries"),
        ("PATH", "programs and libraries"),
        ("PYTHONPATH", "programs and libraries"),
        ("XDG_CONFIG_HOME", "programs and libraries"),
        ("GGML_SOMETHING", "CUDA_VISIBLE_DEVICES"),
        ("cuda_visible_devices", "CUDA_VISIBLE_DEVICES"),
        ("A=B", "no name"),
        ("", "no name"),
        ("A B", "no name"),
        ("A\x00", "no name"),
        ("Ä", "no name"),
    ],
)
@pytest.mark.parametrize("caps", [UPSTREAM, FORK])
def test_other_names_are_refused_with_what_does_it_instead(name: str, words: str, caps: Capabilities) -> None:
    assert words in refused(name, "1", caps)


def test_the_value_of_a_secret_is_not_repeated() -> None:
    assert "hunter2" not in refused("HF_TOKEN", "hunter2")


def test_a_turboquant_variable_on_a_build_without_it_is_warned_about() -> None:
    assert "no TurboQuant" in hints({"TURBO_LAYER_ADAPTIVE": "0"})[0]
    assert hints({"TURBO_LAYER_ADAPTIVE": "0"}, FORK) == []


def test_the_device_for_pictures_is_one_of_a_build_that_reads_the_variable_as_a_flag() -> None:
    devices = "  CUDA0: RTX 3090 (24135 MiB, 23800 MiB free)\n  CUDA1: RTX 3090 (24135 MiB, 23800 MiB free)\n"
    caps = capabilities_from((HELP / "upstream-b11434.txt").read_text(), "", devices)
    assert hints({"MTMD_BACKEND_DEVICE": "CUDA1"}, caps) == []
    assert hints({"MTMD_BACKEND_DEVICE": "none"}, UPSTREAM) == []
    assert "none, CUDA0, CUDA1" in refused("MTMD_BACKEND_DEVICE", "CUDA2", caps)
    assert refused("MTMD_BACKEND_DEVICE", "CUDA0", UPSTREAM).endswith("are: none.")
    assert hints({"MTMD_BACKEND_DEVICE": "CUDA2"}, FORK) == []


def test_too_many_variables_are_refused() -> None:
    found = errors(check_environment({f"A{number}": "1" for number in range(40)}, UPSTREAM))
    assert "32" in str(found[0].message)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*KNOWN]) | st.text(max_size=20), st.text(max_size=40) | st.integers(), max_size=5
    )
)
def test_whatever_is_given_is_set_as_it_is_or_refused_in_words(environment: dict[str, object]) -> None:
    found = check_environment(environment, UPSTREAM)
    assert all(str(problem.message) for problem in found)
    if not errors(found):
        for name, value in environment.items():
            assert name in KNOWN and isinstance(value, str) and value.isprintable() and value.isascii()
