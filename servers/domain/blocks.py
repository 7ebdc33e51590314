"""Cuts a growing Markdown text into blocks that are complete and a tail that is still open."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

# Characters of one block; what is longer is cut at a line end and shown as plain text.
MAX_BLOCK = 64 * 1024

Kind = Literal["none", "text", "code", "list", "fence"]
_FENCE = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_ITEM = re.compile(r"( {0,3})(?:[-+*]|\d{1,9}[.)])(?:[ \t]|$)")
_RULE = re.compile(r" {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
_INDENT = re.compile(r" {4}| {0,3}\t")


@dataclass(frozen=True)
class Block:
    """A complete part of the text; `plain` when it is too long to be read as Markdown."""

    text: str
    plain: bool = False


class BlockSplitter:
    """Text in, complete blocks out; all blocks and the tail together are the text, however it was cut.

    Only whole lines are looked at, each of them once, so the blocks do not depend on how the text arrives.
    """

    def __init__(self) -> None:
        self._kind: Kind = "none"
        self._fence = ""  # the marker that opened the fence, which may be one inside a list
        self._indent = 0  # columns at which the text of the last item of a list begins
        self._plain = False
        self._lines: list[str] = []
        self._size = 0
        self._blanks = 0  # blank lines at the end of `_lines`
        self._rest: list[str] = []

    @property
    def tail(self) -> str:
        """Return the text after the last complete block."""
        return "".join((*self._lines, *self._rest))

    def feed(self, text: str) -> list[Block]:
        """Return the blocks that this text completes."""
        head, line_end, rest = text.rpartition("\n")
        if not line_end:
            if text:
                self._rest.append(text)
            return []
        self._rest.append(head)
        lines = "".join(self._rest).split("\n")
        self._rest = [rest] if rest else []
        blocks: list[Block] = []
        for line in lines:
            self._line(line, blocks)
        return blocks

    def end(self) -> list[Block]:
        """Return what is still open as blocks; nothing can be fed afterwards."""
        blocks: list[Block] = []
        if rest := "".join(self._rest):
            self._rest = []
            if self._begins_another(rest):
                self._close(blocks)
            self._keep(rest, blocks)
        self._close(blocks)
        return blocks

    def _line(self, line: str, blocks: list[Block]) -> None:
        if self._fence:
            self._keep(line + "\n", blocks)
            if _closes(line, self._fence):
                self._fence = ""
                if self._kind == "fence":
                    self._close(blocks)
            return
        if not line.strip():
            self._keep(line + "\n", blocks)
            if self._kind in ("none", "text"):
                self._close(blocks)
            else:
                self._blanks += 1
            return
        if self._begins_another(line):
            self._close(blocks)
        self._blanks = 0
        fence = _FENCE.match(line) if self._kind != "list" else _FENCE.match(line.lstrip(" \t"))
        if fence:
            self._fence = fence[2]
        if self._kind == "none":
            self._kind = _kind_of(line)
        item = _ITEM.match(line) if self._kind == "list" else None
        if item and (not self._indent or len(item[1]) < self._indent):
            self._indent = len(item[0])
        self._keep(line + "\n", blocks)
        if self._kind == "text" and _HEADING.match(line):
            self._close(blocks)

    def _begins_another(self, line: str) -> bool:
        """True when the line cannot belong to the open block."""
        if self._fence or self._kind == "none":
            return False
        if self._kind == "code":
            return not _INDENT.match(line)
        if self._kind == "list":
            return self._ends_list(line)
        if _FENCE.match(line) or _HEADING.match(line):
            return True
        return bool(_ITEM.match(line)) and not _RULE.match(line) and _may_interrupt(line)

    def _ends_list(self, line: str) -> bool:
        columns = line.expandtabs(4)
        if len(columns) - len(columns.lstrip(" ")) >= self._indent:
            return False
        if _FENCE.match(line) or _HEADING.match(line) or _RULE.match(line):
            return True
        return self._blanks > 0 and not _ITEM.match(line)

    def _keep(self, text: str, blocks: list[Block]) -> None:
        self._lines.append(text)
        self._size += len(text)
        if self._size > MAX_BLOCK:
            # The block goes on, in plain pieces: what is open in it stays open.
            self._plain = True
            self._emit(blocks)

    def _close(self, blocks: list[Block]) -> None:
        self._emit(blocks)
        self._kind, self._fence, self._plain = "none", "", False
        self._blanks = self._indent = 0

    def _emit(self, blocks: list[Block]) -> None:
        if self._lines:
            blocks.append(Block("".join(self._lines), self._plain))
        self._lines = []
        self._size = 0


def split_blocks(text: str) -> list[Block]:
    """Return the whole text as blocks."""
    splitter = BlockSplitter()
    return [*splitter.feed(text), *splitter.end()]


def _kind_of(line: str) -> Kind:
    if _FENCE.match(line):
        return "fence"
    if _INDENT.match(line):
        return "code"
    return "list" if _ITEM.match(line) and not _RULE.match(line) else "text"


def _may_interrupt(line: str) -> bool:
    # As in CommonMark, a paragraph goes on at "1986. A good year" and at an empty item.
    marker, _, text = line.strip().partition(" ")
    return bool(text.strip()) and marker in {"-", "+", "*", "1.", "1)"}


def _closes(line: str, fence: str) -> bool:
    mark = line.strip(" \t\r")
    return len(mark) >= len(fence) and not mark.strip(fence[0])
