"""What goes wrong with a download, in words."""

from __future__ import annotations

import errno

from controlpanel.lib.text import N_, Worded

BUSY = N_("Another download writes to %(name)s. Wait for it, or cancel it first.")
EXISTS = N_("There is another file called %(name)s already. Move or delete it first.")
CHANGED = N_("The file has changed at its source since the download began. Start over to get the new one.")
CHECKSUM = N_(
    "The file that arrived is not the one that the hub describes (its SHA-256 is %(found)s, not %(wanted)s). "
    "It was thrown away; start again. If that happens twice, the source is broken."
)
CHECKSUM_LOCAL = N_("The file is not what it should be: its SHA-256 is %(found)s, not %(wanted)s.")
NOT_GGUF = N_("%(host)s sent something that is not a GGUF model. Check the address.")
HTML = N_(
    "%(host)s sent a web page instead of the file. Check the address: it may lead to a page about the file, "
    "or a proxy asks to sign in first."
)
DISK_FULL = N_("The disk is full: %(need)s MiB are needed, %(free)s MiB are free. Free some space.")
DISK_FILLED = N_("The disk ran full. What has arrived is kept: free some space, then resume.")
DISK = N_("The file cannot be written: %(why)s.")
TOO_LARGE = N_("%(host)s says that the file has %(size)s bytes: that is no model.")
NO_SIZE = N_("%(host)s does not say how large the file is, so it cannot be fetched safely.")
PACKED = N_("%(host)s sends the file in packed form, which cannot be fetched piece by piece.")
REDIRECTS = N_("%(host)s redirects in a loop.")
DENIED = N_("%(host)s does not give the file to this panel (it answered %(status)s).")
NOT_THERE = N_("There is no such file on %(host)s (it answered %(status)s).")
STATUS = N_("%(host)s answered %(status)s instead of the file. Try again later.")
STALLED = N_("Nothing has come from %(host)s for %(seconds)s s. What has arrived is kept; resume later.")
UNREACHABLE = N_("%(host)s cannot be reached (%(why)s). What has arrived is kept; resume later.")
STOPPED = N_("The download was stopped (%(why)s).")


class TransferError(Worded):
    """A download that did not succeed; str() says why, without the address's query and without a token.

    `code` is one of busy, exists, changed, checksum, not_gguf, html, disk_full, disk, too_large, no_size,
    packed, redirect_loop, http_<status>, stalled, unreachable, stopped. What has arrived is kept
    for the next attempt, but after checksum.
    """

    def __init__(self, code: str, text: str, **params: object) -> None:
        super().__init__(text, **params)
        self.code = code


def of_disk(error: OSError) -> TransferError:
    """Return the error for a file that could not be written or read."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TransferError("disk_full", DISK_FILLED)
    return TransferError("disk", DISK, why=error.strerror or type(error).__name__)
