"""What is special to tools in this process: threads that can't be ended, and a loop that must not be."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agent_infra.actions import make_tool
from agent_infra.actions.executors import Call, LocalExecutor, Outcome
from agent_infra.errors import ToolInvalid


def using(body: Callable[[LocalExecutor], Awaitable[Any]]) -> Any:
    """Run a body with a started executor, and stop that."""

    async def run() -> Any:
        executor = LocalExecutor()
        await executor.start()
        try:
            return await body(executor)
        finally:
            await executor.stop()

    return asyncio.run(run())


async def call(executor: LocalExecutor, function: Callable[..., Any], total: float | None = None) -> Outcome:
    return await executor.execute(
        Call(make_tool(function, name="tried", effects="none"), {}, "call-1", "key-1", total=total)
    )


def test_a_function_past_its_limit_is_reported_and_its_thread_counted() -> None:
    release = threading.Event()

    def stuck() -> None:
        release.wait(30)

    async def body(executor: LocalExecutor) -> None:
        outcome = await call(executor, stuck, total=0.05)
        assert outcome.status == "timed_out"
        assert outcome.error is not None
        assert "thread can't be ended" in outcome.error["what"]
        assert executor.abandoned == 1
        release.set()
        while executor.abandoned:
            await asyncio.sleep(0.01)

    using(body)


def test_a_blocking_function_does_not_block_the_loop() -> None:
    turns = 0

    async def body(executor: LocalExecutor) -> None:
        nonlocal turns
        running = asyncio.create_task(call(executor, lambda: time.sleep(0.3)))
        while not running.done():
            turns += 1
            await asyncio.sleep(0.01)

    using(body)
    assert turns > 1


def test_a_coroutine_that_ignores_its_cancellation_is_reported() -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    async def body(executor: LocalExecutor) -> None:
        outcome = await call(executor, stubborn, total=0.05)
        assert outcome.error is not None
        assert "ignores its cancellation" in outcome.error["what"]
        release.set()

    using(body)


async def _interrupts() -> None:
    raise KeyboardInterrupt


async def _cancels_itself() -> None:
    raise asyncio.CancelledError


def _stops_iterating() -> None:
    raise StopIteration("no more")


def _cancelled_in_a_thread() -> None:
    raise asyncio.CancelledError("odd")


def _exits() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (_interrupts, "KeyboardInterrupt"),
        (_cancels_itself, "CancelledError"),
        (_stops_iterating, "RuntimeError"),
        (_cancelled_in_a_thread, "RuntimeError"),
        (_exits, "SystemExit"),
    ],
)
def test_nothing_that_a_tool_raises_reaches_the_loop(function: Callable[..., Any], kind: str) -> None:
    async def body(executor: LocalExecutor) -> None:
        outcome = await call(executor, function)
        assert outcome.status == "failed"
        assert outcome.error is not None
        assert (outcome.error["code"], outcome.error["type"]) == ("ToolFailed", kind)

    using(body)


def test_a_function_may_give_a_coroutine() -> None:
    async def later() -> str:
        return "晚些"

    def now() -> Any:
        return later()

    async def body(executor: LocalExecutor) -> None:
        assert (await call(executor, now)).output == "晚些"

    using(body)


def test_context_variables_are_seen_in_the_thread() -> None:
    variable = contextvars.ContextVar("variable", default="unset")

    async def body(executor: LocalExecutor) -> None:
        variable.set("设")
        assert (await call(executor, variable.get)).output == "设"

    using(lambda executor: body(executor))


def test_cpu_seconds_are_those_of_the_tools_thread() -> None:
    async def body(executor: LocalExecutor) -> None:
        outcome = await call(executor, lambda: sum(range(200_000)))
        assert outcome.cpu_seconds is not None
        assert outcome.cpu_seconds > 0
        assert outcome.peak_memory_mb is None

    using(body)


def test_a_tool_that_asks_for_a_process_is_not_run_here() -> None:
    tool = make_tool(_exits, effects="none", isolation="process")

    async def body(executor: LocalExecutor) -> None:
        with pytest.raises(ToolInvalid, match="worker process"):
            await executor.execute(Call(tool, {}, "c", "k"))

    using(body)
