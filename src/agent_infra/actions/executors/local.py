"""Tools in this process: coroutines on the running loop, ordinary functions in a thread each.

The cheapest way to run a tool, and the one with the least protection: a thread can't be ended from outside. A
function that passes its time limit is reported as timed out at once, but its thread goes on until the function
returns; `abandoned` counts such threads. A tool that must be ended for certain asks for `isolation="process"`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_infra.actions.executors.base import Call, Failure, Limits, Outcome, Timer, failure_of, stopped, until_done
from agent_infra.actions.tools import Tool
from agent_infra.actions.tools.context import CallContext
from agent_infra.clock import Clock
from agent_infra.errors import HomeClosed, ToolInvalid
from agent_infra.observability import get_logger

_GRACE = 1.0
_PLACES = {"process": "a worker process", "container": "a container", "mcp": "an MCP server"}
_log = get_logger(__name__)


class LocalExecutor:
    """Runs tools of isolation "none" in this process. Memory and printed text aren't recorded."""

    def __init__(self, *, capacity: int = 64, clock: Clock | None = None) -> None:
        self.name = "local"
        self.capacity = capacity
        self.cost = 0.0
        self.resources: Mapping[str, float] = {}
        self._clock = clock
        self._open = False
        self._tasks: set[asyncio.Task[_Ran]] = set()
        self._abandoned: list[threading.Thread] = []

    @property
    def abandoned(self) -> int:
        """Threads of timed-out or cancelled tools that still run."""
        self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]
        return len(self._abandoned)

    def accepts(self, tool: Tool) -> str | None:
        """Anything that doesn't ask for another place."""
        return None if tool.isolation == "none" else f"the tool asks for {_PLACES[tool.isolation]}"

    def is_warm(self, tool: Tool) -> bool:  # noqa: ARG002
        """It always is: the tool is in this process."""
        return True

    async def start(self) -> None:
        """Nothing has to be started."""
        self._open = True

    async def stop(self) -> None:
        """Cancel coroutines and abandon threads; their calls end as ExecutorStopped."""
        self._open = False
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=_GRACE)

    async def execute(self, call: Call) -> Outcome:
        """Run a call; see `Executor`."""
        reason = self.accepts(call.tool)
        if reason:
            raise ToolInvalid(f"{self.name} can't run {call.tool.name!r}", why=reason)
        if not self._open:
            raise HomeClosed("the local executor is stopped", mend="Start it before calls.")
        timer, limits = Timer(self._clock), Limits(call.idle, call.total)
        task = asyncio.create_task(self._work(call, _context(call, limits)))
        self._tasks.add(task)
        try:
            ran = await self._attend(call, task, limits)
        finally:
            self._tasks.discard(task)
        status = "succeeded" if ran.error is None else "timed_out" if ran.error["code"] == "TimedOut" else "failed"
        return Outcome(
            status, ran.output, ran.error, timer.started, timer.finished(), self.name, cpu_seconds=ran.cpu_seconds
        )

    async def _attend(self, call: Call, task: asyncio.Task[_Ran], limits: Limits) -> _Ran:
        """The end of a call's task, which is cancelled if a limit passes or the caller is cancelled."""
        try:
            passed = await until_done(task, limits)
        except asyncio.CancelledError:
            await _cancel(call, task)
            raise
        if passed is not None:
            await _cancel(call, task)
            if not call.tool.binding.is_async:
                passed["what"] += "; its thread can't be ended and runs on until the function returns"
            elif not task.done():
                passed["what"] += "; it ignores its cancellation and runs on"
            return _Ran(error=passed)
        if not task.cancelled():
            return task.result()
        cancelled = {"code": "ToolFailed", "what": "the tool cancelled itself", "type": "CancelledError"}
        return _Ran(error=cancelled if self._open else stopped(self.name))

    async def _work(self, call: Call, context: CallContext) -> _Ran:
        """Run the tool. Whatever it raises ends here: a SystemExit that reached the loop would end the loop."""
        binding = call.tool.binding
        cpu: float | None = None
        try:
            if binding.is_async:
                value = await binding.call(call.params, context)
            else:
                value, cpu = await self._in_thread(call, context)
                if inspect.isawaitable(value):
                    value, cpu = await value, None
            return _Ran(output=binding.plain(value), cpu_seconds=cpu)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001
            return _Ran(error=failure_of(error), cpu_seconds=cpu)

    async def _in_thread(self, call: Call, context: CallContext) -> tuple[Any, float]:
        """(result, CPU seconds) of a function run in a thread of its own; a daemon: it can't hold up an exit."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[Any, float]] = loop.create_future()
        variables = contextvars.copy_context()

        def run() -> None:
            began = time.thread_time()
            result: Any = None
            failure: BaseException | None = None
            try:
                result = variables.run(call.tool.binding.call, call.params, context)
            except BaseException as error:  # noqa: BLE001 - handed to the waiting task
                failure = error
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody waits any more
                loop.call_soon_threadsafe(_deliver, done, result, time.thread_time() - began, failure)

        thread = threading.Thread(target=run, name=f"tool {call.tool.name}", daemon=True)
        thread.start()
        try:
            return await done
        except asyncio.CancelledError:
            self._abandoned.append(thread)
            raise


@dataclass(frozen=True, slots=True)
class _Ran:
    output: Any = None
    error: Failure | None = None
    cpu_seconds: float | None = None


def _deliver(done: asyncio.Future[tuple[Any, float]], result: Any, cpu: float, failure: BaseException | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result((result, cpu))
    elif isinstance(failure, (StopIteration, asyncio.CancelledError)):  # a future can't carry these two
        done.set_exception(RuntimeError(f"the tool raised {type(failure).__name__}: {failure}"))
    else:
        done.set_exception(failure)


def _context(call: Call, limits: Limits) -> CallContext:
    loop = asyncio.get_running_loop()

    def report(update: Any) -> None:
        limits.renew()
        if call.on_progress is not None:
            loop.call_soon_threadsafe(call.report, update)

    return CallContext(call.idempotency_key, seconds=call.total, report=report, settings=call.settings.open())


async def _cancel(call: Call, task: asyncio.Task[_Ran]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=_GRACE)
    if not task.done():
        _log.warning("tool.ignores_cancellation", tool=call.tool.name, call=call.call_id)
