"""A profile as a script, a unit or a configuration that starts its server without the panel."""

from dataclasses import replace

from controlpanel.lib.errors import Refused
from controlpanel.lib.text import N_, Message
from controlpanel.lib.words import translate
from controlpanel.llamacpp.command import Rendered
from controlpanel.llamacpp.exporting import ExportedText, ExportError, Kind, export, own_words
from controlpanel.llamacpp.exporting_types import PORT, Exported, Upkeep
from jobs.models import Build
from jobs.services.builds import capabilities_of
from servers.domain.policy import policy_of
from servers.models import ServerProfile
from servers.services.estimates import prepare
from servers.services.fit import fit_of
from servers.services.profiles import ProfileData, data_of, render_data

_MIB = 1024 * 1024
_WITHOUT_PORT: tuple[Kind, ...] = ("router", "llama-swap")
_NO_PORT = N_(
    "The profile leaves the port to the panel, so %(port)s stands here: "
    "change it when another program has it."
)
_BUNDLED = N_("This build is the panel's own bundled engine: elsewhere name the path of a llama-server.")
_ERROR = N_("The server does not start like this. %(problem)s")
_WARNING = N_("Worth knowing: %(problem)s")


def render_for(profile: ServerProfile, build: Build | None = None) -> Rendered:
    """Return the command of a profile, perhaps with another build, with a port that can be used."""
    return render_data(data_of(profile, build), profile.port or PORT)


def export_profile(profile: ServerProfile, kind: Kind, build: Build | None = None) -> ExportedText:
    """Return the text of one kind; what is wrong with the command is among its notes.

    Refused for a command that no file can hold.
    """
    data = data_of(profile, build)
    rendered = render_for(profile, build)
    argv, notes = own_words(rendered)
    what = Exported(
        name=profile.name,
        slug=profile.slug,
        executable=data.build.path,
        argv=argv,
        env=rendered.env,
        port=profile.port,
        model=data.model.path,
        mmproj=data.mmproj.path if data.mmproj else None,
        memory_mib=_memory(data) if kind == "systemd" else None,
        description=data.model.name,
        caps=capabilities_of(data.build),
        upkeep=_upkeep(data),
    )
    try:
        found = export(kind, what)
    except ExportError as error:
        raise Refused(translate(error.message), code="no_export") from error
    if data.build.bundled:
        notes = [Message(_BUNDLED), *notes]
    wrong = [
        Message(_ERROR if problem.level == "error" else _WARNING, {"problem": problem.message})
        for problem in rendered.problems
    ]
    if profile.port is None and kind not in _WITHOUT_PORT:
        notes = [Message(_NO_PORT, {"port": PORT}), *notes]
    return replace(found, notes=[*wrong, *found.notes, *notes])


def _upkeep(data: ProfileData) -> Upkeep:
    policy = policy_of(data.policy)
    idle = None if policy.idle_min is None else policy.idle_min * 60
    return Upkeep(policy.restart, policy.limit, policy.stable_s, policy.memory_mib, idle)


def _memory(data: ProfileData) -> int | None:
    """Return what the server takes of main memory in MiB, None when that is not known."""
    fit = fit_of(prepare(data))
    return None if fit.error or fit.host_total is None else -(-fit.host_total // _MIB)
