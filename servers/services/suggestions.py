"""What would make a profile fit its cards, or leave it more room: each computed, each one click."""

import json
from dataclasses import dataclass

from django.utils.translation import gettext as _

from controlpanel.lib.text import Message
from controlpanel.lib.words import translate
from controlpanel.llamacpp.meaning_kinds import whole
from controlpanel.llamacpp.memory import EstimateError
from controlpanel.llamacpp.memory_types import MIB
from controlpanel.llamacpp.tradeoffs import Tradeoff, offered_by, tradeoffs
from controlpanel.llamacpp.tradeoffs_types import RANK
from jobs.services.fits import STATES, WORDS
from servers.services.estimates import Prepared


@dataclass(frozen=True)
class Suggestion:
    """One change of the form: `changes` is JSON, field to value, "" empties a field.

    `freed` are bytes that the fullest card has more, None when that is not known or it has less.
    """

    label: str
    cost: str
    state: str
    word: str
    freed: int | None
    changes: str


def suggestions_of(prepared: Prepared | Message) -> list[Suggestion]:
    """Return what to change of a profile, the best first; nothing for files or settings without an estimate.

    What extra arguments decide is left alone: a field beside them would change nothing.
    """
    if isinstance(prepared, Message):
        return []
    fixed = prepared.inputs.fixed
    return [_suggestion(entry) for entry in _tradeoffs(prepared) if not fixed.intersection(entry.changes)]


def largest_context(prepared: Prepared | Message) -> int | None:
    """Return the largest context size that fits as all else is, None when none does or nothing is known."""
    found = [] if isinstance(prepared, Message) else _tradeoffs(prepared)
    alone = [entry for entry in found if entry.changes.keys() == {"ctx_size"}]
    best = min(alone, key=lambda entry: RANK[entry.verdict], default=None)
    return whole(best.changes["ctx_size"]) if best else None


def _tradeoffs(prepared: Prepared) -> list[Tradeoff]:
    made = prepared.inputs
    devices, offered = prepared.cards.devices, offered_by(made.caps)
    try:
        return tradeoffs(
            made.parts, made.projector, made.settings, made.dialect, devices, offered, prepared.learned
        )
    except EstimateError:
        return []


def _suggestion(entry: Tradeoff) -> Suggestion:
    changes = {key: "" if value is None else str(value) for key, value in entry.changes.items()}
    return Suggestion(
        label=translate(entry.label),
        cost=translate(entry.cost),
        state=STATES[entry.verdict],
        word=_(WORDS[entry.verdict]),
        freed=None if entry.freed is None or entry.freed < 0 else round(entry.freed * MIB),
        changes=json.dumps(changes),
    )
