"""Diagnosis: what went wrong, found in a log by rules, with the remedy and the form field that mends it."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from controlpanel.llamacpp.rule_log import Log, literal_of
from controlpanel.llamacpp.rule_types import GENERIC, Diagnosis, Found, Near, Rule
from controlpanel.llamacpp.rules_build import BUILD_RULES
from controlpanel.llamacpp.rules_container import CONTAINER_RULES
from controlpanel.llamacpp.rules_download import DOWNLOAD_RULES
from controlpanel.llamacpp.rules_gguf import GGUF_RULES
from controlpanel.llamacpp.rules_gpu import GPU_RULES
from controlpanel.llamacpp.rules_host import HOST_RULES
from controlpanel.llamacpp.rules_launch import LAUNCH_RULES
from controlpanel.llamacpp.rules_mtp import MTP_RULES
from controlpanel.llamacpp.rules_runtime import RUNTIME_RULES
from controlpanel.llamacpp.rules_vision import VISION_RULES

AREAS: Mapping[str, tuple[Rule, ...]] = MappingProxyType(
    {
        "build": BUILD_RULES,
        "download": DOWNLOAD_RULES,
        "gguf": GGUF_RULES,
        "launch": LAUNCH_RULES,
        "mtp": MTP_RULES,
        "vision": VISION_RULES,
        "runtime": RUNTIME_RULES,
        "gpu": GPU_RULES,
        "host": HOST_RULES,
        "container": CONTAINER_RULES,
    }
)

_NO_FACTS: Mapping[str, object] = MappingProxyType({})
_MAX_EVIDENCE = 5
_MAX_REPEATS = 2

_Hit = tuple[int, int, "re.Match[str] | None"]  # start and end of the line in the log's text, and its match


def diagnose(
    log: bytes | str,
    areas: str | Sequence[str],
    exit_code: int | None = None,
    facts: Mapping[str, object] = _NO_FACTS,
) -> list[Diagnosis]:
    """Return the known causes that a log shows by the rules of these areas, the best first; [] for none.

    `exit_code` is negative, or 128 more, for a signal; None counts as a failure. What `facts` may hold is
    the area's own. Work and memory are bounded whatever the log. ValueError for an unknown area.
    """
    names = (areas,) if isinstance(areas, str) else areas
    unknown = next((name for name in names if name not in AREAS), None)
    if unknown is not None:
        raise ValueError(f"no rules for the area {unknown!r}")
    text = Log(log)
    best: dict[str, tuple[Rule, _Hit, Diagnosis]] = {}
    # Areas share rules; each is tried once.
    for rule in dict.fromkeys(rule for name in names for rule in AREAS[name]):
        if not rule.applies(exit_code, facts):
            continue
        known = best.get(rule.cause_key)
        found = _try(rule, text, exit_code, facts)
        if found and (known is None or _order(rule, found[0]) < _order(known[0], known[1])):
            best[rule.cause_key] = (rule, *found)
    explained = {key for rule, _, _ in best.values() for key in rule.explains if key != rule.cause_key}
    kept = [item for item in best.values() if item[0].cause_key not in explained]
    if any(rule.rank > GENERIC for rule, _, _ in kept):
        kept = [item for item in kept if item[0].rank > GENERIC]
    kept.sort(key=lambda item: _order(item[0], item[1]))
    return [diagnosis for _, _, diagnosis in kept]


def _order(rule: Rule, hit: _Hit) -> tuple[int, int]:
    return -rule.rank, hit[0]


def _try(
    rule: Rule, log: Log, exit_code: int | None, facts: Mapping[str, object]
) -> tuple[_Hit, Diagnosis] | None:
    """Return where the rule matched and what it says, None when it does not match."""
    hits = _hits(rule, log)
    if not hits:
        return None
    near = _near(rule.with_, log, hits[0]) or []
    groups: dict[str, str] = {}
    for _, _, match in [*reversed(near), hits[0]]:
        if match is not None:
            groups.update({key: value for key, value in match.groupdict().items() if value is not None})
    shown = [hits[0], *near, *hits[1:]]
    lines = dict.fromkeys((start, end, match.start() if match else 0) for start, end, match in shown)
    evidence = {log.evidence(*line) for line in list(lines)[:_MAX_EVIDENCE]}
    found = Found(groups, facts, exit_code)
    ordered = tuple(sorted(evidence, key=lambda e: (e.offset, e.line)))
    return hits[0], rule.diagnosis(found, ordered)


def _hits(rule: Rule, log: Log) -> list[_Hit]:
    """Return the line that the rule goes by, and up to two more that say the same."""
    if not rule.patterns:
        return [(*log.last_line(), None)]
    hits = [hit for pattern in rule.patterns for hit in _matches(rule, pattern, log)]
    hits.sort(key=lambda hit: hit[0], reverse=rule.last)
    return hits[: 1 + _MAX_REPEATS]


def _matches(rule: Rule, pattern: str, log: Log) -> list[_Hit]:
    literal, regex = _compiled(pattern)
    hits: list[_Hit] = []
    for start, end in log.lines_with(literal):
        line = log.text[start:end]
        match = regex.search(line)
        if match is None or any(_regex(text).search(line) for text in rule.unless):
            continue
        hit = (start, end, match)
        if _near(rule.with_, log, hit) is None or _any_near(rule.unless_near, log, hit):
            continue
        hits.append(hit)
        if len(hits) > _MAX_REPEATS and not rule.last:
            break
    return hits[-1 - _MAX_REPEATS :]


def _near(wanted: tuple[Near, ...], log: Log, hit: _Hit) -> list[_Hit] | None:
    """Return the nearest lines that the rule wants around its own, None when a required one is missing."""
    found: list[_Hit] = []
    for near in wanted:
        line = _nearest(near, log, hit)
        if line is not None:
            found.append(line)
        elif near.required:
            return None
    return found


def _any_near(unwanted: tuple[Near, ...], log: Log, hit: _Hit) -> bool:
    return any(_nearest(near, log, hit) is not None for near in unwanted)


def _nearest(near: Near, log: Log, hit: _Hit) -> _Hit | None:
    regex = _regex(near.pattern)
    for lines in (log.above(hit[0], near.before), log.below(hit[1], near.after)):
        for start, end in lines:
            match = regex.search(log.text[start:end])
            if match is not None:
                return start, end, match
    return None


@functools.cache
def _compiled(pattern: str) -> tuple[str, re.Pattern[str]]:
    return literal_of(pattern), re.compile(pattern)


@functools.cache
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
