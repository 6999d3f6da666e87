"""Who may write when: one lock a session, and one fsync for many writers.

There is no global lock. A writer holds its session's lock while it makes and writes its batch, lets go, and only
then waits for the disk, so that the fsyncs of all sessions are shared.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from agent_infra.errors import LockTimeout


@dataclass(slots=True)
class _SessionLock:
    lock: threading.Lock = field(default_factory=threading.Lock)
    holder: str | None = None
    thread: int | None = None
    since: float = 0.0


class SessionLocks:
    """A write lock for each session, by name."""

    def __init__(self) -> None:
        self._locks: dict[str, _SessionLock] = {}

    def held(self, session: str) -> bool:
        """Whether a writer is at work in that session just now."""
        entry = self._locks.get(session)
        return entry is not None and entry.lock.locked()

    @contextmanager
    def hold(self, session: str, *, agent: str | None, timeout: float) -> Generator[None]:
        """Hold a session's write lock.

        Raises LockTimeout after `timeout` seconds, naming the holder; at once where the same thread holds it
        already, as it would wait for itself.
        """
        entry = self._locks.setdefault(session, _SessionLock())
        me = threading.get_ident()
        if entry.lock.locked() and entry.thread == me:
            raise LockTimeout(
                f"session {session!r} is already being written by this very thread",
                why="a step was opened inside another step of the same session",
                mend="Add to the open step, or leave it first.",
                facts={"session": session, "holder": entry.holder},
            )
        if not entry.lock.acquire(timeout=timeout):
            held = time.monotonic() - entry.since
            raise LockTimeout(
                f"session {session!r} stayed locked for {timeout:g} s",
                why=f"{entry.holder} has been writing for {held:.1f} s",
                mend="Keep slow work out of `with graph.step()`, or raise lock_wait_timeout.",
                facts={"session": session, "holder": entry.holder},
            )
        entry.holder = f"{agent or 'an unnamed agent'} (thread {threading.current_thread().name})"
        entry.thread = me
        entry.since = time.monotonic()
        try:
            yield
        finally:
            entry.holder = entry.thread = None
            entry.lock.release()


class GroupSync:
    """One fsync for all who wait: the first to ask becomes the leader and syncs for everyone who wrote before it
    began. Each of the others waits on a lock of its own, so that those let go together don't queue up again.
    """

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._lock = threading.Lock()
        self._written = 0
        self._synced = 0
        self._leading = False
        self._waiting: list[threading.Lock] = []

    def ticket(self) -> int:
        """A number for the write that has just returned."""
        with self._lock:
            self._written += 1
            return self._written

    def wait(self, ticket: int | None = None) -> None:
        """Return once that write (or every write so far) is on the disk. Raises what the sync raised."""
        wanted = self._written if ticket is None else ticket
        while self._synced < wanted:
            turn = self._turn()
            if turn is None:
                self._lead()
            else:
                turn.acquire()

    def _turn(self) -> threading.Lock | None:
        """A lock that the leader lets go when it is done; None makes the caller the leader."""
        with self._lock:
            if not self._leading:
                self._leading = True
                return None
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
            return turn

    def _lead(self) -> None:
        covered = self._written
        try:
            self._sync()
            self._synced = covered
        finally:
            with self._lock:
                self._leading = False
                waiting, self._waiting = self._waiting, []
            for turn in waiting:
                turn.release()
