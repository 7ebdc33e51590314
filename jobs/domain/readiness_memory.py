"""Whether a host's main memory, swap and limits fit large models."""

from __future__ import annotations

from controlpanel.lib.text import N_, Message
from jobs.domain.readiness_facts import UNLIMITED, Facts, Finding, Limit, State

_GIB = 1024  # MiB
_LITTLE, _SCARCE = 2 * _GIB, 512  # MiB of main memory still available: take a look, bad
_SMALL = 16 * _GIB  # MiB of main memory below which a host without swap is on thin ice
_SWAPPED = 1 * _GIB  # MiB in swap, beside a quarter of all swap
_FEW_FILES, _TOO_FEW_FILES = 1024, 256  # 1,024 is the usual default of Linux
_DEFAULT_SWAPPINESS, _BALANCED = 60, 100  # above 100 swap is taken for faster than files
_SWAP_FILE = """\
sudo fallocate -l 8G /swapfile
sudo chmod 600 /swapfile
sudo mkswap /swapfile
sudo swapon /swapfile
echo '/swapfile none swap sw 0 0' | sudo tee -a /etc/fstab"""
NOT_TOLD = N_("This host does not tell.")


def judge_memory(facts: Facts) -> list[Finding]:
    """Return the findings on main memory, swap, how they are used, and the limits of processes."""
    return [
        _memory(facts),
        _swap(facts),
        _swappiness(facts),
        _huge_pages(facts),
        _open_files(facts),
        _memlock(facts),
    ]


def gib(mib: int) -> str:
    """Write MiB as GiB with one digit."""
    return f"{mib / _GIB:.1f}"


def _memory(facts: Facts) -> Finding:
    total, free, limit = facts.memory_mib, facts.memory_free_mib, facts.memory_limit_mib
    value = [Message(NOT_TOLD)]
    state: State = "unknown"
    if total is not None and free is not None:
        text = N_("%(free)s GiB available of %(total)s GiB")
        value = [Message(text, {"free": gib(free), "total": gib(total)})]
        state = "bad" if free < _SCARCE else "look" if free < _LITTLE else "good"
        if limit is not None and limit < total:
            text = N_("this container may use %(limit)s GiB of it")
            value.append(Message(text, {"limit": gib(limit)}))
            state = "look" if state == "good" and limit < _LITTLE else state
    why = N_(
        "Layers that are not on a graphics card, and their part of the context, lie in main memory. When it "
        "runs out, the kernel ends the largest process: usually the server. The commands "
        "show how much is left and who uses it."
    )
    commands = ("free -h", "ps -eo pid,user,rss,comm --sort=-rss | head")
    return Finding("memory", state, Message(N_("Main memory")), tuple(value), Message(why), commands)


def _swap(facts: Facts) -> Finding:
    title, total, free = Message(N_("Swap space")), facts.swap_mib, facts.swap_free_mib
    if total is None or free is None:
        why = N_("Swap decides what happens when main memory runs out.")
        return Finding("swap", "unknown", title, (Message(NOT_TOLD),), Message(why), ("swapon --show",))
    if total == 0:
        small = (facts.memory_mib or 0) < _SMALL
        why = N_(
            "Without swap, a server that asks for more memory than there is is ended at once instead of "
            "becoming slow. With much main memory that is a fair choice; with less than 16 GiB a swap file "
            "helps. The commands make one of 8 GiB on ext4 or XFS; for a container, run them on its host."
        )
        state: State = "look" if small else "good"
        return Finding("swap", state, title, (Message(N_("none")),), Message(why), (_SWAP_FILE,))
    used = total - free
    busy = used >= _SWAPPED and used * 4 >= total
    value = Message(N_("%(used)s GiB used of %(total)s GiB"), {"used": gib(used), "total": gib(total)})
    why = N_(
        "What a server needs and finds in swap comes back from the disk, which is far slower. A little in "
        "swap is normal; much of it means that main memory was short at some time. The command shows whether "
        "the host swaps right now (columns si and so)."
    )
    return Finding("swap", "look" if busy else "good", title, (value,), Message(why), ("vmstat 1 5",))


