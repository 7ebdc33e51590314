"""GGUF files: read the header, and describe a model in words for a person.

Reading costs little whatever the file says: see the limits in gguf_cursor.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypedDict

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.gguf_errors import GgufError, one_line
from controlpanel.llamacpp.gguf_header import GgufHeader, Projector, Tensor
from controlpanel.llamacpp.gguf_parse import parse_header

__all__ = [
    "Description",
    "GgufError",
    "GgufHeader",
    "Model",
    "Projector",
    "Tensor",
    "describe",
    "examine",
    "examine_header",
    "read_header",
]

MAX_SHARDS = 256

_UNFINISHED = (
    ".part",
    ".partial",
    ".incomplete",
    ".crdownload",
    ".download",
    ".downloadinprogress",
    ".aria2",
)
_SHARD_NAME = re.compile(r"(?P<prefix>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


class Description(TypedDict):
    """What the command line says about a file; sizes in bytes."""

    architecture: str | None
    file_size: int
    quant: str | None
    context_length: int | None
    mtp_heads: int
    projector: str | None
    complete: bool
    problems: list[str]


def read_header(source: str | Path | BinaryIO, size: int | None = None) -> GgufHeader:
    """Read the header of a file or of a seekable stream.

    `size` is the full size in bytes when the stream holds only the beginning of the file. Raises
    GgufError with words for the user, whatever the bytes are.
    """
    if isinstance(source, str | Path):
        with open_file(Path(source)) as stream:
            return read_header(stream, size)
    if size is None:
        start = source.tell()
        size = source.seek(0, os.SEEK_END) - start
        source.seek(start)
    return parse_header(source, size)


def shard_paths(path: Path) -> list[Path]:
    """Return all parts of the model that `path` is a part of, in order; [path] for a single file."""
    match = _SHARD_NAME.fullmatch(path.name)
    if match is None:
        return [path]
    count = min(int(match["count"]), MAX_SHARDS)
    return [
        path.with_name(f"{match['prefix']}-{n:05d}-of-{match['count']}.gguf") for n in range(1, count + 1)
    ]


@dataclass(frozen=True)
class Model:
    """One logical model: `path` as given, all its parts, the merged facts and what is wrong.

    `header` is that of `path`, `parts` are those that could be read, in order; `size` counts the bytes of all
    parts that are there; `missing` names those that are not.
    """

    path: Path
    header: GgufHeader
    shards: tuple[Path, ...]
    size: int
    mtp_heads: int
    complete: bool
    problems: tuple[Message, ...]
    parts: tuple[GgufHeader, ...]
    missing: tuple[str, ...] = ()


def examine(path: str | Path) -> Model:
    """Read a file and the parts beside it; raises GgufError when `path` itself has no readable header."""
    path = Path(path)
    header = read_header(path)
    shards = shard_paths(path)
    damage = unfinished(path.name)
    notes: list[Message] = []
    if header.split_count != len(shards):
        text = N_(
            "The file says that it is part %(number)s of %(count)s, but its name does not say so "
            "(NAME-00001-of-00003.gguf): give all parts their original names."
        )
        damage.append(Message(text, {"number": header.split_no + 1, "count": header.split_count}))
        shards = [path]
    headers, missing = _read_shards(path, header, shards, damage)
    names = frozenset[str]().union(*(part.tensor_names for part in headers))
    if header.split_no:
        text = N_(
            "This is part %(number)s of %(count)s: the facts of the model are in the first part, %(name)s."
        )
        params = {
            "number": header.split_no + 1,
            "count": len(shards),
            "name": one_line(os.fsencode(shards[0].name)),
        }
        notes.append(Message(text, params))
    else:
        notes += _notes(header, names, whole=len(headers) == len(shards))
    mtp_heads = header.nextn_layers if header.mtp_tensor in names else 0
    size = sum(part.file_size for part in headers)
    problems = (*damage, *notes)
    return Model(
        path, header, tuple(shards), size, mtp_heads, not damage, problems, tuple(headers), tuple(missing)
    )


def examine_header(header: GgufHeader, name: str) -> Model:
    """Return what one header tells of a model whose other parts, if any, are out of reach."""
    damage = unfinished(name)
    notes: list[Message] = []
    if header.missing_bytes:
        damage.append(_truncated(one_line(name.encode("utf-8", "replace")), header))
    if header.split_count > 1:
        text = N_("This is part %(number)s of %(count)s; only this part was looked at.")
        notes.append(Message(text, {"number": header.split_no + 1, "count": header.split_count}))
    if not header.split_no:
        notes += _notes(header, header.tensor_names, whole=header.split_count == 1)
    problems = (*damage, *notes)
    return Model(Path(name), header, (), header.file_size, header.mtp_heads, not damage, problems, (header,))


def unfinished(name: str) -> list[Message]:
    """Return what a file's name says of a download that did not end."""
    if not name.lower().endswith(_UNFINISHED):
        return []
    text = N_(
        "%(name)s is an unfinished download, whatever its size: parts of it may be empty. Let the download "
        "finish, or download the file again."
    )
    return [Message(text, {"name": one_line(name.encode("utf-8", "replace"))})]


