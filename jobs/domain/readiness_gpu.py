"""Whether a host's NVIDIA driver, CUDA toolkits and programs on its cards fit together."""

from __future__ import annotations

from controlpanel.lib.text import N_, Message
from jobs.domain import cuda, gpu
from jobs.domain.gpu import GpuProcess, Gpus
from jobs.domain.programs import Nvcc, Toolchain
from jobs.domain.readiness_cards import judge_cards
from jobs.domain.readiness_facts import Facts, Finding, State, worst
from jobs.domain.versions import older

_HEAVY = 1024  # MiB on a card from which a program of somebody else is worth a look
_SERVERS = ("llama-", "ollama", "vllm", "koboldcpp")  # names of programs that serve models, however small
_COMPOSE = "docker compose -f docker-compose.yml -f deploy/compose.gpu.yml up -d"
_COMMANDS = {
    gpu.NO_CARD: ("lspci -nnk -d 10de:",),
    gpu.NOT_LOADED: ("sudo modprobe nvidia",),
    gpu.MISMATCH: ("cat /proc/driver/nvidia/version", "sudo reboot"),
    gpu.NO_PERMISSION: ("ls -l /dev/nvidia*", "id"),
    gpu.SILENT: ("sudo dmesg | grep -iE 'NVRM|Xid'",),
    gpu.FAILED: ("nvidia-smi", "sudo dmesg | grep -iE 'NVRM|Xid'"),
}


def judge_gpu(facts: Facts) -> list[Finding]:
    """Return the findings on the driver and the toolkits, and on the cards where there are some."""
    found = [_driver(facts), _toolkit(facts)]
    if facts.gpus is not None and facts.gpus.gpus:
        found += [*judge_cards(facts, facts.gpus.gpus), _processes(facts.gpus)]
    return found


def _driver(facts: Facts) -> Finding:
    title, gpus = Message(N_("NVIDIA driver")), facts.gpus
    if gpus is None:
        nothing = Message(N_("no sample of the cards"))
        why = N_(
            "The host agent reads the cards each second and hands the numbers on through Redis. One of them "
            "is not running: start the panel, then look again."
        )
        return Finding("driver", "unknown", title, (nothing,), Message(why), ("python manage.py up",))
    if gpus.problem in gpu.WITHOUT_GPU:
        return _without(facts, gpus)
    error, remedy = gpus.error, gpus.remedy
    if error is not None and remedy is not None:
        return Finding("driver", "bad", title, (error,), remedy, _COMMANDS.get(gpus.problem or "", ()))
    text = N_("%(driver)s, runs programs of CUDA up to %(cuda)s")
    value = [Message(text, {"driver": gpus.driver or "?", "cuda": gpus.cuda or "?"})]
    failing = [card for card in gpus.gpus if card.lost or card.error]
    lost = N_("GPU %(index)d: lost. The driver says: %(words)s")
    unread = N_("GPU %(index)d: not readable. The driver says: %(words)s")
    value += [
        Message(lost if card.lost else unread, {"index": card.index, "words": card.error or "?"})
        for card in failing
    ]
    state: State = "bad" if failing else "good"
    if facts.stale:
        value.append(Message(N_("these numbers are old: the agent sends no new ones")))
        state = worst([state, "unknown"])
    why = N_(
        "Each server that uses a card goes through the driver; builds for CUDA need one that is new enough "
        "for their toolkit."
    )
    commands = ("nvidia-smi", "sudo dmesg | grep -iE 'NVRM|Xid'")
    return Finding("driver", state, title, tuple(value), Message(why), commands)


def _without(facts: Facts, gpus: Gpus) -> Finding:
    title = Message(N_("NVIDIA driver"))
    if not facts.pci and gpus.problem == gpu.NO_DRIVER:
        nothing = Message(N_("none, and no NVIDIA card is to be seen"))
        why = N_(
            "Servers run on the processor, or on a card of another maker with a build for Vulkan or ROCm. On "
            "the processor large models are slow. If the host has an NVIDIA card, install its driver; a "
            "virtual machine or a container must be given the card first."
        )
        return Finding("driver", "look" if facts.wsl else "good", title, (nothing,), Message(why))
    if not facts.pci:
        why = gpu.REMEDIES[gpu.NO_CARD]
        return Finding("driver", "look", title, (_error(gpus),), Message(why), _COMMANDS[gpu.NO_CARD])
    text = N_("%(count)d NVIDIA cards are in this host, and the driver cannot be used")
    value = [Message(text, {"count": len(facts.pci)}), _error(gpus)]
    drivers = {card.driver for card in facts.pci}
    if facts.container:
        why = N_(
            "The cards belong to the host; this container was started without them. With the panel's own "
            "compose files, the command on the host starts it again with the cards."
        )
        return Finding("driver", "bad", title, tuple(value), Message(why), (_COMPOSE,))
    if "vfio-pci" in drivers:
        why = N_(
            "The cards are set aside for a virtual machine (vfio-pci): servers of this host cannot use them."
        )
        return Finding("driver", "look", title, tuple(value), Message(why), ("lspci -nnk -d 10de:",))
    if "nouveau" in drivers:
        value.append(Message(N_("the free driver nouveau holds them, which has no CUDA")))
    why = N_(
        "Without NVIDIA's driver servers run on the processor. On Ubuntu the second command installs it, on "
        "Debian the third (with non-free packages switched on); then reboot the host."
    )
    commands = (
        "lspci -nnk -d 10de:",
        "sudo ubuntu-drivers install",
        "sudo apt-get install -y nvidia-driver",
        "sudo reboot",
    )
    return Finding("driver", "bad", title, tuple(value), Message(why), commands)


