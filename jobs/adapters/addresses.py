"""Which hosts the panel may connect to on behalf of an address that a person or a server gave it.

Public addresses only, over https only, but for hosts that PANEL_PRIVATE_HOSTS lists. What is checked is the
address that is really connected to, so a name that changes its answer gains nothing.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from weakref import WeakSet

import httpcore
import httpx
from django.conf import settings

from controlpanel.lib.text import N_, Worded
from jobs.adapters.connections import CheckedBackend, Connection
from jobs.adapters.proxies import proxy_for

CONNECT_SECONDS = 10.0  # for one address; a name may have several
PORTS = {"http": 80, "https": 443}
MAX_URL = 8192  # characters: signed links are long
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

PRIVATE = N_(
    "%(host)s is a private address (%(address)s), and the panel only connects to public ones. "
    "If it is meant, ask an admin to list %(host)s in PANEL_PRIVATE_HOSTS."
)
NOT_SECURE = N_(
    "The address of %(host)s begins with http://. Use https://, or ask an admin to list %(host)s in "
    "PANEL_PRIVATE_HOSTS."
)
NOT_WEB = N_("Only https:// addresses can be fetched, not %(scheme)s:")
CREDENTIALS = N_("An address with a user name or a password in it is refused. Store a token instead.")
NO_HOST = N_("This is no address of a file: it names no host, or it is not written as an address.")


class AddressRefused(Worded):
    """The panel does not connect there; str() says why. The address's query is never part of it."""

    code = "refused_address"


@dataclass(frozen=True)
class Guard:
    """The rule; `private` holds "host" or "host:port" in lower case, IPv6 addresses without brackets."""

    private: frozenset[str] = frozenset()

    def lists(self, host: str, port: int) -> bool:
        """Tell whether an admin has listed the host, or this port of it."""
        name = _plain(host)
        return name in self.private or f"{name}:{port}" in self.private

    def check_url(self, address: str | httpx.URL) -> httpx.URL:
        """Return the address when its form is allowed; AddressRefused says what is wrong with it."""
        url = _parsed(address)
        if url.scheme not in PORTS:
            raise AddressRefused(NOT_WEB, scheme=url.scheme[:20] or "?")
        if not url.host or not 0 < port_of(url) < 65536:
            raise AddressRefused(NO_HOST)
        if url.userinfo:
            raise AddressRefused(CREDENTIALS)
        port = port_of(url)
        if self.lists(url.host, port):
            return url
        if url.scheme != "https":
            raise AddressRefused(NOT_SECURE, host=url.host)
        literal = _literal(url.host)
        if literal is not None and not is_public(literal):
            raise AddressRefused(PRIVATE, host=url.host, address=literal)
        return url

    def addresses(self, host: str, port: int) -> list[str]:
        """Resolve a host to addresses that may be connected to; OSError when there is no such name.

        One private address among public ones refuses the host: no honest name has both.
        """
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        texts = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        if not self.lists(host, port):
            for text in texts:
                if not is_public(ipaddress.ip_address(text.partition("%")[0])):
                    raise AddressRefused(PRIVATE, host=host, address=text)
        return texts


def private_hosts(text: str) -> frozenset[str]:
    """Return a comma-separated list of "host", "host:port" or "[v6]:port" as a guard keeps it."""
    return frozenset(_plain(part) for part in text.split(",") if part.strip())


def guard() -> Guard:
    """Return the rule of this panel, with the hosts that PANEL_PRIVATE_HOSTS lists."""
    return Guard(private_hosts(settings.PANEL_PRIVATE_HOSTS))


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Tell whether an address is one of the public internet, also when it carries an IPv4 one inside."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.is_site_local:
            return False
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


