"""manage.py account: people come in by the host's shell, with a role and a random password."""

import json
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command

from controlpanel.lib.access import role_of
from jobs.models import AuditEntry

pytestmark = pytest.mark.django_db


def account(*args: str) -> dict[str, object]:
    """Run the command and return its JSON."""
    out = StringIO()
    call_command("account", *args, "--json", stdout=out)
    found: dict[str, object] = json.loads(out.getvalue())
    return found


def test_a_new_account_gets_a_role_and_a_password_that_works() -> None:
    found = account("erin", "--role", "operator")
    user = User.objects.get(username="erin")
    assert found["role"] == role_of(user) == "operator"
    assert user.check_password(str(found["password"]))
    assert AuditEntry.objects.get(action="account.create").after == {"role": "operator", "active": True}


def test_changing_the_role_keeps_the_password() -> None:
    password = account("erin")["password"]
    found = account("erin", "--role", "admin")
    user = User.objects.get(username="erin")
    assert (found["role"], found["password"]) == ("admin", None)
    assert user.check_password(str(password))


def test_a_disabled_account_has_no_role_left() -> None:
    account("erin", "--role", "admin")
    assert account("erin", "--disable")["active"] is False
    assert role_of(User.objects.get(username="erin")) is None


def test_a_name_with_odd_characters_is_refused_in_words() -> None:
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("account", "a b/c", "--json", stdout=out)
    assert json.loads(out.getvalue())["error"] == "bad_name"
    assert not User.objects.exists()
