"""`panel-llama-server`: llama.cpp's own HTTP server out of the wheel xllamacpp, as a llama-server.

The wheel offers a Python class, not a program. Its library exports llama.cpp's argument parser, so the
command line, `--help`, `--version`, `--list-devices` and every message about a bad argument are the library's
own. Parsing and stopping rely on the memory layout of two objects of the wheel: hence exactly one version.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

WHEEL_VERSION = "2026.10.11549"
INSTALL_HINT = f"Install it with: pip install xllamacpp=={WHEEL_VERSION}"

# llama.cpp's enum llama_example, which selects the options that llama-server knows.
LLAMA_EXAMPLE_SERVER = 12
# After the object header (reference count, type), CommonParams holds llama.cpp's common_params in place ...
OBJECT_HEADER = 16
COMMON_PARAMS_SIZE = 4904
# ... and Server a C++ shared_ptr: pointer, control block. The control block's function table holds the
# destructor of what the pointer points to.
SERVER_SIZE = 32
CONTROL_BLOCK_OFFSET = OBJECT_HEADER + 8
DISPOSE_SLOT = 2

STOP_SECONDS = 2.0
FLUSH_SECONDS = 0.5
DONE = 0


class EngineError(Exception):
    """The bundled engine cannot run here; the text says why and what to do."""


class Library:
    """The wheel's extension module and the C++ functions of it that Python does not offer."""

    def __init__(self) -> None:
        try:
            import xllamacpp
            from xllamacpp import xllamacpp as extension
        except ImportError as error:
            raise EngineError(
                f"The bundled engine needs the package xllamacpp {WHEEL_VERSION}, which cannot be loaded"
                f" ({error}). {INSTALL_HINT}"
            ) from error
        if xllamacpp.__version__ != WHEEL_VERSION:
            raise EngineError(
                f"The bundled engine works with xllamacpp {WHEEL_VERSION} only; version"
                f" {xllamacpp.__version__} is installed. {INSTALL_HINT}"
            )
        sizes = (extension.CommonParams.__basicsize__, extension.Server.__basicsize__)
        if sizes != (COMMON_PARAMS_SIZE, SERVER_SIZE):
            raise EngineError(
                f"This build of xllamacpp {WHEEL_VERSION} is not the one for x86-64 Linux with glibc;"
                " the bundled engine cannot use it. Build llama-server instead."
            )
        self._extension = extension
        self._c = ctypes.CDLL(extension.__file__)
        self._c._Z15common_log_mainv.restype = ctypes.c_void_p
        self._c._Z16common_log_flushP10common_log.argtypes = [ctypes.c_void_p]
        self._parse = self._c._Z19common_params_parseiPPcR13common_params13llama_examplePFviS0_E
        self._parse.restype = ctypes.c_bool
        self._c._Z11common_initv()

    def parse(self, arguments: list[str]) -> Any | None:
        """Parameters for a server, or None after the library has written what is wrong to stderr.

        `--help`, `--version` and their like print and end the process inside the library.
        """
        argv = [b"llama-server", *map(os.fsencode, arguments)]
        params = self._extension.CommonParams()
        parsed = self._parse(
            len(argv),
            (ctypes.c_char_p * (len(argv) + 1))(*argv, None),
            ctypes.c_void_p(id(params) + OBJECT_HEADER),
            LLAMA_EXAMPLE_SERVER,
            None,
        )
        return params if parsed else None

    def start(self, params: Any) -> Any:
        """A serving server; blocks, holding the interpreter lock, until the model is loaded.

        RuntimeError: loading failed and the library has logged why. ValueError: it has not.
        """
        return self._extension.Server(params)

    def destroy(self, server: Any) -> None:
        """Runs the C++ destructor of a server, which must not be used or released afterwards.

        The wheel's own release joins the server's thread while it holds the interpreter lock: for ever, if an
        answer streams to a client that stays. This call leaves the lock to the thread that counts seconds.
        """
        block = ctypes.c_void_p.from_address(id(server) + CONTROL_BLOCK_OFFSET).value or 0
        table = ctypes.c_void_p.from_address(block).value or 0
        slot = table + DISPOSE_SLOT * ctypes.sizeof(ctypes.c_void_p)
        dispose = ctypes.c_void_p.from_address(slot).value or 0
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(dispose)(block)

    def flush(self) -> None:
        """Waits until the library's logging thread has written all that was logged."""
        self._c._Z16common_log_flushP10common_log(self._c._Z15common_log_mainv())
        ctypes.CDLL(None).fflush(None)


class Mailbox:
    """Bytes for the main thread: numbers of signals, and DONE from a thread that finished its work.

    A pipe, because a Python-level wait is not safe to wake from a signal handler.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def take_signals(self) -> None:
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _noted)

    def wait(self, seconds: float | None = None) -> int | None:
        """The next byte, None after so many seconds without one."""
        ready, _, _ = select.select([self._read], [], [], seconds)
        return os.read(self._read, 1)[0] if ready else None

    def run(self, work: Callable[[], None], seconds: float) -> int | None:
        """Does the work in a thread: DONE, the number of a signal that came first, or None after the time."""

        def body() -> None:
            work()
            os.write(self._write, bytes([DONE]))

        threading.Thread(target=body, daemon=True).start()
        return self.wait(seconds)


def _noted(number: int, frame: FrameType | None) -> None:
    """Python writes the number to the wake-up pipe only for signals that have a handler."""


def _leave(code: int) -> NoReturn:
    """Ends the process without finalizers: library threads may still run."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _stop(library: Library, server: Any, mailbox: Mailbox) -> NoReturn:
    outcome = mailbox.run(lambda: library.destroy(server), STOP_SECONDS)
    if outcome in (DONE, None):
        outcome = mailbox.run(library.flush, FLUSH_SECONDS)
    if outcome in (DONE, None):
        _leave(0)
    os.write(2, b"Received second interrupt, terminating immediately.\n")
    _leave(1)


def main() -> int:
    """Runs the server until a signal ends it; returns the exit code of a failed start."""
    # While the model loads, a signal ends the process at once: nothing has been served yet, and the main
    # thread is inside the library, where no Python handler would run.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        library = Library()
        params = library.parse(sys.argv[1:])
    except EngineError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    if params is None:
        return 1
    mailbox = Mailbox()
    try:
        server = library.start(params)
    except (RuntimeError, ValueError) as error:
        library.flush()
        if isinstance(error, ValueError):
            sys.stderr.write(f"error: {error}\n")
        _leave(1)
    mailbox.take_signals()
    mailbox.wait()
    _stop(library, server, mailbox)


if __name__ == "__main__":
    sys.exit(main())
