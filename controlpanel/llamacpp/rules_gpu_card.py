"""Rules for the card itself: start, heat, power, PCIe."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, Rule

CARD_RULES = (
    Rule(
        "card_not_initialised",
        (
            r"RmInitAdapter failed",
            r"rm_init_adapter failed",
            r"BAR\d is 0M @ 0x0",
            r"\bnvidia\b.{0,40}\bprobe\b.{0,40} failed with error -\d",
        ),
        N_("The driver could not start a card"),
        N_(
            "Switch the host off and on. Check the power cables and the slot; turn on “Above 4G decoding” in "
            "the firmware, and update the driver."
        ),
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "gpu_hot",
        (
            r"\b(?:HW|SW) Thermal Slowdown\s*: Active",
            r"clocks_event_reasons\.hw_thermal_slowdown\W+Active",
            r"NVRM: .{0,80}(?:over ?temp|[Tt]hermal (?:event|shutdown|violation))",
        ),
        N_("A card is too hot and made itself slower"),
        N_(
            "Clean the fans, let more air through the case, or lower the power limit (“sudo nvidia-smi "
            "-pl”). It is the reason for slow answers, not for errors."
        ),
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "gpu_power_brake",
        (
            r"HW Power Brake Slowdown\s*: Active",
            r"HW Slowdown\s*: Active",
            r"power cables? (?:is|are) not (?:properly )?connected",
        ),
        N_("The power supply made a card slower"),
        N_(
            "Check that each power connector of the card has its own cable and sits firmly, and that the "
            "power supply is strong enough. Lower the power limit until then (“sudo nvidia-smi -pl”)."
        ),
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "pcie_errors",
        (
            r"PCIe Bus Error: severity=Uncorrect(?:ed|able)",
            r"AER: Uncorrect(?:ed|able) \((?:Fatal|Non-Fatal)\)",
        ),
        N_("Data between a card and the mainboard are damaged"),
        N_(
            "Reseat the card, use a better or shorter riser, or set the slot to an older PCIe generation in "
            "the firmware."
        ),
        rank=COMMON,
        passing=True,
    ),
)
