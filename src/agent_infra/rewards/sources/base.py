"""What a source of signals is: the protocol that adapters fulfil, and how one tells how it is doing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from agent_infra.clock import Clock
from agent_infra.content import JsonValue
from agent_infra.rewards.signals import Event, Receipt, Signal
from agent_infra.state import Node


@dataclass(frozen=True, slots=True)
class Sink:
    """What a source works with. All but the clock block, and return once what they did is durable.

    ingest    takes a signal: returns once it is kept, raises SignalRefused and DuplicateConflict
    withdraw  (source, key, why) takes a signal of this source back, by its key
    dead      (source, reason, raw) puts what could not become a signal onto the dead-letter list, as it came
    receipt   the receipt node of the call that an event is, if it has one by now
    evidence  the evidence bundle of the call that an event is, as JSON values, if it has one by now
    load      the cursor that was saved last under a source's name; None at first
    save      (source, cursor) keeps where a source stands: after what it says was taken in, never before
    advance   (source, moment) says that all that the source has of before that moment (microseconds) has come in
    clock     the home's clock
    """

    ingest: Callable[[Signal], Receipt]
    withdraw: Callable[[str, str, str], Receipt]
    dead: Callable[[str, str, JsonValue | bytes], None]
    receipt: Callable[[Event], Node | None]
    evidence: Callable[[Event], Mapping[str, Any] | None]
    load: Callable[[str], JsonValue]
    save: Callable[[str, JsonValue], None]
    advance: Callable[[str, int], None]
    clock: Clock


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """How a source is doing. Times are in microseconds since 1970.

    running         started and not stopped
    pending         events whose signal it is after
    delivered       signals that were let in, duplicates too
    refused         signals that were not let in
    given_up        events it stopped asking about, because it had become too late
    last_error      what went wrong last; None once a later attempt went well
    """

    running: bool = False
    pending: int = 0
    delivered: int = 0
    refused: int = 0
    given_up: int = 0
    last_error: str | None = None
    last_error_at: int | None = None
    last_delivery_at: int | None = None

    @property
    def ok(self) -> bool:
        """Running, and the last attempt went well."""
        return self.running and self.last_error is None


class Source(Protocol):
    """An adapter that turns something outside into signals. It translates and cleans, and judges nothing.

    All methods but `stop` return at once; the work is done elsewhere (a task of the background loop, a thread).
    """

    @property
    def name(self) -> str:
        """The source's name, as the rule file declares it."""
        ...

    def start(self, sink: Sink) -> None:
        """Begin to deliver into a sink."""
        ...

    async def stop(self) -> None:
        """End all work and wait for its end, on the background loop. A stopped source may be started again."""
        ...

    @property
    def cursor(self) -> JsonValue:
        """Where it stands: JSON from which `replay` goes on, in this process or a later one."""
        ...

    def replay(self, cursor: JsonValue) -> None:
        """Deliver again from a cursor on. What was delivered before comes in as duplicates, which do nothing."""
        ...

    def watch(self, event: Event) -> None:
        """This event wants your signal. A source that is told of everything anyway ignores it."""
        ...

    @property
    def health(self) -> SourceHealth:
        """How it is doing."""
        ...
