"""Free arguments: what is split, what is refused, and what the refusal says."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from
from controlpanel.llamacpp.extra_args import ExtraArgsError, check_extra, parse_extra
from controlpanel.llamacpp.problems import Problem

HELP = Path(__file__).parent.parent / "data" / "help"
UPSTREAM = capabilities_from((HELP / "upstream-b11434.txt").read_text())
FORK = capabilities_from((HELP / "help-fork.txt").read_text())


def _texts(problems: list[Problem]) -> str:
    assert {problem.field for problem in problems} <= {"extra_args"}
    return " ".join(str(problem.message) for problem in problems)


def _refused(caps: Capabilities, *args: str) -> str:
    problems = check_extra(args, caps)
    assert [problem.level for problem in problems] == ["error"], args
    return _texts(problems)


def test_text_is_split_as_a_shell_does_over_several_lines() -> None:
    text = "--temp 0.7\n--chat-template-kwargs '{\"enable_thinking\": false}' \\\n  --no-warmup"
    assert parse_extra(text) == [
        "--temp",
        "0.7",
        "--chat-template-kwargs",
        '{"enable_thinking": false}',
        "--no-warmup",
    ]
    assert parse_extra("  \n") == []
    assert parse_extra("--seed $(id) `id` ; # x") == ["--seed", "$(id)", "`id`", ";", "#", "x"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("--grammar 'x", "quotation mark"),
        ('--grammar "x', "quotation mark"),
        ("--temp 1 \\", "backslash"),
        ("--temp\x001", "NUL"),
        ("x" * 16_001, "16000"),
        ("-v " * 301, "300"),
    ],
)
def test_text_that_cannot_be_split_is_explained(text: str, word: str) -> None:
    with pytest.raises(ExtraArgsError) as caught:
        parse_extra(text)
    assert word in str(caught.value.message)


@pytest.mark.parametrize("caps", [UPSTREAM, FORK])
def test_ordinary_arguments_pass(caps: Capabilities) -> None:
    text = "-n -1 --typical 0.9 --no-webui -ot 'exps=CPU' --numa distribute --no-context-shift"
    assert check_extra(parse_extra(text), caps) == []


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("-m", "x.gguf"), "field Model"),
        (("--model", "x.gguf"), "field Model"),
        (("--model=x.gguf",), "field Model"),
        (("-mm", "x"), "Vision projector"),
        (("--mmproj", "x"), "Vision projector"),
        (("--host", "0.0.0.0"), "address"),
        (("--reuse-port",), "address"),
        (("--port", "80"), "field Port"),
        (("--port=80",), "field Port"),
        (("-a", "x"), "name"),
        (("--alias", "x"), "name"),
        (("--api-key", "x"), "secret key"),
        (("--api_key", "x"), "secret key"),
        (("--api-key-file", "/x"), "secret key"),
        (("--ssl-key-file", "/x"), "TLS"),
        (("--ssl_cert_file=/x",), "TLS"),
        (("--path", "/etc"), "usual paths"),
        (("--api-prefix", "/x"), "usual paths"),
        (("--log-file", "/x"), "log"),
        (("--log-prompts-dir", "/x"), "what people ask"),
        (("--slot-save-path", "/x"), "files of the host"),
        (("--media-path", "/"), "files of the host"),
        (("--models-dir", "/x"), "page Profiles"),
        (("--models-max", "1"), "page Profiles"),
        (("--no-models-autoload",), "page Profiles"),
        (("--rpc", "h:1"), "cannot see"),
        (("-hf", "a/b"), "page Models"),
        (("-hfr", "a/b"), "page Models"),
        (("--hf-repo", "a/b"), "page Models"),
        (("--hf_file", "x"), "page Models"),
        (("-hft", "t"), "page Models"),
        (("-hfd", "a/b"), "page Models"),
        (("--spec-draft-hf", "a/b"), "page Models"),
        (("-mu", "http://x"), "page Models"),
        (("-mmu", "http://x"), "page Models"),
        (("-dr", "x"), "page Models"),
        (("--gpt-oss-20b-default",), "page Models"),
        (("--props",), "page Profiles"),
        (("--metrics",), "itself"),
        (("--no-slots",), "itself"),
        (("--log-colors", "on"), "log"),
        (("--tools", "all"), "run programs"),
        (("--agent",), "run programs"),
        (("-ag",), "run programs"),
        (("--mcp-servers-json", "{}"), "run programs"),
        (("--video-ffmpeg-dir", "/x"), "run programs"),
        (("--help",), "page Builds"),
        (("--list-devices",), "page Builds"),
        (("--version",), "page Builds"),
    ],
)
def test_flags_of_the_panel_are_refused_with_the_place_that_does_it(args: tuple[str, ...], word: str) -> None:
    text = _refused(UPSTREAM, *args)
    assert word in text
    assert text.startswith(args[0].partition("=")[0].replace("_", "-"))


def test_a_refused_flag_is_refused_even_where_a_value_is_expected() -> None:
    problems = check_extra(["--reverse-prompt", "--host", "--temp", "1"], UPSTREAM)
    assert "--host" in _texts(problems)


def test_another_spelling_that_a_fork_adds_is_refused_as_well() -> None:
    caps = capabilities_from("-m,    --model FNAME  m\n--port, --listen-port N  port\n")
    assert "field Port" in _refused(caps, "--listen-port", "80")


def test_an_unknown_flag_is_answered_with_near_spellings() -> None:
    text = _refused(UPSTREAM, "--top-kk", "3")
    assert "--top-k" in text
    assert "--flash-attn" in _refused(UPSTREAM, "--flash-attention")
    assert "no flag" in _refused(UPSTREAM, "--qqqqqqqqqqqq", "a", "b")


def test_an_equals_sign_is_corrected() -> None:
    assert "space after --temp" in _refused(UPSTREAM, "--temp=0.7")


def test_a_missing_value_is_noticed() -> None:
    assert "needs a value" in _refused(UPSTREAM, "-fa")
    assert "needs a value" in _refused(UPSTREAM, "--control-vector-layer-range", "1")


@pytest.mark.parametrize("word", ["value", "-1", "\u2212\u2212port", ""])
def test_a_word_that_belongs_to_no_flag_is_refused(word: str) -> None:
    assert "belongs to none" in _refused(UPSTREAM, "--special", word)


def test_a_removed_flag_is_answered_with_its_successor() -> None:
    assert "Draft tokens" in _refused(UPSTREAM, "--draft-max", "4")
    assert "Fewest draft tokens" in _refused(UPSTREAM, "--draft-min", "1")
    assert "--spec-ngram-mod-n-match" in _refused(UPSTREAM, "--spec-ngram-size-n", "4")


@pytest.mark.parametrize(
    ("caps", "args", "word"),
    [
        (UPSTREAM, ("--mtp",), "Speculation"),
        (UPSTREAM, ("--mtp-n-predict", "4"), "Draft tokens"),
        (FORK, ("--mtp-logit-threshold", "0.8"), "--spec-draft-p-min"),
        (UPSTREAM, ("--rope-scaling-factor", "4"), "--rope-scale"),
        (UPSTREAM, ("--rope_scaling_type", "yarn"), "--rope-scaling yarn"),
        (UPSTREAM, ("--no-mmap",), "Load mode"),
        (UPSTREAM, ("--no_mmap",), "Load mode"),
        (UPSTREAM, ("--mlock",), "Load mode"),
        (UPSTREAM, ("-dio",), "Load mode"),
        (FORK, ("--load-mode", "none"), "Load mode"),
        (FORK, ("-lm", "none"), "Load mode"),
        (UPSTREAM, ("--spec-type", "mtp"), "draft-mtp"),
        (FORK, ("--spec-type", "draft-mtp"), "calls MTP mtp"),
        (FORK, ("-ctk", "turbo8"), "no turbo8 in any build"),
        (FORK, ("-ctk", "turbo8"), "turbo2, turbo3, turbo4"),
        (FORK, ("turbo8",), "turbo2, turbo3 and turbo4"),
        (UPSTREAM, ("-ctv", "turbo4"), "q8_0"),
        (UPSTREAM, ("--mtp=true",), "Speculation to MTP"),
        (UPSTREAM, ("--mtp-heads", "2"), "Speculation and Draft tokens"),
        (UPSTREAM, ("--nextn", "2"), "Speculation to MTP"),
        (UPSTREAM, ("--no-mtp",), "Speculation to none"),
        (UPSTREAM, ("--lookahead", "4"), "--spec-type"),
        (UPSTREAM, ("--eagle3",), "--spec-type"),
        (FORK, ("--dflash",), "--spec-type"),
        (UPSTREAM, ("-DLLAMA_MTP=ON",), "need no option"),
        (UPSTREAM, ("-DLLAMA_CUDA=ON",), "GGML_CUDA"),
        (UPSTREAM, ("-DLLAMA_CUBLAS=ON",), "GGML_CUDA"),
        (UPSTREAM, ("-DLLAMA_AVX512=OFF",), "GGML_AVX"),
        (UPSTREAM, ("-DGGML_CUDA=ON",), "page Builds"),
        (UPSTREAM, ("-DCMAKE_CUDA_ARCHITECTURES=86",), "page Builds"),
        (UPSTREAM, ("-T", "v142"), "page Builds"),
        (UPSTREAM, ('{"mtp": true}',), "Speculation"),
        (UPSTREAM, ('"mtp":true',), "Speculation"),
        (UPSTREAM, ("mtp:",), "Speculation"),
        (UPSTREAM, ("llama.mtp.n_predict=4",), "nextn_predict_layers"),
        (UPSTREAM, ("llama.mtp",), "nextn_predict_layers"),
        (UPSTREAM, ("llama.rope.freq_base",), "architecture's own name"),
        (UPSTREAM, ("CUDA_VISIBLE_DEVICES=0",), "under Environment"),
        (UPSTREAM, ("LLAMA_API_KEY=secret",), "LLAMA_API_KEY: this is a variable"),
        (UPSTREAM, ("-cd", "4096"), "context of the model"),
        (UPSTREAM, ("--ctx-size-draft", "4096"), "context of the model"),
        (UPSTREAM, ("--spec-draft-replace", "a", "b"), "vocabulary of the model"),
        (UPSTREAM, ("--checkpoint-every-n-tokens", "8192"), "calls --checkpoint-every-n-tokens --check"),
        (FORK, ("--no-ui",), "--no-webui"),
        (UPSTREAM, ("--spec-type", "ngram-mod,lookahead"), "lookahead"),
    ],
)
def test_advice_from_the_web_is_answered_with_what_is_right(
    caps: Capabilities, args: tuple[str, ...], word: str
) -> None:
    assert word in _refused(caps, *args)


def test_flags_of_one_dialect_pass_there() -> None:
    assert check_extra(["-dio", "-cd", "4096", "-ngld", "all"], FORK) == []
    assert check_extra(["--spec-type", "draft-mtp,ngram-mod", "-ngld", "all"], UPSTREAM) == []


def test_a_build_without_layers_for_drafts_is_answered_with_what_has_them() -> None:
    caps = capabilities_from("-m,    --model FNAME  m\n--port N  port\n")
    assert "--spec-draft-ngl" in _refused(caps, "--n-gpu-layers-draft", "99")
    assert "Load mode" in _refused(UPSTREAM, "--no-mmap")


def test_files_are_refused_outside_registered_folders(tmp_path: Path) -> None:
    folder = tmp_path / "allowed"
    folder.mkdir()
    inside = folder / "chat template.jinja"
    inside.write_text("")
    (folder / "link").symlink_to("/etc/passwd")
    for name in (
        "--chat-template-file",
        "--grammar-file",
        "-jf",
        "--lora",
        "--control-vector",
        "-md",
        "-lcd",
    ):
        assert "no folder is registered" in _refused(UPSTREAM, name, str(inside))
        assert check_extra([name, str(inside)], UPSTREAM, allowed_folders=[folder]) == []
    bad = [
        "/etc/passwd",
        f"{folder}/../secret",
        f"{folder}/link",
        "chat.jinja",
        str(tmp_path),
        f"{folder}-x/y",
        "~/x",
    ]
    for path in bad:
        problems = check_extra(["--chat-template-file", path], UPSTREAM, allowed_folders=[folder])
        assert "outside the registered folders" in _texts(problems), path


def test_each_file_of_a_list_must_be_inside(tmp_path: Path) -> None:
    good = f"{tmp_path}/a.gguf"
    assert check_extra(["--lora", f"{good},{tmp_path}/b.gguf"], UPSTREAM, allowed_folders=[tmp_path]) == []
    assert check_extra(["--lora-scaled", f"{good}:0.5"], UPSTREAM, allowed_folders=[tmp_path]) == []
    for value in (f"{good},/etc/passwd", f"{good}:0.5,/etc/passwd:1", f'{good},"/etc/passwd"'):
        assert check_extra(["--lora-scaled", value], UPSTREAM, allowed_folders=[tmp_path]) != []


def test_risky_but_allowed_flags_come_with_a_warning() -> None:
    problems = check_extra(["-lv", "2"], UPSTREAM)
    assert [problem.level for problem in problems] == ["warning"]
    assert check_extra(["-lv", "5"], UPSTREAM) == []
    assert check_extra(["-lv", "2"], FORK) == []


@pytest.mark.parametrize(("value", "told"), [("abc", True), ("0.7", False), ("-1", False), ("1e-3", False)])
def test_a_word_where_a_number_belongs_comes_with_a_warning(value: str, told: bool) -> None:
    found = check_extra(["--keep", value], UPSTREAM)
    assert ([problem.level for problem in found] == ["warning"]) == told


def test_nul_is_refused_in_stored_arguments_too() -> None:
    assert "NUL" in _texts(check_extra(["--grammar", "a\x00b"], UPSTREAM))


WORDS = st.one_of(st.sampled_from(sorted(UPSTREAM.index)), st.text(max_size=12))


@settings(max_examples=300, deadline=None)
@given(st.lists(WORDS, max_size=8))
def test_no_order_of_words_lets_a_refused_flag_pass(words: list[str]) -> None:
    refused = {"-m", "--model", "--host", "--port", "--api-key", "--tools", "-hf", "--path", "--media-path"}
    problems = check_extra(words, UPSTREAM)
    if refused.intersection(words):
        assert any(problem.level == "error" for problem in problems)
