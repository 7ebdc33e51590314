"""Server profiles: save, delete, render the command line for the chosen build."""

import re
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils.text import slugify
from django.utils.translation import gettext as _

from controlpanel.lib.errors import Refused
from controlpanel.lib.streams import publish_on_commit
from controlpanel.lib.text import N_
from controlpanel.lib.words import translate
from controlpanel.llamacpp.command import Managed, Rendered, render
from controlpanel.llamacpp.extra_args import ExtraArgsError, parse_extra
from controlpanel.llamacpp.facts import ModelFacts
from controlpanel.llamacpp.problems import Problem, error, errors
from jobs.models import Build, ModelArtifact
from jobs.services.artifacts import models_folder
from jobs.services.audit import Actor, record
from jobs.services.builds import capabilities_of
from servers.models import Instance, ServerProfile


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


def save_profile(actor: Actor, profile: ServerProfile | None, data: ProfileData) -> ServerProfile:
    """Create or change a profile; Refused with the first error of its command line."""
    name = re.sub(r"\s+", " ", data.name).strip()
    slug = slugify(name, allow_unicode=False) or f"profile-{abs(hash(name)) % 10**6}"
    if not name:
        raise Refused(_("Give the profile a name."), "name")
    wrong = errors(render_data(data).problems)
    if wrong:
        raise Refused(translate(wrong[0].message), wrong[0].field)
    fields = {
        "name": name,
        "slug": slug,
        "build": data.build,
        "model": data.model,
        "mmproj": data.mmproj,
        "port": data.port,
        "settings": data.settings,
        "extra_args": data.extra_args,
    }
    try:
        with transaction.atomic():
            if profile is None:
                profile = ServerProfile.objects.create(created_by=actor.user, **fields)
                Instance.objects.create(profile=profile)
                record(actor, "profile.create", profile, after=_as_json(profile))
            else:
                before = _as_json(profile)
                for key, value in fields.items():
                    setattr(profile, key, value)
                profile.revision += 1
                profile.save()
                record(actor, "profile.change", profile, before=before, after=_as_json(profile))
            publish_on_commit("instance", profile.instance.pk)
    except IntegrityError as problem:
        raise Refused(_("There is already a profile with this name."), "name") from problem
    return profile


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
    return render_data(
        ProfileData(
            profile.name,
            profile.build,
            profile.model,
            profile.mmproj,
            profile.port,
            profile.settings,
            profile.extra_args,
        ),
        port,
        config_home,
    )


def render_data(data: ProfileData, port: int | None = None, config_home: str = "") -> Rendered:
    """Render the command line for a profile's data, with all its problems."""
    capabilities = capabilities_of(data.build)
    found: list[Problem] = []
    extra: list[str] = []
    try:
        extra = parse_extra(data.extra_args)
    except ExtraArgsError as problem:
        found.append(Problem("error", "extra_args", problem.message))
    if data.build.state != Build.State.READY:
        found.append(error("build", N_("This build has not been probed successfully yet.")))
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
    )
    rendered.problems.extend(found)
    return rendered


def _as_json(profile: ServerProfile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "build": profile.build.name,
        "model": profile.model.name,
        "mmproj": profile.mmproj.name if profile.mmproj else None,
        "port": profile.port,
        "settings": profile.settings,
        "extra_args": profile.extra_args,
        "revision": profile.revision,
    }
