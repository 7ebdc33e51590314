"""Turning a pasted command line into what a server profile stores, with a word on every part."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from controlpanel.lib.text import N_, Message, Worded
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.command import BUFFER_VERBOSITY, PING_SECONDS
from controlpanel.llamacpp.environment import KNOWN
from controlpanel.llamacpp.extra_args import MAX_ARGS
from controlpanel.llamacpp.extra_refused import MEANT, MYTHS, refusal
from controlpanel.llamacpp.importing_flags import FIELDS, TURBO8, Names, Use, managed
from controlpanel.llamacpp.importing_flags import LOADING as LOADING_FLAGS
from controlpanel.llamacpp.importing_shell import unresolved
from controlpanel.llamacpp.importing_source import read_source
from controlpanel.llamacpp.importing_types import Imported, Line, LineKind, line, secret, shown
from controlpanel.llamacpp.importing_uses import group, is_flag
from controlpanel.llamacpp.importing_values import field_value
from controlpanel.llamacpp.meaning_kinds import whole
from controlpanel.llamacpp.meaning_switches import SWITCH, switch_value
from controlpanel.llamacpp.meanings import MEANINGS

_SUGGESTIONS = 20
_ITSELF = N_("%(flag)s: the panel sets this itself.")
_SECRET = N_("%(flag)s: secrets are not taken over; the panel makes its own.")
_LABELS = {"model": N_("Model"), "mmproj": N_("Vision projector"), "port": N_("Port")}
_TURBO = re.compile(r"turbo(?![234]$)\w*")
# The panel sets these to the same value itself.
_SAME = {"-lv": BUFFER_VERBOSITY, "--sse-ping-interval": PING_SECONDS}
# Variables that change how the program or a library of it works.
_SETTINGS_OF_PROGRAMS = re.compile(r"(?:CUDA|GGML|LLAMA|TURBO|HIP|ROCR|HSA|NVIDIA|OMP|MTMD|LD|VK)_\w+")


def read_command(text: str, caps: Capabilities | None = None) -> Imported:
    """Read a command of a shell, of `docker run` or of a systemd unit; Worded for a text that is none.

    With a build its own words decide. Without one the words of every build count, and other flags are kept
    unchecked.
    """
    source = read_source(text)
    reader = _Reader(caps)
    reader.report += [*source.lines, *source.upkeep.lines]
    reader.policy = source.upkeep.policy
    reader.variables(source.env)
    reader.arguments(source.args)
    return reader.result()


class _Reader:
    """Takes one flag after the other; the last of several counts, as in llama-server."""

    def __init__(self, caps: Capabilities | None) -> None:
        self.names = Names(caps)
        self.caps = self.names.caps
        self.settings: dict[str, object] = {}
        self.fields: dict[str, str] = {}
        self.port: int | None = None
        self.extra: list[str] = []
        self.env: dict[str, str] = {}
        self.policy: dict[str, object] = {}
        self.report: list[Line] = []
        self._said: dict[str, int] = {}
        self._suggested = 0

    def result(self) -> Imported:
        """Return all that was taken; Worded when more extra arguments are left than a profile holds."""
        if len(self.extra) > MAX_ARGS:
            raise Worded(N_("These are more than %(limit)s extra arguments."), limit=MAX_ARGS)
        model, mmproj, alias = (self.fields.get(key, "") for key in ("model", "mmproj", "alias"))
        extra, report = tuple(self.extra), tuple(self.report)
        return Imported(self.settings, model, mmproj, self.port, alias, extra, self.env, report, self.policy)

    def variables(self, env: dict[str, str]) -> None:
        """Take the variables: those that profiles hold, and llama.cpp's own as flags."""
        for name, value in env.items():
            use = None if name in KNOWN else self.names.of_variable(name, value)
            if name in KNOWN:
                self._variable(name, value)
            elif use is not None and use.name:
                self.take(use)
            elif use is not None:
                self.say("dropped", name, N_("%(flag)s: this leaves off what is off without it too."))
            elif secret(name):
                self.say("managed", name, _SECRET)
            elif name == "XDG_CONFIG_HOME":
                self.say("managed", name, _ITSELF)
            elif _SETTINGS_OF_PROGRAMS.fullmatch(name):
                text = N_("%(flag)s: this variable is no setting of llama-server: profiles do not store it.")
                self.say("dropped", name, text)
            else:
                self.say("dropped", name, N_("%(flag)s: llama-server does not read this variable."))

    def _variable(self, name: str, value: str) -> None:
        """Keep a variable that profiles hold, or say why its value cannot be kept."""
        reason = KNOWN[name].check(value)
        if reason is None:
            self.env[name] = value
            self.say("mapped", name, N_("%(flag)s: kept in Environment."))
        elif unresolved(value):
            self._unresolved(Use(name, (value,), name))
        else:
            self.say("wrong", name, N_("%(flag)s: %(reason)s"), reason=reason)

    def arguments(self, args: Sequence[str]) -> None:
        """Take the arguments in their order."""
        stray_secret = False
        for use in group(args, self.names):
            if is_flag(use.name):
                stray_secret = secret(use.name)
                self.take(use)
            else:
                # A blank in a secret would leave its rest here.
                word = "***" if stray_secret else use.name.partition("=")[0]
                self.say("wrong", word, N_("%(flag)s is not a flag and belongs to none."))

    def take(self, use: Use) -> None:
        """Take one flag: a field, a setting, something refused, or an extra argument."""
        flag = self.names.flag(use.name)
        key = self.names.keys.get(use.name)
        reason = refusal(use.name, self.caps.index.get(use.name))
        if use.name in FIELDS:
            self._field(use, FIELDS[use.name])
        elif reason:
            self.say("managed" if managed(reason) else "dropped", use.shown, reason)
        elif flag is not None and use.values and not flag.arity:
            self.say("wrong", use.shown, N_("%(flag)s takes no value: write it alone, or leave it out."))
        elif key is not None:
            self._setting(use, key)
        elif flag is not None and len(use.values) < flag.arity and self.caps.has(use.name):
            self._no_value(use)
        elif self._same(use):
            self.say("managed", use.shown, _ITSELF)
        else:
            self._other(use)

    def _same(self, use: Use) -> bool:
        flag = self.names.flag(use.name)
        names = flag.names if flag else (use.name,)
        return any(name in _SAME and use.values == (_SAME[name],) for name in names)

    def _field(self, use: Use, key: str) -> None:
        value = use.values[0] if use.values else ""
        if not value:
            self._no_value(use)
        elif unresolved(value):
            self._unresolved(use)
        elif key == "alias":
            self.fields[key] = value
            text = N_("%(flag)s: the profile can be called %(value)s; the panel names the server after it.")
            self.say("managed", use.shown, text, key=key, value=shown(value))
        elif key == "port" and not 0 < (whole(value) or 0) < 65_536:
            text = N_("%(flag)s: give a port from 1 to 65535, not %(value)s.")
            self.say("wrong", use.shown, text, value=shown(value))
        else:
            if key == "port":
                self.port = whole(value)
            else:
                self.fields[key] = value
            self._mapped(use, key, Message(_LABELS[key]), value)

    def _setting(self, use: Use, key: str) -> None:
        meaning = MEANINGS[key]
        label = Message(meaning.label)
        given = LOADING_FLAGS.get(use.name) or (use.values[0] if use.values else "")
        if key == "flash_attn" and not use.values:
            given = "on"
        elif meaning.kind is SWITCH:
            given = switch_value(self.names.flag(use.name), use.name)
        if not given:
            self._no_value(use)
            return
        if unresolved(given):
            self._unresolved(use)
            return
        if _TURBO.fullmatch(given) and "type" in key:
            self.say("wrong", use.shown, TURBO8, value=shown(given))
            return
        value = field_value(key, given, self.settings.get(key))
        if value is None:
            text = N_("%(flag)s %(value)s is what the empty field %(label)s means.")
            self.settings.pop(key, None)
            self.say("mapped", use.shown, text, key=key, value=shown(given), label=label)
            return
        problem = meaning.problem(self.caps, value)
        if problem and self._more_than_the_field(use, key, given):
            self._keep(use)
        elif problem:
            text = N_("%(flag)s, field %(label)s: %(reason)s")
            self.say("wrong", use.shown, text, label=label, reason=problem)
        else:
            self.settings[key] = value
            self._renamed_or_mapped(use, key, label, value)

    def _more_than_the_field(self, use: Use, key: str, given: str) -> bool:
        """Tell whether the build takes a value that the field does not have."""
        if key == "load_mode":
            return given == "dio" and self.names.build is not None and self.caps.has(use.name)
        if key != "speculation" or not self.caps.has(use.name):
            return False
        return self.names.build is None or set(given.split(",")) <= set(self.caps.spec_types)

    def _renamed_or_mapped(self, use: Use, key: str, label: Message, value: object) -> None:
        words = [part for pair in MEANINGS[key].render(self.caps, value) for part in pair if part is not None]
        other_word = key == "speculation" and use.values[0] not in words
        if self.names.build is None or (self.caps.has(use.name) and not other_word):
            self._mapped(use, key, label, str(value))
            return
        text = N_(
            "%(flag)s: this build writes %(name)s instead. The field %(label)s is set to %(value)s, "
            "and the panel finds the right word."
        )
        self.say("renamed", use.shown, text, key=key, name=" ".join(words), label=label, value=str(value))

    def _other(self, use: Use) -> None:
        """Keep a flag that is no field among the extra arguments, or say what is wrong with it."""
        if self.caps.has(use.name):
            self._keep(use)
            return
        name = self.names.renamed(use.name)
        if self.names.build is not None and name is not None:
            self.extra += [*name.split(), *use.values]
            text = N_("%(flag)s: this build calls it %(name)s; it is kept so in the extra arguments.")
            self.say("renamed", use.shown, text, name=name)
            return
        if use.name in MYTHS:
            if not self._meant(use):
                self.say("wrong", use.shown, MYTHS[use.name])
            return
        flag = self.names.flag(use.name)
        if flag is not None and flag.removed:
            self.say("wrong", use.shown, N_("%(flag)s: %(help)s"), help=flag.help)
            return
        self._unknown(use)

    def _meant(self, use: Use) -> bool:
        """Take the value of a flag that no build has into the field that it means, when it is one for it."""
        key = MEANT.get(use.name)
        if key is None or len(use.values) != 1 or key in self.settings:
            return False
        value = field_value(key, use.values[0], None)
        if value is None or MEANINGS[key].problem(self.caps, value):
            return False
        self.settings[key] = value
        label = Message(MEANINGS[key].label)
        text = N_("There is no %(flag)s in any build; its value %(value)s is taken into the field %(label)s.")
        self.say("renamed", use.shown, text, key=key, label=label, value=str(value))
        return True

    def _unknown(self, use: Use) -> None:
        near = self._near(use.name)
        if near:
            text = N_("%(flag)s is no flag of llama-server. Similar flags: %(near)s.")
            if self.names.build is not None:
                text = N_("This build has no flag %(flag)s. Similar flags: %(near)s.")
            self.say("wrong", use.shown, text, near=", ".join(near))
        elif self.names.build is not None:
            self.say("wrong", use.shown, N_("This build has no flag %(flag)s."))
        elif secret(use.name):
            self.say("dropped", use.shown, _SECRET)
        else:
            self.extra += [use.name, *use.values]
            text = N_("%(flag)s: kept in the extra arguments, unchecked: name a build to have it checked.")
            self.say("mapped", use.shown, text)

    def _near(self, name: str) -> list[str]:
        """Return similar flags; without a build only a slip of one letter or two is one."""
        if self._suggested >= _SUGGESTIONS or (self.names.build is None and not name.startswith("--")):
            return []
        known = sorted(set(self.names.known()))
        if self.names.build is None and name in known:
            return []
        self._suggested += 1
        cutoff = 0.7 if self.names.build is not None else 0.85
        return difflib.get_close_matches(name[:60], known, n=3, cutoff=cutoff)

    def _keep(self, use: Use) -> None:
        # A template may hold such signs itself.
        if any(unresolved(value) and " " not in value and value[:1] != "{" for value in use.values):
            self._unresolved(use)
            return
        self.extra += [use.name, *use.values]
        self.say("mapped", use.shown, N_("%(flag)s: kept in the extra arguments."))

    def _mapped(self, use: Use, key: str, label: Message, value: str) -> None:
        text = N_("%(flag)s: the field %(label)s is set to %(value)s.")
        self.say("mapped", use.shown, text, key=key, label=label, value=shown(value))

    def _no_value(self, use: Use) -> None:
        self.say("wrong", use.shown, N_("%(flag)s needs a value after it."))

    def _unresolved(self, use: Use) -> None:
        text = N_("%(flag)s: the value is a variable or a command, whose outcome the text does not say.")
        self.say("wrong", use.shown, text)

    def say(self, kind: LineKind, flag: str, text: str, key: str = "", **params: object) -> None:
        """Add a line; with a `key`, an earlier line of the same field says that it does not count."""
        earlier = self._said.get(key)
        if earlier is not None:
            text_of_earlier = N_("%(flag)s: this is given once more later, and the last one counts.")
            self.report[earlier] = line("dropped", self.report[earlier].flag, text_of_earlier)
        if key:
            self._said[key] = len(self.report)
        self.report.append(line(kind, flag, text, **params))
