"""The Store protocol: ordered bytes, atomic batches. Everything the state layer knows is rows in one of these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

Row: TypeAlias = tuple[bytes, bytes]
Write: TypeAlias = tuple[bytes, bytes | None]
"""A key and its new value, or None to delete it."""


class Store(Protocol):
    """An ordered map of bytes to bytes.

    Readers see every write that returned before they began. `scan` may see writes that happen while it runs; the
    state layer needs no snapshot from a store, as every row carries the step that wrote it.
    """

    name: str

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None. Raises StoreDamaged where the bytes can't be trusted."""
        ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of several keys, in their order."""
        ...

    def scan(self, lower: bytes, upper: bytes) -> Iterator[Row]:
        """Rows with lower <= key < upper, by key.

        Raises StoreDamaged at an unreadable block: the rows behind it are never passed over in silence.
        """
        ...

    def write(self, batch: Sequence[Write], *, sync: bool = False) -> None:
        """Apply a batch, all or nothing, in the order of calls; with `sync` it is on the disk when this returns.

        Raises StoreFull where the disk refuses it; nothing of the batch is then to be seen.
        """
        ...

    def sync(self) -> None:
        """Bring every write that returned so far onto the disk."""
        ...

    def close(self) -> None:
        """Give everything back. The store can't be used afterwards."""
        ...
