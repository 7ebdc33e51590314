"""The form of a server profile: meanings as fields, with what the chosen build says of each."""

from dataclasses import dataclass, field, replace
from typing import Any

from django import forms
from django.conf import settings
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from controlpanel.lib.words import translate
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.command import Rendered, shell_preview
from controlpanel.llamacpp.meaning_kinds import Meaning, whole
from controlpanel.llamacpp.meanings import MEANINGS
from jobs.forms import PanelForm
from jobs.models import Build, ModelArtifact
from jobs.services.builds import capabilities_of
from servers.models import ServerProfile
from servers.services.profiles import ProfileData, render_data

GROUPS = (
    (
        gettext_lazy("Context and KV cache"),
        ("ctx_size", "parallel", "cache_type_k", "cache_type_v", "flash_attn"),
    ),
    (gettext_lazy("GPUs"), ("gpu_layers", "tensor_split")),
    (gettext_lazy("Speculation (MTP)"), ("speculation", "draft_max", "draft_type_k", "draft_type_v")),
    (gettext_lazy("Loading and batches"), ("load_mode", "batch", "ubatch", "threads")),
)


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
    """A profile's fields, always with data; a meaning left empty is not passed to llama-server."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=60,
        help_text=gettext_lazy("Also the model's name in the API."),
    )
    build = BuildChoice(usable_builds(), label=gettext_lazy("Build"), empty_label=None)
    model = ArtifactChoice(
        ModelArtifact.objects.filter(kind=ModelArtifact.Kind.MODEL),
        label=gettext_lazy("Model"),
        empty_label=None,
    )
    mmproj = ArtifactChoice(
        ModelArtifact.objects.filter(kind=ModelArtifact.Kind.MMPROJ),
        label=gettext_lazy("Vision projector"),
        required=False,
        empty_label=gettext_lazy("none"),
    )
    port = forms.IntegerField(label=gettext_lazy("Port"), required=False, min_value=1024, max_value=65535)
    extra_args = forms.CharField(
        label=gettext_lazy("Extra arguments"), required=False, widget=forms.Textarea(attrs={"rows": 3})
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.capabilities = self._capabilities()
        for key, meaning in MEANINGS.items():
            self.fields[key] = self._meaning_field(key, meaning)
        for text in ("name", "port", "extra_args"):
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

    def _meaning_field(self, key: str, meaning: Meaning) -> forms.Field:
        offered = meaning.offered(self.capabilities)
        given = self.data.get(key)
        value = "" if given is None else str(given)
        flag = self.capabilities.find(*meaning.names)
        default = flag.default if flag and flag.default else ""
        attrs = {
            "class": "form-control",
            "autocomplete": "off",
            "spellcheck": "false",
            "placeholder": default,
        }
        if flag is None and not value:
            attrs["disabled"] = "disabled"
        widget: forms.Widget = forms.TextInput(attrs)
        if offered and meaning.high:  # words or a number: a text with suggestions
            attrs["list"] = f"offered-{key}"
        elif offered:
            # A value typed for another build stays in sight until somebody changes it.
            values = [*offered, *([value] if value and value not in offered else [])]
            unset = _("default (%(default)s)") % {"default": default} if default else _("default")
            attrs["class"] = "form-select"
            widget = forms.Select(attrs, choices=[("", unset), *((word, word) for word in values)])
        return forms.CharField(label=_(meaning.label), required=False, max_length=1000, widget=widget)

    def profile_data(self) -> ProfileData | None:
        """Return what the form gives, as far as it goes; None without a build or a model."""
        clean = self.cleaned_data
        if not clean.get("build") or not clean.get("model"):
            return None
        touched = {key: _typed(clean[key]) for key in MEANINGS if clean.get(key)}
        return ProfileData(
            name=clean.get("name", ""),
            build=clean["build"],
            model=clean["model"],
            mmproj=clean.get("mmproj"),
            port=clean.get("port"),
            settings=touched,
            extra_args=clean.get("extra_args", ""),
        )


def _typed(value: str) -> int | str:
    number = whole(value)
    return value if number is None else number


def initial_of(profile: ServerProfile) -> dict[str, Any]:
    """Return a saved profile as the form shows it."""
    fixed = {
        "name": profile.name,
        "build": profile.build_id,
        "model": profile.model_id,
        "mmproj": profile.mmproj_id,
        "port": profile.port,
        "extra_args": profile.extra_args,
    }
    return {**profile.settings, **fixed}


@dataclass(frozen=True)
class FieldView:
    """One field as the page shows it: flag, help, what is passed, and what is wrong."""

    bound: forms.BoundField
    flag: str = ""
    help: str = ""
    flag_help: str = ""
    passed: str = ""
    missing: bool = False
    suggestions: tuple[str, ...] = ()
    offer: str = ""
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The field's name."""
        return self.bound.name


