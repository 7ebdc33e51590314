"""The history of a large host: size of 30 days, time of a chart of them, what recording costs the agent.

Eight cards, the host and five servers. Goals: below 300 MB, and 300 ms for 30 days of 4 subjects.
With DATABASE_URL it fills and measures that (empty) database instead of one of its own.
"""

import os
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import django

from tests.benchmarks.figures import answer, median, percentile, timed

SUBJECTS = [*(f"gpu:GPU-{n:036d}" for n in range(8)), "host", *(f"server:{n}" for n in range(5))]
DAY = 86_400
ROUNDS = 20
SECONDS = 1200  # of recording
RANGES = {"15 min": 900, "6 h": 21_600, "24 h": DAY, "7 d": 7 * DAY, "30 d": 30 * DAY}


def main() -> None:
    """Fill a database, read it, record into it."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    from tests.conftest import start_valkey

    call_command("migrate", verbosity=0)
    valkey = start_valkey(Path(urlsplit(settings.REDIS_URL).path))
    try:
        now = int(time.time())
        fill(now)
        answer(subjects=len(SUBJECTS), **stored(), read_ms=reading(now), agent=recording(now))
    finally:
        valkey.terminate()
        valkey.wait(10)


def fill(now: int) -> None:
    """Store what the agent would have stored in 30 days."""
    from jobs.domain.series import FIELDS, KEPT, SPANS, STEPS, Block, Column, kind_of, pack
    from jobs.models import SampleBlock
    from jobs.services.hosts import local_host

    host = local_host()
    ends = [now // span * span for span in SPANS]
    begins = [ends[1] - KEPT[0], ends[2] - KEPT[1], ends[2] - KEPT[2]]  # seconds are removed by 10 minutes
    for level, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        points = SPANS[level] // STEPS[level]
        rows = []
        for subject in SUBJECTS:
            kind = kind_of(subject)
            for start in range(begin, end, SPANS[level]):
                part: dict[str, Column] = {
                    name: [random.uniform(0, 100_000) for _ in range(points)] for name in FIELDS[kind]
                }
                part[FIELDS[kind][-1]] = [None] * points  # some numbers a card does not tell
                block = Block(start, STEPS[level], part, *((part, part) if level else ()))
                rows.append(
                    SampleBlock(host=host, subject=subject, level=level, start=start, data=pack(kind, block))
                )
        SampleBlock.objects.bulk_create(rows, batch_size=1000)


def stored() -> dict[str, object]:
    """Return how much there is, and how large the database is."""
    from django.conf import settings
    from django.db import connection

    from jobs.models import SampleBlock

    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            size = Path(str(settings.DATABASES["default"]["NAME"])).stat().st_size
        else:
            cursor.execute("SELECT pg_database_size(current_database())")
            [size] = cursor.fetchone()
    rows = [SampleBlock.objects.filter(level=level).count() for level in range(3)]
    return {"database": connection.vendor, "rows": rows, "database_mb": round(size / 1e6, 1)}


def reading(now: int) -> dict[str, dict[str, float]]:
    """Return the milliseconds of charts of four cards, by range."""
    from jobs.services import history
    from jobs.services.hosts import local_host

    host = local_host()
    found = {}
    for name, seconds in RANGES.items():
        call = partial(history.read, host, SUBJECTS[:4], now - seconds, now, now=now)
        times = [timed(call) * 1000 for _ in range(ROUNDS)]
        found[name] = {"p50": median(times), "p95": percentile(times, 0.95)}
    return found


def recording(now: int) -> dict[str, float]:
    """Return processor milliseconds for a second of all subjects, and the longest single calls."""
    from jobs.domain.series import FIELDS, kind_of
    from jobs.services import history, history_live
    from jobs.services.hosts import local_host

    host = local_host()
    values = {
        subject: {name: random.uniform(0, 100) for name in FIELDS[kind_of(subject)]} for subject in SUBJECTS
    }
    spent = {"record": 0.0, "publish": 0.0, "write": 0.0, "thin": 0.0}
    longest = dict.fromkeys(spent, 0.0)

    def counted(name: str, call: Callable[..., None], *args: object) -> None:
        began = time.process_time()
        call(*args)
        took = time.process_time() - began
        spent[name] += took
        longest[name] = max(longest[name], took)

    for second in range(now, now + SECONDS):
        for subject in SUBJECTS:
            counted("record", history.record, subject, second + 0.5, values[subject])
        counted("publish", history_live.publish_seconds, host.slug, second + 1.0)
        if second % 10 == 4:
            counted("write", history.write, host)
        if second % 60 == 30:
            counted("thin", history.thin, host, second)
    return {
        **{f"{name}_ms_a_second": round(value * 1000 / SECONDS, 3) for name, value in spent.items()},
        "together_ms_a_second": round(sum(spent.values()) * 1000 / SECONDS, 2),
        **{f"longest_{name}_ms": round(value * 1000, 1) for name, value in longest.items()},
    }


if __name__ == "__main__":
    main()
