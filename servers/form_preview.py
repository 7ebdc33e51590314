"""The consequence of a profile's form: the command line, and what there is to say of each field."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from django import forms
from django.utils.translation import gettext as _

from controlpanel.lib.text import N_
from controlpanel.lib.words import translate
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.command import Rendered, shell_preview
from controlpanel.llamacpp.meanings import GROUPS, MEANINGS
from controlpanel.llamacpp.problems import Problem
from servers.domain.policy_problems import problems_of
from servers.domain.policy_words import WORDS
from servers.form_fields import default_of, typed
from servers.form_policy import KEYS, typed_policy
from servers.forms import ProfileForm
from servers.services.profiles import ProfileData, render_data

_OPEN = ("context", "gpus", "speculation", "vision")  # the others open when something in them is set or wrong
_CONTEXTS = ((32_768, "32K"), (65_536, "64K"), (131_072, "128K"), (204_800, "200K"), (262_144, "256K"))

_MANAGED = {
    "--model": N_("the model chosen above"),
    "--mmproj": N_("the vision projector chosen above"),
    "--alias": N_("the profile's name, which is the model's name in the API"),
    "--host": N_("only the panel itself reaches the server"),
    "--port": N_("the port above, or a free one that is chosen at the start"),
    "--metrics": N_("the panel measures the server with it"),
    "--slots": N_("the panel counts running requests with it"),
    "--sse-ping-interval": N_("so that a stop need not wait for an answer's next word"),
    "-lv": N_("so that the log says how much memory each part takes"),
    "--log-colors": N_("the log viewer has its own colours"),
}


@dataclass(frozen=True)
class FieldView:
    """One field as the page shows it: flag, help, what is passed, and what is wrong.

    `missing` when the build has no flag for it; `contexts` are sizes to choose: (tokens, word). Fields of the
    policy have no flag, but a `unit` perhaps.
    """

    bound: forms.BoundField
    unit: str = ""
    help: str = ""
    flag: str = ""
    flag_help: str = ""
    default: str = ""
    passed: str = ""
    missing: bool = False
    touched: bool = False
    suggestions: tuple[str, ...] = ()
    contexts: tuple[tuple[str, str], ...] = ()
    offer: str = ""
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The field's name."""
        return self.bound.name

    @property
    def resets(self) -> bool:
        """Whether it can be left to its default again."""
        return self.touched and (self.key in MEANINGS or self.key in KEYS)

    @property
    def folded(self) -> bool:
        """Whether a line that names it stands for the field: nothing is set that the build does not have."""
        return self.missing and not self.touched


@dataclass(frozen=True)
class Group:
    """Fields that belong together; a group that is not `open` shows its summary alone."""

    key: str
    title: str
    fields: list[FieldView]
    touched: int

    @property
    def shown(self) -> list[FieldView]:
        """The fields that have a control."""
        return [view for view in self.fields if not view.folded]

    @property
    def missing(self) -> str:
        """The names of those that have none."""
        return ", ".join(str(view.bound.label) for view in self.fields if view.folded)

    @property
    def errors(self) -> int:
        """How many errors there are."""
        return sum(len(view.errors) for view in self.fields)

    @property
    def warnings(self) -> int:
        """How many warnings there are."""
        return sum(len(view.warnings) for view in self.fields)

    @property
    def open(self) -> bool:
        """Whether the group begins unfolded."""
        return bool(self.key in _OPEN or self.touched or self.errors or self.warnings)


@dataclass(frozen=True)
class Preview:
    """The consequence of a form: the command line and the findings, each beside its field."""

    form: ProfileForm
    rendered: Rendered | None
    executable: str
    fields: dict[str, FieldView]
    groups: list[Group]
    policy: Group
    environment: Group
    extra: Group
    others: list[tuple[str, str]]
    data: ProfileData | None

    @property
    def all_groups(self) -> list[Group]:
        """The groups in the order of the page."""
        return [*self.groups, self.policy, self.environment, self.extra]

    @property
    def setting_keys(self) -> str:
        """The fields that can be left to the build, with a space between them."""
        return " ".join(MEANINGS)

    @property
    def error_count(self) -> int:
        """How many errors keep the profile from being saved."""
        return _count(view.errors for view in self.fields.values()) + self._others("error")

    @property
    def warning_count(self) -> int:
        """How many warnings there are."""
        return _count(view.warnings for view in self.fields.values()) + self._others("warning")

    def _others(self, level: str) -> int:
        return sum(1 for one, _text in self.others if one == level)

    @property
    def finding_count(self) -> int:
        """How many errors and warnings there are."""
        return self.error_count + self.warning_count

    @property
    def variables(self) -> list[str]:
        """The variables in front of the command line, as a shell takes them."""
        given = self.data.environment if self.data else {}
        return [f"{name}={shlex.quote(value)}" for name, value in given.items()]

    @property
    def shell(self) -> str:
        """The command line as it can be pasted into a shell."""
        if not self.rendered:
            return ""
        return " ".join([*self.variables, shell_preview([self.executable, *self.rendered.argv])])

    @property
    def passed_count(self) -> int:
        """How many fields are passed to llama-server."""
        return sum(1 for view in self.fields.values() if view.passed)

    @property
    def command(self) -> list[tuple[str, str, str]]:
        """The command line, flag by flag: (flag, value, source)."""
        lines = self.rendered.lines if self.rendered else []
        return [(line.flag, line.value or "", line.source) for line in lines]

    @property
    def managed(self) -> list[tuple[str, str, str]]:
        """What the panel decides itself: (flag, value, reason)."""
        own = [(flag, value) for flag, value, source in self.command if source == "managed"]
        key = ("LLAMA_API_KEY", "", _("a random key for each start, given as a variable"))
        return [*((flag, value, _(_MANAGED[flag]) if flag in _MANAGED else "") for flag, value in own), key]


