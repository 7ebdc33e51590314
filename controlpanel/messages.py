"""The message catalogues: which texts there are, and bringing the .po files up to them."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir, extract_javascript
from babel.messages.pofile import read_po, write_po
from django.conf import settings
from django.utils.translation.template import templatize

LOCALES = ("zh_Hans", "zh_Hant")
KEYWORDS: dict[str, Any] = {
    "_": None,
    "N_": None,
    "gettext": None,
    "gettext_lazy": None,
    "gettext_noop": None,
    "ngettext": (1, 2),
    "ngettext_lazy": (1, 2),
    "pgettext": ((1, "c"), 2),
    "npgettext": ((1, "c"), 2, 3),
}
METHODS = [("**/*.py", "python"), ("**/*.html", "controlpanel.messages:extract_template")]
FOLDERS = ("controlpanel", "jobs", "servers", "templates")


def extract_template(file: IO[bytes], keywords: Any, comment_tags: Any, options: Any) -> Iterator[Any]:
    """Extract a Django template's texts, as a Babel extractor.

    Django turns the template into calls of gettext; Babel's JavaScript lexer reads them, since unlike
    Python's it does not mind the blanked rest of the page.
    """
    calls = templatize(file.read().decode("utf-8"))
    calls = re.sub(r"\bu(?=['\"])", "", calls)
    yield from extract_javascript(BytesIO(calls.encode("utf-8")), keywords, comment_tags, options)


def template_catalogue() -> Catalog:
    """Return all texts of the panel, untranslated."""
    catalogue = Catalog(project="llama.cpp control panel", charset="utf-8", fuzzy=False)
    for folder in FOLDERS:
        root = settings.BASE_DIR / folder
        for name, _line, message, _comments, context in extract_from_dir(
            root, METHODS, keywords=KEYWORDS, comment_tags=()
        ):
            catalogue.add(message, None, [(f"{folder}/{name}", 0)], context=context)
    return catalogue


def catalogue_path(locale: str) -> Path:
    """Return where a locale's .po file lies."""
    path: Path = settings.BASE_DIR / "controlpanel" / "locale" / locale / "LC_MESSAGES" / "django.po"
    return path


def read_catalogue(locale: str) -> Catalog:
    """Return a locale's catalogue; an empty one when there is no file yet."""
    path = catalogue_path(locale)
    if not path.exists():
        return Catalog(locale=locale, charset="utf-8", fuzzy=False)
    with path.open("rb") as file:
        return read_po(file, locale=locale, charset="utf-8")


def update_catalogue(locale: str, template: Catalog) -> Catalog:
    """Bring a locale's .po file up to the template: new texts come in empty, texts that are gone go."""
    catalogue = read_catalogue(locale)
    catalogue.update(template, no_fuzzy_matching=True)
    catalogue.obsolete.clear()
    # A fixed date: the file changes when a text changes, not whenever the command runs.
    catalogue.creation_date = catalogue.revision_date = datetime(2026, 1, 1, tzinfo=UTC)
    catalogue.project, catalogue.version = template.project, "1"
    catalogue.msgid_bugs_address = catalogue.last_translator = catalogue.language_team = ""
    catalogue.header_comment = f"# {locale} texts of the llama.cpp control panel."
    path = catalogue_path(locale)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        write_po(file, catalogue, width=110, sort_output=True, omit_header=False, include_lineno=False)
    return catalogue


def untranslated(catalogue: Catalog) -> list[str]:
    """Return the texts of a catalogue that have no translation (or only some of their plural forms)."""
    found = []
    for message in catalogue:
        forms = message.string if isinstance(message.string, list | tuple) else [message.string]
        if message.id and not all(forms):
            found.append(message.id[0] if isinstance(message.id, list | tuple) else message.id)
    return found
