"""Looks at what a server needs before it is started; runs on its host, in the control task.

Disks that do not answer hold nothing up: what they are asked is asked in threads, with one deadline for all.
"""

import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from django.conf import settings
from django.db.models import prefetch_related_objects

from controlpanel.lib.text import N_, Message, message_of
from controlpanel.llamacpp.gguf import GgufError, shard_paths
from controlpanel.llamacpp.memory_host import is_mapped
from controlpanel.llamacpp.memory_types import Estimate, EstimateError
from jobs.adapters import readiness
from jobs.adapters.ports import can_bind, port_owner
from jobs.adapters.probe import ProbeError, check_executable, fingerprint
from jobs.domain.gpu import WITHOUT_GPU, GpuSample, Sample
from jobs.domain.readiness_facts import Facts
from jobs.models import Build, ModelArtifact, Run
from jobs.services.gpus import ended_pids, sample_here
from servers.domain import preflight as judge
from servers.domain import preflight_memory as judge_memory
from servers.domain.policy import policy_of
from servers.domain.preflight import Check, Holder, ModelFiles, joined
from servers.domain.preflight_memory import Situation
from servers.models import Instance
from servers.services.estimates import Prepared, headers_of, prepare
from servers.services.profiles import data_of

logger = logging.getLogger(__name__)
T = TypeVar("T")

PATIENCE = 1.5  # seconds for all that the disks are asked
PORT_PATIENCE = 3.0  # seconds in which the port of a server that has just ended comes free
NO_NUMBERS = Message(N_("The agent tells no numbers of the graphics cards right now."))
SILENT_DISK = Message(N_("The disk does not answer."))
NO_ESTIMATE = Message(N_("Estimating it went wrong: the log of the worker says why."))


@dataclass(frozen=True)
class Look:
    """All checks of a start in their order, also the good ones; the port, or why there is none."""

    checks: list[Check]
    port: int | Message


def look(instance: Instance, taken: Set[int] = frozenset()) -> Look:
    """Look at all that a start needs, and choose its port; `taken` are ports not to be tried.

    Takes under 2 s, and up to PORT_PATIENCE more while a chosen port is in use. What it finds never raises.
    """
    build, model, mmproj = instance.profile.build, instance.profile.model, instance.profile.mmproj
    artifacts = [artifact for artifact in (model, mmproj) if artifact]
    # Threads have no connection to the database: what they need is read here.
    prefetch_related_objects(artifacts, "host")
    files = _Question(lambda: _files(build, artifacts))
    print_ = _Question(lambda: _fingerprint(build))
    headers = _Question(lambda: _read_headers(artifacts))
    host = _Question(lambda: readiness.facts(ask=False))
    deadline = time.monotonic() + PATIENCE
    facts = host.answer(deadline) or Facts()
    seen = _seen(instance, headers.answer(deadline) is not None)
    port = _safely(lambda: _port(instance, taken)) or judge.failed("port").message
    checks = [
        _check("files", lambda: judge.files(*(files.answer(deadline) or (None, None)))),
        _check("build", lambda: _build(build, print_.answer(deadline))),
        _check("port", lambda: judge.port(port)),
        _check("memory", lambda: _memory(instance, seen, facts)),
        _check("others", lambda: _others(instance, seen)),
        _check("descriptors", lambda: judge.descriptors(facts.open_files)),
        _check("disk", lambda: judge.disk(facts.disk_free)),
    ]
    return Look(checks, port)


def _port(instance: Instance, taken: Set[int]) -> int | Message:
    """Return the port to start on, the profile's own or a free one, or why there is none."""
    if instance.profile.port:
        return _own_port(instance.profile.port)
    busy = Instance.objects.exclude(observed__in=Instance.RESTING).filter(port__isnull=False)
    used = taken | set(busy.values_list("port", flat=True))
    ports = settings.PANEL_SERVER_PORTS
    for port in ports:
        if port not in used and can_bind(port):
            return int(port)
    text = N_("No port from %(low)s to %(high)s is free (PANEL_SERVER_PORTS).")
    return Message(text, {"low": ports[0], "high": ports[-1]})


