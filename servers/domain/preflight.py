"""What is looked at before a server starts: each check with its level, its sentence, and what to do.

The functions judge plain facts; None and a Message in place of a fact stand for "not known". Sizes of files
and disks are in bytes, memory in MiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from controlpanel.lib.text import N_, Message, message_of, plain
from jobs.domain.readiness_facts import UNLIMITED, Limit

Level = Literal["ok", "warning", "error"]
_WORST: tuple[Level, ...] = ("error", "warning", "ok")

MIB = 1024 * 1024
FEW_FILES, TOO_FEW_FILES = 4096, 1024  # open files
LITTLE_DISK, NO_DISK = 1024 * MIB, 64 * MIB
NAMED = 5  # names in one sentence at most

NOT_PROBED = N_("This build has not been probed successfully yet.")
PROBED_BEFORE = N_(
    "The last probe of this build failed or has not ended: the panel goes by what an earlier one found."
)
_PROBE_AGAIN = N_("Probe the build again on its page.")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; an error keeps the start back for good.

    `holds` marks a warning that keeps it back until somebody says "start anyway".
    """

    key: str
    level: Level
    message: Message
    remedy: Message | None = None
    holds: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a JSON column."""
        return {
            "key": self.key,
            "level": self.level,
            "message": plain(self.message),
            "remedy": None if self.remedy is None else plain(self.remedy),
            "holds": self.holds,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Check:
        """Rebuild what to_json returned, also after a trip through JSON."""
        remedy = data["remedy"]
        return cls(
            str(data["key"]),
            data["level"],
            message_of(data["message"]),
            None if remedy is None else message_of(remedy),
            bool(data["holds"]),
        )


@dataclass(frozen=True)
class ModelFiles:
    """The files of a model as they are now. `gone` are the paths that are missing or cannot be read.

    `registered` is the size of all of them when their headers were read, 0 when it is not known; `damage`
    says what was wrong with them then, None when they were complete.
    """

    name: str
    count: int
    size: int
    registered: int
    gone: tuple[str, ...] = ()
    damage: Message | None = None


@dataclass(frozen=True)
class Holder:
    """Somebody with memory on a card: the name of a process or of a server, and MiB, None when not known."""

    name: str
    memory_mib: int | None = None


def files(program: Message | None, models: Sequence[ModelFiles] | None) -> Check:
    """Judge the build's program, of which `program` says what is wrong, and the models.

    `models` is None when the disk did not answer.
    """
    if models is None:
        text = N_(
            "The disk with the files of the build and the model does not answer: they were not checked."
        )
        return Check("files", "warning", Message(text), Message(N_("Look at the disk, or wait a little.")))
    found = [_program(program)] if program else []
    found += [check for model in models if (check := _model(model))]
    if found:
        return together("files", found)
    told = {"count": sum(model.count for model in models), "size": _size(sum(model.size for model in models))}
    return Check(
        "files", "ok", Message(N_("The build and the model are there (files: %(count)s, %(size)s)."), told)
    )


def _program(wrong: Message) -> Check:
    text = Message(N_("The build cannot be started: %(why)s"), {"why": wrong})
    return Check("files", "error", text, Message(N_("Choose another build, or make this one again.")))


def _model(model: ModelFiles) -> Check | None:
    """Return what is wrong with a model's files, None when nothing is."""
    again = Message(N_("Let “Read again” on the page of the model read its header, and start then."))
    if model.gone:
        if len(model.gone) == 1:
            text = N_("The model file %(path)s is missing or cannot be read. Was it moved or deleted?")
            told = Message(text, {"path": model.gone[0]})
        else:
            text = N_("%(gone)s of %(count)s files of %(name)s are missing or cannot be read: %(paths)s.")
            params = {"gone": len(model.gone), "count": model.count, "name": model.name}
            told = Message(text, {**params, "paths": named(model.gone)})
        remedy = N_("Put it back or download it again, or choose another model in the profile.")
        return Check("files", "error", told, Message(remedy))
    if model.damage is not None:
        told = Message(N_("%(name)s is not complete: %(why)s"), {"name": model.name, "why": model.damage})
        remedy = N_(
            "Let its download finish, or download it again. When that is done, “Read again” on the page of "
            "the model notices it."
        )
        return Check("files", "error", told, Message(remedy))
    sizes: dict[str, object] = {"name": model.name, "now": f"{model.size:,}", "then": f"{model.registered:,}"}
    if model.registered and model.size < model.registered:
        text = N_("%(name)s is shorter than when it was registered: %(now)s bytes, not %(then)s.")
        return Check("files", "error", Message(text, sizes), again)
    if model.registered and model.size > model.registered:
        text = N_("%(name)s was replaced: it has %(now)s bytes, and had %(then)s when it was registered.")
        return Check("files", "warning", Message(text, sizes), again, holds=True)
    return None


def build(name: str, known: bool, ready: bool, probed: str, now: str | Message | None) -> Check:
    """Judge whether the build is the one that was probed, by the fingerprints of its files then and now.

    `known`: a probe has told what it can do. Not `ready`: a later one failed, or has not ended yet.
    """
    if not known:
        return Check("build", "error", Message(NOT_PROBED), Message(_PROBE_AGAIN))
    found = _fingerprints(name, probed, now)
    if ready:
        return found
    late = Check("build", "warning", Message(PROBED_BEFORE), Message(_PROBE_AGAIN))
    return together("build", [found, late] if found.level != "ok" else [late])


