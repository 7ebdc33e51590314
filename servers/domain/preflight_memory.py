"""Whether a server's memory is there now: what its estimate needs against what is free, in MiB.

An estimate has exact terms and upper bounds: only what is certain holds a start back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.memory_host import PROMPT_CACHE, OwnMemory, own_memory, whole_sum
from controlpanel.llamacpp.memory_types import DeviceFit, Estimate
from servers.domain.preflight import Check, joined, together

KEY = "memory"
OTHERS = "others"  # a term of an estimate
_TO_OTHERS = N_("Make the context smaller, move layers to main memory, or stop what else is on the card.")


@dataclass(frozen=True)
class Situation:
    """What an estimate is judged by besides its numbers.

    `host_free` is main memory that is free now, None when that is not known. `old`: the numbers of the cards
    are not of now. `mapped`: weights in main memory are pages of their file, which can be dropped. `adapts`:
    the server itself takes less when its cards are too small. `limit_mib` is the profile's memory limit.
    """

    host_free: int | None
    old: bool = False
    mapped: bool = True
    adapts: bool = False
    limit_mib: int | None = None


def adapts(settings: Mapping[str, object], can_fit: bool) -> bool:
    """Tell whether a server takes fewer layers on its cards by itself; `can_fit`: its build knows how."""
    undecided = settings.get("gpu_layers") in (None, "auto") and settings.get("tensor_split") is None
    splits = settings.get("split_mode") in (None, "none", "layer")
    return can_fit and undecided and splits and settings.get("fit") != "off"


def unknown(why: Message) -> Check:
    """Say that nothing is estimated."""
    text = N_("Whether the memory is enough is not known: %(why)s")
    return Check(KEY, "warning", Message(text, {"why": why}))


def memory(found: Estimate, now: Situation) -> Check:
    """Judge each card that the server uses, main memory, and the profile's memory limit."""
    parts = [_card(fit, now) for fit in found.devices if is_used(fit)]
    own = own_memory(found, now.mapped)
    parts.append(_main_memory(own, whole_sum(_in_main_memory(found)), now))
    over = None if now.limit_mib is None else over_limit(own, now.limit_mib)
    if over is not None:
        parts.append(over)
    if any(size is None for size in _sizes(found)) and found.why:
        parts.append(unknown(joined(found.why)))
    return together(KEY, parts)


def is_used(fit: DeviceFit) -> bool:
    """Tell whether the server puts anything on a card."""
    return any(term != OTHERS for term in fit.terms)


def _sizes(found: Estimate) -> Iterable[float | None]:
    yield from (size for fit in found.devices for size in fit.terms.values())
    yield from _in_main_memory(found)


def _in_main_memory(found: Estimate) -> Iterable[float | None]:
    yield from (size for term, size in found.host.items() if term != PROMPT_CACHE)


def _card(fit: DeviceFit, now: Situation) -> Check:
    held = fit.terms.get(OTHERS) or 0.0
    free = int(fit.capacity - held)
    least = ceil(fit.certain - held)
    told: dict[str, object] = {"name": fit.name, "free": f"{free:,}", "needs": f"{least:,}"}
    if fit.certain > fit.capacity:
        told["missing"] = f"{ceil(fit.certain - fit.capacity):,}"
        text = N_(
            "GPU %(name)s: at least %(needs)s MiB are needed, %(free)s MiB are free: %(missing)s MiB are "
            "missing."
        )
        if now.adapts:
            remedy = N_(
                "The server will move layers to main memory until the rest fits, and be slower. To avoid "
                "that, make the context smaller, or stop what else is on the card."
            )
            return Check(KEY, "warning", Message(text, told), Message(remedy))
        return Check(KEY, "warning", Message(text, told), Message(_TO_OTHERS), holds=not now.old)
    if fit.total is None:
        text = N_("GPU %(name)s: at least %(needs)s MiB are needed, %(free)s MiB are free.")
        return Check(KEY, "warning", Message(text, told))
    told["needs"] = f"{ceil(fit.total - held):,}"
    if not fit.holds:
        text = N_("GPU %(name)s: it is tight, up to %(needs)s MiB are needed and %(free)s MiB are free.")
        return Check(KEY, "warning", Message(text, told), Message(_TO_OTHERS))
    return Check(KEY, "ok", Message(N_("GPU %(name)s: %(needs)s MiB needed, %(free)s MiB free."), told))


def _main_memory(own: OwnMemory, most: int | None, now: Situation) -> Check:
    """Judge main memory; `most` is what it holds with the mapped pages of the model file."""
    if now.host_free is None:
        return Check(KEY, "warning", Message(N_("How much main memory is free is not known.")))
    told: dict[str, object] = {"free": f"{now.host_free:,}", "needs": f"{own.certain:,}"}
    if own.certain > now.host_free:
        told["missing"] = f"{own.certain - now.host_free:,}"
        text = N_(
            "Main memory: at least %(needs)s MiB are needed, %(free)s MiB are free: %(missing)s MiB are "
            "missing."
        )
        remedy = N_("End other programs, make the context smaller, or put more layers on a GPU.")
        return Check(KEY, "warning", Message(text, told), Message(remedy), holds=True)
    if own.most is None or most is None:
        text = N_("Main memory: at least %(needs)s MiB are needed, %(free)s MiB are free.")
        return Check(KEY, "warning", Message(text, told))
    told["needs"] = f"{most:,}"
    if own.most > now.host_free:
        text = N_("Main memory: it is tight, up to %(needs)s MiB are needed and %(free)s MiB are free.")
        return Check(KEY, "warning", Message(text, told))
    if most > now.host_free:
        text = N_(
            "Main memory: with the mapped model file %(needs)s MiB are needed and %(free)s MiB are free. "
            "What does not fit is read from the disk again and again, which is slow."
        )
        return Check(KEY, "warning", Message(text, told))
    return Check(KEY, "ok", Message(N_("Main memory: %(needs)s MiB needed, %(free)s MiB free."), told))


def over_limit(own: OwnMemory, limit: int) -> Check | None:
    """Say that a server passes a profile's memory limit in MiB, or may pass it; None when it does not."""
    told: dict[str, object] = {"limit": f"{limit:,}", "needs": f"{own.certain:,}"}
    if own.certain > limit:
        text = N_(
            "The memory limit of this profile is %(limit)s MiB, and the server needs at least %(needs)s MiB "
            "of main memory: it would be ended."
        )
        return Check(KEY, "warning", Message(text, told), Message(N_("Raise the limit.")), holds=True)
    if own.filled is not None and own.filled <= limit:
        return None
    text = N_(
        "The memory limit of this profile is %(limit)s MiB: once the prompt cache has filled, the server "
        "may need more and be ended."
    )
    remedy = N_("Raise the limit, or lower “Prompt cache”.")
    return Check(KEY, "warning", Message(text, told), Message(remedy))
