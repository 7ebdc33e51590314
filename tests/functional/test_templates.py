"""What holds for every template: it compiles, and the content security policy lets all of it work."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.template.loader import get_template, render_to_string
from django.test import Client
from django.urls import reverse

ROOT = Path(settings.BASE_DIR) / "templates"
TEMPLATES = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file())
SOURCES = {name: (ROOT / name).read_text(encoding="utf-8") for name in TEMPLATES}
REFUSED = {
    "a style attribute": re.compile(r"<[^>]*\sstyle\s*="),
    "a style element": re.compile(r"<style\b"),
    "an event attribute": re.compile(r"<[^>]*\son[a-z]+\s*="),
    "an htmx event attribute": re.compile(r"hx-on\b|hx-on:"),
    "a script in the page": re.compile(r"<script(?![^>]*\ssrc=)"),
    "an evaluated htmx value": re.compile(r"hx-(?:vals|headers|vars)=.js:|hx-trigger=\"[^\"]*\["),
    "something from another server": re.compile(r"(?:src|href)=\"(?:https?:)?//"),
}
# Help texts that Django makes from its own password validators.
UNESCAPED = {"account/_field.html": 1}


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_compiles(name: str) -> None:
    get_template(name)


@pytest.mark.parametrize("what", REFUSED)
def test_no_template_has(what: str) -> None:
    assert [name for name, text in SOURCES.items() if REFUSED[what].search(text)] == []


def test_templates_escape_everything_but_known_texts() -> None:
    unescaped = {name: len(re.findall(r"\|\s*safe\b|autoescape off", text)) for name, text in SOURCES.items()}
    assert {name: number for name, number in unescaped.items() if number} == UNESCAPED


def test_every_static_file_that_a_template_names_exists() -> None:
    named = {file for text in SOURCES.values() for file in re.findall(r"{% static '([^']+)' %}", text)}
    assert "css/panel.css" in named
    assert [file for file in named if finders.find(file) is None] == []


def test_every_icon_that_is_named_exists() -> None:
    sheet = finders.find("tabler-icons/tabler-icons.min.css")
    assert isinstance(sheet, str)
    known = set(re.findall(r"\.(ti-[a-z0-9-]+):before", Path(sheet).read_text(encoding="utf-8")))
    texts = [*SOURCES.values(), (Path(settings.BASE_DIR) / "servers" / "views" / "rows.py").read_text()]
    named = {icon for text in texts for icon in re.findall(r"\b(ti-[a-z0-9-]+)", text)}
    assert len(named) > 20
    assert named - known == set()


def test_the_page_for_our_own_errors_needs_no_request() -> None:
    assert "Something went wrong in the panel" in render_to_string("500.html")


@pytest.mark.django_db
def test_pages_carry_the_policy(alice: User, client: Client) -> None:
    client.force_login(alice)
    policy = client.get(reverse("overview"))["Content-Security-Policy"]
    assert "script-src 'self';" in f"{policy};"
    assert "style-src 'self';" in f"{policy};"
    assert "unsafe" not in policy


@pytest.mark.django_db
def test_an_unknown_address_gets_a_page_of_the_panel(client: Client) -> None:
    answer = client.get("/nothing/here/")
    assert answer.status_code == 404
    assert "There is nothing at this address" in answer.content.decode()
