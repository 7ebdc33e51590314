"""What a profile will take of the graphics cards and of main memory, as its form shows it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from controlpanel.lib.text import N_, Message
from controlpanel.lib.words import translate
from controlpanel.llamacpp.memory import DeviceFit, Estimate
from controlpanel.llamacpp.memory_host import PROMPT_CACHE, OwnMemory, is_mapped, own_memory
from controlpanel.llamacpp.memory_types import Verdict
from jobs.services.fits import NOT_JUDGED, STATES, WORDS, total_of
from jobs.services.toolchains import toolchain_of
from servers.services.estimates import Prepared

BAR = 1000  # width of a full bar in the drawing's own units

# Groups whose terms are no upper bounds any more once a start has corrected them.
_CORRECTED = {"compute": N_("Computation"), "margin": N_("Driver and margin")}
# (key of the colour, label, terms of the estimate)
_GROUPS = (
    ("weights", N_("Weights"), ("weights",)),
    ("kv", N_("KV cache"), ("kv",)),
    ("state", N_("Recurrent state"), ("recurrent",)),
    ("mtp", N_("MTP"), ("mtp_weights", "mtp_kv", "mtp_recurrent")),
    ("projector", N_("Vision projector"), ("mmproj",)),
    ("compute", N_("Computation, at most"), ("compute", "mtp_compute", "mmproj_compute")),
    ("margin", N_("Driver and margin, at most"), ("margin",)),
    ("prompts", N_("Prompt cache, at most"), (PROMPT_CACHE,)),
    ("others", N_("Other programs"), ("others",)),
)


@dataclass(frozen=True)
class Part:
    """One term: bytes, None when it is not known, and where its part of the bar lies in BAR units."""

    key: str
    label: str
    size: int | None
    x: int = 0
    width: int = 0


@dataclass(frozen=True)
class Card:
    """One graphics card in bytes. `edge` is where its memory ends in a bar that is longer than it.

    `sure` when what is too much for it is so without the upper bounds.
    """

    name: str
    parts: list[Part]
    total: int | None
    capacity: int
    edge: int = BAR
    sure: bool = False

    @property
    def free(self) -> int | None:
        """Bytes that stay free; None when that is not known or nothing does."""
        return None if self.total is None or self.total > self.capacity else self.capacity - self.total

    @property
    def over(self) -> int | None:
        """Bytes that are too many; None when that is not known or there are none."""
        return None if self.total is None or self.total <= self.capacity else self.total - self.capacity


@dataclass(frozen=True)
class Fit:
    """An estimate for the page; `error` stands for all of it.

    Without a card, and without knowing the size of main memory (`host_capacity`), there is no verdict.
    `own` is what of main memory is not mapped from the model file; None with an error only.
    """

    state: str = ""
    word: str = ""
    cards: tuple[Card, ...] = ()
    host: tuple[Part, ...] = ()
    host_total: int | None = None
    host_capacity: int | None = None
    own: OwnMemory | None = None
    why: tuple[str, ...] = ()
    error: str = ""


def fit_of(prepared: Prepared | Message) -> Fit:
    """Return what a server of a profile takes; what is wrong with files or settings is in `error`."""
    if isinstance(prepared, Message):
        return Fit(error=translate(prepared))
    found = prepared.estimate()
    if isinstance(found, Message):
        return Fit(error=translate(found))
    toolchain = toolchain_of(prepared.inputs.data.build.host)
    own = own_memory(found, is_mapped(prepared.inputs.settings, prepared.inputs.caps))
    return _view(found, own, toolchain.memory_mib if toolchain else None, prepared.cards.why)


def _view(found: Estimate, own: OwnMemory, memory: float | None, notes: Iterable[Message]) -> Fit:
    host = _parts(found.host, found.bounds)
    verdict = _verdict(found, own, memory)
    told = [*found.why, *notes, *([] if verdict else [NOT_JUDGED])]
    return Fit(
        state=STATES[verdict] if verdict else "",
        word=_(WORDS[verdict]) if verdict else "",
        cards=tuple(map(_card, found.devices)),
        host=tuple(host),
        host_total=_sum(host),
        host_capacity=total_of([memory]),
        own=own,
        why=tuple(map(translate, told)),
    )


def _verdict(found: Estimate, own: OwnMemory, memory: float | None) -> Verdict | None:
    """Return the verdict of cards and main memory together; the prompt cache is a limit, not a need.

    Pages that are mapped from the model file can be dropped: alone they refuse nothing.
    """
    cards = found.verdict if found.devices else None
    if memory is None:
        return cards
    needs = {term: size for term, size in found.host.items() if term != PROMPT_CACHE}
    if own.certain > memory:
        return "does not fit"
    if None in needs.values():
        return cards or "unknown"
    if sum(filter(None, needs.values())) > memory:
        return "tight" if cards in (None, "fits") else cards
    return cards or "fits"


def _card(fit: DeviceFit) -> Card:
    parts = _parts(fit.terms, fit.bounds)
    capacity = total_of([fit.capacity]) or 0
    full = max(capacity, sum(part.size or 0 for part in parts)) or 1
    placed, end = [], 0
    for part in parts:
        start, end = end, end + (part.size or 0)
        x = start * BAR // full
        placed.append(Part(part.key, part.label, part.size, x, end * BAR // full - x))
    sure = fit.certain > fit.capacity
    return Card(fit.name, placed, total_of([fit.total]), capacity, capacity * BAR // full, sure)


def _parts(terms: Mapping[str, float | None], bounds: Collection[str]) -> list[Part]:
    """Return the terms in groups; a group of which one term is not known is not known."""
    parts = []
    for key, label, names in _GROUPS:
        there = [name for name in names if name in terms]
        if there:
            said = label if any(name in bounds for name in there) else _CORRECTED.get(key, label)
            parts.append(Part(key, _(said), total_of([terms[name] for name in there])))
    return parts


def _sum(parts: Sequence[Part]) -> int | None:
    known = [part.size for part in parts if part.size is not None]
    return sum(known) if len(known) == len(parts) else None
