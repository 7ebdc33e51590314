"""Flags among the extra arguments that a field of the form says as well."""

import pytest

from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.extra_args import check_extra, fields_in_extra, parse_extra
from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.problems import Problem
from tests.unit.test_command_rules import FORK, UPSTREAM


def _texts(problems: list[Problem]) -> str:
    assert {problem.field for problem in problems} == {"extra_args"}
    return " ".join(str(problem.message) for problem in problems)


@pytest.mark.parametrize("caps", [UPSTREAM, FORK])
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("-c 4096", "ctx_size"),
        ("--temp 0.70", "temperature"),
        ("--seed -1", "seed"),
        ("--no-warmup", "warmup"),
        ("-kvu", "kv_unified"),
        ("-no-kvu", "kv_unified"),
        ("--no-mmproj-offload", "mmproj_offload"),
        ("--n_gpu_layers all", "gpu_layers"),
        ("-ctkd q8_0", "draft_type_k"),
        ("--rope-freq-base 1e7", "rope_freq_base"),
        ("-fa auto", "flash_attn"),
        ("--swa-full", "swa_full"),
        ("-cram -1", "cache_ram"),
    ],
)
def test_a_flag_with_a_field_is_answered_with_the_field(caps: Capabilities, text: str, key: str) -> None:
    problems = check_extra(parse_extra(text), caps)
    assert [problem.level for problem in problems] == ["warning"]
    assert f"use the field {MEANINGS[key].label}" in _texts(problems)
    assert list(fields_in_extra(parse_extra(text), caps)) == [key]


def test_each_dialect_is_answered_with_the_field_for_its_own_words() -> None:
    assert fields_in_extra(["--spec-type", "draft-mtp"], UPSTREAM) == {"speculation": "mtp"}
    assert fields_in_extra(["--spec-type", "mtp", "--no-mmap"], FORK) == {
        "speculation": "mtp",
        "load_mode": "none",
    }
    assert fields_in_extra(["-no-kvu", "-ub", "64", "-ub", "128"], UPSTREAM) == {
        "kv_unified": "off",
        "ubatch": 128,
    }


def test_a_value_that_no_field_can_have_stays_among_the_extra_arguments() -> None:
    args = ["--spec-type", "draft-mtp,ngram-mod", "-ngl", "-1", "--sleep-idle-seconds", "-1"]
    assert check_extra(args, UPSTREAM) == []
    assert fields_in_extra(args, UPSTREAM) == {}


def test_a_field_of_the_form_is_set_in_one_place_only() -> None:
    args = ["-c", "4096", "-n", "5"]
    problems = check_extra(args, UPSTREAM, {"ctx_size": 8192})
    assert [problem.level for problem in problems] == ["error"]
    assert "Context size already" in _texts(problems)
    assert "Load mode already" in _texts(check_extra(["--mlock"], FORK, {"load_mode": "none"}))
    assert [problem.level for problem in check_extra(args, UPSTREAM, {"ctx_size": None})] == ["warning"]
