"""The page that compares two builds, and what it says of the profiles that use the old one."""

from __future__ import annotations

import re
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.template.loader import render_to_string
from django.urls import reverse

from controlpanel.llamacpp.capabilities import Capabilities, capabilities_from
from jobs.models import Build
from jobs.services.builds import capabilities_of
from servers.services.touched import Argument, Touched, touched_profiles
from tests.functional import pages

pytestmark = pytest.mark.django_db


@pytest.fixture
def fork() -> Build:
    return pages.build("fork", pages.FORK)


@pytest.fixture
def mainline() -> Build:
    return pages.build("mainline")


def text_of(answer: Any) -> str:
    return answer.content.decode()


def address(**builds: object) -> str:
    return reverse("build-compare") + "?" + "&".join(f"{key}={value}" for key, value in builds.items())


def row(text: str, pk: int) -> str:
    """What the page says of a profile."""
    found = re.search(rf'<tr id="touched-{pk}">(.*?)</tr>', text, re.DOTALL)
    assert found, f"no row of profile {pk}"
    return found[1]


def touched(old: Build, new: Build) -> dict[str, Touched]:
    return {found.profile.name: found for found in touched_profiles(old, new)}


def test_a_viewer_reads_what_differs(charlie: User, signed_in: Any, fork: Build, mainline: Build) -> None:
    answer = signed_in(charlie).get(address(old=fork.pk, new=mainline.pk))
    text = text_of(answer)
    assert answer.status_code == 200
    assert len(answer.context["comparison"].added) == 27
    for heading, number in (("Removed", 7), ("Renamed", 9), ("Added", 27)):
        assert f'{heading} <span class="soft">{number}</span>' in text
    assert "<code>--load-mode mlock</code>" in text
    assert "<del>16</del>" in text
    facts = {fact.label: fact for fact in answer.context["facts"]}
    assert facts["TurboQuant"].old == ("yes",)
    assert facts["TurboQuant"].new == ("no",)
    assert facts["Value that means MTP"].new == ("draft-mtp",)
    assert not facts["Devices"].differs


def test_nobody_without_a_role_reads_it(dora: User, signed_in: Any, fork: Build) -> None:
    assert signed_in(dora).get(address(new=fork.pk)).status_code == 403


def test_builds_that_accept_the_same_are_said_to(charlie: User, signed_in: Any, fork: Build) -> None:
    again = pages.build("fork again", pages.FORK)
    answer = signed_in(charlie).get(address(old=fork.pk, new=again.pk))
    assert answer.context["comparison"].same
    assert "Both builds accept the same flags" in text_of(answer)
    assert "Flags that differ" not in text_of(answer)


def test_only_builds_that_have_told_what_they_can_do_are_offered(
    charlie: User, signed_in: Any, fork: Build, mainline: Build
) -> None:
    broken = pages.build("broken", state=Build.State.FAILED, capabilities={})
    text = text_of(signed_in(charlie).get(reverse("build-compare")))
    assert f'<option value="{fork.pk}">' in text
    assert f'<option value="{broken.pk}">' not in text
    assert "Choose the build that your profiles use now" in text


@pytest.mark.parametrize("number", ["0", "-1", "99999", "999999999999999999", "1e3", "x", "%00", "'--"])
def test_a_number_of_no_build_is_said_to_be_one(
    charlie: User, signed_in: Any, fork: Build, mainline: Build, number: str
) -> None:
    for asked in (address(old=number, new=fork.pk), address(old=fork.pk, new=number)):
        answer = signed_in(charlie).get(asked)
        assert answer.status_code == 404
        assert "There is no build with this number" in text_of(answer)
        assert "comparison" not in answer.context
    text = text_of(signed_in(charlie).get(address(old=number, new=number)))
    assert text.count("There is no build with this number") == 1


def test_a_build_that_was_not_probed_is_named(
    charlie: User, signed_in: Any, fork: Build, mainline: Build
) -> None:
    broken = pages.build("broken", state=Build.State.FAILED, capabilities={})
    answer = signed_in(charlie).get(address(old=fork.pk, new=broken.pk))
    text = text_of(answer)
    assert answer.status_code == 200
    assert "The build broken has not told yet what it can do: it is failed." in text


def test_the_same_build_twice_is_not_compared(
    charlie: User, signed_in: Any, fork: Build, mainline: Build
) -> None:
    answer = signed_in(charlie).get(address(old=fork.pk, new=fork.pk))
    assert "This is the same build twice" in text_of(answer)
    assert "comparison" not in answer.context


