"""Damages the headers of real files in ways that random bytes rarely hit, and uses what can still be read."""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from controlpanel.demo import tiny_model
from controlpanel.lib.text import Message
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.gguf import GgufError, examine_header, read_header
from controlpanel.llamacpp.gguf_builds import BuildFacts, judge, wanted_words
from controlpanel.llamacpp.gguf_facts import GgufFacts, read_facts
from controlpanel.llamacpp.gguf_report import Report, facts_of_model, partner_of, to_json

EXTREMES = (0, 1, 2, 3, 7, 8, 9, 31, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**62, 2**63, 2**64 - 1)
NAMES = (
    b"\x00",
    b"\x1b[2J",
    b"\r\n",
    b"\xe2\x80\xae",
    b"\xff\xfe",
    b"../",
    b"%s%(x)s",
    b"'\"<script>",
    b"\x7f",
)
BUILDS = (
    BuildFacts("silent", Capabilities()),
    BuildFacts("fork", Capabilities(mtp_value="mtp", cache_types=("turbo4",)), frozenset({"q4_K"})),
)


@cache
def real_headers() -> tuple[bytes, ...]:
    """The headers of files that the package gguf wrote, without their data."""
    with TemporaryDirectory() as folder:
        files = tiny_model.make_all(Path(folder))
        return tuple(header_of(path) for path in (files.text, files.projector))


def header_of(path: Path) -> bytes:
    """The first bytes of a file, up to its data."""
    with path.open("rb") as stream:
        return stream.read(read_header(path).data_start)


def mutate(raw: bytes, chance: random.Random) -> bytes:
    """Return a damaged copy: one to four changes of a random kind."""
    data = bytearray(raw)
    for _ in range(chance.randint(1, 4)):
        chance.choice(_CHANGES)(data, chance)
    return bytes(data)


def use(raw: bytes, size: int | None = None) -> str:
    """Read a header and ask everything of it that a page or the command asks; return what became of it."""
    try:
        header = read_header(io.BytesIO(raw), size)
    except GgufError as error:
        assert str(error) and error.message.text
        return error.code
    model = examine_header(header, "damaged.gguf")
    facts = facts_of_model(model)
    reference = _reference()
    partners = [partner_of(facts, "other.gguf", other) for other in reference]
    assert wanted_words(facts)
    report = Report(
        model,
        facts,
        tuple(partner for partner in partners if partner is not None),
        tuple(judge(facts, build) for build in BUILDS),
    )
    json.dumps(to_json(report, _words), allow_nan=False)
    for tensor in header.tensors:
        assert tensor.name.isprintable()
    return "read"


@cache
def _reference() -> tuple[GgufFacts, ...]:
    return tuple(read_facts([read_header(io.BytesIO(raw), 1 << 40)]) for raw in real_headers())


def _words(message: Message) -> str:
    text = str(message)
    assert text
    return text


def _flip(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.randint(1, 8)):
        if data:
            data[chance.randrange(len(data))] = chance.randrange(256)


def _number(data: bytearray, chance: random.Random) -> None:
    """Overwrite eight or four bytes: a count, a length, a type, an offset."""
    form = chance.choice(("<Q", "<I"))
    width = struct.calcsize(form)
    if len(data) > 24 + width:
        place = chance.choice((8, 16)) if chance.random() < 0.1 else chance.randrange(24, len(data) - width)
        if place + width <= len(data):
            data[place : place + width] = struct.pack(form, chance.choice(EXTREMES) & (2 ** (8 * width) - 1))


def _cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data) + 1) :]


def _remove(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data) + 1)
    del data[start : start + chance.randint(1, 64)]


def _double(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data) + 1)
    part = data[start : start + chance.randint(1, 512)]
    data[start:start] = part


def _name(data: bytearray, chance: random.Random) -> None:
    """Write control characters over a key or a name, which keeps its length."""
    spots = [at for at in range(24, min(len(data), 4096)) if data[at : at + 1].isalpha()]
    if spots:
        bad = chance.choice(NAMES)
        at = chance.choice(spots)
        data[at : at + len(bad)] = bad


_CHANGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip,
    _number,
    _number,
    _cut,
    _remove,
    _double,
    _name,
)
