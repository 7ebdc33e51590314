"""manage.py diagnose: the causes of a log as JSON or as text, and errors in words."""

import io
import json
import os
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

LOG = "[1/9] Building C object a.c.o\nccache: error: Failed to create x: Permission denied\n"


def run(*args: str) -> str:
    """The command's answer."""
    out = StringIO()
    call_command("diagnose", *args, stdout=out)
    return out.getvalue()


def refused(*args: str) -> dict[str, Any]:
    """The JSON error of a command that ends with 1."""
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("diagnose", *args, "--json", stdout=out)
    assert ended.value.code == 1
    value: dict[str, Any] = json.loads(out.getvalue())
    return value


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A log of a failed build."""
    path = tmp_path / "log"
    path.write_text(LOG, encoding="utf-8")
    return str(path)


def test_the_json_answer_has_the_causes_best_first(log: str) -> None:
    (cause,) = json.loads(run(log, "--area", "build", "--exit-code", "1", "--json"))
    assert set(cause) == {"cause_key", "title", "evidence", "remedy", "change"}
    assert cause["cause_key"] == "ccache_permission"
    assert cause["evidence"] == ["ccache: error: Failed to create x: Permission denied"]
    assert cause["change"] == [{"field": "ccache", "value": False}]
    assert cause["title"] and cause["remedy"]


def test_nothing_known_is_an_empty_list_and_a_sentence(tmp_path: Path, log: str) -> None:
    (tmp_path / "empty").touch()
    assert json.loads(run(str(tmp_path / "empty"), "--area", "build", "--json")) == []
    assert json.loads(run(log, "--area", "build", "--exit-code", "0", "--json")) == []
    assert "No known cause" in run(log, "--area", "build", "--exit-code", "0")


def test_the_text_has_title_lines_remedy_and_field(log: str) -> None:
    text = run(log, "--area", "build")
    assert text.startswith("1. ccache may not write") and "[ccache_permission]" in text
    assert "| ccache: error: Failed" in text and "ccache = False" in text


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x\xff\n" + LOG.encode())))
    (cause,) = json.loads(run("-", "--area", "build", "--json"))
    assert cause["cause_key"] == "ccache_permission"


def test_a_signal_is_an_exit_code_like_any_other(log: str) -> None:
    for code in ("137", "-9"):
        found = json.loads(run(log, "--area", "build", f"--exit-code={code}", "--json"))
        assert [cause["cause_key"] for cause in found] == ["ccache_permission", "compile_out_of_memory"]


def test_only_the_end_of_a_huge_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    with path.open("wb") as stream:
        stream.truncate(8 * 1024**3)
        stream.seek(0, os.SEEK_END)
        stream.write(b"\n" + LOG.encode())
    (cause,) = json.loads(run(str(path), "--area", "build", "--json"))
    assert cause["cause_key"] == "ccache_permission"


def test_what_cannot_be_read_is_said_in_words(tmp_path: Path, log: str) -> None:
    missing = refused(str(tmp_path / "none"), "--area", "build")
    assert missing["error"] == "unreadable_log" and "No such file" in missing["detail"]
    assert "Is a directory" in refused(str(tmp_path), "--area", "build")["detail"]
    assert "Not a directory" in refused(log + "/x", "--area", "build")["detail"]
    assert refused("a\0b", "--area", "build")["error"] == "unreadable_log"


def test_an_area_without_rules_is_refused_with_the_known_ones(log: str) -> None:
    for area in ("kitchen", ""):
        found = refused(log, "--area", area)
        assert found["error"] == "unknown_area" and "build" in found["detail"]


def test_the_exit_code_is_checked(log: str) -> None:
    with pytest.raises(CommandError, match="invalid int"):
        call_command("diagnose", log, "--area", "build", "--exit-code", "many")
