"""The texts that binaries print about themselves, in both dialects."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlpanel.llamacpp.helptext import (
    Device,
    Flag,
    Version,
    parse_devices,
    parse_help,
    parse_version,
    unparsed_lines,
)

HELP = Path(__file__).parent.parent / "data" / "help"
UPSTREAM = (HELP / "upstream-b11434.txt").read_text()
FORK = (HELP / "help-fork.txt").read_text()

NGRAMS = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod")
PLAIN_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")


def _flag(text: str, name: str) -> Flag:
    return next(flag for flag in parse_help(text) if name in flag.all_names)


@pytest.mark.parametrize(
    ("text", "options", "names", "env"), [(UPSTREAM, 256, 413, 149), (FORK, 238, 387, 122)]
)
def test_every_option_of_a_real_help_text_is_found(text: str, options: int, names: int, env: int) -> None:
    flags = parse_help(text)
    assert len(flags) == options
    assert sum(len(flag.all_names) for flag in flags) == names
    assert sum(bool(flag.env) for flag in flags) == env
    assert unparsed_lines(text) == ()


def test_names_hint_default_and_environment_are_separated() -> None:
    assert _flag(UPSTREAM, "--gpu-layers") == Flag(
        names=("-ngl", "--gpu-layers", "--n-gpu-layers"),
        hint="N",
        help="max. number of layers to store in VRAM, either an exact number, "
        "'auto', or 'all' (default: auto)",
        env="LLAMA_ARG_N_GPU_LAYERS",
        default="auto",
        section="common",
    )


@pytest.mark.parametrize(
    ("name", "positive", "negative"),
    [
        ("--kv-offload", ("-kvo", "--kv-offload"), ("-nkvo", "--no-kv-offload")),
        ("--repack", ("--repack",), ("-nr", "--no-repack")),
        ("--webui", ("--ui", "--webui"), ("--no-ui", "--no-webui")),
        ("--mmproj-auto", ("--mmproj-auto",), ("--no-mmproj", "--no-mmproj-auto")),
        ("--no-host", ("--no-host",), ()),
    ],
)
def test_negative_names_are_told_from_positive_ones(
    name: str, positive: tuple[str, ...], negative: tuple[str, ...]
) -> None:
    flag = _flag(UPSTREAM, name)
    assert (flag.names, flag.negatives, flag.arity) == (positive, negative, 0)


@pytest.mark.parametrize(
    ("text", "name", "choices"),
    [
        (UPSTREAM, "-fa", ("on", "off", "auto")),
        (UPSTREAM, "--split-mode", ("none", "layer", "row", "tensor")),
        (UPSTREAM, "--cpu-strict", ("0", "1")),
        (UPSTREAM, "--load-mode", ("auto", "none", "mmap", "mlock", "mmap+mlock", "dio")),
        (UPSTREAM, "--reasoning-format", ("none", "deepseek", "deepseek-legacy", "auto")),
        (UPSTREAM, "--tensor-split", ()),
        (UPSTREAM, "--device", ()),
        (UPSTREAM, "--poll", ()),
        (FORK, "--spec-type", ("none", "mtp", "ngram-cache", *NGRAMS)),
        (FORK, "-ctv", (*PLAIN_TYPES, "turbo2", "turbo3", "turbo4")),
        (UPSTREAM, "-ctv", PLAIN_TYPES),
    ],
)
def test_choices_come_from_the_hint_the_list_or_the_bullets(
    text: str, name: str, choices: tuple[str, ...]
) -> None:
    assert _flag(text, name).choices == choices


def test_the_comma_list_of_the_newer_dialect_is_a_list_of_choices() -> None:
    flag = _flag(UPSTREAM, "--spec-type")
    assert flag.choices[:2] == ("none", "draft-simple")
    assert "draft-mtp" in flag.choices
    assert len(flag.choices) == 11


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("--ctx-size", "0"),
        ("--flash-attn", "auto"),
        ("--spec-draft-n-max", "3"),
        ("--reasoning", "auto"),
        ("--ctx-checkpoints", "32"),
        ("--path", ""),
        ("--model", None),
        ("--samplers", "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature"),
    ],
)
def test_defaults_are_read(name: str, default: str | None) -> None:
    assert _flag(UPSTREAM, name).default == default


def test_the_fork_has_its_own_default_for_the_draft_length() -> None:
    assert _flag(FORK, "--spec-draft-n-max").default == "16"


def test_removed_options_are_marked() -> None:
    removed = {flag.name for flag in parse_help(UPSTREAM) if flag.removed}
    assert removed == {
        "--draft",
        "--draft-min",
        "--spec-ngram-size-n",
        "--spec-ngram-size-m",
        "--spec-ngram-min-hits",
    }


def test_an_option_may_take_two_values() -> None:
    assert _flag(UPSTREAM, "--control-vector-layer-range").arity == 2
    assert _flag(FORK, "--spec-replace").arity == 2


def test_lines_that_are_no_options_are_reported_and_do_no_harm() -> None:
    text = "loading backends\n\n----- common params -----\n-m,    --model FNAME  the model\nend of help\n"
    assert [flag.names for flag in parse_help(text)] == [("-m", "--model")]
    assert unparsed_lines(text) == ("loading backends", "end of help")


def test_only_the_first_four_mebibytes_are_read() -> None:
    text = "--first  one\n" + " " * (4 * 1024 * 1024) + "\n--last  two\n"
    assert [flag.name for flag in parse_help(text)] == ["--first"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "version: 0.6.0-dev (build 11434, commit 628dc6471)\nbuilt with GNU",
            Version("0.6.0-dev", 11434, "628dc6471"),
        ),
        ("version: 9123 (67f38aa53)\nbuilt with cc", Version("9123", 9123, "67f38aa53")),
        ("ggml_cuda_init: found 2\nversion: 0 (unknown)", Version("0", 0, "unknown")),
        ("\nsome other tool 1.0\n", Version("some other tool 1.0", 0, "unknown")),
        ("", Version("", 0, "unknown")),
        ("version: 99999999999999999999 (x)", Version("99999999999999999999", 0, "x")),
    ],
)
def test_versions_of_both_dialects_are_read(text: str, expected: Version) -> None:
    assert parse_version(text) == expected


def test_devices_are_read_and_none_is_no_device() -> None:
    text = (
        "Available devices:\n"
        "  CUDA0: NVIDIA GeForce RTX 3090 (24135 MiB, 23800 MiB free)\n"
        "  Vulkan1: AMD Radeon (RADV NAVI31) (24560 MiB, 24000 MiB free)\n"
    )
    assert parse_devices(text) == (
        Device("CUDA0", "NVIDIA GeForce RTX 3090", 24135, 23800),
        Device("Vulkan1", "AMD Radeon (RADV NAVI31)", 24560, 24000),
    )
    assert parse_devices("Available devices:\n  (none)\n") == ()


LINES = st.sampled_from(
    [*UPSTREAM.splitlines(), "version: 1 (x)", "  CUDA0: x (1 MiB, 1 MiB free)", "--", "-", "-\x00"]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(LINES, st.text(max_size=120)), max_size=30))
def test_any_text_is_parsed_without_a_crash(lines: list[str]) -> None:
    text = "\n".join(lines)
    for flag in parse_help(text):
        assert flag.names
        assert flag.name
        assert "\x00" not in flag.help
    parse_version(text)
    parse_devices(text)
