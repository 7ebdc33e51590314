"""Signing in and out, too many attempts, passwords, languages; and what is not there."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

pytestmark = pytest.mark.django_db

PASSWORD = "charlie-password-1"


def sign_in(client: Client, name: str = "charlie", password: str = PASSWORD) -> Any:
    return client.post(reverse("account_login"), {"login": name, "password": password})


def test_signing_in_leads_to_the_overview(charlie: User, client: Client) -> None:
    answer = sign_in(client)
    assert (answer.status_code, answer["Location"]) == (302, reverse("overview"))
    assert client.get(reverse("overview")).status_code == 200


def test_signing_in_leads_back_to_the_page_that_was_asked_for(charlie: User, client: Client) -> None:
    answer = client.get(reverse("models"))
    page = client.get(answer["Location"]).content.decode()
    assert f'name="next" value="{reverse("models")}"' in page


def test_a_wrong_password_is_said_and_does_not_let_in(charlie: User, client: Client) -> None:
    answer = sign_in(client, password="wrong")
    assert answer.status_code == 200
    assert 'role="alert"' in answer.content.decode()
    assert client.get(reverse("overview")).status_code == 302


def test_the_fifth_failure_closes_the_account_and_says_for_how_long(charlie: User, client: Client) -> None:
    answers = [sign_in(client, password="wrong") for _number in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 429]
    text = answers[-1].content.decode()
    assert "15 minutes" in text
    assert "5 times" in text
    assert sign_in(client).status_code == 429


def test_another_account_can_sign_in_while_one_is_closed(charlie: User, bob: User, client: Client) -> None:
    for _number in range(5):
        sign_in(client, password="wrong")
    assert sign_in(client, "bob", "bob-password-1").status_code == 302


def test_there_is_no_way_to_sign_up(client: Client) -> None:
    page = client.get(reverse("account_login")).content.decode()
    assert "signup" not in page
    assert "Sign up" not in page
    for path in (
        "signup/",
        "email/",
        "password/reset/",
        "password/set/",
        "confirm-email/",
        "social/",
        "3rdparty/",
    ):
        assert client.get(f"/accounts/{path}").status_code == 404


def test_an_account_that_was_switched_off_is_told_so(charlie: User, client: Client) -> None:
    User.objects.filter(pk=charlie.pk).update(is_active=False)
    answer = client.post(reverse("account_login"), {"login": "charlie", "password": PASSWORD}, follow=True)
    assert "This account is closed" in answer.content.decode()
    assert client.get(reverse("overview")).status_code == 302


def test_signing_out_ends_the_session(charlie: User, signed_in: Any) -> None:
    client = signed_in(charlie)
    assert client.get(reverse("account_logout")).status_code == 200
    assert client.get(reverse("overview")).status_code == 200
    assert client.post(reverse("account_logout"))["Location"] == reverse("account_login")
    assert client.get(reverse("overview")).status_code == 302


def test_a_changed_password_replaces_the_old_one(charlie: User, client: Client) -> None:
    sign_in(client)
    new = "a-much-longer-secret-9"
    fields = {"oldpassword": PASSWORD, "password1": new, "password2": new}
    answer = client.post(reverse("account_change_password"), fields, follow=True)
    assert answer.status_code == 200
    assert client.get(reverse("overview")).status_code == 200
    assert sign_in(Client()).status_code == 200
    assert sign_in(Client(), password=new).status_code == 302


def test_a_weak_password_is_refused_in_words(charlie: User, client: Client) -> None:
    sign_in(client)
    fields = {"oldpassword": PASSWORD, "password1": "12345678", "password2": "12345678"}
    answer = client.post(reverse("account_change_password"), fields)
    assert "too common" in answer.content.decode()
    assert sign_in(Client()).status_code == 302


def test_an_account_without_a_role_sees_what_it_needs(dora: User, signed_in: Any) -> None:
    answer = signed_in(dora).get(reverse("overview"))
    text = answer.content.decode()
    assert answer.status_code == 403
    assert "signed in as dora, without a role" in text
    assert reverse("servers") not in text
    assert reverse("account_logout") in text


@pytest.mark.parametrize("code", ["en", "zh-hant", "zh-hans"])
def test_a_language_stays_chosen(code: str, charlie: User, signed_in: Any) -> None:
    client = signed_in(charlie)
    answer = client.post(reverse("set_language"), {"language": code, "next": reverse("servers")})
    assert answer["Location"] == reverse("servers")
    assert f'<html lang="{code}"' in client.get(reverse("overview")).content.decode()


def test_the_migration_makes_the_three_groups() -> None:
    Group.objects.all().delete()
    importlib.import_module("jobs.migrations.0002_groups").make_groups(apps, None)
    assert set(Group.objects.values_list("name", flat=True)) == {"viewer", "operator", "admin"}
