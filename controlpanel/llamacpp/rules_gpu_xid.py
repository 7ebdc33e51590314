"""Rules for Xid messages, by which the NVIDIA driver reports errors to the kernel's log."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, GENERIC, SPECIFIC, Near, Rule

_XID = r"NVRM: Xid \((?:PCI:)?(?P<pci>[\da-fA-F:.]+)\): "
_PROGRAM = N_(
    "A program did something wrong on the card, rarely the card itself. Restart the server and use a newer "
    "build, or the one before. If it comes back with every program, test the card and its power."
)
_DEFECT = N_(
    "Restart the host, so that the card replaces the bad row. Look at “nvidia-smi -q -d ECC,ROW_REMAPPER”; "
    "if it comes back, or the log says that the repair failed, have the card replaced."
)
_RESET = N_(
    "Restart the host, if need be by switching it off. Update the driver. If it comes back, check the power "
    "supply, cables and temperature, and have the card tested."
)
# Number, title, remedy, rank. 43, 45 and 154 only follow from something else.
_KNOWN = (
    ("13", N_("A GPU kernel failed (Xid 13, graphics engine exception)"), _PROGRAM, COMMON),
    ("31", N_("A GPU kernel touched memory that is not its own (Xid 31, MMU fault)"), _PROGRAM, COMMON),
    ("32", N_("The card received a broken command (Xid 32)"), _RESET, COMMON),
    ("43", N_("The card stopped a program's work (Xid 43)"), _PROGRAM, GENERIC),
    ("45", N_("The driver cleaned up after a program that ended (Xid 45)"), _PROGRAM, GENERIC),
    ("48", N_("The card's memory has an error that cannot be corrected (Xid 48)"), _DEFECT, SPECIFIC),
    ("61", N_("A controller inside of the card failed (Xid 61)"), _RESET, SPECIFIC),
    ("62", N_("A controller inside of the card halted (Xid 62)"), _RESET, SPECIFIC),
    (
        "63",
        N_("The card put a bad row of its memory out of use (Xid 63)"),
        N_(
            "The repair takes effect when the card is reset: restart the host. One such message is no harm; "
            "many mean that the memory wears out (“nvidia-smi -q -d ROW_REMAPPER”)."
        ),
        COMMON,
    ),
    ("64", N_("The card could not put a bad row of its memory out of use (Xid 64)"), _DEFECT, SPECIFIC),
    (
        "74",
        N_("The link between two cards failed (Xid 74, NVLink)"),
        N_(
            "Restart the host. If it comes back, reseat the bridge and the cards; until then split by "
            "layers, which needs the link least."
        ),
        SPECIFIC,
    ),
    ("94", N_("An error of the card's memory hit one program (Xid 94)"), _DEFECT, SPECIFIC),
    ("95", N_("An error of the card's memory may have hit all programs (Xid 95)"), _DEFECT, SPECIFIC),
    ("109", N_("The card did not change to another program in time (Xid 109)"), _RESET, COMMON),
    ("119", N_("The card's own processor does not answer (Xid 119, GSP)"), _RESET, SPECIFIC),
    ("120", N_("The card's own processor failed (Xid 120, GSP)"), _RESET, SPECIFIC),
    ("140", N_("The card's memory has an error that cannot be corrected (Xid 140)"), _DEFECT, SPECIFIC),
)
_OFF_TITLE = N_("A card vanished from the PCIe bus")
_OFF_REMEDY = N_(
    "No setting of a server mends this. Switch the host off and on; then check the power cables, the riser "
    "and the slot, the temperature, and lower the power limit (“nvidia-smi -pl”)."
)
_ALL = tuple(f"xid{number}" for number, *_ in _KNOWN)
_EFFECTS = ("xid43", "xid45", "xid_other")
_WORSE = {"48", "61", "62", "64", "74", "94", "95", "119", "120", "140"}

XID_RULES = (
    Rule(
        "xid79",
        (_XID + r"79\b", r"NVRM: .{0,80}\bGPU has fallen off the bus"),
        _OFF_TITLE,
        _OFF_REMEDY,
        explains=(*_ALL, "xid_other", "card_not_initialised", "gpu_memory_defect"),
        with_=(Near(r"Xid.{0,30}: 154\b|GPU recovery action changed", 0, 4, required=False),),
        passing=True,
    ),
    Rule(
        "xid8_link_stall",
        (
            _XID + r"8\b",
            r"RC watchdog: GPU is probably locked",
            r"CUDA error: the launch timed out and was terminated",
        ),
        N_("A card made no progress for seconds, and the driver stopped it (Xid 8)"),
        N_(
            "With several cards, data often wait for a slow slot: move the card to a faster one, or put less "
            "of the model on it (tensor split). A card that also drives a monitor has a time limit."
        ),
        explains=_EFFECTS,
        with_=(Near(r"NVRM: Xid .{0,40}: 8\b", 6, 6, required=False),),
        passing=True,
    ),
    *(
        Rule(
            f"xid{number}",
            (_XID + number + r"\b",),
            title,
            remedy,
            rank=rank,
            explains=(*_EFFECTS, "xid13", "xid31") if number in _WORSE else (),
            passing=True,
        )
        for number, title, remedy, rank in _KNOWN
    ),
    Rule(
        "xid_other",
        (_XID + r"(?!(?:8|79|154|" + "|".join(n for n, *_ in _KNOWN) + r")\b)(?P<number>\d+)\b",),
        N_("The NVIDIA driver reports an error of a card (Xid %(number)s)"),
        N_(
            "NVIDIA's list of Xid errors tells what the number means. Restart the server, then the host, and "
            "update the driver if it comes back."
        ),
        rank=GENERIC,
        passing=True,
    ),
)
