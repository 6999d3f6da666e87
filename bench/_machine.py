"""The machine that figures were taken on: without it they mean nothing."""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from _measure import MILLI, percentile, rounded

LIBRARIES = ("rocksdict", "msgspec", "jsonschema-rs")


def machine(folder: Path, fsyncs: int, seconds: float) -> dict[str, Any]:
    """Processors, memory, disk, versions; the disk's fsync measured where the homes will lie."""
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": _cpu_name(),
        "memory_mb": psutil.virtual_memory().total >> 20,
        "load_1m_before": rounded(os.getloadavg()[0]),
        "stalls_before": stalls(seconds),
        "system": platform.platform(),
        "python": platform.python_version(),
        "libraries": {name: version(name) for name in LIBRARIES} | {"sqlite": sqlite3.sqlite_version},
        "disk": _disk(folder, fsyncs),
    }


def stalls(seconds: float) -> dict[str, float]:
    """What others on this machine take from a thread that never waits: the share of its time, and the longest gap.

    Percentiles over a few milliseconds tell of the machine, not of what was measured, where the gaps are that long.
    """
    gaps: list[float] = []
    began = last = time.perf_counter()
    while last - began < seconds:
        now = time.perf_counter()
        if now - last > 0.0005:
            gaps.append(now - last)
        last = now
    return {
        "share": rounded(sum(gaps) / (last - began)),
        "longest_ms": rounded(max(gaps, default=0.0) * MILLI),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _disk(folder: Path, fsyncs: int) -> dict[str, Any]:
    """The file system, and how long an fsync of 4 KiB appended to a file takes: the floor of `step` and `group`."""
    mounts = [part for part in psutil.disk_partitions(all=True) if folder.resolve().is_relative_to(part.mountpoint)]
    mount = max(mounts, key=lambda part: len(part.mountpoint), default=None)
    taken: list[float] = []
    path = folder / "fsync"
    with path.open("wb", buffering=0) as file:
        for _ in range(fsyncs):
            file.write(bytes(4096))
            began = time.perf_counter()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    path.unlink()
    return {
        "file_system": mount.fstype if mount else "unknown",
        "fsync_p50_ms": rounded(percentile(taken, 50) * MILLI),
        "fsync_p99_ms": rounded(percentile(taken, 99) * MILLI),
    }


def bytes_below(folder: Path) -> int:
    """The size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
