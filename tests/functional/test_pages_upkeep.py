"""What pages say of servers that fail and are started again, of preflight, and of servers without use."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse
from django.utils import timezone

from controlpanel.lib.text import Message
from controlpanel.llamacpp.rule_types import Change, Diagnosis, Evidence
from jobs.models import AuditEntry, Run
from servers.domain.preflight import Check
from servers.models import Instance, ServerProfile
from tests.functional import pages

pytestmark = pytest.mark.django_db
Observed = Instance.Observed
BROKE_AT_LOADING = [
    {"key": key, "at": 1000.0 + n} for n, key in enumerate(("queued", "preflight", "loading"))
]
BROKE_AT_PREFLIGHT = BROKE_AT_LOADING[:2]


def words(client: Any, name: str, *args: object) -> str:
    """What somebody reads on a page, without its markup."""
    text = re.sub(r"<[^>]+>", " ", client.get(reverse(name, args=args)).content.decode())
    return re.sub(r"\s+", " ", text)


def page(client: Any, profile: ServerProfile) -> str:
    return str(client.get(reverse("server-detail", args=[profile.pk])).content.decode())


def diagnosis(run: Run, title: str, *change: Change, step: str = "loading") -> None:
    found = Diagnosis("some_cause", Message(title), Message("Do it."), (Evidence(0, 7, "a line"),), change)
    Run.objects.filter(pk=run.pk).update(diagnosis=[{"run": run.pk, "step": step, **found.to_json()}])


def set_to(profile: ServerProfile, **columns: Any) -> None:
    Instance.objects.filter(profile=profile).update(**columns)


def failed_run(profile: ServerProfile, title: str) -> Run:
    run = pages.run_of(profile, state=Run.State.EXITED, exit_code=1, ended_at=timezone.now())
    diagnosis(run, title)
    return run


def test_a_crash_loop_is_told_from_the_first_failure_to_the_end(
    bob: User, charlie: User, signed_in: Any
) -> None:
    profile, client = pages.profile(instance={"steps": BROKE_AT_LOADING}), signed_in(bob)
    first = failed_run(profile, "The card fell off the bus")
    retry, stop = (reverse(f"server-{name}", args=[profile.pk]) for name in ("retry", "stop"))
    at = timezone.now() + timedelta(seconds=8)
    set_to(profile, observed=Observed.BACKOFF, attempts=1, retry_at=at, first_failure=first)
    text = words(client, "server-detail", profile.pk)
    assert "It failed 1 time in a row. The panel starts it again (1 of 3). Next start in …" in text
    assert "First failure" not in text

    failed_run(profile, "Out of memory")
    set_to(profile, attempts=2)
    html, text = page(client, profile), words(client, "server-detail", profile.pk)
    assert "(2 of 3)" in text
    assert f'data-until="{at.timestamp():.3f}"' in html
    assert "First failure The card fell off the bus" in text
    assert "Latest failure Out of memory" in text
    assert reverse("run-log", args=[first.pk]) in html
    assert f'hx-post="{retry}"' in html
    assert f'hx-post="{stop}"' in html
    assert f'<a href="#why-{profile.pk}" title="Out of memory">loading</a>' in html
    assert f'id="why-{profile.pk}"' in html
    assert "start 2 of 3 · next start in …" in words(client, "servers")
    assert "start 2 of 3 · next start in …" in words(client, "overview")
    viewer = page(signed_in(charlie), profile)
    assert "(2 of 3)" in viewer
    assert retry not in viewer

    client = signed_in(bob)
    set_to(profile, observed=Observed.FAILED, attempts=3, retry_at=None)
    text = words(client, "server-detail", profile.pk)
    assert "Given up after 3 starts by the panel. Mend the cause, then start it." in text
    assert "First failure The card fell off the bus" in text
    assert "given up after 3 starts" in words(client, "servers")
    assert "crash loop" in words(client, "overview")
    set_to(profile, attempts=1)
    assert "Another start would fail in the same way." in words(client, "server-detail", profile.pk)


def test_a_server_that_runs_again_tells_of_its_failures_until_it_is_stable(
    charlie: User, signed_in: Any
) -> None:
    profile, client = pages.profile(policy={"stable_s": 120}), signed_in(charlie)
    first = failed_run(profile, "The card fell off the bus")
    pages.run_of(profile)
    set_to(profile, observed=Observed.READY, attempts=1, first_failure=first)
    text = words(client, "server-detail", profile.pk)
    assert "Started again by the panel (1 of 3). It counts as stable after 2 minutes of being ready." in text
    assert "Failure The card fell off the bus" in text
    assert "started again (1 of 3)" in words(client, "servers")
    set_to(profile, attempts=0, first_failure=None)
    assert "Started again by the panel" not in words(client, "server-detail", profile.pk)


def test_after_a_reboot_no_failure_is_counted(charlie: User, signed_in: Any) -> None:
    profile = pages.profile(observed=Observed.BACKOFF, instance={"error": "The host was restarted."})
    pages.run_of(profile, state=Run.State.LOST)
    text = words(signed_in(charlie), "server-detail", profile.pk)
    assert "The host was restarted. The panel starts it again." in text
    assert "in a row" not in text


def test_the_buttons_of_a_waiting_server_start_it_now_or_not_at_all(bob: User, signed_in: Any) -> None:
    profile, client = pages.profile(observed=Observed.BACKOFF, instance={"attempts": 2}), signed_in(bob)
    client.post(reverse("server-retry", args=[profile.pk]))
    profile.instance.refresh_from_db()
    assert (profile.instance.observed, profile.instance.attempts) == (Observed.STARTING, 2)
    again = client.post(reverse("server-retry", args=[profile.pk]), follow=True)
    assert "Nothing is to be tried again: the server is starting." in again.content.decode()
    set_to(profile, observed=Observed.BACKOFF)
    client.post(reverse("server-stop", args=[profile.pk]))
    profile.instance.refresh_from_db()
    assert (profile.instance.observed, profile.instance.held) == (Observed.STOPPED, True)


def checks(*levels: str, holds: bool = False) -> list[dict[str, Any]]:
    return [
        Check(
            f"check{number}",
            level,  # type: ignore[arg-type]
            Message(f"Point {number} is {level}."),
            Message("Close the game.") if level != "ok" else None,
            holds and level != "ok",
        ).to_json()
        for number, level in enumerate(levels)
    ]


def test_preflight_is_one_line_when_all_is_well_and_a_list_otherwise(charlie: User, signed_in: Any) -> None:
    profile = pages.profile(observed=Observed.READY, instance={"checks": checks("ok", "ok", "ok")})
    client = signed_in(charlie)
    assert "<summary>Preflight: 3 checks passed</summary>" in page(client, profile)
    set_to(profile, checks=checks("ok", "warning"))
    text = words(client, "server-detail", profile.pk)
    assert "checks passed" not in text
    assert "warning: Point 1 is warning. Close the game." in text
    assert "Start anyway" not in text


def test_a_warning_that_holds_a_start_back_can_be_overridden_and_that_is_written_down(
    bob: User, charlie: User, signed_in: Any
) -> None:
    held = {"checks": checks("ok", "warning", holds=True), "steps": BROKE_AT_PREFLIGHT, "error": "Point 1"}
    profile = pages.profile(observed=Observed.FAILED, instance=held)
    viewer = page(signed_in(charlie), profile)
    assert f'<a href="#preflight-{profile.pk}">Point 1 is warning.</a>' in viewer
    assert "Start anyway" not in viewer
    client = signed_in(bob)
    html = page(client, profile)
    assert """hx-vals='{"anyway": "1"}'""" in html
    assert "This is written into the audit." in html
    client.post(reverse("server-start", args=[profile.pk]), {"anyway": "1"})
    profile.instance.refresh_from_db()
    assert (profile.instance.observed, profile.instance.anyway) == (Observed.STARTING, True)
    assert AuditEntry.objects.get(action="server.start").after["anyway"] is True


@pytest.mark.parametrize(
    ("levels", "holds", "anyway"),
    [(("warning",), False, False), (("warning", "error"), True, False), (("warning",), True, True)],
)
def test_nothing_is_overridden_that_did_not_hold_or_cannot(
    levels: tuple[str, ...], holds: bool, anyway: bool, bob: User, signed_in: Any
) -> None:
    columns = {"checks": checks(*levels, holds=holds), "steps": BROKE_AT_PREFLIGHT, "anyway": anyway}
    profile = pages.profile(observed=Observed.FAILED, instance=columns)
    assert "Start anyway" not in page(signed_in(bob), profile)


def test_a_server_without_the_mtp_it_was_to_have_says_why(bob: User, signed_in: Any) -> None:
    facts = {"mtp": False, "vram": [[0, 21034], [1, None]]}
    profile = pages.profile(
        observed=Observed.READY, settings={"speculation": "mtp"}, instance={"facts": facts}
    )
    run = pages.run_of(profile)
    diagnosis(run, "The file has no MTP layers", Change("speculation", "none"), step="mtp")
    html, text = page(signed_in(bob), profile), words(signed_in(bob), "server-detail", profile.pk)
    assert "Running without MTP." in text
    assert "The file has no MTP layers" in text
    assert '<section class="diagnosis is-less"' in html
    assert f"change={run.pk}&amp;cause=0" in html
    assert "GPU 0: 21,034 MiB · GPU 1: – MiB" in text
    set_to(profile, observed=Observed.STOPPED)
    assert "21,034" not in words(signed_in(bob), "server-detail", profile.pk)
    assert "without MTP" not in words(signed_in(bob), "servers")


def test_the_policy_is_told_in_words(charlie: User, signed_in: Any) -> None:
    profile, client = pages.profile(), signed_in(charlie)
    assert "Restart on failure, up to 3 times" in words(client, "server-detail", profile.pk)
    ServerProfile.objects.update(policy={"restart": "never"})
    assert "Restart never" in words(client, "server-detail", profile.pk)
    rare = {"restart": "always", "limit": 1, "memory_mib": 65536, "idle_min": 30, "on_demand": True}
    ServerProfile.objects.update(policy=rare)
    text = words(client, "server-detail", profile.pk)
    for part in (
        "Restart always, up to 1 time ",
        "Memory limit 65,536 MiB",
        "Unload after 30 minutes without a request",
        "Start on demand a request starts it",
    ):
        assert part in text


def test_an_unloaded_server_waits_for_a_request_and_a_pinned_one_stays(
    bob: User, charlie: User, signed_in: Any
) -> None:
    profile = pages.profile(policy={"idle_min": 30, "on_demand": True})
    client = signed_in(charlie)
    assert "unloaded · the next request starts it" in words(client, "server-detail", profile.pk)
    pages.run_of(profile, state=Run.State.EXITED)
    asleep = "unloaded · after 30 minutes without a request; the next request starts it"
    assert asleep in words(client, "server-detail", profile.pk)
    assert "unloaded" in words(client, "servers")
    set_to(profile, held=True)
    assert asleep not in words(client, "server-detail", profile.pk)

    pin = reverse("server-pin", args=[profile.pk])
    assert pin not in page(client, profile)
    client = signed_in(bob)
    assert pin in page(client, profile)
    client.post(pin, {"pinned": "1"})
    assert "yes: stays loaded" in words(client, "server-detail", profile.pk)
    assert "ti-pinned" in client.get(reverse("servers")).content.decode()
    client.post(pin, {"pinned": "0"})
    profile.instance.refresh_from_db()
    assert not profile.instance.pinned
    ServerProfile.objects.update(policy={})
    assert pin not in page(client, profile)
