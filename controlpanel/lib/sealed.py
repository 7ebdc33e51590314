"""Secrets of people (tokens, addresses with a token in them): sealed with a key made from the panel's own."""

import base64
from functools import cache
from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from cryptography.fernet import Fernet


def plausible(secret: str, longest: int) -> bool:
    """Tell whether a text can be a token: one printable word of ASCII, not longer than `longest`."""
    fits = 0 < len(secret) <= longest
    return fits and secret.isascii() and secret.isprintable() and " " not in secret


def seal(purpose: bytes, secret: str) -> str:
    """Return a secret as a column keeps it; only unseal() with the same purpose reads it."""
    return _box(purpose).encrypt(secret.encode()).decode()


def unseal(purpose: bytes, sealed: str) -> str | None:
    """Return what seal() was given; None when the panel's secret key has changed since."""
    from cryptography.fernet import InvalidToken

    try:
        return _box(purpose).decrypt(sealed.encode()).decode()
    except InvalidToken:
        return None


@cache
def _box(purpose: bytes) -> "Fernet":
    from cryptography.fernet import Fernet
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=purpose).derive(settings.SECRET_KEY.encode())
    return Fernet(base64.urlsafe_b64encode(key))
