"""manage.py import-command "llama-server -m ..." [--build NAME]: what a profile stores of a command line."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from controlpanel.lib.cli import JsonCommand
from controlpanel.lib.errors import Refused
from controlpanel.lib.text import Worded
from controlpanel.lib.words import translate
from controlpanel.llamacpp.importing import read_command
from jobs.services.builds import capabilities_of, ready_build


class Command(JsonCommand):
    """A pasted command as the fields of a profile; nothing is stored or started."""

    help = "Say what a server profile stores of a command line, a docker run command or a systemd unit."

    def arguments(self, parser: CommandParser) -> None:
        """Add the text and the build."""
        parser.add_argument("command", metavar="TEXT", help="the command as one argument, in quotes")
        parser.add_argument("--build", metavar="NAME", help="name of a registered build that is to run it")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return {settings, model, mmproj, port, alias, extra, env, policy, report: [{kind, flag, text}]}."""
        caps = None if options["build"] is None else capabilities_of(ready_build(options["build"]))
        try:
            found = read_command(options["command"], caps)
        except Worded as error:
            raise Refused(translate(error.message), "command", "not_a_command") from error
        return {
            "settings": found.settings,
            "model": found.model,
            "mmproj": found.mmproj,
            "port": found.port,
            "alias": found.alias,
            "extra": list(found.extra),
            "env": found.env,
            "policy": found.policy,
            "report": [
                {"kind": line.kind, "flag": line.flag, "text": translate(line.message)}
                for line in found.report
            ],
        }

    def text(self, value: dict[str, Any]) -> str:
        """One line for every part of the command, the kind first."""
        return "\n".join(f"{line['kind']:8} {line['text']}" for line in value["report"])
