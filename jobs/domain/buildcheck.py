"""What is wrong with the inputs of a build, whatever the host; and what two of them differ in."""

from __future__ import annotations

import dataclasses
import re

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.problems import Problem, error, warning
from jobs.domain import cuda
from jobs.domain.buildspec import SERVER, TARGETS, BuildInputs
from jobs.domain.definitions import check_definition
from jobs.domain.gitref import check_ref, check_url
from jobs.domain.trees import Tree

MAX_JOBS = 512
MAX_PATH = 4096
MAX_ARCHITECTURES = 32
MAX_DEFINITIONS = 64
BACKENDS = ("cuda", "cpu", "vulkan", "hip")

_PAIR = re.compile(r"[a-z][a-z0-9_]{0,15}-[a-z][a-z0-9_]{0,15}")


def check_inputs(inputs: BuildInputs, tree: Tree | None) -> list[Problem]:
    """Return what is wrong with the inputs; `tree` None when the source is not known yet."""
    return [
        *_source(inputs),
        *_programs(inputs),
        *_targets(inputs, tree),
        *(_cuda(inputs, tree) if inputs.backend == "cuda" else ()),
        *_definitions(inputs, tree),
    ]


def differences(old: BuildInputs, new: BuildInputs) -> list[tuple[str, str, str]]:
    """Return (field, old, new) for each field in which two inputs differ, as text."""
    return [
        (field.name, _words(getattr(old, field.name)), _words(getattr(new, field.name)))
        for field in dataclasses.fields(BuildInputs)
        if getattr(old, field.name) != getattr(new, field.name)
    ]


def _words(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join("=".join(item) if isinstance(item, tuple) else str(item) for item in value)
    return str(value)


def _source(inputs: BuildInputs) -> list[Problem]:
    found = [
        ("repository", _check_folder(inputs.repository) if inputs.local else check_url(inputs.repository)),
        ("ref", check_ref(inputs.ref)),
    ]
    return [Problem("error", field, message) for field, message in found if message]


def _check_folder(path: str) -> Message | None:
    if _is_path(path):
        return None
    return Message(N_("Enter the full path of a folder on the host; it begins with “/”."))


def _is_path(path: str) -> bool:
    return path.startswith("/") and path.isprintable() and len(path) <= MAX_PATH and ";" not in path


def _programs(inputs: BuildInputs) -> list[Problem]:
    problems = []
    if inputs.backend not in BACKENDS:
        text = N_("There is no backend %(backend)s.")
        problems.append(error("backend", text, backend=inputs.backend))
    for field in ("nvcc", "host_compiler"):
        path = getattr(inputs, field)
        if path and not _is_path(path):
            problems.append(error(field, N_("Enter the full path of the compiler; it begins with “/”.")))
    if not 0 <= inputs.jobs <= MAX_JOBS:
        text = N_("Enter a number from 1 to %(limit)s, or leave it empty.")
        problems.append(error("jobs", text, limit=MAX_JOBS))
    return problems


def _targets(inputs: BuildInputs, tree: Tree | None) -> list[Problem]:
    unknown = [target for target in inputs.targets if target not in TARGETS]
    if unknown:
        return [error("targets", N_("The panel does not build %(target)s."), target=unknown[0])]
    if SERVER not in inputs.targets:
        return [error("targets", N_("Without llama-server there is nothing to run: choose it too."))]
    if tree is None or not tree.targets:
        return []
    missing = [target for target in inputs.targets if target not in tree.targets]
    text = N_("This source has no %(targets)s; the build goes on without.")
    return [warning("targets", text, targets=", ".join(missing))] if missing else []


def _cuda(inputs: BuildInputs, tree: Tree | None) -> list[Problem]:
    problems = []
    if len(inputs.architectures) > MAX_ARCHITECTURES:
        text = N_("Choose at most %(limit)s architectures.")
        problems.append(error("architectures", text, limit=MAX_ARCHITECTURES))
    wrong = [one for one in inputs.architectures[:MAX_ARCHITECTURES] if not cuda.is_architecture(one)]
    if wrong:
        text = N_("%(architecture)s is no CUDA architecture. Write numbers such as 86 or 120, or “native”.")
        problems.append(error("architectures", text, architecture=wrong[0]))
    if cuda.NATIVE in inputs.architectures and len(inputs.architectures) > 1:
        text = N_("“native” stands alone: remove it, or remove the numbers.")
        problems.append(error("architectures", text))
    if problem := _fa_quants(inputs.fa_quants, tree):
        problems.append(problem)
    return problems


def _fa_quants(wanted: str, tree: Tree | None) -> Problem | None:
    if not wanted:
        return None
    pairs = wanted.split(";")
    if wanted != "all" and (len(pairs) > 64 or not all(_PAIR.fullmatch(pair) for pair in pairs)):
        text = N_("Write “all”, or pairs of cache types for K and V such as q8_0-q4_0;f16-f16.")
        return error("fa_quants", text)
    if tree is not None and tree.cuda_fa == "none":
        return error("fa_quants", N_("This source has no choice of cache types: leave the field empty."))
    if tree is not None and tree.cuda_fa == "all" and wanted != "all":
        text = N_("This source compiles its usual cache types or all of them, no list: choose “all” or none.")
        return error("fa_quants", text)
    return None


def _definitions(inputs: BuildInputs, tree: Tree | None) -> list[Problem]:
    problems = []
    if len(inputs.definitions) > MAX_DEFINITIONS:
        text = N_("At most %(limit)s CMake options can be set.")
        problems.append(error("definitions", text, limit=MAX_DEFINITIONS))
    seen: set[str] = set()
    for key, value in inputs.definitions[:MAX_DEFINITIONS]:
        if key in seen:
            problems.append(error("definitions", N_("%(key)s is set twice."), key=key))
        elif problem := check_definition(key, value, tree):
            problems.append(problem)
        seen.add(key)
    return problems
