"""Run folders: start a program under a shim, say how it stands, stop it.

`<data>/runs/<run id>/` holds spec.json, state.json, log, lock and, after a stop that no shim noted, stop.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from django.conf import settings

from jobs.adapters import cgroups
from jobs.runtime import procs, shim
from jobs.runtime.procs import Proc

RUN_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
SPAWN_SECONDS = 10.0

# Only what a program needs to find its libraries and its GPUs. Everything that changes how llama.cpp behaves
# (GGML_*, LLAMA_*) has to be in the spec, where a page shows it; the panel's own settings never pass.
INHERITED = {"PATH", "LANG", "TZ", "LD_LIBRARY_PATH"}
INHERITED_PREFIXES = ("LC_", "CUDA_", "HIP_", "ROCR_", "ROCM_", "HSA_")
PROXY = {"http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir"}

REBOOTED = "the machine was restarted while the program ran"
GONE = "the program and the process that kept it are gone; how it ended is not known"

Standing = Literal["missing", "running", "orphaned", "exited", "lost"]


class SpawnError(Exception):
    """The program was not started; the text says why."""


class StartedBefore(SpawnError):
    """The run folder has had its program already: look at it with `inspect` instead."""


@dataclass(frozen=True)
class RunSpec:
    """What to start. `secret_env` never reaches the disk; `proxy` passes the panel's proxy variables on.

    `memory_mib` is the main memory that it may take. `mapped_mib` is the size of the files that it maps: the
    limit leaves them out, a control group counts them.
    """

    argv: list[str]
    cwd: str
    env: dict[str, str] = field(default_factory=dict)
    secret_env: dict[str, str] = field(default_factory=dict, repr=False)
    grace: float = 10.0
    proxy: bool = False
    memory_mib: int | None = None
    mapped_mib: int = 0


@dataclass(frozen=True)
class RunStatus:
    """How a run stands.

    missing: no folder, or no state in it. running: under its shim. orphaned: the program lives, its shim does
    not. exited: ended, or never started (`error` says so). lost: ended, and nobody could note how.
    `exit_code` is negative for a signal and None where unknown; times are seconds since 1970.
    """

    status: Standing
    child: Proc | None = None
    shim: Proc | None = None
    exit_code: int | None = None
    stop_requested: bool = False
    started_at: float | None = None
    ended_at: float | None = None
    error: str = ""
    rebooted: bool = False  # it has ended, and the machine was restarted since it began


def run_dir(run_id: str) -> Path:
    """The run's folder; ValueError for an id that could name anything else."""
    if not RUN_ID.fullmatch(run_id):
        raise ValueError(f"not a run id: {run_id!r}")
    return Path(settings.PANEL_DATA) / "runs" / run_id


def log_path(run_id: str) -> Path:
    """The file with the program's standard output and standard error."""
    return run_dir(run_id) / "log"


def spawn(run_id: str, spec: RunSpec) -> None:
    """Starts the program and returns once it executes; SpawnError where it does not."""
    folder = run_dir(run_id)
    _check(spec)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        _write_spec(folder, spec)
        answer = _start_shim(folder, spec)
    except subprocess.TimeoutExpired:
        # It may still come to life; then it is to end, because nobody will look after it.
        _note_stop(run_id)
        kill(run_id)
        raise SpawnError(f"the program did not start within {SPAWN_SECONDS:g} s") from None
    except OSError as error:
        raise SpawnError(f"the run's folder {folder} cannot be used: {error}") from error
    words = answer.stderr.decode("utf-8", "replace").strip()
    if answer.returncode == shim.STARTED_BEFORE:
        raise StartedBefore(words)
    if answer.returncode != shim.OK:
        raise SpawnError(words[-2000:] or f"the shim ended with exit status {answer.returncode}")


def inspect(run_id: str) -> RunStatus:
    """How the run stands now; never raises for what it finds in the folder."""
    folder = run_dir(run_id)
    found = _read(folder)
    if found.status == "lost":
        # The shim may have stored the end of the run between our reading and our look at its process.
        found = _read(folder)
    return found


def request_stop(run_id: str) -> None:
    """Asks the program to end: SIGTERM, and under a shim SIGKILL after the grace. Asking again is harmless.

    A run without state yet is kept from starting. For an orphan nobody waits out the grace: the caller does,
    and then calls `kill`.
    """
    status = inspect(run_id)
    if status.stop_requested:
        return
    if status.shim is not None and procs.signal_proc(status.shim, signal.SIGTERM):
        return
    status = inspect(run_id)
    if status.status == "missing":
        _note_stop(run_id)
    elif status.status == "orphaned" and status.child is not None and not status.stop_requested:
        _note_stop(run_id)
        procs.signal_group(status.child, signal.SIGTERM)


def limit_memory(run_id: str, mib: int | None) -> None:
    """Changes the limit of the run's control group, None: no limit; without a group nothing happens."""
    with suppress(OSError, ValueError, TypeError):
        mapped = shim.read_object(str(run_dir(run_id) / "spec.json"), shim.SPEC_LIMIT).get("mapped_mib", 0)
        cgroups.change(run_id, None if mib is None else (mib + int(str(mapped))) * cgroups.MIB)


