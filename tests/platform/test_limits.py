"""Limits, read from made-up /proc and /sys trees of the kinds that are met in the field."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent_infra.platform import Limits, machine_limits

GIB = 1024**3
MEMINFO = "MemTotal:       16777216 kB\nMemFree:        1 kB\n"
V2 = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "34 31 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)


def tree(root: Path, files: dict[str, str]) -> Path:
    usual = {"proc/meminfo": MEMINFO, "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-3,8\n"}
    for name, text in (usual | files).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_without_cgroups_the_machine_and_the_affinity_count(tmp_path: Path) -> None:
    assert machine_limits(tree(tmp_path, {})) == Limits(5.0, 16384, "affinity", "/proc/meminfo")


def test_version_2_the_tightest_group_on_the_way_up_counts(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "proc/self/mountinfo": V2,
            "proc/self/cgroup": "0::/service/worker\n",
            "sys/fs/cgroup/service/memory.max": f"{2 * GIB}\n",
            "sys/fs/cgroup/service/worker/memory.max": f"{4 * GIB}\n",
            "sys/fs/cgroup/service/worker/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/service/cpu.max": "max 100000\n",
        },
    )
    assert machine_limits(tmp_path) == Limits(
        1.5, 2048, "/sys/fs/cgroup/service/worker/cpu.max", "/sys/fs/cgroup/service/memory.max"
    )


def test_version_1_beside_an_empty_version_2(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "proc/self/mountinfo": V1.format(root="/"),
            "proc/self/cgroup": "4:memory:/jobs/a\n2:cpu,cpuacct:/jobs\n0::/\n",
            "sys/fs/cgroup/memory/jobs/a/memory.limit_in_bytes": f"{GIB}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_quota_us": "50000\n",
            "sys/fs/cgroup/cpu,cpuacct/jobs/cpu.cfs_period_us": "100000\n",
        },
    )
    limits = machine_limits(tmp_path)
    assert (limits.cpus, limits.memory_mb) == (0.5, 1024)


def test_version_1_in_a_container_that_sees_the_hosts_path(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "proc/self/mountinfo": V1.format(root="/docker/abc"),
            "proc/self/cgroup": "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{3 * GIB}\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )
    assert machine_limits(tmp_path) == Limits(5.0, 3072, "affinity", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def test_a_limit_above_the_machine_is_none(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "proc/self/mountinfo": V2,
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": f"{64 * GIB}\n",
            "sys/fs/cgroup/cpu.max": "3200000 100000\n",
        },
    )
    assert machine_limits(tmp_path) == Limits(5.0, 16384, "affinity", "/proc/meminfo")


@pytest.mark.parametrize("inside", ["/../../other", "/elsewhere"])
def test_a_group_that_is_not_mounted_here_falls_back_to_the_mount(tmp_path: Path, inside: str) -> None:
    tree(
        tmp_path,
        {
            "proc/self/mountinfo": V2.replace(" / /sys", " /pod/x /sys"),
            "proc/self/cgroup": f"0::{inside}\n",
            "sys/fs/cgroup/memory.max": f"{GIB}\n",
        },
    )
    assert machine_limits(tmp_path).memory_mb == 1024


def test_a_machine_that_tells_nothing(tmp_path: Path) -> None:
    limits = machine_limits(tmp_path)
    assert limits.cpus >= 1
    assert (limits.memory_mb, limits.memory_source) == (None, "unknown")


def test_this_machine() -> None:
    limits = machine_limits()
    assert limits.cpus > 0
    assert limits.memory_mb is None or limits.memory_mb > 0