def _count(lists: Iterable[list[str]]) -> int:
    return sum(len(texts) for texts in lists)


def preview_of(form: ProfileForm, *, typing: bool = False) -> Preview:
    """Render the form's profile and put each finding where it belongs.

    While somebody is still typing, a required field that is empty is no error yet.
    """
    form.is_valid()  # cleans, once
    data = form.profile_data()
    rendered = render_data(data) if data else None
    found: dict[str, dict[str, list[str]]] = {}
    others = [("error", str(text)) for text in form.non_field_errors()]
    kept = problems_of(typed_policy(form.cleaned_data), data.settings.get("sleep_idle") if data else None)
    for problem in [*(rendered.problems if rendered else []), *kept]:
        text = translate(problem.message)
        if problem.field in form.fields:
            found.setdefault(problem.field, {"error": [], "warning": []})[problem.level].append(text)
        else:
            others.append((problem.level, text))
    fields = {key: _field_view(form, key, found.get(key), typing) for key in form.fields}
    if data:
        fields["ctx_size"] = replace(fields["ctx_size"], contexts=_contexts(data.model.context_length))
    if data and offers_mtp(data, form.capabilities):
        fields["speculation"] = replace(fields["speculation"], offer="mtp")
    groups = [
        _group(key, _(title), [fields[name] for name, meaning in MEANINGS.items() if meaning.group == key])
        for key, title in GROUPS
    ]
    policy = _policy_group(fields)
    environment = _group("environment", _("Environment"), [fields["environment"]])
    extra = _group("extra", _("Extra arguments"), [fields["extra_args"]])
    if data:
        environment = replace(environment, touched=len(data.environment))
    executable = data.build.path if data else ""
    return Preview(form, rendered, executable, fields, groups, policy, environment, extra, others, data)


def with_warnings(preview: Preview, problems: Sequence[Problem]) -> Preview:
    """Return the preview with what a memory estimate adds to say of the policy's fields."""
    fields = dict(preview.fields)
    for problem in problems:
        view = fields[problem.field]
        fields[problem.field] = replace(view, warnings=[*view.warnings, translate(problem.message)])
    return replace(preview, fields=fields, policy=_policy_group(fields))


def _policy_group(fields: dict[str, FieldView]) -> Group:
    return _group("policy", _("Keeping it running"), [fields[key] for key in KEYS])


def _group(key: str, title: str, views: list[FieldView]) -> Group:
    return Group(key, title, views, sum(1 for view in views if view.touched))


def offers_mtp(data: ProfileData, capabilities: Capabilities) -> bool:
    """True when the model has MTP heads, the build can use them, and nothing is said of speculation yet."""
    return bool(data.model.mtp_heads and capabilities.mtp_value and "speculation" not in data.settings)


def _contexts(native: int | None) -> tuple[tuple[str, str], ...]:
    """Return common context sizes that the model was trained for, and its own one."""
    sizes = [(str(size), word) for size, word in _CONTEXTS if not native or size < native]
    if native:
        word = next((word for size, word in _CONTEXTS if size == native), f"{native:,}")
        sizes.append((str(native), _("%(size)s, the model's own") % {"size": word}))
    return tuple(sizes)


def _field_view(form: ProfileForm, key: str, found: dict[str, list[str]] | None, typing: bool) -> FieldView:
    bound = form[key]
    given = bound.errors.as_data()
    own = [text for item in given if not (typing and item.code == "required") for text in item.messages]
    wrong = own + [text for text in (found or {}).get("error", []) if text not in own]
    warnings = (found or {}).get("warning", [])
    meaning = MEANINGS.get(key)
    value = bound.value()
    touched = value not in (None, "")
    if key in KEYS:
        told = WORDS[KEYS[key]]
        unit = _(told.unit) if told.unit else ""
        return FieldView(bound, unit, _(told.help), touched=touched, errors=wrong, warnings=warnings)
    if meaning is None:
        return FieldView(bound, touched=touched, errors=wrong, warnings=warnings)
    caps = form.capabilities
    flag = caps.find(*meaning.names)
    passed = ""
    given_value = typed(meaning, str(value).strip()) if touched else None
    if touched and not wrong and meaning.problem(caps, given_value) is None:
        words = meaning.render(caps, given_value)
        passed = " ".join(" ".join(filter(None, pair)) for pair in words)
    return FieldView(
        bound,
        flag=flag.name if flag else meaning.names[0],
        help=_(meaning.help),
        flag_help=flag.help if flag else "",
        default=default_of(meaning, caps),
        passed=passed,
        missing=flag is None,
        touched=touched,
        suggestions=meaning.offered(caps) if meaning.high else (),
        errors=wrong,
        warnings=warnings,
    )
