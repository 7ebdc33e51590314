"""Beginnings of a new profile: what was chosen before, and templates that fill the form."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.utils.translation import gettext as _

from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.meaning_kinds import whole
from controlpanel.llamacpp.profile_templates import TEMPLATES, Template
from jobs.models import Build, ModelArtifact
from jobs.services.builds import capabilities_of

CHOSEN = ("name", "build", "model", "mmproj", "port")  # what a template leaves as it is


@dataclass(frozen=True)
class TemplateRow:
    """A template in the reader's language; `query` leads to the form that it fills."""

    key: str
    name: str
    description: str
    needs: str
    query: str


def chosen_in(query: Mapping[str, str]) -> dict[str, Any]:
    """Return what a new profile begins with: the choices of an address, else the newest of what is there."""
    builds = Build.objects.filter(state=Build.State.READY).order_by("-created_at", "-pk")
    models = ModelArtifact.objects.filter(kind=ModelArtifact.Kind.MODEL, complete=True)
    first = {
        "build": builds.values_list("pk", flat=True).first(),
        "model": models.values_list("pk", flat=True).first(),
    }
    given = {key: query[key][:60] for key in CHOSEN if query.get(key)}
    return {**first, **given}


def template_named(key: str | None) -> Template | None:
    """Return a template by its key."""
    return next((one for one in TEMPLATES if one.key == key), None)


def filled(first: Mapping[str, Any], template: Template) -> dict[str, Any]:
    """Return a form's beginning with the settings of a template that its build can use."""
    number = whole(first.get("build"))
    build = Build.objects.filter(pk=number).first() if number else None
    settings = template.settings_for(capabilities_of(build) if build else Capabilities())
    values = {**first, **settings}
    if template.wants_mmproj and not values.get("mmproj"):
        values["mmproj"] = _projector_for(whole(first.get("model")))
    return values


def rows_for(first: Mapping[str, Any]) -> list[TemplateRow]:
    """Return all templates with addresses that keep what is chosen."""
    kept = {key: first[key] for key in CHOSEN if first.get(key)}
    return [
        TemplateRow(
            one.key,
            _(one.name),
            _(one.description),
            _(one.needs),
            urlencode({**kept, "template": one.key}),
        )
        for one in TEMPLATES
    ]


def _projector_for(model_pk: int | None) -> int | None:
    """Return the projector whose vectors fit a model; None when that is not exactly one."""
    model = ModelArtifact.objects.filter(pk=model_pk).first() if model_pk else None
    width = model.facts.get("embedding_length") if model else None
    rows = ModelArtifact.objects.filter(kind=ModelArtifact.Kind.MMPROJ, complete=True)
    fitting = [row.pk for row in rows if width and row.facts.get("projector_width") == width]
    return fitting[0] if len(fitting) == 1 else None
