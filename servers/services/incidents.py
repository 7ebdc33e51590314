"""Incidents: noting what went wrong with a server, and finding it again."""

from collections.abc import Sequence

from django.db import IntegrityError, transaction
from django.db.models import F, Max, QuerySet
from django.utils import timezone

from controlpanel.lib.streams import publish_on_commit
from controlpanel.lib.text import Message
from controlpanel.lib.words import stored
from controlpanel.llamacpp.rule_types import Diagnosis, Evidence
from jobs.adapters.runlog import log_end, log_part
from jobs.models import Run
from servers.models import Incident, Instance

EVENT = "incident"
KEPT = 2000  # incidents of the whole panel
LINES = 5  # lines of a log that a window shows before and behind the evidence
END = 4096  # bytes of a log's end that stand for the evidence where there is none


def note(
    instance: Instance,
    kind: str,
    title: Message,
    *,
    run: Run | None = None,
    diagnoses: Sequence[Diagnosis] = (),
    count: int = 1,
    looked_to: int = 0,
) -> Incident:
    """Note what went wrong `count` times, in `run` or else in the instance's own run; runs on the run's host.

    What is known of this run, kind and cause (the first diagnosis') already is counted there. `looked_to` is
    the byte up to which the log of a running server was searched.
    """
    run = run or instance.run
    best = diagnoses[0] if diagnoses else None
    cause = best.cause_key if best else ""
    now = timezone.now()
    same = Incident.objects.filter(run=run, kind=kind, cause=cause) if run else Incident.objects.none()
    # Before the transaction: while a slow disk is read, nobody else could write to the database.
    start, end = (None, None) if same.exists() else _window(run, best.evidence if best else ())
    with transaction.atomic():
        if not _counted(same, count, looked_to):
            row = Incident(
                profile_id=instance.profile_id,
                server=instance.profile.name,
                run=run,
                revision=instance.revision,
                kind=kind,
                cause=cause,
                title=stored(title),
                diagnosis=best.to_json() if best else {},
                log_from=start,
                log_to=end,
                looked_to=looked_to,
                count=count,
                first_at=now,
                last_at=now,
            )
            try:
                with transaction.atomic():
                    row.save(force_insert=True)
            except IntegrityError:
                # Somebody else noted it meanwhile.
                _counted(same, count, looked_to)
            else:
                _forget_old()
                same = Incident.objects.filter(pk=row.pk)
        found = same.get()
        publish_on_commit(EVENT, found.pk)
    return found


def searched_to(run: Run) -> int:
    """Return the byte of a running server's log up to which incidents were counted, 0 when there is none."""
    found = Incident.objects.filter(run=run).aggregate(last=Max("looked_to"))["last"]
    return int(found or 0)


def _counted(same: QuerySet[Incident], count: int, looked_to: int) -> bool:
    last = {"looked_to": looked_to} if looked_to else {}
    return bool(same.update(count=F("count") + count, last_at=timezone.now(), **last))


def _forget_old() -> None:
    old = Incident.objects.order_by("-last_at", "-pk").values_list("pk", flat=True)[KEPT : KEPT + 100]
    if keys := list(old):
        Incident.objects.filter(pk__in=keys).delete()


def _window(run: Run | None, evidence: Sequence[Evidence]) -> tuple[int | None, int | None]:
    """Return from which byte to which a run's log shows it, Nones where there is no log."""
    if run is None:
        return None, None
    if not evidence:
        start, text = log_end(run.pk, END)
        return (start, start + len(text)) if text else (None, None)
    first, last = evidence[0].offset, max(line.offset for line in evidence)
    begin = max(0, first - END)
    before = log_part(run.pk, begin, first - begin).splitlines(keepends=True)[-LINES:]
    behind = log_part(run.pk, last, END).splitlines(keepends=True)[: 1 + LINES]
    return first - sum(map(len, before)), last + sum(map(len, behind))
