"""Starts one program, outlives whoever asked for it, and keeps the program's exit code.

Run as `python -S -E -P shim.py <run folder>`, with a JSON object of secret environment variables on stdin.
The program gets this process's environment, the spec's and the secrets, and nothing else. The call returns
when the program runs (0), could not be started (1) or had been started before (3); stderr says why.
"""

# One shim stays resident per run, so only light modules are imported: no pathlib, typing, subprocess.
# ruff: noqa: PTH100, PTH105, PTH123, PTH208

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import sys
import time
from contextlib import suppress

OK, FAILED, STARTED_BEFORE = 0, 1, 3
SECRETS_LIMIT = 1 << 20
SPEC_LIMIT = 4 << 20
STATE_LIMIT = 64 << 10
SAVE_PATIENCE = 300.0
KILL_AGAIN = 5.0
FOREVER = 1e6
STOP_SIGNALS = {signal.SIGTERM, signal.SIGINT}
WATCHED = STOP_SIGNALS | {signal.SIGCHLD}

EXEC_HINTS = {
    errno.ENOENT: "the file does not exist, or the interpreter that it names does not",
    errno.EACCES: "it is not an executable file, or a folder above it is closed to this user",
    errno.ENOEXEC: "it is not a program that this machine can run",
}


class StartError(Exception):
    """The program was not started; the text is for the person who asked for it."""


def stat_of(pid: int) -> tuple[str, int, int, int] | None:
    """State letter, process group, session and start time (clock ticks since boot); None without process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read(4096)
    except OSError:
        return None
    # The program's name stands in parentheses and may itself hold spaces and parentheses.
    fields = text[text.rfind(b")") + 1 :].split()
    if len(fields) < 20:
        return None
    return fields[0].decode(), int(fields[2]), int(fields[3]), int(fields[19])


def boot_id() -> str:
    """The kernel's id of this boot of the machine."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def identity(pid: int) -> dict[str, int | str]:
    """What names a process for good: pid, start time and boot id."""
    stat = stat_of(pid)
    if stat is None:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    return {"pid": pid, "start": stat[3], "boot": boot_id()}


def kill_session(leader: int) -> None:
    """SIGKILL to each process of the session that `leader` opened, whatever its process group.

    Build tools such as ninja give each of their children a group of its own; a group kill misses those.
    """
    killed: set[int] = set()
    while True:
        others = {int(name) for name in os.listdir("/proc") if name.isdigit()} - killed
        members = {pid for pid in others if _in_session(pid, leader)}
        for pid in members:
            with suppress(OSError):
                handle = os.pidfd_open(pid)
                try:
                    if _in_session(pid, leader):
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
                finally:
                    os.close(handle)
        if not members:
            return
        killed |= members


def _in_session(pid: int, leader: int) -> bool:
    stat = stat_of(pid)
    return stat is not None and stat[2] == leader and stat[0] not in "ZX"


def read_object(path: str, limit: int) -> dict[str, object]:
    """The JSON object in a file; OSError where it cannot be read, ValueError for anything else in it."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        text = file.read(limit)  # An object cut short does not parse.
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if not isinstance(value, dict):
        raise ValueError("a JSON object is expected")
    return value


def write_atomic(path: str, data: bytes) -> None:
    """Replaces a file (mode 0600) so that a reader, or a power cut, sees the old bytes or the new ones."""
    fresh = f"{path}.{os.getpid()}.new"
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(handle)
    os.replace(fresh, path)


def take_lock(folder: str) -> int | None:
    """The descriptor that holds the run folder's lock until it is closed; None where another holds it."""
    handle = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def started_before(folder: str) -> bool:
    """Whether a program was ever started in the folder; its shim may be dead while it lives."""
    try:
        return read_object(f"{folder}/state.json", STATE_LIMIT).get("child") is not None
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True


class Spec:
    """spec.json, checked: argv, cwd, env, grace (seconds between SIGTERM and SIGKILL), cgroup ("": none)."""

    def __init__(self, folder: str) -> None:
        try:
            data = read_object(f"{folder}/spec.json", SPEC_LIMIT)
            self.argv: list[str] = _strings(data["argv"])
            self.cwd, self.cgroup = _strings([data["cwd"], data.get("cgroup", "")])
            self.env: dict[str, str] = _environment(data["env"])
            self.grace = float(str(data["grace"]))
            if not self.argv or not 0 <= self.grace < FOREVER:
                raise ValueError("no program, or a grace out of range")
        except (OSError, ValueError, KeyError) as error:
            raise StartError(f"the run's spec.json is not usable: {error!r}") from error


