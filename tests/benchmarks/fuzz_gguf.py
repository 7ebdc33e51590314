"""Ten thousand damaged headers by hand.

usage: python -m tests.benchmarks.fuzz_gguf [--count N] [--seed N] [FILE ...]

Without files the two tiny models are damaged. Each copy has to be read or refused within 5 s, the whole run
below 200 MB on top of its start. A failure prints the seed and the round that repeat it.
"""

import argparse
import random
import resource
import time
from pathlib import Path

from tests.benchmarks.figures import answer
from tests.unit.gguf_mutations import header_of, mutate, real_headers, use

SECONDS, MIB = 5.0, 200.0


def main() -> None:
    """Damage, read, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    headers = [header_of(path) for path in options.files] or list(real_headers())
    for raw in headers:
        use(raw, 1 << 40)
    before, slowest = _peak_mib(), 0.0
    ends: dict[str, int] = {}
    for number in range(options.count):
        chance = random.Random(f"{options.seed}/{number}")
        raw = mutate(chance.choice(headers), chance)
        began = time.process_time()
        try:
            end = use(raw, chance.choice((None, 1 << 40)))
        except Exception:
            print(f"seed {options.seed}, round {number}")
            raise
        slowest = max(slowest, time.process_time() - began)
        ends[end] = ends.get(end, 0) + 1
    grown = _peak_mib() - before
    answer(
        rounds=options.count,
        ends=ends,
        slowest_seconds=round(slowest, 3),
        grown_mib=round(grown, 1),
        ok=slowest < SECONDS and grown < MIB,
    )


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
