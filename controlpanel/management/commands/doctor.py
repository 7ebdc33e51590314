"""manage.py doctor: whether this host is ready to serve models, as its page says it."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from controlpanel.lib.cli import JsonCommand
from controlpanel.lib.words import translate
from jobs.domain.readiness import GROUPS, STATE_WORDS, Finding
from jobs.services.readiness import readiness

_MARKS = {"good": "+", "look": "!", "bad": "x", "unknown": "?"}


class Command(JsonCommand):
    """Reads this host and says what to mend; it changes nothing. The limits are those of this shell."""

    help = (
        "Say whether this host is ready to serve models, why, and which commands help; it runs none of them."
    )

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return {host, findings: [{group, key, state, title, value: [], why, commands: []}]}."""
        found = readiness()
        return {
            "host": settings.PANEL_HOST,
            "findings": [_plain(group, finding) for group, findings in found.items() for finding in findings],
        }

    def text(self, value: dict[str, Any]) -> str:
        """One paragraph per finding below the name of its group."""
        lines: list[str] = []
        for group, (name, _judges, empty) in GROUPS.items():
            lines += ["", translate(name)]
            findings = [finding for finding in value["findings"] if finding["group"] == group]
            if not findings:
                lines.append(f"  {translate(empty)}")
            for finding in findings:
                lines += _paragraph(finding)
        return "\n".join(lines[1:])


def _plain(group: str, finding: Finding) -> dict[str, Any]:
    return {
        "group": group,
        "key": finding.key,
        "state": finding.state,
        "title": translate(finding.title),
        "value": [translate(line) for line in finding.value],
        "why": translate(finding.why),
        "commands": list(finding.commands),
    }


def _paragraph(finding: dict[str, Any]) -> list[str]:
    state = finding["state"]
    first = f"  {_MARKS[state]} {finding['title']}: {'; '.join(finding['value'])} ({_(STATE_WORDS[state])})"
    if state == "good":
        return [first]
    return [
        first,
        f"    {finding['why']}",
        *(f"      {line}" for command in finding["commands"] for line in command.splitlines()),
    ]
