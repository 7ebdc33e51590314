"""The files of a repository as choices: one per quantisation, shards folded, with what belongs to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache

from controlpanel.lib.text import N_, Message
from jobs.domain.hf import HubPlace
from jobs.domain.hf_quants import bits_of, label_of, spelt, without_label

MAX_SHARDS = 256
MAX_CHOICES = 500  # each model is compared with each addition

_SHARD = re.compile(r"(?P<prefix>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_PROJECTOR = re.compile(r"[-_.]?mm-?proj(?:ector)?[-_.]?", re.IGNORECASE)
_COMPANION = re.compile(r"mtp[-_.]", re.IGNORECASE)
_NO_MODEL = re.compile(r"imatrix|(?:^|[-_.])lora(?:[-_.]|$)|^ggml-vocab|control[-_]?vector", re.IGNORECASE)
_OWN_HEADS = re.compile(r"[-_.](?:mtp|i1|imat)(?=$|[-_.])", re.IGNORECASE)
_GENERAL = frozenset({"", "model"})
# What llama.cpp and most model pages recommend where nothing is known of the machine.
_USUAL = ("Q4_K_M", "UD-Q4_K_XL", "Q4_K_S", "MXFP4", "MXFP4_MOE", "Q4_0", "IQ4_XS", "Q5_K_M", "Q8_0")
_USUAL_PROJECTORS = ("F16", "BF16", "Q8_0", "F32")


@dataclass(frozen=True)
class HubFile:
    """A file of a repository; size in bytes, sha256 in hexadecimal, None where the hub does not say it."""

    path: str
    size: int | None = None
    sha256: str | None = None

    @property
    def name(self) -> str:
        """Return the file's name without its folders."""
        return self.path.rsplit("/", 1)[-1]


class Kind(StrEnum):
    """What a file is by its name: a model, a vision projector, or MTP heads apart from their model."""

    MODEL = "model"
    PROJECTOR = "projector"
    COMPANION = "companion"


@dataclass(frozen=True)
class Choice:
    """One thing to download: all its files in order.

    `base` is the model's name without the quantisation, `quant` a label such as Q4_K_M or "". `size` is in
    bytes, None when the hub does not say it for all files. `shards` is the number that the names announce.
    `projectors` and `companions` are what belongs to a model, the best first.
    """

    kind: Kind
    base: str
    quant: str
    files: tuple[HubFile, ...]
    shards: int = 1
    projectors: tuple[Choice, ...] = field(default=(), repr=False)
    companions: tuple[Choice, ...] = field(default=(), repr=False)

    @property
    def path(self) -> str:
        """Return the path of the first file, by which the choice is known."""
        return self.files[0].path

    @property
    def size(self) -> int | None:
        """Return the bytes of all files together."""
        sizes = [file.size for file in self.files]
        return None if None in sizes else sum(size for size in sizes if size is not None)

    @property
    def complete(self) -> bool:
        """True when the repository has every shard."""
        return len(self.files) == self.shards


@dataclass(frozen=True)
class Catalogue:
    """A repository's choices of each kind, the finest first; `others` are the files that are no choice."""

    models: tuple[Choice, ...] = ()
    projectors: tuple[Choice, ...] = ()
    companions: tuple[Choice, ...] = ()
    others: tuple[HubFile, ...] = ()

    @property
    def choices(self) -> tuple[Choice, ...]:
        """Return the choices of all kinds."""
        return (*self.models, *self.projectors, *self.companions)


def catalogue(files: Iterable[HubFile]) -> Catalogue:
    """Sort a repository's files into choices."""
    groups: dict[tuple[str, int], dict[int, HubFile]] = {}
    others: list[HubFile] = []
    for file in sorted(files, key=lambda file: file.path):
        folded = _fold(file)
        if folded is None or len(groups) == MAX_CHOICES and folded[::2] not in groups:
            others.append(file)
        else:
            prefix, number, count = folded
            groups.setdefault((prefix, count), {})[number] = file
    found: dict[Kind, list[Choice]] = {kind: [] for kind in Kind}
    for (prefix, count), parts in groups.items():
        choice = _choice(prefix, count, tuple(parts[number] for number in sorted(parts)))
        found[choice.kind].append(choice)
    models, projectors, companions = (sorted(found[kind], key=_finest_first) for kind in Kind)
    projectors.sort(key=lambda choice: _usual(choice.quant, _USUAL_PROJECTORS))
    single = len({_plain(choice.base) for choice in models}) <= 1
    joined = (
        replace(
            model,
            projectors=tuple(other for other in projectors if _belongs(model, other, single)),
            companions=_nearest(model, [other for other in companions if _belongs(model, other, single)]),
        )
        for model in models
    )
    return Catalogue(tuple(joined), tuple(projectors), tuple(companions), tuple(others))


