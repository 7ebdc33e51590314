"""The wiring app: settings, commands that cross apps, translations, the Celery app."""

from django.apps import AppConfig


class ControlPanelConfig(AppConfig):
    """Makes the Celery app current in every process that enqueues jobs."""

    name = "controlpanel"

    def ready(self) -> None:
        from controlpanel import celery  # noqa: F401
