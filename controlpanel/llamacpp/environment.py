"""The variables that a profile may set for its server's process, with what each takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.extra_refused import refusal
from controlpanel.llamacpp.importing_types import secret
from controlpanel.llamacpp.meaning_any import ANY
from controlpanel.llamacpp.meanings import MEANINGS
from controlpanel.llamacpp.problems import Problem, error, warning

FIELD = "environment"
MAX_VARIABLES = 32
MAX_VALUE = 1_000  # characters

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_INDEX = r"[0-9]{1,2}"
# CUDA takes the beginning of a UUID too, when no other GPU begins so.
_GPU = r"GPU-[0-9a-fA-F][0-9a-fA-F-]{3,35}"
_MIG = rf"MIG-(?:{_GPU}/{_INDEX}/{_INDEX}|[0-9a-fA-F][0-9a-fA-F-]{{7,35}})"
_SYSTEM = re.compile(r"(?:LD|DYLD|PYTHON|XDG|GCONV|MALLOC|GLIBC)\w*|PATH|HOME|USER|SHELL|TMPDIR|LANG|LC_\w+")
_TURBO = ("TURBO_AUTO_ASYMMETRIC", "TURBO_LAYER_ADAPTIVE")


@dataclass(frozen=True)
class Variable:
    """One variable; `check` returns why a value cannot be used, None when it can."""

    name: str
    help: str
    check: Callable[[str], Message | None]


def _one_of(*values: str) -> Callable[[str], Message | None]:
    def check(value: str) -> Message | None:
        if value in values:
            return None
        text = N_("the value is one of %(offered)s, not %(value)s.")
        return Message(text, {"offered": ", ".join(values), "value": value[:60]})

    return check


def _only_one(value: str) -> Message | None:
    """Any value switches these on, 0 included."""
    if value == "1":
        return None
    text = N_("the value is 1, not %(value)s: every value switches it on. Remove the row to switch it off.")
    return Message(text, {"value": value[:60]})


def _matches(pattern: str, text: str) -> Callable[[str], Message | None]:
    compiled = re.compile(pattern)

    def check(value: str) -> Message | None:
        return None if compiled.fullmatch(value) else Message(text, {"value": value[:60]})

    return check


def _listed(items: str, text: str) -> Callable[[str], Message | None]:
    """Return the check of a list whose items match one of the patterns and are all different."""
    shape = _matches(rf"(?:{items})(?:,(?:{items})){{0,63}}", text)

    def check(value: str) -> Message | None:
        wrong = shape(value)
        parts = value.lower().split(",")
        if wrong is None and len(set(parts)) < len(parts):
            return Message(N_("%(value)s names a GPU twice."), {"value": value[:60]})
        return wrong

    return check


_cuda_names = _listed(
    f"{_GPU}|{_MIG}",
    N_(
        "give UUIDs of GPUs as nvidia-smi -L shows them, such as GPU-8932f937, or numbers such as 0,1; "
        "-1 hides all GPUs. %(value)s is neither."
    ),
)
_indexes = _listed(_INDEX, N_("give numbers of GPUs such as 0,1, the first is 0; not %(value)s."))


def _cuda(value: str) -> Message | None:
    return None if value == "-1" or (value[:1].isdigit() and _indexes(value) is None) else _cuda_names(value)


def _threads(value: str) -> Message | None:
    if re.fullmatch("[0-9]{1,4}", value) and 1 <= int(value) <= 1_024:
        return None
    return Message(N_("give a number of threads from 1 to 1024, not %(value)s."), {"value": value[:60]})


_ALL = (
    Variable(
        "CUDA_VISIBLE_DEVICES",
        N_(
            "The NVIDIA GPUs this server may use, in this order: UUIDs as nvidia-smi -L shows them, or "
            "numbers; -1 hides all."
        ),
        _cuda,
    ),
    Variable(
        "CUDA_DEVICE_ORDER",
        N_("What numbers of GPUs mean: PCI_BUS_ID counts as nvidia-smi does, FASTEST_FIRST is CUDA's way."),
        _one_of("FASTEST_FIRST", "PCI_BUS_ID"),
    ),
    Variable(
        "GGML_CUDA_ENABLE_UNIFIED_MEMORY",
        N_("1 lets what is too much for GPU memory move to main memory; much slower when it does."),
        _only_one,
    ),
    Variable(
        "GGML_CUDA_NO_PINNED",
        N_("1 does without locked main memory for transfers to the GPU; slower, for hosts short of it."),
        _only_one,
    ),
    Variable(
        "GGML_CUDA_DISABLE_GRAPHS",
        N_("1 does without CUDA graphs; slower, for drivers on which the server hangs with them."),
        _only_one,
    ),
    Variable(
        "TURBO_AUTO_ASYMMETRIC",
        N_("TurboQuant builds: 0 keeps a turbo K cache that would be raised to q8_0 for quality."),
        _one_of("0", "1"),
    ),
    Variable(
        "TURBO_LAYER_ADAPTIVE",
        N_(
            "TurboQuant builds: which layers get a finer KV cache. 0 none, 1 the first and last 4, "
            "2 the last 8; of V only, with turbo2 in all others: 5 and 7 the first and last 2, 6 the last 8."
        ),
        _one_of("0", "1", "2", "5", "6", "7"),
    ),
    Variable(
        "LLAMA_ATTN_ROT_DISABLE",
        N_("1 switches off the rotation by which newer builds keep the quality of a quantised KV cache."),
        _one_of("0", "1"),
    ),
    Variable(
        "MTMD_BACKEND_DEVICE",
        N_("The device that works on pictures, as the build lists its devices, such as CUDA1."),
        _matches("[A-Za-z][A-Za-z0-9_]{0,31}", N_("give one device such as CUDA1, not %(value)s.")),
    ),
    Variable(
        "HIP_VISIBLE_DEVICES", N_("The AMD GPUs a ROCm build may use, as numbers such as 0,1."), _indexes
    ),
    Variable(
        "ROCR_VISIBLE_DEVICES",
        N_("The AMD GPUs any ROCm program may use, as numbers or UUIDs."),
        _listed(
            f"{_INDEX}|{_GPU}", N_("give numbers or UUIDs of AMD GPUs such as 0,GPU-4b2c1a9f; not %(value)s.")
        ),
    ),
    Variable(
        "GGML_VK_VISIBLE_DEVICES", N_("The GPUs a Vulkan build may use, as numbers such as 0,1."), _indexes
    ),
    Variable(
        "OMP_NUM_THREADS",
        N_("Threads of libraries that compute beside llama.cpp; its own are the field Threads."),
        _threads,
    ),
)

KNOWN: Mapping[str, Variable] = {variable.name: variable for variable in _ALL}


def check_environment(environment: Mapping[str, object], caps: Capabilities) -> list[Problem]:
    """Return what keeps the variables from being set, and what a person should know of them."""
    problems: list[Problem] = []
    if len(environment) > MAX_VARIABLES:
        text = N_("These are more than %(limit)s variables.")
        problems.append(error(FIELD, text, limit=MAX_VARIABLES))
    for name, value in environment.items():
        reason = _name_refused(name, caps) or _value_refused(name, value)
        if reason:
            problems.append(Problem("error", FIELD, reason))
    hints = (
        _no_device(environment, caps),
        _counted(environment),
        _no_turboquant(environment, caps),
    )
    return problems + [problem for problem in hints if problem is not None]


def _value_refused(name: str, value: object) -> Message | None:
    if not isinstance(value, str) or len(value) > MAX_VALUE:
        text = N_("%(name)s: the value is no text of at most %(limit)s characters.")
        return Message(text, {"name": name, "limit": MAX_VALUE})
    if _CONTROL.search(value):
        return Message(N_("%(name)s: the value holds a control character: remove it."), {"name": name})
    reason = KNOWN[name].check(value)
    return Message(N_("%(name)s: %(reason)s"), {"name": name, "reason": reason}) if reason else None


def _name_refused(name: str, caps: Capabilities) -> Message | None:
    """Return why a variable is none that profiles hold, with the place that does it instead."""
    if name in KNOWN:
        return None
    if not _NAME.fullmatch(name):
        text = N_("%(name)s is no name of a variable: use letters, digits and the underscore.")
        return Message(text, {"name": ascii(name[:60])})
    if secret(name):
        return Message(N_("%(name)s: profiles hold no secrets; the panel makes its own."), {"name": name})
    if _SYSTEM.fullmatch(name):
        text = N_("%(name)s: this would change which programs and libraries the server runs with.")
        return Message(text, {"name": name})
    return _of_a_flag(name, caps) or Message(
        N_("%(name)s is none of the variables that profiles hold: %(known)s."),
        {"name": name, "known": ", ".join(KNOWN)},
    )


def _of_a_flag(name: str, caps: Capabilities) -> Message | None:
    """Return what sets the flag that a variable of llama-server stands for, None for other variables."""
    names = (name, name.replace("LLAMA_ARG_NO_", "LLAMA_ARG_", 1))
    flag = next((flag for flag in (*caps.flags, *ANY.flags) if flag.env and flag.env in names), None)
    if flag is None:
        return None
    meaning = next((m for m in MEANINGS.values() if set(m.names) & set(flag.all_names)), None)
    if meaning is None and (reason := refusal(flag.name, flag)):
        return Message(reason, {"flag": name})
    if meaning is None:
        text = N_("%(name)s: write %(flag)s into the extra arguments instead.")
        return Message(text, {"name": name, "flag": flag.name})
    text = N_("%(name)s: set the field %(label)s instead.")
    return Message(text, {"name": name, "label": Message(meaning.label)})


def _no_device(environment: Mapping[str, object], caps: Capabilities) -> Problem | None:
    """Newer builds end at the start when the device for pictures is none of theirs."""
    name = "MTMD_BACKEND_DEVICE"
    known = ("none", *(device.name for device in caps.devices))
    if environment.get(name, "none") in known or not any(flag.env == name for flag in caps.flags):
        return None
    text = N_("%(name)s: the devices of this build are: %(known)s.")
    return error(FIELD, text, name=name, known=", ".join(known))


def _counted(environment: Mapping[str, object]) -> Problem | None:
    value = str(environment.get("CUDA_VISIBLE_DEVICES", ""))
    if not value[:1].isdigit() or environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID":
        return None
    text = N_(
        "CUDA_VISIBLE_DEVICES counts GPUs, and which one is 0 depends on CUDA_DEVICE_ORDER: "
        "give their UUIDs instead, which always mean the same GPUs."
    )
    return warning(FIELD, text)


def _no_turboquant(environment: Mapping[str, object], caps: Capabilities) -> Problem | None:
    name = next((name for name in _TURBO if name in environment), None)
    if name is None or caps.turboquant:
        return None
    text = N_("%(name)s does nothing here: this build has no TurboQuant.")
    return warning(FIELD, text, name=name)
