"""manage.py gguf FILE_OR_URL: what a GGUF file's header says, and what can be done with it."""

from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from django.core.management.base import CommandParser
from django.utils.translation import gettext as _

from controlpanel.lib.cli import JsonCommand
from controlpanel.lib.errors import Refused
from controlpanel.lib.text import Worded
from controlpanel.lib.words import translate
from controlpanel.llamacpp.gguf import GgufError
from controlpanel.llamacpp.gguf_errors import one_line
from controlpanel.llamacpp.gguf_report import Report, to_json
from jobs.services.gguf_reports import report_file, report_header


class Command(JsonCommand):
    """Reads the header only, with bounds on memory and time; of an address, a few megabytes at most."""

    help = "Show the header facts of a GGUF file, its parts, what fits it and which builds can run it."

    def arguments(self, parser: CommandParser) -> None:
        """FILE_OR_URL: path of the .gguf, or an https address of one."""
        parser.add_argument("file", metavar="file_or_url")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return what controlpanel.llamacpp.gguf_report.to_json says."""
        try:
            return to_json(_report(options["file"]), translate)
        except GgufError as error:
            raise Refused(translate(error.message), code=error.code) from error
        except Worded as error:
            raise Refused(translate(error.message), code=getattr(error, "code", "error")) from error

    def text(self, value: dict[str, Any]) -> str:
        """One line per fact; names from the file cannot steer the terminal."""
        facts = value.pop("facts")
        lines = [f"{key:18} {_shown(item)}" for key, item in value.items() if not _nested(item)]
        lines += [f"{key:18} {_shown(item)}" for key, item in facts.items() if key not in value]
        for part in value["problems"]:
            lines.append(f"! {part}")
        for partner in value["fits"]:
            lines += _judged(_("Fits %(name)s: %(answer)s"), partner["name"], partner["fits"], partner)
        for build in value["builds"] or ():
            lines += _judged(_("Runs on %(name)s: %(answer)s"), build["build"], build["runs"], build)
        return "\n".join(one_line(line.encode("utf-8", "replace")) for line in lines)


def _report(target: str) -> Report:
    if "://" not in target:
        return report_file(Path(target))
    from jobs.adapters.peek import peek  # brings the HTTP client along

    name = PurePosixPath(unquote(urlsplit(target).path)).name
    return report_header(peek(target), name or target)


def _nested(item: Any) -> bool:
    return isinstance(item, list) or (isinstance(item, dict) and "count" not in item)


def _shown(item: Any) -> str:
    if isinstance(item, dict):
        return ", ".join(f"{key} {_shown(value)}" for key, value in item.items() if value is not None)
    if isinstance(item, tuple | list):
        return "; ".join(_shown(value) for value in item[:40])
    return "-" if item is None or item == "" else str(item)


def _judged(text: str, name: str, answer: bool | None, found: dict[str, Any]) -> list[str]:
    word = {True: _("yes"), False: _("no"), None: _("unknown")}[answer]
    return [text % {"name": name, "answer": word}, *(f"    {reason['text']}" for reason in found["reasons"])]