def test_without_an_old_build_the_one_that_most_profiles_use_is_taken(
    charlie: User, signed_in: Any, fork: Build, mainline: Build
) -> None:
    another, client = pages.build("another"), signed_in(charlie)
    answer = client.get(address(new=fork.pk))
    assert answer.context["old"] is None
    assert "Choose the build to compare it with." in text_of(answer)
    pages.profile("One", build=another)
    pages.profile("Two", build=mainline)
    pages.profile("Three", build=mainline)
    assert client.get(address(new=fork.pk)).context["old"] == mainline
    assert client.get(address(new=mainline.pk)).context["old"] == another


def test_one_build_alone_leads_to_the_builds(charlie: User, signed_in: Any, fork: Build) -> None:
    text = text_of(signed_in(charlie).get(reverse("build-compare")))
    assert "It takes two builds" in text
    assert 'id="compare-form"' not in text


def test_no_profile_of_the_old_build_is_said_to_be_touched(
    charlie: User, signed_in: Any, fork: Build, mainline: Build
) -> None:
    pages.profile("Elsewhere", build=mainline)
    answer = signed_in(charlie).get(address(old=fork.pk, new=mainline.pk))
    assert answer.context["touched"] == []
    assert "No profile uses fork" in text_of(answer)


def test_a_profile_with_mtp_gets_the_words_of_the_other_build(fork: Build, mainline: Build) -> None:
    settings = {"speculation": "mtp", "draft_max": 3, "parallel": 1, "load_mode": "none", "ctx_size": 8192}
    pages.profile("Daily", build=fork, settings=settings)
    found = touched(fork, mainline)["Daily"]
    assert found.outcome == "changes"
    assert (found.errors, found.broken) == ([], False)
    assert found.arguments == [
        Argument("--spec-type mtp", "--spec-type draft-mtp"),
        Argument("--no-mmap", "--load-mode none"),
        Argument(None, "--sse-ping-interval 2"),
        Argument(None, "-lv 4"),
        Argument(None, "--log-colors off"),
    ]


def test_a_profile_whose_command_stays_is_said_to_stay(fork: Build) -> None:
    again = pages.build("fork again", pages.FORK)
    pages.profile(
        "Daily", build=fork, settings={"cache_type_k": "turbo4", "speculation": "mtp", "parallel": 1}
    )
    found = touched(fork, again)["Daily"]
    assert (found.outcome, found.arguments, found.errors, found.warnings) == ("same", [], [], [])


def test_what_the_other_build_refuses_keeps_a_profile_from_starting(
    bob: User, signed_in: Any, fork: Build, mainline: Build
) -> None:
    turbo = pages.profile("Turbo", build=fork, settings={"cache_type_k": "turbo4"})
    extra = pages.profile("Extra", build=fork, extra_args="--spec-draft-ctx-size 4096 --mlock")
    plain = pages.profile("Plain", build=fork)
    text = text_of(signed_in(bob).get(address(old=fork.pk, new=mainline.pk)))
    for profile in (turbo, extra):
        assert "would not start" in row(text, profile.pk)
        assert "either" not in row(text, profile.pk)
    assert "KV cache type K:</strong> This build does not know turbo4" in row(text, turbo.pk)
    assert "<del><code>--cache-type-k turbo4</code></del>" in row(text, turbo.pk)
    assert "This build has no flag --spec-draft-ctx-size" in row(text, extra.pk)
    assert "There is no --mlock in this build" in row(text, extra.pk)
    assert "its command changes" in row(text, plain.pk)
    assert "<ins><code>-lv 4</code></ins>" in row(text, plain.pk)
    assert text.index(f'id="touched-{turbo.pk}"') < text.index(f'id="touched-{plain.pk}"')
    back = touched(fork, fork)
    assert {name: found.outcome for name, found in back.items()} == dict.fromkeys(back, "same")


def test_a_profile_that_is_broken_already_is_said_to_be(
    charlie: User, signed_in: Any, fork: Build, mainline: Build
) -> None:
    profile = pages.profile("Broken", build=fork, extra_args="--no-such-flag")
    found = touched(fork, mainline)["Broken"]
    assert (found.outcome, found.broken) == ("refused", True)
    text = text_of(signed_in(charlie).get(address(old=fork.pk, new=mainline.pk)))
    assert "It does not start with fork either." in row(text, profile.pk)


def test_only_warnings_that_the_old_build_does_not_give_are_told(fork: Build, mainline: Build) -> None:
    pages.profile("Long", build=mainline, settings={"speculation": "mtp", "parallel": 1, "ctx_size": 500_000})
    [warning] = touched(mainline, fork)["Long"].warnings
    assert warning.field == "draft_max"


