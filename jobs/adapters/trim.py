"""Frees the head of a log that grew too large, under the program that still appends to it.

A hole is punched into the file: offsets stay what they are, and the writer never notices.
"""

import ctypes
import os
from pathlib import Path

PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE of <linux/falloc.h>
LINE = 1024 * 1024  # bytes looked through for the next line end

_libc = ctypes.CDLL(None, use_errno=True)


def free_head(path: Path, start: int, keep: int) -> int:
    """Free all but about the last `keep` bytes and return the offset of the first line that is left.

    `start` is where the text began so far; it is returned unchanged when there is nothing to free. Raises
    OSError where the file system cannot punch holes.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        cut = os.fstat(descriptor).st_size - keep
        if cut <= start:
            return start
        end = os.pread(descriptor, LINE, cut).find(b"\n")
        first = cut + end + 1 if end >= 0 else cut
        arguments = (ctypes.c_int(PUNCH_HOLE_KEEP_SIZE), ctypes.c_int64(0), ctypes.c_int64(first))
        if _libc.fallocate(descriptor, *arguments) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
        return first
    finally:
        os.close(descriptor)
