"""The page of a host's readiness, and what is read of a host for it."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import redis
from django.contrib.auth.models import User
from django.urls import reverse

from jobs.adapters import readiness as reading
from jobs.domain import gpu
from jobs.domain.gpu import GpuProcess, Gpus, Sample
from jobs.domain.readiness_facts import PciCard
from jobs.models import Host, Run
from jobs.services import gpus
from tests.cards import publish_cards
from tests.functional import pages
from tests.functional.test_gpu_pages import CARD

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory of what other tests published or failed to read."""
    monkeypatch.setattr(gpus, "_shown", None)
    monkeypatch.setattr(gpus, "_next_try", 0.0)


@pytest.fixture
def no_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty PATH, to which a test may add programs."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def script(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def part(html: str, key: str) -> str:
    """The text of one finding."""
    found = re.search(rf'<article[^>]*id="finding-{key}".*?</article>', html, re.DOTALL)
    assert found, f"no finding {key}"
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", found[0])).split())


def page(client: Any) -> str:
    answer = client.get(reverse("host-readiness"))
    assert answer.status_code == 200
    text: str = answer.content.decode()
    return text


def test_a_host_without_a_card_reads_what_that_means(
    redis_server: redis.Redis, host: Host, charlie: User, signed_in: Any, no_programs: Path
) -> None:
    gpus.publish_sample(host.slug, Sample(time.time(), Gpus(problem=gpu.NO_DRIVER)))
    html = page(signed_in(charlie))
    assert "Servers run on the processor" in part(html, "driver")
    assert "This host does not run under Windows (WSL2)" in html
    assert "Main memory" in part(html, "memory")
    assert " style=" not in html.split('<main id="content"')[1].split("</main>")[0]


def test_programs_of_others_on_a_card_are_told_from_servers_of_the_panel(
    redis_server: redis.Redis, host: Host, run: Run, charlie: User, signed_in: Any, no_programs: Path
) -> None:
    pages.looked_at()
    Run.objects.filter(pk=run.pk).update(pid=812, state=Run.State.RUNNING)
    # The agent marked neither: the page asks which runs there are now.
    programs = (GpuProcess(812, "llama-server", 18432), GpuProcess(77, "llama-<b>", 3000))
    card = replace(CARD, processes=programs)
    publish_cards(card)
    html = page(signed_in(charlie))
    text = part(html, "processes")
    assert text.startswith("take a look Programs on the cards GPU 0: llama-<b>, pid 77, 3,000 MiB")
    assert "812" not in text
    assert "llama-<b>" not in html
    assert 'data-copy="command-processes-1"' in html
    assert "ps -o pid,user,lstart,args -p 77 Copy kill 77 Copy" in text


def test_without_redis_the_cards_are_unknown_and_the_rest_is_shown(
    host: Host, charlie: User, signed_in: Any, monkeypatch: pytest.MonkeyPatch, no_programs: Path
) -> None:
    dead = redis.Redis(port=9, socket_connect_timeout=1)
    monkeypatch.setattr(gpus, "sync_client", lambda: dead)
    html = page(signed_in(charlie))
    assert part(html, "driver").startswith("not known NVIDIA driver no sample of the cards")
    assert "GiB free of" in part(html, "disk")


