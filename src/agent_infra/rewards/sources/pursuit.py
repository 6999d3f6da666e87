"""Sources that must ask: for each watched event, one task that asks until it has a signal, slower and slower."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Final, ParamSpec, TypeVar

import msgspec

from agent_infra.background import loop
from agent_infra.content import JsonValue
from agent_infra.errors import DuplicateConflict, SignalRefused, SourceInvalid
from agent_infra.rewards.signals import Event, Signal
from agent_infra.rewards.sources.base import Sink, SourceHealth

P = ParamSpec("P")
T = TypeVar("T")
FIRST_DELAY: Final = 0.2
LONGEST_DELAY: Final = 30.0
AT_ONCE: Final = 8


class PursuingSource:
    """Base of sources that ask about events. A subclass says how to ask once, in `observe`.

    name                        as the rule file declares it
    first_delay, longest_delay  seconds between two attempts: doubled from the first to the longest, each shortened by
                                a random part of up to a half, so that many events don't ask in step
    at_once                     attempts in flight at the same time
    """

    def __init__(
        self,
        name: str,
        *,
        first_delay: float = FIRST_DELAY,
        longest_delay: float = LONGEST_DELAY,
        at_once: int = AT_ONCE,
    ) -> None:
        self._name = name
        self._delays = first_delay, longest_delay
        self._gate = asyncio.Semaphore(at_once)
        self._lock = threading.Lock()
        self._sink: Sink | None = None
        self._pursued: dict[str, Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._health = SourceHealth()

    async def observe(self, event: Event) -> Signal | None:
        """Ask once: the signal, or None for not yet. What it raises is told in `health`, and it is asked again."""
        raise NotImplementedError(f"{type(self).__name__} doesn't say how to observe an event")

    @property
    def sink(self) -> Sink:
        """What it works with. Raises SourceInvalid unless it was started."""
        if self._sink is None:
            raise SourceInvalid(
                f"source {self.name!r} was not started", mend="Give it to the weaver: weaver.add_source(source)."
            )
        return self._sink

    async def close(self) -> None:
        """Give back what asking needed."""

    # -- the protocol ------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The source's name, as the rule file declares it."""
        return self._name

    def start(self, sink: Sink) -> None:
        """Begin to deliver into a sink, and go on with the events that were left at an earlier `stop`."""
        with self._lock:
            self._sink = sink
            for event in self._pursued.values():
                loop().call_soon_threadsafe(self._begin, event, sink)

    async def stop(self) -> None:
        """End all pursuits, on the background loop."""
        with self._lock:
            self._sink = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.close()

    @property
    def cursor(self) -> JsonValue:
        """The events that it is still after."""
        with self._lock:
            events = list(self._pursued.values())
        return [asdict(event) for event in events]

    def replay(self, cursor: JsonValue) -> None:
        """Go after these events again."""
        for event in msgspec.convert(cursor, list[Event]):
            self.watch(event)

    def watch(self, event: Event) -> None:
        """Go after an event's signal, unless that is under way. Raises SourceInvalid before `start`."""
        with self._lock:
            sink = self.sink
            if event.id not in self._pursued:
                self._pursued[event.id] = event
                loop().call_soon_threadsafe(self._begin, event, sink)

    @property
    def health(self) -> SourceHealth:
        """How it is doing."""
        with self._lock:
            return replace(self._health, running=self._sink is not None, pending=len(self._pursued))

    # -- one event ---------------------------------------------------------------------------------------------------

    def _begin(self, event: Event, sink: Sink) -> None:
        if self._sink is not sink:
            return
        task = asyncio.create_task(self._pursue(event, sink))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pursue(self, event: Event, sink: Sink) -> None:
        delay, longest = self._delays
        while not await self._attempt(event, sink):
            if event.until is not None and sink.clock.micros() > event.until:
                self._note(given_up=self._health.given_up + 1)
                break
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(2 * delay, longest)
        with self._lock:
            self._pursued.pop(event.id, None)

    async def _attempt(self, event: Event, sink: Sink) -> bool:
        """Ask once, and deliver; whether the event is settled."""
        try:
            async with self._gate:
                signal = await self.observe(event)
            if signal is not None:
                await in_thread(sink.ingest, signal)
        except (SignalRefused, DuplicateConflict) as error:
            self._failed(error, sink)
            self._note(refused=self._health.refused + 1)
            return True
        except Exception as error:  # noqa: BLE001  (whatever an adapter meets is its own trouble, told in its health)
            self._failed(error, sink)
            return False
        if signal is None:
            self._note(last_error=None)
            return False
        self._note(delivered=self._health.delivered + 1, last_error=None, last_delivery_at=sink.clock.micros())
        return True

    def _failed(self, error: Exception, sink: Sink) -> None:
        self._note(last_error=str(error) or type(error).__name__, last_error_at=sink.clock.micros())

    def _note(self, **changes: object) -> None:
        with self._lock:
            self._health = replace(self._health, **changes)  # pyright: ignore[reportArgumentType]


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking function in a thread. A cancelled caller waits for its end, so that no store closes under it."""
    running = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.gather(running, return_exceptions=True)
        raise
