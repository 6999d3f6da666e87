"""The embedded default: RocksDB through rocksdict, one process a folder."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from rocksdict import DBCompressionType, DBRecoveryMode, Options, Rdict, ReadOptions, WriteBatch, WriteOptions

from agent_infra.errors import AgentInfraError, ForkedHome, HomeClosed, StoreDamaged, StoreFull, StoreLocked
from agent_infra.state.stores.base import Row, Write

_FIRST_CHUNK, _CHUNK = 32, 512
"""Rows that a scan reads at first, and later: most stop at one row, or read a few."""
_STALL: Final = 60.0
"""Seconds for which a write waits for RocksDB to write its buffers away."""
Compression: TypeAlias = Literal["lz4", "zstd", "snappy", "none"]

_open_stores: weakref.WeakSet[RocksStore] = weakref.WeakSet()


def _never_close() -> None:
    """Closing RocksDB in a forked child would wait for threads that only its parent has: keep it for ever instead."""
    for store in list(_open_stores):
        store.leak()


os.register_at_fork(after_in_child=_never_close)


class RocksStore:
    """A RocksDB folder. `write_buffer_mb` (MiB), `max_open_files` and `compression` are RocksDB's own options.

    Scans read in chunks with a new iterator each, as a live iterator would keep the folder's lock after `close()`;
    and they go through `iter()` and its status, as rocksdict's `items()` ends silently at a damaged block.
    """

    name = "rocksdb"

    def __init__(
        self, path: Path, *, write_buffer_mb: int = 16, max_open_files: int = 256, compression: Compression = "lz4"
    ) -> None:
        self._path = path
        self._pid = os.getpid()
        self._buffer = write_buffer_mb << 20
        self._disk_refused = ""
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(write_buffer_mb << 20)
        options.set_max_open_files(max_open_files)
        options.set_compression_type(getattr(DBCompressionType, compression)())
        options.set_keep_log_file_num(2)
        options.set_max_background_jobs(2)
        # A torn record at the end is a crash; one before it is damage, and the default would end there in silence.
        options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
        try:
            self._check_list()
            self._db: Rdict | None = Rdict(str(path), options)
            self._check_changes()
        except Exception as error:
            raise self._translated(error) from error
        _open_stores.add(self)
        self._synced, self._unsynced = WriteOptions(), WriteOptions()
        self._synced.sync = True
        self._synced.no_slowdown = self._unsynced.no_slowdown = True

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        try:
            return self._open().get(key)
        except Exception as error:
            raise self._translated(error) from error

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of several keys, in their order."""
        if not keys:
            return []
        try:
            found: Any = self._open().get(list(keys))
        except Exception as error:
            raise self._translated(error) from error
        return found

    def scan(self, lower: bytes, upper: bytes) -> Iterator[Row]:
        """Rows with lower <= key < upper, by key."""
        size = _FIRST_CHUNK
        while True:
            chunk = self._chunk(lower, upper, size)
            yield from chunk
            if len(chunk) < size:
                return
            lower = chunk[-1][0] + b"\0"
            size = _CHUNK

    def _chunk(self, lower: bytes, upper: bytes, size: int) -> list[Row]:
        bounds = ReadOptions()  # held in a local: rocksdict doesn't keep a temporary alive, and the bound would dangle
        bounds.set_iterate_upper_bound(upper)
        rows: list[Any] = []
        try:
            iterator = self._open().iter(bounds)
            iterator.seek(lower)
            key, value, valid, forward = iterator.key, iterator.value, iterator.valid, iterator.next
            while valid() and len(rows) < size:
                rows.append((key(), value()))
                forward()
            iterator.status()
        except Exception as error:
            raise self._translated(error) from error
        return rows

    def write(self, batch: Sequence[Write], *, sync: bool = False) -> None:
        """Apply a batch, all or nothing."""
        began: float | None = None
        while True:
            try:
                self._open().write(_rows(batch), self._synced if sync else self._unsynced)
                return
            except Exception as error:
                if "write stall" not in str(error).lower():
                    raise self._translated(error) from error
                began = began or time.monotonic()
                self._wait_for_room(time.monotonic() - began)

    def _wait_for_room(self, waited: float) -> None:
        """Wait a little for RocksDB to write its buffers away. Raises StoreFull where it can't, or hasn't for long: left
        to itself it would wait for ever, as it tries again and again until there is room.
        """
        free = shutil.disk_usage(self._path).free
        if free < 2 * self._buffer:
            why = f"No space left: {free >> 20} MiB are free, and {self._buffer >> 20} MiB wait to be written"
        elif waited > _STALL:
            why = f"it has taken in nothing for {waited:.0f} s"
        else:
            time.sleep(min(0.05, max(0.001, waited)))
            return
        where = str(self._path)
        raise StoreFull(
            "the disk refused the write", where=where, why=why, mend="Free some space; nothing was changed."
        )

    def sync(self) -> None:
        """fsync the write-ahead log; releases the GIL meanwhile."""
        try:
            self._open().flush_wal(True)
        except Exception as error:
            raise self._translated(error) from error

    def close(self) -> None:
        """Close the folder, and note how far it had come. Raises StoreFull where the disk takes no more: what was written
        before is safe all the same.
        """
        db, self._db = self._db, None
        if db is not None and os.getpid() == self._pid:
            try:
                reached = db.latest_sequence_number()
                db.close()
                self._write_seal(self._manifest(), reached)
            except Exception as error:
                raise self._translated(error) from error

    @property
    def _seal(self) -> Path:
        """Beside the folder: the hash of its list of files as it was last closed, and how many changes it held."""
        return self._path.with_suffix(".seal")

    def _manifest(self) -> str:
        """The hash of RocksDB's list of its files."""
        name = (self._path / "CURRENT").read_text(encoding="ascii").strip()
        return hashlib.sha256((self._path / name).read_bytes()).hexdigest()

    def _check_list(self) -> None:
        """Raises StoreDamaged, before RocksDB is opened, for a list of files that is not the one it was closed with.

        RocksDB takes a damaged list for a shorter one, and would delete the files that it misses.
        """
        sealed = self._seal.read_text(encoding="ascii").split() if self._seal.exists() else []
        if len(sealed) == 2 and sealed[0] != "open" and sealed[0] != self._manifest():
            raise StoreDamaged(
                "the store's list of files was changed after it was closed",
                where=str(self._path),
                mend="Restore the home from a copy; nothing was touched.",
            )

    def _check_changes(self) -> None:
        """Raises StoreDamaged for a store that has come back with fewer changes than it was closed with."""
        sealed = self._seal.read_text(encoding="ascii").split() if self._seal.exists() else []
        db = self._open()
        reached = db.latest_sequence_number()
        if len(sealed) != 2 or (sealed[1].isdigit() and reached >= int(sealed[1])):
            self._write_seal("open", reached)
            return
        self._db = None
        db.close()
        raise StoreDamaged(
            "the store holds less than when it was closed",
            where=str(self._path),
            why=f"it had reached change {sealed[1]}, and opens at change {reached}",
            mend="A file of it is damaged or missing; restore the home from a copy.",
            facts={"sealed": sealed[1], "reached": reached},
        )

    def _write_seal(self, state: str, reached: int) -> None:
        aside = self._seal.with_suffix(".new")
        aside.write_text(f"{state} {reached}", encoding="ascii")
        os.replace(aside, self._seal)

    def leak(self) -> None:
        """Make sure that the database object is never destroyed in this process."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._db))

    def _open(self) -> Rdict:
        if self._db is None:
            raise HomeClosed("the home was closed", where=str(self._path), mend="Open it again with Infra.open().")
        if os.getpid() != self._pid:
            raise ForkedHome(
                "a forked child touched a home that its parent opened",
                where=str(self._path),
                why=f"process {self._pid} opened it, this is process {os.getpid()}",
                mend="Start the child with the spawn method, or let it open nothing.",
            )
        return self._db

    def _translated(self, error: Exception) -> AgentInfraError:
        """rocksdict raises bare Exceptions; only their text tells them apart."""
        if isinstance(error, AgentInfraError):
            return error
        text = str(error)
        low = text.lower()
        where = str(self._path)
        if "lock" in low and ("unavailable" in low or "no locks" in low):
            return StoreLocked("another process owns the store", where=where, why=text)
        if "no space" in low or "read-only" in low or "file too large" in low or "quota" in low:
            self._disk_refused = text
        elif self._disk_refused and "previous error" in low:
            text = self._disk_refused  # RocksDB tells the cause once, and later only that there was one
        else:
            return StoreDamaged(
                "the store could not be read or written",
                where=where,
                why=text,
                mend="Run `agent-infra state verify`; restore the home from a copy if it names a damaged block.",
            )
        return StoreFull(
            "the disk refused the write", where=where, why=text, mend="Free some space; nothing was changed."
        )


def _rows(batch: Sequence[Write]) -> WriteBatch:
    rows = WriteBatch(raw_mode=True)
    put, delete = rows.put, rows.delete
    for key, value in batch:
        if value is None:
            delete(key)
        else:
            put(key, value)
    return rows
