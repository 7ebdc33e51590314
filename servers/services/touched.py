"""Which profiles another build would touch, told by rendering their command lines for both."""

from dataclasses import dataclass
from typing import Literal

from controlpanel.llamacpp.command import Line
from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.problems import Problem, errors
from jobs.models import Build
from servers.models import ServerProfile
from servers.services.profiles import ProfileData, data_of, render_data


@dataclass(frozen=True)
class Argument:
    """One argument that differs; None where a command line has none of this meaning."""

    before: str | None
    after: str | None


@dataclass(frozen=True)
class Touched:
    """What another build means for one profile; `warnings` are those that the old build does not give.

    `broken` when the profile does not start with the old build either.
    """

    profile: ServerProfile
    arguments: list[Argument]
    errors: list[Problem]
    warnings: list[Problem]
    broken: bool

    @property
    def outcome(self) -> Literal["same", "changes", "refused"]:
        """Return whether the server would start as now, with other arguments, or not at all."""
        if self.errors:
            return "refused"
        return "changes" if self.arguments else "same"


def touched_profiles(old: Build, new: Build) -> list[Touched]:
    """Look at each profile of the old build as if it had the new one; those that break come first."""
    rows = ServerProfile.objects.filter(build=old).select_related("model", "mmproj", "instance")
    order = ("refused", "changes", "same")
    return sorted((_touched(row, old, new) for row in rows), key=lambda found: order.index(found.outcome))


def arguments_between(before: ProfileData, after: ProfileData) -> list[Argument]:
    """Return the arguments that differ between the command lines of two states of a profile."""
    return _arguments(render_data(before).lines, render_data(after).lines)


def _touched(profile: ServerProfile, old: Build, new: Build) -> Touched:
    before, after = render_data(data_of(profile, old)), render_data(data_of(profile, new))
    wrong = errors(after.problems)
    return Touched(
        profile=profile,
        arguments=_arguments(before.lines, after.lines),
        errors=wrong,
        warnings=[one for one in after.problems if one not in wrong and one not in before.problems],
        broken=bool(errors(before.problems)),
    )


def _arguments(before: list[Line], after: list[Line]) -> list[Argument]:
    old, new = _by_meaning(before), _by_meaning(after)
    return [Argument(old.get(key), new.get(key)) for key in {**old, **new} if old.get(key) != new.get(key)]


def _by_meaning(lines: list[Line]) -> dict[str, str]:
    """Return each argument by the field that it comes from; extra arguments stay as they are written."""
    found: dict[str, str] = {}
    for flag, value, source in lines:
        if source != "extra":
            key = next((m.key for m in MEANINGS.values() if flag in m.names), flag)
            found[key] = flag if value is None else f"{flag} {value}"
    return found
