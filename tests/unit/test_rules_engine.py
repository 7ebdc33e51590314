"""The rule engine: bounded on any input, exact about places, and its order of causes."""

import json
import time
from collections.abc import Iterator

import pytest

from controlpanel.lib.text import Message
from controlpanel.llamacpp import rules
from controlpanel.llamacpp.rule_log import literal_of
from controlpanel.llamacpp.rule_types import COMMON, GENERIC, Change, Diagnosis, Evidence, Near, Rule
from controlpanel.llamacpp.rules import AREAS, diagnose

NO_SPACE = b"ld: final link failed: No space left on device"
MIB = 1024 * 1024


def rule(key: str, pattern: str = "", **fields: object) -> Rule:
    """A rule whose words do not matter."""
    words: dict[str, object] = {"title": f"{key} happened", "remedy": "do something"}
    return Rule(key, (pattern,) if pattern else (), **{**words, **fields})  # type: ignore[arg-type]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Give the engine other rules: use(rule, ...)."""
    yield lambda *given: monkeypatch.setattr(rules, "AREAS", {"test": given})


def found(
    log: str | bytes, exit_code: int | None = None, facts: dict[str, object] | None = None
) -> list[str]:
    """The cause keys that the rules in use find."""
    return [item.cause_key for item in diagnose(log, "test", exit_code, facts or {})]


@pytest.mark.parametrize(
    "log, expected",
    [
        pytest.param(b"x" * 100 * MIB, [], id="100 MiB of one line"),
        pytest.param(b"x" * 100 * MIB + NO_SPACE, ["disk_full"], id="the end of one line of 100 MiB"),
        pytest.param(NO_SPACE + b"x" * 17 * MIB, [], id="beyond what is looked at"),
        pytest.param(b"\0" * 20 * MIB + b"\n" + NO_SPACE, ["disk_full"], id="NULs"),
        pytest.param(b"\xff\xfe\xc3(\n" * 4 * MIB + NO_SPACE, ["disk_full"], id="invalid UTF-8"),
        pytest.param(b"\n" * 16 * MIB + NO_SPACE, ["disk_full"], id="line feeds"),
        pytest.param(b"\r" * 16 * MIB + NO_SPACE, ["disk_full"], id="carriage returns"),
        pytest.param(b"\x1b[1;" * 4 * MIB + b"m" + NO_SPACE, ["disk_full"], id="colours without an end"),
        pytest.param(b"\x1b]8;;" * 3 * MIB + b"\n" + NO_SPACE, ["disk_full"], id="links without an end"),
        pytest.param(b"error: fatal: \n" * MIB, [], id="many lines with the words of rules"),
        pytest.param((b" " * 4000 + b"\n") * 4000 + NO_SPACE, ["disk_full"], id="lines of blanks"),
        pytest.param(b"." * 16 * MIB, [], id="progress dots"),
        pytest.param(
            b"[ 12%] Building CXX object ggml/src/ggml.cpp.o\n" * 200_000 + NO_SPACE,
            ["disk_full"],
            id="200,000 lines",
        ),
    ],
)
def test_hostile_and_huge_logs_take_bounded_time(log: bytes, expected: list[str]) -> None:
    begin = time.process_time()
    assert [item.cause_key for item in diagnose(log, "build", 1)] == expected
    assert time.process_time() - begin < 10


@pytest.mark.parametrize("pattern", sorted({text for r in AREAS["build"] for text in r.patterns}))
def test_no_pattern_explodes_on_lines_made_for_it(pattern: str) -> None:
    literal = literal_of(pattern)
    fillers = ("a", "a/", "'", " ", "1.", "(", ".a", '"', literal + " ")
    lines = [(literal + filler * 4096)[:4096] for filler in fillers]
    lines += [((filler * 4096)[: 4096 - len(literal)]) + literal for filler in fillers]
    regexes = [rules._regex(text) for r in AREAS["build"] if pattern in r.patterns for text in r.unless]
    begin = time.process_time()
    for regex in [rules._regex(pattern), *regexes]:
        for line in lines:
            regex.search(line)
    assert time.process_time() - begin < 0.5


@pytest.mark.parametrize(
    "pattern, literal",
    [
        (r"^\s*ninja: error: (?P<a>x|y)", "ninja: error: "),
        (r"colou?r of \w+ dogs", "r of "),
        (r"abc+defg[\]x]*hi", "defg"),
        (r"a{2,3}bcd\.cpp", "bcd.cpp"),
        (r"(?:(?:a)|[)])gcc \(GCC\)", "gcc (GCC)"),
    ],
)
def test_lines_are_found_by_the_longest_text_that_every_match_has(pattern: str, literal: str) -> None:
    assert literal_of(pattern) == literal


@pytest.mark.parametrize("pattern", [r"\d+", "ab", "error|fatal", "(?:error)"])
def test_a_pattern_that_has_no_such_text_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"literal|alternatives"):
        literal_of(pattern)


def test_evidence_names_line_and_byte_of_the_log_itself() -> None:
    before = "é \x1b[31mred\x1b[0m\r\n 1%\r 2%\r\nok\n".encode()
    line = b" 10%\r 20%\r\x1b[01;31m\x1b[Kld: No space left on device\x1b[m\x1b[K\r\nend\n"
    (item,) = diagnose(before + line, "build")
    (evidence,) = item.evidence
    assert evidence == Evidence(3, len(before), "ld: No space left on device")


