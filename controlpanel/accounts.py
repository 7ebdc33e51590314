"""How people come into the panel: accounts are made by an admin, never by signing up."""

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest


class AccountAdapter(DefaultAccountAdapter):
    """Closes open sign-up."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Return False: there is no public registration."""
        return False
