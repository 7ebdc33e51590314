"""Parts of a log as the page asks for them while somebody scrolls or jumps: by bytes, cut at line ends."""

from jobs.adapters.hostlink import HostLink
from jobs.logs.ansi import Style, style_after
from jobs.logs.cut import few_lines, last_lines, utf8_cut, utf8_start
from jobs.logs.render import piece, render

RANGE = 1024 * 1024  # bytes of text in one answer
MOST_LINES = 20_000  # in one answer
LINES = 1000  # in one answer that is cut at line ends: half of what the page holds
AROUND = 32 * 1024  # bytes on each side of a line that somebody jumps to
LONG_LINE = 1024 * 1024  # a line's begin is looked for so far before the byte that was asked for
# A colour that was set further back is not seen: most programs set their colours on each line.
LOOK_BACK = 64 * 1024


def style_before(link: HostLink, run_id: str, start: int, log_start: int) -> Style:
    """Return the style that the text before byte `start` leaves."""
    return style_after(link.log_range(run_id, max(log_start, start - LOOK_BACK), start, log_start))


def part(link: HostLink, run_id: str, log_start: int, start: int, end: int, align: str) -> str:
    """Return bytes `start` to `end`, rendered; at most 1 MiB or 20,000 lines, and the answer says how far.

    `align="start"` leaves out an unfinished line at the start (unless nothing else is there), "end" one at
    the end; both leave out what is more than 1,000 lines, at that side.
    """
    start = max(start, log_start)
    end = min(end, start + RANGE)
    before = 1 if start > log_start else 0
    data = link.log_range(run_id, start - before, end, log_start)
    fresh = not before or data[:1] == b"\n"
    data = data[before:]
    if align == "start":
        head = last_lines(data, LINES)
        if not head and not fresh:
            # Past the first line end, but not past all of the text.
            line = data.find(b"\n") + 1
            head = line if 0 < line < len(data) else utf8_start(data)
        fresh = data[head - 1 : head] == b"\n" if head else fresh
        start, data = start + head, data[head:]
    elif align == "end":
        data = data[: data.rfind(b"\n") + 1 or utf8_cut(data) or len(data)]
        data = data[: few_lines(data, LINES)]
    else:
        data = data[: few_lines(data, MOST_LINES)]
    return _piece(link, run_id, log_start, start, data, fresh)


def around(link: HostLink, run_id: str, log_start: int, at: int) -> str:
    """Return the lines around the one to which byte `at` belongs; any byte number has a line that is next."""
    first, end = link.log_size(run_id, log_start)
    at = max(first, min(at, end - 1))
    here = _line_begin(link, run_id, first, at)
    begin = max(first, here - AROUND)
    before = link.log_range(run_id, begin, here, first)
    head = last_lines(before, LINES // 2)
    if not head and begin > first:
        head = before.find(b"\n") + 1 or utf8_start(before)
    after = link.log_range(run_id, here, min(end, here + AROUND), first)
    if here + len(after) < end:
        after = after[: after.rfind(b"\n") + 1 or utf8_cut(after)]
    after = after[: few_lines(after, LINES // 2)]
    start = begin + head
    fresh = start == first or link.log_range(run_id, start - 1, start, first) == b"\n"
    return _piece(link, run_id, log_start, start, before[head:] + after, fresh, here=here)


def _piece(
    link: HostLink, run_id: str, first: int, start: int, data: bytes, fresh: bool, here: int | None = None
) -> str:
    html = render(data, start, fresh, style_before(link, run_id, start, first))
    return piece(html, start, start + len(data), first=first, here=here)


def _line_begin(link: HostLink, run_id: str, first: int, at: int) -> int:
    step = AROUND
    while True:
        begin = max(first, at - step)
        data = link.log_range(run_id, begin, at, first)
        line_end = data.rfind(b"\n")
        if line_end >= 0:
            return begin + line_end + 1
        if begin == first:
            return first
        if step >= LONG_LINE:
            return begin + utf8_start(data)
        step = LONG_LINE
