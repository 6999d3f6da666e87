"""A source in this process: a function that looks at an event and gives a signal, or None for not yet."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias, cast

from agent_infra.errors import SourceFailed
from agent_infra.rewards.signals import Event, Signal
from agent_infra.rewards.sources.pursuit import AT_ONCE, FIRST_DELAY, LONGEST_DELAY, PursuingSource

Observer: TypeAlias = "Callable[[Event], Signal | None] | Callable[[Event], Awaitable[Signal | None]]"


class FunctionSource(PursuingSource):
    """Calls `function(event)` for each watched event until it gives a signal.

    The function may be async; a plain one runs in a thread. It may leave out the signal's `event_id`. What it raises is
    told in `health`, and it is called again later.
    """

    def __init__(
        self,
        name: str,
        function: Observer,
        *,
        first_delay: float = FIRST_DELAY,
        longest_delay: float = LONGEST_DELAY,
        at_once: int = AT_ONCE,
    ) -> None:
        super().__init__(name, first_delay=first_delay, longest_delay=longest_delay, at_once=at_once)
        self._function = function

    async def observe(self, event: Event) -> Signal | None:
        """Call once."""
        if inspect.iscoroutinefunction(self._function):
            found = await cast("Awaitable[object]", self._function(event))
        else:
            found = await asyncio.to_thread(cast("Callable[[Event], object]", self._function), event)
        if found is None:
            return None
        if not isinstance(found, Signal):
            raise SourceFailed(f"the function of source {self.name!r} gave {found!r}, which is no Signal")
        if found.source != self.name:
            raise SourceFailed(f"the function of source {self.name!r} gave a signal of source {found.source!r}")
        return found if found.event_id is not None else replace(found, event_id=event.id)
