"""A pasted command line becomes what a profile stores, with a word on every part of it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from
from controlpanel.llamacpp.command import Managed, render
from controlpanel.llamacpp.extra_args import check_extra
from controlpanel.llamacpp.importing import read_command
from controlpanel.llamacpp.importing_types import Imported
from controlpanel.llamacpp.problems import errors
from tests.unit.drawn_profiles import environments, settings_of

HELP = Path(__file__).parent.parent / "data" / "help"
UPSTREAM = capabilities_from((HELP / "upstream-b11434.txt").read_text(), "version: 1 (a)")
FORK = capabilities_from((HELP / "help-fork.txt").read_text(), "version: 9123 (67f38aa53)")
BUILDS = (UPSTREAM, FORK, None)


def said(found: Imported, flag: str) -> tuple[str, str]:
    """The kind and the text of the last line on a flag."""
    lines = [line for line in found.report if line.flag == flag]
    assert lines, [line.flag for line in found.report]
    return lines[-1].kind, str(lines[-1].message)


def kinds(found: Imported) -> dict[str, str]:
    """Each flag of the report with its kind."""
    return {line.flag: line.kind for line in found.report}


RECIPE = "-m /m/M.gguf --mmproj /m/P.gguf -c 8192 -ngl 99 -ts 3,1 -ctk q8_0 -ctv q8_0 -fa on -ub 512 -np 1"
SETTINGS: dict[str, object] = {
    "ctx_size": 8192,
    "gpu_layers": 99,
    "tensor_split": "3,1",
    "cache_type_k": "q8_0",
    "cache_type_v": "q8_0",
    "flash_attn": "on",
    "ubatch": 512,
    "parallel": 1,
}


@pytest.mark.parametrize("caps", BUILDS)
@pytest.mark.parametrize(
    "text",
    [
        f"llama-server {RECIPE}",
        f"/opt/llama.cpp/build/bin/llama-server {RECIPE} --port 8081",
        RECIPE,
        "./llama-server \\\n  " + RECIPE.replace(" -", " \\\r\n -"),
        f"llama-server {RECIPE.replace(' -', chr(10) + '  -')}",
        f"sudo -u llm nohup env A=1 llama-server {RECIPE} > /var/log/x.log 2>&1 &",
        f"exec 'llama-server' {RECIPE} | tee x",
        f"cd /opt && llama-server {RECIPE}; echo done",
        f"# the big one\nMODEL=/m/M.gguf\nllama-server {RECIPE.replace('/m/M.gguf', '${MODEL}')} # eight bit",
        f"bash -c 'llama-server {RECIPE}'",
        f"docker run -d --gpus all -p 8080:8080 -v /srv:/m --name llama-server img:server {RECIPE}",
        f"sudo podman run -it --rm -eA=1 --network=host img --server {RECIPE}",
        "[Service]\nUser=x\nEnvironment=MODEL=/m/M.gguf 'A=b c'\n"
        f"ExecStart=-/usr/bin/llama-server \\\n {RECIPE.replace('/m/M.gguf', '$MODEL')}\nRestart=always\n",
        f"docker exec -it box llama-server {RECIPE}",
        RECIPE.replace("-c 8192", "\N{EM DASH}ctx-size 8192").replace("-ngl", "\N{EN DASH}ngl"),
        f"set -e\n/opt/server {RECIPE}",
        f"time FOO=bar ./bash-like {RECIPE}",
        RECIPE.replace("-c 8192", "--ctx_size=8192").replace("-fa on", "-fa"),
    ],
)
def test_a_command_is_read_however_it_is_wrapped(text: str, caps: Capabilities | None) -> None:
    found = read_command(text, caps)
    assert found.settings == SETTINGS
    assert (found.model, found.mmproj, found.extra) == ("/m/M.gguf", "/m/P.gguf", ())
    assert found.port == (8081 if "8081" in text else None)
    assert "wrong" not in kinds(found).values()


def test_parts_of_the_shell_are_said_to_be_left_out() -> None:
    found = read_command("sudo nohup llama-server -m a.gguf > x.log 2>&1 && echo hi", UPSTREAM)
    assert kinds(found) == {
        "sudo": "dropped",
        "nohup": "dropped",
        "> x.log": "dropped",
        "2>& 1": "dropped",
        "echo": "dropped",
        "-m": "mapped",
    }


def test_a_container_gives_its_variables_and_says_its_folders() -> None:
    text = (
        "docker run --rm -v /srv/models:/models:ro -e LLAMA_ARG_CTX_SIZE=4096 --env CUDA_VISIBLE_DEVICES=1 "
        "-e HF_HOME --mount type=bind,source=/a,target=/b -p 80:80 ghcr.io/x/llama.cpp:server "
        "-m /models/M.gguf --host 0.0.0.0"
    )
    found = read_command(text, UPSTREAM)
    assert found.settings == {"ctx_size": 4096}
    assert found.env == {"CUDA_VISIBLE_DEVICES": "1"}
    assert found.model == "/models/M.gguf"
    assert "/models of the container is /srv/models" in said(found, "-v")[1]
    assert "/b of the container is /a" in said(found, "--mount")[1]
    assert said(found, "--host")[0] == "managed"
    assert said(found, "HF_HOME")[0] == "dropped"
    assert "build" in said(found, "ghcr.io/x/llama.cpp:server")[1]


def test_what_keeps_a_container_or_a_unit_running_becomes_the_policy() -> None:
    for flags, policy in (
        ("--restart unless-stopped -m 4g", {"restart": "always", "memory_mib": 4096}),
        ("--restart=on-failure:5 --memory=512MB", {"restart": "on-failure", "limit": 5, "memory_mib": 512}),
        ("--restart no -m1073741825", {"restart": "never", "memory_mib": 1025}),
        ("--restart sometimes --memory much", {}),
    ):
        found = read_command(f"docker run {flags} image -m a.gguf", UPSTREAM)
        assert found.policy == policy and found.model == "a.gguf"
        kinds_of = [line.kind for line in found.report if line.flag in ("--restart", "--memory")]
        assert set(kinds_of) == {"mapped" if policy else "dropped"}
    unit = "[Service]\nExecStart=/x/llama-server -m a.gguf\nRestart=on-abnormal\nMemoryMax=50%\n"
    found = read_command(unit, UPSTREAM)
    assert found.policy == {} and said(found, "MemoryMax")[0] == said(found, "Restart")[0] == "dropped"
    assert read_command("llama-server -m a.gguf", UPSTREAM).policy == {}


@pytest.mark.parametrize("caps", [UPSTREAM, FORK])
def test_both_dialects_become_what_the_build_has(caps: Capabilities) -> None:
    for word in ("mtp", "draft-mtp"):
        found = read_command(f"--spec-type {word} --draft-max 3 -ctkd q8_0", caps)
        assert found.settings == {"speculation": "mtp", "draft_max": 3, "draft_type_k": "q8_0"}
        assert said(found, "--spec-type")[0] == ("mapped" if word == caps.mtp_value else "renamed")
        assert said(found, "--draft-max")[0] == "renamed"
        assert "--spec-draft-n-max 3" in said(found, "--draft-max")[1]
    for words, mode in (
        ("--no-mmap", "none"),
        ("--mmap", "mmap"),
        ("--mlock", "mlock"),
        ("--mlock --no-mmap", "mlock"),
        ("--load-mode none", "none"),
        ("-lm mlock", "mlock"),
    ):
        found = read_command(words, caps)
        assert found.settings == {"load_mode": mode}, words
        old = not words.startswith(("--load-mode", "-lm"))
        assert found.report[-1].kind == ("mapped" if old == (caps is FORK) else "renamed"), words


def test_old_names_are_kept_under_the_new_ones() -> None:
    found = read_command("--draft-min 1 --checkpoint-every-n-tokens 256 --no-webui", UPSTREAM)
    assert found.extra == ("--checkpoint-min-step", "256", "--no-webui")
    assert found.settings == {"draft_min": 1}
    assert said(found, "--draft-min")[0] == "renamed"
    assert said(found, "--checkpoint-every-n-tokens")[0] == "renamed"
    found = read_command("--no-ui --checkpoint-min-step 256 -dio", FORK)
    assert found.extra == ("--no-webui", "--checkpoint-every-n-tokens", "256", "-dio")
    assert read_command("-dio", UPSTREAM).settings == {"load_mode": "dio"}


def test_variables_of_llama_cpp_are_settings_and_arguments_replace_them() -> None:
    text = (
        "LLAMA_ARG_CTX_SIZE=4096 LLAMA_ARG_N_PARALLEL=2 LLAMA_ARG_MMAP=0 LLAMA_ARG_NO_JINJA=1 "
        "LLAMA_ARG_MODEL=/m.gguf LLAMA_ARG_PORT=9000 LLAMA_ARG_CONT_BATCHING=off GGML_CUDA_X=1 PATH=/bin "
        "LLAMA_ARG_MLOCK=0 env LLAMA_ARG_FLASH_ATTN=on llama-server -np 1"
    )
    for caps in BUILDS:
        found = read_command(text, caps)
        assert found.settings == {
            "ctx_size": 4096,
            "parallel": 1,
            "load_mode": "none",
            "flash_attn": "on",
            "cont_batching": "off",
        }
        assert (found.model, found.port) == ("/m.gguf", 9000)
        assert found.extra == ("--no-jinja",)
        assert found.env == {}
        assert said(found, "GGML_CUDA_X") == (
            "dropped",
            "GGML_CUDA_X: this variable is no setting of llama-server: profiles do not store it.",
        )
        assert said(found, "LLAMA_ARG_N_PARALLEL") == (
            "dropped",
            "LLAMA_ARG_N_PARALLEL: this is given once more later, and the last one counts.",
        )
        assert said(found, "PATH")[0] == "dropped"


@pytest.mark.parametrize("caps", BUILDS)
@pytest.mark.parametrize(
    "text",
    [
        "llama-server -m a --api-key hunter2",
        "llama-server -m a --api-key=hunter2",
        "llama-server -m a --api_key -hunter2",
        "llama-server -m a --api-key x, hunter2 hunter2",
        "llama-server -m a -hft hunter2 --hf-token -hunter2",
        "LLAMA_API_KEY=hunter2 HF_TOKEN=hunter2 MY_SECRET=hunter2 llama-server -m a",
        "docker run -e HF_TOKEN=hunter2 -e my-token=hunter2 --health-cmd hunter2 image -m a",
        "sshpass -p hunter2 llama-server -m a",
        "llama-server -m a --auth-token hunter2 --password=hunter2",
        "export LLAMA_API_KEY=hunter2; llama-server -m a <<< hunter2",
        "my-key=hunter2; llama-server -m a my-key=hunter2",
        "[Service]\nEnvironment='MY_KEY=hunter2'\nExecStart=llama-server -m a --api-key ${MY_KEY}",
    ],
)
def test_a_secret_is_neither_kept_nor_repeated(text: str, caps: Capabilities | None) -> None:
    found = read_command(text, caps)
    assert "hunter2" not in repr(found)
    assert found.model == "a"


@pytest.mark.parametrize(
    "flag", ["--host 0.0.0.0", "--metrics", "--slots", "--log-file x", "-lv 4", "--log-colors off", "-a N"]
)
def test_what_the_panel_sets_itself_is_said(flag: str) -> None:
    found = read_command(f"llama-server {flag}", UPSTREAM)
    assert [line.kind for line in found.report] == ["managed"]
    assert (found.extra, found.settings) == ((), {})
    assert found.alias == ("N" if flag == "-a N" else "")


def test_an_own_verbosity_is_kept() -> None:
    assert read_command("-lv 5 --sse-ping-interval 2", UPSTREAM).extra == ("-lv", "5")


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--rpc h:1", "hosts the panel cannot see"),
        ("-hf a/b", "Fetch the model"),
        ("--slot-save-path /x", "files of the host"),
        ("--tools all", "run programs on the host"),
        ("--version", "print something"),
    ],
)
@pytest.mark.parametrize("caps", BUILDS)
def test_refused_flags_come_with_their_reason(flag: str, words: str, caps: Capabilities | None) -> None:
    found = read_command(f"llama-server {flag}", caps)
    assert [line.kind for line in found.report] == ["dropped"]
    assert words in str(found.report[0].message)
    assert found.extra == ()


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--mtp", "set the field Speculation to MTP"),
        ("--mtp-n-predict x", "set the field Draft tokens"),
        ("--mtp-logit-threshold 0.8", "--spec-draft-p-min"),
        ("--rope-scaling-factor much", "--rope-scale"),
        ("--rope-scaling-type yarn", "--rope-scaling yarn"),
        ("-ctk turbo8", "turbo2, turbo3 and turbo4"),
    ],
)
@pytest.mark.parametrize("caps", BUILDS)
def test_myths_are_answered_with_what_is_right(flag: str, words: str, caps: Capabilities | None) -> None:
    found = read_command(f"llama-server {flag} -c 4096", caps)
    assert said(found, flag.split()[0])[0] == "wrong"
    assert words in said(found, flag.split()[0])[1]
    assert (found.settings, found.extra) == ({"ctx_size": 4096}, ())


@pytest.mark.parametrize("caps", BUILDS)
def test_the_value_of_a_myth_goes_into_the_field_that_it_means(caps: Capabilities | None) -> None:
    found = read_command("llama-server --mtp-n-predict 4 --rope-scaling-factor 2.5", caps)
    assert found.settings == {"draft_max": 4, "rope_scale": "2.5"} and found.extra == ()
    assert [line.kind for line in found.report] == ["renamed", "renamed"]
    # A flag of the build itself says more.
    found = read_command("llama-server --spec-draft-n-max 2 --mtp-n-predict 4", caps)
    assert found.settings == {"draft_max": 2}


@pytest.mark.parametrize(
    ("text", "flag", "words"),
    [
        ("--ctx-sise 4096", "--ctx-sise", "Similar flags: --ctx-size"),
        ("--zzzzzzz 1", "--zzzzzzz", "no flag --zzzzzzz"),
        ("-ctk turbo4", "-ctk", "no TurboQuant"),
        ("-c many", "-c", "context size in tokens"),
        ("-c", "-c", "needs a value"),
        ("-c -np 1", "-c", "needs a value"),
        ("-m", "-m", "needs a value"),
        ("--port 99999", "--port", "1 to 65535"),
        ("-m $MODEL", "-m", "is a variable"),
        ("-t $(nproc --all)", "-t", "is a variable"),
        ("--grammar-file `pwd`/x", "--grammar-file", "is a variable"),
        ("--warmup=yes", "--warmup", "takes no value"),
        ("--metrics stray", "stray", "belongs to none"),
        ("--seed", "--seed", "needs a value"),
        ("--predict", "--predict", "needs a value"),
        ("--temp warm", "--temp", "at most 6 decimals"),
        ("--top-k 0.5", "--top-k", "whole number"),
        ("CUDA_VISIBLE_DEVICES=none", "CUDA_VISIBLE_DEVICES", "nvidia-smi"),
        ("CUDA_VISIBLE_DEVICES=$GPUS", "CUDA_VISIBLE_DEVICES", "is a variable"),
        ("--spec-ngram-size-n 3", "--spec-ngram-size-n", "has been removed"),
        ("--spec-type ngram-word", "--spec-type", "Speculation is one of"),
    ],
)
def test_what_is_wrong_is_said_and_not_taken(text: str, flag: str, words: str) -> None:
    before, after = (text, "") if "DEVICES=" in text else ("", text)
    found = read_command(f"{before} llama-server {after} --jinja", UPSTREAM)
    assert said(found, flag)[0] == "wrong"
    assert words in said(found, flag)[1]
    assert found.extra == ("--jinja",)
    assert not {"ctx_size", "threads", "cache_type_k", "speculation"} & set(found.settings)
    assert (found.model, found.port) == ("", None)


def test_flags_of_the_build_are_kept_and_pass_its_own_check() -> None:
    text = "llama-server --jinja -n -1 --no-mmproj --spec-type draft-mtp,ngram-mod --keep -1"
    found = read_command(text, UPSTREAM)
    assert shlex.join(found.extra) == text.removeprefix("llama-server ")
    assert errors(check_extra(found.extra, UPSTREAM, found.settings)) == []


def test_without_a_build_other_flags_are_kept_unchecked() -> None:
    found = read_command("llama-server --some-thing a b -ot exps=CPU --video-fps 5 --spec-type ngram-mod")
    assert shlex.join(found.extra) == ("--some-thing a b -ot exps=CPU --video-fps 5 --spec-type ngram-mod")
    assert "unchecked" in said(found, "--some-thing")[1]
    assert said(read_command("--ctx-sizes 4"), "--ctx-sizes")[0] == "wrong"


def test_the_word_for_the_builds_own_choice_leaves_a_field_empty() -> None:
    found = read_command("-np -1 -t -1 -ngl -1 -fa 1", UPSTREAM)
    assert found.settings == {"gpu_layers": "auto", "flash_attn": "on"}
    assert set(kinds(found).values()) == {"mapped"}


_NAME = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="$`"), max_size=30)


@pytest.mark.parametrize("caps", [UPSTREAM, FORK])
@settings(max_examples=150, deadline=None)
@given(data=st.data(), port=st.integers(1024, 65_535), name=_NAME, variables=environments())
def test_an_imported_command_of_a_profile_gives_the_profile(
    caps: Capabilities, data: st.DataObject, port: int, name: str, variables: dict[str, str]
) -> None:
    # The older dialect has no word for this load mode, so a command cannot hold it.
    values = data.draw(settings_of(caps, without=(("load_mode", "auto"),) if caps is FORK else ()))
    managed = Managed(f"/m/{name}.gguf", f"/p/{name}.gguf", f"n{name}", port)
    extra = ["--jinja", "--predict", "-1", "--override-tensor", "exps=CPU"]
    rendered = render(caps, values, extra, managed, environment=variables)
    assert [line.source for line in rendered.lines].count("passed") == len(values)
    before = ["env", *(f"{key}={value}" for key, value in rendered.env.items())] if rendered.env else []
    found = read_command(shlex.join([*before, "/b/llama-server", *rendered.argv]), caps)
    assert found.settings == values
    assert found.extra == tuple(extra)
    assert (found.model, found.mmproj, found.alias) == (managed.model, managed.mmproj, managed.alias)
    assert (found.port, found.env) == (port, variables)
    said_of = kinds(found)
    assert said_of.pop("env", "dropped") == "dropped"
    assert set(said_of.values()) <= {"mapped", "managed"}