def test_a_build_that_was_never_probed_starts_no_profile(fork: Build) -> None:
    pages.profile("Daily", build=fork)
    again = pages.build("again", pages.FORK, state=Build.State.FAILED)
    # A later probe that failed takes nothing away from what an earlier one found.
    assert touched(fork, again)["Daily"].errors == []
    again.capabilities = {}
    assert "build" in {problem.field for problem in touched(fork, again)["Daily"].errors}


def test_nothing_is_changed_by_looking(alice: User, signed_in: Any, fork: Build, mainline: Build) -> None:
    profile = pages.profile("Daily", build=fork)
    signed_in(alice).get(address(old=fork.pk, new=mainline.pk))
    profile.refresh_from_db()
    assert (profile.build, profile.revision) == (fork, 1)


def test_texts_of_a_build_are_escaped(charlie: User, signed_in: Any, fork: Build) -> None:
    told = capabilities_from(
        "--<b>x N  <script>alert(1)</script> (default: <i>1</i>)\n--evil N  <script>x</script>"
    )
    evil = pages.build("<u>evil</u>", capabilities=told.to_dict())
    text = text_of(signed_in(charlie).get(address(old=evil.pk, new=fork.pk)))
    assert "<script>alert" not in text
    assert "<script>x" not in text
    assert "&lt;script&gt;x" in text
    assert "<u>evil" not in text


def test_the_page_asks_the_database_a_bounded_number_of_times(
    redis_server: redis.Redis,
    charlie: User,
    signed_in: Any,
    fork: Build,
    mainline: Build,
    django_assert_max_num_queries: Any,
) -> None:
    for number in range(12):
        pages.profile(f"Profile {number}", build=fork)
    client = signed_in(charlie)
    with django_assert_max_num_queries(16):
        client.get(address(old=fork.pk, new=mainline.pk))


def capability_card(capabilities: Capabilities | None) -> dict[str, str]:
    """The card's rows as text."""
    html = render_to_string("jobs/_capabilities.html", {"capabilities": capabilities})
    rows = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", html, re.DOTALL)
    return {label: " ".join(re.sub(r"<[^>]+>", "", value).split()) for label, value in rows}


def test_the_card_tells_what_a_build_can_do(fork: Build, mainline: Build) -> None:
    card = capability_card(capabilities_of(fork))
    assert card["Speculation"].startswith("none, mtp, ngram-cache")
    assert card["Value that means MTP"] == "--spec-type mtp"
    assert card["KV cache types"].endswith("turbo2, turbo3, turbo4")
    assert card["TurboQuant"] == "yes"
    assert card["Model loading"] == "--no-mmap, --mlock"
    assert card["Log dialect"] == "older"
    card = capability_card(capabilities_of(mainline))
    assert (card["Value that means MTP"], card["TurboQuant"]) == ("--spec-type draft-mtp", "no")
    assert card["Model loading"] == "--load-mode"


def test_the_card_guesses_nothing(fork: Build) -> None:
    card = capability_card(capabilities_from("-m,    --model FNAME  x\n--port PORT  y\n"))
    told = ("Speculation", "Value that means MTP", "KV cache types", "TurboQuant", "Model loading")
    assert {key: card[key] for key in told} == dict.fromkeys(told, "–")
    assert "has not told yet" in render_to_string("jobs/_capabilities.html", {"capabilities": None})


def test_the_table_of_flags_tells_all_of_each_and_counts_the_removed(mainline: Build) -> None:
    html = render_to_string("jobs/_flags.html", {"flags": capabilities_of(mainline).flags})
    rows = re.findall(r"<tr>\s*<td.*?</tr>", html, re.DOTALL)
    assert len(rows) == 256
    assert "5 of them are only listed as removed." in html
    assert sum('<small class="is-amber">removed</small>' in one for one in rows) == 5
    cells = {
        re.sub(r"<[^>]+>", "", found[0]): [re.sub(r"<[^>]+>", "", cell) for cell in found[1:4]]
        for one in rows
        if (found := re.findall(r"<td[^>]*>(.*?)</td>", one, re.DOTALL))
    }
    assert cells["-fa, --flash-attn [on|off|auto]"] == ["auto", "on, off, auto", "LLAMA_ARG_FLASH_ATTN"]
    assert cells["--version"] == ["–", "–", "–"]
    assert 'data-filter="#flags tr"' in html
    assert render_to_string("jobs/_flags.html", {"flags": ()}).strip() == ""
