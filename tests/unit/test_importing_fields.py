"""Switches, decimals and variables of a pasted command, in every way to write them."""

from __future__ import annotations

import pytest

from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.importing import read_command
from tests.unit.test_importing import BUILDS, FORK, said

SWITCHES: dict[str, object] = {
    "kv_unified": "off",
    "kv_offload": "off",
    "swa_full": "on",
    "cpu_moe": "on",
    "mmproj_offload": "off",
    "cont_batching": "off",
    "warmup": "off",
}


@pytest.mark.parametrize("caps", BUILDS)
@pytest.mark.parametrize(
    "text",
    [
        "-no-kvu -nkvo --swa-full -cmoe --no-mmproj-offload -nocb --no-warmup",
        "--no-kv-unified --no_kv_offload --swa-full --cpu-moe --no-mmproj-offload "
        "--no-cont-batching --no-warmup",
        "-kvu -no-kvu -kvo -nkvo --swa-full -cmoe --mmproj-offload --no-mmproj-offload -cb -nocb --no-warmup",
    ],
)
def test_switches_are_read_in_both_spellings_and_the_last_one_counts(
    text: str, caps: Capabilities | None
) -> None:
    found = read_command(f"llama-server {text}", caps)
    assert found.settings == SWITCHES
    assert found.extra == ()
    on = read_command("-kvu --kv-offload --mmproj-offload -cb --warmup --log-prefix", caps)
    assert set(on.settings.values()) == {"on"} and len(on.settings) == 6


@pytest.mark.parametrize("caps", BUILDS)
@pytest.mark.parametrize(
    ("on", "off"), [("1", "0"), ("true", "false"), ("on", "off"), ("enabled", "disabled")]
)
def test_variables_of_switches_are_read_whatever_they_say(
    on: str, off: str, caps: Capabilities | None
) -> None:
    text = (
        f"LLAMA_ARG_KV_UNIFIED={off} LLAMA_ARG_KV_OFFLOAD={on} LLAMA_ARG_SWA_FULL={on} "
        f"LLAMA_ARG_CPU_MOE={off} LLAMA_ARG_NO_MMPROJ_OFFLOAD={on} LLAMA_ARG_FIT={off} "
        "LLAMA_ARG_TOP_K=5 llama-server -m a"
    )
    found = read_command(text, caps)
    assert found.settings == {
        "kv_unified": "off",
        "kv_offload": "on",
        "swa_full": "on",
        "mmproj_offload": "off",
        "fit": "off",
        "top_k": 5,
    }
    assert "off without it" in said(found, "LLAMA_ARG_CPU_MOE")[1]


def test_a_switch_that_a_build_cannot_switch_off_is_said() -> None:
    kind, text = said(read_command("--no-log-prefix", FORK), "--no-log-prefix")
    assert kind == "wrong" and "not off" in text
    assert read_command("LLAMA_LOG_PREFIX=1 llama-server -m a", FORK).settings == {"log_prefix": "on"}


@pytest.mark.parametrize("caps", BUILDS)
@pytest.mark.parametrize(
    ("written", "stored"),
    [("0.70", "0.7"), (".7", "0.7"), ("1", 1), ("1.0", 1), ("7e-1", "0.7"), ("0", 0), ("1E0", 1)],
)
def test_decimals_are_stored_in_one_way_however_they_are_written(
    written: str, stored: object, caps: Capabilities | None
) -> None:
    assert read_command(f"--temp {written}", caps).settings == {"temperature": stored}


def test_variables_that_a_profile_holds_are_kept() -> None:
    text = "MTMD_BACKEND_DEVICE=CUDA1 TURBO_LAYER_ADAPTIVE=7 GGML_CUDA_NO_PINNED=0 llama-server -m a"
    for caps in BUILDS:
        found = read_command(text, caps)
        assert found.env == {"MTMD_BACKEND_DEVICE": "CUDA1", "TURBO_LAYER_ADAPTIVE": "7"}
        assert said(found, "MTMD_BACKEND_DEVICE") == ("mapped", "MTMD_BACKEND_DEVICE: kept in Environment.")
        assert said(found, "GGML_CUDA_NO_PINNED")[0] == "wrong"
        assert found.extra == ()
