"""Whether the NVIDIA cards of a host run as they could: settings, power, clocks, link."""

from __future__ import annotations

from collections.abc import Iterable

from controlpanel.lib.text import N_, Message
from jobs.domain.gpu import THROTTLE_ALARMS, THROTTLE_WORDS, GpuSample
from jobs.domain.readiness_facts import Facts, Finding, PciCard, State, worst

_AT_WORK = 10  # percent of load from which a card's link is no longer at rest
_SAME_POWER = 0.99  # of the card's default limit
_SET = "application_clocks"


def judge_cards(facts: Facts, cards: tuple[GpuSample, ...]) -> list[Finding]:
    """Return the findings on settings and links; cards that are lost or not readable are left out."""
    cards = tuple(card for card in cards if not card.lost and not card.error)
    if not cards:
        return []
    return [_persistence(facts, cards), _power(facts, cards), _clocks(facts, cards), _link(facts, cards)]


def _persistence(facts: Facts, cards: Iterable[GpuSample]) -> Finding:
    title = Message(N_("Persistence"))
    why = N_(
        "Without it the driver puts a card to rest when its last program ends: the next start takes about 1 "
        "to 3 seconds more per card, and settings such as a power limit are lost. Programs that hold the "
        "cards open, such as the panel's agent, have the same effect while they run. The first command keeps "
        "it on for good; where that service is missing, the second does until the next reboot."
    )
    commands = ("sudo systemctl enable --now nvidia-persistenced", "sudo nvidia-smi -pm 1")
    if facts.wsl:
        value = Message(N_("a matter of Windows"))
        why_wsl = N_("Under WSL2 the driver belongs to Windows, which keeps the cards ready by itself.")
        return Finding("persistence", "good", title, (value,), Message(why_wsl))
    known = {card.index: facts.setting(card.index).persistence for card in cards}
    words = {
        True: N_("GPU %(index)d: on"),
        False: N_("GPU %(index)d: off"),
        None: N_("GPU %(index)d: not known"),
    }
    states: dict[bool | None, State] = {True: "good", False: "look", None: "unknown"}
    state = worst([states[on] for on in known.values()])
    value_lines = tuple(Message(words[on], {"index": index}) for index, on in known.items())
    return Finding(
        "persistence", state, title, value_lines, Message(why), commands if state == "look" else ()
    )


def _power(facts: Facts, cards: Iterable[GpuSample]) -> Finding:
    title = Message(N_("Power limit"))
    why = N_(
        "A limit below the card's default saves heat and noise and costs speed: how much depends on the card "
        "and the model, so measure it. If you set it on purpose, leave it. “-pl” with the default sets it "
        "back."
    )
    states: list[State] = []
    lines: list[Message] = []
    commands = ["nvidia-smi -q -d POWER"]
    for card in cards:
        limit, default = card.power_limit_w, facts.setting(card.index).power_default_w
        params: dict[str, object] = {
            "index": card.index,
            "limit": _number(limit),
            "default": _number(default),
        }
        if limit is None or default is None or default <= 0:
            states.append("unknown")
            text = N_("GPU %(index)d: %(limit)s W, the default is not known")
            lines.append(Message(text, {"index": card.index, "limit": _number(limit)}))
            continue
        reduced = limit < default * _SAME_POWER
        states.append("look" if reduced else "good")
        lines.append(Message(N_("GPU %(index)d: %(limit)s W, default %(default)s W"), params))
        if reduced:
            commands.append(f"sudo nvidia-smi -i {card.index} -pl {default:.0f}")
    return Finding("power", worst(states), title, tuple(lines), Message(why), tuple(commands))