@dataclass(frozen=True)
class Preview:
    """The consequence of a form: the command line and the findings, each beside its field."""

    form: ProfileForm
    rendered: Rendered | None
    executable: str
    fields: dict[str, FieldView]
    groups: list[tuple[str, list[FieldView]]]
    others: list[tuple[str, str]]
    data: ProfileData | None

    @property
    def error_count(self) -> int:
        """How many errors keep the profile from being saved."""
        fields = sum(len(view.errors) for view in self.fields.values())
        return fields + sum(1 for level, _text in self.others if level == "error")

    @property
    def finding_count(self) -> int:
        """How many errors and warnings there are."""
        return len(self.others) + sum(len(view.errors) + len(view.warnings) for view in self.fields.values())

    @property
    def shell(self) -> str:
        """The command line as it can be pasted into a shell."""
        return shell_preview([self.executable, *self.rendered.argv]) if self.rendered else ""

    @property
    def passed_count(self) -> int:
        """How many fields are passed to llama-server."""
        return sum(1 for view in self.fields.values() if view.passed)

    @property
    def command(self) -> list[tuple[str, str, str]]:
        """The command line, flag by flag: (flag, value, source)."""
        lines = self.rendered.lines if self.rendered else []
        return [(line.flag, line.value or "", line.source) for line in lines]


def preview_of(form: ProfileForm, *, typing: bool = False) -> Preview:
    """Render the form's profile and put each finding where it belongs.

    While somebody is still typing, a required field that is empty is no error yet.
    """
    form.is_valid()  # cleans, once
    data = form.profile_data()
    rendered = render_data(data) if data else None
    found: dict[str, dict[str, list[str]]] = {}
    others = [("error", str(text)) for text in form.non_field_errors()]
    for problem in rendered.problems if rendered else []:
        text = translate(problem.message)
        if problem.field in form.fields:
            found.setdefault(problem.field, {"error": [], "warning": []})[problem.level].append(text)
        else:
            others.append((problem.level, text))
    fields = {key: _field_view(form, key, found.get(key), rendered, typing) for key in form.fields}
    if data and offers_mtp(data, form.capabilities):
        fields["speculation"] = replace(fields["speculation"], offer="mtp")
    grouped = {key for _title, keys in GROUPS for key in keys}
    rest = [key for key in MEANINGS if key not in grouped]
    groups = [(str(title), [fields[key] for key in keys if key in fields]) for title, keys in GROUPS]
    if rest:
        groups.append((_("More"), [fields[key] for key in rest]))
    return Preview(form, rendered, data.build.path if data else "", fields, groups, others, data)


def offers_mtp(data: ProfileData, capabilities: Capabilities) -> bool:
    """True when the model has MTP heads, the build can use them, and nothing is said of speculation yet."""
    return bool(data.model.mtp_heads and capabilities.mtp_value and "speculation" not in data.settings)


def _field_view(
    form: ProfileForm, key: str, found: dict[str, list[str]] | None, rendered: Rendered | None, typing: bool
) -> FieldView:
    given = form[key].errors.as_data()
    own = [text for item in given if not (typing and item.code == "required") for text in item.messages]
    wrong = own + [text for text in (found or {}).get("error", []) if text not in own]
    warnings = (found or {}).get("warning", [])
    meaning = MEANINGS.get(key)
    if meaning is None:
        return FieldView(form[key], errors=wrong, warnings=warnings)
    flag = form.capabilities.find(*meaning.names)
    value = form[key].value()
    passed = ""
    if rendered and not wrong and value not in (None, ""):
        words = meaning.render(form.capabilities, _typed(str(value)))
        passed = " ".join(" ".join(filter(None, pair)) for pair in words)
    return FieldView(
        form[key],
        flag=flag.name if flag else meaning.names[0],
        help=_(meaning.help),
        flag_help=flag.help if flag else "",
        passed=passed,
        missing=flag is None,
        suggestions=meaning.offered(form.capabilities) if meaning.high else (),
        errors=wrong,
        warnings=warnings,
    )
