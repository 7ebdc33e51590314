"""Forms of models: a file of this host, a download, a folder, a token of the hub."""

from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.utils.translation import gettext_lazy as _

from jobs.forms import PanelForm, path_input
from jobs.models import HubToken, ModelFolder
from jobs.services.artifacts import models_folder
from jobs.services.hub_tokens import usable

MEGABYTE = 1_000_000
LONGEST_ADDRESS = 4096


class ModelForm(PanelForm):
    """A GGUF file that lies on this host."""

    path = forms.CharField(
        label=_("Path of the .gguf file"),
        max_length=4096,
        help_text=_("The absolute path on this host; of a model in several parts, the first part."),
        widget=path_input("/data/models/model-Q4_K_M.gguf"),
    )
    name = forms.CharField(
        label=_("Name"), max_length=200, required=False, help_text=_("Empty: the file's name without .gguf.")
    )


class TokenChoice(forms.ModelChoiceField):
    """A token by its name; whose it is stands beside."""

    def label_from_instance(self, obj: Any) -> str:
        """Return the name of a token, with a remark on one that everybody uses."""
        return obj.name if obj.user_id else _("%(name)s (shared)") % {"name": obj.name}


class PlaceForm(PanelForm):
    """Where a download goes, and how fast at most."""

    folder = forms.ModelChoiceField(ModelFolder.objects.all(), label=_("Folder"), required=False)
    rate = forms.FloatField(
        label=_("Bandwidth limit in MB/s"),
        required=False,
        min_value=0.1,
        max_value=100_000,
        help_text=_("Empty: as fast as it comes."),
    )

    def __init__(self, data: Any = None) -> None:
        super().__init__(data)
        self.fields["folder"].empty_label = str(models_folder())  # type: ignore[attr-defined]
        self.fields["rate"].widget.attrs.update(step="any", inputmode="decimal")

    def bytes_per_second(self) -> int | None:
        """Return the limit, None for none."""
        rate = self.cleaned_data.get("rate")
        return int(rate * MEGABYTE) if rate else None


class HubForm(PlaceForm):
    """A choice of files of a repository: `file` names it by its first part, `extra` what goes along."""

    token = TokenChoice(HubToken.objects.none(), label=_("Token"), required=False, empty_label=_("none"))
    file = forms.CharField(max_length=1024, required=False)
    field_order = ("token", "folder", "rate", "file")

    def __init__(self, user: User | None, data: Any = None) -> None:
        super().__init__(data)
        self.fields["token"].queryset = usable(user)  # type: ignore[attr-defined]


class AddressForm(PlaceForm):
    """A file at any address."""

    url = forms.CharField(max_length=LONGEST_ADDRESS)


class FolderForm(PanelForm):
    """A folder of the host in which models lie."""

    path = forms.CharField(
        label=_("Path of the folder"),
        max_length=4096,
        help_text=_("An absolute path on this host. Folders inside it count too."),
        widget=path_input("/data/models"),
    )


class TokenForm(PanelForm):
    """A token of the hub: it goes in and never comes out."""

    name = forms.CharField(
        label=_("Name"), max_length=60, help_text=_("How you recognise it, for example its name on the hub.")
    )
    secret = forms.CharField(
        label=_("Token"),
        max_length=500,
        help_text=_("A token that may read is enough. It is kept encrypted and never shown again."),
        widget=forms.PasswordInput(
            attrs={"autocomplete": "off", "spellcheck": "false", "class": "form-control mono"}
        ),
    )
    shared = forms.BooleanField(
        label=_("For everybody who may download"),
        required=False,
        widget=forms.CheckboxInput({"class": "form-check-input"}),
    )

    def __init__(self, data: Any = None, *, admin: bool = False) -> None:
        super().__init__(data)
        if not admin:
            del self.fields["shared"]
