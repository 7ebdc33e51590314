"""Forms of alerts: a rule of one kind, a channel of one kind."""

from typing import Any

from django import forms
from django.conf import settings
from django.utils.translation import gettext_lazy as _

from jobs.forms import PanelForm
from jobs.models import AlertChannel, AlertRule
from jobs.services.alert_channels import LONGEST, ChannelData
from jobs.services.alert_kinds import AlertKind
from jobs.services.alert_rules import LONGEST_COOLDOWN, LONGEST_HOLD, RuleData

Kind = AlertChannel.Kind
SECRETS = {
    Kind.WEBHOOK: (_("Address"), _("The whole https:// address. It gets a POST with JSON.")),
    Kind.SLACK: (_("Webhook address"), _("Slack → the app's Incoming Webhooks → Add New Webhook.")),
    Kind.DISCORD: (_("Webhook address"), _("Discord → the channel's settings → Integrations → Webhooks.")),
    Kind.TELEGRAM: (_("Token of the bot"), _("BotFather gives it, as 123456:ABC-DEF.")),
}
TARGETS = {
    Kind.TELEGRAM: (_("Chat"), _("The chat's number, or the @name of a channel in which the bot may write.")),
    Kind.EMAIL: (_("Addresses"), _("One or more, separated by commas.")),
}


def _check() -> forms.CheckboxInput:
    return forms.CheckboxInput({"class": "form-check-input"})


class RuleForm(PanelForm):
    """A rule; the fields are those that its kind has."""

    threshold = forms.FloatField(label=_("Limit"))
    only = forms.CharField(
        label=_("Only for"),
        max_length=100,
        required=False,
        help_text=_("Part of a name, such as that of a card, a host, a server or a model. Empty: for all."),
    )
    hold_s = forms.IntegerField(
        label=_("For at least, in seconds"),
        min_value=0,
        max_value=LONGEST_HOLD,
        help_text=_("A blip that is shorter does not fire."),
    )
    cooldown_min = forms.IntegerField(
        label=_("Cooldown, in minutes"),
        min_value=0,
        max_value=LONGEST_COOLDOWN,
        help_text=_("The same card or server is not announced again within this time."),
    )
    channels = forms.ModelMultipleChoiceField(
        AlertChannel.objects.all(),
        label=_("Tell"),
        required=False,
        widget=forms.CheckboxSelectMultiple({"class": "form-check-input"}),
    )
    enabled = forms.BooleanField(label=_("Switched on"), required=False, widget=_check())

    def __init__(self, kind: AlertKind, rule: AlertRule | None = None, data: Any = None) -> None:
        super().__init__(data, initial=_values_of(kind, rule))
        if kind.parameter is None:
            del self.fields["threshold"]
        else:
            limit = self.fields["threshold"]
            limit.label = _("Limit in %(unit)s") % {"unit": kind.parameter.unit}
            bounds = {"min": f"{kind.parameter.low:g}", "max": f"{kind.parameter.high:g}"}
            limit.widget.attrs.update(step="any", inputmode="decimal", **bounds)
        if kind.find is None:
            del self.fields["hold_s"], self.fields["cooldown_min"]

    def rule_data(self) -> RuleData:
        """Return what was entered."""
        clean = self.cleaned_data
        return RuleData(
            threshold=clean.get("threshold"),
            only=clean["only"],
            hold_s=clean.get("hold_s") or 0,
            cooldown_min=clean.get("cooldown_min") or 0,
            channels=list(clean["channels"]),
            enabled=clean["enabled"],
        )


def _values_of(kind: AlertKind, rule: AlertRule | None) -> dict[str, Any]:
    if rule is None:
        every = list(AlertChannel.objects.filter(enabled=True).values_list("pk", flat=True))
        limit = f"{kind.parameter.default:g}" if kind.parameter else None
        start = {"threshold": limit, "hold_s": kind.hold_s, "cooldown_min": 30, "enabled": True}
        return {**start, "channels": every}
    limit = None if rule.threshold is None else f"{rule.threshold:g}"
    names = ("only", "hold_s", "cooldown_min", "enabled")
    channels = list(rule.channels.values_list("pk", flat=True))
    return {"threshold": limit, "channels": channels, **{name: getattr(rule, name) for name in names}}


class ChannelForm(PanelForm):
    """A channel; its secret goes in and never comes out."""

    name = forms.CharField(label=_("Name"), max_length=60, help_text=_("How rules call it."))
    secret = forms.CharField(
        max_length=LONGEST,
        widget=forms.PasswordInput(
            attrs={"autocomplete": "off", "spellcheck": "false", "class": "form-control mono"}
        ),
    )
    target = forms.CharField(max_length=1000)
    language = forms.ChoiceField(
        label=_("Language of the messages"), choices=[(code, word) for code, word in settings.LANGUAGES]
    )
    enabled = forms.BooleanField(label=_("Switched on"), required=False, widget=_check())

    def __init__(
        self, kind: str, channel: AlertChannel | None = None, data: Any = None, language: str = "en"
    ) -> None:
        start: dict[str, Any] = {"language": language, "enabled": True}
        if channel is not None:
            names = ("name", "target", "language", "enabled")
            start = {name: getattr(channel, name) for name in names}
        super().__init__(data, initial=start)
        self._fit("secret", SECRETS.get(Kind(kind)))
        self._fit("target", TARGETS.get(Kind(kind)))
        if channel is not None and "secret" in self.fields:
            self.fields["secret"].required = False
            self.fields["secret"].help_text = _("Empty: the one that is kept stays. It is never shown.")

    def _fit(self, name: str, words: tuple[Any, Any] | None) -> None:
        if words is None:
            del self.fields[name]
        else:
            self.fields[name].label, self.fields[name].help_text = words

    def channel_data(self) -> ChannelData:
        """Return what was entered."""
        clean = self.cleaned_data
        return ChannelData(
            name=clean["name"],
            secret=clean.get("secret", ""),
            target=clean.get("target", ""),
            language=clean["language"],
            enabled=clean["enabled"],
        )
