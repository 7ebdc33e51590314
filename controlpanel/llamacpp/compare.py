"""What one build accepts that another one does not, and what both spell differently."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from controlpanel.llamacpp.capabilities import Capabilities
from controlpanel.llamacpp.helptext import Flag, normalise
from controlpanel.llamacpp.renames import RENAMES


@dataclass(frozen=True)
class Pair:
    """One fact of both builds; None where a build has nothing of the kind."""

    old: str | None
    new: str | None

    @property
    def differs(self) -> bool:
        """Tell whether the two builds disagree."""
        return self.old != self.new


@dataclass(frozen=True)
class Values:
    """Two lists of one kind, and what came and went in the order of the build that has it."""

    old: tuple[str, ...]
    new: tuple[str, ...]

    @property
    def added(self) -> tuple[str, ...]:
        """Return what only the new build has."""
        known = set(self.old)
        return tuple(value for value in self.new if value not in known)

    @property
    def removed(self) -> tuple[str, ...]:
        """Return what only the old build has."""
        known = set(self.new)
        return tuple(value for value in self.old if value not in known)

    @property
    def shared(self) -> tuple[str, ...]:
        """Return what both builds have."""
        known = set(self.old)
        return tuple(value for value in self.new if value in known)

    @property
    def differs(self) -> bool:
        """Tell whether a value came or went; another order is no difference."""
        return set(self.old) != set(self.new)


@dataclass(frozen=True)
class Removed:
    """A flag that the new build refuses; `words` are its own about it, "" when it does not list the flag."""

    flag: Flag
    words: str = ""


@dataclass(frozen=True)
class Renamed:
    """One meaning under another spelling; `accepted` when the new build still takes the old one."""

    old: str
    new: str
    accepted: bool = False


@dataclass(frozen=True)
class Changed:
    """A flag that both builds accept and describe differently, under the new build's first spelling."""

    name: str
    default: Pair
    env: Pair
    hint: Pair
    choices: Values
    spellings: Values

    @property
    def differs(self) -> bool:
        """Tell whether there is anything to say."""
        return any(part.differs for part in (self.default, self.env, self.hint, self.choices, self.spellings))


@dataclass(frozen=True)
class Comparison:
    """Everything that differs between two builds, flags in the order of their help texts."""

    version: Pair
    commit: Pair
    spec_types: Values
    mtp_value: Pair
    cache_types: Values
    load_mode: Pair
    log: Pair
    devices: Values
    added: tuple[Flag, ...]
    removed: tuple[Removed, ...]
    renamed: tuple[Renamed, ...]
    changed: tuple[Changed, ...]

    @property
    def flag_count(self) -> int:
        """Return how many entries the four lists of flags have together."""
        return len(self.added) + len(self.removed) + len(self.renamed) + len(self.changed)

    @property
    def same(self) -> bool:
        """Tell whether both accept the same, whatever version they call themselves."""
        facts = (self.spec_types, self.mtp_value, self.cache_types, self.load_mode, self.log, self.devices)
        return not self.flag_count and not any(fact.differs for fact in facts)


def compare(old: Capabilities, new: Capabilities) -> Comparison:
    """Compare two builds. Flags are the same when they share a spelling that both still accept."""
    before, after = _Accepted(old), _Accepted(new)
    partners = [(flag, partner) for flag in before.flags if (partner := after.partner(before, flag))]
    meanings = _renamed_meanings(before, after)
    gone = {before.find(rename.old) for rename in meanings}
    come = {after.find(rename.new) for rename in meanings}
    refused = {name: flag.help for flag in new.flags if flag.removed for name in _spellings(flag)}
    return Comparison(
        version=Pair(old.version or None, new.version or None),
        commit=Pair(_known(old.commit), _known(new.commit)),
        spec_types=Values(old.spec_types, new.spec_types),
        mtp_value=Pair(old.mtp_value, new.mtp_value),
        cache_types=Values(old.cache_types, new.cache_types),
        load_mode=Pair(old.load_mode, new.load_mode),
        log=Pair(old.log, new.log),
        devices=Values(_devices(old), _devices(new)),
        added=tuple(flag for flag in after.flags if not before.partner(after, flag) and flag not in come),
        removed=tuple(
            Removed(flag, next((refused[name] for name in _spellings(flag) if name in refused), ""))
            for flag in before.flags
            if not after.partner(before, flag) and flag not in gone
        ),
        renamed=(
            *(
                Renamed(flag.name, partner.name, after.find(flag.name) is not None)
                for flag, partner in partners
                if _other_name(flag, partner)
            ),
            *meanings,
        ),
        changed=tuple(change for flag, partner in partners if (change := _changed(flag, partner)).differs),
    )


class _Accepted:
    """The flags that a build accepts; what it only lists as removed is none.

    A spelling that is listed more than once belongs to the first flag that has it.
    """

    def __init__(self, caps: Capabilities) -> None:
        self._owners: dict[str, Flag] = {}
        for flag in caps.flags:
            if not flag.removed:
                for name in _spellings(flag):
                    self._owners.setdefault(name, flag)
        self.flags = list({id(flag): flag for flag in self._owners.values()}.values())

    def find(self, words: str) -> Flag | None:
        """Return the flag that a command line of these words would use, None when there is none."""
        return self._owners.get(normalise(words.split()[0]))

    def partner(self, build: _Accepted, flag: Flag) -> Flag | None:
        """Return the flag that shares the most spellings with a flag of another build."""
        own = (name for name in _spellings(flag) if build._owners[name] is flag)
        shared = [self._owners[name] for name in own if name in self._owners]
        counts = Counter(map(id, shared))
        return max(shared, key=lambda one: counts[id(one)], default=None)


def _renamed_meanings(before: _Accepted, after: _Accepted) -> list[Renamed]:
    """Apply the known renames, whichever of the two builds is the older one."""
    found: list[Renamed] = []
    for earlier, later in RENAMES:
        for was, now in ((earlier, later), (later, earlier)):
            flag = before.find(was)
            if flag and not after.partner(before, flag) and after.find(now):
                found.append(Renamed(was, now))
    return found


def _other_name(old: Flag, new: Flag) -> bool:
    return normalise(old.name) != normalise(new.name)


def _changed(old: Flag, new: Flag) -> Changed:
    # The list of renamed flags tells the spellings of those already.
    spellings = Values((), ()) if _other_name(old, new) else Values(_spellings(old), _spellings(new))
    return Changed(
        name=new.name,
        default=Pair(old.default, new.default),
        env=Pair(old.env or None, new.env or None),
        hint=Pair(old.hint or None, new.hint or None),
        choices=Values(old.choices, new.choices),
        spellings=spellings,
    )


def _spellings(flag: Flag) -> tuple[str, ...]:
    return tuple(map(normalise, flag.all_names))


def _known(commit: str) -> str | None:
    return None if commit in ("", "unknown") else commit


def _devices(caps: Capabilities) -> tuple[str, ...]:
    """Name the devices without their free memory, which differs from probe to probe."""
    return tuple(f"{device.name}: {device.description}, {device.total} MiB" for device in caps.devices)
