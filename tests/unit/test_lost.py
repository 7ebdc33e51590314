"""What another build cannot do of a profile, and what it writes in other words."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from controlpanel.llamacpp.capabilities import capabilities_from
from controlpanel.llamacpp.lost import Lost, lost, respelled
from tests.unit.drawn_profiles import environments, settings_of

HELP = Path(__file__).parent.parent / "data" / "help"
UPSTREAM = capabilities_from((HELP / "upstream-b11434.txt").read_text())
FORK = capabilities_from((HELP / "help-fork.txt").read_text())
BARE = capabilities_from("--model X  m\n--port N  p\n")


def by_key(found: list[Lost]) -> dict[str, str]:
    """What is lost, with the reason."""
    return {one.key: str(one.message) for one in found}


def test_values_that_only_one_dialect_has_are_lost_in_the_other() -> None:
    values: dict[str, object] = {
        "cache_type_k": "turbo4",
        "speculation": "mtp",
        "load_mode": "none",
        "top_k": 5,
    }
    found = lost(values, [], {}, FORK, UPSTREAM)
    assert [(one.key, str(one.label), one.value) for one in found] == [
        ("cache_type_k", "KV cache type K", "turbo4")
    ]
    assert "TurboQuant" in str(found[0].message)
    back: dict[str, object] = {"load_mode": "dio", "log_prefix": "off", "log_timestamps": "on"}
    assert set(by_key(lost(back, [], {}, UPSTREAM, FORK))) == {"load_mode", "log_prefix"}


def test_a_build_without_the_flag_or_without_mtp_loses_the_field() -> None:
    found = by_key(lost({"speculation": "mtp", "ctx_size": 4096, "warmup": "off"}, [], {}, UPSTREAM, BARE))
    assert set(found) == {"speculation", "ctx_size", "warmup"}
    assert "no --ctx-size" in found["ctx_size"]


def test_what_did_not_work_before_either_is_not_lost() -> None:
    wrong: dict[str, object] = {"ctx_size": 1, "cache_type_k": "turbo8", "unknown": 1, "top_k": None}
    assert lost(wrong, ["--port", "1", "--nonsense"], {"LD_PRELOAD": "x"}, FORK, UPSTREAM) == []
    assert respelled(wrong, FORK, UPSTREAM) == []


def test_extra_arguments_that_the_new_build_does_not_know_are_lost() -> None:
    extra = [
        "--jinja",
        "--control-vector-layer-range",
        "1",
        "2",
        "--lora",
        "/x/a.gguf",
        "--mtmd-batch-max-tokens",
        "5",
    ]
    (found,) = lost({}, extra, {}, UPSTREAM, FORK)
    assert (found.key, found.value) == ("--mtmd-batch-max-tokens", "5")
    assert "no flag --mtmd-batch-max-tokens" in str(found.message)
    (gone,) = lost({}, ["--jinja", "-cd", "512"], {}, FORK, UPSTREAM)
    assert (gone.key, gone.value) == ("-cd", "512")
    (kind,) = lost({}, ["--spec-type", "draft-mtp,ngram-mod"], {}, UPSTREAM, FORK)
    assert kind.key == "--spec-type"


def test_turboquant_variables_are_lost_without_turboquant() -> None:
    found = lost({}, [], {"TURBO_LAYER_ADAPTIVE": "7", "CUDA_VISIBLE_DEVICES": "0"}, FORK, UPSTREAM)
    assert [(one.key, str(one.label), one.value) for one in found] == [
        ("TURBO_LAYER_ADAPTIVE", "Environment", "7")
    ]


def test_what_the_new_build_writes_differently_is_told_in_both_words() -> None:
    values: dict[str, object] = {"speculation": "mtp", "load_mode": "none", "ctx_size": 4096}
    assert respelled(values, FORK, UPSTREAM) == [
        ("speculation", "--spec-type mtp", "--spec-type draft-mtp"),
        ("load_mode", "--no-mmap", "--load-mode none"),
    ]
    assert respelled(values, FORK, FORK) == []


@settings(max_examples=100, deadline=None)
@given(
    settings_of(FORK),
    st.lists(
        st.sampled_from(["--jinja", "-cd", "1", "", " ", "--no-webui", "x", "--lora"]) | st.text(), max_size=6
    ),
    environments(),
)
def test_what_is_not_lost_works_with_the_new_build(
    values: dict[str, object], extra: list[str], variables: dict[str, str]
) -> None:
    found = lost(values, extra, variables, FORK, UPSTREAM)
    assert all(str(one.message) and isinstance(one.value, str) for one in found)
    gone = {one.key for one in found}
    assert gone.isdisjoint(key for key, _before, _after in respelled(values, FORK, UPSTREAM))
    assert (
        lost({key: value for key, value in values.items() if key not in gone}, [], {}, FORK, UPSTREAM) == []
    )
    assert lost(values, extra, variables, FORK, FORK) == []