def _error(gpus: Gpus) -> Message:
    return gpus.error or Message(gpu.ERRORS[gpu.NO_DRIVER])


def _toolkit(facts: Facts) -> Finding:
    title, toolchain = Message(N_("CUDA toolkit")), facts.toolchain
    if toolchain is None:
        value = Message(N_("not looked at yet"))
        why = N_("The page “Toolchain” shows what the host has for builds, and has a button that looks.")
        return Finding("toolkit", "unknown", title, (value,), Message(why))
    usable = facts.gpus is None or facts.gpus.problem is None
    driver = (facts.gpus and facts.gpus.driver) or (toolchain.driver if usable else "")
    driver_cuda = (facts.gpus and facts.gpus.cuda) or (toolchain.driver_cuda if usable else "")
    cards = bool(toolchain.gpus) or bool(facts.gpus and facts.gpus.gpus)
    if not toolchain.nvccs:
        return _no_toolkit(driver_cuda, cards)
    judged = [_fits(toolchain, nvcc, driver, driver_cuda) for nvcc in toolchain.nvccs]
    # One toolkit that fits is enough: each build config may choose it.
    state: State = (
        "good" if "good" in [each for each, _line in judged] else worst([each for each, _line in judged])
    )
    if not driver:
        state = "unknown" if cards else "good"
    why = N_(
        "A build with CUDA needs a toolkit that knows the card, and a driver that is new enough for the "
        "toolkit. A toolkit newer than what the driver runs works only when the build contains the card's "
        "own architecture. One fitting toolkit is enough: a build config chooses it."
    )
    return Finding(
        "toolkit",
        state,
        title,
        tuple(line for _state, line in judged),
        Message(why),
        ("nvidia-smi", "nvcc --version"),
    )


def _no_toolkit(driver_cuda: str, cards: bool) -> Finding:
    title = Message(N_("CUDA toolkit"))
    value = (Message(N_("no nvcc found")),)
    if not cards:
        why = N_("Without an NVIDIA card there is nothing to build with CUDA.")
        return Finding("toolkit", "good", title, value, Message(why))
    why = N_(
        "Only needed to build llama.cpp with CUDA on this host; programs that are built already run without "
        "it. The command takes the newest that the driver runs, from NVIDIA's package sources."
    )
    package = "cuda-toolkit" + (f"-{driver_cuda.replace('.', '-')}" if driver_cuda else "")
    return Finding("toolkit", "look", title, value, Message(why), (f"sudo apt-get install -y {package}",))


def _fits(toolchain: Toolchain, nvcc: Nvcc, driver: str, driver_cuda: str) -> tuple[State, Message]:
    params: dict[str, object] = {"version": nvcc.version, "path": nvcc.path}
    if not nvcc.version:
        return "unknown", Message(N_("%(path)s: its version is not known"), params)
    need = cuda.minimum_driver(nvcc.version)
    if need and older(driver, need):
        text = N_("CUDA %(version)s (%(path)s): needs the driver %(need)s or newer")
        return "bad", Message(text, {**params, "need": need})
    cannot = [arch for arch in toolchain.architectures if not cuda.compiles(nvcc.version, arch)]
    if cannot:
        text = N_(
            "CUDA %(version)s (%(path)s): does not compile for architecture %(architecture)s of a card here"
        )
        return "look", Message(text, {**params, "architecture": cannot[0]})
    if older(driver_cuda, nvcc.version):
        text = N_("CUDA %(version)s (%(path)s): newer than CUDA %(cuda)s, which the driver runs")
        return "look", Message(text, {**params, "cuda": driver_cuda})
    if not driver:
        return "unknown", Message(N_("CUDA %(version)s (%(path)s)"), params)
    return "good", Message(N_("CUDA %(version)s (%(path)s): fits the driver"), params)


def _processes(gpus: Gpus) -> Finding:
    title = Message(N_("Programs on the cards"))
    why = N_(
        "What other programs hold is missing for models. A server that was left over by another program, or "
        "by an earlier start, is a usual reason why a model that fits does not start. Look who it is before "
        "you end it: “kill” asks it to end."
    )
    if any(card.processes is None for card in gpus.gpus if not card.lost):
        value = Message(N_("which programs use the cards is not known"))
        return Finding("processes", "unknown", title, (value,), Message(why), ("nvidia-smi",))
    listed = [(card.index, process) for card in gpus.gpus for process in card.processes or ()]
    others = [(index, process) for index, process in listed if not process.ours]
    if not others:
        value = Message(N_("none but servers of this panel"))
        return Finding("processes", "good", title, (value,), Message(why), ("nvidia-smi",))
    suspects = sorted({process.pid for _index, process in others if _suspicious(process)})
    unsure = any(process.ours is None for _index, process in others)
    state: State = "unknown" if unsure else "look" if suspects else "good"
    commands: tuple[str, ...] = ("nvidia-smi",)
    if state == "look":
        pids = [str(pid) for pid in suspects]
        commands = (f"ps -o pid,user,lstart,args -p {','.join(pids)}", f"kill {' '.join(pids)}")
    lines = tuple(_line(index, process) for index, process in others)
    return Finding("processes", state, title, lines, Message(why), commands)


def _suspicious(process: GpuProcess) -> bool:
    return (process.memory_mib or 0) >= _HEAVY or (process.name or "").startswith(_SERVERS)


def _line(index: int, process: GpuProcess) -> Message:
    params = {"index": index, "name": process.name or "?", "pid": process.pid}
    if process.memory_mib is None:
        return Message(N_("GPU %(index)d: %(name)s, pid %(pid)d"), params)
    text = N_("GPU %(index)d: %(name)s, pid %(pid)d, %(memory)s MiB")
    return Message(text, {**params, "memory": f"{process.memory_mib:,}"})