def test_places_are_right_when_only_the_end_of_the_log_is_looked_at() -> None:
    log = b"ordinary\n" * (3 * MIB) + NO_SPACE + b"\n"
    (item,) = diagnose(log, "build")
    assert item.evidence == (Evidence(3 * MIB, 9 * 3 * MIB, NO_SPACE.decode()),)
    text = "ü\n" * 10 + NO_SPACE.decode()
    assert diagnose(text, "build")[0].evidence[0].offset == 30


def test_an_error_on_the_line_of_progress_dots_is_read() -> None:
    assert diagnose(b"." * 9000 + NO_SPACE, "build")[0].cause_key == "disk_full"
    (item,) = diagnose(b"........  CUDA Toolkit not found".replace(b"  ", b""), "build")
    assert item.cause_key == "nvcc_not_found"


def test_a_long_line_shows_the_part_that_tells() -> None:
    (item,) = diagnose(b"a" * 3000 + b" " + NO_SPACE + b" " + b"b" * 900, "build")
    assert "No space left" in item.evidence[0].text and len(item.evidence[0].text) <= 500


def test_better_ranks_come_first_then_earlier_lines(use) -> None:  # type: ignore[no-untyped-def]
    use(
        rule("generic", "alpha", rank=GENERIC),
        rule("common", "alpha", rank=COMMON),
        rule("late", "gamma line"),
        rule("early", "beta line"),
    )
    assert found("alpha\nbeta line\ngamma line\nbeta line") == ["early", "late", "common"]
    assert found("alpha") == ["common"]


def test_a_generic_cause_is_said_only_when_nothing_better_is_known(use) -> None:  # type: ignore[no-untyped-def]
    use(rule("generic", "alpha", rank=GENERIC), rule("common", "beta", rank=COMMON))
    assert found("alpha") == ["generic"]
    assert found("alpha\nbeta") == ["common"]


def test_what_another_cause_explains_is_dropped(use) -> None:  # type: ignore[no-untyped-def]
    use(rule("effect", "alpha"), rule("cause", "beta", rank=COMMON, explains=("effect",)))
    assert found("alpha\nbeta") == ["cause"]
    assert found("alpha") == ["effect"]


def test_several_rules_of_one_cause_make_one_diagnosis_by_the_best(use) -> None:  # type: ignore[no-untyped-def]
    use(rule("one", "alpha", rank=COMMON), rule("one", "beta", title="better"))
    (item,) = diagnose("alpha\nbeta", "test")
    assert str(item.title) == "better"


def test_lines_around_are_wanted_shown_and_lend_their_groups(use) -> None:  # type: ignore[no-untyped-def]
    use(
        rule(
            "near",
            "decisive line",
            title="%(name)s in %(file)s",
            with_=(
                Near(r"name: (?P<name>\w+)", before=2),
                Near(r"file: (?P<file>\w+)", 0, 2, required=False),
            ),
        )
    )
    (item,) = diagnose("name: far\nname: x\n\ndecisive line\n\nfile: y\nfile: z", "test")
    assert (str(item.title), [line.line for line in item.evidence]) == ("x in y", [1, 3, 5])
    assert str(diagnose("name: x\ndecisive line", "test")[0].title) == "x in "
    assert found("name: x\n\n\ndecisive line") == []


def test_unless_speaks_of_the_line_or_of_those_around(use) -> None:  # type: ignore[no-untyped-def]
    use(
        rule("one", "alpha", unless=(r"^-- ",)),
        rule("two", "beta", unless_near=(Near("warning", before=1),)),
    )
    assert found("-- alpha") == []
    assert found("-- alpha\nx alpha") == ["one"]
    assert found("warning\nbeta") == []
    assert found("warning\n\nbeta") == ["two"]


def test_exit_codes_and_facts_decide_whether_a_rule_is_tried(use) -> None:  # type: ignore[no-untyped-def]
    use(
        rule("failed", "alpha"),
        rule("always", "alpha", needs_failure=False),
        rule("abort", exit_codes=(-6, 134)),
        rule("no_heads", "alpha", when=lambda facts: facts.get("mtp_heads") == 0),
    )
    assert found("alpha", 0) == ["always"]
    assert found("alpha", 1) == ["failed", "always"]
    assert found("alpha\n\n", 134)[0] == "failed" and "abort" in found("alpha", -6)
    assert "no_heads" in found("alpha", 1, {"mtp_heads": 0})


def test_the_last_line_is_shown_where_a_rule_says_so(use) -> None:  # type: ignore[no-untyped-def]
    use(rule("last", "alpha", last=True))
    (item,) = diagnose("alpha 1\nalpha 2\nalpha 3\nalpha 4\nalpha 5", "test")
    assert [line.text for line in item.evidence] == ["alpha 3", "alpha 4", "alpha 5"]


def test_an_area_without_rules_is_an_error() -> None:
    with pytest.raises(ValueError, match="kitchen"):
        diagnose("", "kitchen")


def test_a_diagnosis_survives_a_trip_through_json() -> None:
    item = Diagnosis(
        "key",
        Message("%(what)s broke", {"what": Message("it"), "n": 3}),
        Message("repair it"),
        (Evidence(1, 2, "text"),),
        (Change("definitions", [["A", None]]), Change("ccache", False)),
    )
    assert Diagnosis.from_json(json.loads(json.dumps(item.to_json()))) == item
    for one in diagnose(NO_SPACE, "build"):
        assert Diagnosis.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_a_hostile_group_does_not_swell_the_words() -> None:
    (item,) = diagnose("fatal: couldn't find remote ref " + "x" * 4000, "build")
    assert len(str(item.title)) < 300
