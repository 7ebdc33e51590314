"""What a diagnosis of a launch changes in the profile."""

import json
from pathlib import Path

import pytest

from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.rules import diagnose

FOLDER = Path(__file__).parents[1] / "data" / "diagnosis"


def change(log: str, facts: dict[str, object] | None = None, exit_code: int | None = 1) -> dict[str, object]:
    """The fields that the best diagnosis of a launch mends."""
    found = diagnose(log, "launch", exit_code, facts or {})
    return {item.field: item.value for item in found[0].change}


OOM = "allocating 100.00 MiB on device 1: cudaMalloc failed: out of memory"
WEIGHTS = f"{OOM}\nllama_model_load: error loading model: unable to allocate CUDA1 buffer"
COMPUTE = (
    f"{OOM}\nllama_init_from_model: failed to initialize the context: failed to allocate compute pp buffers"
)


@pytest.mark.parametrize(
    "log, facts, expected",
    [
        ("start: couldn't bind HTTP server socket, hostname: h, port: 8080", {}, {"port": None}),
        ("couldn't bind HTTP server socket, hostname: h, port: 8080", {"port_fixed": True}, {"port": None}),
        ("couldn't bind HTTP server socket, hostname: h, port: 8080", {"port_fixed": False}, {}),
        ("V cache quantization requires flash_attn", {}, {"flash_attn": "on"}),
        (WEIGHTS, {}, {"gpu_layers": "auto", "tensor_split": None}),
        (WEIGHTS, {"settings": {"gpu_layers": 99}}, {"gpu_layers": "auto"}),
        (WEIGHTS, {"settings": {"tensor_split": "3,1"}}, {"tensor_split": None}),
        (WEIGHTS, {"settings": {}}, {}),
        (f"{OOM}\nx: failed to allocate buffer for kv cache", {}, {"ctx_size": "less"}),
        (COMPUTE, {}, {"ubatch": 256}),
        (COMPUTE, {"settings": {"flash_attn": "off"}}, {"flash_attn": "on"}),
        (COMPUTE, {"settings": {"flash_attn": "on", "ubatch": 2048}}, {"ubatch": 1024}),
        (COMPUTE, {"settings": {"ubatch": 64}}, {"ctx_size": "less"}),
        ("error: invalid argument: --load-mode", {}, {"load_mode": None}),
        ("error: invalid argument: --no-such-option", {}, {}),
        ('error while handling argument "--model": x', {}, {}),
        ('error while handling argument "--cache_type_v": x', {}, {"cache_type_v": None}),
        (
            'error while handling argument "-ctk": Unsupported cache type: turbo4',
            {},
            {"cache_type_k": "q8_0"},
        ),
        ("Unsupported cache type: turbo4", {}, {}),
        (
            "K cache type q8_0 with block size 32 does not divide n_embd_head_k=80",
            {},
            {"cache_type_k": None, "cache_type_v": None},
        ),
        ("model does not support different K (q8_0) and V (f16) cache types", {}, {"cache_type_v": "q8_0"}),
        (
            "the slot context (9000) exceeds the training context of the model (4096) - capping",
            {},
            {"ctx_size": 4096},
        ),
        ("srv load_model: MTP currently supports only n_parallel=1; got 4", {}, {"parallel": 1}),
    ],
)
def test_the_change_names_a_field_and_the_value_that_mends_it(
    log: str, facts: dict[str, object], expected: dict[str, object]
) -> None:
    assert change(log, facts) == expected


def test_the_card_that_is_full_is_named() -> None:
    assert str(diagnose(WEIGHTS, "launch", 1)[0].title) == (
        "The model's weights do not fit into the memory of GPU 1 (100.00 MiB asked)"
    )


@pytest.mark.parametrize("name", ["launch", "mtp", "vision"])
def test_every_field_that_is_changed_exists_in_the_form(name: str) -> None:
    samples = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["positive"]
    logs = ["\n".join(log) for logs in samples.values() for log in logs]
    fields = {item.field for log in logs for found in diagnose(log, name) for item in found.change}
    assert fields and fields <= {*MEANINGS, "port", "mmproj"}
