"""Looking whether rule files have changed.

Files are looked at every so many seconds (names, sizes, times): that works on every file system, network disks and
containers' mounts too, and costs one `stat` a file. A change is told once it has been the same for two looks, so a file that is
just being written is left alone; what is loaded too early all the same doesn't compile, and leaves the old set in force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from agent_infra.background import loop
from agent_infra.observability import get_logger

Seen: TypeAlias = tuple[tuple[str, int, int, int], ...]
_log = get_logger(__name__)


class RuleWatcher:
    """Calls `changed` after the files at some paths have changed. `every` is in seconds."""

    def __init__(self, paths: Callable[[], Sequence[Path]], changed: Callable[[], object], every: float) -> None:
        self._paths = paths
        self._changed = changed
        self._every = every
        self._task: asyncio.Future[None] | None = None

    def start(self) -> None:
        """Begin to look, on the background loop."""
        seen = self._look()
        loop().call_soon_threadsafe(self._begin, seen)

    def _begin(self, seen: Seen) -> None:
        self._task = asyncio.ensure_future(self._watch(seen))

    async def stop(self) -> None:
        """End looking."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _watch(self, loaded: Seen) -> None:
        last = loaded
        while True:
            await asyncio.sleep(self._every)
            now = await asyncio.to_thread(self._look)
            if now != loaded and now == last:
                loaded = now
                try:
                    await asyncio.to_thread(self._changed)
                except Exception as error:  # noqa: BLE001  (the next change is to be seen, whatever this one did)
                    _log.error("rules_not_reloaded", error=str(error))
            last = now

    def _look(self) -> Seen:
        """What is there now; what is not, or can't be looked at, is left out."""
        found: list[tuple[str, int, int, int]] = []
        for path in self._paths():
            for file in _files(path):
                try:
                    stat = file.stat()
                except OSError:
                    continue
                found.append((str(file), stat.st_mtime_ns, stat.st_size, stat.st_ino))
        return tuple(found)


def _files(path: Path) -> list[Path]:
    try:
        return sorted(path.iterdir())
    except NotADirectoryError:
        return [path]
    except OSError:
        return []
