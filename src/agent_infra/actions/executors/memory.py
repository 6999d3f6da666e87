"""The memory limit of worker processes: a thread that looks at the running calls' process trees every 15 ms.

A thread, not a task: a tool that blocks the event loop must not be what keeps another tool from being ended. One
look at the process table serves all calls; where the table is long, looks are rarer, so that they take at most a
sixth of one core. GPU memory is read along with it, less often, where there is a driver that tells it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import psutil

from agent_infra.actions.executors.tree import descendants, end_tree, resident_mb

_TICK = 0.015
_GPU_TICK = 0.2
_LINGER = 1.0
GpuMemory: TypeAlias = "Callable[[], Mapping[int, float] | None]"


@dataclass(slots=True, eq=False)
class Watched:
    """One running call. `peak_mb` and `peak_gpu_mb` are of what was seen, None where nothing was; `over`: the limit was
    passed, and `ended` processes with it.
    """

    root: psutil.Process
    mark: str
    peak_mb: float = 0.0
    peak_gpu_mb: float | None = None
    over: bool = False
    ended: int = 0
    since: float = field(default_factory=time.monotonic)


class MemoryWatch:
    """Ends each watched tree that holds over `limit_mb` MiB. Its thread lives while there is something to watch.

    gpu_memory   tells the MiB of GPU memory that processes hold, by their ids; None: nobody can tell
    """

    def __init__(self, limit_mb: float, gpu_memory: GpuMemory | None = None) -> None:
        self.limit_mb = limit_mb
        self._gpu_memory = gpu_memory
        self._gpu_asked = 0.0
        self._lock = threading.Lock()  # guards both fields below: calls come and go on the loop, the thread reads
        self._watched: set[Watched] = set()
        self._thread: threading.Thread | None = None

    def watch(self, root: psutil.Process, mark: str) -> Watched:
        """Begin to watch a worker's tree."""
        watched = Watched(root, mark)
        with self._lock:
            self._watched.add(watched)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="agent-infra-memory", daemon=True)
                self._thread.start()
        return watched

    def forget(self, watched: Watched) -> None:
        """Stop watching it."""
        with self._lock:
            self._watched.discard(watched)

    def _run(self) -> None:
        last_busy = time.monotonic()
        pause = _TICK
        while True:
            time.sleep(pause)
            began = time.monotonic()
            with self._lock:
                # A call younger than a tick is left alone: most end within one, and a look costs more than they do.
                ripe = [each for each in self._watched if began - each.since >= _TICK and not each.over]
                if self._watched:
                    last_busy = began
                elif began - last_busy > _LINGER:
                    self._thread = None
                    return
            if ripe:
                self._look(ripe)
            pause = max(_TICK, 5 * (time.monotonic() - began))

    def _look(self, ripe: list[Watched]) -> None:
        families = descendants({each.root.pid for each in ripe})
        on_gpus = self._on_gpus()
        for each in ripe:
            tree = (each.root.pid, *families[each.root.pid])
            held = sum(resident_mb(pid) for pid in tree)
            each.peak_mb = max(each.peak_mb, held)
            if on_gpus is not None:
                each.peak_gpu_mb = max(each.peak_gpu_mb or 0.0, sum(on_gpus.get(pid, 0.0) for pid in tree))
            if held > self.limit_mb:
                each.over = True
                each.ended = end_tree(each.root, each.mark)

    def _on_gpus(self) -> Mapping[int, float] | None:
        """What processes hold on GPUs, if it is time to ask; a driver that can't tell isn't asked again."""
        now = time.monotonic()
        if self._gpu_memory is None or now - self._gpu_asked < _GPU_TICK:
            return None
        self._gpu_asked = now
        held = self._gpu_memory()
        if held is None:
            self._gpu_memory = None
        return held
