"""How busy a host is: the kernel's files read, a container's limit, and files that are missing or hostile."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.adapters.hostload import HostReader
from jobs.domain.hostload import (
    CpuTimes,
    HostLoad,
    LoadSample,
    cores,
    cpu_percent,
    cpu_times,
    from_json,
    load_averages,
    to_json,
    with_memory,
)

GIB = 1 << 30
STAT = """cpu  1000 10 200 8000 500 20 30 40 600 5
cpu0 500 5 100 4000 250 10 15 20 300 2
cpu1 500 5 100 4000 250 10 15 20 300 3
intr 114930548 113199788 3 0 5
ctxt 1990473
"""
LATER = STAT.replace("cpu  1000 10 200 8000 500", "cpu  1060 10 210 8020 510")
MEMINFO = """MemTotal:       65781148 kB
MemFree:         1212340 kB
MemAvailable:   40000512 kB
SwapTotal:       8388604 kB
SwapFree:        8126460 kB
HugePages_Total:       0
"""
UNLIMITED_V1 = "9223372036854771712\n"
MOUNT_V1 = "35 31 0:32 {top} /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
MOUNT_V2 = "30 23 0:26 {top} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = "4:memory:{path}\n3:cpu,cpuacct:/\n0::/\n"
STAT_V2 = f"anon 123\nactive_file {GIB}\ninactive_file {GIB // 2}\nslab_reclaimable {GIB // 4}\n"
STAT_V1 = f"cache 1\nactive_file 0\ntotal_active_file {GIB}\ntotal_inactive_file {GIB // 2}\n"


def put(root: Path, **files: str) -> None:
    """Write files below a root; "__" in a name stands for a folder, and "_DOT_" for a dot."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with 64 GiB and two cores, without control groups."""
    put(tmp_path, proc__stat=STAT, proc__meminfo=MEMINFO, proc__loadavg="0.52 1.40 2.31 3/812 40211\n")
    return tmp_path


def read(root: Path) -> HostLoad:
    return HostReader(root, root).read()


def group(root: Path, own: str, mounts: str, folder: str, **files: str) -> None:
    """Put a process into a control group whose files are those given."""
    put(root, proc__self__cgroup=own, proc__self__mountinfo=mounts)
    put(root / folder, **files)


def memory(load: HostLoad) -> tuple[int | None, int | None]:
    return load.memory_total_mib, load.memory_used_mib


def test_a_host_is_read_with_all_it_says(root: Path) -> None:
    reader = HostReader(root, root)
    first = reader.read()
    put(root, proc__stat=LATER)
    second = reader.read()
    disk = os.statvfs(root)
    assert first.cpu is None, "nothing to compare with"
    assert second == replace(first, cpu=70.0), "70 of 100 ticks; waiting for a disk is no work"
    assert (first.cores, first.load_1m, first.load_5m, first.load_15m) == (2, 0.52, 1.4, 2.31)
    assert memory(first) == (64239, 25176)
    assert (first.swap_total_mib, first.swap_used_mib) == (8191, 256)
    assert first.disk_total_mib == disk.f_blocks * disk.f_frsize >> 20
    assert first.disk_free_mib is not None and 0 < first.disk_free_mib <= first.disk_total_mib


def test_this_host_can_be_read() -> None:
    reader = HostReader(Path("/tmp"))
    load = reader.read()
    assert load.cores == os.cpu_count()
    assert load.memory_total_mib and load.memory_used_mib and load.disk_total_mib
    assert load.memory_used_mib <= load.memory_total_mib
    assert load.load_1m is not None


def test_without_its_files_a_host_is_unknown_and_never_zero(tmp_path: Path) -> None:
    reader = HostReader(tmp_path / "gone", tmp_path)
    assert reader.read() == HostLoad()
    put(tmp_path, proc__stat__odd="", proc__meminfo__odd="")  # folders where files should be
    assert reader.read() == HostLoad()


@pytest.mark.parametrize(
    "text",
    ["", "\n", "cpu", "cpu  1 2 3", "cpu  1 2 x 4 5", "cpu  1 2 3 -4 5", "cpu0 1 2 3 4 5", "cpu  ١ 2 3 4 5"],
)
def test_times_that_are_none_are_not_guessed(text: str) -> None:
    assert cpu_times(text) is None


def test_counters_that_stand_still_or_go_back_give_no_percent() -> None:
    some = CpuTimes(busy=50, total=100)
    assert cpu_percent(None, some) is None
    assert cpu_percent(some, None) is None
    assert cpu_percent(some, some) is None
    assert cpu_percent(some, CpuTimes(10, 20)) is None
    assert cpu_percent(some, CpuTimes(50, 200)) == 0.0
    assert cpu_percent(some, CpuTimes(160, 200)) == 100.0, "the time without work went back"
    assert cpu_percent(some, CpuTimes(45, 200)) == 0.0


def test_hostile_texts_leave_what_they_spoil_unknown() -> None:
    assert cores("intr 1\ncpufreq 1\ncpu 1\n") is None
    assert load_averages("") == (None, None, None)
    assert load_averages("nan inf -1") == (None, None, None)
    assert load_averages("0.00 x") == (0.0, None, None)
    old = with_memory(HostLoad(), "MemTotal: 1048576 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\nMemAvailable:\n")
    assert memory(old) == (1024, None), "kernels before 3.14 do not tell what is available"
    assert (old.swap_total_mib, old.swap_used_mib) == (0, 0)
    assert with_memory(HostLoad(), "MemTotal: " + "9" * 5000 + " kB\nMemTotal\n\0\n:\n") == HostLoad()
    assert memory(with_memory(HostLoad(), "MemTotal: 1024 kB\nMemAvailable: 4096 kB\n")) == (1, 0)


