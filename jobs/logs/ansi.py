"""Terminal sequences in log text: colours become class names and last until the next one changes them.

256 colours and true colours are shown as the nearest of the terminal's 16, so that one short style sheet fits
every log in which the text is always readable on the dark ground.
"""

import re
from functools import lru_cache
from typing import NamedTuple

# CSI, OSC, charset and other short sequences, as ECMA-48 builds them.
SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-Z\\^-~])")
# The same in bytes that hold many lines: none reaches over a line end.
_SEQUENCE_BYTES = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-Z\\^-~])"
)
_COLOUR = re.compile(r"\x1b\[([\d;:]*)m")
_COLOUR_BYTES = re.compile(rb"\x1b\[([\d;:]*)m")

_XTERM = (
    *((0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205)),
    *((229, 229, 229), (127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255)),
    *((255, 0, 255), (0, 255, 255), (255, 255, 255)),
)
_CUBE = (0, 95, 135, 175, 215, 255)
_ON = {1: 1, 2: 2, 3: 3, 4: 4, 7: 7, 9: 9, 21: 4}
_OFF = {22: {1, 2}, 23: {3}, 24: {4}, 27: {7}, 29: {9}}
_INVERSE = 7


class Style(NamedTuple):
    """How text looks: colours 0 to 15 or None, and the codes that are on (1 bold, 2 dim, 3, 4, 7, 9)."""

    fg: int | None = None
    bg: int | None = None
    on: frozenset[int] = frozenset()


PLAIN = Style()


def plain(text: str) -> str:
    """Return the text without terminal sequences, as the page shows it."""
    return SEQUENCE.sub("", text).replace("\x1b", "\u241b") if "\x1b" in text else text


def without_sequences(data: bytes) -> bytes:
    """Return the bytes without terminal sequences; line ends stay."""
    return _SEQUENCE_BYTES.sub(b"", data) if b"\x1b" in data else data


def style_after(data: bytes, style: Style = PLAIN) -> Style:
    """Return the style in which the text after the data goes on."""
    if b"\x1b" in data:
        for match in _COLOUR_BYTES.finditer(data):
            style = _applied(style, match[1].decode())
    return style


def escape(text: str) -> str:
    """Return the text as HTML; quotes stay, because it never stands in an attribute."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def coloured(text: str, style: Style) -> tuple[str, Style]:
    """Return one line as HTML, sequences gone and colours as classes, and the style after it."""
    parts: list[str] = []
    run, done = "", 0
    for match in SEQUENCE.finditer(text):
        run += text[done : match.start()]
        done = match.end()
        colour = _COLOUR.fullmatch(match[0])
        if colour and (then := _applied(style, colour[1])) != style:
            parts.append(_span(run, style))
            run, style = "", then
    parts.append(_span(run + text[done:], style))
    return "".join(parts), style


def _span(text: str, style: Style) -> str:
    html = escape(text).replace("\x1b", "\u241b")
    names = _classes(style) if html else ""
    return f'<span class="{names}">{html}</span>' if names else html


@lru_cache(1024)
def _classes(style: Style) -> str:
    codes = sorted(style.on)
    fg, bg = style.fg, style.bg
    if _INVERSE in style.on and fg is not None:
        # All grounds are dark and all letters light: only the ground changes.
        codes.remove(_INVERSE)
        fg, bg = None, fg
    if fg is not None:
        codes.append(fg + (30 if fg < 8 else 82))
    if bg is not None:
        codes.append(bg + (40 if bg < 8 else 92))
    return " ".join(f"ansi{code}" for code in codes)


@lru_cache(4096)
def _applied(style: Style, parameters: str) -> Style:
    """Return the style after one colour sequence, whose parameters are numbers between ";" and ":"."""
    codes = parameters.split(";")
    place = 0
    while place < len(codes):
        code, *parts = codes[place].split(":")
        number = _number(code)
        place += 1
        if number in {38, 48}:
            if not parts:
                length = {2: 4, 5: 2}.get(_number(codes[place]) if place < len(codes) else 0, 1)
                parts = codes[place : place + length]
                place += length
            colour = _nearest([_number(part) for part in parts])
            style = style._replace(fg=colour) if number == 38 else style._replace(bg=colour)
        elif number == 4 and parts and _number(parts[0]) == 0:
            style = style._replace(on=style.on - {4})
        else:
            style = _with(style, number)
    return style


def _with(style: Style, code: int) -> Style:
    if code == 0:
        return PLAIN
    if code in _ON:
        return style._replace(on=style.on | {_ON[code]})
    if code in _OFF:
        return style._replace(on=style.on - _OFF[code])
    if 30 <= code <= 37 or 90 <= code <= 97:
        return style._replace(fg=code - (30 if code < 90 else 82))
    if 40 <= code <= 47 or 100 <= code <= 107:
        return style._replace(bg=code - (40 if code < 100 else 92))
    if code == 39:
        return style._replace(fg=None)
    return style._replace(bg=None) if code == 49 else style


def _nearest(parts: list[int]) -> int | None:
    """Return which of the 16 colours is nearest to [5, number] or [2, ..., red, green, blue]."""
    if len(parts) == 2 and parts[0] == 5 and parts[1] < 256:
        number = parts[1]
        if number < 16:
            return number
        if number >= 232:
            return _near((8 + 10 * (number - 232),) * 3)
        cube = number - 16
        return _near((_CUBE[cube // 36], _CUBE[cube // 6 % 6], _CUBE[cube % 6]))
    if len(parts) >= 4 and parts[0] == 2:
        red, green, blue = parts[-3:]
        return _near((red, green, blue))
    return None


def _near(colour: tuple[int, int, int]) -> int:
    def distance(place: int) -> int:
        return sum((a - b) ** 2 for a, b in zip(colour, _XTERM[place], strict=True))

    return min(range(16), key=distance)


def _number(digits: str) -> int:
    # No terminal knows longer numbers, and very long ones are slow to read.
    return int(digits) if 0 < len(digits) < 5 else 0 if not digits else 9999
