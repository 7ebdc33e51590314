"""Typed readers of environment variables; a bad value stops the start with words."""

import hashlib
import os
import secrets
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured


def env_str(name: str, default: str = "") -> str:
    """Return NAME, or the text of the file named by NAME_FILE (for secrets), or the default."""
    path = os.environ.get(f"{name}_FILE")
    if path:
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ImproperlyConfigured(f"{name}_FILE: cannot read {path}: {error.strerror}") from error
    return os.environ.get(name, "").strip() or default


def env_int(name: str, default: int, low: int, high: int) -> int:
    """Return NAME as a whole number between low and high (both included)."""
    text = env_str(name, str(default))
    if not text.isdecimal() or not low <= int(text) <= high:
        raise ImproperlyConfigured(f"{name} must be a whole number from {low} to {high}, not {text!r}")
    return int(text)


def env_bool(name: str, default: bool) -> bool:
    """Return NAME as a yes/no value: 1, true, yes, on or 0, false, no, off."""
    text = env_str(name).lower()
    if text in {"1", "true", "yes", "on"}:
        return True
    if text in {"0", "false", "no", "off"}:
        return False
    if text:
        raise ImproperlyConfigured(f"{name} must be 1 or 0, not {text!r}")
    return default


def env_ports(name: str, default: str) -> range:
    """Return NAME, written LOW-HIGH, as a range of TCP ports (both ends included)."""
    text = env_str(name, default)
    low, _, high = text.partition("-")
    if not (low.isdecimal() and high.isdecimal()) or not 1024 <= int(low) <= int(high) <= 65535:
        raise ImproperlyConfigured(f"{name} must be two ports from 1024 to 65535 as LOW-HIGH, not {text!r}")
    return range(int(low), int(high) + 1)


@dataclass(frozen=True)
class PublicUrl:
    """The address under which people reach the panel, as PANEL_URL gives it."""

    scheme: str
    host: str
    origin: str
    path: str

    @property
    def secure(self) -> bool:
        """True when the browser speaks TLS to the panel or to the proxy before it."""
        return self.scheme == "https"


def env_url(name: str) -> PublicUrl | None:
    """Return NAME as an http(s) address with host and optional sub-path; None when it is not set."""
    text = env_str(name)
    if not text:
        return None
    parts = urlsplit(text)
    try:
        port = parts.port
    except ValueError as error:
        raise ImproperlyConfigured(f"{name}: {error}") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ImproperlyConfigured(f"{name} must look like https://panel.example/path/, not {text!r}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    origin = f"{parts.scheme}://{host}" + (f":{port}" if port else "")
    return PublicUrl(parts.scheme, host, origin, parts.path.rstrip("/"))


@dataclass(frozen=True)
class MailServer:
    """A mail server; `tls` is "starttls", "tls" (from the first byte on) or "" for none."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    tls: str


def env_smtp(name: str) -> MailServer | None:
    """Return NAME as a mail server: smtp://, smtp+tls:// or smtps://[user:password@]host[:port]."""
    text = env_str(name)
    if not text:
        return None
    ways = {"smtp": (25, ""), "smtp+tls": (587, "starttls"), "smtps": (465, "tls")}
    # What is wrong is said without the address: it holds a password.
    wrong = ImproperlyConfigured(f"{name} must look like smtp+tls://user:password@host:587")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise wrong from None
    if (
        parts.scheme not in ways
        or not parts.hostname
        or parts.path.strip("/")
        or parts.query
        or parts.fragment
    ):
        raise wrong
    default, tls = ways[parts.scheme]
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return MailServer(parts.hostname, port or default, user, password, tls)


def data_folder() -> Path:
    """Return the panel's data folder (PANEL_DATA), made with mode 0700 when it is missing."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    data = Path(env_str("PANEL_DATA", str(Path(base) / "llamacpp-panel"))).expanduser().resolve()
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ImproperlyConfigured(f"PANEL_DATA: cannot make {data}: {error.strerror}") from error
    return data


def secret_key(data: Path) -> str:
    """Return SECRET_KEY, else the key kept in the data folder, made at the first start (mode 0600)."""
    given = env_str("SECRET_KEY")
    if given:
        return given
    path = data / "secret_key"
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(50))
    except FileExistsError:
        pass
    except OSError as error:
        raise ImproperlyConfigured(f"cannot write {path}: {error.strerror}") from error
    # Two processes may start at once: whoever lost the race reads what the winner wrote.
    text = path.read_text(encoding="utf-8").strip()
    if len(text) < 32:
        raise ImproperlyConfigured(f"{path} holds no key; delete it and start again")
    return text


def runtime_folder(data: Path) -> Path:
    """Return a 0700 folder for sockets whose path is short whatever the length of the data folder.

    A unix socket's path must stay below 108 bytes, so sockets never lie in the data folder itself.
    """
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    name = f"llamacpp-panel-{os.getuid()}-{hashlib.sha256(str(data).encode()).hexdigest()[:12]}"
    folder = Path(base) / name
    if len(str(folder)) > 80:
        folder = Path("/tmp") / name
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ImproperlyConfigured(f"cannot make {folder}: {error.strerror}") from error
    state = folder.lstat()
    if state.st_uid != os.getuid() or folder.is_symlink() or state.st_mode & 0o077:
        raise ImproperlyConfigured(f"{folder} must be a folder of this user with mode 0700")
    return folder


def embedded_url(folder: Path) -> str:
    """Return the redis-py address of the embedded Valkey whose socket lies in the folder."""
    return f"unix://{folder / 'valkey.sock'}?db=0"
