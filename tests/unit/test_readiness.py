"""Hosts as data: two RTX 3090, WSL2, containers, a laptop without a card, odd and missing values."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from controlpanel.lib.text import Message
from jobs.domain import gpu
from jobs.domain.gpu import GpuProcess, Gpus, GpuSample
from jobs.domain.programs import Gpu, Nvcc, Toolchain
from jobs.domain.readiness import GROUPS, STATE_WORDS, Facts, Finding, grouped, judge
from jobs.domain.readiness_facts import (
    UNLIMITED,
    CardSettings,
    Limit,
    PciCard,
)

GIB = 1024**3
CARD = GpuSample(
    index=0,
    name="NVIDIA GeForce RTX 3090",
    memory_total_mib=24576,
    utilization=0,
    power_limit_w=350.0,
    clock_mhz=210,
    pcie_gen=1,
    pcie_width=16,
    pcie_gen_max=4,
    pcie_width_max=16,
    throttle=("idle",),
    processes=(),
)
BUS = PciCard("0000:01:00.0", "nvidia", 1, 16, 4, 16)
TOOLCHAIN = Toolchain(
    nvccs=(Nvcc("/usr/local/cuda/bin/nvcc", "12.4", on_path=True),),
    driver="580.95.05",
    driver_cuda="13.0",
    gpus=(Gpu("RTX 3090", "86"),),
)
GOOD = Facts(
    kernel="6.8.0-60-generic",
    memory_mib=65536,
    memory_free_mib=50000,
    swap_mib=8192,
    swap_free_mib=8000,
    swappiness=60,
    huge_pages="madvise",
    open_files=Limit(1024, 1048576),
    memlock=Limit(UNLIMITED, UNLIMITED),
    data_folder="/srv/panel",
    disk_total=1000 * GIB,
    disk_free=500 * GIB,
    disk_type="ext4",
    docker="28.1.1",
    docker_nvidia=True,
    nvidia_ctk="1.17.4",
    pci=(BUS, replace(BUS, address="0000:02:00.0")),
    settings=(CardSettings(0, True, 350.0, 2100), CardSettings(1, True, 350.0, 2100)),
    gpu_device=False,
    toolchain=TOOLCHAIN,
    gpus=Gpus("580.95.05", "13.0", (CARD, replace(CARD, index=1))),
)
NO_CARD = replace(GOOD, pci=(), settings=(), gpus=Gpus(problem=gpu.NO_DRIVER), toolchain=Toolchain())
WSL = replace(
    GOOD,
    kernel="5.15.167.4-microsoft-standard-WSL2",
    pci=(),
    gpu_device=True,
    linux_driver=False,
    settings=(CardSettings(0),),
    docker="",
    gpus=Gpus("566.36", "12.7", (CARD,)),
)


def finding(facts: Facts, key: str) -> Finding:
    [found] = [one for one in judge(facts) if one.key == key]
    return found


def said(found: Finding) -> str:
    return " / ".join(map(str, found.value))


def with_card(**values: object) -> Facts:
    """The good host with its first card changed."""
    assert GOOD.gpus is not None
    first, second = GOOD.gpus.gpus
    return replace(GOOD, gpus=replace(GOOD.gpus, gpus=(replace(first, **values), second)))  # type: ignore[arg-type]


def test_nothing_is_to_be_mended_on_a_good_host_with_two_cards() -> None:
    assert {one.key: one.state for one in judge(GOOD) if one.state != "good"} == {}


def test_nothing_known_is_said_to_be_unknown_and_nothing_fails() -> None:
    states = {one.key: one.state for one in judge(Facts())}
    assert states.pop("container") == "good"  # nothing tells of a container
    assert set(states.values()) == {"unknown"}


def test_each_finding_has_a_title_a_value_and_a_reason_in_words_and_its_key_once() -> None:
    for facts in (GOOD, NO_CARD, WSL, Facts(), replace(GOOD, kernel="4.4.0-19041-Microsoft")):
        found = judge(facts)
        assert len({one.key for one in found}) == len(found)
        for one in found:
            assert one.state in STATE_WORDS
            assert str(one.title) and one.value and all(map(str, one.value)) and len(str(one.why)) > 20
            assert not any("%(" in command or not command.strip() for command in one.commands)
    assert list(grouped(GOOD)) == list(GROUPS)


def test_a_host_without_a_card_runs_on_the_processor_and_has_nothing_to_mend() -> None:
    found = finding(NO_CARD, "driver")
    assert found.state == "good"
    assert "Servers run on the processor" in str(found.why)
    assert finding(NO_CARD, "toolkit").state == "good"
    assert finding(NO_CARD, "docker").state == "good"
    assert "link" not in {one.key for one in judge(NO_CARD)}


@pytest.mark.parametrize(
    ("driver", "container", "state", "words"),
    [
        ("nouveau", "", "bad", "nouveau"),
        ("", "", "bad", "2 NVIDIA cards are in this host"),
        ("vfio-pci", "", "look", "2 NVIDIA cards"),
        ("nvidia", "Docker", "bad", "2 NVIDIA cards"),
    ],
)
def test_a_card_on_the_bus_without_a_driver_is_noticed(
    driver: str, container: str, state: str, words: str
) -> None:
    bus = tuple(replace(card, driver=driver) for card in GOOD.pci)
    found = finding(replace(NO_CARD, pci=bus, container=container), "driver")
    assert found.state == state
    assert words in said(found)
    assert ("compose.gpu.yml" in " ".join(found.commands)) == bool(container)


@pytest.mark.parametrize(
    ("problem", "command"),
    [
        (gpu.NOT_LOADED, "sudo modprobe nvidia"),
        (gpu.MISMATCH, "sudo reboot"),
        (gpu.NO_PERMISSION, "ls -l /dev/nvidia*"),
        (gpu.SILENT, "sudo dmesg | grep -iE 'NVRM|Xid'"),
        (gpu.FAILED, "nvidia-smi"),
        ("a problem of a later version", None),
    ],
)
def test_a_driver_that_cannot_be_used_comes_with_what_helps(problem: str, command: str | None) -> None:
    found = finding(replace(GOOD, gpus=Gpus(problem=problem, words="Unknown Error")), "driver")
    assert found.state == "bad"
    assert command is None or command in found.commands


def test_a_lost_card_and_an_old_sample_are_said() -> None:
    lost = finding(with_card(lost=True, error="GPU is lost", processes=None), "driver")
    assert lost.state == "bad"
    assert "GPU 0: lost. The driver says: GPU is lost" in said(lost)
    old = finding(replace(GOOD, stale=True), "driver")
    assert (old.state, "old" in said(old)) == ("unknown", True)


@pytest.mark.parametrize(
    ("toolkit", "driver", "driver_cuda", "arch", "state", "words"),
    [
        ("12.4", "580.95.05", "13.0", "86", "good", "fits the driver"),
        ("13.0", "550.54.14", "12.4", "86", "bad", "needs the driver 580.65.06 or newer"),
        ("12.8", "550.54.14", "12.4", "86", "look", "newer than CUDA 12.4"),
        ("11.8", "580.95.05", "13.0", "120", "look", "does not compile for architecture 120"),
        ("13.0", "580.95.05", "13.0", "61", "look", "does not compile for architecture 61"),
        ("99.1", "580.95.05", "13.0", "86", "look", "newer than CUDA 13.0"),
        ("", "580.95.05", "13.0", "86", "unknown", "its version is not known"),
    ],
)
def test_driver_cuda_and_toolkit_are_held_against_each_other(
    toolkit: str, driver: str, driver_cuda: str, arch: str, state: str, words: str
) -> None:
    chain = replace(TOOLCHAIN, nvccs=(Nvcc("/opt/nvcc", toolkit),), gpus=(Gpu("card", arch),))
    facts = replace(GOOD, toolchain=chain, gpus=Gpus(driver, driver_cuda, (CARD,)))
    found = finding(facts, "toolkit")
    assert (found.state, words in said(found)) == (state, True)


def test_one_toolkit_that_fits_is_enough() -> None:
    chain = replace(TOOLCHAIN, nvccs=(Nvcc("/a", "13.9"), *TOOLCHAIN.nvccs))
    found = finding(replace(GOOD, toolchain=chain), "toolkit")
    assert (found.state, len(found.value)) == ("good", 2)


def test_a_toolkit_is_not_said_to_fit_a_driver_that_cannot_be_used() -> None:
    found = finding(replace(GOOD, gpus=Gpus(problem=gpu.MISMATCH)), "toolkit")
    assert (found.state, said(found)) == ("unknown", "CUDA 12.4 (/usr/local/cuda/bin/nvcc)")


def test_a_missing_toolkit_is_named_as_the_driver_takes_it() -> None:
    found = finding(replace(GOOD, toolchain=replace(TOOLCHAIN, nvccs=())), "toolkit")
    assert (found.state, found.commands) == ("look", ("sudo apt-get install -y cuda-toolkit-13-0",))


@pytest.mark.parametrize(
    ("values", "state", "words"),
    [
        ({}, "good", "gen 1 ×16 at rest, the card has gen 4"),
        ({"pcie_gen": 4}, "good", "gen 4 ×16, all that the card has"),
        ({"pcie_width": 8}, "look", "gen 1 ×8, the card has ×16 (gen 4)"),
        ({"utilization": 97}, "look", "gen 1 ×16 under load"),
        ({"pcie_gen": 3, "pcie_gen_max": 3}, "look", "its slot gives gen 3 and the card has gen 4"),
        ({"pcie_gen": None}, "unknown", "not known"),
        ({"pcie_width": 0}, "unknown", "not known"),
    ],
)
def test_a_link_is_held_against_the_cards_own(values: dict[str, object], state: str, words: str) -> None:
    found = finding(with_card(**values), "link")
    assert (found.state, words in str(found.value[0])) == (state, True)


def test_a_card_that_has_eight_lanes_is_not_blamed_for_eight() -> None:
    narrow = {"pcie_width": 8, "pcie_width_max": 8}
    facts = replace(with_card(**narrow), pci=(replace(BUS, width=8, width_max=8), GOOD.pci[1]))
    assert finding(facts, "link").state == "good"


def test_the_bus_counts_only_when_it_shows_the_same_cards_as_the_driver() -> None:
    facts = replace(with_card(pcie_width=8, pcie_width_max=8), pci=(BUS,))
    assert finding(facts, "link").state == "good"
    assert finding(replace(facts, pci=GOOD.pci), "link").state == "look"


def test_a_lowered_power_limit_names_the_default_of_that_card() -> None:
    found = finding(with_card(power_limit_w=250.0), "power")
    assert (found.state, found.commands) == (
        "look",
        ("nvidia-smi -q -d POWER", "sudo nvidia-smi -i 0 -pl 350"),
    )
    assert "on purpose, leave it" in str(found.why)
    assert finding(with_card(power_limit_w=349.0), "power").state == "good"
    assert finding(replace(GOOD, settings=()), "power").state == "unknown"
    assert finding(with_card(power_limit_w=None), "power").state == "unknown"


def test_persistence_is_of_no_matter_under_windows() -> None:
    off = replace(GOOD, settings=(CardSettings(0, persistence=False), CardSettings(1, persistence=True)))
    assert finding(off, "persistence").state == "look"
    assert "GPU 0: off / GPU 1: on" in said(finding(off, "persistence"))
    assert finding(WSL, "persistence").state == "good"


def test_clocks_are_looked_at_only_when_something_holds_a_card_back() -> None:
    assert finding(with_card(throttle=("power_limit",)), "clocks").state == "good"
    hot = finding(with_card(throttle=("hardware_heat",)), "clocks")
    assert (hot.state, "held back: heat (hardware limit)" in said(hot)) == ("look", True)
    locked = finding(with_card(throttle=("application_clocks",)), "clocks")
    assert "sudo nvidia-smi -i 0 -rgc" in locked.commands
    assert finding(with_card(throttle=None), "clocks").state == "unknown"


@pytest.mark.parametrize("key", ["swappiness", "huge_pages", "clocks"])
def test_what_is_unproven_is_said_to_be_unproven(key: str) -> None:
    assert re.search(r"no measurement|not proven", str(finding(GOOD, key).why))


def test_programs_of_others_are_named_and_large_ones_are_looked_at() -> None:
    desktop = GpuProcess(901, "Xorg", 600, ours=False)
    own = GpuProcess(812, "llama-server", 18432, ours=True)
    left = GpuProcess(77, "llama-server", 300, ours=False)
    large = GpuProcess(78, "python3", 9000, ours=False)
    good = finding(with_card(processes=(own, desktop)), "processes")
    assert (good.state, said(good), good.commands) == (
        "good",
        "GPU 0: Xorg, pid 901, 600 MiB",
        ("nvidia-smi",),
    )
    found = finding(with_card(processes=(own, desktop, left, large)), "processes")
    assert found.state == "look"
    assert found.commands == ("ps -o pid,user,lstart,args -p 77,78", "kill 77 78")
    unsure = finding(with_card(processes=(replace(left, ours=None),)), "processes")
    assert (unsure.state, unsure.commands) == ("unknown", ("nvidia-smi",))
    assert finding(with_card(processes=None), "processes").state == "unknown"


def test_a_name_that_a_program_gave_itself_never_gets_into_a_command() -> None:
    evil = GpuProcess(5, "llama-$(reboot); %(x)s", 5000, ours=False)
    found = finding(with_card(processes=(evil,)), "processes")
    assert "reboot" not in " ".join(found.commands)
    assert "%(x)s" in said(found)


@pytest.mark.parametrize(
    ("values", "key", "state"),
    [
        ({"memory_free_mib": 1500}, "memory", "look"),
        ({"memory_free_mib": 300}, "memory", "bad"),
        ({"memory_limit_mib": 1024}, "memory", "look"),
        ({"memory_limit_mib": 32768}, "memory", "good"),
        ({"swap_mib": 0, "swap_free_mib": 0}, "swap", "good"),
        ({"swap_mib": 0, "swap_free_mib": 0, "memory_mib": 8192}, "swap", "look"),
        ({"swap_free_mib": 1000}, "swap", "look"),
        ({"swap_free_mib": 7500}, "swap", "good"),
        ({"swappiness": 0}, "swappiness", "good"),
        ({"swappiness": 180}, "swappiness", "look"),
        ({"swappiness": 180, "swap_mib": 0}, "swappiness", "good"),
        ({"huge_pages": "always"}, "huge_pages", "good"),
        ({"huge_pages": "something new"}, "huge_pages", "good"),
        ({"open_files": Limit(256, 4096)}, "open_files", "look"),
        ({"open_files": Limit(64, 64)}, "open_files", "bad"),
        ({"open_files": Limit(UNLIMITED, UNLIMITED)}, "open_files", "good"),
        ({"memlock": Limit(65536, UNLIMITED)}, "memlock", "look"),
        ({"memlock": Limit(64 * GIB, 64 * GIB)}, "memlock", "good"),
        ({"disk_free": 10 * GIB}, "disk", "look"),
        ({"disk_free": GIB}, "disk", "bad"),
        ({"disk_type": "nfs4"}, "disk_type", "look"),
        ({"disk_type": "tmpfs"}, "disk_type", "look"),
        ({"docker_nvidia": False}, "docker", "look"),
        ({"docker_nvidia": None}, "docker", "unknown"),
        ({"nvidia_ctk": ""}, "docker", "look"),
    ],
)
def test_a_value_beyond_its_threshold_is_noticed(values: dict[str, object], key: str, state: str) -> None:
    assert finding(replace(GOOD, **values), key).state == state  # type: ignore[arg-type]


def test_a_container_without_limits_is_named_and_says_nothing_of_the_docker_in_it() -> None:
    inside = replace(GOOD, container="Docker", memory_limit_mib=None)
    keys = {one.key for one in judge(inside)}
    assert "docker" not in keys
    assert said(finding(inside, "container")) == "runs in a container (Docker)"
    assert finding(inside, "memory").state == "good"


def test_a_folder_with_a_quote_cannot_leave_its_place_in_a_command() -> None:
    found = finding(replace(GOOD, data_folder="/srv/it's; reboot", disk_free=0), "disk")
    assert found.commands == ("du -xh --max-depth=2 '/srv/it'\"'\"'s; reboot' | sort -h | tail",)


def test_wsl_is_judged_only_under_wsl() -> None:
    assert grouped(GOOD)["wsl"] == []
    assert [one.state for one in grouped(WSL)["wsl"]] == ["good", "good", "good"]
    old = finding(replace(WSL, kernel="5.4.72-microsoft-standard-WSL2"), "wsl_kernel")
    assert (old.state, old.commands[0]) == ("look", "wsl.exe --update")
    assert finding(replace(WSL, kernel="4.4.0-19041-Microsoft"), "wsl_kernel").state == "bad"
    assert finding(replace(WSL, linux_driver=True), "wsl_gpu").state == "look"
    assert finding(replace(WSL, gpu_device=False), "wsl_gpu").state == "look"
    assert finding(replace(WSL, gpu_device=None), "wsl_gpu").state == "unknown"
    assert finding(replace(WSL, docker="28.1.1"), "docker").state == "unknown"
    drive = finding(replace(WSL, disk_type="9p"), "disk_type")
    assert (drive.state, "Windows drive" in str(drive.why)) == ("look", True)


def test_any_mix_of_missing_values_is_judged() -> None:
    cards: tuple[Gpus | None, ...] = (None, Gpus(), Gpus(gpus=(GpuSample(0),)), Gpus(problem=gpu.NO_CARD))
    kernels = ("", "6.8", "4.4.0-1-Microsoft", "-microsoft-standard-WSL2")
    for gpus, kernel, chain, pci in product(cards, kernels, (None, Toolchain()), ((), (PciCard("x"),))):
        for found in judge(Facts(gpus=gpus, kernel=kernel, toolchain=chain, pci=pci, docker="?")):
            assert all(isinstance(line, Message) and str(line) for line in found.value)


def test_no_command_is_ever_run_by_the_panel() -> None:
    root = Path(__file__).resolve().parents[2] / "jobs"
    for path in (root / "services" / "readiness.py", root / "views" / "readiness.py"):
        assert "run_bounded" not in path.read_text(encoding="utf-8")
    asked = re.findall(
        r'which\("([a-z-]+)"\)', (root / "adapters" / "readiness.py").read_text(encoding="utf-8")
    )
    assert set(asked) == {"docker", "nvidia-ctk", "nvidia-smi"}
