"""Forms of pages as a browser sends them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from html.parser import HTMLParser
from typing import Any

CHANGE = re.compile(r'<a [^>]*href="([^"]+)"[^>]*><i [^>]*></i>Open the form with this change</a>')


class Form(HTMLParser):
    """The address of a form and the values of its fields, as its HTML has them."""

    def __init__(self, html: str, form_id: str) -> None:
        super().__init__()
        self.action = ""
        self.values: dict[str, str] = {}
        self._id = form_id
        self._inside = False
        self._field = ""  # the select or the text area that is open
        self._is_text = False
        self.feed(html)
        assert self.action, f"the page has no form #{form_id}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "form" and given.get("id") == self._id:
            self._inside, self.action = True, given.get("action") or ""
        name = given.get("name") or ""
        if not self._inside or "disabled" in given or (tag == "input" and not name):
            return
        match tag:
            case "input" if given.get("type") not in ("checkbox", "radio") or "checked" in given:
                self.values[name] = given.get("value") or ""
            case "select" | "textarea":
                self._field, self._is_text = name, tag == "textarea"
                if self._is_text:
                    self.values[name] = ""
            case "option" if self._field and ("selected" in given or self._field not in self.values):
                self.values[self._field] = given.get("value") or ""

    def handle_data(self, data: str) -> None:
        if self._field and self._is_text:
            # A browser leaves out the line end right behind the tag.
            self.values[self._field] += data if self.values[self._field] else data.removeprefix("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("select", "textarea"):
            self._field = ""
        self._inside = self._inside and tag != "form"


def text_of(answer: Any) -> str:
    """A page's HTML with its entities resolved and each gap one space."""
    assert answer.status_code == 200
    return unescape(re.sub(r"\s+", " ", answer.content.decode()))


def follow_change(client: Any, page: str, typed: Mapping[str, str] | None = None) -> list[str]:
    """Follow the first “Open the form with this change” of a page, save the form, and return what it told.

    `typed` are fields that the reader fills in besides; `then` restart, too.
    """
    found = CHANGE.search(client.get(page).content.decode())
    assert found, f"{page} offers no change"
    answer = client.get(unescape(found[1]))
    text = text_of(answer)
    assert "The diagnosis changes this. Nothing is saved yet." in text
    form = Form(answer.content.decode(), "profile-form")
    saved = client.post(form.action, {**form.values, **(typed or {})})
    assert saved.status_code == 302, text_of(saved)
    told = text.partition('<dl class="diff">')[2].partition("</dl>")[0]
    return [
        re.sub(r"<[^>]+>", "", f"{label}: {change}")
        for label, change in re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", told)
    ]
