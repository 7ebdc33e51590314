"""Profiles become command lines of both dialects, or problems in words."""

import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from
from controlpanel.llamacpp.command import Line, Managed, Rendered, render, shell_preview
from controlpanel.llamacpp.facts import ModelFacts
from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.problems import errors
from tests.unit.drawn_profiles import extremes

HELP = Path(__file__).parent.parent / "data" / "help"
UPSTREAM = capabilities_from((HELP / "upstream-b11434.txt").read_text(), "version: 1 (a)")
FORK = capabilities_from((HELP / "help-fork.txt").read_text(), "version: 9123 (67f38aa53)")
TWO_GPUS = "".join(f"  CUDA{n}: RTX 3090 (24135 MiB, 23800 MiB free)\n" for n in (0, 1))
MANAGED = Managed(model="/m/M.gguf", mmproj=None, alias="NAME", port=18080)
FACTS = ModelFacts("qwen35", context_length=262_144, mtp_heads=1, embedding_length=5120)


def _render(
    caps: Capabilities,
    values: dict[str, object],
    *extra: str,
    managed: Managed = MANAGED,
    model: ModelFacts | None = None,
) -> Rendered:
    return render(caps, values, extra, managed, model)


def _found(rendered: Rendered, level: str) -> dict[str, str]:
    return {p.field: str(p.message) for p in rendered.problems if p.level == level}


RECIPE: dict[str, object] = {
    "ctx_size": 204_800,
    "gpu_layers": "all",
    "flash_attn": "on",
    "ubatch": 512,
    "speculation": "mtp",
    "draft_max": 3,
    "draft_type_k": "q8_0",
    "draft_type_v": "q8_0",
    "parallel": 1,
    "cache_type_k": "q8_0",
}


def test_the_recipe_renders_for_upstream() -> None:
    managed = Managed("/m/M.gguf", "/m/P.gguf", "NAME", 18080, config_home="/empty")
    rendered = _render(UPSTREAM, {**RECIPE, "cache_type_v": "q8_0", "load_mode": "none"}, managed=managed)
    assert shlex.join(rendered.argv) == (
        "--model /m/M.gguf --mmproj /m/P.gguf --alias NAME --host 127.0.0.1 --port 18080 --metrics --slots "
        "--sse-ping-interval 2 -lv 4 --log-colors off "
        "--ctx-size 204800 --parallel 1 --cache-type-k q8_0 --cache-type-v q8_0 --flash-attn on "
        "--gpu-layers all "
        "--spec-type draft-mtp --spec-draft-n-max 3 --spec-draft-type-k q8_0 --spec-draft-type-v q8_0 "
        "--load-mode none --ubatch-size 512"
    )
    assert rendered.env == {"XDG_CONFIG_HOME": "/empty"}
    assert rendered.problems == []


def test_variables_go_with_the_command_and_the_panels_own_one_wins() -> None:
    managed = Managed("/m/M.gguf", None, "NAME", 18080, config_home="/empty")
    given = {"CUDA_VISIBLE_DEVICES": "GPU-8932f937", "XDG_CONFIG_HOME": "/etc"}
    rendered = render(UPSTREAM, {}, [], managed, environment=given)
    assert rendered.env == {"CUDA_VISIBLE_DEVICES": "GPU-8932f937", "XDG_CONFIG_HOME": "/empty"}
    assert [problem.field for problem in errors(rendered.problems)] == ["environment"]
    assert "XDG_CONFIG_HOME" in _found(rendered, "error")["environment"]


def test_the_same_recipe_renders_for_the_fork() -> None:
    rendered = _render(FORK, {**RECIPE, "cache_type_v": "turbo4", "load_mode": "none"}, model=FACTS)
    assert shlex.join(rendered.argv) == (
        "--model /m/M.gguf --alias NAME --host 127.0.0.1 --port 18080 --metrics --slots "
        "--ctx-size 204800 --parallel 1 --cache-type-k q8_0 --cache-type-v turbo4 --flash-attn on "
        "--gpu-layers all "
        "--spec-type mtp --spec-draft-n-max 3 --spec-draft-type-k q8_0 --spec-draft-type-v q8_0 "
        "--no-mmap --ubatch-size 512"
    )
    assert rendered.env == {}
    assert rendered.problems == []


