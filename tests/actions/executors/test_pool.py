"""The pool: which executor runs a call, who waits and for what, from which loop or thread whatsoever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from agent_infra.actions import Tool, make_tool
from agent_infra.actions.executors import Call, ExecutorPool, LocalExecutor, ProcessExecutor
from agent_infra.background import wait_for
from agent_infra.clock import ManualClock
from agent_infra.errors import HomeClosed, ToolInvalid


@pytest.fixture
def pool() -> Iterator[ExecutorPool]:
    """A pool with one place in this process and two workers."""
    pool = ExecutorPool([LocalExecutor(capacity=1), ProcessExecutor(capacity=2)], clock=ManualClock())
    yield pool
    wait_for(pool.stop(), twin="stop")


def run(pool: ExecutorPool, tool: Tool, call_id: str = "call-1", **params: Any) -> Any:
    return wait_for(pool.execute(Call(tool, params, call_id, "key-1")), twin="execute")


def until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(1000):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it never came true")


def test_a_call_goes_to_the_first_executor_that_accepts_its_tool(pool: ExecutorPool, samples: dict[str, Tool]) -> None:
    here = make_tool(lambda: 1, name="here", effects="none")
    assert pool.choose(here).name == run(pool, here).executor == "local"
    assert pool.choose(samples["who"]).name == run(pool, samples["who"]).executor == "process"


def test_a_tool_that_none_accepts_is_refused_with_every_reason(pool: ExecutorPool) -> None:
    stray = make_tool(lambda: 1, name="stray", effects="none", isolation="process")
    with pytest.raises(
        ToolInvalid, match=r"'stray'.*local: the tool asks for a worker process; process: it is a lambda"
    ):
        run(pool, stray)


def test_who_waits_is_listed_with_a_reason(pool: ExecutorPool) -> None:
    gate, order = threading.Event(), list[str]()

    def pass_gate(name: str) -> None:
        gate.wait(30)
        order.append(name)

    tool = make_tool(pass_gate, effects="none")
    names = ["first", "second", "third"]
    with ThreadPoolExecutor() as threads:
        started = []
        for count, name in enumerate(names):
            started.append(threads.submit(run, pool, tool, name, name=name))
            until(lambda count=count: len(pool.waiting()) == count)
        waiting = pool.waiting()
        assert [(each.call_id, each.tool, each.executor) for each in waiting] == [
            ("second", "pass_gate", "local"),
            ("third", "pass_gate", "local"),
        ]
        assert waiting[0].reason == "1 of 1 places of the local executor are taken (pass_gate); 0 calls before it"
        assert waiting[1].reason.endswith("1 calls before it")
        assert waiting[0].since == ManualClock().micros()
        gate.set()
        assert all(each.result().ok for each in started)
    assert order == names
    assert pool.waiting() == []


def test_more_calls_than_workers_all_run(pool: ExecutorPool, samples: dict[str, Tool]) -> None:
    async def many() -> list[Any]:
        calls = [Call(samples["nap"], {"seconds": 0.02}, str(number), "k") for number in range(8)]
        return await asyncio.gather(*(pool.execute(call) for call in calls))

    outcomes = wait_for(many(), twin="many")
    assert all(outcome.ok for outcome in outcomes)
    assert len({outcome.output for outcome in outcomes}) <= 2


def test_any_loop_may_call(pool: ExecutorPool, samples: dict[str, Tool]) -> None:
    async def loop_of() -> int:
        return id(asyncio.get_running_loop())

    tool = make_tool(loop_of, effects="none")

    async def body() -> Any:
        here = await pool.execute(Call(tool, {}, "1", "1"))
        worker = await pool.execute(Call(samples["who"], {}, "2", "2"))
        return here.output, worker.output["pid"]

    first, second = asyncio.run(body()), asyncio.run(body())
    assert first == second, "one background loop and one warm worker serve both"


def test_a_cancelled_waiter_leaves_the_queue(pool: ExecutorPool) -> None:
    gate = threading.Event()
    tool = make_tool(lambda: gate.wait(30), name="gated", effects="none")

    async def body() -> None:
        first = asyncio.create_task(pool.execute(Call(tool, {}, "first", "k")))
        second = asyncio.create_task(pool.execute(Call(tool, {}, "second", "k")))
        while not pool.waiting():
            await asyncio.sleep(0.01)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        while pool.waiting():
            await asyncio.sleep(0.01)
        gate.set()
        assert (await first).ok
        assert (await pool.execute(Call(tool, {}, "third", "k"))).ok

    asyncio.run(body())


def test_a_stop_ends_what_runs_refuses_what_waits_and_leaves_no_child(
    pool: ExecutorPool, samples: dict[str, Tool]
) -> None:
    begun: list[str | float] = []
    nap = samples["nap"]
    calls = [Call(nap, {"seconds": 60.0}, str(number), "k", on_progress=begun.append) for number in range(3)]

    async def body() -> list[Any]:
        running = [asyncio.create_task(pool.execute(call)) for call in calls]
        while not (pool.waiting() and len(begun) == 2):
            await asyncio.sleep(0.01)
        await pool.stop()
        return await asyncio.gather(*running, return_exceptions=True)

    ends = wait_for(body(), twin="body")
    assert [end.error["code"] for end in ends[:2]] == ["ExecutorStopped"] * 2
    assert isinstance(ends[2], HomeClosed)
    assert psutil.Process().children() == []
    with pytest.raises(HomeClosed):
        run(pool, samples["who"])
    wait_for(pool.start(), twin="start")
    assert run(pool, samples["who"]).ok
