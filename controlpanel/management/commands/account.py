"""manage.py account NAME --role ROLE: make an account, or give one another role or a new password."""

import secrets
from typing import Any

from django.contrib.auth.models import Group, User
from django.contrib.auth.validators import UnicodeUsernameValidator
from django.core.exceptions import ValidationError
from django.core.management.base import CommandParser
from django.db import transaction

from controlpanel.lib.access import ROLES, role_of
from controlpanel.lib.cli import JsonCommand
from controlpanel.lib.errors import Refused
from jobs.services.audit import Actor, record


class Command(JsonCommand):
    """People cannot sign up; whoever has a shell on the host lets them in."""

    help = "Make an account or change its role; a new password is printed once."

    def arguments(self, parser: CommandParser) -> None:
        """NAME, the role, and what to do with the password."""
        parser.add_argument("name")
        parser.add_argument("--role", choices=ROLES, help="viewer, operator or admin (new accounts: viewer)")
        parser.add_argument("--new-password", action="store_true", help="give it another random password")
        parser.add_argument("--disable", action="store_true", help="let the account sign in no more")

    def answer(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return {name, role, active, password}; password is null when it stays as it is."""
        name = options["name"]
        try:
            UnicodeUsernameValidator()(name)
        except ValidationError as error:
            raise Refused(error.messages[0], code="bad_name") from error
        with transaction.atomic():
            user, created = User.objects.get_or_create(username=name)
            before = None if created else {"role": role_of(user), "active": user.is_active}
            password = None
            if created or options["new_password"]:
                password = secrets.token_urlsafe(12)
                user.set_password(password)
            role = options["role"] or ("viewer" if created else None)
            if role:
                user.is_superuser = False
                user.groups.set([Group.objects.get_or_create(name=role)[0]])
            user.is_active = not options["disable"]
            user.save()
            user = User.objects.get(pk=user.pk)
            after = {"role": role_of(user), "active": user.is_active}
            record(Actor.cli(), "account.create" if created else "account.change", user, before, after)
        return {"name": name, **after, "password": password}

    def text(self, value: dict[str, Any]) -> str:
        """One line per fact."""
        return "\n".join(f"{key:10} {item}" for key, item in value.items() if item is not None)
