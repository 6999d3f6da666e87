"""The executor pool: which executor runs a call, and the only place where calls wait.

Of the executors that accept a call's tool and could ever hold what it asks for, the cheapest kind is asked; of several
of one kind, a placer chooses. Each executor runs as many calls as its capacity and its resources say; the others wait
in the order they came, and `waiting()` says for what. An executor is started at its first call, and stopped again when
it has been idle for a while. Everything runs on the process's background loop, whichever loop or thread a call comes
from, so async tools and worker processes have one home.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from agent_infra.actions.executors.base import Call, Executor, Outcome
from agent_infra.actions.tools import Tool
from agent_infra.background import on_loop
from agent_infra.clock import Clock, SystemClock
from agent_infra.errors import HomeClosed, ToolInvalid
from agent_infra.observability import get_logger

IDLE_STOP: Final = 300.0
"""Seconds without a call after which an executor is stopped."""
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call that waits: for which executors, since when (microseconds since 1970), and a reason that one can read."""

    call_id: str
    tool: str
    executor: str
    since: int
    reason: str


@dataclass(frozen=True, slots=True)
class Offer:
    """An executor that has room for a call now.

    is_warm  it can begin at once: the tool is loaded there
    load     the share of its capacity that is taken, 0 to 1
    """

    executor: Executor
    is_warm: bool
    load: float


class Placer(Protocol):
    """Chooses among executors that could all run a call now. The scheduling layer may put in one that knows devices."""

    def choose(self, call: Call, offers: Sequence[Offer]) -> Offer | None:
        """One of the offers; None: let the call wait."""
        ...


class LeastLoaded:
    """The plain placer: where the tool is loaded already, else where there is the most room, else the first."""

    def choose(self, call: Call, offers: Sequence[Offer]) -> Offer | None:  # noqa: ARG002 - one call is like another here
        """One of the offers."""
        return min(offers, key=lambda offer: (not offer.is_warm, offer.load), default=None)


class ExecutorPool:
    """Gives calls to executors.

    idle_stop  seconds without a call after which an executor is stopped
    """

    def __init__(
        self,
        executors: Sequence[Executor],
        *,
        placer: Placer | None = None,
        idle_stop: float = IDLE_STOP,
        clock: Clock | None = None,
    ) -> None:
        self.placer: Placer = placer or LeastLoaded()
        self._lanes = [_Lane(executor, idle_stop) for executor in executors]
        self._clock = clock or SystemClock()
        self._queue: dict[int, _Ticket] = {}
        self._numbers = itertools.count()
        self._stopped = False

    @property
    def executors(self) -> list[Executor]:
        """In the order in which they were given."""
        return [lane.executor for lane in self._lanes]

    def choose(self, tool: Tool) -> Executor:
        """The executor that a tool's call would go to now. Raises ToolInvalid with each one's reason when none takes it."""
        call = Call(tool, {}, "", "")
        lanes = self._fitting(call)
        chosen = self._place(call, lanes)
        return (chosen or lanes[0]).executor

    def waiting(self) -> list[Waiting]:
        """The calls that wait now, oldest first. From any thread."""
        return [self._told(ticket, ahead) for ahead, ticket in enumerate(list(self._queue.values()))]

    async def start(self) -> None:
        """Let calls in, again after a stop. Executors start when they are needed."""
        self._stopped = False

    async def execute(self, call: Call) -> Outcome:
        """Run a call when an executor has room.

        Raises ToolInvalid when no executor accepts the tool or could ever hold it, HomeClosed once the pool is stopped.
        """
        return await on_loop(self._execute(call))

    async def stop(self) -> None:
        """End running calls (ExecutorStopped), refuse waiting ones (HomeClosed), and stop every executor."""
        self._stopped = True
        await on_loop(self._stop())

    # -- one call ----------------------------------------------------------------------------------------------------

    async def _execute(self, call: Call) -> Outcome:
        async with self._turn(call) as lane:
            if self._stopped:
                raise _closed(call)
            await lane.awake()
            return await lane.executor.execute(call)

    @asynccontextmanager
    async def _turn(self, call: Call) -> AsyncGenerator[_Lane]:
        """A lane that has taken the call in."""
        number, fitting = next(self._numbers), self._fitting(call)
        lane = None if self._queue else self._place(call, fitting)
        if lane is not None:
            lane.enter(number, call)
        else:
            lane = await self._queued(call, fitting, number)
        try:
            yield lane
        finally:
            self._leave(lane, number)

    async def _queued(self, call: Call, fitting: list[_Lane], number: int) -> _Lane:
        """The lane that takes a call in when its turn has come."""
        ticket = _Ticket(call, fitting, self._clock.micros(), asyncio.get_running_loop().create_future())
        self._queue[number] = ticket
        try:
            self._dispatch()
            return await ticket.turn
        except BaseException:
            if ticket.turn.done() and not ticket.turn.cancelled() and ticket.turn.exception() is None:
                self._leave(ticket.turn.result(), number)
            raise
        finally:
            self._queue.pop(number, None)

    def _leave(self, lane: _Lane, number: int) -> None:
        lane.leave(number)
        self._dispatch()

    def _dispatch(self) -> None:
        """Let in who can be, oldest first. Nobody overtakes on an executor that an older call waits for."""
        wanted: set[int] = set()
        for number, ticket in list(self._queue.items()):
            free = [lane for lane in ticket.lanes if id(lane) not in wanted]
            lane = self._place(ticket.call, free)
            if lane is None:
                wanted |= {id(each) for each in ticket.lanes}
                continue
            lane.enter(number, ticket.call)
            del self._queue[number]
            if not ticket.turn.done():
                ticket.turn.set_result(lane)
            else:
                lane.leave(number)

    def _place(self, call: Call, lanes: Sequence[_Lane]) -> _Lane | None:
        """The lane that takes a call in now."""
        offers = {id(lane.executor): lane for lane in lanes if lane.lacks(call) is None}
        chosen = self.placer.choose(call, [lane.offer(call.tool) for lane in offers.values()]) if offers else None
        return offers[id(chosen.executor)] if chosen is not None else None

    def _fitting(self, call: Call) -> list[_Lane]:
        """The lanes of the cheapest kind that accept a call's tool, and that could hold it if they were empty."""
        refusals: list[str] = []
        fitting: list[_Lane] = []
        for lane in self._lanes:
            reason = lane.executor.accepts(call.tool) or lane.never(call)
            if reason is None:
                fitting.append(lane)
            else:
                refusals.append(f"{lane.executor.name}: {reason}")
        if not fitting:
            raise ToolInvalid(
                f"no executor can run the tool {call.tool.name!r}",
                why="; ".join(refusals) or "there are no executors",
                facts={"tool": call.tool.name, "reasons": refusals},
            )
        cheapest = min(lane.executor.cost for lane in fitting)
        return [lane for lane in fitting if lane.executor.cost == cheapest]

    def _told(self, ticket: _Ticket, ahead: int) -> Waiting:
        names = " or ".join(lane.executor.name for lane in ticket.lanes)
        reasons = [reason for lane in ticket.lanes if (reason := lane.lacks(ticket.call)) is not None]
        why = "; ".join([*reasons, f"{ahead} calls before it"])
        return Waiting(ticket.call.call_id, ticket.call.tool.name, names, ticket.since, why)

    async def _stop(self) -> None:
        for number, ticket in list(self._queue.items()):
            del self._queue[number]
            if not ticket.turn.done():
                ticket.turn.set_exception(_closed(ticket.call))
        for lane in self._lanes:
            lane.stay()
        await asyncio.gather(*(lane.executor.stop() for lane in self._lanes))


