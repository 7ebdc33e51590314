"""Rules for servers that go on but do so badly: slow, or with nonsense as answers."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, Change, Near, Rule

QUALITY_RULES = (
    Rule(
        "turboquant_garbage",
        (r"\bK \((?P<type>turbo\d)\b.{0,60}\bV \((?:turbo\d|\w+)\b",),
        N_("The answers are nonsense: this build's %(type)s cache is wrong on this card"),
        N_(
            "On cards of the RTX 50 series (compute capability 12) some TurboQuant builds compute wrong "
            "values. Use q8_0 as KV cache type, or a newer build of the fork."
        ),
        lambda found: [Change("cache_type_k", "q8_0"), Change("cache_type_v", "q8_0")],
        rank=COMMON,
        with_=(
            Near(r"compute capability 12\.", before=120),
            Near(r"content\W.{0,400}?\b(\w{3,30}) \1 \1\b", after=120),
        ),
        passing=True,
    ),
    Rule(
        "too_many_threads",
        (r"tokens per second \(\d+(?:\.\d+)? with the previous build\)",),
        N_("The server became slower with this build, and experts are computed on the CPU"),
        N_(
            "Builds differ in how many threads serve them best. Set the threads to the number of physical "
            "cores, or a few less, and measure again."
        ),
        rank=COMMON,
        with_=(Near(r"(?:=CPU\b|overrid\w+ to CPU)", before=120),),
        passing=True,
    ),
)
