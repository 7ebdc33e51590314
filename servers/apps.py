"""The SERVE app: profiles, instances, playground, conversations."""

from django.apps import AppConfig


class ServersConfig(AppConfig):
    """Registers what servers brings into the explicit registries."""

    name = "servers"

    def ready(self) -> None:
        from servers import registrations

        registrations.register()
