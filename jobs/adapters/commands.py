"""Runs short external commands with bounds on time and output."""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from controlpanel.lib.text import N_, Worded

TOO_LONG = N_("%(name)s did not end within %(seconds)s s.")
TOO_MUCH = N_("%(name)s printed more than %(limit)s KiB.")


class CommandError(Worded):
    """A command that could not be started, took too long or said too much; str() says which."""


@dataclass(frozen=True)
class Output:
    """What a command printed and its exit code (negative: ended by that signal)."""

    code: int
    stdout: str
    stderr: str


def run_bounded(
    argv: list[str], *, seconds: float, limit: int, env: Mapping[str, str], cwd: Path | None = None
) -> Output:
    """Run argv without a shell; raise CommandError after `seconds` or more than `limit` bytes of output."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandError(N_("%(path)s cannot be run: %(why)s"), path=argv[0], why=error.strerror) from error
    name = Path(argv[0]).name + " " + " ".join(argv[1:])
    try:
        out, err = _read_both(process, seconds, limit, name)
        code = process.wait(timeout=max(0.1, seconds))
    except subprocess.TimeoutExpired as error:
        raise CommandError(TOO_LONG, name=name, seconds=round(seconds)) from error
    finally:
        # Grandchildren may hold the pipes open, so the whole group goes, also after a normal end.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
    return Output(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def _read_both(
    process: "subprocess.Popen[bytes]", seconds: float, limit: int, name: str
) -> tuple[bytes, bytes]:
    deadline = time.monotonic() + seconds
    buffers: dict[IO[bytes], bytearray] = {}
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            buffers[pipe] = bytearray()
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise CommandError(TOO_LONG, name=name, seconds=round(seconds))
            for key, _events in selector.select(left):
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fileobj)
                    continue
                buffers[key.fileobj] += data  # type: ignore[index]
                if sum(map(len, buffers.values())) > limit:
                    raise CommandError(TOO_MUCH, name=name, limit=limit // 1024)
    out, err = buffers.values()
    return bytes(out), bytes(err)
