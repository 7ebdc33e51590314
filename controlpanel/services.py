"""The panel's own processes as a supervisord configuration."""

import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from controlpanel.lib.valkey import valkey_binary

INSTANCE = "PANEL_INSTANCE"  # environment name that marks every process of one panel
FOREGROUND = "up"  # PANEL_ROLE of the process that `up` becomes


@dataclass(frozen=True)
class Program:
    """One supervised process; `role` is what PANEL_ROLE says in it."""

    role: str
    argv: list[str]
    stop_seconds: int = 4


def instance_mark() -> str:
    """Return the value that marks the processes of the panel on this data folder."""
    return hashlib.sha256(str(settings.PANEL_DATA).encode()).hexdigest()[:16]


def programs(*, web: bool = True) -> list[Program]:
    """Return the panel's processes on this host besides Valkey."""
    manage = [sys.executable, str(settings.BASE_DIR / "manage.py")]
    found = [
        Program("worker-control", _worker("control", 8)),
        Program("worker-work", _worker("work", 4)),
        Program("agent", [*manage, "agent"]),
    ]
    if web:
        found.insert(0, Program("web", _web()))
    return found


def valkey_program() -> Program:
    """Return the embedded Valkey: private socket, no port, no files; all it holds can be made again."""
    argv = [str(valkey_binary()), "--port", "0", "--unixsocket", str(settings.PANEL_RUNTIME / "valkey.sock")]
    argv += ["--unixsocketperm", "700", "--save", "", "--appendonly", "no", "--daemonize", "no"]
    argv += ["--maxmemory", "256mb", "--maxmemory-policy", "noeviction", "--dir", str(settings.PANEL_RUNTIME)]
    # Without this Valkey overwrites its environment, by which the next start finds leftovers.
    argv += ["--set-proc-title", "no"]
    return Program("valkey", argv, stop_seconds=2)


def supervisor_socket() -> Path:
    """Return the path of supervisord's private control socket."""
    path: Path = settings.PANEL_RUNTIME / "supervisor.sock"
    return path


def supervisord_conf(*, web: bool = True) -> str:
    """Return supervisord's configuration: one group for the panel, Valkey alone and stopped last."""
    logs = settings.PANEL_DATA / "logs"
    group = programs(web=web)
    parts = [
        "[supervisord]",
        "nodaemon=true",
        f"logfile={_escape(logs / 'supervisord.log')}",
        "logfile_maxbytes=1MB",
        "logfile_backups=1",
        "loglevel=warn",
        f"pidfile={_escape(settings.PANEL_RUNTIME / 'supervisord.pid')}",
        f"childlogdir={_escape(logs)}",
        "silent=true",
        "[unix_http_server]",
        f"file={_escape(supervisor_socket())}",
        "chmod=0700",
        "[rpcinterface:supervisor]",
        "supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface",
    ]
    if settings.REDIS_EMBEDDED:
        parts += _section(valkey_program(), logs, priority=1)
    for program in group:
        parts += _section(program, logs, priority=10)
    parts += ["[group:panel]", f"programs={','.join(program.role for program in group)}", "priority=10"]
    return "\n".join(parts) + "\n"


def _section(program: Program, logs: Path, priority: int) -> list[str]:
    command = " ".join(_quote(part) for part in program.argv)
    return [
        f"[program:{program.role}]",
        f"command={command}",
        f"directory={_escape(settings.BASE_DIR)}",
        f'environment=PANEL_ROLE="{program.role}"',
        f"priority={priority}",
        "autostart=true",
        "autorestart=true",
        "startsecs=1",
        "startretries=1000000",
        "stopsignal=TERM",
        f"stopwaitsecs={program.stop_seconds}",
        "stopasgroup=false",
        "killasgroup=true",
        "redirect_stderr=true",
        f"stdout_logfile={_escape(logs / (program.role + '.log'))}",
        "stdout_logfile_maxbytes=5MB",
        "stdout_logfile_backups=2",
    ]


def _web() -> list[str]:
    argv = [sys.executable, "-m", "uvicorn", "controlpanel.asgi:application"]
    argv += ["--host", settings.PANEL_BIND, "--port", str(settings.PANEL_PORT)]
    argv += [
        "--lifespan",
        "off",
        "--timeout-graceful-shutdown",
        "3",
        "--no-access-log",
        "--log-level",
        "warning",
    ]
    # A proxy on this host says how the browser came; nobody else may.
    return [*argv, "--proxy-headers", "--forwarded-allow-ips", "127.0.0.1"]


def _worker(queue: str, threads: int) -> list[str]:
    argv = [sys.executable, "-m", "celery", "--quiet", "-A", "controlpanel.celery", "worker", "-P", "threads"]
    argv += [
        "-c",
        str(threads),
        "-Q",
        f"host.{settings.PANEL_HOST}.{queue}",
        "-n",
        f"{queue}@{settings.PANEL_HOST}",
    ]
    return [*argv, "--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING"]


def _escape(value: object) -> str:
    return str(value).replace("%", "%%")


def _quote(part: str) -> str:
    # supervisord splits commands like a shell: quote everything that is not plainly safe.
    escaped = _escape(part).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
