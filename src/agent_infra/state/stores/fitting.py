"""The embedded store's settings, fitted to what the machine lets this process have.

A buffer that doesn't fit into memory ends in a killed process, and more open files than the process may hold in errors
at some later moment: what is asked for is brought down to what can be kept, and that is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from agent_infra.config import RocksDBSettings
from agent_infra.platform import machine_limits, open_file_limit

BUFFERS: Final = 2
"""RocksDB fills one while it writes out another."""
MEMORY_SHARE: Final = 4
"""Of the memory, the write buffers together get at most one part in so many."""
FILE_SHARE: Final = 2
"""Likewise of the files: sockets, workers and blobs need theirs."""


@dataclass(frozen=True, slots=True)
class FittedStore:
    """What is in force, and why it is less than what was asked for."""

    settings: RocksDBSettings
    notes: tuple[str, ...] = ()


def fit_store(asked: RocksDBSettings) -> FittedStore:
    """The settings that this process can keep."""
    machine = machine_limits()
    return fit_to(asked, memory_mb=machine.memory_mb, open_files=open_file_limit())


def fit_to(asked: RocksDBSettings, *, memory_mb: int | None, open_files: int | None) -> FittedStore:
    """The settings that fit into so many MiB and so many open files; None: no limit is known."""
    buffer, files, notes = asked.write_buffer_size, asked.max_open_files, list[str]()
    if memory_mb is not None and buffer > (most := max(1, memory_mb // MEMORY_SHARE // BUFFERS)):
        notes.append(
            f"write_buffer_size is {most} instead of {buffer} MiB: RocksDB holds {BUFFERS} of them, which may take a "
            f"{_part(MEMORY_SHARE)} of the {memory_mb} MiB that this process may use"
        )
        buffer = most
    if open_files is not None and files > (most := max(16, open_files // FILE_SHARE)):
        notes.append(
            f"max_open_files is {most} instead of {files}: this process may hold {open_files} files open (ulimit -n), "
            f"and the store may take {_part(FILE_SHARE)} of them"
        )
        files = most
    settings = asked.model_copy(update={"write_buffer_size": buffer, "max_open_files": files})
    return FittedStore(settings, tuple(notes))


def _part(share: int) -> str:
    return {2: "half", 4: "quarter"}[share]
