"""The metrics for a monitoring system: what they say and leave out, who may read them, what they cost."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_script_prefix
from django.urls import reverse
from django.utils import timezone
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from controlpanel.lib.env import PublicUrl
from controlpanel.lib.redis import sync_client
from jobs.domain.gpu import GpuProcess, Gpus, GpuSample, Sample
from jobs.domain.hostload import HostLoad, LoadSample
from jobs.models import AuditEntry, Host, Job, MetricsToken
from jobs.services import exporter_tokens, gpus, hostload
from jobs.services.audit import Actor
from jobs.views.exporter_access import DASHBOARD
from servers.domain.meter import STALE_AFTER, ServerMeter, SlotUse, dumped
from servers.models import Incident, Instance, ServerProfile
from servers.services import metering
from tests.functional import pages

pytestmark = pytest.mark.django_db

P = "llamacpp_panel_"
CARD = GpuSample(
    *(0, "GPU-aa", "NVIDIA GeForce RTX 3090"),
    memory_total_mib=24576,
    memory_used_mib=20480,
    memory_reserved_mib=300,
    utilization=87,
    memory_utilization=40,
    temperature=71,
    power_w=301.5,
    power_limit_w=350.0,
    clock_mhz=1800,
    memory_clock_mhz=9501,
    fan=55,
    pcie_gen=4,
    pcie_width=16,
    pcie_rx_mib_s=12.5,
    pcie_tx_mib_s=0.0,
    throttle=("power_limit",),
    ecc_corrected=0,
    ecc_uncorrected=2,
)
LOAD = HostLoad(12.5, 16, 65536, 16384, 8192, 0, 1024000, 256000, 0.5, 1.25, 3.0)
METER = ServerMeter(
    time=0.0,
    predicted_tps=41.5,
    prompt_tps=900.0,
    busy=1,
    waiting=0,
    slots=(SlotUse(0, 5000, 131072, True), SlotUse(1, None, 131072, False)),
    acceptance=0.82,
    per_position=(0.9, 0.74),
    mean_length=2.6,
    totals={
        **{"requests": 12, "prompt_tokens": 60000, "predicted_tokens": 8000, "prompt_seconds": 66.5},
        **{"predicted_seconds": 190.0, "drafted": 9000, "accepted": 7400},
    },
)

Series = dict[str, dict[tuple[tuple[str, str], ...], float]]
ScrapeIt = Callable[[], Series]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory of what other tests published or failed to read."""
    monkeypatch.setattr(gpus, "_next_try", 0.0)


def publish(card: GpuSample = CARD, meters: dict[int, ServerMeter] | None = None, age: float = 0.0) -> None:
    """Publish samples that are `age` seconds old."""
    moment = time.time() - age
    gpus.publish_sample("local", Sample(moment, Gpus("580.95.05", "13.0", (card,))))
    hostload.publish_load("local", LoadSample(moment, LOAD))
    found = {pk: replace(meter, time=moment) for pk, meter in (meters or {}).items()}
    sync_client().xadd(metering.stream_of("local"), {"data": dumped(found)}, maxlen=1, approximate=False)


@pytest.fixture
def furnished(redis_server: redis.Redis, host: Host) -> ServerProfile:
    """A panel with everything that is exported."""
    Host.objects.update(agent_seen_at=timezone.now())
    profile = pages.profile('Daily "chat"', "ready", {"desired": "running", "ready_at": timezone.now()})
    pages.profile("Failed", "failed", {"attempts": 3})
    pages.download(job=pages.loading(2**30, 2**32, 5e7, 61.0), state="loading")
    Job.objects.create(kind="build.probe", host=host, subject_kind="build", subject_id="1")
    noted = {"first_at": timezone.now(), "last_at": timezone.now()}
    Incident.objects.create(profile=profile, server=profile.name, kind="crash", title="ended", **noted)
    ours = GpuProcess(4711, "llama-server", 18000, True, "panel", f"instance:{profile.instance.pk}")
    foreign = GpuProcess(99, "python", 2000, False)
    # A little ahead, so that a slow machine does not make them old before they are read.
    publish(replace(CARD, processes=(ours, foreign)), {profile.pk: METER}, age=-20)
    return profile


@pytest.fixture
def token(alice: User) -> str:
    """A token that opens the metrics."""
    return exporter_tokens.make_token(Actor(alice, "web"), "Prometheus")[1]


