"""What of a server's main memory is its own, and what are only mapped pages of its files, in MiB."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil

from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.memory_types import Estimate

PROMPT_CACHE = "prompt_cache"
"""The term of main memory that is a limit, not a need."""

_OF_THE_FILE = frozenset({"weights", "mtp_weights"})
_MAPPED = (None, "auto", "mmap", "mmap+mlock")


@dataclass(frozen=True)
class OwnMemory:
    """What a server holds for itself: `certain` at least, `most` at most, both without the prompt cache.

    `prompts` is what the prompt cache may add. None is not known, of `prompts` also without a limit.
    """

    certain: int
    most: int | None
    prompts: int | None

    @property
    def filled(self) -> int | None:
        """Return the most that it holds once the prompt cache is full."""
        return None if self.most is None or self.prompts is None else self.most + self.prompts


def is_mapped(settings: Mapping[str, object], caps: Capabilities) -> bool:
    """Tell whether a server of these settings, extra arguments among them, maps its model file.

    Mapped pages are the file's, locked or not: the kernel can drop them, or they are counted as the file's.
    """
    mode = settings.get("load_mode")
    # As a load mode "mlock" reads the file; the flag of the older dialect locks what is mapped.
    return mode in _MAPPED or (mode == "mlock" and caps.load_mode == "mmap")


def own_memory(found: Estimate, mapped: bool) -> OwnMemory:
    """Return what an estimate's server holds for itself: all but what is `mapped` from its model file."""
    file = _OF_THE_FILE if mapped else frozenset()
    own = {term: size for term, size in found.host.items() if term not in {*file, PROMPT_CACHE}}
    exact = [size for term, size in own.items() if term not in found.bounds]
    floors = [size for term, size in found.floors.items() if term in found.bounds]
    certain = ceil(sum(filter(None, [*exact, *floors])))
    return OwnMemory(certain, whole_sum(own.values()), whole_sum([found.host.get(PROMPT_CACHE, 0.0)]))


def whole_sum(sizes: Iterable[float | None]) -> int | None:
    """Return the sum of sizes rounded up, None when one of them is not known."""
    known = list(sizes)
    return None if None in known else ceil(sum(filter(None, known)))
