"""What the rules for vision say about projectors and pictures, and which fields they change."""

from pathlib import Path

import pytest

from controlpanel.llamacpp.rules import diagnose

FOLDER = Path(__file__).parents[1] / "data" / "diagnosis"


def keys(log: str, exit_code: int | None = None, area: str = "vision") -> list[str]:
    """The cause keys of a log, best first."""
    return [found.cause_key for found in diagnose(log, area, exit_code)]


def test_a_refused_picture_is_explained_though_the_server_ended_well() -> None:
    log = (FOLDER / "vision-upstream-request-too-long.txt").read_text(encoding="utf-8")
    assert keys(log, 0) == keys(log) == ["mmproj_missing"]
    assert keys(log, 0, "launch") == []


@pytest.mark.parametrize(
    "log, expected",
    [
        ("hint: you may be using wrong mmproj", {"mmproj": None}),
        ("srv  process_chun: processing image...\nCUDA error: out of memory", {"mmproj_offload": "off"}),
        ('GGML_ASSERT("non-causal attention requires n_ubatch >= n_tokens") failed', {"ubatch": 2048}),
        (
            "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
            {},
        ),
    ],
)
def test_the_change_names_a_field_and_the_value_that_mends_it(log: str, expected: dict[str, object]) -> None:
    assert {item.field: item.value for item in diagnose(log, "vision")[0].change} == expected


def test_a_full_card_is_laid_to_the_projector_only_while_it_loads_or_works() -> None:
    full = "allocating 858.99 MiB on device 0: cudaMalloc failed: out of memory"
    assert keys(f"clip_model_loader: model size:         858.99 MiB\n{full}", 1) == ["oom_vision_projector"]
    assert keys(full, 1) == []
    assert keys(f"clip_model_loader: model size:         858.99 MiB\n{full}", 1, "launch") == [
        "oom_vision_projector"
    ]
    kv = "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache"
    assert keys(f"{full}\n{kv}", 1, "launch") == ["oom_kv_cache"]
