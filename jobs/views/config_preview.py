"""The consequence of a build config's form: the commands, and what is wrong, each at its field."""

import shlex
from dataclasses import dataclass, field
from typing import Any

from django import forms
from django.utils.translation import gettext as _

from controlpanel.lib.words import translate
from controlpanel.llamacpp.problems import Problem
from jobs.adapters import buildtree
from jobs.domain.buildcheck import check_inputs
from jobs.domain.cmake import Step, commands, default_jobs
from jobs.domain.definitions import known
from jobs.domain.programs import Toolchain
from jobs.domain.toolchain import warnings
from jobs.forms_builds import ConfigForm
from jobs.models import Repository
from jobs.services.configs import ConfigData, known_tree


@dataclass(frozen=True)
class FieldView:
    """One field as the page shows it, with what is wrong and what else is to be said of it now."""

    bound: forms.BoundField
    notes: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    before: str | None = None  # what a diagnosis changed here; None: nothing was changed

    @property
    def key(self) -> str:
        """The field's name."""
        return self.bound.name


@dataclass(frozen=True)
class Preview:
    """What a form leads to. `blocked` are the errors of the host: they keep a build from being started."""

    form: ConfigForm
    data: ConfigData | None
    steps: list[tuple[str, str]]
    fields: dict[str, FieldView]
    others: list[tuple[str, str]]
    blocked: list[str]
    input_errors: int
    known_host: bool

    @property
    def error_count(self) -> int:
        """How many errors there are, of the inputs and of the host."""
        return self.input_errors + len(self.blocked)

    @property
    def finding_count(self) -> int:
        """How many errors and warnings there are."""
        return len(self.others) + sum(len(view.errors) + len(view.warnings) for view in self.fields.values())

    @property
    def shell(self) -> str:
        """All commands as they can be pasted into a shell."""
        return "\n".join(line for _name, line in self.steps)


def preview_of(
    form: ConfigForm, *, typing: bool = False, changed: dict[str, str] | None = None, admin: bool = False
) -> Preview:
    """Check the form's inputs and write the commands of a build of now.

    While somebody is still typing, a required field that is empty is no error yet. `changed` says of fields
    what they held before a diagnosis changed them.
    """
    form.is_valid()  # cleans, once
    data = form.config_data()
    toolchain = form.toolchain
    problems, host_problems = findings(data, toolchain)
    errors: dict[str, list[str]] = {key: _own_errors(form, key, typing) for key in form.fields}
    warned: dict[str, list[str]] = {key: [] for key in form.fields}
    others = [("error", str(text)) for text in form.non_field_errors()]
    own = sum(map(len, errors.values())) + len(others)
    blocked = []
    for problem in [*problems, *host_problems]:
        text = translate(problem.message)
        if problem.level == "error" and problem in host_problems:
            blocked.append(text)
        if problem.field not in form.fields:
            others.append((problem.level, text))
        else:
            (errors if problem.level == "error" else warned)[problem.field].append(text)
    notes = _notes(data, toolchain, admin and not errors["definitions"])
    return Preview(
        form=form,
        data=data,
        steps=steps_of(data, toolchain) if data else [],
        fields={
            key: FieldView(form[key], notes.get(key, []), errors[key], warned[key], (changed or {}).get(key))
            for key in form.fields
        },
        others=others,
        blocked=blocked,
        input_errors=own + sum(1 for problem in problems if problem.level == "error"),
        known_host=toolchain is not None,
    )


def findings(data: ConfigData | None, toolchain: Toolchain | None) -> tuple[list[Problem], list[Problem]]:
    """Return what is wrong with the inputs, and what the host lacks for them."""
    if data is None:
        return [], []
    tree = known_tree(data.repository)
    problems = check_inputs(data.inputs, tree)
    return problems, warnings(toolchain, data.inputs, tree) if toolchain else []


def steps_of(data: ConfigData, toolchain: Toolchain | None) -> list[tuple[str, str]]:
    """Return the commands of a build as (step, shell line); N stands for the number of the build."""
    folders = buildtree.BuildTree(buildtree.tree(0).root.with_name("N"))
    mirror = buildtree.mirror(data.repository.pk)
    found: list[Step] = commands(
        data.inputs,
        toolchain or Toolchain(),
        known_tree(data.repository),
        str(mirror),
        str(folders.source),
        str(folders.build),
    )
    return [(step.name, shlex.join(step.argv)) for step in found]


def _own_errors(form: ConfigForm, key: str, typing: bool) -> list[str]:
    given = form[key].errors.as_data()
    return [text for item in given if not (typing and item.code == "required") for text in item.messages]


def _notes(data: ConfigData | None, toolchain: Toolchain | None, foreign_too: bool) -> dict[str, list[str]]:
    """Return what is to be said of fields as the form stands."""
    notes: dict[str, list[str]] = {}
    if data is None:
        return notes
    if toolchain:
        number = default_jobs(toolchain.cores, toolchain.memory_mib, data.inputs.backend)
        notes["jobs"] = [
            _("Empty: %(number)d, by the cores and the memory of this host.") % {"number": number}
        ]
    else:
        notes["jobs"] = [_("Empty: by the cores and the memory of the host.")]
    notes["fa_quants"] = [_fa_note(data.repository)]
    if not data.inputs.architectures:
        notes["architectures"] = [_("None ticked: the cards of this host, as CMake finds them.")]
    foreign = [key for key, _value in data.inputs.definitions if foreign_too and not known(key)]
    if foreign:
        notes["definitions"] = [
            _("Not on the known list, so code of anybody's choice may run: %(names)s.")
            % {"names": ", ".join(foreign)}
        ]
    return notes


def _fa_note(repository: Repository) -> str:
    tree = known_tree(repository)
    if tree is None:
        return _("What this source offers is known after its first build.")
    if tree.cuda_fa == "list":
        return _("This source takes all pairs or a list of them.")
    if tree.cuda_fa == "all":
        return _("This source knows its default and all pairs, no list.")
    return _("This source has no such option.")


def offers(toolchain: Toolchain | None) -> dict[str, list[tuple[str, Any]]]:
    """Return the programs found on the host, as (path, version), for fields that name one."""
    if toolchain is None:
        return {"nvccs": [], "compilers": []}
    return {
        "nvccs": [(nvcc.path, f"CUDA {nvcc.version}") for nvcc in toolchain.nvccs],
        "compilers": [(item.path, f"{item.kind} {item.version}") for item in toolchain.compilers],
    }
