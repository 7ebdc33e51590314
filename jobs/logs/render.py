"""Log text to HTML: one span per line, level and ANSI colours by class, the text itself unchanged.

With all tags removed and entities resolved the HTML is the text of the file, but for what no page can hold:
bytes that are not UTF-8 and NUL become U+FFFD, terminal escape sequences go (colours become classes), and an
ESC that belongs to no sequence becomes U+241B.
"""

import re
from collections.abc import Iterator

from ansi2html import Ansi2HTMLConverter
from ansi2html.style import pop_truecolor_styles

# CSI, OSC, charset and other short sequences, as ECMA-48 builds them.
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-Z\\^-~])")
_COLOUR = re.compile(r"\x1b\[[\d;:]*m")
_LEVEL = re.compile(r"(?:\d+\.\d\d\.\d{3}\.\d{3} )?([IWED]) ")
_ERROR = re.compile(r"\b(?:error|failed|failure|fatal)\b", re.IGNORECASE)
_WARNING = re.compile(r"\bwarn(?:ing)?s?\b", re.IGNORECASE)
_LOOK = 400  # characters of a line that decide its level
_BY_LETTER = {"E": " e", "W": " w", "I": "", "D": ""}


def plain(text: str) -> str:
    """Return the text without terminal escape sequences, as the page shows it."""
    return _SEQUENCE.sub("", text).replace("\x1b", "\u241b") if "\x1b" in text else text


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
    if _ERROR.search(text, 0, _LOOK):
        return " e"
    return " w" if _WARNING.search(text, 0, _LOOK) else ""


def render(data: bytes, start: int, fresh: bool) -> str:
    """Return the spans of the lines in data, which begins at byte `start` of the log.

    Each span names the byte at which its line begins (data-at). `fresh` says that data begins a line; else
    the first span goes on with the line before it and has the class "c".
    """
    return "".join(_spans(data, start, fresh))


def _spans(data: bytes, at: int, fresh: bool) -> Iterator[str]:
    lines = data.split(b"\n")
    rest = lines.pop()
    for line in lines:
        yield _span(line, at, fresh, "\n")
        at += len(line) + 1
        fresh = True
    if rest:
        yield _span(rest, at, fresh, "")


def _span(line: bytes, at: int, fresh: bool, end: str) -> str:
    text = line.decode("utf-8", "replace")
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if "\x1b" in text:
        shown, html = plain(text), _coloured(text)
    else:
        shown = text
        html = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if "\r" in html:
        html = html.replace("\r", "&#13;")  # a bare one would reach the page as a line feed
    kind = level(shown) if fresh else " c"
    return f'<span class="l{kind}" data-at="{at}">{html}{end}</span>'


def _coloured(text: str) -> str:
    parts: list[str] = []
    done = 0
    for match in _SEQUENCE.finditer(text):
        parts.append(text[done : match.start()].replace("\x1b", "\u241b"))
        if _COLOUR.fullmatch(match[0]):
            parts.append(match[0])
        done = match.end()
    parts.append(text[done:].replace("\x1b", "\u241b"))
    html: str = Ansi2HTMLConverter(inline=False).convert("".join(parts), full=False)
    # The converter remembers every true colour for ever, for a style sheet that nobody asks for.
    pop_truecolor_styles()
    return html


def piece(html: str, start: int, end: int, *, first: int | None = None) -> str:
    """Return rendered lines in the element that names their bytes; `first`, the log's start: a snapshot."""
    snapshot = "" if first is None else f' data-snapshot data-first="{first}"'
    return f'<span class="lf" data-start="{start}" data-end="{end}"{snapshot}>{html}</span>'


def gap(start: int, end: int, lines: int | None) -> str:
    """Return the button that stands for text which was not sent; its label is added in the browser."""
    known = "" if lines is None else f' data-lines="{lines}"'
    return f'<button type="button" class="log-gap" data-start="{start}" data-end="{end}"{known}></button>'


def frame(run_id: str, inner: str, *, replace: bool = False) -> str:
    """Return the message that appends to the run's viewer, or replaces what it shows."""
    return f'<div id="log-{run_id}" hx-swap-oob="{"innerHTML" if replace else "beforeend"}">{inner}</div>'
