"""The HTTP client under the hub's library: bounded in time and size, and careful with tokens.

The library shares one client in a process, asks again for minutes when a hub is busy, waits for ever for a
slow one, and sends a token along when a mirror redirects to the public hub. This client is handed to it once
and does none of that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any
from urllib.parse import urljoin

from jobs.adapters.hub_errors import Refusal, wait_of

MAX_ANSWER = 16 * 1024 * 1024  # bytes of one answer
MAX_REDIRECTS = 5
STALL = 10.0  # seconds between two pieces of an answer


class NoAnswer(Exception):
    """The hub could not be asked, or its answer broke off; str() is the library's reason."""


class TooSlow(Exception):
    """The time for a question is over."""


class WrongAnswer(Exception):
    """An answer that no hub gives: too long, packed, or sent elsewhere."""


class Refused(Exception):
    """The hub answered with an error status."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.status)
        self.refusal = refusal


@dataclass(frozen=True)
class _Call:
    """One question: when its time is over (monotonic), and the only origin that may see a token."""

    end: float
    origin: tuple[str, str, int | None]

    def left(self) -> float:
        left = self.end - time.monotonic()
        if left <= 0:
            raise TooSlow
        return left


_CALL: ContextVar[_Call] = ContextVar("hub_call")
_LOCK = threading.Lock()
_ready = False


@contextmanager
def asking(endpoint: str, seconds: float) -> Iterator[None]:
    """Let the library ask the hub at `endpoint`; all that it asks inside shares `seconds`."""
    import httpx2

    _prepare()
    token = _CALL.set(_Call(time.monotonic() + seconds, _origin(httpx2.URL(endpoint))))
    try:
        yield
    finally:
        _CALL.reset(token)


def same_origin(one: str, other: str) -> bool:
    """Tell whether two addresses lead to the same scheme, host and port."""
    import httpx2

    try:
        return _origin(httpx2.URL(one)) == _origin(httpx2.URL(other))
    except httpx2.InvalidURL:
        return False


def _prepare() -> None:
    """Give the library its client, once in a process: a second time would close the one in use."""
    global _ready
    from huggingface_hub import constants, set_client_factory

    with _LOCK:
        if not _ready:
            # With telemetry the library asks for a list of programs and keeps it in the home folder.
            constants.HF_HUB_DISABLE_TELEMETRY = True
            set_client_factory(_client)
            _ready = True


def _client() -> Any:
    import httpx2

    class Bounded(httpx2.Client):
        """Sends one request of a question; see the module."""

        def send(
            self,
            request: httpx2.Request,
            *,
            stream: bool = False,
            auth: Any = None,
            follow_redirects: Any = True,
        ) -> httpx2.Response:
            for _ in range(MAX_REDIRECTS):
                answer = self._ask(request)
                # False is said where the library looks at the redirect itself.
                if follow_redirects is False or not answer.has_redirect_location:
                    return answer
                target = urljoin(str(request.url), answer.headers["Location"])
                if not same_origin(target, str(request.url)):
                    raise WrongAnswer("redirected to another host")
                request = self.build_request("GET", target, headers=request.headers)
            raise WrongAnswer("redirected too often")

        def _ask(self, request: httpx2.Request) -> httpx2.Response:
            call = _CALL.get()
            wait = min(STALL, call.left())
            request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), wait)
            if _origin(request.url) != call.origin:
                request.headers.pop("Authorization", None)
            try:
                answer, body = self._once(request, call)
            except httpx2.TimeoutException as error:
                raise TooSlow from error
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                raise NoAnswer(str(error) or type(error).__name__) from error
            return httpx2.Response(answer.status_code, headers=answer.headers, content=body, request=request)

        def _once(self, request: httpx2.Request, call: _Call) -> tuple[httpx2.Response, bytes]:
            """Ask, and once more when a kept connection turns out to be closed."""
            for last in (False, True):
                try:
                    answer = super().send(request, stream=True, follow_redirects=False)
                    break
                except (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError):
                    if last:
                        raise
            with closing(answer):
                return answer, _body(answer, call)

    policy = DefaultCookiePolicy(allowed_domains=[])
    return Bounded(
        headers={"Accept-Encoding": "identity"}, cookies=CookieJar(policy=policy), follow_redirects=True
    )


def _body(answer: Any, call: _Call) -> bytes:
    """Read an answer whole; Refused for an error status, whose text nobody needs."""
    headers = {name.lower(): value for name, value in answer.headers.items()}
    if answer.status_code >= 400:
        refusal = Refusal(
            answer.status_code,
            headers.get("x-error-code", "")[:100],
            headers.get("x-error-message", "")[:1000],
            wait_of(headers),
        )
        raise Refused(refusal)
    if answer.request.method == "HEAD":
        return b""
    # A packed answer could be any size when unpacked, and was not asked for.
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise WrongAnswer("packed")
    parts = bytearray()
    for part in answer.iter_raw():
        parts += part
        if len(parts) > MAX_ANSWER:
            raise WrongAnswer("too long")
        call.left()
    return bytes(parts)


def _origin(url: Any) -> tuple[str, str, int | None]:
    return url.scheme, url.host.lower(), url.port or {"http": 80, "https": 443}.get(url.scheme)
