"""What can be wrong with a file that should be a GGUF, in words."""

from __future__ import annotations

from controlpanel.lib.text import N_, Message


class GgufError(Exception):
    """A file whose header cannot be read.

    `code` is one of missing, directory, not_a_file, unreadable, not_gguf, version, big_endian,
    truncated_header, limit, corrupt.
    """

    def __init__(self, code: str, message: Message) -> None:
        super().__init__(str(message))
        self.code = code
        self.message = message


def corrupt(text: str, **params: object) -> GgufError:
    """Return the error for a header that contradicts the format."""
    return GgufError("corrupt", Message(text, params))


def limit(what: str, value: int, bound: int) -> GgufError:
    """Return the error for a count that no real model file has."""
    text = N_(
        "The header names %(what)s = %(value)s; the panel accepts at most %(bound)s. "
        "The file is damaged or not a model: download it again."
    )
    return GgufError("limit", Message(text, {"what": what, "value": value, "bound": bound}))


def printable(data: bytes) -> str:
    """Return the text of untrusted bytes without NUL, which databases refuse."""
    return data.decode("utf-8", "replace").replace("\x00", "\ufffd")


def one_line(data: bytes) -> str:
    """Return an untrusted name as text of one line that a terminal takes no orders from."""
    text = data.decode("utf-8", "replace")
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


_OLD_FORMAT = N_(
    "This is not a GGUF file but a model in the GGML format that llama.cpp gave up in 2023: "
    "look for a GGUF file of the same model."
)
_PACKED = N_("This is not a GGUF file but a packed archive (gzip, 7z, zstd, xz ...): unpack it first.")
_PICKLE = N_("This is not a GGUF file but a PyTorch checkpoint: look for a GGUF file of the same model.")
_ANSWER = N_(
    "This is not a GGUF file but a short text: an error answer of the server was saved instead of the model. "
    "Download it again."
)
_LOOKS: tuple[tuple[bytes, str], ...] = (
    (
        b"version https://git-lfs",
        N_("This is not a GGUF file but a git-LFS pointer: the model was never fetched. Run git lfs pull."),
    ),
    (
        b"PK\x03\x04",
        N_("This is not a GGUF file but a zip archive or a PyTorch checkpoint: unpack or convert it first."),
    ),
    (b"\x1f\x8b", _PACKED),
    (b"7z\xbc\xaf\x27\x1c", _PACKED),
    (b"\x28\xb5\x2f\xfd", _PACKED),
    (b"\xfd7zXZ", _PACKED),
    (b"BZh", _PACKED),
    (b"Rar!", _PACKED),
    (b"\x80\x02", _PICKLE),
    (b"\x80\x04", _PICKLE),
    (b"\x89HDF", N_("This is not a GGUF file but an HDF5 file: look for a GGUF file of the same model.")),
    (b"%PDF", N_("This is not a GGUF file but a PDF document: download the model again.")),
    (b"\x7fELF", N_("This is not a GGUF file but a program (ELF): choose the model's file.")),
    (b"Entry not found", _ANSWER),
    (b"Invalid username", _ANSWER),
    (b"Access to model", _ANSWER),
    (b"Unauthorized", _ANSWER),
    (b"GGML", _OLD_FORMAT),
    (b"lmgg", _OLD_FORMAT),
    (b"fmgg", _OLD_FORMAT),
    (b"tjgg", _OLD_FORMAT),
)


def not_gguf(head: bytes) -> GgufError:
    """Return the error that says what the first bytes of a file look like."""
    return GgufError("not_gguf", _looks_like(head))


def _looks_like(head: bytes) -> Message:
    if not head:
        return Message(
            N_("This is not a GGUF file: it is empty. The download did not start: download it again.")
        )
    for magic, words in _LOOKS:
        if head.startswith(magic):
            return Message(words)
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype", b"<html", b"<?xml", b"<head")):
        text = N_(
            "This is not a GGUF file but an HTML page: a login or error page was saved "
            "instead of the model. Download it again."
        )
    elif head[8:10] == b'{"':
        text = N_("This is not a GGUF file but a safetensors file: convert it to GGUF first.")
    elif start.startswith((b"{", b"[")):
        text = N_(
            "This is not a GGUF file but a JSON text: an error answer was saved instead of the model. "
            "Download it again."
        )
    elif not head.strip(b"\x00"):
        text = N_(
            "This is not a GGUF file: it begins with zero bytes. Space was reserved, "
            "but the download never filled it: download it again."
        )
    else:
        text = N_("This is not a GGUF file: it begins with %(begin)s, not with GGUF.")
        return Message(text, {"begin": ascii(printable(head[:8]))})
    return Message(text)