def test_untouched_fields_are_not_passed() -> None:
    empty = _render(UPSTREAM, {})
    assert _render(UPSTREAM, dict.fromkeys(MEANINGS)) == empty
    assert {line.source for line in empty.lines} == {"managed"}


def test_no_speculation_is_passed_only_when_chosen() -> None:
    assert "--spec-type" not in _render(UPSTREAM, {}).argv
    assert _render(UPSTREAM, {"speculation": "none"}).lines[-1] == Line("--spec-type", "none", "passed")


def test_lines_tell_where_each_flag_comes_from_and_make_up_the_arguments() -> None:
    rendered = _render(
        UPSTREAM, {"parallel": 2}, "--temp", "0.7", "--no-warmup", "--control-vector-layer-range", "1", "2"
    )
    assert rendered.lines[0] == Line("--model", "/m/M.gguf", "managed")
    assert rendered.lines[-4:] == [
        Line("--parallel", "2", "passed"),
        Line("--temp", "0.7", "extra"),
        Line("--no-warmup", None, "extra"),
        Line("--control-vector-layer-range", "1 2", "extra"),
    ]
    words = " ".join(f"{line.flag} {line.value}" if line.value else line.flag for line in rendered.lines)
    assert words == " ".join(rendered.argv)


def test_a_build_gets_only_the_managed_flags_it_has() -> None:
    caps = capabilities_from("-m,    --model FNAME  model\n--host HOST  host\n--port PORT  port\n")
    assert _render(caps, {}).argv == ["--model", "/m/M.gguf", "--host", "127.0.0.1", "--port", "18080"]


def test_an_own_verbosity_replaces_the_managed_one() -> None:
    assert _render(UPSTREAM, {}, "-lv", "5").argv.count("-lv") == 1
    assert _render(UPSTREAM, {}, "--log_verbosity", "5").argv.count("-lv") == 0


def test_a_program_that_is_no_server_is_refused() -> None:
    found = _found(_render(capabilities_from("-m,    --model FNAME  model\n"), {}), "error")
    assert "--port" in found["build"]


def test_an_unknown_setting_is_an_error() -> None:
    assert "colour" in _found(_render(UPSTREAM, {"colour": 1}), "error")["colour"]


@pytest.mark.parametrize("value", [0, 256, 16_777_216, "4096"])
def test_a_context_size_within_bounds_is_passed(value: object) -> None:
    assert f"--ctx-size {value}" in shlex.join(_render(UPSTREAM, {"ctx_size": value}).argv)


@pytest.mark.parametrize("value", [1, 255, -1, 16_777_217, 10**30, "many", "4e3", 4096.0, True, [], "٤٠٩٦"])
def test_a_context_size_out_of_bounds_is_refused_with_words(value: object) -> None:
    rendered = _render(UPSTREAM, {"ctx_size": value})
    assert "--ctx-size" not in rendered.argv
    assert len(_found(rendered, "error")["ctx_size"]) > 40


def test_an_absurd_context_names_the_largest_one() -> None:
    assert "16777216" in _found(_render(UPSTREAM, {"ctx_size": 10**12}), "error")["ctx_size"]


@pytest.mark.parametrize(
    ("key", "good", "bad"),
    [
        ("gpu_layers", [0, 99, "99", "auto", "all"], [-1, "most", 10_001]),
        ("draft_max", [1, 64], [0, 65, "x"]),
        ("parallel", [1, 256], [0, -1, 257]),
        ("flash_attn", ["on", "off", "auto"], ["yes", True, 1]),
        ("cache_type_k", ["f16", "q4_0"], ["turbo8", "Q8_0", 8]),
        ("draft_type_v", ["q8_0"], ["turbo4"]),
        ("load_mode", ["auto", "mmap", "none", "mlock", "dio"], ["fast"]),
        ("speculation", ["none", "mtp"], ["draft-mtp", "ngram", 1]),
        ("tensor_split", ["1", "3,1", "1/1", "0.5,0.5"], ["", "a,b", "0,0", "1,", "1;2", 1]),
        ("batch", [2048], [0]),
        ("ubatch", [512], [70_000]),
        ("threads", [8], [0, 2_000]),
    ],
)
def test_each_field_takes_its_values_and_refuses_others(
    key: str, good: list[object], bad: list[object]
) -> None:
    for value in good:
        assert key not in _found(_render(UPSTREAM, {key: value}), "error"), value
    for value in bad:
        rendered = _render(UPSTREAM, {key: value})
        assert key in _found(rendered, "error"), value
        assert {line.source for line in rendered.lines} == {"managed"}


