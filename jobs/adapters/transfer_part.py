"""A file that is being fetched: `<target>.part` with its bytes, `<target>.part.json` with its state."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.adapters.transfer_error import BUSY, DISK, DISK_FULL, TransferError, of_disk
from jobs.domain.transfer import PartState, chunk_line, parse_state

MODE = 0o600
STATE_LIMIT = 128 * 1024**2  # bytes of a state file: more than the largest file has
MIB = 1024**2

_libc = ctypes.CDLL(None, use_errno=True)


def part_path(target: Path) -> Path:
    """Return where the bytes of an unfinished file lie."""
    return target.with_name(target.name + ".part")


def state_path(target: Path) -> Path:
    """Return where the state of an unfinished file lies."""
    return target.with_name(target.name + ".part.json")


def read_state(target: Path) -> PartState | None:
    """Return how far an unfinished file is; None when there is none, or its state is of no use."""
    try:
        if part_path(target).stat().st_size == 0 or state_path(target).stat().st_size > STATE_LIMIT:
            return None
        return parse_state(state_path(target).read_text(encoding="ascii", errors="replace"))
    except OSError:
        return None


class PartFile:
    """The open partial file, locked against other downloads of it. Safe for threads."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._closed = False
        self._journal = -1
        self._file = _open_locked(part_path(target), target.name)

    def state(self) -> PartState | None:
        """Return what the state file says."""
        return read_state(self._target)

    def begin(self, state: PartState, spare: int) -> None:
        """Write the state anew and claim the disk for the whole file; TransferError disk_full or disk."""
        try:
            system = os.fstatvfs(self._file)
            need = state.size - os.fstat(self._file).st_blocks * 512
            free = system.f_bavail * system.f_frsize - spare
            if need > max(free, 0):
                raise TransferError("disk_full", DISK_FULL, need=need // MIB + 1, free=max(free, 0) // MIB)
            if not state.chunks:
                os.ftruncate(self._file, 0)
            self._store(state)
            _allocate(self._file, state.size)
        except OSError as error:
            raise of_disk(error) from error

    def write(self, at: int, data: memoryview) -> None:
        """Write bytes at a place; TransferError disk_full or disk."""
        while data:
            with self._opened():
                done = os.pwrite(self._file, data, at)
            data, at = data[done:], at + done

    def read(self, at: int, size: int) -> bytes:
        """Return bytes of a place, fewer at the end of the file."""
        try:
            return os.pread(self._file, size, at)
        except OSError as error:
            raise of_disk(error) from error

    def note(self, index: int, sha256: str) -> None:
        """Note a chunk as written. It may be lost with the power all the same: its hash tells."""
        with self._opened():
            os.write(self._journal, chunk_line(index, sha256).encode())

    def sync(self) -> None:
        """Bring what was written to the disk."""
        try:
            os.fdatasync(self._file)
        except OSError as error:
            raise of_disk(error) from error

    def finish(self) -> None:
        """Give the file its name; the state goes. TransferError disk."""
        try:
            os.fsync(self._file)
            part_path(self._target).rename(self._target)
            state_path(self._target).unlink(missing_ok=True)
            _sync_folder(self._target.parent)
        except OSError as error:
            raise of_disk(error) from error

    def discard(self) -> None:
        """Delete bytes and state."""
        for path in (_fresh_path(self._target), state_path(self._target), part_path(self._target)):
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file, which unlocks it; an empty one goes."""
        with self._lock:
            self._closed = True
            if os.fstat(self._file).st_size == 0:
                self.discard()
            os.close(self._file)
            if self._journal >= 0:
                os.close(self._journal)

    @contextmanager
    def _opened(self) -> Iterator[None]:
        """Keep the file open meanwhile: a thread that comes too late must not write into another one."""
        with self._lock:
            if self._closed:
                raise TransferError("disk", DISK, why=os.strerror(errno.EBADF))
            try:
                yield
            except OSError as error:
                raise of_disk(error) from error

    def _store(self, state: PartState) -> None:
        path, fresh = state_path(self._target), _fresh_path(self._target)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._journal = os.open(fresh, flags, MODE)
        data = state.text().encode()
        while data:
            data = data[os.write(self._journal, data) :]
        os.fsync(self._journal)
        fresh.rename(path)
        _sync_folder(path.parent)


def _fresh_path(target: Path) -> Path:
    return target.with_name(target.name + ".part.json.new")


def _open_locked(path: Path, name: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    while True:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(path, flags, MODE)
        except OSError as error:
            raise of_disk(error) from error
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise TransferError("disk", DISK, why=os.strerror(errno.EINVAL))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held the lock may have renamed or deleted the file meanwhile.
            if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
                os.fchmod(file, MODE)
                return file
            os.close(file)
        except BlockingIOError as error:
            os.close(file)
            raise TransferError("busy", BUSY, name=name) from error
        except BaseException:
            os.close(file)
            raise


def _allocate(file: int, size: int) -> None:
    """Claim the blocks of a file; where the file system cannot, only its length is set."""
    arguments = (ctypes.c_int(0), ctypes.c_int64(0), ctypes.c_int64(size))
    if _libc.fallocate(file, *arguments) == 0:
        return
    if ctypes.get_errno() not in (errno.EOPNOTSUPP, errno.ENOSYS):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    os.ftruncate(file, size)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
