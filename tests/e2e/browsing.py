"""A browser page of a signed-in user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.contrib.auth.models import User
from playwright.sync_api import Page, sync_playwright

from tests.e2e.panel import CHROMIUM, CHROMIUM_ARGS
from tests.web import cookies

# An HTTP status above 399 is a message of the browser's too; and htmx tells when a newer request takes the
# place of one that is under way, while for one that fails it would say htmx:sendError besides.
HARMLESS = ("status of 422", "htmx:sendAbort", "htmx:afterRequest")


@contextmanager
def page_of(user: User, address: str, width: int) -> Iterator[Page]:
    """A page so many pixels wide; a message or an error in its console fails the test."""
    said: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_ARGS)
        context = browser.new_context(base_url=address, viewport={"width": width, "height": 800})
        context.add_cookies([{"name": n, "value": v, "url": address} for n, v in cookies(user).items()])
        tab = context.new_page()
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        yield tab
        browser.close()
    unexpected = [text for text in said if not any(known in text for known in HARMLESS)]
    assert not unexpected, unexpected
