"""Server profiles: save, delete, render the command line for the chosen build."""

import re
import zlib
from dataclasses import dataclass, field, fields, replace
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.text import slugify
from django.utils.translation import gettext as _

from controlpanel.lib.access import has_role
from controlpanel.lib.errors import Refused
from controlpanel.lib.streams import publish_on_commit
from controlpanel.lib.text import N_
from controlpanel.lib.words import translate
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.command import Managed, Rendered, render
from controlpanel.llamacpp.extra_args import ExtraArgsError, parse_extra
from controlpanel.llamacpp.facts import HostFacts, ModelFacts
from controlpanel.llamacpp.problems import Problem, error, errors, warning
from jobs.models import Build, Host, ModelArtifact, Run
from jobs.services import runs
from jobs.services.artifacts import models_folder
from jobs.services.audit import MAX_REASON, Actor, record
from jobs.services.builds import capabilities_of
from jobs.services.toolchains import toolchain_of
from servers.domain.policy import policy_of
from servers.domain.policy import values_of as policy_values
from servers.domain.policy_problems import problems_of
from servers.domain.preflight import NOT_PROBED, PROBED_BEFORE
from servers.models import Instance, ProfileRevision, ServerProfile


@dataclass(frozen=True)
class ProfileData:
    """What a form or a command gives for a profile; `settings` holds the touched meanings only."""

    name: str
    build: Build
    model: ModelArtifact
    mmproj: ModelArtifact | None = None
    port: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    extra_args: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)


def data_of(profile: ServerProfile, build: Build | None = None) -> ProfileData:
    """Return what a saved profile holds, perhaps as if it had another build."""
    return ProfileData(
        name=profile.name,
        build=build or profile.build,
        model=profile.model,
        mmproj=profile.mmproj,
        port=profile.port,
        settings=profile.settings,
        extra_args=profile.extra_args,
        environment=profile.environment,
        policy=profile.policy,
    )


def save_profile(
    actor: Actor,
    profile: ServerProfile | None,
    data: ProfileData,
    reason: str = "",
    based_on: int | None = None,
) -> ServerProfile:
    """Create or change a profile; each change is a revision with its reason, and no change is none.

    Refused with the first error of its command line or policy, for variables that the actor may not set,
    and when somebody saved after the revision `based_on`, which the change was made from.
    """
    data = replace(data, name=re.sub(r"\s+", " ", data.name).strip())
    if not data.name:
        raise Refused(_("Give the profile a name."), "name")
    if "," in data.name:
        raise Refused(_("A comma would make several names of it in the API: leave it out."), "name")
    wrong = errors([*render_data(data).problems, *problems_of(data.policy)])
    if wrong:
        raise Refused(translate(wrong[0].message), wrong[0].field)
    data = replace(data, policy=policy_values(policy_of(data.policy)))
    before = profile.environment if profile else {}
    if data.environment != before and actor.user is not None and not has_role(actor.user, "admin"):
        raise Refused(_("Only an admin may change variables of the environment."), "environment")
    try:
        with transaction.atomic():
            if profile is None:
                return _create(actor, data, reason)
            return _change(actor, profile, data, reason, profile.revision if based_on is None else based_on)
    except IntegrityError as problem:
        raise Refused(_("There is already a profile with this name."), "name") from problem


def _create(actor: Actor, data: ProfileData, reason: str) -> ServerProfile:
    profile = ServerProfile.objects.create(created_by=actor.user, **_columns(data))
    Instance.objects.create(profile=profile)
    _write_revision(actor, profile, reason)
    record(actor, "profile.create", profile, after=_as_json(profile, reason))
    publish_on_commit("instance", profile.instance.pk)
    return profile


def _change(
    actor: Actor, profile: ServerProfile, data: ProfileData, reason: str, based_on: int
) -> ServerProfile:
    kept = data_of(profile)
    if values_of(data) == values_of(kept) and based_on == profile.revision:
        return profile
    before = _as_json(profile)
    won = ServerProfile.objects.filter(pk=profile.pk, revision=based_on).update(
        revision=based_on + 1, updated_at=timezone.now(), **_columns(data)
    )
    if not won:
        text = _(
            "Somebody saved another revision of this profile meanwhile. Look at what it changed; "
            "saving again replaces it."
        )
        raise Refused(text, code="newer_revision")
    profile.refresh_from_db()
    _write_revision(actor, profile, reason)
    _tell_the_server(profile, kept, data, based_on)
    record(actor, "profile.change", profile, before=before, after=_as_json(profile, reason))
    publish_on_commit("instance", profile.instance.pk)
    return profile


