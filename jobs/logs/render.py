"""Log text to HTML: one span per line, level and ANSI colours by class, the text itself unchanged.

With all tags removed and entities resolved the HTML is the text of the file, but for what no page can hold:
bytes that are not UTF-8 and NUL become U+FFFD, terminal escape sequences go (colours become classes), and an
ESC that belongs to no sequence becomes U+241B.
"""

import re
from collections.abc import Iterator

from jobs.logs.ansi import PLAIN, Style, coloured, escape, plain

_LEVEL = re.compile(r"(?:\d+\.\d\d\.\d{3}\.\d{3} )?([IWED]) ")
_ERROR = re.compile(r"\b(?:error|failed|failure|fatal)\b", re.IGNORECASE)
_WARNING = re.compile(r"\bwarn(?:ing)?s?\b", re.IGNORECASE)
LOOK = 400  # characters of a line that decide its level
_BY_LETTER = {"E": " e", "W": " w", "I": "", "D": ""}


def level(text: str) -> str:
    """Return the class suffix of a line: " e" for errors, " w" for warnings, "" for all else.

    llama.cpp's level letter decides where there is one; words decide elsewhere, but for CMake's "-- " lines,
    which report failed feature tests as a matter of course.
    """
    letter = _LEVEL.match(text)
    if letter:
        return _BY_LETTER[letter[1]]
    if text.startswith("-- "):
        return ""
    if _ERROR.search(text, 0, LOOK):
        return " e"
    return " w" if _WARNING.search(text, 0, LOOK) else ""


def render(data: bytes, start: int, fresh: bool, style: Style = PLAIN) -> str:
    """Return the spans of the lines in data, which begins at byte `start` of the log in the given style.

    Each span names the byte at which its line begins (data-at). `fresh` says that data begins a line; else
    the first span goes on with the line before it and has the class "c".
    """
    return "".join(_spans(data, start, fresh, style))


def _spans(data: bytes, at: int, fresh: bool, style: Style) -> Iterator[str]:
    lines = data.split(b"\n")
    rest = lines.pop()
    for line in lines:
        span, style = _span(line, at, fresh, "\n", style)
        yield span
        at += len(line) + 1
        fresh = True
    if rest:
        yield _span(rest, at, fresh, "", style)[0]


def _span(line: bytes, at: int, fresh: bool, end: str, style: Style) -> tuple[str, Style]:
    text = line.decode("utf-8", "replace")
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if style != PLAIN or "\x1b" in text:
        shown = plain(text)
        html, style = coloured(text, style)
    else:
        shown, html = text, escape(text)
    if "\r" in html:
        html = html.replace("\r", "&#13;")  # a bare one would reach the page as a line feed
    kind = level(shown) if fresh else " c"
    return f'<span class="l{kind}" data-at="{at}">{html}{end}</span>', style


def piece(
    html: str,
    start: int,
    end: int,
    *,
    first: int | None = None,
    snapshot: bool = False,
    here: int | None = None,
    time: float | None = None,
) -> str:
    """Return rendered lines in the element that names their bytes.

    `first` is the log's first byte that is still there, `here` the first byte of the line that was asked for,
    `time` when the text arrived (seconds since 1970).
    """
    more = " data-snapshot" if snapshot else ""
    more += f' data-first="{first}"' if first is not None else ""
    more += f' data-here="{here}"' if here is not None else ""
    more += f' data-time="{time * 1000:.0f}"' if time is not None else ""
    return f'<span class="lf" data-start="{start}" data-end="{end}"{more}>{html}</span>'


def gap(start: int, end: int, lines: int | None) -> str:
    """Return the button that stands for text which was not sent; its label is added in the browser."""
    known = "" if lines is None else f' data-lines="{lines}"'
    return f'<button type="button" class="log-gap" data-start="{start}" data-end="{end}"{known}></button>'


def frame(run_id: str, inner: str, *, replace: bool = False) -> str:
    """Return the message that appends to the run's viewer, or replaces what it shows."""
    return f'<div id="log-{run_id}" hx-swap-oob="{"innerHTML" if replace else "beforeend"}">{inner}</div>'
