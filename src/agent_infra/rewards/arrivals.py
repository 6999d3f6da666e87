"""Waking those who wait for evidence: an ingest in any thread rings the bell of whoever waits for that event."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager


class Bell:
    """Rung when a signal about one of some events has come in. Belongs to the loop that waits."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake the waiter; callable from any thread."""
        self._loop.call_soon_threadsafe(self._rung.set)

    def still(self) -> None:
        """Forget earlier rings."""
        self._rung.clear()

    async def heard(self, seconds: float) -> bool:
        """Wait for a ring, for so long; whether it came."""
        try:
            await asyncio.wait_for(self._rung.wait(), seconds)
        except TimeoutError:
            return False
        return True


class Arrivals:
    """The bells of all who wait, by event."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bells: dict[str, set[Bell]] = {}

    @contextmanager
    def listen(self, events: Iterable[str]) -> Generator[Bell]:
        """A bell for these events, on the running loop. What comes in after this is heard."""
        bell, ids = Bell(), list(events)
        with self._lock:
            for event in ids:
                self._bells.setdefault(event, set()).add(bell)
        try:
            yield bell
        finally:
            with self._lock:
                for event in ids:
                    bells = self._bells.get(event, set())
                    bells.discard(bell)
                    if not bells:
                        self._bells.pop(event, None)

    def ring(self, event: str) -> None:
        """Wake all who wait for that event."""
        with self._lock:
            bells = list(self._bells.get(event, ()))
        for bell in bells:
            bell.ring()
