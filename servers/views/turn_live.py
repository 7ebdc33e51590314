"""An answer while it comes: complete blocks as HTML, and the open rest as plain text."""

import asyncio

from servers.domain.blocks import Block, BlockSplitter
from servers.services import markdown

INLINE = 400  # characters rendered within the event loop, where a thread would cost more


class LiveAnswer:
    """Grows with the text of an answer; each block is rendered once, when it is complete."""

    def __init__(self) -> None:
        self.begun = False  # whether its reader was told that text comes
        self._splitter = BlockSplitter()
        self._length = 0
        self._html: list[str] = []

    @classmethod
    def of(cls, text: str) -> "LiveAnswer":
        """Return what is kept of an answer, rendered in this thread."""
        live = cls()
        live._take(live._feed(text))
        return live

    @property
    def html(self) -> str:
        """Return all complete blocks."""
        return "".join(self._html)

    @property
    def tail(self) -> str:
        """Return the text after the last complete block."""
        return self._splitter.tail

    async def add(self, text: str) -> str:
        """Take in more text; returns the HTML of the blocks that it completes, "" for none."""
        blocks = self._feed(text)
        if not blocks:
            return ""
        if sum(len(block.text) for block in blocks) <= INLINE and markdown.is_loaded():
            return self._take(blocks)
        return await asyncio.to_thread(self._take, blocks)

    async def grow(self, text: str) -> None:
        """Take in the whole text as it is now, of which the beginning is known already."""
        await self.add(text[self._length :])

    def _feed(self, text: str) -> list[Block]:
        self._length += len(text)
        return self._splitter.feed(text)

    def _take(self, blocks: list[Block]) -> str:
        made = markdown.with_buttons("".join(map(markdown.block_html, blocks)))
        self._html.append(made)
        return made
