"""What a profile will take of the graphics cards and of main memory, as its form shows it."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.conf import settings as django_settings
from django.utils.translation import gettext as _

from controlpanel.lib.text import N_, Message
from controlpanel.lib.words import translate
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.extra_args import ExtraArgsError, parse_extra
from controlpanel.llamacpp.gguf import GgufError, GgufHeader, examine, shard_paths
from controlpanel.llamacpp.memory import DeviceFit, Estimate, EstimateError
from controlpanel.llamacpp.memory_flags import dialect_of, read_flags
from jobs.models import Build, ModelArtifact, Run
from jobs.services.builds import capabilities_of
from jobs.services.fits import PROMPT_CACHE, STATES, WORDS, Cards, cards_here, total_of, try_estimate
from servers.models import Instance

KEPT = 16  # models whose headers stay in memory
BAR = 1000  # width of a full bar in the drawing's own units

# (key of the colour, label, terms of the estimate)
_GROUPS = (
    ("weights", N_("Weights"), ("weights",)),
    ("kv", N_("KV cache"), ("kv",)),
    ("state", N_("Recurrent state"), ("recurrent",)),
    ("mtp", N_("MTP"), ("mtp_weights", "mtp_kv", "mtp_recurrent")),
    ("projector", N_("Vision projector"), ("mmproj",)),
    ("compute", N_("Computation, at most"), ("compute", "mtp_compute", "mmproj_compute")),
    ("margin", N_("Driver and margin, at most"), ("margin",)),
    ("prompts", N_("Prompt cache, at most"), (PROMPT_CACHE,)),
    ("others", N_("Other programs"), ("others",)),
)


@dataclass(frozen=True)
class Part:
    """One term: bytes, None when it is not known, and where its part of the bar lies in BAR units."""

    key: str
    label: str
    size: int | None
    x: int = 0
    width: int = 0


@dataclass(frozen=True)
class Card:
    """One graphics card in bytes. `edge` is where its memory ends in a bar that is longer than it.

    `sure` when what is too much for it is so without the upper bounds.
    """

    name: str
    parts: list[Part]
    total: int | None
    capacity: int
    edge: int = BAR
    sure: bool = False

    @property
    def free(self) -> int | None:
        """Bytes that stay free; None when that is not known or nothing does."""
        return None if self.total is None or self.total > self.capacity else self.capacity - self.total

    @property
    def over(self) -> int | None:
        """Bytes that are too many; None when that is not known or there are none."""
        return None if self.total is None or self.total <= self.capacity else self.total - self.capacity


@dataclass(frozen=True)
class Fit:
    """An estimate for the page; `error` stands for all of it. Without a card there is no verdict."""

    state: str = ""
    word: str = ""
    cards: tuple[Card, ...] = ()
    host: tuple[Part, ...] = ()
    host_total: int | None = None
    why: tuple[str, ...] = ()
    error: str = ""


def fit_of(
    build: Build,
    model: ModelArtifact,
    mmproj: ModelArtifact | None,
    settings: Mapping[str, object],
    extra_args: str = "",
    own_pid: int | None = None,
) -> Fit:
    """Return what a server of these settings takes; what is wrong with files or settings is in `error`.

    `own_pid` is the profile's own server, whose memory it will have again.
    """
    caps = capabilities_of(build)
    try:
        extra, _dialect = read_flags(parse_extra(extra_args), caps)
        parts = _headers(model)
        projector = _headers(mmproj)[0] if mmproj else None
    except (EstimateError, GgufError, ExtraArgsError) as error:
        return Fit(error=translate(error.message))
    cards = _cards(build, caps, own_pid)
    found = try_estimate(parts, projector, {**settings, **extra}, dialect_of(caps), cards.devices)
    if isinstance(found, Message):
        return Fit(error=translate(found))
    return _view(found, cards.why)


def pid_of(profile_pk: int | None) -> int | None:
    """Return the process of a profile's running server."""
    found = Instance.objects.filter(profile_id=profile_pk, run__state__in=Run.ACTIVE)
    return found.values_list("run__pid", flat=True).first()


def _headers(artifact: ModelArtifact) -> tuple[GgufHeader, ...]:
    """Return the headers of all parts of a model; raises GgufError, EstimateError for another host's file."""
    if artifact.host.slug != django_settings.PANEL_HOST:
        raise EstimateError(N_("%(name)s lies on another host: its header is not read."), name=artifact.name)
    sizes, times = [], []
    for path in shard_paths(Path(artifact.path)):
        with suppress(OSError, ValueError):  # a part that is missing is told by who reads it
            about = path.stat()
            sizes.append(about.st_size)
            times.append(about.st_mtime_ns)
    return _read(artifact.path, sum(sizes), max(times, default=0))


@lru_cache(maxsize=KEPT)
def _read(path: str, size: int, mtime_ns: int) -> tuple[GgufHeader, ...]:
    """Read the headers, once as long as no part of the model changes."""
    return examine(path).parts


def _cards(build: Build, caps: Capabilities, own_pid: int | None) -> Cards:
    """Return the cards that a build can use."""
    if build.inputs.get("backend") == "cpu":
        return Cards((), (Message(N_("This build uses no GPU: everything goes to main memory.")),))
    cards = cards_here(own_pid)
    if not cards.devices or caps.devices:
        return cards
    text = N_("This build named no GPU when it was probed: without GPU support all goes to main memory.")
    return Cards(cards.devices, (*cards.why, Message(text)))


def _view(found: Estimate, notes: Iterable[Message]) -> Fit:
    host = _parts(found.host)
    judged = bool(found.devices)
    return Fit(
        state=STATES[found.verdict] if judged else "",
        word=_(WORDS[found.verdict]) if judged else "",
        cards=tuple(map(_card, found.devices)),
        host=tuple(host),
        host_total=_sum(host),
        why=tuple(map(translate, (*found.why, *notes))),
    )


def _card(fit: DeviceFit) -> Card:
    parts = _parts(fit.terms)
    capacity = total_of([fit.capacity]) or 0
    full = max(capacity, sum(part.size or 0 for part in parts)) or 1
    placed, end = [], 0
    for part in parts:
        start, end = end, end + (part.size or 0)
        x = start * BAR // full
        placed.append(Part(part.key, part.label, part.size, x, end * BAR // full - x))
    sure = fit.certain > fit.capacity
    return Card(fit.name, placed, total_of([fit.total]), capacity, capacity * BAR // full, sure)


def _parts(terms: Mapping[str, float | None]) -> list[Part]:
    """Return the terms in groups; a group of which one term is not known is not known."""
    grouped = (
        (key, label, [terms[name] for name in names if name in terms]) for key, label, names in _GROUPS
    )
    return [Part(key, _(label), total_of(sizes)) for key, label, sizes in grouped if sizes]


def _sum(parts: Sequence[Part]) -> int | None:
    known = [part.size for part in parts if part.size is not None]
    return sum(known) if len(known) == len(parts) else None
