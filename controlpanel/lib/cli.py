"""Commands whose answer is one JSON value on stdout (--json) or text for people."""

import json
import logging
import os
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from controlpanel.lib.errors import Refused


class JsonCommand(BaseCommand):
    """Base of commands with --json: an error is {"error", "detail"} and exit code 1."""

    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Add --json and the command's own arguments."""
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON value")
        self.arguments(parser)

    def arguments(self, parser: CommandParser) -> None:
        """Add the command's own arguments."""

    def answer(self, options: dict[str, Any]) -> Any:
        """Return the JSON value; raise Refused with words."""
        raise TypeError(f"{type(self).__name__} has no answer()")

    def text(self, value: Any) -> str:
        """Return the value for people."""
        return json.dumps(value, indent=2, ensure_ascii=False)

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the answer, or the error and exit with 1."""
        as_json = options.pop("as_json")
        try:
            value = self._quietly(options) if as_json else self.answer(options)
        except Refused as error:
            if as_json:
                self._print(json.dumps({"error": error.code, "detail": str(error)}, ensure_ascii=False))
            else:
                self.stderr.write(str(error))
            sys.exit(1)
        self._print(json.dumps(value, ensure_ascii=False) if as_json else self.text(value))

    def _quietly(self, options: dict[str, Any]) -> Any:
        logging.disable(logging.WARNING)
        try:
            return self.answer(options)
        finally:
            logging.disable(logging.NOTSET)

    def _print(self, text: str) -> None:
        try:
            self.stdout.write(text)
            self.stdout.flush()
        except BrokenPipeError:
            # The reader (head, jq) is gone: that is its right; python must not complain at exit either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
