"""Failures as stories: a server fails, its page names the cause, the change is saved, the server is ready."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from controlpanel.lib.errors import Refused
from controlpanel.llamacpp.rule_types import Change
from jobs.domain.gpu import GpuSample
from jobs.services import gpus
from servers.models import Incident, Instance, ServerProfile
from servers.services import preflight
from servers.services.mending import mended
from servers.services.profiles import data_of
from tests.cards import publish_cards
from tests.fakes.llama_faults import BLACK
from tests.fakes.llama_flags import FORK_HELP, REPLY
from tests.functional.forms import follow_change, text_of
from tests.models import COLOURS, solid_png
from tests.stage import Stage, instance_of

pytestmark = pytest.mark.django_db(transaction=True)
Observed, Kind = Instance.Observed, Incident.Kind
TEAM = {"dialect": "fork", "cards": "24576,24576"}
CARD = GpuSample(0, name="RTX 3090", memory_total_mib=2000, memory_used_mib=0)


@pytest.fixture(autouse=True)
def no_cards(redis_server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of cards that tests before told of."""
    monkeypatch.setattr(gpus, "_shown", None)
    monkeypatch.setattr(gpus, "_next_try", 0.0)


@pytest.fixture
def fork(tmp_path: Path) -> Iterator[Stage]:
    """A team's build of the fork on a host with two cards."""
    stage = Stage(tmp_path, **TEAM)
    yield stage
    stage.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Stage]:
    """The bundled engine."""
    stage = Stage(tmp_path, Path(sys.prefix) / "bin" / "panel-llama-server")
    yield stage
    stage.close()


@pytest.fixture
def browser(bob: User, signed_in: Any) -> Client:
    """An operator's."""
    client = signed_in(bob)
    assert isinstance(client, Client)
    return client


def page_of(profile: ServerProfile) -> str:
    return reverse("server-detail", args=[profile.pk])


def press(
    browser: Client, stage: Stage, profile: ServerProfile, button: str, *states: str, **sent: str
) -> Instance:
    """Press a button of the server's page and wait for one of the states (ready)."""
    browser.post(reverse(f"server-{button}", args=[profile.pk]), sent)
    return stage.until(profile, *(states or (Observed.READY,)))


def restarted(browser: Client, stage: Stage, profile: ServerProfile) -> tuple[list[str], Instance]:
    """Follow the change of the newest incident, save it, restart; what it changed, and the ready server."""
    run = instance_of(profile).run
    told = follow_change(browser, reverse("incidents"), {"then": "restart"})
    stage.rounds(lambda: instance_of(profile).run not in (None, run), "to have been started again")
    return told, stage.until(profile, Observed.READY)


def test_mtp_with_several_slots(fork: Stage, browser: Client, tmp_path: Path) -> None:
    model, _projector = fork.with_heads()
    settings = {"ctx_size": 8192, "parallel": 2}
    for given in (
        {"settings": {**settings, "speculation": "mtp"}},
        {"settings": settings, "extra_args": "--spec-type mtp"},
    ):
        with pytest.raises(Refused, match="set Slots to 1"):
            fork.profile(model=model, **given)
    # A build whose help does not name its kinds of speculation gives the panel nothing to refuse it by.
    text = FORK_HELP.read_text()
    (tmp_path / "help").write_text(text.replace("--spec-type [none|mtp|", "--spec-type TYPE [none|"))
    fork.flags(**TEAM, help=str(tmp_path / "help"))
    fork.probe()
    profile = fork.profile(model=model, settings=settings, extra_args="--spec-type mtp")
    failed = press(browser, fork, profile, "start", Observed.FAILED)
    assert "This build does MTP with one slot only, the profile has 2" in failed.error_text
    assert follow_change(browser, page_of(profile)) == ["Slots: 2 → 1"]
    ready = press(browser, fork, profile, "start")
    assert (ready.facts["mtp"], ready.facts["slots"]) == (True, 1)
    assert "mtp" in {step["key"] for step in ready.steps}


def test_a_context_that_a_card_has_no_room_for(fork: Stage, browser: Client) -> None:
    publish_cards(CARD, replace(CARD, index=1))
    fork.flags(**TEAM, max_ctx=131_072)
    profile = fork.profile(settings={"ctx_size": 262_144, "parallel": 1, "gpu_layers": "all"})
    failed = press(browser, fork, profile, "start", Observed.FAILED)
    assert "The KV cache does not fit into the memory of GPU 0 (16384.00 MiB asked)" in failed.error_text
    (told,) = follow_change(browser, page_of(profile))
    profile.refresh_from_db()
    fits = profile.settings["ctx_size"]
    assert 131_072 < fits < 262_144 and told == f"Context size: 262144 → {fits}"
    # The estimate was wrong: what it holds for the largest has shown to be too much.
    press(browser, fork, profile, "start", Observed.FAILED)
    half = fits // 2 // 256 * 256
    assert follow_change(browser, page_of(profile)) == [f"Context size: {fits} → {half}"]
    assert press(browser, fork, profile, "start").facts["n_ctx"] == half
    # Who lacks memory is given no more context, however much would fit; who lacks context is.
    profile.refresh_from_db()
    short = replace(data_of(profile), settings={**profile.settings, "ctx_size": 2048})
    less = mended(short, [Change("ubatch", 256), Change("ctx_size", "less")]).settings
    assert (less["ctx_size"], less["ubatch"]) == (2048, 256)
    assert mended(short, [Change("ctx_size", "less")]).settings["ctx_size"] == 1024
    assert mended(short, [Change("ctx_size", "fit")]).settings["ctx_size"] == 4096  # as trained