def suggested(models: Iterable[Choice], budget: int | None = None) -> Choice | None:
    """Return the finest model of at most `budget` bytes, without a budget the usual one; None for none."""
    whole = [model for model in models if model.complete]
    if budget is not None:
        return next((model for model in whole if model.size is not None and model.size <= budget), None)
    return min(whole, key=lambda model: _usual(model.quant, _USUAL), default=None)


def chosen(found: Catalogue, place: HubPlace) -> Choice | None:
    """Return the choice that a pasted text means by its file (any shard) or its label; None when none."""
    for choice in found.choices:
        if place.file and any(file.path == place.file for file in choice.files):
            return choice
    if place.file or not place.quant:
        return None
    wanted = spelt(place.quant)
    folder = f"{place.folder}/" if place.folder else ""
    near = [choice for choice in found.models if choice.path.startswith(folder)]
    return next((choice for choice in near if choice.quant in (wanted, f"UD-{wanted}")), None)


def first_shard(path: str) -> str:
    """Return the path of the shard that holds a model's facts; the path itself for a single file."""
    match = _SHARD.fullmatch(path)
    return f"{match['prefix']}-00001-of-{match['count']}{path[-len('.gguf') :]}" if match else path


def nothing_to_run(found: Catalogue) -> Message | None:
    """Say why a repository offers no model; None when it offers one."""
    if found.models:
        return None
    if found.projectors or found.companions:
        text = N_("This repository has only additions to a model (a projector or MTP heads), not the model.")
        return Message(text)
    if any(file.path.endswith((".safetensors", ".bin", ".pt", ".pth")) for file in found.others):
        text = N_(
            "This repository has no GGUF file: it holds the model in another format. "
            "Search for a repository of the same name that ends with GGUF."
        )
        return Message(text)
    return Message(N_("This repository has no GGUF file."))


def _fold(file: HubFile) -> tuple[str, int, int] | None:
    """Return the path without number and ending, the shard's number and their count; None for no choice."""
    if not file.path.lower().endswith(".gguf") or _NO_MODEL.search(file.name[: -len(".gguf")]):
        return None
    match = _SHARD.fullmatch(file.path)
    if match is None:
        return file.path[: -len(".gguf")], 1, 1
    number, count = int(match["number"]), int(match["count"])
    if not 1 <= number <= count <= MAX_SHARDS:
        return None
    return match["prefix"], number, count


def _choice(prefix: str, count: int, files: tuple[HubFile, ...]) -> Choice:
    name = prefix.rsplit("/", 1)[-1]
    kind = Kind.MODEL
    base = without_label(name)
    if _PROJECTOR.search(name):
        kind = Kind.PROJECTOR
        base = _PROJECTOR.sub("-", base).strip("-_.")
    elif _COMPANION.match(name):
        kind = Kind.COMPANION
        base = _COMPANION.sub("", base, count=1)
    return Choice(kind, base, label_of(prefix), files, count)


def _finest_first(choice: Choice) -> tuple[float, int, str]:
    return -bits_of(choice.quant), -(choice.size or 0), choice.path


def _usual(label: str, order: tuple[str, ...]) -> int:
    return order.index(label) if label in order else len(order)


def _belongs(model: Choice, other: Choice, single: bool) -> bool:
    """Tell whether a projector or companion is for this model, as far as the names say."""
    name = _plain(other.base)
    if single or name in _GENERAL:
        return True
    own = _plain(model.base)
    return own == name or own.startswith(f"{name}-") or name.startswith(f"{own}-")


def _nearest(model: Choice, companions: list[Choice]) -> tuple[Choice, ...]:
    bits = bits_of(model.quant)
    return tuple(sorted(companions, key=lambda other: abs(bits_of(other.quant) - bits)))


@lru_cache(maxsize=2 * MAX_CHOICES)
def _plain(base: str) -> str:
    """Return a name for comparing: small letters, one kind of separator, no remark on heads or imatrix."""
    return re.sub(r"[-_.]+", "-", _OWN_HEADS.sub("", base)).strip("-").lower()
