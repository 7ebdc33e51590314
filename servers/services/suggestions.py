"""What would make a profile fit its cards, or leave it more room: each computed, each one click."""

import json
from dataclasses import dataclass

from django.utils.translation import gettext as _

from controlpanel.lib.words import translate
from controlpanel.llamacpp.memory import EstimateError
from controlpanel.llamacpp.memory_types import MIB
from controlpanel.llamacpp.tradeoffs import Tradeoff, offered_by, tradeoffs
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
    try:
        inputs = inputs_of(data)
        cards = cards_of(data, own_pid)
        found = tradeoffs(
            inputs.parts,
            inputs.projector,
            inputs.settings,
            inputs.dialect,
            cards.devices,
            offered_by(inputs.caps),
            inputs.learned(cards),
        )
    except EstimateError:
        return []
    return [_suggestion(entry) for entry in found if not inputs.fixed.intersection(entry.changes)]


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