def _strings(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError("a list of strings is expected")
    return value


def _environment(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise ValueError("an object of strings is expected")
    return value


class State:
    """state.json of one run."""

    def __init__(self, folder: str) -> None:
        self.path = f"{folder}/state.json"
        self.data: dict[str, object] = {
            "version": 1,
            "status": "starting",
            "shim": identity(os.getpid()),
            "child": None,
            "exit_code": None,
            "error": "",
            "stop_requested": False,
            "stop_requested_at": None,
            "started_at": None,
            "ended_at": None,
        }

    def save(self, **changes: object) -> None:
        """Stores the changes; OSError where the disk refuses, and then they are kept for the next save."""
        self.data.update(changes)
        write_atomic(self.path, json.dumps(self.data).encode())

    def save_patiently(self, patience: float, **changes: object) -> bool:
        """Stores the changes, waiting up to `patience` seconds for a full disk; False once given up."""
        until = time.monotonic() + patience
        pause = 0.1
        while True:
            try:
                self.save(**changes)
                return True
            except OSError as error:
                # Without its folder a run has nowhere to keep anything.
                if error.errno == errno.ENOENT or time.monotonic() + pause > until:
                    return False
            time.sleep(pause)
            pause = min(pause * 2, 5.0)


def main(arguments: list[str]) -> int:
    """Forks the shim and waits until it says whether the program runs; returns the exit status."""
    [folder] = arguments
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with suppress(OSError):
                os.close(int(name))
    try:
        secrets = _environment(json.loads(sys.stdin.buffer.read(SECRETS_LIMIT) or b"{}"))
    except (OSError, ValueError, RecursionError):
        # The text of the error could quote a secret.
        return _complain("the secret environment on stdin is not a JSON object of strings", FAILED)
    answers, report = os.pipe()
    if os.fork() == 0:
        os.close(answers)
        try:
            _serve(os.path.abspath(folder), secrets, report)
        finally:
            os._exit(0)
    os.close(report)
    with open(answers, "rb") as file:
        answer = file.read(65536)
    if not answer:
        return _complain("the process that keeps the run ended before it had started the program", FAILED)
    return _complain(answer[1:].decode(), answer[0])


def _complain(words: str, status: int) -> int:
    if words:
        os.write(2, words.encode("utf-8", "replace") + b"\n")
    return status


def _answer(report: int, status: int, words: str = "") -> None:
    with suppress(OSError):
        os.write(report, bytes([status]) + words[:2000].encode("utf-8", "replace"))
    os.close(report)


def _serve(folder: str, secrets: dict[str, str], report: int) -> None:
    """The shim's life: start the program, watch it, store how it ended."""
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Blocked signals stay pending until they are asked for, so none is lost and nothing is interrupted.
    signal.pthread_sigmask(signal.SIG_SETMASK, WATCHED)
    os.umask(0o077)
    os.chdir("/")
    nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    try:
        lock = take_lock(folder)
        if lock is None or started_before(folder):
            _answer(report, STARTED_BEFORE, "this run has been started before; a run is started only once")
            return
        state = State(folder)
        state.save()
    except OSError as error:
        _answer(report, FAILED, f"the run's folder {folder} cannot be used: {error.strerror}")
        return
    try:
        # Looked for after the state named this shim: whoever asks for a stop meets the file or the signal.
        if os.access(f"{folder}/stop", os.F_OK):
            raise StartError("a stop was requested before the program was started")
        spec = Spec(folder)
        child = _start(folder, spec, secrets, state, nothing)
    except (StartError, OSError) as error:
        state.save_patiently(0, status="failed", error=str(error), child=None, ended_at=time.time())
        _answer(report, FAILED, str(error))
        return
    secrets.clear()
    state.save_patiently(0, status="running")
    _answer(report, OK)
    _watch(child, spec.grace, state)
    state.save_patiently(SAVE_PATIENCE, status="exited", exit_code=_reap(child), ended_at=time.time())


def _start(folder: str, spec: Spec, secrets: dict[str, str], state: State, nothing: int) -> int:
    """Pid of the program, once it executes; its identity is on disk before its first instruction runs."""
    log = os.open(f"{folder}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    given = {_encode(name): _encode(value) for name, value in (spec.env | secrets).items()}
    gate, opener = os.pipe()
    words, mouth = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(opener)
        os.close(words)
        _become(spec, os.environb | given, gate, mouth, [nothing, log, log])
    for handle in (gate, mouth, log):
        os.close(handle)
    with open(words, "rb", buffering=0) as report, open(opener, "wb", buffering=0) as go:
        try:
            # The dot says that the child leads its own session: from here on a kill of its group finds it.
            failure = report.read(1)
            if failure == b".":
                state.save(child=identity(child), started_at=time.time())
                go.write(b".")
                failure = b""
            failure += report.read(64)
        except OSError as error:
            failure = b"state %d" % (error.errno or errno.EIO)
    if failure:
        os.waitpid(child, 0)
        raise StartError(_explain(failure, spec))
    return child


def _become(spec: Spec, environment: dict[bytes, bytes], gate: int, mouth: int, standard: list[int]) -> None:
    """The forked child's way into the program; never returns. Failures go to `mouth` as "stage errno"."""
    stage = b"exec"
    try:
        os.setsid()
        os.write(mouth, b".")
        if not os.read(gate, 1):
            os._exit(0)  # The shim died, or could not name this process on disk.
        if spec.cgroup:  # From its first allocation on; where that fails the agent watches its memory.
            with suppress(OSError), open(f"{spec.cgroup}/cgroup.procs", "wb", buffering=0) as members:
                members.write(b"%d" % os.getpid())
        for target, source in enumerate(standard):
            os.dup2(source, target)
        stage = b"folder"
        os.chdir(_encode(spec.cwd))
        stage = b"exec"
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvpe(_encode(spec.argv[0]), [_encode(word) for word in spec.argv], environment)
    except (OSError, ValueError) as error:
        os.write(mouth, b"%s %d" % (stage, getattr(error, "errno", None) or errno.EINVAL))
    finally:
        os._exit(127)


def _encode(text: str) -> bytes:
    # Not os.fsencode: what the panel wrote is UTF-8 whatever the locale of this process.
    return text.encode("utf-8", "surrogateescape")


def _explain(failure: bytes, spec: Spec) -> str:
    stage, _, digits = failure.decode().partition(" ")
    number = int(digits)
    reason = f"{os.strerror(number)} (errno {number})"
    if stage == "state":
        return f"the run's state cannot be stored: {reason}"
    if stage == "folder":
        return f"the working folder {spec.cwd} cannot be entered: {reason}"
    hint = EXEC_HINTS.get(number)
    return f"{spec.argv[0]} cannot be started: {reason}" + (f"; {hint}" if hint else "")


def _watch(child: int, grace: float, state: State) -> None:
    """Returns when the child has ended, not yet reaped; passes a requested stop on."""
    kill_at: float | None = None
    while os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        patience = FOREVER if kill_at is None else max(kill_at - time.monotonic(), 0)
        info = signal.sigtimedwait(WATCHED, patience)
        now = time.monotonic()
        if info is not None and info.si_signo in STOP_SIGNALS:
            if kill_at is None:
                state.save_patiently(0, stop_requested=True, stop_requested_at=time.time())
                _signal_group(child, signal.SIGTERM)
            kill_at = now + grace if kill_at is None else now
        if kill_at is not None and now >= kill_at:
            _signal_group(child, signal.SIGKILL)
            kill_at = now + KILL_AGAIN
    if kill_at is None and signal.sigpending() & STOP_SIGNALS:
        state.data.update(stop_requested=True, stop_requested_at=time.time())


def _reap(child: int) -> int:
    """Exit code of the ended child, negative for a signal; whatever it left running is killed first.

    While the child is not reaped its pid cannot pass to another process, so neither can its group.
    """
    _signal_group(child, signal.SIGKILL)
    kill_session(child)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _signal_group(leader: int, number: int) -> None:
    with suppress(OSError):
        os.killpg(leader, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
