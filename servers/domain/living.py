"""What the log of a server that runs on says about requests that failed and answers that suffer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.rule_types import Diagnosis, Evidence, Rule
from controlpanel.llamacpp.rules import AREAS, diagnose
from controlpanel.llamacpp.rules_gpu import GPU_RULES
from controlpanel.llamacpp.rules_host_limits import LIMIT_RULES
from controlpanel.llamacpp.rules_mtp import MTP_RULES, MTP_START_RULES
from controlpanel.llamacpp.rules_quoted import QUOTED
from controlpanel.llamacpp.rules_runtime_cuda import CUDA_ERROR_RULES
from controlpanel.llamacpp.rules_runtime_quality import QUALITY_RULES
from controlpanel.llamacpp.rules_runtime_requests import REQUEST_RULES
from controlpanel.llamacpp.rules_runtime_steps import STEP_RULES
from controlpanel.llamacpp.rules_vision import VISION_RULES, VISION_START_RULES
from servers.domain.acceptance import Collapse
from servers.domain.drift import Drift
from servers.domain.timings import Answer

LOOKED_FOR = ("runtime", "mtp", "vision", "gpu", "host")
LONGEST = 4096  # bytes of a line that are looked at
SHOWN = 3  # lines of answers that show a change
_QUOTED = re.compile("|".join(QUOTED))
KNOWN_BUG = "mtp_zero_acceptance_kv"
_IN_VAIN = N_("Of the last %(answers)s answers, only %(share)s of the drafts were accepted")
_LESS = N_("Of the last %(answers)s answers, only %(share)s of the drafts were accepted; it was %(before)s")
# One long answer says little; what many together say is judged elsewhere.
_OF_ONE_ANSWER = (KNOWN_BUG, "mtp_low_acceptance")


def _keys(*rules: Rule) -> frozenset[str]:
    return frozenset(rule.cause_key for rule in rules)


_SLOW = ("gpu_hot", "gpu_power_brake", "cpu_hot")  # which make a card or a processor slow
_HOST_RULES = (*GPU_RULES, *LIMIT_RULES)
QUALITY = (
    _keys(*QUALITY_RULES, *MTP_RULES[len(MTP_START_RULES) :]) | _keys(*_HOST_RULES).intersection(_SLOW)
).difference(_OF_ONE_ANSWER)
REQUEST = (
    _keys(*REQUEST_RULES, *STEP_RULES, *CUDA_ERROR_RULES, *VISION_RULES[len(VISION_START_RULES) :])
    | _keys(*_HOST_RULES)
).difference(QUALITY, ("server_segfault",))  # which no server survives


@dataclass(frozen=True)
class Sign:
    """One cause, whether it is the answers that suffer (else requests fail), and how often it shows."""

    diagnosis: Diagnosis
    quality: bool
    times: int = 1


def signs(text: bytes, new: int, facts: Mapping[str, object], base: int = 0) -> list[Sign]:
    """Return what the lines from byte `new` on show; those before are only there to understand them by.

    `base` is the byte of the log at which the text begins.
    """
    found = {item.cause_key: item for item in _shown(text, facts)}
    stale = {key for key, item in found.items() if not _is_new(item, new)}
    if stale:
        # The same cause shows in both parts: only some lines are kept of it, perhaps all of the old one.
        again = {item.cause_key: _moved(item, new) for item in _shown(text[new:], facts)}
        found = {key: again.get(key, item) for key, item in found.items() if key not in stale or key in again}
    return [
        Sign(_moved(item, base), key in QUALITY, max(1, _times(key, text[new:])))
        for key, item in found.items()
        if key in QUALITY or key in REQUEST
    ]


def _shown(text: bytes, facts: Mapping[str, object]) -> list[Diagnosis]:
    # No exit code: the server has not ended.
    return diagnose(text, LOOKED_FOR, None, facts)


def _is_new(item: Diagnosis, new: int) -> bool:
    return any(line.offset >= new for line in item.evidence)


def _moved(item: Diagnosis, by: int) -> Diagnosis:
    return replace(item, evidence=tuple(replace(line, offset=line.offset + by) for line in item.evidence))


def _times(key: str, text: bytes) -> int:
    """Return how many lines say so in the wording that is most frequent: one failure has several."""
    patterns = [re.compile(pattern) for pattern in _patterns(key)]
    lines = [line[:LONGEST].decode("utf-8", "replace") for line in text.split(b"\n")]
    lines = [line for line in lines if not _QUOTED.search(line)]
    return max((sum(1 for line in lines if one.search(line)) for one in patterns), default=0)


def _patterns(key: str) -> Iterator[str]:
    rules = (rule for area in LOOKED_FOR for rule in AREAS[area] if rule.cause_key == key)
    return iter(dict.fromkeys(pattern for rule in rules for pattern in rule.patterns))


def sign_of_collapse(found: Collapse, text: bytes, facts: Mapping[str, object], base: int = 0) -> Sign:
    """Return what to say of drafts that are not accepted any more; `text` is the log from `base` on."""
    known = next((item for item in diagnose(text, "mtp", None, facts) if item.cause_key == KNOWN_BUG), None)
    if known is not None:
        return Sign(_moved(known, base), quality=True)
    title, values = _IN_VAIN, {"share": _percent(found.share), "answers": len(found.answers)}
    if found.before is not None:
        title, values = _LESS, {**values, "before": _percent(found.before)}
    remedy = Message(
        N_(
            "Answers come more slowly, but are not wrong. Texts of another kind, or a higher temperature, "
            "can be the reason. If it stays so, restart the server; then draft fewer tokens, or set "
            "“Speculation” to none."
        )
    )
    return Sign(
        Diagnosis("acceptance_collapse", Message(title, values), remedy, _evidence(found.answers)),
        quality=True,
    )


def sign_of_drift(found: Drift) -> Sign:
    """Return what to say of answers that come slower than they did."""
    title = Message(
        N_("The model makes %(speed)s steps per second, it made %(before)s with as long a conversation"),
        {"speed": f"{found.speed:.1f}", "before": f"{found.before:.1f}"},
    )
    remedy = Message(
        N_(
            "Look at the cards: another program on them, heat and a power limit make them slower. Requests "
            "that force a form on the answer (JSON, grammars) are slower too. If nothing of it is so, "
            "restart the server."
        )
    )
    return Sign(Diagnosis("speed_drift", title, remedy, _evidence(found.answers)), quality=True)


def _evidence(answers: tuple[Answer, ...]) -> tuple[Evidence, ...]:
    return tuple(Evidence(0, answer.offset, answer.line[:500]) for answer in answers[-SHOWN:])


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
