"""TCP ports of this host: is one free, and who has it."""

import socket
from collections.abc import Iterator
from pathlib import Path

LISTENING = "0A"  # state column of /proc/net/tcp


def can_bind(port: int, address: str = "127.0.0.1") -> bool:
    """True when a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def port_owner(port: int) -> str:
    """Name the process that listens on the port: nginx (pid 812), or another program when it is hidden."""
    wanted = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for process in Path("/proc").glob("[0-9]*"):
        if wanted.intersection(_descriptors(process)):
            try:
                return f"{(process / 'comm').read_text().strip()} (pid {process.name})"
            except OSError:
                break
    return "another program"


def _listening_inodes(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            parts = line.split()
            if parts[3] == LISTENING and int(parts[1].rsplit(":", 1)[1], 16) == port:
                yield parts[9]


def _descriptors(process: Path) -> Iterator[str]:
    try:
        entries = list((process / "fd").iterdir())
    except OSError:
        return
    for entry in entries:
        try:
            yield str(entry.readlink())
        except OSError:
            continue
