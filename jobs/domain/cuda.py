"""What CUDA's toolkits can compile: architectures, host compilers, drivers.

From NVIDIA's release notes and installation guides, and from the header crt/host_config.h of the toolkits.
Versions that are newer than the tables are not judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from jobs.domain.versions import numbers

# Architecture -> cards, as people know them
NAMES: Mapping[str, str] = MappingProxyType(
    {
        "50": "GTX 745–750 Ti, GTX 850M–960M",
        "52": "GTX 950–980 Ti, Tesla M40, M60",
        "53": "Jetson Nano, TX1",
        "60": "Tesla P100",
        "61": "GTX 1050–1080 Ti, Tesla P4, P40",
        "62": "Jetson TX2",
        "70": "V100, Titan V",
        "72": "Jetson Xavier",
        "75": "RTX 2060–2080 Ti, GTX 1630–1660 Ti, T4",
        "80": "A100, A30",
        "86": "RTX 3050–3090 Ti, A10, A40, RTX A2000–A6000",
        "87": "Jetson Orin",
        "89": "RTX 4060–4090, L4, L40S, RTX 6000 Ada",
        "90": "H100, H200, GH200",
        "100": "B200, GB200",
        "103": "B300, GB300",
        "110": "Jetson Thor",
        "120": "RTX 5050–5090, RTX PRO 2000–6000 Blackwell",
        "121": "DGX Spark (GB10)",
    }
)
_COMMON = ("61", "70", "75", "80", "86", "89", "90", "100", "120")

# Architecture -> the first toolkit that compiles for it; the first that no longer does
_ADDED = {
    "35": "5.0",
    "37": "6.5",
    "50": "6.0",
    "52": "6.5",
    "53": "7.0",
    "60": "8.0",
    "61": "8.0",
    "62": "8.0",
    "70": "9.0",
    "72": "9.2",
    "75": "10.0",
    "80": "11.0",
    "86": "11.1",
    "87": "11.4",
    "88": "13.0",
    "89": "11.8",
    "90": "11.8",
    "100": "12.8",
    "101": "12.8",
    "103": "12.9",
    "110": "13.0",
    "120": "12.8",
    "121": "12.9",
}
_DROPPED = {
    "35": "12.0",
    "37": "12.0",
    **dict.fromkeys(("50", "52", "53", "60", "61", "62", "70", "72", "101"), "13.0"),
}

# Toolkit -> the newest major version of gcc and of clang that it takes; it holds until the next row.
_HOST_COMPILERS = (
    ("11.0", 9, 9),
    ("11.1", 10, 10),
    ("11.2", 10, 11),
    ("11.5", 11, 12),
    ("11.6", 11, 13),
    ("11.8", 11, 14),
    ("12.0", 12, 14),
    ("12.1", 12, 15),
    ("12.3", 12, 16),
    ("12.4", 13, 17),
    ("12.6", 13, 18),
    ("12.8", 14, 19),
    ("13.0", 15, 20),
)
_NEWEST_JUDGED = (13, 0)

# Major version of the toolkit -> the oldest driver of Linux with which its programs start
_DRIVERS = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}

_ARCHITECTURE = re.compile(r"([0-9]{2,3})([af]?)(-real|-virtual)?")
NATIVE = "native"


def is_architecture(text: str) -> bool:
    """Tell whether CMake takes this as one CUDA architecture: 86, 86-real, 120a, native."""
    return text == NATIVE or _ARCHITECTURE.fullmatch(text) is not None


def base(architecture: str) -> str:
    """Return the number of an architecture: 86 of 86-real, 120 of 120a; "" of native."""
    found = _ARCHITECTURE.fullmatch(architecture)
    return found[1] if found else ""


def names(architecture: str) -> str:
    """Return the cards of an architecture, "" when it is not known."""
    return NAMES.get(base(architecture), "")


def common_architectures() -> tuple[str, ...]:
    """Return the architectures worth offering, oldest first."""
    return _COMMON


def added_in(architecture: str) -> str:
    """Return the first toolkit that compiles for an architecture, "" when it is not known."""
    return _ADDED.get(base(architecture), "")


def dropped_in(architecture: str) -> str:
    """Return the first toolkit that no longer compiles for an architecture, "" when all newer ones do."""
    return _DROPPED.get(base(architecture), "")


def too_old(toolkit: str, architecture: str) -> bool:
    """Tell whether a toolkit came out before it could compile for an architecture."""
    added = added_in(architecture)
    return bool(added) and numbers(toolkit) < numbers(added)


def dropped(toolkit: str, architecture: str) -> bool:
    """Tell whether a toolkit no longer compiles for an architecture."""
    gone = dropped_in(architecture)
    return bool(gone) and numbers(toolkit) >= numbers(gone)


def compiles(toolkit: str, architecture: str) -> bool:
    """Tell whether a toolkit compiles for an architecture, as far as the tables know."""
    return not too_old(toolkit, architecture) and not dropped(toolkit, architecture)


def newest_compiler(toolkit: str, kind: str) -> int | None:
    """Return the newest major version of "gcc" or "clang" that a toolkit takes, None when not known."""
    version = numbers(toolkit)[:2]
    if version > _NEWEST_JUDGED:
        return None
    rows = [row for row in _HOST_COMPILERS if numbers(row[0]) <= version]
    if not rows:
        return None
    return rows[-1][1] if kind == "gcc" else rows[-1][2]


def minimum_driver(toolkit: str) -> str:
    """Return the oldest driver with which programs of a toolkit start, "" when it is not known."""
    version = numbers(toolkit)
    return _DRIVERS.get(version[0], "") if version else ""


def runs_on(architectures: Iterable[str], card: str) -> bool:
    """Tell whether code for these architectures runs on a card of the architecture `card`.

    Machine code runs on its own major version from its minor one upwards; intermediate code ("-virtual", or
    without suffix) on everything newer; the kinds "a" and "f" on nothing newer. "native" is the host's own.
    """
    return any(has_machine_code(one, card) or _has_virtual_code(one, card) for one in architectures)


def has_machine_code(architecture: str, card: str) -> bool:
    """Tell whether an architecture's machine code runs on a card without the driver compiling it first."""
    if architecture == NATIVE:
        return True
    found = _ARCHITECTURE.fullmatch(architecture)
    if found is None or found[3] == "-virtual":
        return False
    if found[2]:
        return found[1] == card
    return found[1][:-1] == card[:-1] and int(found[1]) <= int(card)


def _has_virtual_code(architecture: str, card: str) -> bool:
    found = _ARCHITECTURE.fullmatch(architecture)
    if found is None or found[3] == "-real":
        return False
    return found[1] == card if found[2] else int(found[1]) <= int(card)
