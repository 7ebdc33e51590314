"""Revisions of profiles: what changed from one to another in words, known-good ones, and the way back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from controlpanel.lib.errors import Refused
from controlpanel.lib.streams import publish_on_commit
from controlpanel.lib.words import translate
from controlpanel.llamacpp.meanings import MEANINGS
from jobs.models import Build, ModelArtifact
from jobs.services.audit import Actor, record
from servers.domain.policy_words import differences
from servers.models import Instance, ProfileRevision, ServerProfile
from servers.services.profiles import ProfileData, data_of, names_of, save_profile, values_of

# (value of a revision, how a person calls it)
_FIELDS = (
    ("name", gettext_noop("Name")),
    ("build", gettext_noop("Build")),
    ("model", gettext_noop("Model")),
    ("mmproj", gettext_noop("Vision projector")),
    ("port", gettext_noop("Port")),
    ("extra_args", gettext_noop("Extra arguments")),
)
_NAMED = ("build", "model", "mmproj")


@dataclass(frozen=True)
class Change:
    """One difference between two revisions; "" stands for what is not set."""

    label: str
    before: str
    after: str


def revisions_of(profile: ServerProfile) -> QuerySet[ProfileRevision]:
    """Return the revisions of a profile, the newest first."""
    return profile.revisions.select_related("author", "kept_build")


def changes(before: ProfileRevision, after: ProfileRevision) -> list[Change]:
    """Return what differs, field by field in the order of the form."""
    return _changes(before.values, before.names, after.values, after.names)


def changes_between(before: ProfileData, after: ProfileData) -> list[Change]:
    """Return what differs between two states of a profile, saved or not."""
    return _changes(values_of(before), names_of(before), values_of(after), names_of(after))


def _changes(
    before: Mapping[str, Any],
    names: Mapping[str, str],
    after: Mapping[str, Any],
    new_names: Mapping[str, str],
) -> list[Change]:
    found = []
    for key, label in _FIELDS:
        if before.get(key) != after.get(key):
            old, new = (names, new_names) if key in _NAMED else (before, after)
            found.append(Change(_(label), _word(old.get(key)), _word(new.get(key))))
    old_settings, new_settings = before.get("settings", {}), after.get("settings", {})
    for key, meaning in MEANINGS.items():
        if old_settings.get(key) != new_settings.get(key):
            found.append(Change(_(meaning.label), _word(old_settings.get(key)), _word(new_settings.get(key))))
    for label, was, now in differences(before.get("policy", {}), after.get("policy", {})):
        found.append(Change(_(label), translate(was), translate(now)))
    old_env, new_env = before.get("environment", {}), after.get("environment", {})
    for name in sorted({*old_env, *new_env}):
        if old_env.get(name) != new_env.get(name):
            found.append(Change(name, _word(old_env.get(name)), _word(new_env.get(name))))
    return found


def _word(value: object) -> str:
    return "" if value is None else str(value)


def mark_known_good(actor: Actor, revision: ProfileRevision, good: bool) -> None:
    """Say of a revision that it is known to work, or take that back; its build is kept as long as it says so.

    Refused when the build is gone.
    """
    build = Build.objects.filter(pk=revision.values.get("build")).first()
    if good and build is None:
        raise Refused(_gone("build", revision))
    kept = build if good else None
    rows = ProfileRevision.objects.filter(pk=revision.pk, kept_build__isnull=good)
    try:
        with transaction.atomic():
            if rows.update(kept_build=kept):
                told = {"revision": revision.number, "known_good": good}
                record(actor, "profile.known_good", revision.profile, after=told)
                publish_on_commit("instance", revision.profile.instance.pk)
    except IntegrityError as error:  # the build was deleted meanwhile
        raise Refused(_gone("build", revision)) from error
    revision.kept_build = kept


def roll_back(actor: Actor, revision: ProfileRevision, reason: str = "") -> ServerProfile:
    """Save the profile as it was, build included, as a new revision; Refused when part of it is gone."""
    first = _("Back to revision %(number)d.") % {"number": revision.number}
    return save_profile(actor, revision.profile, data_of_revision(revision), f"{first} {reason}".strip())


def data_as_started(instance: Instance) -> ProfileData | None:
    """Return the profile with which a server was started, None when nobody kept it.

    Refused names the build or the file that is gone.
    """
    profile = instance.profile
    kept = ProfileRevision.objects.filter(profile=profile, number=instance.revision).first()
    if kept is not None:
        return data_of_revision(kept)
    return data_of(profile) if profile.revision == instance.revision else None


def data_of_revision(revision: ProfileRevision) -> ProfileData:
    """Return what a revision holds; Refused names the build or the file that is gone."""
    values = revision.values
    build = Build.objects.filter(pk=values["build"]).first()
    model = ModelArtifact.objects.filter(pk=values["model"]).first()
    mmproj = ModelArtifact.objects.filter(pk=values["mmproj"]).first()
    if build is None:
        raise Refused(_gone("build", revision))
    if model is None:
        raise Refused(_gone("model", revision))
    if mmproj is None and values["mmproj"] is not None:
        raise Refused(_gone("mmproj", revision))
    return ProfileData(**{**values, "build": build, "model": model, "mmproj": mmproj})


def _gone(key: str, revision: ProfileRevision) -> str:
    texts = {
        "build": _("The build %(name)s of this revision was deleted."),
        "model": _("The model %(name)s of this revision is not registered any more."),
        "mmproj": _("The vision projector %(name)s of this revision is not registered any more."),
    }
    return texts[key] % {"name": revision.names.get(key, "")}
