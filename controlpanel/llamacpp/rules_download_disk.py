"""Rules for writing a download to the disk, and for what was written."""

from __future__ import annotations

from collections.abc import Mapping

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import Rule

SHORT_DISK = 64 * 1024 * 1024  # bytes


def _disk_is_full(facts: Mapping[str, object]) -> bool:
    """Tell whether the models' disk is known to be full; fact `disk_free` in bytes."""
    free = facts.get("disk_free")
    return isinstance(free, int) and free < SHORT_DISK


def _may_have_room(facts: Mapping[str, object]) -> bool:
    return not _disk_is_full(facts)


_FULL_TITLE = N_("The disk for models is full")
_FULL_REMEDY = N_(
    "Free some space (the Models page shows what each file takes), or choose a models folder on a larger "
    "disk; then resume the download: what is there is kept."
)
_AFTER = ("download_gave_up", "transfer_interrupted")

DISK_RULES = (
    Rule(
        "disk_full",
        (
            r"Not enough free disk space to download the file",
            r"\[Errno 28\] No space left on device(?!: '(?:/tmp|/run|/dev/shm|/var/tmp))",
            r"No space left on device\s*$",
            r"write error: No space left on device",
            r"Failed writing (?:body|received data to disk)",
        ),
        _FULL_TITLE,
        _FULL_REMEDY,
        explains=(*_AFTER, "tmpfs_full"),
        unless=(r"os error 28",),
    ),
    Rule(
        "disk_full",
        (r"No space left on device \(os error 28\)",),
        _FULL_TITLE,
        _FULL_REMEDY,
        explains=_AFTER,
        when=_disk_is_full,
    ),
    Rule(
        "tmpfs_full",
        (
            r"No space left on device \(os error 28\)",
            r"No space left on device: '(?P<path>(?:/tmp|/run|/dev/shm|/var/tmp)[^']*)'",
        ),
        N_("The folder for temporary files is full"),
        N_(
            "The program keeps parts of the download in a small folder in memory (/tmp or /run/user) while "
            "the disk for models may have room. Point TMPDIR, HF_HOME and HF_XET_CACHE of its environment to "
            "the large disk. If that one is full, free some space."
        ),
        explains=_AFTER,
        when=_may_have_room,
    ),
    Rule(
        "disk_quota",
        (r"Disk quota exceeded",),
        N_("The quota of the user that runs the panel is used up"),
        N_("Delete files that nobody needs, have the quota raised, or choose a models folder elsewhere."),
        explains=_AFTER,
    ),
    Rule(
        "folder_not_writable",
        (
            r"\[Errno 13\] Permission denied: '(?P<path>[^']*)'",
            r"\[Errno 30\] Read-only file system",
            r"error opening local file for writing: (?P<path>\S+)",
            r"Cannot write to [‘'](?P<path>[^’']*)[’']",
        ),
        N_("The download cannot be written to its folder"),
        N_(
            "Give the user that runs the program the right to write there, or choose another folder. In a "
            "container, check that the folder is not mounted read-only."
        ),
        explains=_AFTER,
    ),
    Rule(
        "file_too_large_for_disk",
        (r"\[Errno 27\] File too large",),
        N_("The file system cannot hold files of this size"),
        N_("FAT32 ends at 4 GiB. Choose a models folder on ext4, XFS, btrfs, ZFS or NTFS."),
        explains=_AFTER,
    ),
    Rule(
        "sha_mismatch",
        (
            r"digest mismatch, file must be downloaded again",
            r"(?:sha256|SHA-?256|[Cc]hecksum|hash) mismatch",
            r"(?:sha256|SHA-?256|[Cc]hecksum|hash) (?:does|did) not match",
        ),
        N_("The file's SHA-256 is not the one that the hub names"),
        N_(
            "It was damaged on the way or on the disk, or it changed on the hub. Delete it and download it "
            "again. If the hash is another one each time, test the host's memory and disk."
        ),
        explains=_AFTER,
    ),
    Rule(
        "download_incomplete",
        (
            r"Consistency check failed: file should be of size (?P<wanted>\d+) but has size (?P<got>\d+)",
            r"has wrong size \d+ \(expected \d+\)",
        ),
        N_("The download has the wrong size"),
        N_(
            "It ended early, or an old part was continued that does not belong to this file. Delete the part "
            "and download the file again; a proxy may also cut long downloads."
        ),
        explains=_AFTER,
    ),
    Rule(
        "http_416_resume",
        (
            r"416 (?:Client Error: )?(?:Requested )?Range Not Satisfiable",
            r"failed with status code: 416",
            r"The requested URL returned error: 416",
        ),
        N_("The part that was to be resumed is as long as the file, or longer"),
        N_(
            "It may be complete and only lack its name. If size and SHA-256 are right, rename it; else "
            "delete the .incomplete or .part file and download again."
        ),
        explains=_AFTER,
    ),
)