def _clocks(facts: Facts, cards: Iterable[GpuSample]) -> Finding:
    title = Message(N_("Clocks"))
    why = N_(
        "A card that is held back by heat or by its power supply is slower than it could be: better cooling "
        "helps. Guides also tell to lock clocks; we know of no measurement with llama.cpp that shows a gain, "
        "so measure before and after. The first command shows what holds the cards back now."
    )
    states: list[State] = []
    lines: list[Message] = []
    commands = ["nvidia-smi -q -d PERFORMANCE,CLOCK,TEMPERATURE"]
    for card in cards:
        throttle = card.throttle
        highest = facts.setting(card.index).clock_max_mhz
        params: dict[str, object] = {
            "index": card.index,
            "now": _number(card.clock_mhz),
            "most": _number(highest),
        }
        held = [name for name in throttle or () if name in THROTTLE_ALARMS or name == _SET]
        states.append("unknown" if throttle is None else "look" if held else "good")
        text = N_("GPU %(index)d: %(now)s MHz now, at most %(most)s MHz")
        lines.append(Message(text if highest else N_("GPU %(index)d: %(now)s MHz now"), params))
        text = N_("GPU %(index)d is held back: %(reason)s")
        lines += [
            Message(text, {"index": card.index, "reason": Message(THROTTLE_WORDS[name])}) for name in held
        ]
        if _SET in held:
            commands.append(f"sudo nvidia-smi -i {card.index} -rgc")
    state = worst(states)
    return Finding("clocks", state, title, tuple(lines), Message(why), tuple(commands))


def _link(facts: Facts, cards: tuple[GpuSample, ...]) -> Finding:
    title = Message(N_("PCIe link"))
    why = N_(
        "It decides how fast a model gets into a card, and what layers in main memory and a model split over "
        "several cards cost. A model that lies on one card hardly uses it while it answers. Fewer lanes than "
        "the card has: another slot, a riser cable, lanes shared with a disk, or a laptop that is wired so. "
        "A card at rest lowers its generation by itself: that is judged under load only."
    )
    states: list[State] = []
    lines: list[Message] = []
    for card, on_bus in zip(cards, _on_bus(facts, cards), strict=True):
        state, line = _one_link(card, on_bus)
        states.append(state)
        lines.append(line)
    state = worst(states)
    query = "index,pcie.link.gen.current,pcie.link.gen.max,pcie.link.width.current,pcie.link.width.max"
    commands = (
        f"nvidia-smi --query-gpu={query} --format=csv",
        "sudo lspci -vv -d 10de: | grep -E 'LnkCap:|LnkSta:'",
    )
    return Finding("link", state, title, tuple(lines), Message(why), commands)


def _on_bus(facts: Facts, cards: tuple[GpuSample, ...]) -> list[PciCard | None]:
    """Return what the bus says of each card: NVML numbers cards in the order of their addresses."""
    bus = sorted(facts.pci, key=lambda card: card.address)
    total = len(facts.gpus.gpus) if facts.gpus else 0
    if len(bus) != total:
        return [None for _card in cards]
    return [bus[card.index] if card.index < len(bus) else None for card in cards]


def _one_link(card: GpuSample, on_bus: PciCard | None) -> tuple[State, Message]:
    gen, width = card.pcie_gen, card.pcie_width
    own_gen = (on_bus.gen_max if on_bus else None) or card.pcie_gen_max
    own_width = (on_bus.width_max if on_bus else None) or card.pcie_width_max
    if not gen or not width or not own_gen or not own_width:
        return "unknown", Message(N_("GPU %(index)d: not known"), {"index": card.index})
    params: dict[str, object] = {
        "index": card.index, "gen": gen, "width": width, "own_gen": own_gen, "own_width": own_width,
    }  # fmt: skip
    possible = card.pcie_gen_max or own_gen
    if width < own_width:
        text = N_("GPU %(index)d: gen %(gen)d ×%(width)d, the card has ×%(own_width)d (gen %(own_gen)d)")
        return "look", Message(text, params)
    if possible < own_gen:
        text = N_(
            "GPU %(index)d: ×%(width)d, its slot gives gen %(possible)d and the card has gen %(own_gen)d"
        )
        return "look", Message(text, {**params, "possible": possible})
    if gen < own_gen and (card.utilization or 0) >= _AT_WORK:
        text = N_("GPU %(index)d: gen %(gen)d ×%(width)d under load, the card has gen %(own_gen)d")
        return "look", Message(text, params)
    if gen < own_gen:
        text = N_("GPU %(index)d: gen %(gen)d ×%(width)d at rest, the card has gen %(own_gen)d")
        return "good", Message(text, params)
    return "good", Message(N_("GPU %(index)d: gen %(gen)d ×%(width)d, all that the card has"), params)


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f}"
