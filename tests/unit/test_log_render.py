"""Log text as HTML: what the page shows is what the file says."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.logs.ansi import PLAIN, Style, plain, style_after
from jobs.logs.cut import BATCH, BATCH_LINES, batch_ends, utf8_cut, utf8_start
from jobs.logs.render import frame, gap, level, piece, render
from jobs.logs.window import FRAME, KEEP, Window

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


def test_a_colour_lasts_over_line_ends_and_batches() -> None:
    markup = render(b"\x1b[1;32mone\ntwo\x1b[0m\nthree\n", 0, True)
    assert markup.count('<span class="ansi1 ansi32">') == 2
    assert '<span class="l" data-at="18">three' not in markup
    assert "three\n</span>" in markup and ">three" in markup
    style = style_after(b"\x1b[1;32mone\n")
    assert '<span class="ansi1 ansi32">two</span>' in render(b"two\n", 12, True, style)


@given(st.lists(st.sampled_from([b"\x1b[31m", b"\x1b[0m", b"\x1b[1;44m", b"\x1b[m", b"a", b"<", b"\n"])))
def test_batches_are_coloured_as_the_whole_text_is(parts: list[bytes]) -> None:
    data = b"".join(parts)
    whole = render(data, 0, True)
    for place in range(len(parts) + 1):
        head, tail = b"".join(parts[:place]), b"".join(parts[place:])
        if head and not head.endswith(b"\n"):
            continue
        style = style_after(head)
        assert render(head, 0, True) + render(tail, len(head), True, style) == whole


@pytest.mark.parametrize(
    ("sequence", "classes"),
    [
        ("1;31", "ansi1 ansi31"),
        ("38;5;9", "ansi91"),
        ("38;5;196", "ansi91"),
        ("38;5;22", "ansi30"),
        ("48;5;19", "ansi44"),
        ("38:5:2", "ansi32"),
        ("38;2;255;255;254", "ansi97"),
        ("38:2::0:205:0", "ansi32"),
        ("38;2;1;2;3;1", "ansi1 ansi30"),
        ("7", "ansi7"),
        ("7;33", "ansi43"),
        ("104", "ansi104"),
        ("4:3", "ansi4"),
        ("31;39", ""),
        ("38;5", ""),
        ("38;5;999", ""),
        ("9" * 5000, ""),
        (";" * 5000, ""),
    ],
)
def test_all_colours_are_shown_as_the_nearest_of_sixteen(sequence: str, classes: str) -> None:
    markup = render(f"\x1b[{sequence}mx\n".encode(), 0, True)
    assert (f'<span class="{classes}">x</span>' in markup) if classes else (">x\n" in markup)


def test_every_class_has_its_colour_in_the_style_sheet() -> None:
    sheet = (Path(__file__).parents[2] / "static" / "panel" / "css" / "log.css").read_text(encoding="utf-8")
    codes = [1, 2, 3, 4, 7, 9, *range(30, 38), *range(40, 48), *range(90, 98), *range(100, 108)]
    assert [code for code in codes if not re.search(rf"\.ansi{code}\b", sheet)] == []


@pytest.mark.parametrize(
    "text",
    [
        b"\n",
        b"x\n",
        b"\x1b[1;2;3;4;9;31;41mx\n",
        b"\x1b[3mx\x1b[23mx",
        b"&",
        b"\r",
        b"\0",
        b"\x1b[31mx\x1b[m\n",
    ],
)
def test_no_frame_is_larger_than_256_kilobytes(text: bytes) -> None:
    window = Window(0, True)
    cursor = window.cursor(0)
    data = text * (200 * 1024 // len(text))
    done = 0
    for end in batch_ends(data, final=True):
        window.add(data[done:end])
        done = end
    received = 0
    while (piece := window.after(cursor)) is not None:
        assert len(piece.html.encode()) <= FRAME + 200
        cursor = piece.cursor
        received += 1
    assert cursor.at == len(data)


def test_html_much_longer_than_its_text_is_not_kept() -> None:
    window = Window(0, True)
    for _ in range(KEEP // BATCH_LINES):
        window.add(b"\n" * BATCH_LINES)
    cursor = window.cursor(0)
    while (piece := window.after(cursor)) is not None:
        cursor = piece.cursor
    assert sum(len(chunk.html) for chunk in window._chunks) == 0


def test_a_frame_has_one_time_that_is_true_for_all_of_its_text() -> None:
    window = Window(0, True)
    cursor = window.cursor(0)
    for data, time in [(b"a\n", 10.0), (b"b\n", 10.5), (b"c\n", 12.0), (b"d\n", None)]:
        window.add(data, time)
    found = []
    while (piece_ := window.after(cursor)) is not None:
        found.append((shown(piece_.html), re.findall(r'data-time="(\d+)"', piece_.html)))
        cursor = piece_.cursor
    assert found == [("a\nb\n", ["10000"]), ("c\n", ["12000"]), ("d\n", [])]


def test_a_viewer_that_begins_inside_a_batch_gets_its_colour() -> None:
    window = Window(0, True, Style(fg=2))
    window.add(b"one\ntwo\n")
    piece_ = window.after(window.cursor(4))
    assert piece_ is not None and '<span class="ansi32">two</span>' in piece_.html
    assert style_after(b"\x1b[0m", Style(fg=2)) == PLAIN


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
        assert batch.count(b"\n") <= BATCH_LINES
        batch.decode()
        assert batch.endswith(b"\n") or b"\n" not in batch


def test_a_batch_has_at_most_1024_lines() -> None:
    assert batch_ends(b"\n" * 2500) == [1024, 2048, 2500]


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
