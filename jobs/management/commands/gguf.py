"""manage.py gguf FILE: what a GGUF file's header says."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from controlpanel.lib.cli import JsonCommand
from controlpanel.lib.errors import Refused
from controlpanel.llamacpp.gguf import GgufError, describe


class Command(JsonCommand):
    """Reads the header only, with bounds on memory and time."""

    help = "Show the header facts of a GGUF file."

    def arguments(self, parser: CommandParser) -> None:
        """FILE: path of the .gguf."""
        parser.add_argument("file", type=Path)

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of controlpanel.llamacpp.gguf.Description."""
        try:
            return dict(describe(options["file"]))
        except GgufError as error:
            raise Refused(error, code=error.code) from error

    def text(self, value: dict[str, Any]) -> str:
        """One line per fact."""
        return "\n".join(f"{key:15} {item}" for key, item in value.items())
