"""How readings of a server become its meter: rates from differences, and when it is to be asked again.

The counters of /metrics move at the end of a prompt and of an answer only; what the slots tell of the work
that goes on is added to them. Without /metrics what the log tells of ended answers takes their place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from servers.domain.meter import ServerMeter
from servers.domain.meter_log import News
from servers.domain.scrape import Metrics, SlotWork

ENDED_EVERY = 0.9  # seconds to a question after the log told that all work has ended
BUSY_EVERY = 2.9  # seconds between questions to a server that works: each costs it about a token's time
IDLE_EVERY = 120.0  # each question to an idle server writes a line into its log
FAILED_EVERY = 5.0
WINDOW = 4.5  # seconds over which a rate is taken
LATE = 60.0  # seconds of which acceptance is told
KEPT = 15.0  # seconds for which a busy server's reading holds
RATE_KEPT = 6.0
DIPS = 3  # readings in a row below the last ones after which counters were reset


@dataclass(frozen=True)
class _Drafts:
    """Drafts of some answers: tokens drafted and accepted, steps, and accepted by position."""

    time: float
    drafted: float
    accepted: float
    steps: float | None
    positions: tuple[float, ...] = ()


@dataclass
class MeterState:
    """One server. Times are seconds since 1970; `whole_log`: the log was read from its first byte on."""

    whole_log: bool = False
    sleeper: bool = False  # it frees its model when idle: questions would keep it awake, or wake it
    shared: bool = False  # its slots share one cache
    busy: bool | None = None  # None: nobody told it yet
    read_at: float | None = None
    _asked: float = 0.0
    _failed: bool = False
    _asleep: bool = False
    _sign: bool = False
    _open: int = 0  # requests at work, as far as the log told
    _ended: bool = False  # the log told of the end of the last one
    _begun: float = 0.0  # the first reading of the work that goes on
    _dips: int = 0
    _metrics: Metrics | None = None
    _slots: tuple[SlotWork, ...] = ()
    _points: list[tuple[float, float | None, float | None]] = field(default_factory=list)
    _rates: tuple[float | None, float | None] = (None, None)
    _late: deque[_Drafts] = field(default_factory=lambda: deque(maxlen=200))
    _late_logged: deque[_Drafts] = field(default_factory=lambda: deque(maxlen=200))
    _log: dict[str, float] = field(default_factory=dict)  # totals that the log tells
    _last: tuple[float | None, float | None] = (None, None)

    def due(self, now: float) -> bool:
        """Return whether the server is to be asked now."""
        since = now - self._asked
        if self._asleep:
            return self._sign
        if self._failed:
            return since >= FAILED_EVERY
        if self.read_at is None:
            return True
        if self.busy or self._sign:
            return since >= (ENDED_EVERY if self._ended else BUSY_EVERY)
        return not self.sleeper and since >= IDLE_EVERY

    @property
    def may_sleep(self) -> bool:
        """Whether the next question could wake it."""
        return self.sleeper and not self._sign and (self.read_at is None or self._failed)

    def note_log(self, news: News, now: float, *, old: bool = False) -> None:
        """Take what the log told; `old` text was written before anybody looked."""
        if not old:
            self._sign = self._sign or news.begun + news.ended > 0
            self._open = max(0, self._open + news.begun - news.ended)
            if news.begun or news.ended:
                self._ended = self._open == 0
        for answer in news.answers:
            self._add(requests=1, predicted_tokens=answer.tokens, predicted_seconds=answer.seconds)
            self._last = (_ratio(answer.tokens, answer.seconds), self._last[1])
            if answer.drafted:
                self._add(drafted=answer.drafted, accepted=answer.accepted)
                steps = answer.tokens - answer.accepted
                at = now - LATE if old else now
                self._late_logged.append(
                    _Drafts(at, answer.drafted, answer.accepted, steps if steps > 0 else None)
                )
        for tokens, seconds in news.prompts:
            self._add(prompt_tokens=tokens, prompt_seconds=seconds)
            self._last = (self._last[0], _ratio(tokens, seconds))

    def note_asked(self, now: float) -> None:
        """A question is on its way."""
        self._asked = now

    def note_failed(self, now: float) -> None:
        """The server did not answer."""
        self._asked, self._failed, self._asleep = now, True, False

    def note_asleep(self, now: float) -> None:
        """It says that it sleeps: it is left alone until its log tells of work."""
        self._asked, self._failed, self._asleep = now, False, True

    def note_reading(self, now: float, metrics: Metrics | None, slots: tuple[SlotWork, ...] | None) -> None:
        """Take an answer; metrics were asked before slots. None: this server does not tell it."""
        told_by_log, self._sign, self._ended = self._sign, False, False
        self._asked, self._failed, self._asleep = now, False, False
        self._note_drafts(now, metrics)
        was, before = self.busy, self.read_at
        self._metrics, self._slots = metrics, slots or ()
        self.busy = self._works(metrics, slots)
        self.read_at = now
        point = (now, *self._counted(slots is not None))
        if self._points and self._dipped(point):
            # A request ended between the two answers; unless it stays so, the next one tells more.
            self._dips += 1
            if self._dips < DIPS:
                self._sign = True
                return
            self._points.clear()
        self._dips = 0
        if not (was and self.busy):
            self._points, self._begun = self._points[-1:], now
        elif len(self._points) > 1:  # the time before the work would make it slower
            self._points = [known for known in self._points if known[0] >= self._begun]
        if self._points and not was and not told_by_log and before is not None:
            self._points = [(before, *self._points[-1][1:])]
        self._points.append(point)
        self._rate(now)

    def rest(self, now: float) -> None:
        """A second went by without a question; of an idle server what was known holds on."""
        if self.busy is False and not self._sign and self._points and not self._failed:
            self._points = [*self._points[-1:], (now, *self._counted(bool(self._slots)))]
            self._rate(now)

    def meter(self, now: float) -> ServerMeter:
        """Return what is known now."""
        age = None if self.read_at is None else now - self.read_at
        idle = self.busy is False and not self._failed
        holds = age is not None and (idle or age <= KEPT)
        rates = self._rates if holds and (idle or (age or 0) <= RATE_KEPT) else (None, None)
        late = self._of_late(now)
        return ServerMeter(
            time=now,
            predicted_tps=rates[0],
            prompt_tps=rates[1],
            busy=self._busy_count() if holds else None,
            waiting=self._metrics.count("requests_deferred") if holds and self._metrics else None,
            slots=tuple(slot.use for slot in self._slots) if holds else (),
            shared=self.shared,
            acceptance=_ratio(late.accepted, late.drafted) if late else None,
            per_position=_shares(late),
            mean_length=1 + late.accepted / late.steps if late and late.steps else None,
            last_predicted_tps=self._last[0],
            last_prompt_tps=self._last[1],
            totals=self._totals(),
        )

    def _add(self, **more: float) -> None:
        for name, value in more.items():
            self._log[name] = self._log.get(name, 0) + value

    def _works(self, metrics: Metrics | None, slots: tuple[SlotWork, ...] | None) -> bool | None:
        told = [slot.use.busy for slot in slots or ()]
        counts = [metrics.count(f"requests_{name}") for name in ("processing", "deferred")] if metrics else []
        if any(told) or any(counts):
            return True
        if told and None not in told:
            return False
        return False if metrics is not None and "requests_processing" in metrics.values else None

    def _busy_count(self) -> int | None:
        told = [slot.use.busy for slot in self._slots]
        if told and None not in told:
            return told.count(True)
        return self._metrics.count("requests_processing") if self._metrics else None

    def _counted(self, with_slots: bool) -> tuple[float | None, float | None]:
        """Return the tokens written and those read since the start, of the work that goes on too."""
        if self.busy and not with_slots:
            return None, None  # what goes on cannot be told
        written = sum(slot.decoded for slot in self._slots)
        if self._metrics is not None:
            values = self._metrics.values
            # As soon as a slot writes, the counter has its prompt.
            reads = sum(slot.processed for slot in self._slots if not slot.decoded)
            return _sum(values.get("tokens_predicted_total"), written), _sum(
                values.get("prompt_tokens_total"), reads
            )
        reads = sum(slot.processed for slot in self._slots)
        return self._log.get("predicted_tokens", 0) + written, self._log.get("prompt_tokens", 0) + reads

    def _dipped(self, point: tuple[float, float | None, float | None]) -> bool:
        pairs = zip(self._points[-1][1:], point[1:], strict=True)
        return any(old is not None and new is not None and new < old for old, new in pairs)

    def _rate(self, now: float) -> None:
        *points, last = self._points
        self._points = [*(point for point in points if now - point[0] <= WINDOW), last]
        first = self._points[0]
        seconds = last[0] - first[0]
        if seconds <= 0:
            resting = 0.0 if self.busy is False else None
            self._rates = (resting, resting)
            return
        self._rates = (_speed(first[1], last[1], seconds), _speed(first[2], last[2], seconds))

    def _note_drafts(self, now: float, metrics: Metrics | None) -> None:
        new, old = _drafts(metrics, now), _drafts(self._metrics, now)
        if new is None:
            return
        if old is None or new.drafted < old.drafted:
            old = _Drafts(now, 0, 0, None if new.steps is None else 0)
            new = _Drafts(now - LATE, new.drafted, new.accepted, new.steps, new.positions)
        if new.drafted > old.drafted:
            self._late.append(_difference(old, new))

    def _of_late(self, now: float) -> _Drafts | None:
        rows = self._late or self._late_logged
        if not rows:
            return None
        found = [row for row in rows if now - row.time < LATE] or [rows[-1]]
        steps = [row.steps for row in found]
        length = max(len(row.positions) for row in found)
        return _Drafts(
            now,
            sum(row.drafted for row in found),
            sum(row.accepted for row in found),
            None if None in steps else sum(step or 0 for step in steps),
            tuple(
                sum(row.positions[place] for row in found if place < len(row.positions))
                for place in range(length)
            ),
        )

    def _totals(self) -> Mapping[str, float]:
        known = {"requests": 0.0, **self._log} if self.whole_log else {}
        names = {
            "prompt_tokens": "prompt_tokens_total",
            "predicted_tokens": "tokens_predicted_total",
            "prompt_seconds": "prompt_seconds_total",
            "predicted_seconds": "tokens_predicted_seconds_total",
            "drafted": "spec_decode_num_draft_tokens_total",
            "accepted": "spec_decode_num_accepted_tokens_total",
        }
        if self._metrics is not None:
            values = self._metrics.values
            known.update({name: values[theirs] for name, theirs in names.items() if theirs in values})
        return known


def _drafts(metrics: Metrics | None, time: float) -> _Drafts | None:
    if metrics is None:
        return None
    values = metrics.values
    drafted = values.get("spec_decode_num_draft_tokens_total")
    accepted = values.get("spec_decode_num_accepted_tokens_total")
    if drafted is None or accepted is None:
        return None
    return _Drafts(time, drafted, accepted, values.get("spec_decode_num_drafts_total"), metrics.per_position)


def _difference(old: _Drafts, new: _Drafts) -> _Drafts:
    before = old.positions + (0.0,) * (len(new.positions) - len(old.positions))
    steps = None if new.steps is None or old.steps is None else max(0.0, new.steps - old.steps)
    return _Drafts(
        new.time,
        new.drafted - old.drafted,
        max(0.0, new.accepted - old.accepted),
        steps,
        tuple(max(0.0, after - was) for was, after in zip(before, new.positions, strict=False)),
    )


def _shares(late: _Drafts | None) -> tuple[float, ...] | None:
    if late is None or not late.positions or not late.steps:
        return None
    steps = late.steps
    return tuple(min(1.0, accepted / steps) for accepted in late.positions)


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _sum(counter: float | None, more: float) -> float | None:
    return None if counter is None else counter + more


def _speed(first: float | None, last: float | None, seconds: float) -> float | None:
    return None if first is None or last is None else max(0.0, last - first) / seconds
