"""manage.py messages: bring the catalogues up to the texts of the code."""

from typing import Any

from django.core.management.base import BaseCommand

from controlpanel.messages import LOCALES, template_catalogue, untranslated, update_catalogue


class Command(BaseCommand):
    """Rewrites controlpanel/locale/*/LC_MESSAGES/django.po and says what is left to translate."""

    help = "Update the message catalogues."
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Update each locale."""
        template = template_catalogue()
        for locale in LOCALES:
            left = untranslated(update_catalogue(locale, template))
            self.stdout.write(f"{locale}: {len(template)} texts, {len(left)} not translated")
