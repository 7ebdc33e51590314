"""What is said of a start's facts: levels, what holds back, and sentences with their numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from math import ceil

import pytest

from controlpanel.lib.text import Message
from controlpanel.llamacpp.memory import Device, Estimate, estimate
from jobs.domain.readiness_facts import UNLIMITED, Limit
from servers.domain import preflight as judge
from servers.domain.preflight import MIB, Check, Holder, ModelFiles
from servers.domain.preflight_memory import Situation, adapts, memory
from tests.unit.memory_headers import big_qwen

BIG = big_qwen()
CARD = Device("0 · RTX 3090", 24_576, 1_000)
NOW = Situation(host_free=60_000)
WHOLE = ModelFiles("Qwen", 2, 40 * MIB, 40 * MIB)


def verdict(check: Check) -> tuple[str, bool]:
    """The level, and whether the start waits for somebody."""
    return check.level, check.holds


def needs(devices: tuple[Device, ...] = (CARD,), **settings: object) -> Estimate:
    """What the big model needs on cards."""
    return estimate(BIG, None, {"parallel": 1, "ctx_size": 4096, "cache_ram": 0, **settings}, "fork", devices)


def test_a_check_survives_a_column_with_the_messages_inside_of_its_message() -> None:
    check = judge.files(Message("%(path)s is gone", {"path": "/opt/x"}), [replace(WHOLE, gone=("/m/a",))])
    again = Check.from_json(json.loads(json.dumps(check.to_json())))
    assert again == check and str(again.message) == str(check.message)
    plain = judge.port(18080)
    assert Check.from_json(json.loads(json.dumps(plain.to_json()))) == plain


def test_files_are_as_they_were_registered_or_it_is_said_what_is_not() -> None:
    good = judge.files(None, [WHOLE, replace(WHOLE, name="mmproj", count=1)])
    assert verdict(good) == ("ok", False) and "files: 3, 80 MiB" in str(good.message)
    assert verdict(judge.files(None, None)) == ("warning", False)

    many = judge.files(None, [replace(WHOLE, gone=("/m/a-1.gguf", "/m/a-2.gguf"))])
    assert verdict(many) == ("error", False)
    assert "2 of 2 files of Qwen" in str(many.message) and "/m/a-2.gguf" in str(many.message)

    damaged = judge.files(None, [replace(WHOLE, damage=Message("2 parts are missing."))])
    assert verdict(damaged) == ("error", False) and "2 parts are missing." in str(damaged.message)
    shorter = judge.files(None, [replace(WHOLE, size=1_000)])
    assert verdict(shorter) == ("error", False) and "1,000 bytes, not 41,943,040" in str(shorter.message)
    assert judge.files(None, [replace(WHOLE, registered=0)]).level == "ok"

    longer = replace(WHOLE, name="mmproj", size=WHOLE.size + 1)
    assert verdict(judge.files(None, [WHOLE, longer])) == ("warning", True)
    both = judge.files(Message("it may not be executed"), [longer])
    assert verdict(both) == ("error", False), "what is an error is not there to be overridden"
    assert str(both.message).index("it may not be executed") < str(both.message).index("mmproj was replaced")


def test_a_build_is_the_probed_one_or_nobody_knows() -> None:
    assert verdict(judge.build("b", True, True, "aa", "aa")) == ("ok", False)
    assert verdict(judge.build("b", True, True, "aa", "bb")) == ("warning", True)
    assert verdict(judge.build("b", True, True, "", "bb")) == ("warning", False)
    hidden = judge.build("b", True, True, "aa", Message("no right to look"))
    assert verdict(hidden) == ("warning", False) and "no right to look" in str(hidden.message)


def test_a_later_probe_that_did_not_end_well_holds_nothing_but_what_changed_does() -> None:
    assert verdict(judge.build("b", False, False, "", "aa")) == ("error", False)
    late = judge.build("b", True, False, "aa", "aa")
    assert verdict(late) == ("warning", False) and "an earlier one found" in str(late.message)
    changed = judge.build("b", True, False, "aa", "bb")
    assert verdict(changed) == ("warning", True)
    for words in ("changed after it was probed", "an earlier one found"):
        assert words in str(changed.message)


@pytest.mark.parametrize(
    ("soft", "level"),
    [(UNLIMITED, "ok"), (4096, "ok"), (4095, "warning"), (1024, "warning"), (256, "warning")],
)
def test_the_limit_of_open_files(soft: int, level: str) -> None:
    check = judge.descriptors(Limit(soft, UNLIMITED))
    assert verdict(check) == (level, False)
    assert ("ulimit -n 4096" in str(check.remedy)) is (level == "warning")
    assert ("only" in str(check.message)) is (0 < soft < 1024)


@pytest.mark.parametrize(
    ("free", "level"),
    [
        (None, "warning"),
        (1024 * MIB, "ok"),
        (1024 * MIB - 1, "warning"),
        (64 * MIB, "warning"),
        (MIB, "error"),
    ],
)
def test_the_disk_for_logs(free: int | None, level: str) -> None:
    assert verdict(judge.disk(free)) == (level, False)


def test_others_are_named_with_what_they_hold() -> None:
    assert judge.others([], [], []).level == "ok"
    own = judge.others([Holder("Gemma", 9_000)], [], [])
    assert own.level == "ok" and "Gemma (9,000 MiB)" in str(own.message)
    mixed = judge.others([Holder("Gemma", 9_000)], [Holder("python, pid 7")], ["Qwen"])
    assert verdict(mixed) == ("warning", False)
    for words in ("Gemma (9,000 MiB)", "python, pid 7 (? MiB)", "still counts as free: Qwen"):
        assert words in str(mixed.message)
    crowd = judge.others([], [Holder(f"p{number}", 1) for number in range(9)], [])
    assert "p4" in str(crowd.message) and "p5" not in str(crowd.message) and "…" in str(crowd.message)


def test_a_card_that_is_too_small_for_sure_holds_the_start_and_says_what_is_missing() -> None:
    found = needs((replace(CARD, used=20_000),))
    (card,) = found.devices
    check = memory(found, NOW)
    assert verdict(check) == ("warning", True)
    least, missing = ceil(card.certain - 20_000), ceil(card.certain - card.capacity)
    assert f"GPU 0 · RTX 3090: at least {least:,} MiB are needed, 4,576 MiB are free" in str(check.message)
    assert f"{missing:,} MiB are missing" in str(check.message)
    assert verdict(memory(found, replace(NOW, old=True))) == ("warning", False)
    adapting = memory(found, replace(NOW, adapts=True))
    assert verdict(adapting) == ("warning", False) and "move layers" in str(adapting.remedy)


def test_bounds_make_a_card_tight_and_cards_without_a_part_are_not_spoken_of() -> None:
    roomy = needs((replace(CARD, total=81_920), replace(CARD, name="1 · RTX", used=0)), split_mode="none")
    check = memory(roomy, NOW)
    assert verdict(check) == ("ok", False)
    assert "GPU 0 · RTX 3090" in str(check.message) and "GPU 1" not in str(check.message)
    (card, _unused) = roomy.devices
    assert card.total is not None and card.certain < card.total
    edge = needs((Device("0 · RTX 3090", (card.certain + card.total) / 2, 1_000),))
    tight = memory(edge, NOW)
    assert verdict(tight) == ("warning", False) and "it is tight" in str(tight.message)


def test_what_the_file_does_not_tell_is_a_warning_with_the_reason() -> None:
    found = replace(
        needs((replace(CARD, total=81_920),)), why=(Message("A reason."), Message("Another one."))
    )
    (card,) = found.devices
    vague = replace(found, devices=(replace(card, terms={**card.terms, "kv": None}, total=None),))
    check = memory(vague, NOW)
    assert verdict(check) == ("warning", False)
    assert "not known: A reason. Another one." in str(check.message)
    assert "A reason" not in str(memory(found, NOW).message)


def host_of(mapped: bool, free: int | None, limit: int | None = None, **settings: object) -> Check:
    """The big model in main memory."""
    found = estimate(BIG, None, {"parallel": 1, "ctx_size": 4096, "cache_ram": 0, **settings}, "fork", ())
    return memory(found, Situation(free, mapped=mapped, limit_mib=limit))


def test_main_memory_counts_weights_for_sure_only_when_they_are_not_mapped() -> None:
    assert verdict(host_of(True, 200_000)) == ("ok", False)
    slow = host_of(True, 10_000)
    assert verdict(slow) == ("warning", False) and "again and again" in str(slow.message)
    loaded = host_of(False, 10_000)
    assert verdict(loaded) == ("warning", True) and "MiB are missing" in str(loaded.message)
    assert verdict(host_of(True, 100, ctx_size=262_144)) == ("warning", True)
    assert verdict(host_of(True, None)) == ("warning", False)


def test_a_memory_limit_below_the_need_holds_and_one_that_the_prompt_cache_may_pass_is_told() -> None:
    assert verdict(host_of(True, 200_000, limit=64)) == ("warning", True)
    assert verdict(host_of(False, 200_000, limit=10_000)) == ("warning", True)
    assert verdict(host_of(True, 200_000, limit=10_000)) == ("ok", False)
    cached = host_of(True, 200_000, limit=10_000, cache_ram=20_000)
    assert verdict(cached) == ("warning", False) and "Prompt cache" in str(cached.remedy)
    assert verdict(host_of(True, 200_000, limit=10_000, cache_ram=-1)) == ("warning", False)


@pytest.mark.parametrize(
    ("settings", "adapting"),
    [
        ({}, True),
        ({"gpu_layers": "auto"}, True),
        ({"gpu_layers": 99}, False),
        ({"tensor_split": "1,1"}, False),
        ({"fit": "off"}, False),
        ({"split_mode": "row"}, False),
    ],
)
def test_what_settings_say_of_fitting(settings: Mapping[str, object], adapting: bool) -> None:
    assert adapts(settings, True) is adapting
    assert not adapts(settings, False)
