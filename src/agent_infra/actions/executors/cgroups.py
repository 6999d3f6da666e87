"""What a container used, read from control groups.

A container's own group is gone with it, and with it the figures. So where this process may make groups, each container
gets a group of ours around its own: the highest memory and the CPU time of all that was in it stay there to be read at
the end (the engine's monitor, some MiB, counts too). Else the container's own group is looked at while it runs.

Version 2 counts kills for want of memory upwards, version 1 only in the container's own group, which is therefore looked
at as well (https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/admin-guide/cgroup-v1/memory.html).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
_MIB = 2**20
_LINGER = 1.0


class Group:
    """The control group of one container, under every controller that tells something.

    peak_mb, cpu_seconds   as last seen; None where nothing could be read
    oom_kills              processes that the kernel ended in it for want of memory, as far as it was seen
    """

    def __init__(self, memory: Path, cpu: Path, own: str | None = None, root: Path = ROOT) -> None:
        self.peak_mb: float | None = None
        self.cpu_seconds: float | None = None
        self.oom_kills = 0
        self._memory, self._cpu, self._own, self._root = memory, cpu, own, root

    @classmethod
    def around(cls, name: str, root: Path = ROOT) -> Group | None:
        """A group of ours for a container, which the engine makes by its name; None where we may not make groups."""
        if (root / "cgroup.controllers").exists():
            return cls(root / name, root / name, name, root) if os.access(root, os.W_OK) else None
        memory = root / "memory"
        return cls(memory / name, root / "cpuacct" / name, name, root) if os.access(memory, os.W_OK) else None

    @classmethod
    def of_process(cls, pid: int, root: Path = ROOT, proc: Path = Path("/proc")) -> Group | None:
        """The group of a container's first process; None where it can't be found."""
        try:
            lines = (proc / str(pid) / "cgroup").read_text().splitlines() if pid > 0 else []
        except OSError:
            return None
        places = {controller: path for line in lines for _, names, path in (line.split(":", 2),)
                  for controller in names.split(",")}  # fmt: skip
        if "memory" in places:
            memory, cpu = (root / name / places.get(name, "/").lstrip("/") for name in ("memory", "cpuacct"))
            return cls(memory, cpu)
        unified = places.get("", "/").lstrip("/")
        return cls(root / unified, root / unified) if unified else None

    def look(self) -> None:
        """Read what can be read now; figures only grow."""
        peak = _number(self._memory / "memory.max_usage_in_bytes") or _number(self._memory / "memory.peak")
        if peak:
            self.peak_mb = max(self.peak_mb or 0.0, peak / _MIB)
        spent = _number(self._cpu / "cpuacct.usage")
        micros = _field(self._cpu / "cpu.stat", "usage_usec")
        seconds = spent / 1e9 if spent is not None else micros / 1e6 if micros is not None else None
        if seconds is not None:
            self.cpu_seconds = max(self.cpu_seconds or 0.0, seconds)
        for folder in self._with_inner():
            for file in ("memory.events", "memory.oom_control"):
                self.oom_kills = max(self.oom_kills, _field(folder / file, "oom_kill") or 0)

    def remove(self) -> None:
        """Remove a group of ours once nothing is in it; the engine's monitor takes a moment to leave."""
        if self._own is not None:
            ends = time.monotonic() + _LINGER
            while not remove_groups(self._own, self._root) and time.monotonic() < ends:
                time.sleep(0.02)

    def _with_inner(self) -> Iterator[Path]:
        yield self._memory
        with contextlib.suppress(OSError):
            yield from (folder for folder in self._memory.iterdir() if folder.is_dir())


def remove_groups(name: str, root: Path = ROOT) -> bool:
    """Remove the group of that name under every controller, with the empty ones in it. Whether nothing is left."""
    tops = [root] if (root / "cgroup.controllers").exists() else list(_folders(root))
    for top in tops:
        for folder, _, _ in os.walk(top / name, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
    return not any((top / name).exists() for top in tops)


def groups_named(prefix: str, root: Path = ROOT) -> set[str]:
    """The names of groups that begin so."""
    tops = [root] if (root / "cgroup.controllers").exists() else list(_folders(root))
    return {folder.name for top in tops for folder in _folders(top) if folder.name.startswith(prefix)}


def _folders(folder: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from (each for each in folder.iterdir() if each.is_dir() and not each.is_symlink())


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _field(path: Path, name: str) -> int | None:
    """The number after a name in a file of `name number` lines."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((int(words[1]) for line in lines if (words := line.split()) and words[0] == name), None)