def _swappiness(facts: Facts) -> Finding:
    found = facts.swappiness
    title = Message(N_("Swappiness"))
    why = N_(
        "It says how early the kernel moves memory to swap. Guides for language models often ask for 10 or "
        "less; we know of no measurement with llama.cpp that shows a gain, and without swap it does nothing. "
        "To try it, measure before and after: the first command holds until the next reboot, the second sets "
        "the usual default."
    )
    commands = ("sudo sysctl vm.swappiness=10", f"sudo sysctl vm.swappiness={_DEFAULT_SWAPPINESS}")
    if found is None:
        return Finding("swappiness", "unknown", title, (Message(NOT_TOLD),), Message(why), commands)
    high = found > _BALANCED and facts.swap_mib != 0
    value = Message(N_("%(number)s of 200"), {"number": found})
    return Finding("swappiness", "look" if high else "good", title, (value,), Message(why), commands)


def _huge_pages(facts: Facts) -> Finding:
    title = Message(N_("Transparent huge pages"))
    why = N_(
        "Larger pages of memory can make a model in main memory faster to reach, and can also cost time to "
        "make. The effect on llama.cpp is not proven either way: there is nothing that must be changed. To "
        "try it, measure before and after; the command holds until the next reboot."
    )
    if not facts.huge_pages:
        return Finding("huge_pages", "unknown", title, (Message(NOT_TOLD),), Message(why))
    words = {"always": N_("for all programs"), "madvise": N_("for programs that ask"), "never": N_("off")}
    text = words.get(facts.huge_pages)
    value = (
        Message("%(word)s (%(what)s)", {"word": facts.huge_pages, "what": Message(text)}) if text else None
    )
    other = "madvise" if facts.huge_pages == "always" else "always"
    return Finding(
        "huge_pages",
        "good",
        title,
        (value or Message("%(word)s", {"word": facts.huge_pages}),),
        Message(why),
        (f"echo {other} | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",),
    )


def _open_files(facts: Facts) -> Finding:
    title = Message(N_("Open files"))
    why = N_(
        "Each viewer of a page, each streamed answer and each log takes some. The usual 1,024 are enough for "
        "some hundred people. Set it where the panel is started: before it in the same shell, or in its "
        "systemd unit (second command)."
    )
    commands = ("ulimit -n 4096", "LimitNOFILE=4096")
    if facts.open_files is None:
        return Finding("open_files", "unknown", title, (Message(NOT_TOLD),), Message(why), commands)
    soft = facts.open_files.soft
    state: State = "good"
    if soft != UNLIMITED:
        state = "bad" if soft < _TOO_FEW_FILES else "look" if soft < _FEW_FILES else "good"
    return Finding("open_files", state, title, (_limits(facts.open_files, 1, ""),), Message(why), commands)


def _memlock(facts: Facts) -> Finding:
    title = Message(N_("Locked memory"))
    why = N_(
        "Only for profiles that lock the model in main memory (mlock): with a limit smaller than the model "
        "the server warns “failed to mlock” and goes on without the lock. Others can leave it. Set it where "
        "the panel is started: in its systemd unit (first) or, as root, in the same shell (second)."
    )
    commands = ("LimitMEMLOCK=infinity", "ulimit -l unlimited")
    limit = facts.memlock
    if limit is None:
        return Finding("memlock", "unknown", title, (Message(NOT_TOLD),), Message(why), commands)
    all_of_it = (facts.memory_mib or 0) * 1024 * 1024
    enough = limit.soft == UNLIMITED or (all_of_it > 0 and limit.soft >= all_of_it)
    state: State = "good" if enough else "look"
    return Finding("memlock", state, title, (_limits(limit, 1024, " KiB"),), Message(why), commands)


def _limits(limit: Limit, unit: int, name: str) -> Message:
    def written(number: int) -> object:
        return Message(N_("no limit")) if number == UNLIMITED else f"{number // unit:,}{name}"

    if limit.soft == limit.hard:
        return Message("%(soft)s", {"soft": written(limit.soft)})
    text = N_("%(soft)s, can be raised to %(hard)s")
    return Message(text, {"soft": written(limit.soft), "hard": written(limit.hard)})
