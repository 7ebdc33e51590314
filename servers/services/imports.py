"""A pasted command line as the values of a profile's form: the files it names are looked up here."""

import shlex
from dataclasses import dataclass
from pathlib import PurePath

from django.conf import settings
from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from controlpanel.lib.text import N_, Message, Worded
from controlpanel.lib.words import translate
from controlpanel.llamacpp.importing import read_command
from controlpanel.llamacpp.importing_types import Imported, LineKind
from jobs.models import Build, ModelArtifact
from jobs.services.builds import capabilities_of
from servers.domain.policy_problems import PREFIX
from servers.models import ServerProfile

LOW_PORT = 1024
_FILES = frozenset({"-m", "--model", "-mm", "--mmproj"})

WORDS: dict[LineKind, str] = {
    "mapped": N_("taken over"),
    "renamed": N_("renamed"),
    "managed": N_("by the panel"),
    "dropped": N_("left out"),
    "wrong": N_("wrong"),
}


@dataclass(frozen=True)
class Found:
    """What a command became: the values of the form, a word on every part, and what is still to do."""

    values: dict[str, object]
    report: list[tuple[LineKind, str, str]]  # kind, word, text
    todo: list[str]


def import_command(text: str, build: Build, *, admin: bool) -> Found:
    """Read a command for a build; Refused says why a text is none. Only admins may set variables."""
    try:
        found = read_command(text, capabilities_of(build))
    except Worded as error:
        raise Refused(translate(error.message), "command", "not_a_command") from error
    if not (found.settings or found.model or found.mmproj or found.extra or found.port):
        raise Refused(_("Nothing in this text is an argument of llama-server."), "command", "not_a_command")
    todo: list[Message] = []
    model = _artifact(found.model, ModelArtifact.Kind.MODEL, todo)
    if not found.model:
        todo.append(Message(N_("The command names no model file: choose the model.")))
    mmproj = _artifact(found.mmproj, ModelArtifact.Kind.MMPROJ, todo) if found.mmproj else None
    port = found.port
    if port is not None and port < LOW_PORT:
        todo.append(Message(N_("The port %(port)s is below 1024: the panel chooses one."), {"port": port}))
        port = None
    if found.env and not admin:
        text_of_env = N_("Only an admin may take over variables of the environment: %(names)s.")
        todo.append(Message(text_of_env, {"names": ", ".join(found.env)}))
    values: dict[str, object] = {
        **found.settings,
        **{f"{PREFIX}{name}": value for name, value in found.policy.items()},
        "name": _name(found),
        "build": build.pk,
        "model": model.pk if model else None,
        "mmproj": mmproj.pk if mmproj else None,
        "port": port,
        "extra_args": shlex.join(found.extra),
        "environment": "\n".join(f"{name}={value}" for name, value in found.env.items()) if admin else "",
    }
    # What is said above of files and variables is not said again otherwise.
    settled = {*_FILES, *(() if admin else found.env)}
    report = [
        (line.kind, _(WORDS[line.kind]), translate(line.message))
        for line in found.report
        if line.kind != "mapped" or line.flag not in settled or (line.flag in _FILES and not todo)
    ]
    return Found(values, report, [translate(message) for message in todo])


def _artifact(path: str, kind: str, todo: list[Message]) -> ModelArtifact | None:
    """Return the registered file of a path, else the only one with its name."""
    if not path:
        return None
    rows = ModelArtifact.objects.filter(kind=kind, host__slug=settings.PANEL_HOST)
    exact = rows.filter(path=path).first()
    if exact is not None:
        return exact
    name = PurePath(path).name
    named = [row for row in rows.filter(path__endswith=name)[:100] if PurePath(row.path).name == name]
    if len(named) == 1:
        text = N_("%(path)s is not registered; %(name)s has the same file name and is taken.")
        todo.append(Message(text, {"path": path[:300], "name": named[0].name}))
        return named[0]
    text = N_("%(path)s is not among the models: register or download it, then choose it.")
    todo.append(Message(text, {"path": path[:300]}))
    return None


def _name(found: Imported) -> str:
    """Return a free name for the profile, after the alias or the model."""
    first = (found.alias or PurePath(found.model).stem)[:50]
    name, number = first, 2
    while name and ServerProfile.objects.filter(name=name).exists():
        name, number = f"{first} {number}", number + 1
    return name
