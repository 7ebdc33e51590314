"""Markdown of answers: what it looks like, and that no text of a model becomes more than text."""

import re
import runpy
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers.domain.blocks import Block
from servers.services import markdown
from servers.services.markdown import answer_html, block_html, with_buttons

ROOT = Path(__file__).resolve().parents[2]
ATTRIBUTES = {
    "a": {"href", "title", "class", "target", "rel"},
    "ol": {"start"},
    "pre": {"class", "tabindex"},
    "td": {"class"},
    "th": {"class"},
    "span": {"class"},
    "div": {"class"},
}


class Seen(HTMLParser):
    """All tags with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_usual_marks_become_html() -> None:
    made = answer_html("# Head\n\n**bold** `code`\n\n- a\n- b\n\n| x | y |\n|---|--:|\n| 1 | 2 |\n")
    for part in ("<h4>Head</h4>", "<strong>bold</strong> <code>code</code>", "<li>a</li>", "<th>x</th>"):
        assert part in made
    assert '<td class="to-right">2</td>' in made and "style=" not in made


def test_code_is_coloured_by_classes_and_named() -> None:
    made = answer_html('```python title="x"\ndef f(): return "<b>"\n```')
    assert '<span class="k">def</span>' in made and "&lt;b&gt;" in made and "<span>python</span>" in made
    assert '<pre class="highlight" tabindex="0"><code>' in made and made.count("<pre") == 1


@pytest.mark.parametrize("name", ["nonsense", "", "<img src=x>", "x'onclick='y", "../../x"])
def test_code_in_an_unknown_language_stays_plain(name: str) -> None:
    made = answer_html(f"```{name}\na < b\n```")
    assert "a &lt; b\n</code>" in made and {tag for tag, _ in Seen(made).tags} == {
        "div",
        "span",
        "pre",
        "code",
    }


def test_every_named_lexer_exists() -> None:
    for name in markdown._lexer_names():
        assert "<code>" in answer_html(f"```{name}\nx = 1\n```")


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](data:text/html,<script>)",
        "[x](vbscript:x)",
        "[x](//evil.example/)",
        "[x](/accounts/logout/)",
        "![x](/turns/1/stop)",
        "![x](data:image/png;base64,AAAA)",
        "<javascript:alert(1)>",
        '<div hx-get="/x" hx-trigger="load">',
        '<style>*{display:none}</style><base href="https://evil.example">',
    ],
)
def test_what_could_act_stays_text(text: str) -> None:
    assert {tag for tag, _ in Seen(answer_html(text)).tags} <= {"p", "br"}


def test_links_leave_the_page_alone_and_pictures_are_only_links() -> None:
    made = answer_html(
        "[a](https://example.org/?a=1&b=2) ![b](https://example.org/b.png) <mailto:c@example.org>"
    )
    links = [attributes for tag, attributes in Seen(made).tags if tag == "a"]
    assert [link["href"] for link in links] == [
        "https://example.org/?a=1&b=2",
        "https://example.org/b.png",
        "mailto:c@example.org",
    ]
    assert all((link["rel"], link["target"]) == ("noopener nofollow", "_blank") for link in links)
    assert "<img" not in made


MARKS = [
    "[",
    "](",
    ")",
    "![",
    "<",
    ">",
    "`",
    "```",
    "\n",
    "*",
    "_",
    "|",
    "|--|",
    "&",
    '"',
    "'",
    "http://a",
    "- ",
]
MARKS += [
    "javascript:",
    "hx-get=",
    "<span class=",
    "onload=",
    "&#x3c;",
    "\\",
    "# ",
    "    ",
    "<!--",
    "]]>",
    "a",
]


@given(st.lists(st.sampled_from(MARKS) | st.text(max_size=4), max_size=60).map("".join))
def test_no_text_makes_other_tags_attributes_or_addresses(text: str) -> None:
    for made in (answer_html(text), block_html(Block(text)), block_html(Block(text, plain=True))):
        for tag, attributes in Seen(made).tags:
            assert tag in markdown._TAGS and set(attributes) <= ATTRIBUTES.get(tag, set())
            assert re.match("https?:|mailto:", attributes.get("href") or "http:", re.IGNORECASE)


def test_copy_buttons_are_added_to_code_only() -> None:
    made = with_buttons(answer_html('a `<span class="code-copy"></span>`\n\n```\nx\n```\n'))
    assert made.count("data-copy-code") == 1


def test_what_is_too_long_stays_plain() -> None:
    made = answer_html("*short*\n\n```\n" + "<b>*x*\n" * 20_000 + "```\n\n*end*")
    assert made.startswith("<p><em>short</em></p>") and made.endswith("<p><em>end</em></p>\n")
    assert "&lt;b&gt;*x*" in made and "<pre" not in made


def test_blocks_one_by_one_look_like_the_whole() -> None:
    text = "# A\n\ntext\n\n- a\n- b\n\n```py\nx\n```\n\nend\n\n"
    blocks = ["# A\n\n", "text\n\n", "- a\n- b\n\n", "```py\nx\n```\n\n", "end\n\n"]
    assert "".join(block_html(Block(block)) for block in blocks) == answer_html(text)


@pytest.mark.parametrize(
    "text",
    ["[" * 65_000, "![" * 32_000, "**a" * 21_000, "- a\n" * 16_000, "`a``" * 16_000, ">" * 65_000]
    + [f"```{name}\n" + "a b " * 8_000 + "\n```" for name in markdown.LEXERS]
    + [f"```{name}\n" + "a b a b\n" * 4_000 + "```" for name in markdown.LEXERS]
    + [f"```{name}\n" + "\n" * 32_000 + "```" for name in ("c", "cpp", "csharp")],
    ids=lambda text: repr(text[:12]),
)
def test_no_text_takes_long(text: str) -> None:
    began = time.perf_counter()
    answer_html(text)
    assert time.perf_counter() - began < 10  # below 1 s on a free machine; without the limits up to 30 s


def test_the_style_sheet_of_code_is_the_generated_one() -> None:
    made = runpy.run_path(str(ROOT / "deploy" / "highlight_css.py"))["sheet"]()
    assert (ROOT / "static" / "panel" / "css" / "highlight.css").read_text() == made
