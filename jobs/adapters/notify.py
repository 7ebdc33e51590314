"""Sends one notice out: a POST to a webhook, or a mail. Errors are words without any part of the address."""

from __future__ import annotations

import smtplib
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Event, Thread

import httpx
from django.conf import settings
from django.core.mail import EmailMessage

from controlpanel.lib.text import N_, Message, Worded
from jobs.adapters.addresses import AddressRefused, GuardedClient, guarded_client
from jobs.domain.alerts_text import scrubbed

DEADLINE = 10.0  # seconds for one message, from the first byte to the last
MAX_ANSWER = 4096  # bytes of an answer that are read
LATER = {408, 425, 429}  # client errors that another try may mend

NO_ANSWER = N_("%(host)s could not be reached: %(words)s")
TOO_SLOW = N_("%(host)s did not answer within %(seconds)s s.")
REDIRECTED = N_(
    "%(host)s answers with a redirect (%(status)s), which is not followed. Enter the address it leads to."
)
SAID_NO = N_("%(host)s answers with an error (%(status)s): %(words)s")
SAID_NO_MORE = N_("%(host)s answers with an error (%(status)s) and says nothing more.")
NO_MAIL_SERVER = N_("No mail server is set up: an admin of the host sets PANEL_SMTP_URL.")
NO_MAIL = N_("The mail server does not take the message: %(words)s")
NO_MAIL_ANSWER = N_("The mail server could not be reached: %(words)s")


class NotSent(Worded):
    """A message did not go out; `again` says whether another try may, `wait` for how long it asks in s."""

    def __init__(self, message: Message, *, again: bool, wait: float | None = None) -> None:
        super().__init__(message.text, **message.params)
        self.again = again
        self.wait = wait


def post(address: str, body: bytes, secret: str) -> None:
    """Send JSON to an address; NotSent says why it did not arrive, without the parts of `secret`."""
    with guarded_client(stall=DEADLINE, connections=1) as client:
        try:
            url = client.check(address)
        except AddressRefused as error:
            raise NotSent(error.message, again=False) from None
        # The client bounds each step; the clock ends them all together.
        done, late = Event(), Event()
        Thread(target=_end_late, args=(client, done, late), name="notice-clock", daemon=True).start()
        try:
            with closing(client.post_once(url, body, {"Content-Type": "application/json"})) as answer:
                _judge(url.host, answer, secret)
        except AddressRefused as error:
            raise NotSent(error.message, again=False) from None
        except (httpx.TransportError, OSError) as error:
            slow = isinstance(error, httpx.TimeoutException) or late.is_set()
            raise NotSent(_unreached(url.host, error, slow, secret), again=True) from None
        finally:
            done.set()


def send_mail(subject: str, text: str, receivers: Sequence[str]) -> None:
    """Send a mail through the server of the settings; NotSent says why not."""
    if not settings.EMAIL_HOST:
        raise NotSent(Message(NO_MAIL_SERVER), again=False)
    try:
        EmailMessage(subject, text, settings.DEFAULT_FROM_EMAIL, list(receivers)).send()
    except smtplib.SMTPRecipientsRefused as error:
        codes = dict(error.recipients.values())
        code = max(codes)
        raise NotSent(_mail_no(code, codes[code]), again=code < 500) from None
    except smtplib.SMTPResponseException as error:
        raise NotSent(_mail_no(error.smtp_code, error.smtp_error), again=error.smtp_code < 500) from None
    except (smtplib.SMTPException, OSError) as error:
        words = scrubbed(str(error) or type(error).__name__, settings.EMAIL_HOST_PASSWORD)
        raise NotSent(Message(NO_MAIL_ANSWER, {"words": words}), again=True) from None


def _end_late(client: GuardedClient, done: Event, late: Event) -> None:
    """End what is still under way after DEADLINE, also a connection that is opened only then."""
    if done.wait(DEADLINE):
        return
    late.set()
    client.abort()
    while not done.wait(0.1):
        client.abort()


def _judge(host: str, answer: httpx.Response, secret: str) -> None:
    status = answer.status_code
    if status < 300:
        return
    if status < 400:
        raise NotSent(Message(REDIRECTED, {"host": host, "status": status}), again=False)
    words = scrubbed(_beginning(answer), secret)
    params = {"host": host, "status": status}
    said = Message(SAID_NO, {**params, "words": words}) if words else Message(SAID_NO_MORE, params)
    wait = _wait_of(answer.headers.get("Retry-After", ""))
    raise NotSent(said, again=status >= 500 or status in LATER, wait=wait)


def _beginning(answer: httpx.Response) -> str:
    parts = bytearray()
    try:
        for part in answer.iter_raw():
            parts += part
            if len(parts) >= MAX_ANSWER:
                break
    except httpx.TransportError:  # what has come is enough
        pass
    return parts[:MAX_ANSWER].decode("utf-8", "replace")


def _wait_of(text: str) -> float | None:
    """Return how many seconds a Retry-After asks for, as a number or as a date."""
    if text.strip().isdecimal():
        return float(text.strip()[:9])
    try:
        moment = parsedate_to_datetime(text).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)


def _unreached(host: str, error: Exception, slow: bool, secret: str) -> Message:
    if slow:
        return Message(TOO_SLOW, {"host": host, "seconds": int(DEADLINE)})
    words = scrubbed(str(error) or type(error).__name__, secret)
    return Message(NO_ANSWER, {"host": host, "words": words})


def _mail_no(code: int, words: bytes | str) -> Message:
    text = words.decode("utf-8", "replace") if isinstance(words, bytes) else words
    return Message(NO_MAIL, {"words": scrubbed(f"{code} {text}", settings.EMAIL_HOST_PASSWORD)})
