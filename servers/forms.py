"""The form of a server profile: meanings as fields, as the chosen build spells and offers them."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.conf import settings
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlpanel.lib.access import has_role
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.environment import MAX_VALUE, MAX_VARIABLES
from controlpanel.llamacpp.meaning_kinds import whole
from controlpanel.llamacpp.meanings import MEANINGS
from jobs.forms import PanelForm
from jobs.models import Build, ModelArtifact
from jobs.services.builds import capabilities_of
from servers.form_fields import control, environment_text, read_environment, typed
from servers.form_policy import KEYS, initial_policy, policy_control, typed_policy
from servers.models import ServerProfile
from servers.services.profiles import ProfileData


def usable_builds() -> QuerySet[Build]:
    """Return the builds that a profile can name: those that have told what they can do."""
    return Build.objects.exclude(capabilities={})


class BuildChoice(forms.ModelChoiceField):
    """A build with its state, when that is not ready."""

    def label_from_instance(self, obj: Any) -> str:
        """Name the build."""
        return obj.name if obj.state == Build.State.READY else f"{obj.name} · {obj.get_state_display()}"


class ArtifactChoice(forms.ModelChoiceField):
    """A model with what distinguishes it."""

    def label_from_instance(self, obj: Any) -> str:
        """Name the artifact, its quantisation and its MTP heads."""
        marks = [obj.quant, "MTP" if obj.mtp_heads else "", "" if obj.complete else _("incomplete")]
        return " · ".join([obj.name, *filter(None, marks)])


class ProfileForm(PanelForm):
    """A profile's fields, always with data; a meaning left empty is not passed to llama-server.

    Only an admin's form takes variables of the environment; any other keeps those of the saved profile.
    """

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=60,
        help_text=gettext_lazy("Also the model's name in the API."),
    )
    build = BuildChoice(usable_builds(), label=gettext_lazy("Build"), empty_label=None)
    model = ArtifactChoice(
        ModelArtifact.objects.filter(kind=ModelArtifact.Kind.MODEL),
        label=gettext_lazy("Model"),
        empty_label=gettext_lazy("choose a model"),
    )
    mmproj = ArtifactChoice(
        ModelArtifact.objects.filter(kind=ModelArtifact.Kind.MMPROJ),
        label=gettext_lazy("Vision projector"),
        required=False,
        empty_label=gettext_lazy("none"),
    )
    port = forms.IntegerField(label=gettext_lazy("Port"), required=False, min_value=1024, max_value=65535)
    environment = forms.CharField(
        label=gettext_lazy("Environment"),
        required=False,
        max_length=MAX_VARIABLES * (MAX_VALUE + 100),
        widget=forms.Textarea(attrs={"rows": 4, "placeholder": "NAME=value"}),
        help_text=gettext_lazy("One NAME=value per line."),
    )
    extra_args = forms.CharField(
        label=gettext_lazy("Extra arguments"), required=False, widget=forms.Textarea(attrs={"rows": 3})
    )

    def __init__(
        self, data: Mapping[str, Any], *, user: Any = None, profile: ServerProfile | None = None
    ) -> None:
        self.kept: dict[str, str] = profile.environment if profile else {}
        super().__init__(data, initial={"environment": environment_text(self.kept)})
        self.fields["environment"].disabled = not has_role(user, "admin")
        self.capabilities = self._capabilities()
        for key, meaning in MEANINGS.items():
            given = self.data.get(key)
            value = "" if given is None else str(given)
            self.fields[key] = control(key, meaning, self.capabilities, value)
        for key in KEYS:
            self.fields[key] = policy_control(key, str(self.data.get(key) or ""))
        for text in ("name", "port", "environment", "extra_args"):
            self.fields[text].widget.attrs.update(autocomplete="off", spellcheck="false")
        ports = settings.PANEL_SERVER_PORTS
        self.fields["port"].widget.attrs["placeholder"] = _("free port from %(low)d to %(high)d") % {
            "low": ports[0],
            "high": ports[-1],
        }

    def _capabilities(self) -> Capabilities:
        """Return those of the build that the form names, whatever else is wrong with the form."""
        value = self["build"].value()
        number = whole(value.pk if isinstance(value, Build) else value)
        build = Build.objects.filter(pk=number).first() if number else None
        return capabilities_of(build) if build else Capabilities()

    def clean_environment(self) -> dict[str, str]:
        """Read the variables; each line that is none is an error."""
        if self.fields["environment"].disabled:
            return self.kept
        found, wrong = read_environment(self.cleaned_data["environment"])
        if wrong:
            raise forms.ValidationError(wrong)
        return found

    def profile_data(self) -> ProfileData | None:
        """Return what the form gives, as far as it goes; None without a build or a model."""
        clean = self.cleaned_data
        if not clean.get("build") or not clean.get("model"):
            return None
        touched = {key: typed(meaning, clean[key]) for key, meaning in MEANINGS.items() if clean.get(key)}
        return ProfileData(
            name=clean.get("name", ""),
            build=clean["build"],
            model=clean["model"],
            mmproj=clean.get("mmproj"),
            port=clean.get("port"),
            settings=touched,
            extra_args=clean.get("extra_args", ""),
            environment=clean.get("environment", {}),
            policy=typed_policy(clean),
        )


def initial_of(data: ProfileData) -> dict[str, Any]:
    """Return a profile as the form shows it."""
    fixed = {
        "name": data.name,
        "build": data.build.pk,
        "model": data.model.pk,
        "mmproj": data.mmproj.pk if data.mmproj else None,
        "port": data.port,
        "extra_args": data.extra_args,
        "environment": environment_text(data.environment),
    }
    return {**data.settings, **initial_policy(data.policy), **fixed}