def _fingerprints(name: str, probed: str, now: str | Message | None) -> Check:
    again = Message(_PROBE_AGAIN)
    if not isinstance(now, str):
        why = now or Message(N_("The disk does not answer."))
        text = N_("Whether the build %(name)s is the one that was probed is not known: %(why)s")
        return Check("build", "warning", Message(text, {"name": name, "why": why}))
    if not probed:
        text = N_("The build %(name)s was probed before the panel kept fingerprints.")
        return Check("build", "warning", Message(text, {"name": name}), again)
    if now != probed:
        text = N_(
            "The files of the build %(name)s changed after it was probed: what the panel knows of it may not "
            "be true any more."
        )
        return Check("build", "warning", Message(text, {"name": name}), again, holds=True)
    return Check("build", "ok", Message(N_("The build %(name)s is the one that was probed."), {"name": name}))


def port(found: int | Message) -> Check:
    """Judge the port; a Message says why there is none."""
    if isinstance(found, Message):
        return Check("port", "error", found)
    return Check("port", "ok", Message(N_("Port %(port)s is free."), {"port": found}))


def others(own: Sequence[Holder], foreign: Sequence[Holder], starting: Sequence[str]) -> Check:
    """Judge who else is on the cards: servers of the panel, other programs, servers that start just now."""
    found = []
    if foreign:
        text = N_("Programs that are not the panel's have memory on the cards: %(names)s.")
        told = Message(text, {"names": _held(foreign)})
        remedy = N_("End them if nobody needs them. The panel leaves them alone.")
        found.append(Check("others", "warning", told, Message(remedy)))
    if starting:
        text = N_("Starting at the same time, and may take memory that still counts as free: %(names)s.")
        found.append(Check("others", "warning", Message(text, {"names": named(starting)})))
    if own:
        text = N_("Servers of the panel on these cards: %(names)s.")
        found.append(Check("others", "ok", Message(text, {"names": _held(own)})))
    if not found:
        found.append(Check("others", "ok", Message(N_("Nobody else is on the cards of this server."))))
    return together("others", found)


def no_others(why: Message, known: bool) -> Check:
    """Say why there is nobody to name: there is no card (`known`), or the cards cannot be read."""
    return Check("others", "ok" if known else "warning", why)


def descriptors(limit: Limit | None) -> Check:
    """Judge how many files the server may have open: it inherits the limit of the panel's worker."""
    if limit is None:
        return Check("descriptors", "warning", Message(N_("The limit of open files is not known.")))
    if limit.soft == UNLIMITED:
        return Check("descriptors", "ok", Message(N_("There is no limit of open files.")))
    told: dict[str, object] = {"count": f"{limit.soft:,}"}
    if limit.soft >= FEW_FILES:
        return Check("descriptors", "ok", Message(N_("The server may open %(count)s files."), told))
    text = N_(
        "The server may open %(count)s files: enough for some hundred requests at a time, not for more."
    )
    if limit.soft < TOO_FEW_FILES:
        text = N_("The server may open only %(count)s files: it will fail under load, or while it loads.")
    remedy = N_(
        "Raise it where the panel is started: “ulimit -n 4096” before it in the same shell, or "
        "LimitNOFILE=4096 in its systemd unit. Then start the panel again."
    )
    return Check("descriptors", "warning", Message(text, told), Message(remedy))


def disk(free: int | None) -> Check:
    """Judge the space for logs on the disk of the data folder."""
    if free is None:
        return Check("disk", "warning", Message(N_("How much space is free for logs is not known.")))
    told: dict[str, object] = {"free": _size(free)}
    if free >= LITTLE_DISK:
        return Check("disk", "ok", Message(N_("%(free)s are free for logs."), told))
    remedy = Message(N_("Free some space on the disk of the data folder: delete old builds or models."))
    if free < NO_DISK:
        text = N_("Only %(free)s are free for logs: the panel cannot work with a full disk.")
        return Check("disk", "error", Message(text, told), remedy)
    return Check("disk", "warning", Message(N_("Only %(free)s are free for logs."), told), remedy)


def failed(key: str) -> Check:
    """Say that a check itself went wrong."""
    return Check(key, "warning", Message(N_("This could not be checked: the log of the worker says why.")))


def together(key: str, parts: Sequence[Check]) -> Check:
    """Return one check that says what all parts say, the worst first."""
    ranked = sorted(parts, key=lambda part: (_WORST.index(part.level), not part.holds))
    remedies: list[Message] = []
    for part in ranked:
        if part.remedy is not None and part.remedy not in remedies:
            remedies.append(part.remedy)
    level = ranked[0].level
    holds = level != "error" and any(part.holds for part in ranked)
    message = joined(part.message for part in ranked)
    return Check(key, level, message, joined(remedies) if remedies else None, holds)


def joined(messages: Iterable[Message]) -> Message:
    """Return sentences as one message."""
    params: dict[str, object] = {f"m{number}": message for number, message in enumerate(messages)}
    if len(params) == 1:
        return next(message for message in params.values() if isinstance(message, Message))
    return Message(" ".join(f"%({name})s" for name in params), params)


def named(names: Sequence[str]) -> str:
    """Return names in a row, the first of them when they are many."""
    return ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")


def _size(size: int) -> Message:
    """Return bytes in whole MiB, less than one in bytes."""
    if size < MIB:
        return Message(N_("%(count)s bytes"), {"count": size})
    return Message("%(count)s MiB", {"count": f"{size // MIB:,}"})


def _held(holders: Sequence[Holder]) -> str:
    words = ("?" if one.memory_mib is None else f"{one.memory_mib:,}" for one in holders)
    return named([f"{one.name} ({word} MiB)" for one, word in zip(holders, words, strict=True)])
