"""Process trees: who descends from a worker, how much memory they hold, and how to end them all.

A worker leads its own session and process group and adopts the orphans of its tree (Linux: child subreaper), so as
long as it lives everything a tool started descends from it, even what called `setsid`. It is therefore stopped
first, its descendants are ended, and it goes last. What outlived a worker that died by itself is found by the mark
in its environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

import psutil

MARK = "_AGENT_INFRA_WORKER"  # not AGENT_INFRA_…: those are settings
_GONE = (psutil.NoSuchProcess, psutil.AccessDenied, ProcessLookupError, PermissionError, FileNotFoundError)


def descendants(pids: set[int]) -> dict[int, list[int]]:
    """{pid: its living descendants} for several processes, from one look at the process table. Zombies don't count."""
    children: dict[int, list[int]] = {}
    dead: set[int] = set()
    for pid, parent, is_zombie in _table():
        children.setdefault(parent, []).append(pid)
        if is_zombie:
            dead.add(pid)
    found: dict[int, list[int]] = {}
    for root in pids:
        queue = list(children.get(root, ()))
        for pid in queue:
            queue.extend(children.get(pid, ()))
        found[root] = [pid for pid in queue if pid not in dead]
    return found


def _table() -> list[tuple[int, int, bool]]:
    """(pid, parent's pid, is a zombie) of every process."""
    if not os.path.exists("/proc/self/stat"):
        listed = psutil.process_iter(["ppid", "status"])
        return [(each.pid, each.info["ppid"], each.info["status"] == psutil.STATUS_ZOMBIE) for each in listed]
    rows: list[tuple[int, int, bool]] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split(maxsplit=2)[:2]
            except _GONE:
                continue
            rows.append((int(name), int(parent), state == b"Z"))
    return rows


def resident_mb(pid: int) -> float:
    """MiB resident of one process; 0 once it is gone."""
    try:
        return psutil.Process(pid).memory_info().rss / 2**20
    except _GONE:
        return 0.0


def end_descendants(pid: int, spare: frozenset[int] = frozenset()) -> int:
    """Kill everything that descends from a process, again and again until nothing new appears. How many there were."""
    ended: set[int] = set()
    for _ in range(100):
        living = [each for each in descendants({pid})[pid] if each not in spare]
        if not living:
            break
        for each in living:
            _signal(each, signal.SIGKILL)
        ended.update(living)
        time.sleep(0.002)
    return len(ended)


def end_tree(root: psutil.Process, mark: str) -> int:
    """Kill a worker with all that its tools started. How many processes there were besides itself."""
    ended = 0
    if root.is_running():
        _signal(root.pid, signal.SIGSTOP)  # so that it starts nothing more; it still adopts
        ended = end_descendants(root.pid)
        _signal(root.pid, signal.SIGKILL)
    return ended + end_marked(root.pid, mark)


def end_marked(worker: int, mark: str) -> int:
    """Kill every process that inherited the mark of a worker which is dead or dying. How many there were."""
    wanted = f"{MARK}={mark}".encode()
    ended = 0
    for pid, _, is_zombie in _table():
        if pid != worker and not is_zombie and wanted in _environment(pid):
            _signal(pid, signal.SIGKILL)
            ended += 1
    return ended


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(*_GONE):
        os.kill(pid, number)
