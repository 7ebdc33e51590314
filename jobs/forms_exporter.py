"""The form of a token for the metrics."""

from django import forms
from django.utils.translation import gettext_lazy as _

from jobs.forms import PanelForm


class MetricsTokenForm(PanelForm):
    """A name; the token itself is made by the panel."""

    name = forms.CharField(
        label=_("Name"), max_length=60, help_text=_("Who reads with it, for example “Prometheus”.")
    )
