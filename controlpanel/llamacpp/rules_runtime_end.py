"""Rules for the end of a server that had served: killed, crashed, aborted, ended from outside."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, GENERIC, Near, Rule
from controlpanel.llamacpp.rules_runtime_facts import SERVING, Facts, was_not_asked_to_stop

_SERVED = (r"listening on http://", r": id +\d+ \| task ", r"update_slots: ", r"done request: ")
_CRASHES = (-11, 139, -7, 135, -8, 136, -4, 132)
_LINE = Near(SERVING, before=120)
# Forks with MTP free memory twice when they end, long after all work is done.
_ENDING = r"cleaning up before exit"


def _nobody_asked(facts: Facts) -> bool:
    return facts.get("stop_requested") is False


END_RULES = (
    Rule(
        "killed",
        (),
        N_("The server was ended by force (SIGKILL), from outside or by the kernel"),
        N_(
            "The kernel does this when the host's memory runs out: “dmesg” or “journalctl -k” then names the "
            "process. Else a person, a script or a container's limit did it. Lower the prompt cache, the "
            "context size or the layers on the CPU if it was the memory."
        ),
        rank=GENERIC,
        exit_codes=(-9, 137),
        when=was_not_asked_to_stop,
        passing=True,
    ),
    Rule(
        "ended_from_outside",
        (),
        N_("Somebody or something outside of the panel told the server to stop"),
        N_(
            "It ended in good order after a signal (SIGTERM or SIGINT) that the panel did not send: a "
            "person, a script, or the host shutting down. Start it again when that is over."
        ),
        rank=GENERIC,
        exit_codes=(0, -15, 143, -2, 130),
        needs_failure=False,
        when=_nobody_asked,
        passing=True,
    ),
    Rule(
        "assertion_failed",
        (
            r"GGML_ASSERT\((?P<what>.{1,300})\) failed",
            r"GGML_ABORT\(",
            r"terminate called after throwing an instance of '(?P<what>[^']*)'",
            r"\*\*\* stack smashing detected \*\*\*",
            r"double free or corruption",
            r"malloc\(\): (?:corrupted|invalid|unaligned)",
        ),
        N_("The server stopped itself at a check of its own code"),
        N_(
            "A fault of this build, or a setting that it does not foresee. Use a newer build, or the one "
            "before; if it comes back, try without speculation, with one slot and an f16 KV cache."
        ),
        rank=COMMON,
        with_=(_LINE,),
        unless_near=(Near(_ENDING, before=40),),
        explains=("crashed",),
        passing=True,
    ),
    Rule(
        "crashed",
        _SERVED,
        N_("The server crashed while it served"),
        N_(
            "The log does not say why; the last line shows what it was doing. It is a fault of the build, or "
            "of the host's memory if it happens with every build. Use a newer build or the one before."
        ),
        rank=GENERIC,
        exit_codes=_CRASHES,
        last=True,
        unless_near=(Near(_ENDING, after=60),),
        when=was_not_asked_to_stop,
        passing=True,
    ),
)
