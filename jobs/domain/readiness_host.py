"""Whether a host's disk, its container programs and WSL2 are fit for servers."""

from __future__ import annotations

from controlpanel.lib.text import N_, Message
from jobs.domain.readiness_facts import Facts, Finding, State
from jobs.domain.readiness_memory import NOT_TOLD, gib
from jobs.domain.versions import numbers

_GIB = 1024**3
_LITTLE, _SCARCE = 20 * _GIB, 2 * _GIB  # bytes free: less than a usual model, less than a build
# File systems that are another machine or another system behind a protocol
_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "fuse.rclone"})
_WINDOWS = frozenset({"9p", "drvfs", "v9fs"})
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
# Microsoft's guide of CUDA on WSL2 asks for this kernel or a later one.
_WSL_KERNEL = "5.10.43.3"
_TRY = "docker run --rm --gpus all ubuntu nvidia-smi"


def judge_disk(facts: Facts) -> list[Finding]:
    """Return the findings on the disk of the data folder."""
    return [_room(facts), *_kind(facts)]


def _room(facts: Facts) -> Finding:
    title = Message(N_("Free disk"))
    why = N_(
        "Models of many GiB and builds of 1 to 3 GiB are kept there. When the disk is full, downloads stop "
        "and logs are cut. The command shows what takes the room."
    )
    command = (f"du -xh --max-depth=2 {_quoted(facts.data_folder)} | sort -h | tail",)
    free, total = facts.disk_free, facts.disk_total
    if free is None or total is None:
        return Finding("disk", "unknown", title, (Message(NOT_TOLD),), Message(why))
    state: State = "bad" if free < _SCARCE else "look" if free < _LITTLE else "good"
    text = N_("%(free)s GiB free of %(total)s GiB in %(folder)s")
    params: dict[str, object] = {
        "free": f"{free / _GIB:.1f}",
        "total": f"{total / _GIB:.1f}",
        "folder": facts.data_folder,
    }
    return Finding("disk", state, title, (Message(text, params),), Message(why), command)


def _kind(facts: Facts) -> list[Finding]:
    kind = facts.disk_type
    if not kind:
        return []
    title = Message(N_("File system of the data folder"))
    command: tuple[str, ...] = (f"df -hT {_quoted(facts.data_folder)}",)
    state: State = "look"
    if kind in _WINDOWS and facts.wsl:
        why = N_(
            "The folder lies on a Windows drive, which WSL2 reaches through a network protocol: models load "
            "much more slowly. Keep the panel's data and the models in the Linux file system, below /home."
        )
    elif kind in _REMOTE:
        why = N_(
            "The folder lies on another machine: models load at the speed of the network, and a server "
            "stands still when the connection does. Better keep the panel's data on a disk of this host."
        )
    elif kind in _IN_MEMORY:
        why = N_(
            "The folder lies in main memory: what is kept there is lost at the next reboot, and it takes "
            "memory away from servers. Choose a folder on a disk."
        )
    else:
        why, state = N_("Models are read from a file system of this host."), "good"
    return [Finding("disk_type", state, title, (Message("%(kind)s", {"kind": kind}),), Message(why), command)]


def judge_containers(facts: Facts) -> list[Finding]:
    """Return the findings on the container that the panel runs in and on the programs that run others."""
    return [_inside(facts), *_docker(facts)]


def _inside(facts: Facts) -> Finding:
    title = Message(N_("The panel itself"))
    if not facts.container:
        why = N_("What this page says is said of the host itself.")
        return Finding("container", "good", title, (Message(N_("runs in no container")),), Message(why))
    why = N_(
        "Limits and memory are those of the container; swappiness and huge pages are the host's and must be "
        "changed there. Graphics cards are visible only when the container was started with them."
    )
    value = Message(N_("runs in a container (%(kind)s)"), {"kind": facts.container})
    return Finding("container", "good", title, (value,), Message(why))