def test_every_field_of_the_registry_renders_for_both_dialects() -> None:
    for caps in (UPSTREAM, FORK):
        for key, meaning in MEANINGS.items():
            value = extremes(key, caps)[-1]
            passed = [line for line in _render(caps, {key: value}).lines if line.source == "passed"]
            assert len(passed) == 1, key
            assert caps.has(passed[0].flag)
            assert meaning.label
            assert meaning.help


def test_fields_offer_what_the_build_knows() -> None:
    assert "turbo4" in MEANINGS["cache_type_k"].offered(FORK)
    assert "turbo4" not in MEANINGS["cache_type_k"].offered(UPSTREAM)
    assert MEANINGS["load_mode"].offered(FORK) == ("auto", "mmap", "none", "mlock")
    assert "dio" in MEANINGS["load_mode"].offered(UPSTREAM)
    assert MEANINGS["speculation"].offered(capabilities_from("--model X  m")) == ("none",)
    assert MEANINGS["ctx_size"].offered(UPSTREAM) == ()


def test_a_cache_type_of_another_fork_is_answered_with_what_this_build_offers() -> None:
    text = _found(_render(UPSTREAM, {"cache_type_k": "turbo4"}), "error")["cache_type_k"]
    assert "f32, f16, bf16, q8_0" in text
    assert "TurboQuant" in text
    text = _found(_render(FORK, {"cache_type_k": "turbo8"}), "error")["cache_type_k"]
    assert "turbo2, turbo3, turbo4" in text


def test_mtp_on_a_build_without_it_is_answered_with_what_it_has() -> None:
    without = capabilities_from("--model X  m\n--port N  p\n--spec-type [none|ngram-mod]  kinds\n")
    text = _found(_render(without, {"speculation": "mtp"}), "error")["speculation"]
    assert "none, ngram-mod" in text
    older = capabilities_from("--model X  m\n--port N  p\n")
    assert "no speculative decoding" in _found(_render(older, {"speculation": "mtp"}), "error")["speculation"]


@pytest.mark.parametrize(
    ("mode", "words"), [("auto", []), ("mmap", ["--mmap"]), ("none", ["--no-mmap"]), ("mlock", ["--mlock"])]
)
def test_load_modes_of_the_older_dialect(mode: str, words: list[str]) -> None:
    rendered = _render(FORK, {"load_mode": mode})
    assert [line.flag for line in rendered.lines if line.source == "passed"] == words
    assert errors(rendered.problems) == []


def test_a_share_per_gpu_at_most() -> None:
    caps = capabilities_from((HELP / "upstream-b11434.txt").read_text(), "", TWO_GPUS)
    assert _found(_render(caps, {"tensor_split": "1,1"}), "error") == {}
    assert "2 GPUs" in _found(_render(caps, {"tensor_split": "1,1,1"}), "error")["tensor_split"]


def test_problems_of_the_extra_arguments_come_with_the_rest() -> None:
    assert "Port" in _found(_render(UPSTREAM, {}, "--port", "1"), "error")["extra_args"]


def test_the_preview_can_be_pasted_into_a_shell() -> None:
    argv = ["/opt/llama server", "--model", "/m/a 'b'.gguf", "--alias", "$HOME"]
    assert shlex.split(shell_preview(argv)) == argv


ANY = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.lists(st.integers())
)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.sampled_from([*MEANINGS, "unknown"]), ANY), st.lists(st.text(max_size=12), max_size=4)
)
def test_any_settings_render_to_texts_or_problems(values: dict[str, object], extra: list[str]) -> None:
    for caps in (UPSTREAM, FORK):
        rendered = render(caps, values, extra, MANAGED)
        assert all(isinstance(word, str) for word in rendered.argv)
        passed = {line.flag for line in rendered.lines if line.source == "passed"}
        assert all(caps.has(flag) for flag in passed)
        assert all(str(problem.message) for problem in rendered.problems)
