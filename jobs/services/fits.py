"""Memory estimates for this host: its graphics cards out of the newest sample, verdicts, errors in words."""

import logging
import struct
import time
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass

from controlpanel.lib.text import N_, Message
from controlpanel.lib.words import translate
from controlpanel.llamacpp.gguf_header import GgufHeader
from controlpanel.llamacpp.memory import Device, Estimate, EstimateError, estimate
from controlpanel.llamacpp.memory_host import PROMPT_CACHE
from controlpanel.llamacpp.memory_learn import Learned
from controlpanel.llamacpp.memory_types import MIB, Dialect
from jobs.domain.gpu import GpuSample, Sample
from jobs.services.gpus import sample_here

logger = logging.getLogger(__name__)

CONTEXT = 8192
"""For how many tokens a model is judged of which no settings are known."""

WORDS = {
    "fits": N_("Fits"),
    "tight": N_("Tight"),
    "does not fit": N_("Does not fit"),
    "unknown": N_("Unknown"),
}
# States whose colour a verdict has.
STATES = {"fits": "ready", "tight": "incomplete", "does not fit": "failed", "unknown": "unknown"}
NOT_JUDGED = Message(N_("No GPU is named: whether main memory is enough is not judged here."))
_NONSENSE = N_("The file or the settings hold numbers that make no sense: the memory cannot be estimated.")


@dataclass(frozen=True)
class Cards:
    """The cards of this host that can be judged, and what a person should know of them.

    `own` is what one process holds of each in MiB, 0 where that is not known.
    """

    devices: tuple[Device, ...]
    why: tuple[Message, ...] = ()
    own: tuple[float, ...] = ()


@dataclass(frozen=True)
class FitLine:
    """Whether a model fits, in one line; bytes of all cards, or of main memory where there is no card.

    `needed` is None when it is not known, `capacity` where there is no card; `error` stands for all of it.
    """

    state: str
    word: str
    needed: int | None = None
    capacity: int | None = None
    context: int = CONTEXT
    error: str = ""


def cards_here(
    own_pid: int | None = None, visible: str | None = None, ended: Set[int] = frozenset()
) -> Cards:
    """Return the cards with what others hold of them: all that is used but what the process `own_pid` has.

    `visible` is what CUDA_VISIBLE_DEVICES says, None when it is not set. `ended` are processes that are gone,
    whose memory the last sample may still count.
    """
    sample = sample_here()
    if sample is None:
        return Cards(())
    devices, held, why = [], [], _age(sample)
    cards = sample.gpus.gpus if visible is None else _visible(sample.gpus.gpus, visible)
    if visible not in (None, "-1") and len(cards) < len((visible or "").split(",")):
        text = N_("CUDA_VISIBLE_DEVICES names a GPU that is not there; it and those after it are not seen.")
        why.append(Message(text))
    for card in cards:
        total, used = card.memory_total_mib, card.memory_used_mib
        if card.lost or not total or used is None:
            why.append(Message(N_("GPU %(index)s does not tell its memory: it is left out."), _index(card)))
            continue
        own = _memory_of(card, () if own_pid is None else (own_pid,))
        gone = _memory_of(card, ended - {own_pid})
        if own:
            text = N_("What the server of this profile holds of GPU %(index)s now is taken as free.")
            why.append(Message(text, _index(card)))
        name = f"{card.index} · {card.name}" if card.name else str(card.index)
        devices.append(Device(name, float(total), float(max(0, used - own - gone))))
        held.append(float(own))
    return Cards(tuple(devices), tuple(why), tuple(held))


def _visible(cards: Sequence[GpuSample], wanted: str) -> list[GpuSample]:
    """Return the cards that the variable names, in its order; none of those after a name that is unknown."""
    found: list[GpuSample] = []
    for word in wanted.split(","):
        named = [card for card in cards if word and _is_called(card, word)]
        if len(named) != 1 or named[0] in found:
            break
        found += named
    return found


def _is_called(card: GpuSample, word: str) -> bool:
    if word.isascii() and word.isdigit():
        return card.index == int(word[:9])
    return (card.uuid or "").lower().startswith(word.lower())


def try_estimate(
    parts: Sequence[GgufHeader],
    mmproj: GgufHeader | None,
    settings: Mapping[str, object],
    dialect: Dialect,
    devices: Sequence[Device],
    learned: Learned | None = None,
) -> Estimate | Message:
    """Return the estimate, or why there is none; what a file says never raises."""
    try:
        return estimate(parts, mmproj, settings, dialect, devices, learned)
    except EstimateError as error:
        return error.message
    except (ArithmeticError, ValueError, LookupError, struct.error):
        logger.exception("no memory estimate of %s", parts[0].architecture)
        return Message(_NONSENSE)


def fit_line(header: GgufHeader, mmproj: GgufHeader | None = None) -> FitLine:
    """Return whether a model of which one header is known fits this host's cards at CONTEXT tokens."""
    devices = cards_here().devices
    found = try_estimate((header,), mmproj, {"ctx_size": CONTEXT}, "upstream", devices)
    if isinstance(found, Message):
        return FitLine(STATES["unknown"], translate(Message(WORDS["unknown"])), error=translate(found))
    terms = [size for term, size in found.host.items() if term != PROMPT_CACHE]
    needed = total_of([fit.total for fit in found.devices] if found.devices else terms)
    capacity = total_of([fit.capacity for fit in found.devices]) if found.devices else None
    return FitLine(STATES[found.verdict], translate(Message(WORDS[found.verdict])), needed, capacity)


def total_of(sizes: Sequence[float | None]) -> int | None:
    """Return the sum of sizes in MiB as bytes, None when one of them is not known."""
    known = [size for size in sizes if size is not None]
    return round(sum(known) * MIB) if len(known) == len(sizes) else None


def _age(sample: Sample) -> list[Message]:
    if sample.stale_since(time.time()) is None:
        return []
    return [Message(N_("The GPU numbers are not current: what other programs hold may have changed."))]


def _memory_of(card: GpuSample, pids: Collection[int]) -> int:
    """Return the MiB that processes have on a card, 0 where that is not known."""
    return sum(item.memory_mib or 0 for item in card.processes or () if item.pid in pids)


def _index(card: GpuSample) -> dict[str, object]:
    return {"index": card.index}
