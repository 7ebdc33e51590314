"""What choosing another build means for what a form holds: what is lost, and what is written differently."""

from dataclasses import dataclass

from django.utils.translation import gettext as _

from controlpanel.lib.words import translate
from controlpanel.llamacpp.extra_args import ExtraArgsError, parse_extra
from controlpanel.llamacpp.lost import lost, respelled
from controlpanel.llamacpp.meanings import MEANINGS
from jobs.models import Build
from jobs.services.builds import capabilities_of
from servers.services.profiles import ProfileData


@dataclass(frozen=True)
class LostRow:
    """One thing that the new build cannot do; `key` is its field, empty for an argument or a variable."""

    key: str
    label: str
    value: str
    why: str


@dataclass(frozen=True)
class BuildChange:
    """The change from one build to another."""

    old: Build
    new: Build
    lost: list[LostRow]
    respelled: list[tuple[str, str, str]]  # label, words before, words after

    @property
    def keys(self) -> str:
        """The fields that have to be emptied, with a space between them."""
        return " ".join(row.key for row in self.lost if row.key)


def change_of(data: ProfileData | None, old_pk: int | None) -> BuildChange | None:
    """Return what changes for a form's data since it had another build; None when it is the same one."""
    if data is None or not old_pk or old_pk == data.build.pk:
        return None
    other = Build.objects.exclude(capabilities={}).filter(pk=old_pk).first()
    if other is None:
        return None
    before, after = capabilities_of(other), capabilities_of(data.build)
    try:
        extra = parse_extra(data.extra_args)
    except ExtraArgsError:  # told at its field
        extra = []
    rows = [
        LostRow(
            one.key if one.key in MEANINGS else "",
            translate(one.label) if one.key in MEANINGS else f"{translate(one.label)} {one.key}",
            one.value,
            translate(one.message),
        )
        for one in lost(data.settings, extra, data.environment, before, after)
    ]
    words = [(_(MEANINGS[key].label), old, new) for key, old, new in respelled(data.settings, before, after)]
    return BuildChange(other, data.build, rows, words)
