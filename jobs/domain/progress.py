"""How far a build is, read from the last lines of its log."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MAX_TEXT = 200

_COLOUR = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_NINJA = re.compile(r"\[(\d{1,7})/(\d{1,7})\] (.+)")
_MAKE = re.compile(r"\[ {0,2}(\d{1,3})%\] (.+)")
_GIT = re.compile(
    r"(?:remote: )?(?P<stage>[A-Z][A-Za-z ]{2,40}): +\d{1,3}% \((?P<done>\d{1,10})/(?P<total>\d{1,10})\)"
    r"(?:, (?P<size>[\d.]{1,10} (?:[KMG]iB|bytes))(?: \| (?P<rate>[\d.]{1,10} (?:[KMG]iB|bytes)/s))?)?"
)
_BUILDING = re.compile(r"Building (\w{1,10}) object (\S+)")
_LINKING = re.compile(r"Linking (?:\w{1,10} )(?:static |shared )?(?:executable|library|module) (\S+)")
_OBJECT = re.compile(r"CMakeFiles/[^/]+\.dir/")


@dataclass(frozen=True)
class Progress:
    """`done` of `total` steps, and in words what was begun last."""

    done: int
    total: int
    text: str


def build_progress(lines: Iterable[str]) -> Progress | None:
    """Return the newest count of Ninja ([12/340]) or Make ([ 12%]); None when there is none."""
    for line in _newest_first(lines):
        if found := _NINJA.match(line):
            done, total = int(found[1]), int(found[2])
        elif found := _MAKE.match(line):
            done, total = int(found[1]), 100
        else:
            continue
        if done <= total and total > 0:
            return Progress(done, total, _work(found[found.lastindex or 0]))
    return None


def git_progress(lines: Iterable[str]) -> Progress | None:
    """Return the newest count of git ("Receiving objects:  45% (450/1000)"); None when there is none."""
    for line in _newest_first(lines):
        found = _GIT.match(line)
        if found is None or int(found["total"]) == 0 or int(found["done"]) > int(found["total"]):
            continue
        parts = (found["stage"], found["size"], found["rate"])
        return Progress(int(found["done"]), int(found["total"]), ", ".join(part for part in parts if part))
    return None


def _newest_first(lines: Iterable[str]) -> list[str]:
    """Return the lines from the last to the first; a carriage return begins a line anew."""
    pieces = [piece for line in lines for piece in line.replace("\n", "\r").split("\r")]
    return [_COLOUR.sub("", piece).strip() for piece in reversed(pieces)]


def _work(text: str) -> str:
    if found := _BUILDING.match(text):
        return _OBJECT.sub("", found[2]).removesuffix(".o")[-MAX_TEXT:]
    if found := _LINKING.match(text):
        return f"Linking {found[1].rpartition('/')[2]}"[:MAX_TEXT]
    return text[:MAX_TEXT]
