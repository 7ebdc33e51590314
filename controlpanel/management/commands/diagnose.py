"""manage.py diagnose LOG --area build: what a log shows to be wrong, and what mends it."""

import sys
from collections import deque
from pathlib import Path
from typing import Any, BinaryIO

from django.core.management.base import CommandParser
from django.utils.translation import gettext as _

from controlpanel.lib.cli import JsonCommand
from controlpanel.lib.errors import Refused
from controlpanel.lib.words import translate
from controlpanel.llamacpp.rule_log import MAX_BYTES
from controlpanel.llamacpp.rules import AREAS, diagnose

_CHUNK = 1024 * 1024


class Command(JsonCommand):
    """The same rules that explain a failed run on its page."""

    help = "Find the known causes in a log, the best first."

    def arguments(self, parser: CommandParser) -> None:
        """LOG, and what it is the log of."""
        parser.add_argument("log", help="path of the log, - for stdin")
        known = ", ".join(sorted(AREAS))
        parser.add_argument("--area", help=f"what was done: {known} (default: any of them)")
        parser.add_argument(
            "--exit-code",
            type=int,
            help="of the process; a signal is negative, or 128 more (default: it failed)",
        )

    def answer(self, options: dict[str, Any]) -> list[dict[str, Any]]:
        """Return [{cause_key, title, evidence, remedy, change}], [] when nothing is known."""
        area = options["area"]
        if area is not None and area not in AREAS:
            message = _("Unknown area “%(area)s”. Known: %(known)s.")
            raise Refused(message % {"area": area, "known": ", ".join(sorted(AREAS))}, "area", "unknown_area")
        return [
            {
                "cause_key": found.cause_key,
                "title": translate(found.title),
                "evidence": [line.text for line in found.evidence],
                "remedy": translate(found.remedy),
                "change": [{"field": change.field, "value": change.value} for change in found.change],
            }
            for found in diagnose(_read(options["log"]), area or tuple(AREAS), options["exit_code"])
        ]

    def text(self, value: list[dict[str, Any]]) -> str:
        """Each cause as a paragraph: title, the lines that show it, remedy, fields to change."""
        if not value:
            return _("No known cause was found in this log.")
        return "\n\n".join(_paragraph(number, cause) for number, cause in enumerate(value, 1))


def _paragraph(number: int, cause: dict[str, Any]) -> str:
    lines = [f"{number}. {cause['title']} [{cause['cause_key']}]"]
    lines += [f"   | {line}" for line in cause["evidence"]]
    lines.append(f"   {cause['remedy']}")
    lines += [f"   {change['field']} = {change['value']!r}" for change in cause["change"]]
    return "\n".join(lines)


def _read(path: str) -> bytes:
    """Return as much of the log's end as rules look at."""
    try:
        if path == "-":
            return _tail(sys.stdin.buffer)
        with Path(path).open("rb") as stream:
            if stream.seekable():
                stream.seek(max(0, stream.seek(0, 2) - MAX_BYTES))
            return _tail(stream)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        message = _("The log %(path)s cannot be read: %(reason)s.")
        raise Refused(message % {"path": path, "reason": reason}, "log", "unreadable_log") from error


def _tail(stream: BinaryIO) -> bytes:
    chunks: deque[bytes] = deque()
    size = 0
    while chunk := stream.read(_CHUNK):
        chunks.append(chunk)
        size += len(chunk)
        while size - len(chunks[0]) >= MAX_BYTES:
            size -= len(chunks.popleft())
    return b"".join(chunks)