def describe(path: str | Path) -> Description:
    """Describe a file for a person; a truncated or partial model is described, not refused."""
    model = examine(path)
    header = model.header
    return Description(
        architecture=header.architecture,
        file_size=header.file_size,
        quant=header.quant,
        context_length=header.context_length,
        mtp_heads=model.mtp_heads,
        projector=header.projector.type if header.projector else None,
        complete=model.complete,
        problems=[str(problem) for problem in model.problems],
    )


def _read_shards(
    path: Path, header: GgufHeader, shards: list[Path], damage: list[Message]
) -> tuple[list[GgufHeader], list[str]]:
    """Return the headers of all readable parts and the names of the missing ones.

    What keeps the model from loading is added to `damage`.
    """
    headers: list[GgufHeader] = []
    absent: list[str] = []
    for shard in shards:
        name = one_line(os.fsencode(shard.name))
        try:
            part = header if shard == path else read_header(shard)
        except GgufError as error:
            if error.code == "missing":
                absent.append(name)
            else:
                damage.append(Message(N_("Part %(name)s: %(reason)s"), {"name": name, "reason": str(error)}))
            continue
        headers.append(part)
        if part.missing_bytes:
            damage.append(_truncated(name, part))
    if absent:
        text = N_("%(missing)s of %(count)s parts are missing beside this file: %(names)s.")
        shown = ", ".join(absent[:5]) + (", ..." if len(absent) > 5 else "")
        damage.append(Message(text, {"missing": len(absent), "count": len(shards), "names": shown}))
    return headers, absent


def _truncated(name: str, part: GgufHeader) -> Message:
    text = N_(
        "%(name)s is truncated: %(missing)s of %(size)s bytes are missing. "
        "The download did not finish: resume it or download the file again."
    )
    return Message(text, {"name": name, "missing": part.missing_bytes, "size": part.data_end})


def _notes(header: GgufHeader, names: frozenset[str], whole: bool) -> list[Message]:
    """Return what a person should know of a model that may load all the same."""
    notes: list[Message] = []
    if not header.architecture:
        notes.append(Message(N_("The file does not name its architecture: no build can load it as a model.")))
    announced = header.nextn_layers
    if announced and whole and header.mtp_tensor not in names:
        text = N_(
            "The metadata announce %(layers)s MTP layers, but the tensor %(tensor)s is missing: "
            "MTP will not work with this file."
        )
        notes.append(Message(text, {"layers": announced, "tensor": header.mtp_tensor}))
    if not announced and any(name.endswith(".nextn.eh_proj.weight") for name in names):
        text = N_(
            "The file holds tensors of MTP heads, but the key %(key)s is missing or 0: "
            "builds will not find the heads."
        )
        notes.append(Message(text, {"key": header.arch_key("nextn_predict_layers")}))
    if header.unknown_types:
        text = N_(
            "The file uses tensor types whose meaning differs between forks (%(types)s): "
            "it loads only with the build it was made for, and the panel cannot tell whether it is complete."
        )
        notes.append(Message(text, {"types": ", ".join(map(str, header.unknown_types))}))
    return notes


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """Open a regular file for reading; raise GgufError with words for anything else."""

    def opener(name: str, flags: int) -> int:
        # Without O_NONBLOCK a named pipe in the models folder would block for ever.
        return os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC)

    shown: dict[str, object] = {"path": one_line(os.fsencode(path))}
    try:
        stream = open(path, "rb", buffering=0, opener=opener)  # noqa: SIM115
    except FileNotFoundError as error:
        raise GgufError("missing", Message(N_("There is no file %(path)s."), shown)) from error
    except IsADirectoryError as error:
        text = N_("%(path)s is a directory: name the .gguf file inside it.")
        raise GgufError("directory", Message(text, shown)) from error
    except PermissionError as error:
        text = N_("The panel may not read %(path)s: change its permissions or its owner.")
        raise GgufError("unreadable", Message(text, shown)) from error
    except (OSError, ValueError) as error:
        text = N_("%(path)s cannot be read: %(reason)s.")
        raise GgufError("unreadable", Message(text, {**shown, "reason": str(error)})) from error
    with stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise GgufError("not_a_file", Message(N_("%(path)s is not a regular file."), shown))
        yield stream
