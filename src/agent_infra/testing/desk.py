"""A desk to test sources at: what they deliver is kept in lists, what they save is given back."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from agent_infra.clock import Clock, SystemClock
from agent_infra.content import JsonValue
from agent_infra.errors import SignalRefused
from agent_infra.rewards import Receipt, Signal, Sink
from agent_infra.state import Node


class Desk:
    """Takes what one source delivers.

    signals     what came in, resends too
    withdrawn   (key, why) of what was taken back
    letters     (reason, raw) of what could not become a signal
    saved       cursors, the newest last; `load` gives that
    watermark   the last moment that it was told of
    receipts, bundles   by event id: what the source is told of calls
    refuse      why signals are refused now; None: they are let in
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self.signals: list[Signal] = []
        self.withdrawn: list[tuple[str, str]] = []
        self.letters: list[tuple[str, JsonValue | bytes]] = []
        self.saved: list[JsonValue] = []
        self.watermark: int | None = None
        self.receipts: dict[str, Node] = {}
        self.bundles: dict[str, Mapping[str, Any]] = {}
        self.refuse: str | None = None
        self._clock = clock or SystemClock()
        self._seen: set[tuple[str, str]] = set()
        self._lock = threading.Lock()

    @property
    def sink(self) -> Sink:
        """What the source is started with."""
        return Sink(
            ingest=self._ingest,
            withdraw=self._withdraw,
            dead=lambda _, reason, raw: self.letters.append((reason, raw)),
            receipt=lambda event: self.receipts.get(event.id),
            evidence=lambda event: self.bundles.get(event.id),
            load=lambda _: self.saved[-1] if self.saved else None,
            save=lambda _, cursor: self.saved.append(cursor),
            advance=self._advance,
            clock=self._clock,
        )

    @property
    def values(self) -> list[float | None]:
        """The values that came in, without resends of one key."""
        with self._lock:
            named = {(signal.key or str(place)): signal.value for place, signal in enumerate(self.signals)}
        return list(named.values())

    def _ingest(self, signal: Signal) -> Receipt:
        with self._lock:
            self.signals.append(signal)
            if self.refuse:
                raise SignalRefused(self.refuse)
            if signal.key is None:
                return Receipt("accepted")
            known = (signal.source, signal.key) in self._seen
            self._seen.add((signal.source, signal.key))
            return Receipt("duplicate" if known else "accepted")

    def _withdraw(self, _: str, key: str, why: str) -> Receipt:
        with self._lock:
            self.withdrawn.append((key, why))
        return Receipt("accepted")

    def _advance(self, _: str, moment: int) -> None:
        self.watermark = moment