def test_a_split_that_overfills_a_card(fork: Stage, browser: Client) -> None:
    fork.flags(**TEAM, bad_split="2,1")
    profile = fork.profile(settings={"ctx_size": 8192, "gpu_layers": "all", "tensor_split": "2,1"})
    failed = press(browser, fork, profile, "start", Observed.FAILED)
    assert "The model's weights do not fit into the memory of GPU 0" in failed.error_text
    # The build divides by what is free; a person may want equal shares.
    told = follow_change(browser, page_of(profile), {"tensor_split": "1,1"})
    assert told == ["GPU layers: all → auto", "Tensor split: 2,1 → –"]
    ready = press(browser, fork, profile, "start")
    assert ready.run is not None
    assert ready.run.argv[ready.run.argv.index("--tensor-split") + 1] == "1,1"


def test_pictures_that_mtp_turns_black(fork: Stage, browser: Client) -> None:
    fork.flags(**TEAM, black_images=True)
    model, projector = fork.with_heads()
    settings = {"ctx_size": 8192, "parallel": 1, "speculation": "mtp", "draft_max": 3}
    profile = fork.profile(model=model, mmproj=projector, settings=settings)
    assert press(browser, fork, profile, "start").facts["mtp"] is True
    red = solid_png(COLOURS["Red"])
    assert fork.ask(profile, image=red) == (200, BLACK)
    fork.round()
    incident = Incident.objects.get()
    assert (incident.kind, incident.cause) == (Kind.QUALITY, "mtp_vision")
    assert instance_of(profile).observed == Observed.READY
    told, ready = restarted(browser, fork, profile)
    assert told == ["Speculation: mtp → none"]
    assert (ready.facts["mtp"], ready.facts["vision"]) == (False, True)
    assert fork.ask(profile, image=red) == (200, REPLY)
    fork.round()
    assert Incident.objects.get().count == 1


def test_a_projector_a_port_and_a_context_that_do_not_serve(
    engine: Stage, browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, projector = engine.with_heads()
    path = Path(projector.path)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        settings = {"ctx_size": 1024, "parallel": 1}
        profile = engine.profile(model=model, mmproj=projector, port=port, settings=settings)
        away = path.rename(path.with_name("away"))
        monkeypatch.setattr(preflight, "PORT_PATIENCE", 0.1)
        failed = press(browser, engine, profile, "start", Observed.FAILED)
        text = text_of(browser.get(page_of(profile)))
        assert failed.run is None and f"{path} is missing or cannot be read" in text
        assert "Start anyway" not in text
        away.rename(path)
        failed = press(browser, engine, profile, "start", Observed.FAILED)
        text = text_of(browser.get(page_of(profile)))
        assert failed.run is None and f"Port {port} is used by" in text and f"(pid {os.getpid()})" in text
        # Somebody takes it between the look and the start.
        monkeypatch.setattr(preflight, "can_bind", lambda port: True)
        failed = press(browser, engine, profile, "start", Observed.BACKOFF)
        monkeypatch.undo()
        assert "another program has it" in failed.error_text
        assert follow_change(browser, page_of(profile)) == [f"Port: {port} → –"]
        ready = press(browser, engine, profile, "retry")
        assert ready.port not in (port, None) and ready.facts["vision"] is True
    long = "word " * 300  # 1500 tokens
    assert engine.ask(profile, long)[0] == 400
    engine.round()
    assert Incident.objects.latest("pk").kind == Kind.REQUEST
    told, ready = restarted(browser, engine, profile)
    assert told == ["Context size: 1024 → 2048"]
    assert engine.ask(profile, long)[0] == 200


def test_a_context_that_takes_more_main_memory_than_the_server_may_have(
    engine: Stage, browser: Client
) -> None:
    settings = {"ctx_size": 1 << 20, "parallel": 1}
    profile = engine.profile(settings=settings, policy={"memory_mib": 400})
    press(browser, engine, profile, "start", Observed.FAILED)
    text = text_of(browser.get(page_of(profile)))
    assert "The memory limit of this profile is 400 MiB, and the server needs at least" in text
    failed = press(browser, engine, profile, "start", Observed.BACKOFF, anyway="1")
    assert failed.run is not None and failed.run.over_memory["limit_mib"] == 400
    assert "its limit is 400 MiB" in failed.error_text
    assert Incident.objects.filter(kind=Kind.MEMORY, cause="memory_limit").count() == 1
    context, cache = follow_change(browser, page_of(profile))
    profile.refresh_from_db()
    assert context == f"Context size: 1048576 → {profile.settings['ctx_size']}"
    assert cache == "Prompt cache: – → 0"
    ready = press(browser, engine, profile, "retry")
    assert not any(check["holds"] for check in ready.checks)
    for _ in range(3):
        engine.round()
    assert instance_of(profile).observed == Observed.READY
