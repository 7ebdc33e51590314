"""Forms of the jobs app: what a page gives to a service."""

from django import forms
from django.utils.translation import gettext_lazy as _


def path_input(example: str) -> forms.TextInput:
    """Return a control for a path, with an example in it."""
    return forms.TextInput({"class": "form-control mono", "spellcheck": "false", "placeholder": example})


class PanelForm(forms.Form):
    """A form whose controls have Tabler's classes, and whose errors are tied to their field."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        for field in self.fields.values():
            kind = "form-select" if isinstance(field.widget, forms.Select) else "form-control"
            field.widget.attrs.setdefault("class", kind)


class BuildForm(PanelForm):
    """An existing llama-server binary."""

    name = forms.CharField(
        label=_("Name"),
        max_length=100,
        help_text=_("How profiles will call it, for example mainline b11434."),
    )
    path = forms.CharField(
        label=_("Path of llama-server"),
        max_length=4096,
        help_text=_(
            "The absolute path of the executable on this host. The panel runs it to learn what it can do."
        ),
        widget=forms.TextInput(
            attrs={
                "class": "form-control mono",
                "spellcheck": "false",
                "placeholder": "/opt/llama.cpp/build/bin/llama-server",
            }
        ),
    )


class ModelForm(PanelForm):
    """A GGUF file that lies on this host."""

    path = forms.CharField(
        label=_("Path of the .gguf file"),
        max_length=4096,
        help_text=_("The absolute path on this host; of a model in several parts, the first part."),
        widget=forms.TextInput(
            attrs={
                "class": "form-control mono",
                "spellcheck": "false",
                "placeholder": "/data/models/model-Q4_K_M.gguf",
            }
        ),
    )
    name = forms.CharField(
        label=_("Name"), max_length=200, required=False, help_text=_("Empty: the file's name without .gguf.")
    )
