"""manage.py command PROFILE: the command line of a profile, or a file that starts its server elsewhere."""

import shlex
from typing import Any

from django.core.management.base import CommandParser
from django.utils.translation import gettext as _

from controlpanel.lib.cli import JsonCommand
from controlpanel.lib.errors import Refused
from controlpanel.lib.words import translate
from controlpanel.llamacpp.exporting import KINDS
from jobs.models import Build
from servers.services.exports import export_profile, render_for
from servers.services.lookup import find_profile


class Command(JsonCommand):
    """Renders; nothing is stored or started."""

    help = "Print the command line of a profile, or a script, unit or configuration for it (--as)."

    def arguments(self, parser: CommandParser) -> None:
        """PROFILE, another build, and the kind of file."""
        parser.add_argument("profile", help="slug or name")
        parser.add_argument("--build", metavar="NAME", help="a registered build instead of the profile's own")
        parser.add_argument("--as", dest="kind", choices=list(KINDS), help="print a file of this kind")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the words with their sources and problems, and with --as the text of the file."""
        profile = find_profile(options["profile"])
        build = None if options["build"] is None else _build(options["build"])
        rendered = render_for(profile, build)
        used = build or profile.build
        value: dict[str, Any] = {
            "profile": profile.slug,
            "build": used.name,
            "executable": used.path,
            "argv": rendered.argv,
            "env": rendered.env,
            "flags": [line._asdict() for line in rendered.lines],
            "problems": [
                {"level": found.level, "field": found.field, "text": translate(found.message)}
                for found in rendered.problems
            ],
        }
        if options["kind"] is not None:
            found = export_profile(profile, options["kind"], build)
            value |= {
                "text": found.text,
                "filename": found.filename,
                "notes": list(map(translate, found.notes)),
            }
        return value

    def text(self, value: dict[str, Any]) -> str:
        """Return the file or the command line; what is to be known of it goes to the other stream."""
        if "text" in value:
            for note in value["notes"]:
                self.stderr.write(f"! {note}")
            return str(value["text"]).rstrip("\n")
        for problem in value["problems"]:
            self.stderr.write(f"! {problem['level']}: {problem['text']}")
        env = [f"{name}={shlex.quote(word)}" for name, word in value["env"].items()]
        return " ".join([*env, shlex.join([value["executable"], *value["argv"]])])


def _build(name: str) -> Build:
    """Return the build of a name; Refused lists the builds there are."""
    build = Build.objects.filter(name=name).first()
    if build is None:
        names = ", ".join(Build.objects.values_list("name", flat=True)[:20]) or "–"
        text = _("There is no build %(name)s. Builds: %(names)s.")
        raise Refused(text % {"name": name, "names": names}, "build", "no_such_build")
    return build
