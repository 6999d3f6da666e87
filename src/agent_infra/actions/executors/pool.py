"""The executor pool: which executor runs a call, and the only place where calls wait.

A call goes to the first executor that accepts its tool. Each executor runs as many calls as its capacity says; the
others wait in the order they came, and `waiting()` says for what. Everything runs on the process's background loop,
whichever loop or thread a call comes from, so async tools and worker processes have one home.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from agent_infra.actions.executors.base import Call, Executor, Outcome
from agent_infra.actions.tools import Tool
from agent_infra.background import on_loop
from agent_infra.clock import Clock, SystemClock
from agent_infra.errors import HomeClosed, ToolInvalid


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call that waits for its executor: since when (microseconds since 1970), and a reason that one can read."""

    call_id: str
    tool: str
    executor: str
    since: int
    reason: str


class ExecutorPool:
    """Gives calls to executors, asked in order. They are started at their first call."""

    def __init__(self, executors: Sequence[Executor], *, clock: Clock | None = None) -> None:
        self._lanes = [_Lane(executor) for executor in executors]
        self._clock = clock or SystemClock()
        self._stopped = False

    @property
    def executors(self) -> list[Executor]:
        """In the order in which they are asked."""
        return [lane.executor for lane in self._lanes]

    def choose(self, tool: Tool) -> Executor:
        """The executor that a tool's calls go to. Raises ToolInvalid with each one's reason when none accepts it."""
        return self._lane(tool).executor

    def waiting(self) -> list[Waiting]:
        """The calls that wait now, oldest first in each executor. From any thread."""
        return [each for lane in self._lanes for each in lane.report()]

    async def start(self) -> None:
        """Let calls in, again after a stop. Executors start when they are needed."""
        self._stopped = False

    async def execute(self, call: Call) -> Outcome:
        """Run a call when its executor has room.

        Raises ToolInvalid when no executor accepts the tool, HomeClosed once the pool is stopped.
        """
        return await on_loop(self._execute(call))

    async def stop(self) -> None:
        """End running calls (ExecutorStopped), refuse waiting ones (HomeClosed), and stop every executor."""
        self._stopped = True
        await on_loop(self._stop())

    async def _execute(self, call: Call) -> Outcome:
        lane = self._lane(call.tool)
        async with lane.turn(call, self._clock.micros()):
            if self._stopped:
                raise HomeClosed(f"{call.tool.name!r} was not run", why="the executors are stopped")
            await lane.executor.start()
            return await lane.executor.execute(call)

    async def _stop(self) -> None:
        await asyncio.gather(*(lane.executor.stop() for lane in self._lanes))

    def _lane(self, tool: Tool) -> _Lane:
        refusals: list[str] = []
        for lane in self._lanes:
            reason = lane.executor.accepts(tool)
            if reason is None:
                return lane
            refusals.append(f"{lane.executor.name}: {reason}")
        raise ToolInvalid(
            f"no executor can run the tool {tool.name!r}",
            why="; ".join(refusals) or "there are no executors",
            facts={"tool": tool.name, "reasons": refusals},
        )


@dataclass(slots=True)
class _Lane:
    """One executor's calls: those it runs, and those that wait for it."""

    executor: Executor
    running: dict[str, Call] = field(default_factory=dict[str, Call])
    queue: dict[str, tuple[Call, int]] = field(default_factory=dict[str, "tuple[Call, int]"])
    room: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.room = asyncio.Semaphore(self.executor.capacity)

    @asynccontextmanager
    async def turn(self, call: Call, since: int) -> AsyncGenerator[None]:
        self.queue[call.call_id] = (call, since)
        try:
            await self.room.acquire()
        finally:
            del self.queue[call.call_id]
        self.running[call.call_id] = call
        try:
            yield
        finally:
            del self.running[call.call_id]
            self.room.release()

    def report(self) -> list[Waiting]:
        running = list(self.running.values())
        name, capacity = self.executor.name, self.executor.capacity
        busy = f"{len(running)} of {capacity} places of the {name} executor are taken"
        tools = ", ".join(sorted({call.tool.name for call in running}))
        return [
            Waiting(call.call_id, call.tool.name, name, since, f"{busy} ({tools}); {ahead} calls before it")
            for ahead, (call, since) in enumerate(list(self.queue.values()))
        ]
