"""Pages of the model hub: searching it, looking at a repository and into its files, downloading a choice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from jobs.models import AuditEntry, Download, HubToken, ModelFolder
from jobs.services.audit import Actor
from jobs.services.hub_tokens import add_token
from tests.fakes.hub import Hub
from tests.fakes.hub_files import COMMIT, GRANTED, NO_LICENCE, REJECTED
from tests.functional import pages
from tests.models import tiny_models

pytestmark = pytest.mark.django_db
REPO, PARTS = pages.HUB_REPO, pages.HUB_PARTS
SECRET = "hf_a_secret_token"
ADDRESS = "/models/hub/org/Tiny-MTP-GGUF/"
Q4, Q8 = "Tiny-MTP-Q4_K_M.gguf", "Tiny-MTP-Q8_0.gguf"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> Iterator[Hub]:
    """A hub with one repository of several choices, whose two hosts the panel may connect to."""
    with pages.hub(tmp_path, monkeypatch, settings) as server:
        yield server


def text_of(answer: Any) -> str:
    return " ".join(answer.content.decode().split())


def ticked(answer: Any) -> list[str]:
    return [extra["choice"].path for extra in answer.context["extras"] if extra["ticked"]]


def token_of(user: User, **fields: Any) -> HubToken:
    return add_token(Actor(user, AuditEntry.Source.WEB), "mine", SECRET, shared=fields.get("shared", False))


def find(client: Any, text: str) -> Any:
    return client.get(reverse("model-find"), {"q": text})


def test_words_search_the_hub(bob: User, signed_in: Any, hub: Hub) -> None:
    hub.repository(REPO).gated = "auto"
    answer = find(signed_in(bob), "tiny mtp")
    text = text_of(answer)
    assert ADDRESS in text
    assert "1,200" in text
    assert "gated" in text
    assert "No repository with GGUF files matches" in text_of(find(signed_in(bob), "no such thing"))


@pytest.mark.parametrize(
    ("pasted", "leads"),
    [
        (REPO, ADDRESS),
        (f"{REPO}:Q8_0", f"{ADDRESS}?quant=Q8_0"),
        (f"llama-server -hf {REPO}:Q8_0 -c 4096", f"{ADDRESS}?quant=Q8_0"),
        (f"https://huggingface.co/{REPO}/blob/main/{Q8}", f"{ADDRESS}?revision=main&file={Q8}"),
        (f"https://huggingface.co/{REPO}/tree/main/BF16", f"{ADDRESS}?revision=main&folder_path=BF16"),
        (
            "https://files.example/x.gguf?key=1",
            "/models/address/?url=https%3A%2F%2Ffiles.example%2Fx.gguf%3Fkey%3D1",
        ),
    ],
)
def test_a_name_a_link_or_a_command_goes_straight_there(
    pasted: str, leads: str, bob: User, signed_in: Any, hub: Hub
) -> None:
    assert find(signed_in(bob), pasted)["Location"] == leads


def test_a_path_is_told_apart_and_leads_to_the_registration(bob: User, signed_in: Any) -> None:
    text = text_of(find(signed_in(bob), "/data/model.gguf"))
    assert "This is a path" in text
    assert reverse("model-register") in text


def test_what_was_looked_for_is_offered_again(bob: User, signed_in: Any, hub: Hub) -> None:
    client = signed_in(bob)
    assert "Searches to try" in text_of(client.get(reverse("model-find")))
    find(client, "tiny mtp")
    client.get(ADDRESS)
    find(client, "https://files.example/x.gguf?key=secret")
    shown = client.get(reverse("model-find"))
    assert shown.context["recent"] == [REPO, "tiny mtp"]
    assert "secret" not in text_of(shown)


def test_choices_are_grouped_by_bits_with_shards_folded_and_one_suggested(
    bob: User, signed_in: Any, hub: Hub
) -> None:
    answer = signed_in(bob).get(ADDRESS)
    groups = answer.context["groups"]
    assert [(group["title"], [row["choice"].quant for row in group["rows"]]) for group in groups] == [
        ("16 bits", ["BF16"]),
        ("8 bits", ["Q8_0"]),
        ("4 bits", ["Q4_K_M"]),
        ("Vision projectors", ["F16", "F32"]),
        ("MTP heads without a model", ["Q8_0"]),
    ]
    text = text_of(answer)
    assert "2 parts" in text
    assert "1 other file is left out" in text
    assert text.count("suggested") == 1
    assert answer.context["picked"].path == Q4
    assert text.count(f'value="{Q4}" id="choice-3-1" checked') == 1
    assert ticked(answer) == ["mmproj-F16.gguf", "mtp-Tiny-Q8_0.gguf"]


def test_another_choice_is_marked_by_its_file_and_ticks_are_kept_for_the_same_one(
    bob: User, signed_in: Any, hub: Hub
) -> None:
    client = signed_in(bob)
    assert client.get(ADDRESS, {"file": PARTS[1]}).context["picked"].path == PARTS[0]
    kept = client.get(ADDRESS, {"file": Q4, "shown": Q4, "extra": ["mmproj-F32.gguf"]})
    assert ticked(kept) == ["mmproj-F32.gguf"]
    fresh = client.get(ADDRESS, {"file": Q8, "shown": Q4, "extra": ["mmproj-F32.gguf"]})
    assert ticked(fresh) == ["mmproj-F16.gguf", "mtp-Tiny-Q8_0.gguf"]
    assert len(hub.requests("/api/models/")) == 1  # the list is asked for once, not at every click


def test_the_disk_is_forecast_for_the_choice_and_its_company(
    bob: User, signed_in: Any, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = signed_in(bob)
    files = hub.repositories[REPO].files
    own = files[Q4].size + files["mmproj-F16.gguf"].size + files["mtp-Tiny-Q8_0.gguf"].size
    answer = client.get(ADDRESS)
    assert answer.context["forecast"]["needed"] == own
    assert "that are free;" in text_of(answer)
    monkeypatch.setattr("jobs.services.downloads.SPARE", 1 << 60)
    assert "Does not fit" in text_of(client.get(ADDRESS))


def test_looking_into_a_choice_says_what_its_header_says(bob: User, signed_in: Any, hub: Hub) -> None:
    pages.build("somewhere")
    data = {"file": Q4, "shown": Q4, "extra": ["mmproj-F16.gguf", "mtp-Tiny-Q8_0.gguf"], "revision": COMMIT}
    text = text_of(signed_in(bob).post(f"{ADDRESS}peek/", data))
    for words in ("qwen35", "4,096 tokens", "2 + 1 MTP", "MTP heads: 1.", "without tools", "somewhere"):
        assert words in text
    assert "mmproj-F16.gguf <span" in text
    assert "fits" in text
    assert "another kind of file than its name says" in text  # the companion is a whole model
    assert "<html" not in text


def test_looking_into_a_projector_says_which_of_our_models_it_fits(
    bob: User, signed_in: Any, hub: Hub, tmp_path: Path
) -> None:
    model = pages.model_of(tiny_models(tmp_path)[0])
    text = text_of(signed_in(bob).post(f"{ADDRESS}peek/", {"file": "mmproj-F16.gguf"}))
    assert "Qwen3.5" in text
    assert reverse("model-detail", args=[model.pk]) in text


def test_a_header_that_is_none_is_told_in_words_and_the_page_stays(
    bob: User, signed_in: Any, hub: Hub
) -> None:
    hub.fault("html")
    answer = signed_in(bob).post(f"{ADDRESS}peek/", {"file": Q4})
    assert answer.status_code == 200
    assert "answered a web page instead of a file" in text_of(answer)
    assert signed_in(bob).get(ADDRESS).context["picked"].path == Q4


def test_the_three_gated_cases_say_what_to_do(bob: User, signed_in: Any, hub: Hub) -> None:
    client, gated = signed_in(bob), hub.repository(REPO)
    gated.gated = "manual"

    def peek(**data: Any) -> str:
        return text_of(client.post(f"{ADDRESS}peek/", {"file": Q4, "revision": COMMIT, **data}))

    nobody = peek()
    assert "store a token of your account" in nobody
    assert f'href="{hub.endpoint}/{REPO}"' in nobody
    assert reverse("hub-tokens") in nobody
    row = token_of(bob)
    gated.tokens[SECRET] = NO_LICENCE
    licence = peek(token=row.pk)
    assert "has not accepted the terms" in licence
    assert f'href="{hub.endpoint}/{REPO}"' in licence
    gated.tokens[SECRET] = REJECTED
    assert "refused access to the account" in peek(token=row.pk)
    gated.tokens[SECRET] = GRANTED
    assert "2 + 1 MTP" in peek(token=row.pk)
    assert SECRET not in nobody + licence
    page = client.get(ADDRESS)
    assert "gated: accept its terms" in text_of(page)
    assert page.context["form"]["token"].value() == row.pk


def test_the_token_of_somebody_else_is_not_used(bob: User, alice: User, signed_in: Any, hub: Hub) -> None:
    row = token_of(alice)
    hub.repository(REPO).private = True
    hub.repository(REPO).tokens[SECRET] = GRANTED
    text = text_of(signed_in(bob).get(ADDRESS, {"token": row.pk}))
    assert "or it is private" in text
    assert signed_in(alice).get(ADDRESS, {"token": row.pk}).context["picked"].path == Q4
    assert "or it is private" in text_of(signed_in(bob).get(ADDRESS, {"token": row.pk}))


@pytest.mark.parametrize(
    ("fault", "said", "offered"),
    [
        ({"kind": "status", "code": 404}, "There is no model", "Ask with this token"),
        ({"kind": "status", "code": 429, "headers": {"Retry-After": "55"}}, "in 55 s", "Try again"),
        ({"kind": "status", "code": 503}, "has trouble of its own", "Try again"),
        ({"kind": "html"}, "not a model hub", "Try again"),
    ],
)
def test_trouble_with_the_hub_is_said_with_the_next_step(
    fault: dict[str, Any], said: str, offered: str, bob: User, signed_in: Any, hub: Hub
) -> None:
    hub.fault(path="/api/*", **fault)
    text = text_of(signed_in(bob).get(ADDRESS))
    assert said in text
    assert offered in text


def test_a_hub_that_is_away_is_told_at_the_search(
    bob: User, signed_in: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    text = text_of(find(signed_in(bob), "words"))
    assert "cannot be reached" in text
    assert "Try again" in text


def test_a_repository_without_a_model_says_so(bob: User, signed_in: Any, hub: Hub) -> None:
    hub.add("org/plain", "model.safetensors", b"x")
    text = text_of(signed_in(bob).get("/models/hub/org/plain/"))
    assert "it holds the model in another format" in text
    assert "hub-form" not in text


def test_a_download_takes_sizes_and_hashes_from_the_hub(bob: User, signed_in: Any, hub: Hub) -> None:
    data = {"file": PARTS[0], "shown": PARTS[0], "extra": ["mmproj-F32.gguf", "README.md"], "rate": "2.5"}
    answer = signed_in(bob).post(f"{ADDRESS}download/", {**data, "revision": COMMIT})
    row = Download.objects.get()
    assert answer["Location"] == reverse("download-detail", args=[row.pk])
    assert [file["path"] for file in row.files] == [*PARTS, "mmproj-F32.gguf"]
    stored = hub.repositories[REPO].files
    assert all(file["sha256"] == stored[file["path"]].sha256 for file in row.files)
    assert all(file["size"] == stored[file["path"]].size for file in row.files)
    assert (row.repo, row.revision, row.rate) == (REPO, COMMIT, 2_500_000)
    assert row.name == "Tiny-MTP BF16"
    assert "being downloaded" in text_of(signed_in(bob).get(ADDRESS))


def test_a_download_goes_into_the_chosen_folder_with_the_chosen_token(
    bob: User, signed_in: Any, hub: Hub, tmp_path: Path
) -> None:
    folder = pages.folder(str(tmp_path))
    token = token_of(bob)
    signed_in(bob).post(f"{ADDRESS}download/", {"file": Q4, "folder": folder.pk, "token": token.pk})
    row = Download.objects.get()
    assert row.folder == f"{tmp_path}/{REPO}"
    assert row.token == token
    assert ModelFolder.objects.count() == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"rate": "0"}, "greater than or equal to 0.1"),
        ({"rate": "fast"}, "Enter a number."),
        ({"folder": "99"}, "not one of the available choices"),
        ({"token": "99"}, "not one of the available choices"),
    ],
)
def test_a_form_that_is_wrong_comes_back_with_everything_else(
    data: dict[str, str], said: str, bob: User, signed_in: Any, hub: Hub
) -> None:
    sent = {"file": Q8, "shown": Q8, "extra": ["mmproj-F32.gguf"], **data}
    answer = signed_in(bob).post(f"{ADDRESS}download/", sent)
    assert said in text_of(answer)
    assert answer.context["picked"].path == Q8
    assert ticked(answer) == ["mmproj-F32.gguf"]
    assert not Download.objects.exists()


def test_what_is_being_downloaded_already_is_refused_in_words(bob: User, signed_in: Any, hub: Hub) -> None:
    client = signed_in(bob)
    client.post(f"{ADDRESS}download/", {"file": Q4})
    answer = client.post(f"{ADDRESS}download/", {"file": Q4})
    assert "gets one of these files already" in text_of(answer)
    assert Download.objects.count() == 1


def test_a_choice_with_missing_parts_cannot_be_taken(bob: User, signed_in: Any, hub: Hub) -> None:
    del hub.repositories[REPO].files[PARTS[1]]
    client = signed_in(bob)
    assert "only 1 of 2 parts are there" in text_of(client.get(ADDRESS))
    assert "Choose what to download." in text_of(client.post(f"{ADDRESS}download/", {"file": PARTS[0]}))
    assert not Download.objects.exists()


def test_a_file_at_any_address_is_looked_into_and_downloaded(bob: User, signed_in: Any, hub: Hub) -> None:
    client, url = signed_in(bob), hub.file_url(REPO, Q4)
    page = text_of(client.get(reverse("model-address"), {"url": f"{url}?key=secret"}))
    assert reverse("address-peek") in page
    assert f"{url}</dd>" in page  # a key in the address is not shown
    peek = text_of(client.post(reverse("address-peek"), {"url": url}))
    assert "2 + 1 MTP" in peek
    assert "that are free;" in peek
    answer = client.post(reverse("address-download"), {"url": url, "rate": "1"})
    row = Download.objects.get()
    assert answer["Location"] == reverse("download-detail", args=[row.pk])
    assert (row.repo, row.name, row.rate) == ("", Q4.removesuffix(".gguf"), 1_000_000)


def test_an_address_that_may_not_be_connected_to_is_refused_in_words(bob: User, signed_in: Any) -> None:
    client, url = signed_in(bob), "https://10.0.0.1/x.gguf"
    page = client.get(reverse("model-address"), {"url": url})
    assert "10.0.0.1 is a private address" in text_of(page)
    assert "disabled" in text_of(page)
    assert "private address" in text_of(client.post(reverse("address-peek"), {"url": url}))
    assert "private address" in text_of(client.post(reverse("address-download"), {"url": url}))
    assert not Download.objects.exists()


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "https://user:pw@host/x.gguf", "words", REPO])
def test_what_is_no_address_of_a_file_goes_to_the_search(url: str, bob: User, signed_in: Any) -> None:
    answer = signed_in(bob).get(reverse("model-address"), {"url": url})
    assert answer["Location"].startswith(reverse("model-find"))


def test_a_name_that_is_no_gguf_is_told(bob: User, signed_in: Any) -> None:
    page = signed_in(bob).get(reverse("model-address"), {"url": "https://files.example/model.zip"})
    assert "does not end with .gguf" in text_of(page)


def test_a_token_goes_in_and_never_comes_out(bob: User, signed_in: Any) -> None:
    client = signed_in(bob)
    assert "No token is kept" in text_of(client.get(reverse("hub-tokens")))
    answer = client.post(reverse("token-add"), {"name": "work", "secret": SECRET}, follow=True)
    row = HubToken.objects.get()
    assert (row.user, row.name) == (bob, "work")
    assert SECRET not in text_of(answer) + row.secret
    assert "only you" in text_of(answer)
    assert SECRET not in str([*AuditEntry.objects.values()])
    refused = client.post(reverse("token-add"), {"name": "work", "secret": f" {SECRET}x "})
    assert "There is already a token with this name." in text_of(refused)
    assert SECRET not in text_of(refused)
    client.post(reverse("token-delete", args=[row.pk]))
    assert not HubToken.objects.exists()


def test_a_token_for_everybody_is_an_admins(bob: User, alice: User, signed_in: Any) -> None:
    operator, admin = signed_in(bob), signed_in(alice)
    assert 'name="shared"' not in text_of(operator.get(reverse("hub-tokens")))
    operator.post(reverse("token-add"), {"name": "mine", "secret": SECRET, "shared": "on"})
    assert HubToken.objects.get().user == bob
    admin.post(reverse("token-add"), {"name": "ours", "secret": SECRET, "shared": "on"})
    shared = HubToken.objects.get(user=None)
    seen = text_of(admin.get(reverse("hub-tokens")))
    assert "ours" in seen
    assert "mine" not in seen
    answer = operator.post(reverse("token-delete", args=[shared.pk]), follow=True)
    assert "not yours" in text_of(answer)
    assert admin.post(reverse("token-delete", args=[HubToken.objects.get(user=bob).pk])).status_code == 404
