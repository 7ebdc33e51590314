"""Incidents: noted once and counted, found in the logs of running servers, listed with cause and log."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import QueryDict
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from controlpanel.lib.text import Message
from controlpanel.llamacpp.rule_types import Change, Diagnosis, Evidence
from jobs import live
from jobs.adapters import runs as folders
from jobs.models import Run
from jobs.services import watch
from servers.models import Incident, Instance, ServerProfile
from servers.services import incidents, runtime_watch
from servers.views.incident_rows import INCIDENTS, incidents_of
from tests.functional import pages

pytestmark = pytest.mark.django_db(transaction=True)
Kind = Incident.Kind
START = "srv    load_model: initializing, n_slots = 1, n_ctx_slot = 2048\n"
LISTENING = "srv  llama_server: listening on http://127.0.0.1:18120\n"
TOO_LONG = (
    "srv    send_error: task id = {0}, error: request (5000 tokens) exceeds the available context size "
    "(2048 tokens), try increasing it\n"
)
ANSWER = (
    "slot launch_slot_: id  0 | task {0} | processing task, is_child = 0\n"
    "slot print_timing: id  0 | task {0} |        eval time =    2000.00 ms /   200 tokens "
    "(   10.00 ms per token,   100.00 tokens per second)\n"
    "slot print_timing: id  0 | task {0} | draft acceptance = 0.5 ({1:5} accepted /   300 generated)\n"
    "slot      release: id  0 | task {0} | stop processing: n_tokens = 900, truncated = 0\n"
)


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path) -> None:
    """An agent that has just been started."""
    settings.PANEL_DATA = tmp_path
    for module, name in ((runtime_watch, "_watches"), (runtime_watch, "_sizes")):
        monkeypatch.setattr(module, name, {})
    monkeypatch.setattr(watch, "_running", set())


def serving(name: str = "Qwen", **fields: Any) -> tuple[ServerProfile, Run]:
    """A server that is ready, with an empty log."""
    profile = pages.profile(name, "ready", settings={"ctx_size": 2048}, **fields)
    run = pages.run_of(profile)
    folders.log_path(run.pk).parent.mkdir(parents=True)
    profile.refresh_from_db()
    watch._running |= {run.pk}
    return profile, run


def instance_of(profile: ServerProfile) -> Instance:
    return Instance.objects.select_related("run", "profile").get(profile=profile)


def write(run: Run, text: str) -> None:
    with folders.log_path(run.pk).open("a") as file:
        file.write(text)


def looked() -> dict[tuple[str, str], int]:
    """What is noted after one more look, and how often."""
    runtime_watch.watch_running()
    return {(row.kind, row.cause): row.count for row in Incident.objects.all()}


def diagnosis(offset: int = 0, key: str = "oom_gpu") -> Diagnosis:
    change = (Change("ctx_size", 1024),)
    evidence = (Evidence(3, offset, "cudaMalloc failed"),)
    return Diagnosis(key, Message("No memory"), Message("Take less."), evidence, change)


def test_what_is_seen_again_in_a_run_is_counted_and_another_run_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profile, run = serving()
    read: list[bool] = []  # for each read of a log, whether a transaction waited for the disk

    def noticed(reader: Callable[..., Any]) -> Callable[..., Any]:
        def look(*args: Any) -> Any:
            read.append(connection.in_atomic_block)
            return reader(*args)

        return look

    for name in ("log_part", "log_end"):
        monkeypatch.setattr(incidents, name, noticed(getattr(incidents, name)))
    write(run, "".join(f"line {number}\n" for number in range(2000)))
    text = folders.log_path(run.pk).read_text()
    at = text.index("line 1000\n")
    instance, title = instance_of(profile), Message("Out of %(what)s", {"what": Message("memory")})
    first = incidents.note(instance, Kind.CRASH, title, diagnoses=[diagnosis(at)])
    again = incidents.note(instance, Kind.CRASH, title, diagnoses=[diagnosis(0)], count=2)
    assert (again.pk, again.count, again.title_text) == (first.pk, 3, "Out of memory")
    assert again.last_at > again.first_at == first.first_at
    assert text[again.log_from : again.log_to].split("\n")[0] == "line 995"
    assert text[again.log_from : again.log_to].endswith("line 1005\n")
    without = incidents.note(instance, Kind.HANG, title)
    assert text[without.log_from : without.log_to] == text[-4096:]
    assert read == [False, False, False]  # two parts around the evidence, one end; nothing to count again
    other = incidents.note(instance, Kind.CRASH, title, run=pages.run_of(profile), diagnoses=[diagnosis()])
    assert other.pk != first.pk and Incident.objects.count() == 3


def test_only_the_newest_incidents_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incidents, "KEPT", 3)
    profile, _run = serving()
    for number in range(5):
        run = pages.run_of(profile)
        incidents.note(instance_of(profile), Kind.CRASH, Message(f"No. {number}"), run=run)
    assert [row.title_text for row in Incident.objects.all()] == ["No. 4", "No. 3", "No. 2"]


def test_the_duty_reads_on_where_it_stopped_and_asks_nothing_for_nothing() -> None:
    profile, run = serving()
    failed_start = "ggml_cuda_init: failed to initialize CUDA: no CUDA-capable device is detected\n"
    write(run, failed_start + START + LISTENING)
    assert looked() == {}
    with CaptureQueriesContext(connection) as asked:
        runtime_watch.watch_running()
    assert len(asked) == 0
    write(run, TOO_LONG.format(1) + "all slots are idle\n" + TOO_LONG.format(2) + TOO_LONG.format(3)[:40])
    assert looked() == {("request", "context_overflow"): 2}
    write(run, TOO_LONG.format(3)[40:])
    assert looked() == {("request", "context_overflow"): 3}
    # The agent is started again: what was counted is not counted again, what came meanwhile is.
    write(run, TOO_LONG.format(4))
    runtime_watch._watches.clear()
    runtime_watch._sizes.clear()
    assert looked() == {("request", "context_overflow"): 4}
    row = Incident.objects.get()
    text = folders.log_path(run.pk).read_text()
    at = row.diagnosis["evidence"][0]["offset"]
    assert text[at:].startswith(TOO_LONG.format(1)) and row.log_from < at < row.log_to
    Instance.objects.update(observed=Instance.Observed.STOPPING)
    write(run, TOO_LONG.format(5))
    assert looked() == {("request", "context_overflow"): 4}
    watch._running.clear()
    with CaptureQueriesContext(connection) as asked:
        runtime_watch.watch_running()
    assert len(asked) == 0 and not runtime_watch._watches


def test_drafts_that_are_accepted_no_more_are_noted_once_over_many_looks() -> None:
    _profile, run = serving()
    write(run, START + LISTENING)
    for task in range(60):
        write(run, ANSWER.format(task, 200 if task < 30 else 20))
        if task % 7 == 0:
            runtime_watch.watch_running()
    assert looked() == {("quality", "acceptance_collapse"): 1}
    row = Incident.objects.get()
    assert "it was 67 %" in row.title_text
    log = folders.log_path(run.pk).read_bytes()
    for line in row.diagnosis["evidence"]:
        assert log[line["offset"] :].decode().startswith(line["text"])


def test_a_look_at_a_full_window_is_cheap_and_skips_what_is_older() -> None:
    _profile, run = serving()
    ordinary = "".join(ANSWER.format(task, 200) for task in range(6000))
    write(run, LISTENING + TOO_LONG.format(1) + ordinary[: 2 * runtime_watch.LIMIT])
    assert looked() == {}
    write(run, ordinary[: runtime_watch.LIMIT] + "\n")
    began = time.process_time()
    assert looked() == {}
    assert time.process_time() - began < 0.25


def test_the_page_lists_filters_and_unfolds(charlie: User, bob: User, signed_in: Any) -> None:
    client = signed_in(charlie)
    assert "Nothing went wrong so far" in client.get(reverse("incidents")).content.decode()
    profile, run = serving("Daily")
    other, _other_run = serving("Other", build=profile.build, model=profile.model)
    write(run, START + LISTENING + TOO_LONG.format(1))
    runtime_watch.watch_running()
    incidents.note(instance_of(profile), Kind.CRASH, Message("It <crashed>"), diagnoses=[diagnosis()])
    incidents.note(instance_of(other), Kind.HANG, Message("No answer"), count=3)
    Incident.objects.filter(kind="hang").update(last_at=timezone.now() - timedelta(days=2))

    def shown(**query: Any) -> list[str]:
        rows = client.get(reverse("incidents"), query).context["table"].rows
        return [row["incident"].kind for row in rows]

    assert shown() == ["crash", "request", "hang"]
    assert shown(sort="when") == ["hang", "request", "crash"]
    assert shown(server=str(other.pk)) == ["hang"]
    assert shown(kind="crash", server=str(profile.pk)) == ["crash"]
    assert shown(when="day", q="exceeds") == [] and shown(when="day", q="slot holds") == ["request"]
    assert shown(server="nobody") == shown(server=str(other.pk), kind="x") == []

    text = client.get(reverse("incidents")).content.decode()
    assert "It &lt;crashed&gt;" in text and "Take less." in text
    request = Incident.objects.get(kind="request")
    offset = request.diagnosis["evidence"][0]["offset"]
    assert f'{reverse("run-log", args=[run.pk])}?at={offset}"' in text
    assert f'href="{reverse("profile-revisions", args=[profile.pk])}"' in text
    assert "Open the form with this change" not in text
    none = client.get(reverse("incidents"), {"server": "Other"}).content.decode()
    assert "Nothing here fits what you filter by." in none
    assert f'<a class="btn" href="{reverse("incidents")}">Show all</a>' in none
    ServerProfile.objects.filter(pk=other.pk).update(name="Another")
    assert shown(server=str(other.pk)) == shown(q="another") == ["hang"]
    choices = client.get(reverse("incidents")).context["table"].facets[0]["choices"]
    assert [word for _value, word, _chosen in choices] == ["Another", "Daily"]

    wish = INCIDENTS.read(QueryDict(f"server={profile.pk}&kind=crash&when=week"))
    [subscription] = live.subscriptions(wish.topic)
    assert subscription.topic.allowed(charlie, subscription.arg)
    assert "It &lt;crashed&gt;" in subscription.topic.render("viewer", subscription.arg)
    assert [row["incident"].kind for row in incidents_of(profile.instance, 1)] == ["crash"]

    client = signed_in(bob)
    crash = Incident.objects.get(kind="crash")
    address = f"{reverse('profile-edit', args=[profile.pk])}?incident={crash.pk}&cause=0"
    assert address.replace("&", "&amp;") in client.get(reverse("incidents")).content.decode()
    form = client.get(address)
    assert form.context["preview"].data.settings["ctx_size"] == 1024
    assert f'action="{reverse("profile-edit", args=[profile.pk])}"' in form.content.decode()
    foreign = client.get(address.replace(f"/{profile.pk}/", f"/{other.pk}/"))
    assert "mended" not in foreign.context and "ctx_size" in foreign.context["preview"].data.settings
    ServerProfile.objects.filter(pk=profile.pk).update(revision=2)
    assert (
        "Open the form with this change"
        not in client.get(reverse("incidents")).content.decode().split("slot holds")[0]
    )
    Run.objects.filter(pk=run.pk).update(log_start=10_000)
    assert (
        "?at="
        not in client.get(reverse("incidents"), {"server": profile.pk}).content.decode().split("<details")[0]
    )
    profile.instance.delete()
    profile.delete()
    Run.objects.all().delete()
    rest = client.get(reverse("incidents")).content.decode()
    assert "Daily (deleted)" in rest and "?at=" not in rest
    assert shown(server="gone:Daily") == ["crash", "request"]
    assert client.get(address).status_code == 404