def _docker(facts: Facts) -> list[Finding]:
    if not facts.docker or facts.container:
        return []  # inside a container Docker's settings are not those of the host
    title = Message(N_("Docker and NVIDIA's container toolkit"))
    value = [Message("Docker %(version)s", {"version": facts.docker})]
    if not facts.pci and not (facts.gpus is not None and facts.gpus.gpus):
        why = N_("There is no NVIDIA card to pass into containers: Docker needs nothing more.")
        return [Finding("docker", "good", title, tuple(value), Message(why))]
    if facts.wsl:
        why = N_(
            "Docker Desktop passes the cards by itself; a Docker installed in the distribution needs "
            "NVIDIA's container toolkit. The command tries it with a small image."
        )
        return [Finding("docker", "unknown", title, tuple(value), Message(why), (_TRY,))]
    why = N_(
        "Servers that the panel starts by itself do not need it. An exported compose service or any other "
        "container reaches the cards only through NVIDIA's container toolkit, of which Docker is told by the "
        "command with “configure”. The restart stops running containers unless Docker keeps them alive "
        "(live-restore). The last command tries it with a small image."
    )
    configure = "sudo nvidia-ctk runtime configure --runtime=docker\nsudo systemctl restart docker"
    if not facts.nvidia_ctk:
        value.append(Message(N_("NVIDIA's container toolkit is not installed")))
        commands = ("sudo apt-get install -y nvidia-container-toolkit", configure, _TRY)
        return [Finding("docker", "look", title, tuple(value), Message(why), commands)]
    text = N_("NVIDIA's container toolkit %(version)s")
    value.append(Message(text, {"version": facts.nvidia_ctk}))
    if facts.docker_nvidia is None:
        value.append(Message(N_("whether Docker knows of it cannot be read")))
        return [Finding("docker", "unknown", title, tuple(value), Message(why), (configure, _TRY))]
    if not facts.docker_nvidia:
        value.append(Message(N_("Docker's settings do not name it; many containers work all the same")))
        return [Finding("docker", "look", title, tuple(value), Message(why), (configure, _TRY))]
    return [Finding("docker", "good", title, tuple(value), Message(why), (configure, _TRY))]


def judge_wsl(facts: Facts) -> list[Finding]:
    """Return the findings on WSL2; none where the host is no WSL."""
    if facts.wsl == 0:
        return []
    kernel = Message("%(kernel)s", {"kernel": facts.kernel})
    title = Message(N_("Kernel of WSL"))
    if facts.wsl == 1:
        why = N_(
            "This is WSL1, which has no graphics cards. Move the distribution to WSL2; in PowerShell on "
            "Windows (the first command shows its name):"
        )
        commands = ("wsl.exe -l -v", "wsl.exe --set-version Ubuntu 2")
        return [Finding("wsl_kernel", "bad", title, (kernel,), Message(why), commands)]
    old = numbers(facts.kernel.split("-")[0]) < numbers(_WSL_KERNEL)
    why = N_(
        "Microsoft asks for the kernel %(need)s or a later one for CUDA under WSL2. The commands run in "
        "PowerShell on Windows; the second ends everything that runs in WSL2."
    )
    update = ("wsl.exe --update", "wsl.exe --shutdown")
    state: State = "look" if old else "good"
    why_kernel = Message(why, {"need": _WSL_KERNEL})
    return [
        Finding("wsl_kernel", state, title, (kernel,), why_kernel, update),
        _wsl_gpu(facts),
        _wsl_memory(facts),
    ]


def _wsl_gpu(facts: Facts) -> Finding:
    title = Message(N_("Graphics cards under WSL2"))
    why = N_(
        "Under WSL2 the driver is that of Windows: install or update it there. A driver for Linux in the "
        "distribution takes its place and breaks CUDA; the first command lists such packages."
    )
    packages = ("dpkg -l 'nvidia-driver-*' 'libnvidia-compute-*'",)
    if facts.linux_driver:
        value = Message(N_("a driver for Linux is installed in the distribution"))
        return Finding("wsl_gpu", "look", title, (value,), Message(why), packages)
    if facts.gpu_device is None:
        return Finding("wsl_gpu", "unknown", title, (Message(NOT_TOLD),), Message(why), packages)
    if not facts.gpu_device:
        value = Message(N_("Windows passes no graphics card (/dev/dxg is missing)"))
        return Finding("wsl_gpu", "look", title, (value,), Message(why), (*packages, "wsl.exe --update"))
    return Finding("wsl_gpu", "good", title, (Message(N_("passed by Windows")),), Message(why), packages)


def _wsl_memory(facts: Facts) -> Finding:
    why = N_(
        "WSL2 gets half of the memory of Windows unless it is told otherwise. For models that do not fit, "
        "give it more: in the file .wslconfig in your Windows profile folder, then end WSL2 with the "
        "second command. Choose a number that leaves Windows enough."
    )
    commands = ("[wsl2]\nmemory=24GB", "wsl.exe --shutdown")
    title = Message(N_("Memory of WSL2"))
    if facts.memory_mib is None:
        return Finding("wsl_memory", "unknown", title, (Message(NOT_TOLD),), Message(why), commands)
    value = Message(N_("%(total)s GiB"), {"total": gib(facts.memory_mib)})
    return Finding("wsl_memory", "good", title, (value,), Message(why), commands)


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "'\"'\"'") + "'"
