"""The downloader against curl on the same local hub. Goals: at 115 MB/s at least 0.98 of curl and at most one
core, hashing included; with 10 MB/s for each connection at least 3 times as fast as one connection."""

import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks.figures import answer, median, timed

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlpanel.settings")

ROUNDS = 3
LINE = 115e6  # bytes per second of a gigabit line
EACH = 10e6  # bytes per second of one connection
MB = 1e6


@contextmanager
def hub(folder: Path, *options: object) -> Iterator[str]:
    """The fake hub as a process of its own; gives the address of the file."""
    argv = [sys.executable, "-m", "tests.fakes.hub", str(folder), *map(str, options)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        os.environ["PANEL_PRIVATE_HOSTS"] = told["private"]
        yield f"{told['endpoint']}/org/model/resolve/main/model.gguf"
    finally:
        process.kill()
        process.wait()


def ours(url: str, target: Path, size: int, sha256: str, private: str) -> tuple[float, float]:
    """Seconds and cores of our downloader, the check of the hash included."""
    from django.conf import settings

    from jobs.adapters.transfer import fetch
    from jobs.domain.transfer import Limits, Place, Source

    settings.PANEL_PRIVATE_HOSTS = private
    source = Source(url, lambda: Place(url), size, sha256)
    before = resource.getrusage(resource.RUSAGE_SELF)
    seconds = timed(
        lambda: fetch(source, target, Limits(spare=0), on_progress=lambda progress: None, stop=lambda: None)
    )
    after = resource.getrusage(resource.RUSAGE_SELF)
    target.unlink()
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return seconds, used / seconds


def curl(url: str, target: Path) -> float:
    """Seconds of one curl, which checks nothing."""
    argv = ["curl", "-sfL", "-o", str(target), url]
    seconds = timed(lambda: subprocess.run(argv, check=True))
    target.unlink()
    return seconds


def compare(folder: Path, size: int, sha256: str, *options: object, rounds: int = ROUNDS) -> dict[str, float]:
    """Pairs of both, one after the other; the speeds, the ratio and our cores."""
    ratios, speeds, other, cores = [], [], [], []
    with hub(folder, *options) as url, tempfile.TemporaryDirectory(dir=folder) as place:
        target = Path(place) / "model.gguf"
        for _ in range(rounds):
            theirs = curl(url, target)
            seconds, used = ours(url, target, size, sha256, os.environ["PANEL_PRIVATE_HOSTS"])
            ratios.append(theirs / seconds)
            speeds.append(size / MB / seconds)
            other.append(size / MB / theirs)
            cores.append(used)
    return {
        "mb_per_s": median(speeds),
        "curl_mb_per_s": median(other),
        "ratio": median(ratios),
        "cores": median(cores),
    }


def main() -> None:
    """Fetch a file of 1 GiB (argument: MiB) from a hub that is throttled in three ways."""
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "org" / "model" / "model.gguf"
        file.parent.mkdir(parents=True)
        block = b"GGUF" + os.urandom(1024**2 - 4)
        with file.open("wb") as out:
            for _ in range(mib):
                out.write(block)
        sha256 = hashlib.file_digest(file.open("rb"), "sha256").hexdigest()
        size = mib * 1024**2
        os.environ.setdefault("PANEL_DATA", str(folder / "data"))
        answer(
            line_115_mb_per_s=compare(folder, size, sha256, "--rate", LINE),
            each_connection_10_mb_per_s=compare(folder, size, sha256, "--connection-rate", EACH, rounds=1),
            unthrottled=compare(folder, size, sha256),
        )


if __name__ == "__main__":
    main()
