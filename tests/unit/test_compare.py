"""What differs between two builds, told from their own help texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from
from controlpanel.llamacpp.compare import Changed, Comparison, Renamed, compare
from controlpanel.llamacpp.helptext import Flag, normalise

HELP = Path(__file__).parent.parent / "data" / "help"
DEVICES = "  CUDA0: NVIDIA GeForce RTX 3090 (24135 MiB, {free} MiB free)\n"
UPSTREAM = capabilities_from(
    (HELP / "upstream-b11434.txt").read_text(), "version: 0.6.0-dev (build 11434, commit abc)"
)
FORK = capabilities_from((HELP / "help-fork.txt").read_text(), "version: 9123 (67f38aa53)")

ONLY_UPSTREAM = [
    *("--rpc", "--lazy-mode", "--n-cpu-ffn", "--log-jsonl", "--spec-synth-len", "--spec-synth-rates"),
    *("--spec-draft-backend-sampling", "--spec-draft-sampling", "--kv-unified-per-slot", "--mmproj-device"),
    *("--mtmd-batch-max-tokens", "--video-fps", "--video-timestamp-interval", "--video-ffmpeg-dir"),
    *("--embd-normalize", "--cors-origins", "--cors-methods", "--cors-headers", "--cors-credentials"),
    *("--tools-runtime", "--mcp-servers-config", "--mcp-servers-json", "--agent", "--sse-ping-interval"),
    *("--reasoning-effort", "--reasoning-preserve", "--log-prompts-dir"),
]
ONLY_FORK = [
    *("--license", "--hf-repo-v", "--hf-file-v", "--spec-draft-ctx-size", "--spec-draft-replace"),
    *("--model-vocoder", "--tts-use-guide-tokens"),
]
LOADING = [
    ("--mmap", "--load-mode mmap"),
    ("--no-mmap", "--load-mode none"),
    ("--mlock", "--load-mode mlock"),
    ("--direct-io", "--load-mode dio"),
    ("--checkpoint-every-n-tokens", "--checkpoint-min-step"),
]
WEB = [
    ("--webui-config", "--ui-config"),
    ("--webui-config-file", "--ui-config-file"),
    ("--webui-mcp-proxy", "--ui-mcp-proxy"),
    ("--webui", "--ui"),
]
CACHE_FLAGS = ("--cache-type-k", "--cache-type-v", "--spec-draft-type-k", "--spec-draft-type-v")
TURBO = ("turbo2", "turbo3", "turbo4")
DEFAULTS = {
    "--dry-penalty-last-n": ("-1", "64"),
    "--spec-draft-n-max": ("16", "3"),
    "--spec-draft-p-min": ("0.75", "0.00"),
    "--spec-draft-device": (None, "follows --device"),
    "--timeout": ("600", "3600"),
}
# Under the names of upstream.
VARIABLES = {
    "--log-file": ("LLAMA_LOG_FILE", "LLAMA_ARG_LOG_FILE"),
    "--log-colors": ("LLAMA_LOG_COLORS", "LLAMA_ARG_LOG_COLORS"),
    "--offline": ("LLAMA_OFFLINE", "LLAMA_ARG_OFFLINE"),
    "--verbosity": ("LLAMA_LOG_VERBOSITY", "LLAMA_ARG_LOG_VERBOSITY"),
    "--log-prefix": ("LLAMA_LOG_PREFIX", "LLAMA_ARG_LOG_PREFIX"),
    "--log-timestamps": ("LLAMA_LOG_TIMESTAMPS", "LLAMA_ARG_LOG_TIMESTAMPS"),
    "--temp": (None, "LLAMA_ARG_TEMPERATURE"),
    "--top-p": (None, "LLAMA_ARG_TOP_P"),
    "--min-p": (None, "LLAMA_ARG_MIN_P"),
    "--repeat-penalty": (None, "LLAMA_ARG_REPEAT_PENALTY"),
    "--presence-penalty": (None, "LLAMA_ARG_PRESENCE_PENALTY"),
    "--frequency-penalty": (None, "LLAMA_ARG_FREQUENCY_PENALTY"),
    "--ui-config": ("LLAMA_ARG_WEBUI_CONFIG", "LLAMA_ARG_UI_CONFIG"),
    "--ui-config-file": ("LLAMA_ARG_WEBUI_CONFIG_FILE", "LLAMA_ARG_UI_CONFIG_FILE"),
    "--ui-mcp-proxy": ("LLAMA_ARG_WEBUI_MCP_PROXY", "LLAMA_ARG_UI_MCP_PROXY"),
    "--ui": ("LLAMA_ARG_WEBUI", "LLAMA_ARG_UI"),
    "--api-key-file": (None, "LLAMA_ARG_API_KEY_FILE"),
    "--chat-template-kwargs": ("LLAMA_CHAT_TEMPLATE_KWARGS", "LLAMA_ARG_CHAT_TEMPLATE_KWARGS"),
}
# (only the fork has, only upstream has)
CHOICES = {
    **dict.fromkeys(CACHE_FLAGS, (TURBO, ())),
    "--verbosity": ((), ("5",)),
    "--spec-type": (
        ("mtp",),
        ("draft-simple", "draft-eagle3", "draft-mtp", "draft-dflash", "draft-dspark"),
    ),
    "--tools": (("apply_diff", "get_datetime"), ("get_info",)),
    "--chat-template": (("hunyuan-ocr",), ("hunyuan-vl",)),
}
SPELLINGS = {"--log-prefix": "--no-log-prefix", "--log-timestamps": "--no-log-timestamps"}


def _build(*heads: str) -> Capabilities:
    """A build with these options, each with its help after two spaces."""
    return capabilities_from("\n".join(heads))


def _names(flags: tuple[Flag, ...]) -> list[str]:
    return [flag.name for flag in flags]


def _renames(found: Comparison) -> list[tuple[str, str]]:
    return [(rename.old, rename.new) for rename in found.renamed]


def _changed(found: Comparison) -> dict[str, Changed]:
    assert len({change.name for change in found.changed}) == len(found.changed)
    return {change.name: change for change in found.changed}


def test_from_the_fork_to_upstream_every_flag_that_came_went_or_got_another_name() -> None:
    found = compare(FORK, UPSTREAM)
    assert _names(found.added) == ONLY_UPSTREAM
    assert [(gone.flag.name, gone.words) for gone in found.removed] == [(name, "") for name in ONLY_FORK]
    assert found.renamed == (
        *(Renamed(old, new, accepted=True) for old, new in WEB),
        *(Renamed(old, new) for old, new in LOADING),
    )
    assert not found.same
    assert found.flag_count == 27 + 7 + 9 + len(found.changed)


def test_from_upstream_to_the_fork_the_same_lists_are_turned_round() -> None:
    found = compare(UPSTREAM, FORK)
    assert _names(found.added) == ONLY_FORK
    assert [gone.flag.name for gone in found.removed] == ONLY_UPSTREAM
    assert found.renamed == tuple(Renamed(new, old) for old, new in [*WEB, *LOADING])


def test_from_the_fork_to_upstream_everything_that_changed_within_a_flag() -> None:
    changes = _changed(compare(FORK, UPSTREAM))
    assert set(changes) == {*DEFAULTS, *VARIABLES, *CHOICES, *SPELLINGS}
    for name, change in changes.items():
        assert (change.default.old, change.default.new) == DEFAULTS.get(
            name, (change.default.new, change.default.new)
        )
        assert (change.env.old, change.env.new) == VARIABLES.get(name, (change.env.new, change.env.new))
        assert (change.choices.removed, change.choices.added) == CHOICES.get(name, ((), ()))
        assert change.spellings.added == ((SPELLINGS[name],) if name in SPELLINGS else ())
        assert change.spellings.removed == ()
        assert change.hint.differs == (name == "--spec-type")
    assert changes["--spec-type"].hint.old == (
        "[none|mtp|ngram-cache|ngram-simple|ngram-map-k|ngram-map-k4v|ngram-mod]"
    )


def test_from_upstream_to_the_fork_the_same_changes_are_turned_round() -> None:
    forth, back = _changed(compare(FORK, UPSTREAM)), _changed(compare(UPSTREAM, FORK))
    fork_names = {new: old for old, new in WEB}
    assert set(back) == {fork_names.get(name, name) for name in forth}
    for name, change in forth.items():
        other = back[fork_names.get(name, name)]
        assert (other.default.new, other.default.old) == (change.default.old, change.default.new)
        assert (other.env.new, other.env.old) == (change.env.old, change.env.new)
        assert (other.hint.new, other.hint.old) == (change.hint.old, change.hint.new)
        assert (other.choices.added, other.choices.removed) == (
            change.choices.removed,
            change.choices.added,
        )
        assert other.spellings.removed == change.spellings.added


def test_what_the_builds_tell_of_themselves_is_compared() -> None:
    found = compare(FORK, UPSTREAM)
    assert (found.version.old, found.version.new) == ("9123", "0.6.0-dev")
    assert (found.commit.old, found.commit.new) == ("67f38aa53", "abc")
    assert (found.mtp_value.old, found.mtp_value.new) == ("mtp", "draft-mtp")
    assert (found.load_mode.old, found.load_mode.new) == ("mmap", "load-mode")
    assert (found.log.old, found.log.new) == ("old", "new")
    assert (found.cache_types.removed, found.cache_types.added) == (TURBO, ())
    assert len(found.cache_types.shared) == 9
    assert found.spec_types.removed == ("mtp",)
    assert found.spec_types.added == CHOICES["--spec-type"][1]
    assert not found.devices.differs


@pytest.mark.parametrize("caps", [UPSTREAM, FORK, Capabilities()])
def test_a_build_differs_in_nothing_from_itself(caps: Capabilities) -> None:
    found = compare(caps, Capabilities.from_dict(caps.to_dict()))
    assert found.same
    assert (found.added, found.removed, found.renamed, found.changed) == ((), (), (), ())


def test_another_version_alone_is_no_difference_in_what_is_accepted() -> None:
    help_text = (HELP / "help-fork.txt").read_text()
    found = compare(FORK, capabilities_from(help_text, "version: 9124 (77777777)"))
    assert found.version.differs
    assert found.same


def test_devices_differ_by_what_they_are_and_not_by_their_free_memory() -> None:
    old, busy = (capabilities_from("", "", DEVICES.format(free=free)) for free in (24000, 1000))
    assert compare(old, busy).same
    found = compare(old, capabilities_from("", "", ""))
    assert found.devices.removed == ("CUDA0: NVIDIA GeForce RTX 3090, 24135 MiB",)
    assert not found.same


def test_flags_are_matched_by_spelling_and_not_by_place() -> None:
    first, second = "-a,    --alpha N  first (default: 1)", "--beta  second"
    assert compare(_build(first, second), _build(second, first)).same
    assert compare(_build("--alpha_one N  x"), _build("--alpha-one N  x")).same


def test_a_flag_that_is_only_listed_as_removed_is_removed_in_the_builds_own_words() -> None:
    gone = "--spec-ngram-size-n N  the argument has been removed. use --spec-ngram-mod-n-match"
    found = compare(_build("--spec-ngram-size-n N  lookup length"), _build(gone))
    assert [(one.flag.help, one.words) for one in found.removed] == [
        ("lookup length", "the argument has been removed. use --spec-ngram-mod-n-match")
    ]
    assert compare(_build(gone), _build()).same
    assert compare(_build(), _build(gone)).same
    assert _names(compare(_build(gone), _build("--spec-ngram-size-n N  back")).added) == [
        "--spec-ngram-size-n"
    ]


def test_a_known_rename_is_found_where_the_old_name_is_only_listed_as_removed() -> None:
    old = _build("--draft, --draft-n, --draft-max N  tokens to draft (default: 16)")
    new = _build(
        "--spec-draft-n-max N  tokens to draft (default: 3)",
        "--draft, --draft-n, --draft-max N  the argument has been removed. use --spec-draft-n-max",
    )
    found = compare(old, new)
    assert found.renamed == (Renamed("--draft-max", "--spec-draft-n-max"),)
    assert (found.added, found.removed, found.changed) == ((), (), ())


def test_a_rename_needs_the_new_name() -> None:
    found = compare(_build("--mlock  keep in RAM", "--webui  page"), _build("--ui  page"))
    assert _renames(found) == [("--webui", "--ui")]
    assert [gone.flag.name for gone in found.removed] == ["--mlock"]


def test_a_flag_split_in_two_is_neither_removed_nor_added() -> None:
    found = compare(_build("-x,    --one, --two N  both"), _build("--one N  both", "--two N  both"))
    assert (found.added, found.removed) == ((), ())
    assert [(c.name, c.spellings.removed) for c in found.changed] == [("--one", ("-x", "--two"))]


def test_the_partner_is_the_flag_with_the_most_shared_spellings() -> None:
    new = _build("--one N  first", "--two, --three N  second")
    found = compare(_build("--one, --two, --three N  all"), new)
    assert _renames(found) == [("--one", "--two")]
    assert found.renamed[0].accepted


def test_a_flag_that_is_listed_twice_counts_once() -> None:
    twice = _build("-m,    --model FNAME  the model", "-m,    --model  for another tool")
    assert compare(twice, twice).same
    [change] = compare(twice, _build("-m,    --model PATH  the model")).changed
    assert (change.hint.old, change.hint.new) == ("FNAME", "PATH")


def test_values_in_another_order_are_no_change() -> None:
    [change] = compare(_build("--mode {a,b,c}  how"), _build("--mode {c,a,b}  how")).changed
    assert change.hint.differs
    assert not change.choices.differs


def test_a_help_text_of_a_hundred_thousand_spellings_is_compared_at_once() -> None:
    many = ", ".join(f"--flag-{number}" for number in range(100_000))
    other = ", ".join(f"--flag-{number}" for number in range(1, 100_001))
    found = compare(_build(f"{many} N  x"), _build(f"{other} N  x"))
    assert _renames(found) == [("--flag-0", "--flag-1")]
    heads = [f"--flag-{number} N  x" for number in range(20_000)]
    assert len(compare(_build(*heads), _build()).removed) == 20_000


LINES = st.sampled_from(
    [
        line
        for name in ("upstream-b11434.txt", "help-fork.txt")
        for line in (HELP / name).read_text().splitlines()
    ]
)
TEXTS = st.lists(st.one_of(LINES, st.text(max_size=80), st.just("-a, -a, --a, --no-a X"))).map("\n".join)


@settings(max_examples=150, deadline=None)
@given(TEXTS, TEXTS)
def test_any_two_texts_are_compared_without_a_crash_and_without_contradiction(one: str, two: str) -> None:
    old, new = capabilities_from(one), capabilities_from(two)
    found = compare(old, new)
    accepted = {normalise(name) for flag in new.flags if not flag.removed for name in flag.all_names}
    for gone in found.removed:
        assert not accepted & {normalise(name) for name in gone.flag.all_names}
    for flag in found.added:
        assert not flag.removed
        assert flag in new.flags
    assert all(change.differs for change in found.changed)
    assert compare(old, old).same
    assert compare(new, old).spec_types.added == found.spec_types.removed
