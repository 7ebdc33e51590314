"""Rules for limits, disks and rights of the host."""

from __future__ import annotations

from controlpanel.lib.text import N_
from controlpanel.llamacpp.rule_types import COMMON, GENERIC, Rule

LIMIT_RULES = (
    Rule(
        "service_user_permission",
        (
            r"\b(?:mkdir|open|stat|access|chdir) (?P<path>/[^:]{1,300}): [Pp]ermission denied",
            r"Failed at step (?:CHDIR|EXEC|NAMESPACE) spawning (?P<path>\S+): Permission denied",
            r"Changing to the requested working directory failed: Permission denied",
        ),
        N_("The user that runs the service may not enter or read a folder"),
        N_(
            "Each folder above the file must let that user in: disks that a desktop mounted under /media or "
            "/run/media do not. Mount the disk elsewhere (such as /mnt/models), or give the right with "
            "“chmod o+x” or “setfacl”."
        ),
    ),
    Rule(
        "too_many_open_files",
        (r"\b[Tt]oo many open files\b", r"\bEMFILE\b", r"VFS: file-max limit \d+ reached"),
        N_("The limit of open files is reached"),
        N_(
            "Raise it (LimitNOFILE in the systemd unit, “ulimit -n”) and restart the service. If it comes "
            "back after hours, the program forgets to close files: update it."
        ),
        passing=True,
    ),
    Rule(
        "process_limit",
        (
            r"(?:pthread_create|fork|clone|std::thread|libgomp: Thread).{0,80}Resource temporarily unav",
            r"cgroup: fork rejected by pids controller",
        ),
        N_("The host allows no more processes or threads"),
        N_("Raise the limit (ulimit -u, TasksMax of the systemd unit, “--pids-limit” of the container)."),
        passing=True,
    ),
    Rule(
        "disk_full",
        (r"No space left on device\b", r"\bENOSPC\b"),
        N_("A disk of the host is full"),
        N_(
            "Delete models, builds or logs that nobody needs (“df -h” shows which disk it is), or move them "
            "to a larger one."
        ),
        unless=(r"inotify|/dev/shm|watch",),
        passing=True,
    ),
    Rule(
        "inotify_limit",
        (r"inotify\w*.{0,80}(?:No space left on device|limit reached)",),
        N_("The limit of watched files is reached; the disk is not full"),
        N_("Raise fs.inotify.max_user_watches (“sudo sysctl fs.inotify.max_user_watches=524288”)."),
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "disk_read_only",
        (r"Remounting filesystem read-only", r": Read-only file system\b"),
        N_("A disk became read-only"),
        N_(
            "Linux does so after errors of the disk or file system: look at “dmesg”, check the file system, "
            "and keep a copy of what matters. In a container, look at how the folder is mounted."
        ),
    ),
    Rule(
        "disk_error",
        (
            r"(?:critical medium|I/O) error, dev \w+, sector \d+",
            r"Buffer I/O error on dev",
            r"nvme nvme\d+: (?:I/O \d+ .{0,40}timeout|controller is down|Device not ready)",
        ),
        N_("A disk reports errors"),
        N_(
            "Copy what matters at once, look at the disk's health (“smartctl -a”) and replace it. Compare "
            "the SHA-256 of models on it."
        ),
        explains=("disk_read_only",),
    ),
    Rule(
        "task_blocked",
        (r"INFO: task llama\S* blocked for more than \d+ seconds",),
        N_("The server waited minutes for a disk or for the driver"),
        N_(
            "A slow or failing disk, a network drive that does not answer, or heavy swapping. The lines "
            "below show where it waits; look for errors of the disk or the GPU around them."
        ),
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "ports_exhausted",
        (r"\b(?:connect|bind)\w*\b.{0,80}Cannot assign requested address",),
        N_("The host has no free port or no such address"),
        N_(
            "Either too many connections were opened in a short time (widen net.ipv4.ip_local_port_range, "
            "let clients keep connections), or the address to listen on is not one of this host."
        ),
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "cpu_hot",
        (r"temperature above threshold, cpu clock throttled",),
        N_("The processor is too hot and made itself slower"),
        N_("Clean the cooler and let more air through the case, or use fewer threads."),
        rank=COMMON,
        passing=True,
    ),
    Rule(
        "server_segfault",
        (
            r"llama-[\w-]+\[\d+\]: segfault at ",
            r"traps: llama-[\w-]+\[\d+\] (?:general protection|trap invalid opcode)",
        ),
        N_("The kernel reports that a server crashed"),
        N_(
            "Use a newer build or the one before. “invalid opcode” means that the build uses instructions "
            "which this processor lacks: build it on this host."
        ),
        rank=GENERIC,
        passing=True,
    ),
)
