"""What a start took is read back beside what was estimated, and corrects the next estimate of that binary."""

from __future__ import annotations

import json
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import redis
from asgiref.sync import async_to_sync
from django.core.management import call_command

from controlpanel.llamacpp.memory_learn import Learned
from controlpanel.llamacpp.memory_types import MIB
from jobs.domain.gpu import GpuProcess, GpuSample
from jobs.models import Build, Job, Run
from jobs.services import gpus, jobs, watch
from jobs.services.artifacts import register_artifact
from jobs.services.audit import Actor
from jobs.services.builds import probe_now, register_build
from jobs.services.hosts import local_host
from servers.models import Instance, ProfileRevision, ServerProfile, StartReading
from servers.services import estimates, instances, polls, readings
from servers.services.estimates import prepare
from servers.services.fit import fit_of
from servers.services.learned import learned_for
from servers.services.profiles import ProfileData, data_of, save_profile
from servers.services.readings import reading_of, take_reading
from tests.cards import publish_cards
from tests.functional import pages
from tests.models import tiny_models
from tests.unit.memory_headers import LOGS
from tests.waiting import wait_for

pytestmark = pytest.mark.django_db(transaction=True)
CLI = Actor.cli()
CARD = GpuSample(0, name="RTX 3090", memory_total_mib=24_576, memory_used_mib=2000)
ON_CARD = """\
load_tensors: loading model tensors, this can take a while... (mmap = true)
load_tensors:        CUDA0 model buffer size =     3.50 MiB
llama_kv_cache:      CUDA0 KV buffer size =     1.00 MiB
llama_memory_recurrent:      CUDA0 RS buffer size =     0.27 MiB
sched_reserve:      CUDA0 compute buffer size =     6.00 MiB
sched_reserve:  CUDA_Host compute buffer size =     1.00 MiB
"""


