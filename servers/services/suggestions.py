"""What would make a profile fit its cards, or leave it more room: each computed, each one click."""

import json
from dataclasses import dataclass

from django.utils.translation import gettext as _

from controlpanel.lib.words import translate
from controlpanel.llamacpp.meaning_kinds import whole
from controlpanel.llamacpp.memory import EstimateError
from controlpanel.llamacpp.memory_types import MIB
from controlpanel.llamacpp.tradeoffs import Tradeoff, offered_by, tradeoffs
from controlpanel.llamacpp.tradeoffs_types import RANK
from jobs.services.fits import STATES, WORDS
from servers.services.estimates import cards_of, inputs_of
from servers.services.profiles import ProfileData


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


def suggestions_of(data: ProfileData, own_pid: int | None = None) -> list[Suggestion]:
    """Return what to change of a profile, the best first; nothing for files or settings without an estimate.

    What extra arguments decide is left alone: a field beside them would change nothing.
    """
    fixed, found = _tradeoffs(data, own_pid)
    return [_suggestion(entry) for entry in found if not fixed.intersection(entry.changes)]


def largest_context(data: ProfileData, own_pid: int | None = None) -> int | None:
    """Return the largest context size that fits as all else is, None when none does or nothing is known."""
    _fixed, found = _tradeoffs(data, own_pid)
    alone = [entry for entry in found if entry.changes.keys() == {"ctx_size"}]
    best = min(alone, key=lambda entry: RANK[entry.verdict], default=None)
    return whole(best.changes["ctx_size"]) if best else None


def _tradeoffs(data: ProfileData, own_pid: int | None) -> tuple[frozenset[str], list[Tradeoff]]:
    """Return the settings that extra arguments decide, and the trade-offs; none without an estimate."""
    try:
        inputs = inputs_of(data)
        cards = cards_of(data, own_pid)
        offered, learned = offered_by(inputs.caps), inputs.learned(cards)
        found = tradeoffs(
            inputs.parts,
            inputs.projector,
            inputs.settings,
            inputs.dialect,
            cards.devices,
            offered,
            learned,
        )
    except EstimateError:
        return frozenset(), []
    return inputs.fixed, found


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
