"""What people paste to name a model on the hub, or a file anywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.hf import MAX_TEXT, BadReference, HubPlace, WebFile, check_path, check_repo, parse

REPO = "unsloth/Qwen3.5-27B-GGUF"
FILE = "Qwen3.5-27B-Q4_K_M.gguf"
MIRROR = "https://hub.example.org:8443/hf"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (REPO, HubPlace(REPO)),
        (f"  {REPO}\n", HubPlace(REPO)),
        (f'"{REPO}"', HubPlace(REPO)),
        (f"<https://huggingface.co/{REPO}>", HubPlace(REPO)),
        (f"{REPO}:Q4_K_M", HubPlace(REPO, quant="Q4_K_M")),
        (f"{REPO}@v1.0", HubPlace(REPO, "v1.0")),
        (f"{REPO}/{FILE}", HubPlace(REPO, file=FILE)),
        (f"{REPO}/BF16/{FILE}", HubPlace(REPO, file=f"BF16/{FILE}")),
        (f"hf://{REPO}@main/{FILE}", HubPlace(REPO, "main", FILE)),
        (f"hf://models/{REPO}", HubPlace(REPO)),
        (f"huggingface.co/{REPO}", HubPlace(REPO)),
        (f"hf.co/{REPO}:Q8_0", HubPlace(REPO, quant="Q8_0")),
        (f"https://hf.co/{REPO}", HubPlace(REPO)),
        (f"http://www.huggingface.co/{REPO}/", HubPlace(REPO)),
        (f"https://huggingface.co/{REPO}.git", HubPlace(REPO)),
        (f"https://huggingface.co/{REPO}/tree/main", HubPlace(REPO, "main")),
        (f"https://huggingface.co/{REPO}/tree/main/UD-Q4_K_XL", HubPlace(REPO, "main", folder="UD-Q4_K_XL")),
        (f"https://huggingface.co/{REPO}/blob/main/{FILE}", HubPlace(REPO, "main", FILE)),
        (f"https://huggingface.co/{REPO}/resolve/main/{FILE}?download=true", HubPlace(REPO, "main", FILE)),
        (f"https://huggingface.co/{REPO}/blob/refs%2Fpr%2F3/{FILE}", HubPlace(REPO, "refs/pr/3", FILE)),
        (
            f"https://huggingface.co/{REPO}/resolve/refs/pr/3/a/{FILE}",
            HubPlace(REPO, "refs/pr/3", f"a/{FILE}"),
        ),
        (
            f"https://huggingface.co/{REPO}/resolve/main/my%20model.gguf",
            HubPlace(REPO, "main", "my model.gguf"),
        ),
        (f"https://huggingface.co/{REPO}?show_file_info={FILE}", HubPlace(REPO, file=FILE)),
        (f"https://huggingface.co/{REPO}/discussions/12", HubPlace(REPO)),
        (f"https://huggingface.co/api/models/{REPO}/tree/main", HubPlace(REPO, "main")),
        (f"https://hub.example.org:8443/hf/{REPO}/blob/main/{FILE}", HubPlace(REPO, "main", FILE)),
        (f"llama-server -hf {REPO}:Q4_K_M --spec-type draft-mtp", HubPlace(REPO, quant="Q4_K_M")),
        (f"$ ./build/bin/llama-cli -hf {REPO} --hf-file {FILE}", HubPlace(REPO, file=FILE)),
        (f"hf download {REPO} {FILE} --local-dir .", HubPlace(REPO, file=FILE)),
        (f"ollama run hf.co/{REPO}:Q8_0", HubPlace(REPO, quant="Q8_0")),
        (f"git clone https://huggingface.co/{REPO}", HubPlace(REPO)),
    ],
)
def test_a_pasted_text_names_a_place_on_the_hub(text: str, place: HubPlace) -> None:
    assert parse(text, MIRROR) == place


@pytest.mark.parametrize(
    "text", ["", "qwen", "qwen 27b gguf", "Qwen3.5-27B", "who/what/where", "a/b c/d", "org/--x"]
)
def test_other_words_are_to_be_searched_for(text: str) -> None:
    assert parse(text) is None


def test_an_address_elsewhere_is_a_file_of_that_name() -> None:
    url = "https://models.example.org/files/my%20model.gguf?key=1"
    assert parse(f"{url}#top") == WebFile(url, "my model.gguf")
    other_port = f"https://hub.example.org/{REPO}/blob/main/{FILE}"
    assert parse(other_port, MIRROR) == WebFile(other_port, FILE)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("file:///etc/passwd", "Only https"),
        ("ftp://example.org/a.gguf", "Only https"),
        ("ext::sh://x", "Only https"),
        ("/models/a.gguf", "registered"),
        ("~/a.gguf", "registered"),
        ("..\\a.gguf", "registered"),
        ("C:\\models\\a.gguf", "registered"),
        ("https://user:secret@example.org/a.gguf", "password"),
        (f"https://hf_token@huggingface.co/{REPO}", "password"),
        ("https://example.org/", "names no file"),
        ("https://example.org/%2e%2e", "names no file"),
        ("https://example.org/a%2F..%2Fb", "names no file"),
        ("https:///a.gguf", "not an address"),
        ("https://[::1/a.gguf", "not an address"),
        ("https://example.org:99999/a.gguf", "not an address"),
        ("https://example.org/a b.gguf", "not an address"),
        ("https://huggingface.co/datasets/org/name", "dataset"),
        ("https://huggingface.co/spaces/org/name", "dataset"),
        ("https://huggingface.co/models?search=qwen", "one model"),
        ("https://huggingface.co/unsloth", "one model"),
        ("https://huggingface.co/collections/unsloth/qwen", "one model"),
        ("https://huggingface.co/org/na..me", "owner/name"),
        (f"https://huggingface.co/{REPO}/blob/main", "names no file"),
        (f"https://huggingface.co/{REPO}/resolve/main/%2e%2e/secret", "path of the file"),
        (f"https://huggingface.co/{REPO}/resolve/main/a%00.gguf", "path of the file"),
        ("hf://datasets", "owner/name"),
        ("org/name\nhttps://example.org", "line break"),
        ("x" * (MAX_TEXT + 1), "longer"),
    ],
)
def test_what_cannot_be_fetched_says_why(text: str, words: str) -> None:
    with pytest.raises(BadReference, match=words):
        parse(text)


def test_an_error_does_not_repeat_a_password() -> None:
    with pytest.raises(BadReference) as caught:
        parse("https://user:secret@example.org/a.gguf")
    assert "secret" not in str(caught.value)


@given(
    st.text(max_size=200)
    | st.from_regex(r"(https://huggingface\.co/|hf://)?[a-z./%@:?0-9-]{0,60}", fullmatch=True)
)
def test_any_text_is_a_well_formed_place_or_is_refused(text: str) -> None:
    try:
        found = parse(text)
    except BadReference:
        return
    if isinstance(found, HubPlace):
        assert check_repo(found.repo)
        assert all(check_path(part) for part in (found.file, found.folder, found.revision) if part)
    elif found is not None:
        assert check_path(found.name)
        assert "/" not in found.name