class GuardedClient(httpx.Client):
    """A client whose transport checks each address; made by guarded_client."""

    def __init__(self, transport: GuardedTransport, stall: float) -> None:
        super().__init__(
            transport=transport,
            timeout=httpx.Timeout(stall, connect=CONNECT_SECONDS, pool=None),
            headers={"User-Agent": "llamacpp-control-panel", "Accept-Encoding": "identity"},
            follow_redirects=False,
            max_redirects=10,
            trust_env=False,
        )
        self._guarded = transport

    def check(self, address: str) -> httpx.URL:
        """Return an address whose form is allowed; raises AddressRefused."""
        return self._guarded.guard.check_url(address)

    def exchange(self, url: httpx.URL, headers: Mapping[str, str]) -> httpx.Response:
        """Send one GET request as it is: no cookies, no redirects; the answer has to be closed."""
        return self._exchange(self.build_request("GET", url, headers=headers))

    def post_once(self, url: httpx.URL, content: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """Send one POST request as it is: no cookies, no redirects; the answer has to be closed."""
        return self._exchange(self.build_request("POST", url, content=content, headers=headers))

    def _exchange(self, request: httpx.Request) -> httpx.Response:
        response = self._guarded.handle_request(request)
        response.request = request
        return response

    def abort(self) -> None:
        """End all connections at once: whoever reads from one in another thread gets an error."""
        self._guarded.abort()


def guarded_client(rule: Guard | None = None, *, stall: float = 30.0, connections: int = 8) -> GuardedClient:
    """Make a client that can only reach what the rule (default: the panel's) allows, redirects included.

    It does not follow redirects by itself. `stall` is the longest time in seconds between two pieces of an
    answer. Proxies of the environment are used. Raises AddressRefused beside the errors of httpx.
    """
    return GuardedClient(GuardedTransport(rule or guard(), connections), stall)


class GuardedTransport(httpx.BaseTransport):
    """Sends requests over connections whose other end was checked."""

    def __init__(self, rule: Guard, connections: int) -> None:
        self.guard = rule
        self._size = connections
        self._open: WeakSet[Connection] = WeakSet()
        self._direct = self._pool(CheckedBackend(rule.addresses, self._open))
        self._proxies: dict[str, httpcore.HTTPProxy] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; AddressRefused before anything leaves when its address is not allowed."""
        url = self.guard.check_url(request.url)
        sent = httpcore.Request(
            method=request.method,
            url=httpcore.URL(
                scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path or b"/"
            ),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        try:
            response = self._way_to(url).handle_request(sent)
        except httpcore_errors as error:
            raise _translated(error) from error
        return httpx.Response(
            status_code=response.status,
            headers=response.headers,
            stream=_Body(response),
            extensions=response.extensions,
        )

    def close(self) -> None:
        """Close all connections."""
        for pool in (self._direct, *self._proxies.values()):
            pool.close()

    def abort(self) -> None:
        """End all connections; may be called from any thread."""
        for connection in list(self._open):
            connection.shut()

    def _way_to(self, url: httpx.URL) -> httpcore.ConnectionPool:
        proxy = proxy_for(url.scheme, url.host, port_of(url))
        if proxy is None:
            return self._direct
        # The proxy resolves the name itself; what this host knows about it is checked all the same.
        with suppress(OSError):
            self.guard.addresses(url.host, port_of(url))
        if proxy not in self._proxies:
            self._proxies[proxy] = self._proxy_pool(proxy)
        return self._proxies[proxy]

    def _pool(self, backend: httpcore.NetworkBackend) -> httpcore.ConnectionPool:
        return httpcore.ConnectionPool(
            ssl_context=_trust(),
            max_connections=self._size,
            max_keepalive_connections=self._size,
            keepalive_expiry=15.0,
            network_backend=backend,
        )

    def _proxy_pool(self, address: str) -> httpcore.HTTPProxy:
        proxy = httpx.Proxy(address)
        if proxy.url.scheme not in PORTS:
            raise httpx.UnsupportedProtocol(f"a proxy of the kind {proxy.url.scheme} is not supported")
        return httpcore.HTTPProxy(
            proxy_url=str(proxy.url),
            proxy_auth=proxy.raw_auth,
            ssl_context=_trust(),
            proxy_ssl_context=_trust() if proxy.url.scheme == "https" else None,
            max_connections=self._size,
            keepalive_expiry=15.0,
            network_backend=CheckedBackend(None, self._open),
        )


class _Body(httpx.SyncByteStream):
    """The bytes of an answer, with the errors of httpx."""

    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._response.iter_stream()
        except httpcore_errors as error:
            raise _translated(error) from error

    def close(self) -> None:
        self._response.close()


httpcore_errors = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)


def _translated(error: Exception) -> httpx.TransportError:
    """Return httpx's error of the same name."""
    kind: type[httpx.TransportError] = getattr(httpx, type(error).__name__, httpx.TransportError)
    return kind(str(error))


@lru_cache(maxsize=1)
def _trust() -> ssl.SSLContext:
    """The certificates of this host; made once, because that takes a tenth of a second."""
    return httpx.create_ssl_context()


def port_of(url: httpx.URL) -> int:
    """Return the port that is connected to."""
    return url.port or PORTS[url.scheme]


def origin_of(url: httpx.URL) -> tuple[str, str, int]:
    """Return scheme, host and port: what a token may be sent to."""
    return url.scheme, _plain(url.host), port_of(url)


def _parsed(address: str | httpx.URL) -> httpx.URL:
    if isinstance(address, str) and len(address) > MAX_URL:
        raise AddressRefused(NO_HOST)
    try:
        return httpx.URL(address)
    except (httpx.InvalidURL, ValueError) as error:
        raise AddressRefused(NO_HOST) from error


def _plain(host: str) -> str:
    """Return a host as it is compared: lower case, no brackets, no dot at its end."""
    return host.strip().lower().replace("[", "").replace("]", "").rstrip(".")


def _literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(_plain(host).partition("%")[0])
    except ValueError:
        return None