def kill(run_id: str, asked: bool = True) -> None:
    """Ends the program and all that it started at once; noted as a requested stop when `asked`."""
    status = inspect(run_id)
    if asked and status.shim is not None:
        procs.signal_proc(status.shim, signal.SIGTERM)
    if status.child is not None and status.status in ("running", "orphaned"):
        if asked and status.status == "orphaned":
            _note_stop(run_id)
        procs.end_session(status.child)


def wait(run_id: str, seconds: float) -> RunStatus:
    """Waits until the run has ended, at most `seconds`; returns how it stands then."""
    until = time.monotonic() + seconds
    while True:
        status = inspect(run_id)
        left = until - time.monotonic()
        # The shim ends last: when it is gone the end of the run is stored.
        keeper = status.shim if status.status == "running" else status.child
        if status.status not in ("running", "orphaned") or keeper is None or left <= 0:
            return status
        procs.wait_exit(keeper, left)


def inherited(environ: Mapping[str, str], proxy: bool) -> dict[str, str]:
    """The part of an environment that a run may see; with `proxy` also the proxy and its certificates."""
    return {
        name: value
        for name, value in environ.items()
        if name in INHERITED or name.startswith(INHERITED_PREFIXES) or (proxy and name.lower() in PROXY)
    }


def _check(spec: RunSpec) -> None:
    if not spec.argv or not spec.argv[0]:
        raise SpawnError("the run names no program")
    if not math.isfinite(spec.grace) or not 0 <= spec.grace < shim.FOREVER:
        raise SpawnError("the grace must be a number of seconds, 0 or more")
    texts = [*spec.argv, spec.cwd]
    for name, value in (spec.env | spec.secret_env).items():
        if not name or "=" in name:
            raise SpawnError(f"{name!r} cannot be the name of an environment variable")
        texts += [name, value]
    if any("\0" in text for text in texts):
        raise SpawnError("arguments, folder and environment cannot contain a NUL character")


def _write_spec(folder: Path, spec: RunSpec) -> None:
    lock = shim.take_lock(str(folder))
    if lock is None:
        raise StartedBefore("this run is being started or has been started before")
    try:
        if shim.started_before(str(folder)):
            raise StartedBefore("this run has been started before; a run is started only once")
        stored: dict[str, object] = {
            "argv": spec.argv,
            "cwd": spec.cwd,
            "env": spec.env,
            "grace": spec.grace,
            "mapped_mib": spec.mapped_mib,
        }
        if spec.memory_mib is not None:
            group = cgroups.create(folder.name, (spec.memory_mib + spec.mapped_mib) * cgroups.MIB)
            stored["cgroup"] = "" if group is None else str(group)
        shim.write_atomic(str(folder / "spec.json"), json.dumps(stored).encode())
    finally:
        os.close(lock)


def _start_shim(folder: Path, spec: RunSpec) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-S", "-E", "-P", shim.__file__, str(folder)],
        input=json.dumps(spec.secret_env).encode(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd="/",
        env=inherited(os.environ, spec.proxy) | {"HOME": str(folder)},
        start_new_session=True,
        umask=0o077,
        timeout=SPAWN_SECONDS,
        check=False,
    )


def _note_stop(run_id: str) -> None:
    with suppress(OSError):
        (run_dir(run_id) / "stop").touch(mode=0o600, exist_ok=False)


def _read(folder: Path) -> RunStatus:
    try:
        state = shim.read_object(str(folder / "state.json"), shim.STATE_LIMIT)
    except FileNotFoundError:
        return RunStatus("missing")
    except (OSError, ValueError) as error:
        return RunStatus("missing", error=f"the run's state.json is not usable: {error}")
    keeper, child = _proc(state.get("shim")), _proc(state.get("child"))
    words, exit_code = state.get("error"), state.get("exit_code")
    standing = _standing(state.get("status"), keeper, child)
    ended = standing in ("exited", "lost")
    rebooted = ended and keeper is not None and keeper.boot != procs.boot_id()
    if standing == "lost" and not words:
        words = REBOOTED if rebooted else GONE
    return RunStatus(
        standing,
        child=child,
        shim=keeper,
        exit_code=exit_code if isinstance(exit_code, int) and not isinstance(exit_code, bool) else None,
        stop_requested=state.get("stop_requested") is True or (folder / "stop").exists(),
        started_at=_number(state.get("started_at")),
        ended_at=_number(state.get("ended_at")),
        error=words if isinstance(words, str) else "",
        rebooted=rebooted,
    )


def _standing(stored: object, keeper: Proc | None, child: Proc | None) -> Standing:
    if stored in ("exited", "failed"):
        return "exited"
    if keeper is not None and procs.alive(keeper):
        return "running"
    if child is not None and procs.alive(child):
        return "orphaned"
    return "lost"


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _proc(value: object) -> Proc | None:
    match value:
        case {"pid": int(pid), "start": int(start), "boot": str(boot)} if 1 < pid < 1 << 31:
            return Proc(pid, start, boot)
    return None
