"""Log text as HTML: what the page shows is what the file says."""

from __future__ import annotations

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.logs.cut import BATCH, batch_ends, utf8_cut, utf8_start
from jobs.logs.render import frame, gap, level, piece, plain, render

TAG = re.compile(r"<[^>]*>")

# Everything that UTF-8 can carry but NUL and ESC, which have replacements of their own.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\x1b"))


def shown(markup: str) -> str:
    """What a browser makes of it: no tags, entities resolved."""
    return html.unescape(TAG.sub("", markup))


def spans(markup: str) -> list[tuple[str, int]]:
    return [(kind, int(at)) for kind, at in re.findall(r'<span class="(l[^"]*)" data-at="(\d+)">', markup)]


@given(TEXT)
def test_the_shown_text_is_the_text_of_the_file(text: str) -> None:
    assert shown(render(text.encode(), 0, True)) == text


@given(
    st.lists(
        st.sampled_from(
            ["<b>", "&amp;", "\r", "\n", "\r\n", '"', "'", "\t", "中", "─", "\x07", "\x7f", "\x85"]
        )
    )
)
def test_markup_and_control_characters_reach_the_page_as_they_are(parts: list[str]) -> None:
    text = "".join(parts)
    markup = render(text.encode(), 7, True)
    assert shown(markup) == text
    assert "\r" not in markup


@given(TEXT, st.integers(0, 10**12))
def test_every_line_names_the_byte_at_which_it_begins(text: str, start: int) -> None:
    data = text.encode()
    begins = [0, *(at + 1 for at, byte in enumerate(data) if byte == 10)]
    expected = [start + at for at in begins if at < len(data)]
    assert [at for _, at in spans(render(data, start, True))] == expected


@given(st.binary())
def test_bytes_that_are_no_text_show_as_the_replacement_character(data: bytes) -> None:
    expected = data.decode("utf-8", "replace").replace("\0", "\ufffd")
    assert shown(render(data, 0, True)) == plain(expected)


@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                ["\x1b[31m", "\x1b[0m", "\x1b[1;38;5;9m", "\x1b[38;2;1;2;3m", "\x1b[2K", "\x1b[A", "\x1b(B"]
                + [
                    "\x1b]0;title\x07",
                    "\x1b]8;;http://a.example\x07",
                    "\x1b[",
                    "\x1b",
                    "\x1b[;;m",
                    "\n",
                    "<&>",
                ]
            ),
            TEXT,
        )
    )
)
def test_without_escape_sequences_the_text_is_the_same(parts: list[str]) -> None:
    text = "".join(parts)
    markup = render(text.encode(), 0, True)
    assert shown(markup) == "\n".join(plain(line) for line in text.split("\n"))
    assert " style=" not in "".join(TAG.findall(markup))


def test_colours_become_classes() -> None:
    assert 'class="ansi31"' in render(b"\x1b[31mred\x1b[0m\n", 0, True)


def test_a_link_in_the_log_is_no_link_in_the_page() -> None:
    assert "<a" not in render(b"\x1b]8;;javascript:alert(1)\x07click\x1b]8;;\x07", 0, True)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("0.00.014.261 W srv  llama_server: security: no API key is set", " w"),
        ("0.00.014.261 E srv  load_model: failed to load", " e"),
        ("0.00.014.261 I srv  update: 0 errors so far", ""),
        ("E llama_model_load: error loading model", " e"),
        ("error: invalid argument: --nope", " e"),
        ("main: exiting due to model loading Error", " e"),
        ("CMake Warning (dev) at CMakeLists.txt:3:", " w"),
        ("-- Performing Test HAS_FLAG - Failed", ""),
        ("terror and failedness are other words", ""),
        ("main: server is listening on http://127.0.0.1:18080", ""),
    ],
)
def test_a_line_has_the_level_that_llama_cpp_or_its_words_give_it(line: str, kind: str) -> None:
    assert level(line) == kind


def test_a_piece_that_goes_on_with_a_line_says_so() -> None:
    assert [kind for kind, _ in spans(render(b"rest\nnext\n", 100, False))] == ["l c", "l"]


@given(st.binary(max_size=40))
def test_a_cut_never_splits_a_character(data: bytes) -> None:
    text = (data.decode("utf-8", "ignore") + "中").encode()
    for length in range(len(text) + 1):
        head = text[:length]
        whole = utf8_cut(head)
        head[:whole].decode()
        assert length - whole < 4
        tail = text[length:]
        tail[utf8_start(tail) :].decode()
        assert utf8_start(tail) < 4


@given(st.lists(st.integers(0, 3 * BATCH), max_size=6), st.booleans())
def test_batches_are_small_and_end_at_line_ends_where_there_are_any(
    lengths: list[int], open_end: bool
) -> None:
    text = "\n".join("界" * (length // 3) for length in lengths) + ("" if open_end else "\n")
    data = text.encode()
    ends = batch_ends(data, final=True)
    assert ends[-1:] == ([len(data)] if data else [])
    for begin, end in zip([0, *ends], ends, strict=False):
        batch = data[begin:end]
        assert 0 < len(batch) <= BATCH
        batch.decode()
        assert batch.endswith(b"\n") or b"\n" not in batch


def test_an_unfinished_line_waits_until_it_is_flushed() -> None:
    data = "one\ntwo 界".encode()
    assert batch_ends(data) == [4]
    assert batch_ends(data, flush=True) == [4, len(data)]
    assert batch_ends(data[:-1], flush=True) == [4, len(data) - 3]
    assert batch_ends(data[:-1], final=True) == [4, len(data) - 1]


def test_a_frame_appends_and_a_snapshot_replaces() -> None:
    inner = piece("x", 5, 6)
    assert frame("r1", inner) == (
        '<div id="log-r1" hx-swap-oob="beforeend"><span class="lf" data-start="5" data-end="6">x</span></div>'
    )
    assert 'hx-swap-oob="innerHTML"' in frame("r1", piece("x", 5, 6, first=2), replace=True)


def test_a_gap_adds_no_text() -> None:
    assert shown(gap(3, 9, 2)) == ""
    assert "data-lines" not in gap(3, 9, None)