def _tell_the_server(profile: ServerProfile, before: ProfileData, after: ProfileData, based_on: int) -> None:
    """Let a running server have what needs no restart: a policy alone makes no newer revision of it."""
    alive = Instance.objects.filter(profile=profile).exclude(observed__in=Instance.RESTING)
    if replace(before, policy=after.policy) == after:
        alive.filter(revision=based_on).update(revision=profile.revision)
    limit = policy_of(after.policy).memory_mib
    if limit != policy_of(before.policy).memory_mib:
        for instance in alive.filter(run__state__in=Run.ACTIVE).select_related("run"):
            if instance.run is not None:
                runs.limit_memory(instance.run, limit)


def _columns(data: ProfileData) -> dict[str, Any]:
    slug = slugify(data.name, allow_unicode=False) or f"profile-{zlib.crc32(data.name.encode()) % 10**6}"
    return {"slug": slug, **{column.name: getattr(data, column.name) for column in fields(data)}}


def values_of(data: ProfileData) -> dict[str, Any]:
    """Return what a revision keeps of a profile: plain values, rows by their keys."""
    return {
        "name": data.name,
        "build": data.build.pk,
        "model": data.model.pk,
        "mmproj": data.mmproj.pk if data.mmproj else None,
        "port": data.port,
        "settings": data.settings,
        "extra_args": data.extra_args,
        "environment": data.environment,
        "policy": data.policy,
    }


def names_of(data: ProfileData) -> dict[str, str]:
    """Return what the rows of a profile are called, to say so when they are gone."""
    mmproj = data.mmproj.name if data.mmproj else ""
    return {"build": data.build.name, "model": data.model.name, "mmproj": mmproj}


def _write_revision(actor: Actor, profile: ServerProfile, reason: str) -> None:
    data = data_of(profile)
    ProfileRevision.objects.create(
        profile=profile,
        number=profile.revision,
        values=values_of(data),
        names=names_of(data),
        reason=reason[:MAX_REASON],
        author=actor.user,
    )


def delete_profile(actor: Actor, profile: ServerProfile) -> None:
    """Delete a profile whose server is stopped."""
    with transaction.atomic():
        record(actor, "profile.delete", profile, before=_as_json(profile))
        pk = profile.instance.pk
        gone, _rows = Instance.objects.filter(pk=pk, observed__in=Instance.RESTING).delete()
        if not gone:
            raise Refused(_("Stop the server first: its profile is in use."))
        profile.delete()
        publish_on_commit("instance", pk)


def render_profile(profile: ServerProfile, port: int | None = None, config_home: str = "") -> Rendered:
    """Render the command line of a saved profile; port None shows the profile's own or 0."""
    return render_data(data_of(profile), port, config_home)


def render_data(data: ProfileData, port: int | None = None, config_home: str = "") -> Rendered:
    """Render the command line for a profile's data, with all its problems."""
    capabilities = capabilities_of(data.build)
    found: list[Problem] = []
    extra: list[str] = []
    try:
        extra = parse_extra(data.extra_args)
    except ExtraArgsError as problem:
        found.append(Problem("error", "extra_args", problem.message))
    if not data.build.capabilities:
        found.append(error("build", NOT_PROBED))
    elif data.build.state != Build.State.READY:
        found.append(warning("build", PROBED_BEFORE))
    if data.port == settings.PANEL_PORT:
        found.append(error("port", N_("This is the panel's own port. Choose another one.")))
    rendered = render(
        capabilities,
        data.settings,
        extra,
        Managed(
            model=data.model.path,
            mmproj=data.mmproj.path if data.mmproj else None,
            alias=data.name,
            port=port or data.port or 0,
            config_home=config_home,
        ),
        ModelFacts(**data.model.facts),
        ModelFacts(**data.mmproj.facts) if data.mmproj else None,
        allowed_folders=[models_folder()],
        environment=data.environment,
        host=_host_facts(data.build.host, capabilities),
    )
    rendered.problems.extend(found)
    return rendered


def _host_facts(host: Host, capabilities: Capabilities) -> HostFacts:
    found = toolchain_of(host)
    gpus = len(capabilities.devices) or None
    return HostFacts(found.memory_mib or None, found.cores or None, gpus) if found else HostFacts(gpus=gpus)


def _as_json(profile: ServerProfile, reason: str = "") -> dict[str, Any]:
    told = {
        "name": profile.name,
        "build": profile.build.name,
        "model": profile.model.name,
        "mmproj": profile.mmproj.name if profile.mmproj else None,
        "port": profile.port,
        "settings": profile.settings,
        "extra_args": profile.extra_args,
        "environment": profile.environment,
        "policy": profile.policy,
        "revision": profile.revision,
    }
    return {**told, "reason": reason[:MAX_REASON]} if reason else told