def test_the_page_is_linked_from_the_cards_and_the_toolchain(
    redis_server: redis.Redis, host: Host, charlie: User, signed_in: Any
) -> None:
    client = signed_in(charlie)
    for name in ("gpus", "toolchain"):
        assert f'href="{reverse("host-readiness")}"' in client.get(reverse(name)).content.decode()


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_host_is_read_from_its_files(tmp_path: Path, no_programs: Path) -> None:
    root = tmp_path / "root"
    device = "sys/bus/pci/devices/0000:01:00.0"
    write(
        root,
        {
            "proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n",
            "proc/meminfo": "MemTotal: 65536000 kB\nMemAvailable: 1024 kB\nSwapTotal: 0 kB\nodd\nSwapFree:",
            "proc/sys/vm/swappiness": "10\n",
            "proc/self/mounts": "none / ext4 rw 0 0\nshort\nC:\\134 / 9p rw 0 0\n",
            "sys/kernel/mm/transparent_hugepage/enabled": "always madvise [never]\n",
            "sys/fs/cgroup/memory.max": "8589934592\n",
            "etc/docker/daemon.json": '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}',
            "run/.containerenv": "",
            "dev/dxg": "",
            "usr/lib/wsl/lib/libcuda.so.1": "",
            "usr/lib/x86_64-linux-gnu/libcuda.so.1": "",
            f"{device}/vendor": "0x10de\n",
            f"{device}/class": "0x030000\n",
            f"{device}/current_link_speed": "2.5 GT/s PCIe\n",
            f"{device}/current_link_width": "8\n",
            f"{device}/max_link_speed": "16.0 GT/s PCIe\n",
            f"{device}/max_link_width": "16\n",
            "sys/bus/pci/devices/0000:02:00.0/vendor": "0x10de\n",
            "sys/bus/pci/devices/0000:02:00.0/class": "0x030200\n",
            "sys/bus/pci/devices/0000:02:00.0/max_link_width": "255\n",
            "sys/bus/pci/devices/0000:02:00.0/max_link_speed": "Unknown\n",
            "sys/bus/pci/devices/0000:01:00.1/vendor": "0x10de\n",
            "sys/bus/pci/devices/0000:01:00.1/class": "0x040300\n",
        },
    )
    (root / device / "driver").symlink_to("/sys/bus/pci/drivers/nouveau")
    found = reading.facts(root)
    assert found.wsl == 2
    assert (found.memory_mib, found.memory_free_mib, found.memory_limit_mib) == (64000, 1, 8192)
    assert (found.swap_mib, found.swap_free_mib, found.swappiness) == (0, None, 10)
    assert (found.huge_pages, found.disk_type, found.container) == ("never", "9p", "Podman")
    assert (found.docker, found.docker_nvidia, found.gpu_device, found.linux_driver) == ("", True, True, True)
    card, virtual = found.pci
    assert virtual == PciCard("0000:02:00.0")
    assert (card.driver, card.gen, card.width, card.gen_max, card.width_max) == ("nouveau", 1, 8, 4, 16)
    assert found.open_files is not None and found.disk_total


def test_an_empty_host_and_odd_files_are_unknown_and_nothing_is_raised(
    tmp_path: Path, no_programs: Path
) -> None:
    empty = reading.facts(tmp_path / "nothing")
    assert (empty.memory_mib, empty.swappiness, empty.huge_pages, empty.pci) == (None, None, "", ())
    root = tmp_path / "root"
    write(
        root,
        {
            "proc/meminfo": "\x00\xff" * 100_000,
            "proc/sys/vm/swappiness": "-1",
            "sys/fs/cgroup/memory.max": "max",
            "sys/kernel/mm/transparent_hugepage/enabled": "]always[",
            "etc/docker/daemon.json": "[" * 50_000,
        },
    )
    (root / "proc/self/mounts").mkdir(parents=True)
    found = reading.facts(root)
    assert (found.memory_mib, found.memory_limit_mib, found.swappiness) == (None, None, None)
    assert (found.huge_pages, found.disk_type, found.docker_nvidia) == ("", "", False)


def test_programs_are_asked_for_their_versions_and_a_hanging_one_does_not_hold_the_page(
    tmp_path: Path, no_programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "SECONDS", 0.5)
    script(no_programs, "docker", 'echo "Docker version 28.1.1, build 4eba377"')
    script(no_programs, "nvidia-ctk", "exec /bin/sleep 60")
    script(
        no_programs,
        "nvidia-smi",
        f'[ "$1" = "--query-gpu={reading.QUERY}" ] && echo "0, Disabled, 350.00, 2100"',
    )
    began = time.monotonic()
    found = reading.facts(tmp_path)
    assert time.monotonic() - began < 5
    assert (found.docker, found.nvidia_ctk) == ("28.1.1", "?")
    assert found.setting(0).persistence is False
    assert (found.setting(0).power_default_w, found.setting(0).clock_max_mhz) == (350.0, 2100)
