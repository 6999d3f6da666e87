"""A home folder, and the one process that owns it.

<home>/lock     flock of the owner, with its pid
<home>/state/   the store
<home>/blobs/   large content
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from agent_infra.clock import Clock
from agent_infra.errors import FileMissing, StoreFull, StoreLocked
from agent_infra.state.blobs import BlobStore
from agent_infra.state.engine import Durability, StateEngine
from agent_infra.state.format import UPGRADES, Upgrade, check_format, upgrade_store
from agent_infra.state.rows import records
from agent_infra.state.stores import Compression, MemoryStore, RocksStore

_locks: set[int] = set()
"""The lock files that this process holds open."""


def _let_go() -> None:
    """A forked child must not keep its parent's homes locked once the parent is gone."""
    for lock in _locks:
        os.close(lock)
    _locks.clear()


os.register_at_fork(after_in_child=_let_go)


class Home:
    """An opened home: its lock, its engine, its blobs."""

    def __init__(self, path: Path | None, engine: StateEngine, blobs: BlobStore, lock: int | None) -> None:
        self.path = path
        self.engine = engine
        self.blobs = engine.blobs = blobs
        self._lock = lock
        self._pid = os.getpid()

    def close(self) -> None:
        """Bring everything onto the disk and let others in. Safe to call twice, and in a forked child."""
        if os.getpid() != self._pid or self._lock == -1:
            return
        lock, self._lock = self._lock, -1
        try:
            self.engine.store.sync()
        finally:
            try:
                self.engine.store.close()
            finally:
                if lock is not None:
                    _give_back(lock)


def open_home(
    path: Path,
    *,
    clock: Clock | None = None,
    durability: Durability = "group",
    undeclared: Literal["warn", "refuse"] = "warn",
    write_buffer_mb: int = 16,
    max_open_files: int = 256,
    compression: Compression = "lz4",
    blob_budget_mb: int = 0,
    when_owned: Callable[[], None] | None = None,
) -> Home:
    """Open a home, made if it is not there.

    Raises StoreLocked with the owner's pid, StoreFormat, StoreDamaged, and StoreFull where the disk can't be written.
    `when_owned` is called once the home is this process's own, before its store is opened.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = _take_lock(path)
    except OSError as error:
        raise StoreFull(
            "the disk refused the write",
            where=str(path),
            why=str(error),
            mend="A home is opened for writing: make its folder writable, or free some space.",
        ) from error
    try:
        if when_owned is not None:
            when_owned()
        store = RocksStore(
            path / "state", write_buffer_mb=write_buffer_mb, max_open_files=max_open_files, compression=compression
        )
        try:
            check_format(store, path)
            engine = StateEngine(store, clock=clock, durability=durability, undeclared=undeclared)
        except BaseException:
            store.close()
            raise
    except BaseException:
        _give_back(lock)
        raise
    budget = blob_budget_mb << 20 if blob_budget_mb else None
    return Home(path, engine, BlobStore(store, path / "blobs", budget=budget), lock)


def open_memory(*, clock: Clock | None = None, undeclared: Literal["warn", "refuse"] = "warn") -> Home:
    """A home in memory: nothing of it is left when the process ends."""
    store = MemoryStore()
    check_format(store, Path("memory"))
    engine = StateEngine(store, clock=clock, durability="os", undeclared=undeclared)
    return Home(None, engine, BlobStore(store), None)


def upgrade_home(path: Path) -> Upgrade:
    """Bring a home that nobody has open to the present format.

    Raises FileMissing where there is none, StoreLocked, StoreDamaged, StoreFormat for a format that this version
    doesn't know.
    """
    if not (path / "state").is_dir():
        raise FileMissing(path, what="home", mend="Name it with --home.")
    lock = _take_lock(path)
    try:
        store = RocksStore(path / "state")
        try:
            return upgrade_store(store, path, UPGRADES, records.FORMAT_NUMBER)
        finally:
            store.close()
    finally:
        _give_back(lock)


def _take_lock(path: Path) -> int:
    """flock goes with the process, however it ends; the pid inside is for whoever finds the door shut."""
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.read(lock, 32).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise StoreLocked(
            f"the home is owned by process {pid}",
            where=str(path),
            why="one process at a time owns an embedded home",
            mend="Work through that process, end it, or open another home.",
            facts={"pid": int(pid) if pid.isdigit() else None, "home": str(path)},
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, str(os.getpid()).encode(), 0)
    _locks.add(lock)
    return lock


def _give_back(lock: int) -> None:
    fcntl.flock(lock, fcntl.LOCK_UN)  # a forked child may hold the same open file
    os.close(lock)
    _locks.discard(lock)