@pytest.fixture(autouse=True)
def fresh(redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """No samples, no headers and no polls of the tests before."""
    monkeypatch.setattr(gpus, "_shown", None)
    monkeypatch.setattr(gpus, "_next_try", 0.0)
    monkeypatch.setattr(polls, "_watches", {})
    monkeypatch.setattr(watch, "_running", set())
    estimates._read.cache_clear()


@pytest.fixture
def profile(tmp_path: Path) -> ServerProfile:
    """A profile of a build whose binary is known, as if it had just been started."""
    build = pages.build("mainline", fingerprint="abc")
    row = pages.profile(build=build, model=pages.model_of(tiny_models(tmp_path)[0]))
    row.settings = {"ctx_size": 1024}
    row.save()
    pages.run_of(row)
    return row


def instance_of(profile: ServerProfile) -> Instance:
    """The instance as the database has it now."""
    return Instance.objects.select_related("run", "profile").get(profile=profile)


def log_of(name: str) -> str:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8")


def test_a_real_start_is_read_back_and_corrects_the_estimate(tmp_path: Path) -> None:
    build = register_build(CLI, local_host(), "Engine", str(Path(sys.prefix) / "bin" / "panel-llama-server"))
    probe_now(build)
    build.refresh_from_db()
    model = register_artifact(CLI, local_host(), str(tiny_models(tmp_path)[0]))
    Job.objects.all().delete()
    values: dict[str, Any] = {"ctx_size": 1024, "speculation": "mtp", "draft_max": 2}
    profile = save_profile(CLI, None, ProfileData("Tiny", build, model, settings=values))
    before = fit_of(prepare(ProfileData("Tiny", build, model, settings={**values, "ctx_size": 4096})))
    instances.request_start(CLI, profile)
    launch = Job.objects.filter(kind=instances.LAUNCH).first()
    assert launch is not None
    jobs.execute(launch.pk)
    run = instance_of(profile).run
    assert run is not None
    watch._running = {run.pk}

    def ready() -> bool:
        async_to_sync(polls.poll_instances)()
        return instance_of(profile).observed == Instance.Observed.READY

    try:
        wait_for(ready, 60, "the server to be ready")
    finally:
        jobs.execute(instances.request_stop(CLI, profile).pk)
    found = reading_of(run)
    assert found is not None and found.teaches
    [host] = found.places
    rows = {row.label: row for row in host.rows}
    for label in ("Weights", "KV cache", "Recurrent state", "KV cache of MTP"):
        assert rows[label].estimated == pytest.approx(rows[label].measured, abs=0.01 * MIB), label
    work = rows["Computation"]
    assert work.measured and work.estimated and work.measured < work.estimated
    row = StartReading.objects.get()
    assert (row.backend, row.architecture, row.fingerprint) == ("CPU", "qwen35", build.fingerprint)
    assert row.settings == values and row.profile == profile
    after = fit_of(prepare(ProfileData("Tiny", build, model, settings={**values, "ctx_size": 4096})))
    assert after.host_total is not None and before.host_total is not None
    assert after.host_total < before.host_total
    assert any("corrected" in why for why in after.why) and not any("corrected" in why for why in before.why)
    labels = {part.key: part.label for part in after.host}
    assert labels["compute"] == "Computation"


def test_a_run_is_read_once(profile: ServerProfile) -> None:
    take_reading(instance_of(profile), log_of("upstream-plain"))
    take_reading(instance_of(profile), log_of("upstream-mtp"))
    row = StartReading.objects.get()
    assert row.measured["-1"]["kv"] == 0.5


def test_a_log_that_tells_nothing_is_no_reading(profile: ServerProfile) -> None:
    for log in ("", "listening on http://127.0.0.1:8080\n" * 3):
        take_reading(instance_of(profile), log)
    run = instance_of(profile).run
    assert run is not None and reading_of(run) is None and not StartReading.objects.exists()


def test_nothing_that_goes_wrong_reaches_the_poll(
    profile: ServerProfile, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Path(profile.model.path).unlink()
    take_reading(instance_of(profile), log_of("upstream-plain"))
    assert not StartReading.objects.exists()

    def broken(*_args: object) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(readings, "_take", broken)
    take_reading(instance_of(profile), log_of("upstream-plain"))
    assert "no memory reading" in caplog.text


def test_what_was_started_counts_and_not_what_was_saved_since(profile: ServerProfile) -> None:
    pages.revision(profile)
    profile.settings = {"ctx_size": 4096}
    profile.revision = 2
    profile.save()
    take_reading(instance_of(profile), log_of("fork-plain"))
    assert StartReading.objects.get().settings == {"ctx_size": 1024}
    StartReading.objects.all().delete()
    ProfileRevision.objects.all().delete()
    take_reading(instance_of(profile), log_of("fork-plain"))
    assert not StartReading.objects.exists()


def test_settings_that_no_estimate_knows_are_measured_all_the_same(profile: ServerProfile) -> None:
    profile.settings = {"ctx_size": 1024, "parallel": 0}
    profile.save()
    take_reading(instance_of(profile), log_of("upstream-plain"))
    row = StartReading.objects.get()
    assert row.measured and row.estimated == {} and row.learned == {}
    found = reading_of(row.run)
    assert found is not None and not found.teaches
    assert all(line.estimated is None for place in found.places for line in place.rows)


def test_a_card_is_read_with_what_the_driver_takes_of_it(profile: ServerProfile) -> None:
    Run.objects.update(pid=77)
    publish_cards(
        GpuSample(
            **{**vars(CARD), "processes": (GpuProcess(77, memory_mib=360), GpuProcess(5, memory_mib=9))}
        )
    )
    take_reading(instance_of(profile), ON_CARD)
    row = StartReading.objects.get()
    assert row.backend == "CUDA"
    learned = Learned.from_dict(row.learned)
    assert learned is not None and learned.work is not None
    assert learned.driver == pytest.approx(360 - 10.77)
    found = reading_of(row.run)
    assert found is not None
    assert [place.name for place in found.places] == ["GPU 0", "Main memory"]
    card = found.places[0]
    rows = {line.label: line for line in card.rows}
    driver = rows["Driver and margin"]
    assert driver.measured == round((360 - 10.77) * MIB) and driver.estimated == 600 * MIB
    assert card.measured == 360 * MIB
    assert card.estimated is not None and card.estimated > card.measured


def test_a_correction_holds_for_the_very_same_binary_and_kind_of_device(profile: ServerProfile) -> None:
    take_reading(instance_of(profile), log_of("upstream-plain"))
    build = profile.build
    found = learned_for(build, "qwen35", "CPU")
    assert found is not None and found.work
    assert learned_for(build, "qwen35", "CUDA") is None
    assert learned_for(build, "llama", "CPU") is None
    assert learned_for(build, None, "CPU") is None
    assert learned_for(pages.build("other", fingerprint="abc"), "qwen35", "CPU") is None
    Build.objects.filter(pk=build.pk).update(fingerprint="new")
    build.refresh_from_db()
    assert learned_for(build, "qwen35", "CPU") is None
    build.fingerprint = ""
    assert learned_for(build, "qwen35", "CPU") is None


def test_the_newest_start_counts_and_older_ones_fill_what_it_did_not_show(profile: ServerProfile) -> None:
    values = {"profile": profile, "build": profile.build, "fingerprint": "abc", "architecture": "qwen35"}
    older = Learned(flash=True, work=0.4, draft=0.2, driver=350.0)
    for learned in (older.to_dict(), Learned(flash=True, work=0.5).to_dict(), {}):
        StartReading.objects.create(run=pages.run_of(profile), backend="CUDA", learned=learned, **values)
    assert learned_for(profile.build, "qwen35", "CUDA") == Learned(True, 0.5, 0.2, None, 350.0)


def test_the_command_takes_what_the_starts_of_its_build_taught(profile: ServerProfile) -> None:
    def asked(*more: str) -> dict[str, Any]:
        out = StringIO()
        words = ("--gguf", profile.model.path, "--gpus", "0", "-c", "4096", "--json", *more)
        call_command("fit", *words, stdout=out)
        found: dict[str, Any] = json.loads(out.getvalue())
        return found

    take_reading(instance_of(profile), log_of("upstream-plain"))
    plain, corrected = asked(), asked("--build", "mainline")
    assert corrected["host"]["compute"] < plain["host"]["compute"]
    assert any("corrected" in why for why in corrected["why"])


def test_a_corrected_card_says_so(profile: ServerProfile) -> None:
    publish_cards(CARD)
    uncorrected = fit_of(prepare(data_of(profile)))
    learned = Learned(flash=True, work=0.5, driver=350.0)
    StartReading.objects.create(
        run=pages.run_of(profile),
        profile=profile,
        build=profile.build,
        fingerprint="abc",
        architecture="qwen35",
        backend="CUDA",
        learned=learned.to_dict(),
    )
    corrected = fit_of(prepare(data_of(profile)))
    [before], [after] = uncorrected.cards, corrected.cards
    assert after.total is not None and before.total is not None and after.total < before.total
    sizes = {part.key: (part.label, part.size) for part in after.parts}
    assert sizes["margin"] == ("Driver and margin", 350 * MIB)
    assert "at most" in {part.key: part.label for part in before.parts}["margin"]
