"""The agent's duty that reads on in the logs of running servers: requests that fail, answers that suffer."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.adapters.runlog import log_part, log_size
from jobs.models import Run
from jobs.services.watch import each, running_ids, with_database
from servers.domain.acceptance import Acceptance
from servers.domain.drift import Speeds
from servers.domain.timings import Timings
from servers.models import Incident, Instance
from servers.services import incidents
from servers.services.diagnosing import facts_of

LIMIT = 256 * 1024  # bytes of new text in one look; what is older is passed over
CONTEXT = 16 * 1024  # bytes before the new text, by which rules understand it
WATCHED = (Instance.Observed.READY, Instance.Observed.UNRESPONSIVE)
BEGUN = b"listening on http"


@dataclass
class Watch:
    """What the agent remembers of one run between looks."""

    facts: Mapping[str, object]
    offset: int = 0  # byte at which the text begins that was not read yet
    timings: Timings = field(default_factory=Timings)
    acceptance: Acceptance = field(default_factory=Acceptance)
    speeds: Speeds = field(default_factory=Speeds)


@dataclass(frozen=True)
class Piece:
    """Whole lines of a log from byte `base` on; those before `new` were read already."""

    text: bytes
    base: int
    new: int
    gap: bool  # whether text before `new` was passed over

    @property
    def end(self) -> int:
        """The byte of the log behind the piece."""
        return self.base + len(self.text)


_watches: dict[str, Watch] = {}
_sizes: dict[str, int] = {}  # of the logs as they were at the last look


@with_database
def watch_running() -> None:
    """Look at what was added to the logs of this host's servers; nothing is asked where nothing was."""
    ids = running_ids()
    for known in (_watches, _sizes):
        for gone in known.keys() - ids:
            del known[gone]
    sizes = {run_id: log_size(run_id) for run_id in ids}
    grown = [run_id for run_id, size in sizes.items() if size != _sizes.get(run_id, 0)]
    _sizes.update(sizes)
    if not grown:
        return
    rows = Instance.objects.select_related("run", "profile").filter(observed__in=WATCHED, run__in=grown)

    def look(instance: Instance) -> None:
        assert instance.run is not None
        _look(instance, instance.run, sizes[instance.run.pk])

    each(rows, look)


def _look(instance: Instance, run: Run, size: int) -> None:
    if run.pk not in _watches:
        _watches[run.pk] = Watch(facts_of(instance, run), incidents.searched_to(run))
    watch = _watches[run.pk]
    piece = _piece(run.pk, watch.offset, size, run.log_start)
    # First of all, so that what cannot be noted does not come again for ever.
    watch.offset = max(watch.offset, piece.end)
    if piece.new < len(piece.text):
        _note(instance, watch, piece)


def _note(instance: Instance, watch: Watch, piece: Piece) -> None:
    from servers.domain import living  # its tables stay out of processes that need none

    signs = living.signs(piece.text, piece.new, watch.facts, piece.base)
    new, at = piece.text[piece.new :], piece.base + piece.new
    if piece.gap:
        watch.timings = Timings()
    for answer in watch.timings.read(new, at):
        if collapse := watch.acceptance.add(answer):
            signs.append(living.sign_of_collapse(collapse, new, watch.facts, at))
        if drift := watch.speeds.add(answer):
            signs.append(living.sign_of_drift(drift))
    for sign in signs:
        kind = Incident.Kind.QUALITY if sign.quality else Incident.Kind.REQUEST
        found = sign.diagnosis
        incidents.note(instance, kind, found.title, diagnoses=[found], count=sign.times, looked_to=piece.end)


def _piece(run_id: str, offset: int, size: int, log_start: int) -> Piece:
    """Return the whole lines added since `offset`, without those of the start: they are no requests."""
    start = max(offset, size - LIMIT, log_start)
    base = max(log_start, start - CONTEXT)
    text = log_part(run_id, base, size - base)
    text = text[: text.rfind(b"\n") + 1]
    new = start - base
    if start > offset:
        new = _line_behind(text, new)
    if base > 0:
        head = min(_line_behind(text, 0), new)
        text, base, new = text[head:], base + head, new - head
    if not offset and (place := text.find(BEGUN, new)) >= 0:
        new = _line_behind(text, place)
    return Piece(text, base, new, gap=start > offset)


def _line_behind(text: bytes, place: int) -> int:
    """Return where the line behind a place begins, the end of the text when there is none."""
    return text.find(b"\n", place) + 1 or len(text)
