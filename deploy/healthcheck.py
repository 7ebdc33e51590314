"""Health of a container, by exit code: `python deploy/healthcheck.py web|host`."""

from __future__ import annotations

import http.client
import os
import sys
from pathlib import Path


def web_is_well(port: int) -> bool:
    """True when the web process on this port answers the sign-in page without a server error."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=4)
    try:
        connection.request("GET", "/accounts/login/")
        return connection.getresponse().status < 400
    except OSError:
        return False
    finally:
        connection.close()


def agent_is_alive(data: Path) -> bool:
    """True while a process holds <data>/agent.lock; only reads, so that it never gets in the agent's way."""
    try:
        inode = str((data / "agent.lock").stat().st_ino)
    except OSError:
        return False
    rows = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return any(row[1] == "FLOCK" and row[5].rpartition(":")[2] == inode for row in rows)


def main(arguments: list[str]) -> int:
    """Return 0 when the named part is well, 1 when not."""
    if arguments == ["web"]:
        return 0 if web_is_well(int(os.environ.get("PANEL_PORT", "8800"))) else 1
    if arguments == ["host"]:
        return 0 if agent_is_alive(Path(os.environ["PANEL_DATA"])) else 1
    print("usage: healthcheck.py web|host", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
