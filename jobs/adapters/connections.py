"""Connections whose other end was checked, and that another thread can end."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import httpcore


class Connection(httpcore.NetworkStream):
    """One connection, known to a set for as long as it is used."""

    def __init__(self, stream: httpcore.NetworkStream, opened: WeakSet[Connection]) -> None:
        self._stream = stream
        self._opened = opened
        opened.add(self)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return what arrives next; b"" at the end."""
        return self._stream.read(max_bytes, timeout)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes."""
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        """Close the connection."""
        self._opened.discard(self)
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """Return the same connection with TLS."""
        return Connection(self._stream.start_tls(ssl_context, server_hostname, timeout), self._opened)

    def get_extra_info(self, info: str) -> Any:
        """Return what the library wants to know of the socket."""
        return self._stream.get_extra_info(info)

    def shut(self) -> None:
        """End the connection under whoever reads from it."""
        own = self._stream.get_extra_info("socket")
        # Through a socket object of its own: another thread may be inside of the one in use.
        with suppress(OSError), socket.socket(fileno=os.dup(own.fileno())) as other:
            other.shutdown(socket.SHUT_RDWR)


class CheckedBackend(httpcore.NetworkBackend):
    """Opens connections to the very addresses that `resolve` returns; without one (a proxy's) to any."""

    def __init__(self, resolve: Callable[[str, int], list[str]] | None, opened: WeakSet[Connection]) -> None:
        self._resolve = resolve
        self._opened = opened
        self._plain = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address that answers."""
        try:
            addresses = self._resolve(host, port) if self._resolve else [host]
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(str(error)) from error
        for tried, address in enumerate(addresses, 1):
            try:
                stream = self._plain.connect_tcp(address, port, timeout, local_address, socket_options)
                return Connection(stream, self._opened)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                if tried == len(addresses):
                    raise
        raise httpcore.ConnectError("the name has no address")
