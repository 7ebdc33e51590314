"""Everything that is known of a model file: its facts, its parts, its partners and the builds for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from controlpanel.lib.text import Message
from controlpanel.llamacpp.gguf import Model
from controlpanel.llamacpp.gguf_builds import Verdict
from controlpanel.llamacpp.gguf_facts import GgufFacts, read_facts
from controlpanel.llamacpp.gguf_fit import Fit, content_words, heads_fit, projector_fit
from controlpanel.llamacpp.gguf_mtp import mtp_words
from controlpanel.llamacpp.problems import Problem


@dataclass(frozen=True)
class Partner:
    """Another file, and whether the two can be used together."""

    name: str
    content: str
    fit: Fit


@dataclass(frozen=True)
class Report:
    """What is known of one file; `builds` None when no builds could be asked."""

    model: Model
    facts: GgufFacts
    partners: tuple[Partner, ...] = ()
    builds: tuple[Verdict, ...] | None = None


def facts_of_model(model: Model) -> GgufFacts:
    """Return the facts of a model that was examined."""
    whole = not model.missing and len(model.parts) == max(1, model.header.split_count)
    return read_facts(model.parts, whole)


def partner_of(facts: GgufFacts, name: str, other: GgufFacts) -> Partner | None:
    """Return how another file goes with this one; None when the two have nothing to do with each other."""
    pair = {facts.content, other.content}
    first, second = (facts, other) if other.content == "model" else (other, facts)
    if pair == {"projector", "model"}:
        return Partner(name, other.content, projector_fit(first, second))
    if pair == {"mtp heads", "model"}:
        return Partner(name, other.content, heads_fit(first, second))
    return None


def to_json(report: Report, translate: Callable[[Message], str]) -> dict[str, Any]:
    """Return plain values; the first eight keys are those of controlpanel.llamacpp.gguf.Description."""
    model, header, facts = report.model, report.model.header, report.facts
    return {
        "architecture": facts.architecture,
        "file_size": header.file_size,
        "quant": header.quant,
        "context_length": header.context_length,
        "mtp_heads": model.mtp_heads,
        "projector": header.projector.type if header.projector else None,
        "complete": model.complete,
        "problems": [translate(problem) for problem in model.problems],
        "content": translate(content_words(facts)),
        "mtp": translate(mtp_words(facts.mtp)),
        "facts": facts.to_json(),
        "shards": {
            "count": max(1, header.split_count),
            "read": len(model.parts),
            "missing": list(model.missing),
            "size": model.size,
        },
        "fits": [
            {
                "name": partner.name,
                "content": partner.content,
                "fits": partner.fit.fits,
                "reasons": _reasons(partner.fit.problems, translate),
            }
            for partner in report.partners
        ],
        "builds": None
        if report.builds is None
        else [
            {
                "build": verdict.build,
                "runs": verdict.runs,
                "reasons": _reasons(verdict.problems, translate),
            }
            for verdict in report.builds
        ],
    }


def _reasons(problems: Iterable[Problem], translate: Callable[[Message], str]) -> list[dict[str, str]]:
    return [{"level": problem.level, "text": translate(problem.message)} for problem in problems]
