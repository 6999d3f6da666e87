"""Watching a session: everything that moves its head, once each and in order, whoever moved it and however often one
reconnects. This is how several agents stay in step.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from agent_infra.state.reading.view import Place
from agent_infra.state.rows import keys, records

if TYPE_CHECKING:
    from agent_infra.state.engine import StateEngine

ChangeKind: TypeAlias = Literal["step", "rollback", "fork", "import"]


@dataclass(frozen=True, slots=True)
class Change:
    """One move of a session's head. Give `seq` back as `since=` to go on behind it."""

    seq: int
    kind: ChangeKind
    version: str


class Bell:
    """Wakes those who wait for any session to move: threads, and loops that left a function to be called."""

    def __init__(self) -> None:
        self._rung = threading.Condition()
        self._waiting = 0
        self._listeners: dict[object, Callable[[], None]] = {}

    def ring(self) -> None:
        """A head moved. Costs nothing where nobody waits."""
        if self._waiting:
            with self._rung:
                self._rung.notify_all()
        if self._listeners:
            for listener in list(self._listeners.values()):
                listener()

    @contextmanager
    def heard_by(self, listener: Callable[[], None]) -> Generator[None]:
        """Call a function at each ring, on the writer's thread: it must be quick and raise nothing."""
        key = object()
        self._listeners[key] = listener
        try:
            yield
        finally:
            del self._listeners[key]

    def wait(self, engine: StateEngine, session: str, seen: int, timeout: float | None) -> bool:
        """Whether the session's head moved behind `seen`, after at most `timeout` seconds."""
        with self._rung:
            self._waiting += 1
            try:
                return self._rung.wait_for(lambda: engine.head(session).seq > seen, timeout)
            finally:
                self._waiting -= 1


def watch(engine: StateEngine, session: str, since: int | None, timeout: float | None) -> Iterator[Change]:
    """Changes behind `since` (from now on where it is None), for ever or until none came for `timeout` seconds.

    A change is delivered once it is as durable as the setting promises.
    """
    return _changes(engine, session, engine.head(session).seq if since is None else since, timeout)


def _changes(engine: StateEngine, session: str, seen: int, timeout: float | None) -> Iterator[Change]:
    while True:
        for change in changes_behind(engine, session, seen):
            seen = change.seq
            yield change
        if not engine.bell.wait(engine, session, seen, timeout):
            return


def awatch(engine: StateEngine, session: str, since: int | None, timeout: float | None) -> AsyncIterator[Change]:
    """`watch` for running loops. No thread waits meanwhile, however many watch."""
    return _achanges(engine, session, engine.head(session).seq if since is None else since, timeout)


async def _achanges(engine: StateEngine, session: str, seen: int, timeout: float | None) -> AsyncIterator[Change]:
    moved = asyncio.Event()
    wake = partial(asyncio.get_running_loop().call_soon_threadsafe, moved.set)

    def heard() -> None:
        if engine.head(session).seq > seen:
            with suppress(RuntimeError):  # the watcher's loop was closed under it
                wake()

    with engine.bell.heard_by(heard):
        while True:
            moved.clear()
            for change in await asyncio.to_thread(changes_behind, engine, session, seen):
                seen = change.seq
                yield change
            try:
                await asyncio.wait_for(moved.wait(), timeout)
            except TimeoutError:
                return


def changes_behind(engine: StateEngine, session: str, seen: int) -> list[Change]:
    """What moved the head behind `seen`, oldest first."""
    prefix = keys.feed_prefix(session)
    found: list[Change] = []
    for key, value in engine.store.scan(keys.feed(session, seen + 1), keys.after(prefix)):
        moved = records.decode_movement(value)
        place = Place(moved.branch, moved.step, moved.hash, 0)
        seq = int.from_bytes(key[-8:], "big")
        found.append(Change(seq, cast("ChangeKind", moved.kind), engine.version_of(session, place)))
    if found:
        engine.settle()
    return found
