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
TOOLS = (
    *("read_file", "file_glob_search", "grep_search", "exec_shell_command"),
    *("write_file", "edit_file"),
)
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


@pytest.mark.parametrize(
    ("text", "defaults", "choices", "removed"), [(UPSTREAM, 181, 27, 5), (FORK, 162, 24, 5)]
)
def test_everything_that_a_real_help_text_tells_of_its_options_is_read(
    text: str, defaults: int, choices: int, removed: int
) -> None:
    flags = parse_help(text)
    assert sum(flag.default is not None for flag in flags) == defaults
    assert sum(bool(flag.choices) for flag in flags) == choices
    assert sum(flag.removed for flag in flags) == removed
    untold = [flag.name for flag in flags if "default:" in flag.help and flag.default is None]
    guessed = {flag.name for flag in flags if "default" not in flag.help and flag.default is not None}
    assert (untold, guessed) == ([], set())


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
        (FORK, "--tools", (*TOOLS, "apply_diff", "get_datetime")),
        (UPSTREAM, "--tools", (*TOOLS, "get_info")),
        (UPSTREAM, "--chat-template-file", ()),
        (UPSTREAM, "--override-kv", ()),
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
        ("--split-mode", "layer"),
        ("--rope-scaling", "linear unless specified by the model"),
        ("--yarn-orig-ctx", "0"),
        ("--cors-methods", "GET, POST, DELETE, OPTIONS"),
        ("--cache-idle-slots", "enabled"),
        ("--reasoning-budget", "-1"),
        ("--pooling", None),
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


OLDER = """usage: ./llama-server [options]

general:

  -h,    --help, --usage          print usage and exit
         --version                show version and build info
  -ctx-ckpt N, --ctx-checkpoints N
                                  max number of context checkpoints (default: 32)
  -fa, --flash-attn (auto|on|off|0|1)
                                  set Flash Attention (default: on)
          --swa-compress          allocate sliding-window layers at window size (default: 0)

context hacking:

  -ctk,  --cache-type-k TYPE      KV cache data type for K (default: f16)
  -ctk-last,  --cache-type-k-last  TYPE,N
                                  KV cache data type for the last N layers of K  (default: f16,-1)

model:

  -m,    --model FNAME            model path (default: models/$filename with filename from --hf-file
                                  or --model-url if set, otherwise models/7B/ggml-model-f16.gguf)
  --spec-type SPEC[:k=v,...]      canonical speculative stage entry; repeat for a supported two-stage chain.
                                  types: none, draft, mtp, ngram-cache, suffix
                                  examples: --spec-type mtp:n_max=1,p_min=0.0
"""


def test_the_older_layout_of_ik_llama_is_read() -> None:
    flags = {flag.name: flag for flag in parse_help(OLDER)}
    assert list(flags) == [
        *("--help", "--version", "--ctx-checkpoints", "--flash-attn", "--swa-compress"),
        *("--cache-type-k", "--cache-type-k-last", "--model", "--spec-type"),
    ]
    assert unparsed_lines(OLDER) == ("usage: ./llama-server [options]",)
    assert flags["--help"].names == ("-h", "--help", "--usage")
    assert (flags["--ctx-checkpoints"].names, flags["--ctx-checkpoints"].hint) == (
        ("-ctx-ckpt", "--ctx-checkpoints"),
        "N",
    )
    assert flags["--flash-attn"].choices == ("auto", "on", "off", "0", "1")
    assert flags["--flash-attn"].default == "on"
    assert (flags["--swa-compress"].hint, flags["--swa-compress"].section) == ("", "general")
    assert (flags["--cache-type-k"].default, flags["--cache-type-k"].section) == ("f16", "context hacking")
    assert flags["--cache-type-k-last"].hint == "TYPE,N"
    assert flags["--model"].hint == "FNAME"
    assert flags["--spec-type"].choices == ("none", "draft", "mtp", "ngram-cache", "suffix")


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
    [
        *UPSTREAM.splitlines(),
        *OLDER.splitlines(),
        "version: 1 (x)",
        "  CUDA0: x (1 MiB, 1 MiB free)",
        "--",
        "-",
        "-\x00",
    ]
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
