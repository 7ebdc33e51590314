"""Where to cut a log's bytes: at line ends where possible, never inside a character."""

BATCH = 16 * 1024
BATCH_LINES = 1024  # the HTML of a line is so much longer than an empty line that these must be few


def utf8_cut(data: bytes) -> int:
    """Return the length of the longest prefix that does not end inside a UTF-8 character."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4 if byte < 0xF8 else 1
            return len(data) if back >= needed else len(data) - back
    return len(data)


def utf8_start(data: bytes) -> int:
    """Return how many bytes at the head belong to a character that began before them (0 to 3)."""
    for place in range(min(3, len(data))):
        if data[place] & 0xC0 != 0x80:
            return place
    return min(3, len(data))


def few_lines(data: bytes, most: int = BATCH_LINES) -> int:
    """Return the length of the first lines of the data, all of it when they are not more than `most`."""
    if data.count(b"\n") <= most:
        return len(data)
    at = 0
    for _ in range(most):
        at = data.index(b"\n", at) + 1
    return at


def last_lines(data: bytes, most: int) -> int:
    """Return where the last `most` lines of the data begin."""
    at = len(data) - 1 if data.endswith(b"\n") else len(data)
    for _ in range(most):
        at = data.rfind(b"\n", 0, max(at, 0))
        if at < 0:
            break
    return at + 1


def batch_ends(data: bytes, *, flush: bool = False, final: bool = False) -> list[int]:
    """Return where to cut data into batches of at most 16 KB and 1,024 lines.

    A batch ends at a line end, or inside a line that is longer than a batch. What follows the last line end
    is left out unless `flush` (then whole characters of it go) or `final` (then all of it goes).
    """
    ends: list[int] = []
    at, size = 0, len(data)
    while at < size:
        line_end = data.rfind(b"\n", at, at + BATCH)
        if line_end >= 0:
            at += few_lines(data[at : line_end + 1])
        elif size - at > BATCH or (size - at == BATCH and not final):
            at += utf8_cut(data[at : at + BATCH])
        elif final:
            at = size
        else:
            whole = utf8_cut(data[at:]) if flush else 0
            if whole:
                ends.append(at + whole)
            break
        ends.append(at)
    return ends
