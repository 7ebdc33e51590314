"""Every visible text is marked for translation, and every marked text is translated."""

import re
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog

from controlpanel.messages import LOCALES, catalogue_path, read_catalogue, template_catalogue, untranslated

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
# What stays as it is in every language: names, flags, units, symbols.
NAMES = {
    "llama.cpp", "MTP", "TurboQuant", "GPU", "GiB", "MiB", "KiB", "ctx", "pid", "MHz", "PCIe", "API", "KV",
    "JSON", "CUDA", "NVIDIA", "t/s", "ms", "s", "B", "MB", "UUID", "gen", "x", "GGML_CUDA_FORCE_MMQ", "ON",
    "glibc",
}  # fmt: skip
FIELDS = re.compile(r"%(?:\((\w+)\))?[#0\- +]*\d*(?:\.\d+)?([sdif%])")


@pytest.fixture(scope="module")
def template() -> Catalog:
    """All texts of the panel."""
    return template_catalogue()


@pytest.mark.parametrize("locale", LOCALES)
def test_each_text_is_in_the_catalogue_and_translated(locale: str, template: Catalog) -> None:
    catalogue = read_catalogue(locale)
    missing = [message.id for message in template if message.id and catalogue.get(message.id) is None]
    assert not missing, "run manage.py messages"
    assert not untranslated(catalogue)
    assert not [message.id for message in catalogue if message.id and template.get(message.id) is None]
    assert not [message.id for message in catalogue if message.id and message.fuzzy]


@pytest.mark.parametrize("locale", LOCALES)
def test_translations_keep_the_places_of_their_parameters(locale: str) -> None:
    wrong = []
    for message in read_catalogue(locale):
        if not message.id:
            continue
        source = message.id[-1] if isinstance(message.id, tuple | list) else message.id
        forms = message.string if isinstance(message.string, tuple | list) else [message.string]
        for form in forms:
            if sorted(FIELDS.findall(form)) != sorted(FIELDS.findall(source)):
                wrong.append((source, form))
    assert not wrong


def test_the_two_chinese_catalogues_use_their_own_script() -> None:
    simplified_only = set("务载启动运务内现项这请队设误网络图缓显复标签类")
    traditional_only = set("務載啟動運內現項這請隊設誤網絡圖緩顯復標籤類")
    texts = {locale: catalogue_path(locale).read_text(encoding="utf-8") for locale in LOCALES}
    assert not (simplified_only - traditional_only) & set(texts["zh_Hant"])
    assert not (traditional_only - simplified_only) & set(texts["zh_Hans"])


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: str(path.relative_to(ROOT / "templates")))
def test_a_template_shows_no_text_that_is_not_marked(path: Path) -> None:
    assert not unmarked(path.read_text(encoding="utf-8"))


def test_the_check_finds_an_unmarked_text() -> None:
    assert unmarked('<p>{% translate "Good" %} Hello there</p>') == ["Hello", "there"]
    assert unmarked('<button title="Close it">{{ x }}</button>') == ["Close", "it"]
    assert not unmarked("{% blocktranslate %}All <b>of</b> it{% endblocktranslate %} <code>--ctx-size</code>")


def unmarked(text: str) -> list[str]:
    """Return words that a reader would see and that gettext does not."""
    text = re.sub(r"{#.*?#}|{% comment.*?endcomment %}", " ", text, flags=re.S)
    text = re.sub(r"{% blocktranslate.*?endblocktranslate %}", " ", text, flags=re.S)
    text = re.sub(r"{%.*?%}|{{.*?}}", " ", text, flags=re.S)
    shown = re.findall(r'\b(?:title|aria-label|placeholder|alt)="([^"]*)"', text)
    text = re.sub(r"<(script|style|code|kbd|svg|pre)\b.*?</\1>", " ", text, flags=re.S)
    shown.append(re.sub(r"<[^>]*>", " ", text))
    words = re.findall(r"(?<![&\w-])[A-Za-z][\w./-]*", " ".join(shown))
    return [word for word in words if word.strip("./-") not in NAMES and len(word) > 1]
