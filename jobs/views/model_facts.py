"""A report about a model file in words: of a model that is here, and of one that was only looked into."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from controlpanel.lib.words import shown, translate
from controlpanel.llamacpp.gguf_facts import GgufFacts, Rope, TypeShare
from controlpanel.llamacpp.gguf_mtp import Mtp
from controlpanel.llamacpp.gguf_report import Report
from controlpanel.llamacpp.gguf_template import Template
from controlpanel.llamacpp.problems import Problem
from controlpanel.llamacpp.projectors import ProjectorFacts

MTP_HEADS = "mtp heads"  # the content of a file that holds heads without their model
SHORTENED = (("T", 10**12), ("B", 10**9), ("M", 10**6))


def facts_of_report(report: dict[str, Any]) -> GgufFacts | None:
    """Return the facts in a stored report; None when there are none, or those of another version."""
    try:
        known = dict(report["facts"])
        projector = known["projector"]
        known |= {
            "rope": Rope(**known["rope"]),
            "template": Template(**known["template"]),
            "types": tuple(TypeShare(**item) for item in known["types"]),
            "mtp": Mtp(**known["mtp"]),
            "projector": ProjectorFacts(**projector) if projector else None,
        }
        return GgufFacts(**known)
    except (KeyError, TypeError):
        return None


def report_view(report: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a page shows of a report, in the reader's language; None for one of another version."""
    facts = facts_of_report(report)
    if facts is None:
        return None
    return {
        "content": shown(report["content"]),
        "content_kind": facts.content,
        "rows": fact_rows(facts, shown(report["content"])),
        "mtp": facts.mtp,
        "mtp_words": shown(report["mtp"]),
        "projector": facts.projector,
        "types": [(item, None if item.share is None else 100 * item.share) for item in facts.types],
        "sampling": sorted(facts.sampling.items()),
        "template": facts.template,
        "has_text": facts.content in ("model", MTP_HEADS),
        "shards": report["shards"],
        "problems": [shown(text) for text in report["problems"]],
        "size": report["shards"]["size"],
        "context": facts.context_length,
    }


@dataclass(frozen=True)
class Judged:
    """A build or another file, whether it goes with a file (None: nobody knows), and why in words."""

    name: str
    answer: bool | None
    reasons: tuple[str, ...]
    pk: int | None = None


def judged(name: str, answer: bool | None, problems: Iterable[Problem], pk: int | None = None) -> Judged:
    """Return a judgement in the reader's language."""
    return Judged(name, answer, tuple(translate(problem.message) for problem in problems), pk)


def best_first(found: Iterable[Judged]) -> list[Judged]:
    """Sort what goes before what may go, and that before what does not."""
    order = {True: 0, None: 1, False: 2}
    return sorted(found, key=lambda item: (order[item.answer], item.name))


def verdicts_of(report: Report) -> list[Judged]:
    """Return what each build of this host makes of a file, those that can run it first."""
    return best_first(judged(item.build, item.runs, item.problems) for item in report.builds or ())


def fact_rows(facts: GgufFacts, content: str) -> list[tuple[str, Any]]:
    """Return the facts of a file as (label, text); what does not apply to its kind is left out."""
    rows: list[tuple[str, Any]] = [
        (_("Holds"), content),
        (_("Architecture"), facts.architecture),
        (_("Name in the file"), facts.name),
        # Of a part alone, the number would be that of a smaller model.
        (_("Parameters"), _parameters(facts.parameters) if facts.whole else ""),
        (_("Quant"), facts.quant),
        (_("Bits per weight"), facts.bits_per_weight),
    ]
    if facts.projector:
        return [*rows, *_projector_rows(facts.projector)]
    rows += [
        (_("Native context"), _with_unit(facts.context_length, _("tokens"))),
        (_("Layers"), _layers(facts)),
        (_("Embedding length"), _number(facts.embedding_length)),
        (_("Attention heads"), _heads(facts.heads, facts.heads_kv)),
    ]
    if facts.experts:
        used = {"used": facts.experts_used or "?", "all": facts.experts}
        rows.append((_("Experts"), _("%(used)s of %(all)s for each token") % used))
    vocabulary = _with_unit(facts.vocabulary, _("tokens"))
    words = [item for item in (facts.tokenizer, facts.pre_tokenizer, vocabulary) if item]
    return [*rows, (_("Positions (RoPE)"), _rope(facts.rope)), (_("Tokenizer"), ", ".join(words))]


def shortened(number: int | None) -> str:
    """Write a number of parameters briefly: 35.1 B; "" when it is not known."""
    if not number:
        return ""
    for unit, size in SHORTENED:
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return _number(number)


def _parameters(number: int) -> str:
    return f"{shortened(number)} ({_number(number)})" if number >= SHORTENED[-1][1] else _number(number)


def _projector_rows(projector: ProjectorFacts) -> list[tuple[str, Any]]:
    kinds = {_("pictures"): projector.vision, _("sound"): projector.audio}
    rows: list[tuple[str, Any]] = [
        (_("Kind of projector"), projector.type),
        (_("For models of the family"), projector.family),
        (_("Takes"), ", ".join(word for word, can in kinds.items() if can)),
        (_("Width of its vectors"), _number(projector.width)),
    ]
    if projector.image_size:
        rows.append((_("Picture size"), f"{projector.image_size} px"))
    return rows


def _layers(facts: GgufFacts) -> str:
    if facts.layers is None or facts.trunk_layers is None:
        return ""
    more = facts.layers - facts.trunk_layers
    return f"{facts.trunk_layers} + {more} MTP" if more else str(facts.layers)


def _heads(heads: Any, heads_kv: Any) -> str:
    if heads is None:
        return ""
    words = _varied(heads)
    return (
        words if heads_kv is None else _("%(heads)s, KV %(kv)s") % {"heads": words, "kv": _varied(heads_kv)}
    )


def _varied(value: Any) -> str:
    """Write one number, or the range of those of all layers."""
    if isinstance(value, list | tuple):
        low, high = min(value, default=0), max(value, default=0)
        return str(low) if low == high else f"{low}–{high}"
    return str(value)


def _rope(rope: Rope) -> str:
    found = [] if rope.freq_base is None else [_("base %(number)s") % {"number": f"{rope.freq_base:,.10g}"}]
    if rope.scaling and rope.scaling != "none":
        found.append(f"{rope.scaling} ×{rope.factor:g}" if rope.factor else rope.scaling)
    if rope.original_context:
        found.append(_("from %(number)s tokens") % {"number": _number(rope.original_context)})
    return ", ".join(found)


def _with_unit(value: int | None, unit: str) -> str:
    return f"{value:,} {unit}" if value else ""


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
