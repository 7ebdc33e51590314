"""manage.py up: start the panel on this host."""

import fcntl
import json
import os
import resource
import secrets
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from controlpanel.services import FOREGROUND, INSTANCE, instance_mark, supervisord_conf
from jobs.services.hosts import local_host

FIRST_USER = "admin"
OPEN_FILES = 65_536


class Command(BaseCommand):
    """Prepares the data folder, then becomes the small foreground process that watches supervisord."""

    help = "Start the panel: web, workers, agent and (unless REDIS_URL is set) an embedded Valkey."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """--demo and --host-only."""
        parser.add_argument(
            "--demo", action="store_true", help="register the bundled engine and small models"
        )
        parser.add_argument("--host-only", action="store_true", help="workers and agent only, no web process")

    def handle(self, *args: Any, demo: bool, host_only: bool, **options: Any) -> None:
        """Migrate, make the first user, write the configuration, and go to the foreground."""
        for name in ("logs", "runs", "run"):
            (settings.PANEL_DATA / name).mkdir(mode=0o700, exist_ok=True)
        lock = settings.PANEL_DATA / "run" / "up.lock"
        lock.touch(mode=0o600)
        if _is_held(lock):
            raise CommandError(f"Another panel runs on the data folder {settings.PANEL_DATA} already.")
        if not host_only:
            self._warn_about_bind()
        call_command("migrate", verbosity=0, interactive=False)
        local_host()
        password = first_user()
        plan = settings.PANEL_DATA / "run" / "plan.json"
        conf = settings.PANEL_DATA / "run" / "supervisord.conf"
        conf.write_text(supervisord_conf(web=not host_only), encoding="utf-8")
        manage = [sys.executable, str(settings.BASE_DIR / "manage.py")]
        address = f"http://{_host_in_url(settings.PANEL_BIND)}:{settings.PANEL_PORT}"
        plan_data = {
            "supervisord": [sys.executable, "-m", "supervisor.supervisord", "-n", "-c", str(conf)],
            "mark": [INSTANCE, instance_mark()],
            "url": f"{settings.PANEL_URL.origin}{settings.PANEL_URL.path}/"
            if settings.PANEL_URL
            else address + "/",
            "probe": None if host_only else f"{address}{settings.SUB_PATH}/accounts/login/",
            "user": FIRST_USER,
            "password": password,
            "runs": str(settings.PANEL_DATA / "runs"),
            "logs": str(settings.PANEL_DATA / "logs"),
            "then": [*manage, "demo"] if demo else None,
            "lock": str(lock),
        }
        with os.fdopen(os.open(plan, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(plan_data, file)
        os.chdir(settings.BASE_DIR)
        _raise_open_files()
        # The mark lets `down` find this process; end_leftovers() knows not to end itself.
        environ = {**os.environ, INSTANCE: instance_mark(), "PANEL_ROLE": FOREGROUND}
        os.execve(sys.executable, [sys.executable, "-m", "controlpanel.foreground", str(plan)], environ)

    def _warn_about_bind(self) -> None:
        bind = settings.PANEL_BIND
        if bind not in {"127.0.0.1", "::1", "localhost"} and not settings.SECURE:
            self.stderr.write(
                f"Warning: the panel listens on {bind} without TLS; passwords cross the network in clear. "
                "Put a TLS proxy before it and set PANEL_URL=https://…"
            )


def _raise_open_files() -> None:
    """Let the panel and its servers open as many files as the host allows, up to OPEN_FILES."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def first_user() -> str:
    """Return the first admin's password while it is still the one made here, else ""."""
    kept = Path(settings.PANEL_DATA / "admin_password")
    if not User.objects.exists():
        password = secrets.token_urlsafe(12)
        with os.fdopen(os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(password)
        user = User.objects.create_user(FIRST_USER, password=password)
        user.groups.add(Group.objects.get_or_create(name="admin")[0])
        return password
    if not kept.is_file():
        return ""
    password = kept.read_text(encoding="utf-8").strip()
    user_row = User.objects.filter(username=FIRST_USER).first()
    return password if user_row is not None and user_row.check_password(password) else ""


def _is_held(lock: Path) -> bool:
    with lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _host_in_url(bind: str) -> str:
    if bind in {"0.0.0.0", "::"}:
        return "127.0.0.1"
    return f"[{bind}]" if ":" in bind else bind
