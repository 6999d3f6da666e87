"""How many CPUs and how much memory this process may use: the machine's, or less under affinity and cgroup limits.

Limits of cgroups are hierarchical: the tightest one between the process's own group and the root counts. Versions 1
and 2 may be mounted side by side, so each controller is looked for in both
(https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/admin-guide/cgroup-v1/).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What a process may use, and what says so.

    cpus           CPU cores; a fraction under a cgroup quota
    memory_mb      MiB, or None where the machine doesn't tell
    cpu_source     "affinity", or the cgroup file that sets the limit
    memory_source  "/proc/meminfo", or the cgroup file that sets the limit
    """

    cpus: float
    memory_mb: int | None
    cpu_source: str
    memory_source: str


def machine_limits(root: Path = Path("/")) -> Limits:
    """The limits of this process. `root` is where `/proc` and `/sys` are looked for."""
    cpus, cpu_source = min([_affinity(root), *_cpu_quotas(root)])
    memory = [*_total_memory(root), *_memory_maxima(root)]
    memory_mb, memory_source = min(memory, default=(None, "unknown"))
    return Limits(cpus, memory_mb, cpu_source, memory_source)


def open_file_limit() -> int | None:
    """How many files this process may hold open (its soft limit); None: as many as it likes."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def _affinity(root: Path) -> tuple[float, str]:
    for line in _lines(root / "proc/self/status"):
        if line.startswith("Cpus_allowed_list:"):
            ranges = [part.split("-") for part in line.split(":")[1].strip().split(",")]
            return float(sum(int(part[-1]) - int(part[0]) + 1 for part in ranges)), "affinity"
    return float(os.cpu_count() or 1), "affinity"


def _total_memory(root: Path) -> Iterator[tuple[int, str]]:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemTotal:"):
            yield int(line.split()[1]) // 1024, "/proc/meminfo"


def _cpu_quotas(root: Path) -> Iterator[tuple[float, str]]:
    for folder in _groups(root, "cpu"):
        second = _words(folder / "cpu.max")
        first = _words(folder / "cpu.cfs_quota_us") + _words(folder / "cpu.cfs_period_us")
        for name, words in (("cpu.max", second), ("cpu.cfs_quota_us", first)):
            if len(words) == 2 and words[0].isdigit() and int(words[1]) > 0:  # no limit is `max`, or -1 in version 1
                yield int(words[0]) / int(words[1]), _told(root, folder / name)


def _memory_maxima(root: Path) -> Iterator[tuple[int, str]]:
    for folder in _groups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            words = _words(folder / name)
            if words and words[0].isdigit():
                yield int(words[0]) // MIB, _told(root, folder / name)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of the process's own group under that controller, and of all groups above it."""
    mounts = _mounts(root)
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        mount = mounts.get(controller if controller in controllers.split(",") else controllers)
        if mount is None:
            continue
        top, mounted = mount
        # A container may see a group's path as the host names it, while only that group is mounted: then it is the top.
        inside = PurePosixPath(path).relative_to(mounted) if PurePosixPath(path).is_relative_to(mounted) else ""
        folder = top / inside
        yield from (folder, *(above for above in folder.parents if above.is_relative_to(top)))


def _mounts(root: Path) -> dict[str, tuple[Path, str]]:
    """Where each controller is mounted, and which group is at the mount; version 2 stands under the empty name."""
    mounts: dict[str, tuple[Path, str]] = {}
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        place = (root / fields[4].lstrip("/"), fields[3])
        if kind[0] == "cgroup2":
            mounts[""] = place
        elif kind[0] == "cgroup":
            mounts.update(dict.fromkeys(kind[2].split(","), place))
    return mounts


def _told(root: Path, path: Path) -> str:
    return f"/{path.relative_to(root)}"


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []  # not this kind of system, or not this controller: another file answers
