"""What a memory estimate of a profile is made from: headers, settings, cards, and what starts have taught."""

from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.conf import settings as django_settings

from controlpanel.lib.text import N_, Message
from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.extra_args import ExtraArgsError, parse_extra
from controlpanel.llamacpp.gguf import GgufError, GgufHeader, examine, shard_paths
from controlpanel.llamacpp.memory import Estimate, EstimateError
from controlpanel.llamacpp.memory_flags import read_flags
from controlpanel.llamacpp.memory_learn import Learned
from controlpanel.llamacpp.memory_settings import VARIABLES
from controlpanel.llamacpp.memory_types import Dialect
from jobs.models import ModelArtifact, Run
from jobs.services.builds import capabilities_of
from jobs.services.fits import Cards, cards_here, try_estimate
from servers.models import Instance
from servers.services.learned import backend_of, learned_for
from servers.services.profiles import ProfileData

KEPT = 16  # models whose headers stay in memory


@dataclass(frozen=True)
class Inputs:
    """What a server is made from; `fixed` are the settings that extra arguments decide."""

    data: ProfileData
    caps: Capabilities
    parts: tuple[GgufHeader, ...]
    projector: GgufHeader | None
    settings: Mapping[str, object]
    fixed: frozenset[str]
    dialect: Dialect

    @property
    def without_cards(self) -> bool:
        """True for a build that uses no GPU, whatever the host has."""
        # Who can list devices and lists none has no support for them.
        blind = self.caps.has("--list-devices") and not self.caps.devices
        return blind or self.data.build.inputs.get("backend") == "cpu"

    def cards(self, own_pid: int | None = None, ended: Set[int] = frozenset()) -> Cards:
        """Return the cards that the server can use; `own_pid` is its process, which may be stopped.

        `ended` are processes that are gone, whose memory the last sample may still count.
        """
        if self.without_cards:
            return Cards((), (Message(N_("This build uses no GPU: everything goes to main memory.")),))
        return cards_here(own_pid, self.data.environment.get("CUDA_VISIBLE_DEVICES"), ended)


@dataclass(frozen=True)
class Prepared:
    """All that estimates of one profile on the cards of now share."""

    inputs: Inputs
    cards: Cards
    learned: Learned | None

    def estimate(self) -> Estimate | Message:
        """Return the estimate, or why there is none."""
        made, devices = self.inputs, self.cards.devices
        return try_estimate(made.parts, made.projector, made.settings, made.dialect, devices, self.learned)


def prepare(
    data: ProfileData, own_pid: int | None = None, ended: Set[int] = frozenset()
) -> Prepared | Message:
    """Return what estimates of a profile need, or what is wrong with its files or settings.

    `own_pid` is the profile's own server, whose memory it will have again; `ended` are processes that are
    gone.
    """
    try:
        inputs = inputs_of(data)
    except EstimateError as error:
        return error.message
    cards = inputs.cards(own_pid, ended)
    backend = backend_of(inputs.caps, cards)
    return Prepared(inputs, cards, learned_for(data.build, inputs.parts[0].architecture, backend))


def inputs_of(data: ProfileData) -> Inputs:
    """Return what an estimate of a profile needs; EstimateError says what is wrong with files or settings."""
    caps = capabilities_of(data.build)
    try:
        extra, dialect = read_flags(parse_extra(data.extra_args), caps)
        parts = headers_of(data.model)
        projector = headers_of(data.mmproj)[0] if data.mmproj else None
    except (GgufError, ExtraArgsError) as error:
        raise EstimateError.of(error.message) from error
    variables = {key: data.environment[name] for name, key in VARIABLES.items() if name in data.environment}
    settings = {**data.settings, **extra, **variables}
    return Inputs(data, caps, parts, projector, settings, frozenset(extra), dialect)


def pid_of(profile_pk: int | None) -> int | None:
    """Return the process of a profile's running server."""
    found = Instance.objects.filter(profile_id=profile_pk, run__state__in=Run.ACTIVE)
    return found.values_list("run__pid", flat=True).first()


def headers_of(artifact: ModelArtifact) -> tuple[GgufHeader, ...]:
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