def test_the_limit_of_a_container_is_its_memory(root: Path) -> None:
    files = {"memory_DOT_max": f"{8 * GIB}\n", "memory_DOT_current": f"{4 * GIB}\n"}
    group(root, "0::/\n", MOUNT_V2.format(top="/"), "sys/fs/cgroup", memory_DOT_stat=STAT_V2, **files)
    assert memory(read(root)) == (8192, 2304), "what the kernel keeps of files is not used up"
    put(root, sys__fs__cgroup__memory_DOT_max="max\n")
    assert memory(read(root)) == (64239, 25176)
    put(root, sys__fs__cgroup__memory_DOT_max=f"{80 * GIB}\n")
    assert memory(read(root)) == (64239, 25176)


def test_a_limit_of_version_1_counts_where_that_controls_memory(root: Path) -> None:
    # A container without a name space for groups: its group is the top of what it sees.
    own, mounts = HYBRID.format(path="/docker/a1"), MOUNT_V1.format(top="/docker/a1")
    files = {"memory_DOT_limit_in_bytes": f"{8 * GIB}\n", "memory_DOT_usage_in_bytes": f"{4 * GIB}\n"}
    group(root, own, mounts, "sys/fs/cgroup/memory", memory_DOT_stat=STAT_V1, **files)
    assert memory(read(root)) == (8192, 2560)
    put(root / "sys/fs/cgroup/memory", memory_DOT_limit_in_bytes=UNLIMITED_V1)
    assert memory(read(root)) == (64239, 25176)


def test_the_tightest_limit_of_the_groups_above_counts(root: Path) -> None:
    own, mounts = "0::/system.slice/panel.service/panel\n", MOUNT_V2.format(top="/")
    unit = "sys/fs/cgroup/system.slice/panel.service"
    group(root, own, mounts, f"{unit}/panel", memory_DOT_max="max\n")
    put(root / unit, memory_DOT_max=f"{8 * GIB}", memory_DOT_current=f"{9 * GIB}", memory_DOT_stat=STAT_V2)
    put(root / "sys/fs/cgroup/system.slice", memory_DOT_max=f"{16 * GIB}")
    assert memory(read(root)) == (8192, 7424)


def test_a_limit_without_its_use_leaves_the_use_unknown(root: Path) -> None:
    limit = {"memory_DOT_max": f"{8 * GIB}\n"}
    group(root, "0::/\n", MOUNT_V2.format(top="/"), "sys/fs/cgroup", memory_DOT_stat=STAT_V2, **limit)
    assert memory(read(root)) == (8192, None)
    put(root / "sys/fs/cgroup", memory_DOT_current="5\n", memory_DOT_stat="odd")
    assert memory(read(root)) == (8192, None), "not a number that means something else"


@pytest.mark.parametrize(
    "own, mounts",
    [
        ("", ""),
        ("0::/\n", ""),
        ("odd\n::\n", MOUNT_V2.format(top="/")),
        ("0::/\n", "1 2 3\n - \n - cgroup2 cgroup2 rw\n"),
        (HYBRID.format(path="/a"), MOUNT_V2.format(top="/")),
    ],
)
def test_groups_that_cannot_be_found_are_no_limit(root: Path, own: str, mounts: str) -> None:
    group(root, own, mounts, "sys/fs/cgroup", memory_DOT_max="1\n", memory_DOT_limit_in_bytes="1\n")
    assert memory(read(root)) == (64239, 25176)


def test_a_group_outside_of_what_is_mounted_does_not_lead_out_of_it(root: Path) -> None:
    put(root, sys__fs__memory_DOT_max="1\n", sys__fs__other__memory_DOT_max="1\n")
    put(root, sys__fs__cgroup__memory_DOT_max="max\n")
    group(root, "0::/../other\n", MOUNT_V2.format(top="/"), "sys/fs/cgroup")
    assert memory(read(root)) == (64239, 25176)


def test_small_differences_are_no_news() -> None:
    load = HostLoad(cpu=12.2, memory_used_mib=1001, disk_free_mib=0, load_1m=0.52)
    assert load.rounded() == replace(load, cpu=11.6, memory_used_mib=1009).rounded()
    assert load.rounded() != replace(load, cpu=13.0).rounded()
    assert load.rounded() != replace(load, memory_used_mib=1010).rounded()
    assert load.rounded() != replace(load, disk_free_mib=None).rounded()
    assert HostLoad().rounded() == HostLoad()


def test_a_sample_is_stored_and_read_again() -> None:
    sample = LoadSample(100.5, HostLoad(cpu=0.0, cores=8, memory_total_mib=64239, load_1m=0.5))
    assert from_json(to_json(sample)) == sample
    assert from_json('{"time": 1, "load": {"cpu": 3.5, "new": {}}}') == LoadSample(1.0, HostLoad(cpu=3.5))
    assert sample.stale_since(105.5) is None
    assert sample.stale_since(105.6) == 100.5


@pytest.mark.parametrize(
    "text",
    [
        b"\xff",
        "",
        "[]",
        "{}",
        '{"time": 1}',
        '{"time": null, "load": {}}',
        '{"time": NaN, "load": {}}',
        '{"time": 1, "load": []}',
        '{"time": 1, "load": {"cpu": "1"}}',
        '{"time": 1, "load": {"cpu": true}}',
        '{"time": 1, "load": {"cpu": NaN}}',
        '{"time": 1, "load": {"cores": 1' + "0" * 400 + "}}",
    ],
)
def test_something_else_is_no_sample(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        from_json(text)
