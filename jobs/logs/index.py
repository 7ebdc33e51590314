"""What is known about one log from earlier looks at it: its line ends, and the lines that rules apply to.

A log only grows, so what was counted once stays true; a file that was replaced or became shorter is another
log. Kept in the process that reads the file: counting 256 MiB anew takes a part of a second, which is not
worth a second truth on the disk.
"""

import threading
from collections import OrderedDict

from jobs.logs.search import BLOCK, Found, Hits, Limits, Place, Read, Rule

RULES = 16  # per log
LOGS = 64


class LogIndex:
    """One log's; calls for the same log wait for each other, so that none counts what another one counts."""

    def __init__(self, inode: int) -> None:
        self.inode = inode
        self.size = 0
        self._lock = threading.Lock()
        self._line_ends = [0]  # before each block of 1 MiB
        self._hits: OrderedDict[Rule, Hits] = OrderedDict()

    def line(self, read: Read, at: int, limits: Limits) -> int | None:
        """Return the number, from 1, of the line to which a byte belongs; None when the time was too short.

        The number is exact: it is counted from the log's first byte, in blocks that are counted once.
        """
        block, ends = at // BLOCK, self._line_ends
        with self._lock:
            while len(ends) <= block:
                if limits.reached():
                    return None
                begin = (len(ends) - 1) * BLOCK
                ends.append(ends[-1] + read(begin, begin + BLOCK).count(b"\n"))
        return ends[block] + read(block * BLOCK, at).count(b"\n") + 1

    def find(self, read: Read, rule: Rule, first: int, end: int, place: Place, limits: Limits) -> Found:
        """Return the line that is next from the place, and how many there are."""
        with self._lock:
            hits = self._hits.setdefault(rule, Hits(rule))
            self._hits.move_to_end(rule)
            while len(self._hits) > RULES:
                self._hits.popitem(last=False)
            return hits.find(read, first, end, place, limits)


class LogIndexes:
    """The indexes of the logs that were looked at last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._of: OrderedDict[str, LogIndex] = OrderedDict()

    def get(self, run_id: str, inode: int, size: int) -> LogIndex:
        """Return the index of a run's log; an empty one when the file is another one than before."""
        with self._lock:
            index = self._of.get(run_id)
            if index is None or index.inode != inode or size < index.size:
                index = self._of[run_id] = LogIndex(inode)
            index.size = size
            self._of.move_to_end(run_id)
            while len(self._of) > LOGS:
                self._of.popitem(last=False)
            return index
