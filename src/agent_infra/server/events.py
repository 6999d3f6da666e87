"""Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html), written and read.

A watch is `from` (where it begins), then one `change` each, then `end` where the asked silence was reached. Each
event's id is the change's `seq`: given back as `Last-Event-ID` or `since`, the next stream goes on behind it, so that
across breaks every change comes once and in order. A stream that stops without `end` was broken.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, cast

from agent_infra.server.codec import encode
from agent_infra.state import Change

HEARTBEAT: Final = 10.0
"""Seconds of silence after which a line without meaning says that the stream still lives."""


class Ending:
    """Tells all event streams of an application to end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._ended = False

    def set(self) -> None:
        """End them. Safe from any thread."""
        with self._lock:
            self._ended = True
            for event, loop in self._streams.items():
                with suppress(RuntimeError):  # a loop that is closed has no streams
                    loop.call_soon_threadsafe(event.set)

    def join(self) -> asyncio.Event:
        """An event of the running loop that is set at the end."""
        event = asyncio.Event()
        with self._lock:
            self._streams[event] = asyncio.get_running_loop()
            if self._ended:
                event.set()
        return event

    def leave(self, event: asyncio.Event) -> None:
        """This stream is over."""
        with self._lock:
            self._streams.pop(event, None)


async def written(changes: AsyncIterator[Change], since: int, ending: Ending) -> AsyncGenerator[bytes]:
    """The lines of a watch that begins behind `since`."""
    over = ending.join()
    stop = asyncio.ensure_future(over.wait())
    upcoming: asyncio.Future[Change | None] = asyncio.ensure_future(_next(changes))
    try:
        yield _event("from", since, {"seq": since})
        while True:
            done, _ = await asyncio.wait({upcoming, stop}, timeout=HEARTBEAT, return_when=asyncio.FIRST_COMPLETED)
            if stop in done:
                return
            if not done:
                yield b":\n\n"
                continue
            change = upcoming.result()
            if change is None:
                yield _event("end", None, {})
                return
            yield _event("change", change.seq, change)
            upcoming = asyncio.ensure_future(_next(changes))
    finally:
        ending.leave(over)
        stop.cancel()
        upcoming.cancel()
        with suppress(asyncio.CancelledError):
            await upcoming
        await cast("AsyncGenerator[Change]", changes).aclose()


async def _next(changes: AsyncIterator[Change]) -> Change | None:
    return await anext(changes, None)


def _event(name: str, id: int | None, data: Any) -> bytes:
    head = f"event: {name}\n" if id is None else f"event: {name}\nid: {id}\n"
    return head.encode() + b"data: " + encode(data) + b"\n\n"


@dataclass(slots=True)
class Event:
    """One event as it was read."""

    name: str = "message"
    data: str = ""


class EventReader:
    """Puts the bytes of a stream together into events."""

    def __init__(self) -> None:
        self._event = Event()
        self._rest = b""

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Take some bytes; the events that they complete."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            event = self._line(line.decode())
            if event is not None:
                yield event

    def _line(self, line: str) -> Event | None:
        if not line:
            event, self._event = self._event, Event()
            return event if event.data else None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event.name = value
        elif name == "data":
            self._event.data += value
        return None
