"""What may be built and how: repositories and build configs."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError
from django.utils.translation import gettext as _

from controlpanel.lib.access import has_role
from controlpanel.lib.errors import Refused
from controlpanel.lib.streams import publish_on_commit
from controlpanel.lib.words import translate
from controlpanel.llamacpp.problems import errors
from jobs.domain import definitions, gitref
from jobs.domain.buildcheck import check_inputs
from jobs.domain.buildspec import BuildInputs
from jobs.domain.trees import Tree, tree_with
from jobs.models import AuditEntry, BuildConfig, Host, Job, Repository
from jobs.services.audit import Actor, record
from jobs.services.hosts import local_host
from jobs.services.jobs import create_job
from jobs.services.mirrors import FORGET
from jobs.services.toolchains import toolchain_of

LONGEST_PATH = 2048


@dataclass(frozen=True)
class ConfigData:
    """What a form gives for a build config; the address of `inputs` is the repository's."""

    name: str
    repository: Repository
    inputs: BuildInputs


def add_repository(actor: Actor, name: str, kind: str, url: str) -> Repository:
    """Allow builds from a git address, or from a folder of the host; Refused says what is wrong with it."""
    name, url = _tidy(name), url.strip()
    if not name:
        raise Refused(_("Give the repository a name."), "name")
    if kind == Repository.Kind.LOCAL:
        url = _folder(url)
    elif wrong := gitref.check_url(url):
        raise Refused(translate(wrong), "url")
    if Repository.objects.filter(name=name).exists():
        raise Refused(_("There is already a repository with this name."), "name")
    try:
        with transaction.atomic():
            row = Repository.objects.create(name=name, kind=kind, url=url, created_by=actor.user)
            record(actor, "repository.add", row, after={"name": name, "kind": kind, "url": url})
            publish_on_commit("repository", row.pk)
    except IntegrityError as error:
        raise Refused(_("This address is registered already."), "url") from error
    return row


def delete_repository(actor: Actor, repository: Repository) -> None:
    """Forget a repository; Refused while a config builds from it."""
    try:
        with transaction.atomic():
            record(
                actor,
                "repository.delete",
                repository,
                before={"name": repository.name, "url": repository.url},
            )
            pk = repository.pk
            if any(job.params.get("mirror") == pk for job in Job.objects.filter(state__in=Job.ACTIVE)):
                raise Refused(_("A build from this repository is under way. Wait for it, or cancel it."))
            repository.delete()
            create_job(actor, FORGET, local_host(), "repository", pk, {})
            publish_on_commit("repository", pk)
    except ProtectedError as error:
        names = ", ".join(repository.configs.values_list("name", flat=True))
        raise Refused(
            _("Build configs use this repository: %(names)s. Change or delete them first.") % {"names": names}
        ) from error


def save_config(actor: Actor, host: Host, config: BuildConfig | None, data: ConfigData) -> BuildConfig:
    """Create or change a build config; Refused with the first error of its inputs.

    What the host lacks is no error here: a config may be saved before its compiler is installed.
    """
    name = _tidy(data.name)
    if not name:
        raise Refused(_("Give the build config a name."), "name")
    wrong = errors(check_inputs(data.inputs, known_tree(data.repository)))
    if wrong:
        raise Refused(translate(wrong[0].message), wrong[0].field)
    check_rights(actor, host, config, data.inputs)
    fields = {"name": name, "repository": data.repository, **_columns(data.inputs)}
    try:
        with transaction.atomic():
            if config is None:
                config = BuildConfig.objects.create(host=host, created_by=actor.user, **fields)
                record(actor, "config.create", config, after=_as_json(config))
            else:
                before = _as_json(config)
                for key, value in fields.items():
                    setattr(config, key, value)
                config.save()
                record(actor, "config.change", config, before=before, after=_as_json(config))
            publish_on_commit("config", config.pk)
    except IntegrityError as error:
        raise Refused(_("There is already a build config with this name."), "name") from error
    return config


def delete_config(actor: Actor, config: BuildConfig) -> None:
    """Delete a build config; the builds made from it stay, each with a copy of its inputs."""
    with transaction.atomic():
        record(actor, "config.delete", config, before=_as_json(config))
        pk = config.pk
        config.delete()
        publish_on_commit("config", pk)


def check_rights(actor: Actor, host: Host, config: BuildConfig | None, inputs: BuildInputs) -> None:
    """Raise Refused where somebody asks for what only an admin may: any program, any CMake definition.

    What an admin has put into the config before may stay.
    """
    if actor.source == AuditEntry.Source.CLI or has_role(actor.user, "admin"):
        return
    before = config.inputs() if config else BuildInputs("")
    foreign = [
        key
        for key, value in inputs.definitions
        if not definitions.known(key) and (key, value) not in before.definitions
    ]
    if foreign:
        raise Refused(
            _("Only an admin may set %(names)s: a definition outside the known list can run any code.")
            % {"names": ", ".join(foreign)},
            "definitions",
        )
    toolchain = toolchain_of(host)
    found = {
        "nvcc": {nvcc.path for nvcc in toolchain.nvccs} if toolchain else set(),
        "host_compiler": {compiler.path for compiler in toolchain.compilers} if toolchain else set(),
    }
    for field, paths in found.items():
        path = getattr(inputs, field)
        if path and path not in paths and path != getattr(before, field):
            raise Refused(
                _("Choose one that was found on the host: only an admin may name any other program."), field
            )


def known_tree(repository: Repository) -> Tree | None:
    """Return what is known of the repository's source from the last build of it; None before that."""
    return tree_with(repository.options)


def _folder(text: str) -> str:
    """Return the absolute path of a folder in its plain form."""
    path = PurePosixPath(text)
    if not path.is_absolute() or ".." in path.parts or not text.isprintable() or len(text) > LONGEST_PATH:
        raise Refused(_("Give the absolute path of a folder on this host, without “..”."), "url")
    return str(path)


def _columns(inputs: BuildInputs) -> dict[str, Any]:
    """Return the columns of a config that hold these inputs."""
    return {
        "ref": inputs.ref,
        "backend": inputs.backend,
        "architectures": list(inputs.architectures),
        "nvcc": inputs.nvcc,
        "host_compiler": inputs.host_compiler,
        "jobs": inputs.jobs or None,
        "targets": list(inputs.targets),
        "fa_quants": inputs.fa_quants,
        "native": inputs.native,
        "ccache": inputs.ccache,
        "definitions": [list(pair) for pair in inputs.definitions],
    }


def _as_json(config: BuildConfig) -> dict[str, Any]:
    columns = _columns(config.inputs())
    written = {key: ", ".join(map(str, value)) for key, value in columns.items() if isinstance(value, list)}
    written["definitions"] = " ".join(f"{key}={value}" for key, value in config.definitions)
    return {"name": config.name, "repository": config.repository.name, **columns, **written}


def _tidy(name: str) -> str:
    return re.sub(r"\s+", " ", name).strip()
