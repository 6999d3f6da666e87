"""Signals that found no place yet: those that wait for their event, and dead letters.

Both are operational records: they survive a restart, and are gone when they have found their place. What they cause (a
signal in a ledger) is a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Final, cast

from agent_infra.clock import new_ulid, to_datetime
from agent_infra.content import JsonValue, fingerprint
from agent_infra.observability import get_logger
from agent_infra.rewards.signals import CheckedSignal, Signal
from agent_infra.state import BlobStore, Records, StateEngine

MOST_LETTERS: Final = 10_000
"""The most dead letters that are kept; beyond, the oldest goes, and the log says so."""
_RAW: Final = "$raw"
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What could not come in.

    reason  a stable word: one of those that `check_signal` lists, `duplicate_conflict`, `unmatched`, or the adapter's own
    why     the same in a sentence
    raw     what came: the signal's fields, or the reference to the raw content where it could not become a signal
    signal  whether it can be tried again as it is
    """

    id: str
    source: str
    reason: str
    why: str
    at: datetime
    raw: JsonValue
    signal: bool


@dataclass(frozen=True, slots=True)
class WaitingSignal:
    """A signal that waits for its event: whose, for what, since when, and until when."""

    id: str
    source: str
    refs: Mapping[str, str]
    why: str
    since: datetime
    until: datetime
    value: float | None


class Letters:
    """The dead letters and the waiting signals of a home."""

    def __init__(self, engine: StateEngine, blobs: BlobStore) -> None:
        self._engine = engine
        self._blobs = blobs
        self._dead = Records(engine, "dead_letters")
        self._waiting = Records(engine, "waiting_signals")
        self._by_key = Records(engine, "waiting_signals_by_key")

    # -- dead letters --------------------------------------------------------------------------------------------------

    def bury(self, source: str, reason: str, raw: JsonValue | bytes | Signal, why: str = "") -> str:
        """Keep what could not come in; its id."""
        now = self._engine.clock.micros()
        id = new_ulid(now)
        is_signal = isinstance(raw, Signal)
        kept = self.packed(raw) if isinstance(raw, Signal) else self._kept(raw)
        letter: dict[str, JsonValue] = {
            "source": source,
            "reason": reason,
            "why": why,
            "at": now,
            "raw": kept,
            "signal": is_signal,
        }
        self._dead.put(id, letter)
        _log.warning("dead_letter", id=id, source=source, reason=reason, why=why)
        self._make_room()
        return id

    def _make_room(self) -> None:
        names = [name for name, _ in self._dead.items()]
        for name in names[: max(len(names) - MOST_LETTERS, 0)]:
            _log.error("dead_letter_dropped", id=name, most=MOST_LETTERS)
            self._dead.remove([name])

    def dead(self) -> list[DeadLetter]:
        """Every dead letter, the oldest first."""
        return [_letter(id, each) for id, each in self._dead.items()]

    def dead_signal(self, id: str) -> Signal | None:
        """The signal of a dead letter, to be tried again; None where there is no such letter, or it is no signal."""
        letter: Any = self._dead.get(id)
        return self.unpacked(letter["raw"]) if letter is not None and letter["signal"] else None

    def forget(self, id: str) -> None:
        """Remove a dead letter."""
        self._dead.remove([id])

    # -- waiting -------------------------------------------------------------------------------------------------------

    def hold(self, signal: Signal, checked: CheckedSignal, why: str, arrived: int, until: int) -> tuple[str, str]:
        """Keep a signal until its event turns up: its id, and the digest of the one that waits under it."""
        id = fingerprint([checked.source, checked.key])
        earlier: Any = self._waiting.get(id)
        if earlier is not None:
            return id, earlier["digest"]
        record: dict[str, JsonValue] = {
            "signal": self.packed(signal),
            "digest": checked.digest,
            "why": why,
            "arrived": arrived,
            "until": until,
        }
        self._by_key.put_all({f"{_hash(kind, value)}/{id}": id for kind, value in checked.refs.items()})
        self._waiting.put(id, record)
        return id, checked.digest

    def waiting(self) -> list[WaitingSignal]:
        """Every signal that waits."""
        return [self._shown(id, each) for id, each in self._waiting.items()]

    def waiting_for(self, kind: str, value: str) -> Iterator[str]:
        """The ids of the signals that wait for a step that refers to a business key."""
        for _, id in self._by_key.items(f"{_hash(kind, value)}/"):
            yield id

    def waiting_signal(self, id: str) -> tuple[Signal, int, int] | None:
        """A signal that waits, when it arrived, and until when it waits."""
        record: Any = self._waiting.get(id)
        return None if record is None else (self.unpacked(record["signal"]), record["arrived"], record["until"])

    def release(self, id: str) -> None:
        """It waits no longer."""
        record: Any = self._waiting.get(id)
        refs: Mapping[str, str] = record["signal"]["refs"] or {} if record is not None else {}
        self._waiting.remove([id])
        self._by_key.remove([f"{_hash(kind, value)}/{id}" for kind, value in refs.items()])

    def _shown(self, id: str, record: Any) -> WaitingSignal:
        said = record["signal"]
        since, until = to_datetime(record["arrived"]), to_datetime(record["until"])
        return WaitingSignal(id, said["source"], said["refs"] or {}, record["why"], since, until, said["value"])

    # -- signals as JSON -----------------------------------------------------------------------------------------------

    def packed(self, signal: Signal) -> dict[str, JsonValue]:
        """A signal as JSON values, its raw evidence stored."""
        found = asdict(signal) | {"at": signal.at.isoformat() if isinstance(signal.at, datetime) else None}
        found["evidence"] = self._kept(signal.evidence)
        found["value"] = signal.value if isinstance(signal.value, int | float) else None
        found["refs"] = dict(signal.refs) if isinstance(signal.refs, Mapping) else None
        return {name: value if _is_plain(value) else repr(value) for name, value in found.items()}

    def unpacked(self, found: Mapping[str, Any]) -> Signal:
        """A signal from its JSON values."""
        known: dict[str, Any] = {each.name: found.get(each.name) for each in fields(Signal)}
        if known["at"] is not None:
            known["at"] = datetime.fromisoformat(known["at"])
        raw: Any = known["evidence"]
        if isinstance(raw, dict) and _RAW in raw:
            known["evidence"] = self._blobs.get(cast("dict[str, dict[str, str]]", raw)[_RAW]["$cid"])
        return Signal(**known)

    def _kept(self, raw: JsonValue | bytes) -> JsonValue:
        """Raw content as JSON: bytes are stored, and referred to."""
        return {_RAW: self._blobs.put(raw, "application/octet-stream")} if isinstance(raw, bytes) else raw


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str | int | float | dict | list)


def _letter(id: str, record: Any) -> DeadLetter:
    at = to_datetime(record["at"])
    return DeadLetter(id, record["source"], record["reason"], record["why"], at, record["raw"], record["signal"])


def _hash(kind: str, value: str) -> str:
    return fingerprint([kind, value])