@dataclass(slots=True)
class _Ticket:
    """A call in the queue, and the lane that it gets."""

    call: Call
    lanes: list[_Lane]
    since: int
    turn: asyncio.Future[_Lane]


@dataclass(slots=True)
class _Lane:
    """One executor and the calls that it runs, by their numbers."""

    executor: Executor
    idle_stop: float
    running: dict[int, Call] = field(default_factory=dict[int, Call])
    leaving: asyncio.TimerHandle | None = None
    resting: asyncio.Future[None] | None = None

    def enter(self, number: int, call: Call) -> None:
        self.stay()
        self.running[number] = call

    def leave(self, number: int) -> None:
        self.running.pop(number, None)
        if not self.running:
            self.stay()
            self.leaving = asyncio.get_running_loop().call_later(self.idle_stop, self._rest)

    def stay(self) -> None:
        """Don't stop it for being idle."""
        if self.leaving is not None:
            self.leaving.cancel()
            self.leaving = None

    def _rest(self) -> None:
        self.leaving = None
        _log.info("executor_idle", executor=self.executor.name, seconds=self.idle_stop)
        self.resting = asyncio.ensure_future(self.executor.stop())

    async def awake(self) -> None:
        """Start the executor, once it is wholly stopped if it was just being stopped."""
        if self.resting is not None and not self.resting.done():
            await asyncio.wait({self.resting})
        await self.executor.start()

    def offer(self, tool: Tool) -> Offer:
        return Offer(self.executor, self.executor.is_warm(tool), len(self.running) / self.executor.capacity)

    def never(self, call: Call) -> str | None:
        """Why it could not hold a call even if it were empty."""
        for name, amount in _asked(call, self.executor.resources).items():
            if amount > self.executor.resources[name]:
                return f"it asks for {amount:g} {name}, and there are {self.executor.resources[name]:g}"
        return None

    def lacks(self, call: Call) -> str | None:
        """What it lacks to take a call in now."""
        name, calls = self.executor.name, list(self.running.values())
        if len(calls) >= self.executor.capacity:
            tools = ", ".join(sorted({each.tool.name for each in calls}))
            return f"{len(calls)} of {self.executor.capacity} places of the {name} executor are taken ({tools})"
        for resource, amount in _asked(call, self.executor.resources).items():
            total = self.executor.resources[resource]
            taken = sum(_asked(each, self.executor.resources).get(resource, 0) for each in calls)
            if taken + amount > total:
                return f"{taken:g} of {total:g} {resource} of the {name} executor are taken, and it asks for {amount:g}"
        return None


def _asked(call: Call, known: Mapping[str, float]) -> dict[str, float]:
    """What a call asks for of the resources that an executor counts."""
    return {name: amount for name, amount in call.resources.items() if name in known and amount > 0}


def _closed(call: Call) -> HomeClosed:
    return HomeClosed(f"{call.tool.name!r} was not run", why="the executors are stopped")