def _own_port(port: int) -> int | Message:
    deadline = time.monotonic() + PORT_PATIENCE
    while not can_bind(port):
        if time.monotonic() > deadline:
            text = N_("Port %(port)s is used by %(owner)s. Choose another port, or leave the field empty.")
            return Message(text, {"port": port, "owner": port_owner(port)})
        time.sleep(0.2)
    return port


class _Question(Generic[T]):
    """Something asked in a thread, which is left behind when it hangs."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._found: T | None = None
        self._ask = ask
        self._thread = threading.Thread(target=self._work, name="preflight", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        self._found = _safely(self._ask)

    def answer(self, deadline: float) -> T | None:
        """Return the answer, None when it did not come in time (monotonic) or asking went wrong."""
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return self._found


def _safely(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except Exception:
        logger.exception("preflight")
        return None


def _check(key: str, judge_it: Callable[[], Check]) -> Check:
    return _safely(judge_it) or judge.failed(key)


def _files(
    build: Build, artifacts: Sequence[ModelArtifact]
) -> tuple[Message | None, Sequence[ModelFiles] | None]:
    wrong = None
    try:
        check_executable(Path(build.path))
    except ProbeError as error:
        wrong = error.message
    return wrong, [_model_files(artifact) for artifact in artifacts]


def _model_files(artifact: ModelArtifact) -> ModelFiles:
    paths = shard_paths(Path(artifact.path))
    gone, size = [], 0
    for path in paths:
        with suppress(OSError, ValueError):
            about = path.stat()
            if stat.S_ISREG(about.st_mode) and os.access(path, os.R_OK):
                size += about.st_size
                continue
        gone.append(str(path))
    damage = None
    if not artifact.complete:
        known = [message_of(problem) for problem in artifact.problems[:1]]
        damage = known[0] if known else Message(N_("Parts of it are missing."))
    return ModelFiles(artifact.name, len(paths), size, artifact.file_size, tuple(gone), damage)


def _fingerprint(build: Build) -> str | Message:
    try:
        return fingerprint(Path(build.path))
    except OSError as error:
        return Message("%(why)s", {"why": str(error)})


def _build(build: Build, now: str | Message | None) -> Check:
    ready = build.state == Build.State.READY
    return judge.build(build.name, bool(build.capabilities), ready, build.fingerprint, now or SILENT_DISK)


def _read_headers(artifacts: Sequence[ModelArtifact]) -> bool:
    """Read the headers into the memory where the estimate finds them; it says what is wrong with them."""
    with suppress(GgufError, EstimateError):
        for artifact in artifacts:
            headers_of(artifact)
    return True


@dataclass(frozen=True)
class _Seen:
    """The estimate with what it is made from, or why there is none; the cards as they were last.

    `ended` are processes that ended just now, which `sample` may still name.
    """

    prepared: Prepared | Message
    found: Estimate | Message
    sample: Sample | None
    ended: Set[int]

    @property
    def without_cards(self) -> bool:
        """True for a build that uses no GPU, as far as it is known."""
        return not isinstance(self.prepared, Message) and self.prepared.inputs.without_cards


def _seen(instance: Instance, readable: bool) -> _Seen:
    sample = _safely(sample_here)
    ended = ended_pids(settings.PANEL_HOST)
    prepared: Prepared | Message = SILENT_DISK
    if readable:
        prepared = _safely(lambda: prepare(data_of(instance.profile), ended=ended)) or NO_ESTIMATE
    if isinstance(prepared, Message):
        return _Seen(prepared, prepared, sample, ended)
    return _Seen(prepared, _safely(prepared.estimate) or NO_ESTIMATE, sample, ended)


def _memory(instance: Instance, seen: _Seen, facts: Facts) -> Check:
    if isinstance(seen.prepared, Message):
        return judge_memory.unknown(seen.prepared)
    why = _no_cards(seen, seen.prepared)
    if why is not None:
        return judge_memory.unknown(why)
    if isinstance(seen.found, Message):
        return judge_memory.unknown(seen.found)
    made = seen.prepared.inputs
    free = [mib for mib in (facts.memory_free_mib, facts.memory_limit_mib) if mib is not None]
    now = Situation(
        host_free=None if facts.memory_free_mib is None else min(free),
        old=seen.sample is not None and seen.sample.stale_since(time.time()) is not None,
        mapped=is_mapped(made.settings, made.caps),
        adapts=judge_memory.adapts(made.settings, made.caps.has("--fit")),
        limit_mib=policy_of(instance.profile.policy).memory_mib,
    )
    return judge_memory.memory(seen.found, now)


def _no_cards(seen: _Seen, prepared: Prepared) -> Message | None:
    """Return why nothing is known of the cards; None when it is, also that there are none."""
    if prepared.cards.devices or seen.without_cards:
        return None
    if seen.sample is None:
        return NO_NUMBERS
    gpus = seen.sample.gpus
    if gpus.error is not None:
        # The build may have found cards that are not NVIDIA's, of which nothing is known here.
        return None if gpus.problem in WITHOUT_GPU and not prepared.inputs.caps.devices else gpus.error
    return joined(prepared.cards.why) if gpus.gpus and prepared.cards.why else None


def _others(instance: Instance, seen: _Seen) -> Check:
    if seen.without_cards:
        return judge.no_others(Message(N_("This build uses no GPU.")), known=True)
    if seen.sample is None:
        return judge.no_others(NO_NUMBERS, known=False)
    problem, why = seen.sample.gpus.problem, seen.sample.gpus.error
    if why is not None:
        return judge.no_others(why, known=problem in WITHOUT_GPU)
    cards = list(_cards_of(seen, seen.sample))
    if not cards:
        return judge.no_others(Message(N_("This server uses no GPU.")), known=True)
    active = Instance.objects.filter(run__state__in=Run.ACTIVE, run__pid__isnull=False)
    names = dict(active.values_list("run__pid", "profile__name"))
    own: dict[int, Holder] = {}
    foreign: dict[int, Holder] = {}
    for process in (process for card in cards for process in card.processes or ()):
        if process.pid in seen.ended or process.memory_mib == 0:
            continue
        kind = own if process.pid in names or process.ours else foreign
        name = names.get(process.pid) or f"{process.name or '?'}, pid {process.pid}"
        before = kind.get(process.pid, Holder(name, 0)).memory_mib
        known = before is not None and process.memory_mib is not None
        kind[process.pid] = Holder(name, (before or 0) + (process.memory_mib or 0) if known else None)
    states = Instance.Observed
    starting = Instance.objects.filter(observed__in=(states.STARTING, states.LOADING))
    there = {holder.name for holder in own.values()}
    waited = starting.exclude(pk=instance.pk).values_list("profile__name", flat=True)
    names_of_waited = [name for name in waited if name not in there]
    return judge.others(list(own.values()), list(foreign.values()), names_of_waited)


def _cards_of(seen: _Seen, sample: Sample) -> Iterator[GpuSample]:
    """Yield the cards that the server puts something on; all of them where that is not known."""
    if isinstance(seen.prepared, Message):
        yield from sample.gpus.gpus
        return
    names = [device.name for device in seen.prepared.cards.devices]
    if not isinstance(seen.found, Message):
        names = [fit.name for fit in seen.found.devices if judge_memory.is_used(fit)]
    # An estimate calls a card by its index and its name: 0 · RTX 3090.
    used = {name.partition(" ")[0] for name in names}
    yield from (card for card in sample.gpus.gpus if str(card.index) in used)
