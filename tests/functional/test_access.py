"""Who may open which address. A new address without an entry in the table fails here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from jobs.models import Job, MetricsToken
from servers.models import Conversation, Turn
from servers.services.measure import MEASURE
from tests.functional import alerting, pages

pytestmark = pytest.mark.django_db

GET, POST, BOTH = ("GET",), ("POST",), ("GET", "POST")

# address: (the role it needs, the methods it takes, the names of its arguments)
EXPECTED: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "account_login": ("public", BOTH, ()),
    "account_logout": ("public", BOTH, ()),
    "account_inactive": ("public", GET, ()),
    "account_reauthenticate": ("account", BOTH, ()),
    "account_change_password": ("account", BOTH, ()),
    "set_language": ("public", BOTH, ()),
    "overview": ("viewer", GET, ()),
    "builds": ("viewer", GET, ()),
    "build-detail": ("viewer", GET, ("build",)),
    "build-register": ("admin", BOTH, ()),
    "build-probe": ("operator", POST, ("made",)),
    "build-cancel": ("operator", POST, ("made",)),
    "build-rebuild": ("operator", POST, ("made",)),
    "build-behind": ("operator", POST, ("made",)),
    "build-delete": ("operator", POST, ("made",)),
    "build-compare": ("viewer", GET, ()),
    "build-configs": ("viewer", GET, ()),
    "config-new": ("operator", BOTH, ()),
    "config-preview": ("operator", POST, ()),
    "config-edit": ("operator", BOTH, ("config",)),
    "config-build": ("operator", POST, ("config",)),
    "config-delete": ("operator", POST, ("config",)),
    "toolchain": ("viewer", GET, ()),
    "toolchain-look": ("operator", POST, ()),
    "repositories": ("viewer", GET, ()),
    "repository-add": ("admin", POST, ()),
    "repository-delete": ("admin", POST, ("repository",)),
    "models": ("viewer", GET, ()),
    "model-detail": ("viewer", GET, ("model",)),
    "model-register": ("operator", BOTH, ()),
    "model-builds": ("viewer", GET, ("model",)),
    "model-refresh": ("operator", POST, ("model",)),
    "model-verify": ("operator", POST, ("model",)),
    "model-delete": ("operator", POST, ("model",)),
    "model-remove": ("operator", POST, ("model",)),
    "model-find": ("operator", GET, ()),
    "hub-repository": ("operator", GET, ("owner", "name")),
    "hub-peek": ("operator", POST, ("owner", "name")),
    "hub-download": ("operator", POST, ("owner", "name")),
    "model-address": ("operator", GET, ()),
    "address-peek": ("operator", POST, ()),
    "address-download": ("operator", POST, ()),
    "downloads": ("viewer", GET, ()),
    "download-detail": ("viewer", GET, ("download",)),
    "download-pause": ("operator", POST, ("download",)),
    "download-resume": ("operator", POST, ("download",)),
    "download-cancel": ("operator", POST, ("download",)),
    "download-forget": ("operator", POST, ("download",)),
    "model-folders": ("viewer", GET, ()),
    "folder-add": ("admin", POST, ()),
    "folder-scan": ("operator", POST, ("folder",)),
    "folder-delete": ("admin", POST, ("folder",)),
    "hub-tokens": ("operator", GET, ()),
    "token-add": ("operator", POST, ()),
    "token-delete": ("operator", POST, ("token",)),
    "audit": ("admin", GET, ()),
    "panel-metrics": ("token", GET, ()),
    "metrics-access": ("admin", GET, ()),
    "metrics-token-add": ("admin", POST, ()),
    "metrics-token-delete": ("admin", POST, ("metrics_token",)),
    "metrics-dashboard": ("admin", GET, ()),
    "activity": ("viewer", GET, ()),
    "job-cancel": ("operator", POST, ("job",)),
    "gpus": ("viewer", GET, ()),
    "gpu-series": ("viewer", GET, ()),
    "host-readiness": ("viewer", GET, ()),
    "run-log": ("viewer", GET, ("run",)),
    "log-range": ("viewer", GET, ("run",)),
    "log-search": ("viewer", GET, ("run",)),
    "log-errors": ("viewer", GET, ("run",)),
    "log-line": ("viewer", GET, ("run",)),
    "log-download": ("viewer", GET, ("run",)),
    "servers": ("viewer", GET, ()),
    "server-detail": ("viewer", GET, ("profile",)),
    "server-metrics": ("viewer", GET, ("profile",)),
    "server-question": ("operator", GET, ("profile",)),
    "server-start": ("operator", POST, ("profile",)),
    "server-retry": ("operator", POST, ("profile",)),
    "server-stop": ("operator", POST, ("profile",)),
    "server-restart": ("operator", POST, ("profile",)),
    "server-pin": ("operator", POST, ("profile",)),
    "server-cut": ("operator", POST, ("profile",)),
    "incidents": ("viewer", GET, ()),
    "alerts": ("viewer", GET, ()),
    "alert-rule-new": ("operator", BOTH, ()),
    "alert-rule-edit": ("operator", BOTH, ("rule",)),
    "alert-rule-delete": ("operator", POST, ("rule",)),
    "alert-channel-new": ("admin", BOTH, ()),
    "alert-channel-edit": ("admin", BOTH, ("channel",)),
    "alert-channel-test": ("admin", POST, ("channel",)),
    "alert-channel-delete": ("admin", POST, ("channel",)),
    "profiles": ("viewer", GET, ()),
    "profile-new": ("operator", BOTH, ()),
    "profile-preview": ("operator", POST, ()),
    "profile-edit": ("operator", BOTH, ("profile",)),
    "profile-delete": ("operator", POST, ("profile",)),
    "profile-duplicate": ("operator", GET, ("profile",)),
    "profile-review": ("operator", POST, ("profile",)),
    "profile-revisions": ("viewer", GET, ("profile",)),
    "revision-mark": ("operator", POST, ("profile", "revision")),
    "revision-roll-back": ("operator", BOTH, ("profile", "revision")),
    "profile-measure": ("operator", POST, ()),
    "profile-measured": ("operator", GET, ("measure",)),
    "profile-import": ("operator", BOTH, ()),
    "profile-export": ("viewer", GET, ("profile",)),
    "playground": ("viewer", GET, ()),
    "playground-conversation": ("viewer", GET, ("conversation",)),
    "conversation-list": ("viewer", GET, ()),
    "conversation-rename": ("viewer", BOTH, ("conversation",)),
    "conversation-delete": ("viewer", POST, ("conversation",)),
    "conversation-sampling": ("viewer", POST, ("conversation",)),
    "sampling": ("viewer", GET, ()),
    "turn-create": ("viewer", POST, ()),
    "turn-stream": ("viewer", GET, ("turn",)),
    "turn-stop": ("viewer", POST, ("turn",)),
    "turn-continue": ("viewer", POST, ("turn",)),
    "turn-regenerate": ("viewer", POST, ("turn",)),
    "turn-edit": ("viewer", BOTH, ("turn",)),
}
# A stream that answers anything but 200 makes the browser ask again for ever: it refuses by ending at once.
STREAMS = {"turn-stream"}
OURS = {name: entry for name, entry in EXPECTED.items() if entry[0] not in {"public", "account"}}
# What a token of its own opens: no session does, and nothing leads to the sign-in page.
TOKENS = {name for name, entry in OURS.items() if entry[0] == "token"}
PAGES = {name: entry for name, entry in OURS.items() if name not in STREAMS | TOKENS}
ROLES = ("viewer", "operator", "admin")
PEOPLE = {"dora": None, "charlie": "viewer", "bob": "operator", "alice": "admin"}


def patterns(found: list[Any] | None = None) -> Iterator[URLPattern]:
    """All addresses of the project."""
    for item in get_resolver().url_patterns if found is None else found:
        if isinstance(item, URLResolver):
            yield from patterns(item.url_patterns)
        else:
            yield item


@pytest.fixture
def arguments(alice: User, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Rows for the addresses that name one; the conversation is the admin's. The hub is away."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    profile = pages.profile()
    run = pages.run_of(profile)
    job = Job.objects.create(kind="build.probe", host=run.host, subject_kind="build", subject_id="1")
    conversation = Conversation.objects.create(user=alice, profile=profile, title="Hello")
    turn = Turn.objects.create(conversation=conversation, position=0, prompt="Hello", state=Turn.State.DONE)
    config = pages.config()
    builds = {"build": profile.build, "made": pages.made(config), "config": config}
    rows = {
        "repository": config.repository,
        "model": profile.model,
        "profile": profile,
        "run": run,
        "job": job,
        "download": pages.download(),
        "measure": Job.objects.create(kind=MEASURE, host=run.host, subject_kind="build", subject_id="1"),
        "folder": pages.folder(),
        "token": pages.token(),
        "rule": alerting.rule("server_down"),
        "channel": alerting.channel(kind="email", target="ann@example.com"),
        "metrics_token": MetricsToken.objects.create(name="Prometheus", digest="0" * 64),
    }
    found = {**builds, **rows, "conversation": conversation, "turn": turn}
    numbers = {"revision": pages.revision(profile).number}
    return {"owner": "org", "name": "model-GGUF", **numbers, **{key: row.pk for key, row in found.items()}}


def address(name: str, arguments: dict[str, Any]) -> str:
    return reverse(name, args=[arguments[key] for key in EXPECTED[name][2]])


def allows(own: str | None, needed: str) -> bool:
    return own is not None and ROLES.index(own) >= ROLES.index(needed)


def test_every_address_is_in_the_table() -> None:
    names = [item.name for item in patterns()]
    assert sorted(names) == sorted(EXPECTED)


def test_every_view_of_the_panel_declares_the_role_of_the_table() -> None:
    declared = {
        item.name: getattr(item.callback, "role_needed", None)
        for item in patterns()
        if item.callback.__module__.startswith(("jobs.", "servers."))
    }
    assert declared == {name: entry[0] for name, entry in OURS.items()}


@pytest.mark.parametrize("name", PAGES)
def test_nobody_gets_in_without_signing_in(name: str, arguments: dict[str, Any], client: Client) -> None:
    for method in OURS[name][1]:
        answer = client.generic(method, address(name, arguments))
        assert answer.status_code == 302
        assert answer["Location"].startswith(reverse("account_login"))


@pytest.mark.parametrize("name", PAGES)
def test_an_htmx_request_without_a_session_loads_the_sign_in_page(
    name: str, arguments: dict[str, Any], client: Client
) -> None:
    for method in OURS[name][1]:
        answer = client.generic(method, address(name, arguments), headers={"HX-Request": "true"})
        assert answer.status_code == 204
        assert answer["HX-Redirect"].startswith(reverse("account_login"))


@pytest.mark.parametrize("person", PEOPLE)
@pytest.mark.parametrize("name", PAGES)
def test_an_address_opens_for_its_role_and_higher_ones_only(
    name: str, person: str, arguments: dict[str, Any], signed_in: Any, request: pytest.FixtureRequest
) -> None:
    client = signed_in(request.getfixturevalue(person))
    needed, methods, _names = OURS[name]
    for method in methods:
        answer = client.generic(method, address(name, arguments))
        if allows(PEOPLE[person], needed):
            assert answer.status_code in {200, 204, 302, 400, 404, 422}, answer.status_code
            assert reverse("account_login") not in answer.get("Location", "")
        else:
            assert answer.status_code == 403
            assert "An admin of this panel gives roles" in answer.content.decode()


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
@pytest.mark.parametrize("person", [None, "dora", "bob", "alice"])
def test_a_stream_carries_the_turn_to_its_owner_only(
    person: str | None, arguments: dict[str, Any], signed_in: Any, request: pytest.FixtureRequest
) -> None:
    client = signed_in(request.getfixturevalue(person)) if person else Client()
    answer = client.get(address("turn-stream", arguments))
    text = b"".join(answer).decode()
    assert answer.status_code == 200
    assert text.endswith("event: close\ndata: end\n\n")
    assert ("event: done" in text) == (person == "alice")


@pytest.mark.parametrize("name", [name for name, entry in OURS.items() if entry[1] == POST])
def test_an_address_that_changes_something_refuses_get(
    name: str, arguments: dict[str, Any], alice: User, signed_in: Any
) -> None:
    assert signed_in(alice).get(address(name, arguments)).status_code == 405


@pytest.mark.parametrize("name", [name for name, entry in OURS.items() if entry[1] == GET])
def test_a_page_refuses_post(name: str, arguments: dict[str, Any], alice: User, signed_in: Any) -> None:
    assert signed_in(alice).post(address(name, arguments)).status_code == 405


@pytest.mark.parametrize("name", [name for name, entry in EXPECTED.items() if "POST" in entry[1]])
def test_a_change_needs_the_csrf_token(name: str, arguments: dict[str, Any], alice: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(alice)
    answer = client.post(address(name, arguments), {"language": "zh-hant"})
    assert answer.status_code == 403
    assert "This page was too old" in answer.content.decode()


@pytest.mark.parametrize("name", ["account_change_password", "account_reauthenticate"])
def test_a_page_of_the_own_account_needs_an_account(name: str, client: Client) -> None:
    answer = client.get(reverse(name))
    assert answer.status_code == 302
    assert answer["Location"].startswith(reverse("account_login"))
