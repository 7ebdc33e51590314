"""What a notice says, in the form that each kind of channel takes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html import unescape
from typing import Any
from urllib.parse import unquote, urlsplit

LIMITS = {"slack": 3000, "discord": 1900, "telegram": 4000}  # UTF-16 units; the services take a bit more
LONGEST = {"title": 200, "subject": 200, "value": 600, "time": 100}  # characters of one part
SHORT = 6  # characters; a shorter part of an address is no secret
_GAPS = re.compile(r"[\s\x00-\x1f\x7f\u2028\u2029]+")
_TAGS = re.compile(r"<(style|script)\b.*?</\1\s*>|<[^>]*>", re.DOTALL | re.IGNORECASE)  # of a page
_MARKS = re.compile(r"([\\*_~`|<>\[\]()#])")


@dataclass(frozen=True)
class Telling:
    """A notice in the words of its reader: `word` says firing, resolved, event or test.

    `facts` is what programs get, as plain values; `link` the address of the panel, "" when it is not known.
    """

    word: str
    title: str
    subject: str
    value: str
    time: str
    link: str
    facts: dict[str, Any]


def tidy(text: str, limit: int) -> str:
    """Return a text in one line of at most so many characters."""
    line = _GAPS.sub(" ", text).strip()
    return line if len(line) <= limit else line[: limit - 1] + "…"


def headline(telling: Telling) -> str:
    """Return the one line that says most, as the subject of a mail."""
    subject = tidy(telling.subject, LONGEST["subject"])
    title = tidy(telling.title, LONGEST["title"])
    return f"[{telling.word}] {title}" + (f": {subject}" if subject else "")


def plain_text(telling: Telling) -> str:
    """Return the notice as lines of plain text."""
    lines = [headline(telling), tidy(telling.value, LONGEST["value"]), tidy(telling.time, LONGEST["time"])]
    return "\n".join(line for line in (*lines, telling.link) if line)


def body_of(kind: str, telling: Telling, target: str = "") -> bytes:
    """Return the JSON that a channel of this kind takes; `target` is a chat of Telegram."""
    text = plain_text(telling)
    if kind == "slack":
        values: dict[str, Any] = {"text": cut(_for_slack(text), LIMITS[kind])}
    elif kind == "discord":
        values = {"content": cut(_for_discord(telling), LIMITS[kind]), "allowed_mentions": {"parse": []}}
    elif kind == "telegram":
        shown = cut(_unmentioned(text), LIMITS[kind])
        values = {"chat_id": target, "text": shown, "link_preview_options": {"is_disabled": True}}
    else:
        values = {**telling.facts, "text": text, "panel": telling.link}
    return json.dumps(values, ensure_ascii=False).encode()


def cut(text: str, limit: int) -> str:
    """Return the text cut to so many UTF-16 units, never inside a character."""
    if len(text.encode("utf-16-le")) // 2 <= limit:
        return text
    return text.encode("utf-16-le")[: 2 * (limit - 1)].decode("utf-16-le", "ignore") + "…"


def scrubbed(answer: str, secret: str, limit: int = 160) -> str:
    """Return the beginning of a service's answer without any part of the address or token sent to it."""
    parts = urlsplit(secret)
    pieces = {secret, parts.path, parts.query, *re.split(r"[/:&=?;,]", f"{parts.path}/{parts.query}")}
    hidden = {form for piece in pieces for form in (piece, unquote(piece)) if len(form) >= SHORT}
    text = unescape(_TAGS.sub(" ", answer))
    for piece in sorted(hidden, key=len, reverse=True):
        text = re.sub(re.escape(piece), "…", text, flags=re.IGNORECASE)
    return tidy(text, limit)


def _for_slack(text: str) -> str:
    # Slack reads a mention or a link only between < and >.
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _for_discord(telling: Telling) -> str:
    *lines, last = plain_text(telling).split("\n")
    if last != telling.link:
        lines, last = [*lines, last], ""
    escaped = [_MARKS.sub(r"\\\1", _unmentioned(line)) for line in lines]
    return "\n".join([*escaped, last] if last else escaped)


def _unmentioned(text: str) -> str:
    """Return the text with a space of no width behind each @, so that it calls nobody."""
    return text.replace("@", "@\u200b")
