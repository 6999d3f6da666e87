"""Time and ids. Times are UTC; inside the library an instant is an int of microseconds since 1970, at the edge an
aware datetime.

ULIDs (https://github.com/ulid/spec): 48 bits of milliseconds and 80 bits of randomness as 26 characters of
Crockford's base 32. They are drawn once and recorded, never derived from a shared random stream, so that a replay
can't shift them.
"""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

MICROS = 1_000_000
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [a + b for a in _ALPHABET for b in _ALPHABET]
_DIGITS = bytes(
    b"0123456789abcdefghijklmnopqrstuv"[_ALPHABET.index(char)] if char in _ALPHABET else ord("!")
    for char in map(chr, range(256))
)
"""From this alphabet to the digits that `int` reads; anything else to one that it refuses."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Where the library reads the time, so that tests can hold it still."""

    def micros(self) -> int:
        """Microseconds since 1970-01-01T00:00Z."""
        ...


class SystemClock:
    """The machine's clock."""

    def micros(self) -> int:
        """Microseconds since 1970-01-01T00:00Z."""
        return time.time_ns() // 1000


class ManualClock:
    """A clock that stands still until it is moved. For tests of rules that are about time."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = to_micros(start or datetime(2026, 1, 1, tzinfo=UTC))

    def micros(self) -> int:
        """Microseconds since 1970-01-01T00:00Z."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move forward; a negative amount moves back, as a corrected system clock would."""
        self._now += round(seconds * MICROS)


def to_micros(moment: datetime) -> int:
    """An aware datetime as microseconds since 1970, exactly.

    Raises ValueError for a naive datetime: a time without a zone is a guess.
    """
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone")
    return (moment - _EPOCH) // timedelta(microseconds=1)


def to_datetime(micros: int) -> datetime:
    """Microseconds since 1970 as an aware UTC datetime, exactly."""
    return _EPOCH + timedelta(microseconds=micros)


class _RandomPool:
    """os.urandom in large gulps: one system call for 400 ids instead of one each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = b""
        self._at = 0
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._bytes = b""
        self._at = 0

    def take(self, count: int) -> bytes:
        with self._lock:
            if self._at + count > len(self._bytes):
                self._bytes = os.urandom(4096)
                self._at = 0
            self._at += count
            return self._bytes[self._at - count : self._at]


_pool = _RandomPool()


def random_bytes(count: int) -> bytes:
    """Unpredictable bytes, at most 4096 a call."""
    return _pool.take(count)


def new_ulid_bytes(micros: int) -> bytes:
    """A fresh ULID of that instant, as its 16 bytes."""
    return (micros // 1000).to_bytes(6, "big") + _pool.take(10)


def ulid_text(raw: bytes) -> str:
    """A ULID's 26 characters from its 16 bytes."""
    n = int.from_bytes(raw, "big")
    p = _PAIRS
    return (  # written out, as every node that is read goes through here: half the time of a loop
        f"{p[n >> 120 & 1023]}{p[n >> 110 & 1023]}{p[n >> 100 & 1023]}{p[n >> 90 & 1023]}{p[n >> 80 & 1023]}"
        f"{p[n >> 70 & 1023]}{p[n >> 60 & 1023]}{p[n >> 50 & 1023]}{p[n >> 40 & 1023]}{p[n >> 30 & 1023]}"
        f"{p[n >> 20 & 1023]}{p[n >> 10 & 1023]}{p[n & 1023]}"
    )


def ulid_bytes(text: str) -> bytes:
    """A ULID's 16 bytes from its 26 characters. Raises ValueError for anything else."""
    if len(text) != 26:
        raise ValueError(f"{text!r} is not a ULID: 26 characters are asked for")
    try:
        number = int(text.encode().translate(_DIGITS), 32)
    except ValueError:
        char = next(char for char in text if char not in _ALPHABET)
        raise ValueError(f"{text!r} is not a ULID: {char!r} is not in its alphabet") from None
    if number >> 128:
        raise ValueError(f"{text!r} is not a ULID: it is over 128 bits")
    return number.to_bytes(16, "big")


def new_ulid(micros: int) -> str:
    """A fresh ULID of that instant."""
    return ulid_text(new_ulid_bytes(micros))
