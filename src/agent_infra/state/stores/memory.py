"""A store in this process's memory: for tests, trials and what needs no tomorrow."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterator, Sequence
from typing import Any, cast

from agent_infra.errors import HomeClosed
from agent_infra.state.stores.base import Row, Write

_CHUNK = 256


class MemoryStore:
    """A dict and a sorted list of its keys. One lock guards both, held for a chunk of rows at most."""

    name = "memory"

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self._lock = threading.Lock()
        self._closed = False

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, or None."""
        self._check_open()
        with self._lock:
            return self._values.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of several keys, in their order."""
        self._check_open()
        with self._lock:
            return [self._values.get(key) for key in keys]

    def scan(self, lower: bytes, upper: bytes) -> Iterator[Row]:
        """Rows with lower <= key < upper, by key."""
        while True:
            self._check_open()
            with self._lock:
                start = bisect.bisect_left(self._keys, lower)
                chunk = [(key, self._values[key]) for key in self._keys[start : start + _CHUNK] if key < upper]
            yield from chunk
            if len(chunk) < _CHUNK:
                return
            lower = chunk[-1][0] + b"\0"

    def write(self, batch: Sequence[Write], *, sync: bool = False) -> None:
        """Apply a batch, all or nothing."""
        self._check_open()
        for key, value in cast("Sequence[tuple[Any, Any]]", batch):
            if not isinstance(key, bytes) or not isinstance(value, bytes | None):
                raise TypeError(f"a row is bytes and bytes or None, not {key!r} and {value!r}")
        with self._lock:
            for key, value in batch:
                if value is None:
                    if self._values.pop(key, None) is not None:
                        del self._keys[bisect.bisect_left(self._keys, key)]
                    continue
                if key not in self._values:
                    bisect.insort(self._keys, key)
                self._values[key] = value

    def sync(self) -> None:
        """Nothing to do: there is no disk."""
        self._check_open()

    def close(self) -> None:
        """Forget everything."""
        with self._lock:
            self._closed = True
            self._values.clear()
            self._keys.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise HomeClosed("the store was closed", mend="Open another one; this one kept nothing.")
