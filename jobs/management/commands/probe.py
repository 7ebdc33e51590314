"""manage.py probe BINARY: what a llama-server binary is and accepts."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from controlpanel.lib.cli import JsonCommand
from controlpanel.lib.errors import Refused
from jobs.adapters.probe import ProbeError, probe_binary


class Command(JsonCommand):
    """Runs the binary's --help, --version and --list-devices; changes nothing."""

    help = "Show the capabilities of a llama-server binary."

    def arguments(self, parser: CommandParser) -> None:
        """BINARY: path of the executable."""
        parser.add_argument("binary", type=Path)

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return {version, build, commit, spec_types, mtp_value, cache_types, devices, flags}."""
        try:
            found = probe_binary(options["binary"].absolute()).to_dict()
        except ProbeError as error:
            raise Refused(error, code="not_llama_server") from error
        keys = ("version", "build", "commit", "spec_types", "mtp_value", "cache_types", "devices", "flags")
        return {key: found[key] for key in keys}

    def text(self, value: dict[str, Any]) -> str:
        """One line per fact."""
        rows = {**value, "flags": len(value["flags"])}
        return "\n".join(f"{key:12} {item}" for key, item in rows.items())