def series(text: str, parse: Any = plain) -> Series:
    """Values by the name of the sample and its labels; fails for a series that comes twice."""
    found: Series = {}
    for family in parse(text):
        assert family.documentation
        for sample in family.samples:
            own = found.setdefault(sample.name, {})
            key = tuple(sorted(sample.labels.items()))
            assert key not in own
            own[key] = sample.value
    return found


@pytest.fixture
def scrape(client: Client, token: str) -> ScrapeIt:
    """What a monitoring system gets."""

    def get() -> Series:
        answer = client.get(reverse("panel-metrics"), headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200
        assert answer["Content-Type"].startswith("text/plain; version=")
        return series(answer.content.decode())

    return get


def one(found: Series, metric: str, /, **labels: str) -> float:
    """The value of the only series with these labels among its own."""
    wanted = set(labels.items())
    values = [value for own, value in found[P + metric].items() if wanted <= set(own)]
    assert len(values) == 1, found[P + metric]
    return values[0]


def test_a_furnished_panel_is_told_in_base_units(furnished: ServerProfile, scrape: ScrapeIt) -> None:
    found = scrape()
    card = {"host": "local", "gpu": "0", "uuid": "GPU-aa", "name": "NVIDIA GeForce RTX 3090"}
    for name, value in {
        **{"gpu_utilization_ratio": 0.87, "gpu_memory_controller_utilization_ratio": 0.4, "gpu_lost": 0},
        **{"gpu_memory_total_bytes": 24 * 2**30, "gpu_memory_used_bytes": 20 * 2**30, "gpu_fan_ratio": 0.55},
        **{"gpu_memory_own_bytes": 18000 * 2**20, "gpu_temperature_celsius": 71, "gpu_power_watts": 301.5},
        **{"gpu_power_limit_watts": 350, "gpu_clock_hertz": 1.8e9, "gpu_memory_clock_hertz": 9.501e9},
        **{"gpu_pcie_receive_bytes_per_second": 12.5 * 2**20, "gpu_pcie_transmit_bytes_per_second": 0},
    }.items():
        assert one(found, name, **card) == pytest.approx(value), name
    assert one(found, "gpu_throttle_active", reason="power_limit") == 1
    assert one(found, "gpu_throttle_active", reason="software_heat") == 0
    assert one(found, "gpu_ecc_errors_total", severity="uncorrected") == 2
    assert one(found, "gpu_driver_info", driver="580.95.05", cuda="13.0") == 1
    for name, value in {
        **{"host_cpu_utilization_ratio": 0.125, "host_memory_used_bytes": 16 * 2**30, "host_load5": 1.25},
        **{"host_disk_free_bytes": 256000 * 2**20, "host_swap_used_bytes": 0},
    }.items():
        assert one(found, name, host="local") == pytest.approx(value), name
    own = {"server": 'Daily "chat"', "slug": furnished.slug, "host": "local"}
    for name, value in {
        **{"server_up": 1, "server_desired_up": 1, "server_generation_tokens_per_second": 41.5},
        **{"server_requests_busy": 1, "server_requests_waiting": 0, "server_context_used_tokens": 5000},
        **{"server_draft_acceptance_ratio": 0.82, "server_generated_tokens_total": 8000},
        **{"server_prompt_seconds_total": 66.5, "server_gpu_memory_bytes": 18000 * 2**20},
    }.items():
        assert one(found, name, **own) == pytest.approx(value), name
    assert one(found, "server_info", **own, build="mainline", model="Qwen-MTP") == 1
    assert one(found, "server_state", **own, state="ready") == 1
    assert one(found, "server_state", **own, state="failed") == 0
    assert one(found, "server_slot_context_size_tokens", **own, slot="1") == 131072
    assert one(found, "server_draft_position_acceptance_ratio", **own, position="2") == 0.74
    assert one(found, "server_restart_attempts", server="Failed") == 3
    assert time.time() - one(found, "server_ready_timestamp_seconds", **own) < 60
    assert one(found, "jobs", kind="build.probe", state="queued") == 1
    assert one(found, "queue_jobs", host="local", queue="control") == 1
    assert one(found, "downloads_bytes_per_second", host="local") == 5e7
    assert one(found, "incidents", kind="crash") == 1
    assert one(found, "incidents", kind="hang") == 0
    assert one(found, "agent_heartbeat_age_seconds", host="local") < 60
    assert one(found, "redis_up") == 1
    assert "4711" not in str(found) and "python" not in str(found)


def test_what_is_not_known_has_no_series(furnished: ServerProfile, scrape: ScrapeIt) -> None:
    lost = GpuSample(0, "GPU-aa", "NVIDIA GeForce RTX 3090", lost=True)
    publish(lost, {furnished.pk: ServerMeter(time=0.0, busy=0)})
    found = scrape()
    assert one(found, "gpu_lost") == 1
    assert {name for name in found if name.startswith(f"{P}gpu_")} == {
        *(f"{P}gpu_lost", f"{P}gpu_sample_age_seconds", f"{P}gpu_driver_up", f"{P}gpu_driver_info")
    }
    assert one(found, "server_requests_busy") == 0
    assert f"{P}server_generation_tokens_per_second" not in found
    assert f"{P}server_generated_tokens_total" not in found
    assert len(found[f"{P}server_sample_age_seconds"]) == 1  # the failed one is not measured


def test_of_old_samples_only_their_age_is_told(
    furnished: ServerProfile, scrape: ScrapeIt, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(CARD, {furnished.pk: METER}, age=STALE_AFTER + 30)
    found = scrape()
    for name in ("gpu_sample_age_seconds", "host_sample_age_seconds", "server_sample_age_seconds"):
        assert 40 < one(found, name) < 90, name
    gone = ("gpu_lost", "gpu_utilization_ratio", "host_cpu_utilization_ratio", "server_requests_busy")
    assert not {P + name for name in gone} & set(found)
    assert one(found, "server_up", slug=furnished.slug) == 1

    monkeypatch.setattr(gpus, "_next_try", time.monotonic() + 60)  # Redis was away a moment ago
    found = scrape()
    assert one(found, "redis_up") == 0
    assert f"{P}host_sample_age_seconds" not in found
    assert one(found, "jobs", kind="build.probe") == 1


def test_openmetrics_is_spoken_to_who_asks_for_it(
    furnished: ServerProfile, client: Client, token: str
) -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    headers = {"Authorization": f"bearer {token}", "Accept": accept}
    answer = client.get(reverse("panel-metrics"), headers=headers)
    assert answer["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    found = series(answer.content.decode(), openmetrics)
    assert one(found, "server_generated_tokens_total") == 8000
    assert one(found, "server_info", slug=furnished.slug) == 1


def test_the_dashboard_asks_only_for_metrics_that_there_are(
    furnished: ServerProfile, scrape: ScrapeIt
) -> None:
    board = json.loads(DASHBOARD.read_text())
    assert board["schemaVersion"] >= 38
    shown = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    sources = {panel["datasource"]["uid"] for panel in shown}
    sources |= {target["datasource"]["uid"] for panel in shown for target in panel["targets"]}
    assert sources == {"${datasource}"}
    asked = [target["expr"] for panel in shown for target in panel["targets"]]
    asked += [variables[name]["definition"] for name in ("host", "server")]
    asked += [note["expr"] for note in board["annotations"]["list"] if "expr" in note]
    found = scrape()
    for expression in asked:
        names = re.findall(rf"{P}\w+", expression)
        assert names, expression
        for name in names:
            assert name in found, name
            labels = {label for own in found[name] for label, _value in own}
            matchers = re.findall(rf"{name}{{([^}}]*)}}", expression)
            used = {label for text in matchers for label in re.findall(r"(\w+)[=!]~?\"", text)}
            assert used <= labels, expression


def test_a_part_that_fails_keeps_no_other_from_its_turn(
    furnished: ServerProfile, scrape: ScrapeIt, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scrape()[f"{P}scrape_failures"] == {(): 0}
    monkeypatch.setattr(Job.objects, "order_by", None)
    found = scrape()
    assert found[f"{P}scrape_failures"] == {(): 1}
    assert f"{P}jobs" not in found
    assert len(found[f"{P}server_up"]) == 2


def test_more_rows_cost_no_more_queries(furnished: ServerProfile, scrape: ScrapeIt, host: Host) -> None:
    scrape()  # notes the use of the token
    with CaptureQueriesContext(
        connection,
    ) as before:
        scrape()
    for number in range(8):
        row = pages.profile(f"More {number}", "ready")
        Job.objects.create(kind=f"kind-{number}", host=host, subject_kind="build", subject_id="1")
        noted = {"first_at": timezone.now(), "last_at": timezone.now()}
        Incident.objects.create(profile=row, server=row.name, kind="hang", title="hung", **noted)
        pages.download(f"More {number}", pages.loading(1, 2), state="loading")
    with CaptureQueriesContext(connection) as after:
        found = scrape()
    assert len(found[f"{P}server_up"]) == 10
    assert len(after) == len(before) <= 13


def test_only_a_token_opens_them(
    furnished: ServerProfile, client: Client, alice: User, signed_in: Any, token: str
) -> None:
    address = reverse("panel-metrics")
    digest = MetricsToken.objects.get().digest
    wrong = [None, "", "Bearer", "Bearer ", f"Basic {token}", f"Bearer {token}x", f"Bearer {digest}", token]
    for header in wrong:
        answer = client.get(address, headers={} if header is None else {"Authorization": header})
        assert (answer.status_code, answer.content) == (401, b""), header
        assert answer["WWW-Authenticate"] == 'Bearer realm="metrics"'
    assert signed_in(alice).get(address).status_code == 401
    assert MetricsToken.objects.get().used_at is None
    answer = client.get(address, headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    assert not answer.cookies


def test_the_use_of_a_token_is_noted_once_a_minute(furnished: ServerProfile, scrape: ScrapeIt) -> None:
    scrape()
    first = MetricsToken.objects.get().used_at
    scrape()
    assert MetricsToken.objects.get().used_at == first
    long_ago = timezone.now() - timedelta(minutes=2)
    MetricsToken.objects.update(used_at=long_ago)
    scrape()
    used = MetricsToken.objects.get().used_at
    assert used is not None and used > long_ago


def test_an_admin_makes_and_deletes_tokens(
    furnished: ServerProfile, alice: User, client: Client, signed_in: Any
) -> None:
    admin, page = signed_in(alice), reverse("metrics-access")
    text = admin.get(page).content.decode()
    assert "Make a token below" in text
    assert "metrics_path: /metrics" in text and "testserver" in text
    assert f'href="{page}"' in text  # in the user's menu
    answer = admin.post(reverse("metrics-token-add"), {"name": " Prometheus  one "})
    text = answer.content.decode()
    found = re.findall(r"panel-metrics-[\w-]{43}", text)
    assert len(set(found)) == 1
    row = MetricsToken.objects.get()
    assert (row.name, row.created_by) == ("Prometheus one", alice)
    assert found[0] not in admin.get(page).content.decode()
    assert "no-store" in answer["Cache-Control"]
    headers = {"Authorization": f"Bearer {found[0]}"}
    assert client.get(reverse("panel-metrics"), headers=headers).status_code == 200

    again = admin.post(reverse("metrics-token-add"), {"name": "Prometheus one"}).content.decode()
    assert "already a token with this name" in again
    assert MetricsToken.objects.count() == 1
    admin.post(reverse("metrics-token-delete", args=[row.pk]))
    assert client.get(reverse("panel-metrics"), headers=headers).status_code == 401
    actions = AuditEntry.objects.filter(object_kind="metricstoken").order_by("pk")
    assert [entry.action for entry in actions] == ["metrics_token.add", "metrics_token.delete"]
    stored = str(list(AuditEntry.objects.values()) + list(admin.session.items()))
    assert found[0] not in stored and row.digest not in stored

    given = admin.get(reverse("metrics-dashboard"))
    assert "attachment" in given["Content-Disposition"]
    assert json.loads(b"".join(given))["uid"] == "llamacpp-panel"


def test_the_number_of_tokens_is_bounded(
    alice: User, monkeypatch: pytest.MonkeyPatch, signed_in: Any
) -> None:
    monkeypatch.setattr(exporter_tokens, "MOST", 1)
    exporter_tokens.make_token(Actor(alice, "web"), "one")
    answer = signed_in(alice).post(reverse("metrics-token-add"), {"name": "two"})
    assert "There are 1 tokens already" in answer.content.decode()
    assert MetricsToken.objects.count() == 1


def test_the_snippet_has_the_address_of_the_panel(alice: User, signed_in: Any, settings: Any) -> None:
    settings.PANEL_URL = PublicUrl("https", "gpu.example.org", "https://gpu.example.org:8443", "/panel")
    with override_script_prefix("/panel/"):
        text = signed_in(alice).get("/metrics/access/").content.decode()
    assert "scheme: https" in text
    assert "metrics_path: /panel/metrics\n" in text
    assert "gpu.example.org:8443" in text


def test_states_that_rest_are_not_measured(furnished: ServerProfile, scrape: ScrapeIt) -> None:
    Instance.objects.filter(profile=furnished).update(observed="stopped", desired="stopped")
    found = scrape()
    assert one(found, "server_up", slug=furnished.slug) == 0
    assert f"{P}server_requests_busy" not in found and f"{P}server_ready_timestamp_seconds" not in found
