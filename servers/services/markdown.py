"""Markdown of answers as safe HTML: no raw HTML, no images, no styles, links that leave the page alone.

The libraries are imported where they are used: a web process in which nobody chats does not pay for them.
Rendering takes about a millisecond per thousand characters: call it in a thread.
"""

import html
import logging
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext as _

from servers.domain.blocks import MAX_BLOCK, Block, split_blocks

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

logger = logging.getLogger(__name__)
VERSION = 1  # of the stored HTML; raise it with any change of what is made
MAX_WHOLE = 64 * 1024  # characters rendered in one go; a longer answer is rendered block by block
# Lexers are regular expressions, some of which take seconds for long lines or long runs of white space.
MAX_HIGHLIGHTED = 32 * 1024  # characters of one piece of code
MAX_LINE = 500  # characters
# Some of them take that long for many words in a row without any sign.
MAX_SLOW = {"csharp": 4096, "java": 4096, "typescript": 16_384}
LONG_GAP = re.compile(r"\s{200}")
# Where the copy button goes: stored HTML knows no language. Text of an answer cannot contain a tag.
COPY_SLOT = '<span class="code-copy"></span>'
ADDRESS = re.compile(r"(?:https?://|mailto:)", re.IGNORECASE)
WORD = re.compile(r"[\w+#.-]{1,30}")
# Lexers that are known to be quick on any text; a name outside the list is shown without colours.
LEXERS = {
    "bash": "sh shell zsh console shell-session shellsession",
    "batch": "bat",
    "c": "",
    "cmake": "",
    "cpp": "c++ cuda cu cxx hpp",
    "csharp": "c# cs",
    "css": "scss",
    "diff": "patch udiff",
    "docker": "dockerfile",
    "go": "golang",
    "html": "xml svg",
    "ini": "cfg conf",
    "java": "",
    "javascript": "js jsx",
    "json": "jsonc json5",
    "kotlin": "kt",
    "lua": "",
    "make": "makefile mk",
    "nginx": "",
    "php": "",
    "powershell": "ps1 pwsh",
    "python": "py python3 py3",
    "pycon": "",
    "ruby": "rb",
    "rust": "rs",
    "sql": "sqlite postgresql mysql",
    "swift": "",
    "toml": "",
    "typescript": "ts tsx",
    "yaml": "yml",
}


def answer_html(text: str) -> str:
    """Return a whole answer as HTML without copy buttons; what is too long for Markdown stays plain."""
    blocks = split_blocks(text)
    if len(text) <= MAX_WHOLE and not any(block.plain for block in blocks):
        return _rendered(text)
    return "".join(block_html(block) for block in blocks)


def block_html(block: Block) -> str:
    """Return one complete block as HTML without copy buttons."""
    if block.plain or len(block.text) > MAX_BLOCK:
        return _plain(block.text)
    return _rendered(block.text)


def is_loaded() -> bool:
    """True when the libraries are imported already, which takes about 80 ms."""
    return _parser.cache_info().currsize > 0


def with_buttons(text: str) -> str:
    """Return rendered HTML with a copy button for each piece of code, in the active language."""
    if COPY_SLOT not in text:
        return text
    done, label = _attribute(_("Copied")), html.escape(_("Copy"))
    button = f'<button type="button" class="btn btn-sm" data-copy-code data-done="{done}">{label}</button>'
    return text.replace(COPY_SLOT, button)


def _plain(text: str) -> str:
    return f'<div class="turn-text">{html.escape(text)}</div>'


def _rendered(text: str) -> str:
    import nh3

    try:
        made = _parser().render(text)
    except Exception:  # no answer is lost for a text that the library cannot read
        logger.exception("Markdown of %d characters", len(text))
        return _plain(text)
    # What is made is safe already; cleaning holds even if the renderer has a hole.
    return nh3.clean(
        made,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )


_TAGS = {"p", "br", "hr", "h4", "h5", "h6", "blockquote", "ul", "ol", "li", "pre", "code", "span", "div"} | {
    *("em", "strong", "s", "a", "table", "thead", "tbody", "tr", "th", "td")
}
_ATTRIBUTES = {
    "a": {"href", "title", "class"},
    "ol": {"start"},
    "pre": {"class", "tabindex"},
    "td": {"class"},
    "th": {"class"},
    "span": {"class"},
    "div": {"class"},
}


@lru_cache(maxsize=1)
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    parser = MarkdownIt("js-default", {"html": False, "linkify": False, "breaks": True, "maxNesting": 20})
    # Addresses within the panel, and such that run or hold something, stay the text that they are.
    parser.validateLink = lambda url: bool(ADDRESS.match(url.strip()))  # type: ignore[method-assign]
    for name, rule in (
        ("fence", _code),
        ("code_block", _code),
        ("image", _image),
        ("heading_open", _heading),
        ("heading_close", _heading),
        ("th_open", _cell),
        ("td_open", _cell),
        ("table_open", lambda *_args: '<div class="scroll"><table>'),
        ("table_close", lambda *_args: "</table></div>"),
    ):
        parser.add_render_rule(name, _as_method(rule))
    return parser


def _as_method(rule: Any) -> Any:
    return lambda _renderer, tokens, index, _options, _env: rule(tokens, index)


def _code(tokens: "Sequence[Token]", index: int) -> str:
    token = tokens[index]
    word = WORD.match(token.info.strip())
    language = word[0] if word else ""
    code = _highlighted(token.content, language)
    return (
        f'<div class="code"><div class="code-head"><span>{html.escape(language)}</span>{COPY_SLOT}</div>'
        f'<pre class="highlight" tabindex="0"><code>{code}</code></pre></div>\n'
    )


def _image(tokens: "Sequence[Token]", index: int) -> str:
    # Loading it would tell its server who reads the answer.
    token = tokens[index]
    address = str(token.attrs.get("src", ""))
    return f'<a class="picture" href="{_attribute(address)}">{html.escape(token.content or address)}</a>'


def _heading(tokens: "Sequence[Token]", index: int) -> str:
    # The page has three levels above an answer.
    level = min(6, int(tokens[index].tag[1]) + 3)
    return f"<h{level}>" if tokens[index].nesting == 1 else f"</h{level}>\n"


def _cell(tokens: "Sequence[Token]", index: int) -> str:
    token = tokens[index]
    side = str(token.attrs.get("style", "")).removeprefix("text-align:")
    return f'<{token.tag} class="to-{side}">' if side in ("right", "center") else f"<{token.tag}>"


def _highlighted(code: str, language: str) -> str:
    name = _lexer_names().get(language.lower())
    if name is None or not _is_ordinary(code, MAX_SLOW.get(name, MAX_HIGHLIGHTED)):
        return html.escape(code)
    from pygments import highlight
    from pygments.formatters.html import HtmlFormatter
    from pygments.lexers import get_lexer_by_name

    return str(highlight(code, get_lexer_by_name(name, stripnl=False), HtmlFormatter(nowrap=True)))


def _is_ordinary(code: str, limit: int) -> bool:
    if len(code) > limit or LONG_GAP.search(code):
        return False
    return max(map(len, code.split("\n"))) <= MAX_LINE


@lru_cache(maxsize=1)
def _lexer_names() -> dict[str, str]:
    return {name: lexer for lexer, others in LEXERS.items() for name in (lexer, *others.split())}


def _attribute(text: str) -> str:
    return html.escape(text, quote=True)
