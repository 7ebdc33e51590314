"""Cutting a growing Markdown text into complete blocks: always the same ones, whatever the chunks."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers.domain.blocks import MAX_BLOCK, Block, BlockSplitter, split_blocks

PIECES = ["```", "```py", "~~~~", "- a", "  - b", "1. c", "10) d", "# e", "---", "> f", "| g | h |", "text"]
PIECES += ["    code", "\t", " ", "", "\n", "\n\n", "\r\n", "*", "1986. x", "   ```", "é🙂", "$$", "=="]
texts = st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=40).map("\n".join)


def fed(parts: list[str]) -> tuple[list[Block], str]:
    """The blocks and the tail after feeding the parts."""
    splitter = BlockSplitter()
    return [block for part in parts for block in splitter.feed(part)], splitter.tail


def cut(text: str, places: list[int]) -> list[str]:
    """The text cut at the places."""
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[a:b] for a, b in zip(edges, edges[1:], strict=False)]


@given(texts, st.lists(st.integers(0, 10_000), max_size=30))
def test_any_chunks_give_the_same_blocks_and_no_character_is_lost(text: str, places: list[int]) -> None:
    blocks, tail = fed(cut(text, places))
    assert (blocks, tail) == fed([text]) == fed(list(text))
    assert "".join(block.text for block in blocks) + tail == text
    assert "".join(block.text for block in split_blocks(text)) == text


@given(texts, texts)
def test_a_complete_block_stays_as_it_is_when_more_comes(text: str, more: str) -> None:
    blocks, _tail = fed([text])
    assert fed([text + more])[0][: len(blocks)] == blocks


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("one\ntwo\n\nthree\n", ["one\ntwo\n\n"]),
        ("# head\ntext", ["# head\n"]),
        ("text\n# head\n", ["text\n", "# head\n"]),
        ("```py\na\n\nb\n```\nmore", ["```py\na\n\nb\n```\n"]),
        ("text\n```\na\n```\n", ["text\n", "```\na\n```\n"]),
        ("````\n```\n````\n", ["````\n```\n````\n"]),
        ("~~~\n```\n~~~ x\n~~~\n", ["~~~\n```\n~~~ x\n~~~\n"]),
        ("- a\n\n- b\n\n  more of b\n\nafter\n", ["- a\n\n- b\n\n  more of b\n\n"]),
        ("1. a\n\n   ```sh\n   x\n\n   y\n   ```\n2. b\n\nend", []),
        (
            "1. a\n\n   ```sh\n   x\n\n   y\n   ```\n2. b\n\nend\n",
            ["1. a\n\n   ```sh\n   x\n\n   y\n   ```\n2. b\n\n"],
        ),
        ("- a\n  - b\n\n  of a\n\nend\n", ["- a\n  - b\n\n  of a\n\n"]),
        ("- a\n```\nx\n```\n", ["- a\n", "```\nx\n```\n"]),
        ("text\n- a\n\nend\n", ["text\n", "- a\n\n"]),
        ("In\n1986. A good year\n\n", ["In\n1986. A good year\n\n"]),
        ("    code\n\n    more\n\nend\n", ["    code\n\n    more\n\n"]),
        ("| a |\n|---|\n| 1 |\n\n", ["| a |\n|---|\n| 1 |\n\n"]),
        ("head\n---\n\n", ["head\n---\n\n"]),
        ("> a\n> b\n\nc", ["> a\n> b\n\n"]),
        ("no end", []),
    ],
)
def test_a_block_is_complete_when_nothing_can_be_added_to_it(text: str, blocks: list[str]) -> None:
    assert [block.text for block in fed([text])[0]] == blocks


def test_a_block_that_is_too_long_comes_in_plain_pieces_until_its_end() -> None:
    line = "x" * 999 + "\n"
    blocks = split_blocks("```\n" + line * 150 + "```\n\nafter\n\n")
    assert [block.plain for block in blocks] == [True, True, True, False, False]
    assert all(len(block.text) <= MAX_BLOCK + 1000 for block in blocks)
    assert blocks[-1].text == "after\n\n"


def test_a_long_answer_is_read_in_steady_time() -> None:
    splitter = BlockSplitter()
    word = "word " * 10 + "\n"
    began = time.perf_counter()
    for _ in range(20_000):  # an open fence of a megabyte, fed line by line
        splitter.feed(word)
    assert time.perf_counter() - began < 5
