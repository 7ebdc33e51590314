"""The ACQUIRE and RUN app: hosts, jobs, builds, artifacts, runs, logs, audit."""

from django.apps import AppConfig


class JobsConfig(AppConfig):
    """Registers what jobs brings into the explicit registries."""

    name = "jobs"

    def ready(self) -> None:
        from jobs import registrations

        registrations.register()
