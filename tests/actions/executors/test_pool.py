"""The pool: which executor runs a call, who waits and for what, from which loop or thread whatsoever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from agent_infra.actions import Tool, make_tool
from agent_infra.actions.executors import Call, ExecutorPool, LocalExecutor, Offer, Outcome, ProcessExecutor
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


def test_a_call_goes_to_the_cheapest_executor_that_accepts_its_tool(
    pool: ExecutorPool, samples: dict[str, Tool]
) -> None:
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

    before = set(psutil.Process().children())

    async def body() -> list[Any]:
        running = [asyncio.create_task(pool.execute(call)) for call in calls]
        while not (pool.waiting() and len(begun) == 2):
            await asyncio.sleep(0.01)
        await pool.stop()
        return await asyncio.gather(*running, return_exceptions=True)

    ends = wait_for(body(), twin="body")
    assert [end.error["code"] for end in ends[:2]] == ["ExecutorStopped"] * 2
    assert isinstance(ends[2], HomeClosed)
    assert set(psutil.Process().children()) <= before
    with pytest.raises(HomeClosed):
        run(pool, samples["who"])
    wait_for(pool.start(), twin="start")
    assert run(pool, samples["who"]).ok


# -- several executors, and what they have ---------------------------------------------------------------------------


class Stub:
    """An executor whose calls end when they are let."""

    def __init__(self, name: str, *, cost: float = 1, capacity: int = 2, warm: str = "", **resources: float) -> None:
        self.name, self.cost, self.capacity, self.warm = name, cost, capacity, warm
        self.resources = resources
        self.gates: dict[str, asyncio.Event] = {}
        self.log: list[str] = []
        self.open = False

    def accepts(self, tool: Tool) -> str | None:
        return None

    def is_warm(self, tool: Tool) -> bool:
        return tool.name == self.warm

    async def start(self) -> None:
        if not self.open:
            self.log.append("start")
        self.open = True

    async def stop(self) -> None:
        self.open = False
        self.log.append("stop")
        await asyncio.sleep(0)
        self.log.append("stopped")

    async def execute(self, call: Call) -> Outcome:
        self.log.append(call.call_id)
        gate = self.gates[call.call_id] = asyncio.Event()
        await gate.wait()
        return Outcome("succeeded", None, None, 0, 0, self.name)


TOOL = make_tool(lambda: 1, name="job", effects="none")


def using(body: Callable[[ExecutorPool], Any], *stubs: Stub, **options: Any) -> None:
    async def run() -> None:
        pool = ExecutorPool(stubs, **options)
        try:
            await body(pool)
        finally:
            for stub in stubs:
                for gate in stub.gates.values():
                    gate.set()
            await pool.stop()
            await asyncio.gather(*tasks, return_exceptions=True)
            tasks.clear()

    wait_for(run(), twin="run")


tasks: list[asyncio.Task[Outcome]] = []


async def begun(pool: ExecutorPool, name: str, **resources: float) -> asyncio.Task[Outcome]:
    """A call under way, or in the queue."""
    task = asyncio.create_task(pool.execute(Call(TOOL, {}, name, name, resources=resources)))
    tasks.append(task)
    for _ in range(5):
        await asyncio.sleep(0)
    return task


def test_the_cheapest_kind_is_waited_for_and_dear_ones_are_not_used_instead() -> None:
    dear, cheap = Stub("dear", cost=10), Stub("cheap", capacity=1)

    async def body(pool: ExecutorPool) -> None:
        for name in "abc":
            await begun(pool, name)
        assert cheap.log == ["start", "a"]
        assert dear.log == []
        assert [each.call_id for each in pool.waiting()] == ["b", "c"]

    using(body, dear, cheap)


def test_among_equals_the_one_that_knows_the_tool_then_the_emptier_one() -> None:
    first, warm, last = Stub("first"), Stub("warm", warm="job", capacity=1), Stub("last")

    async def body(pool: ExecutorPool) -> None:
        started = [await begun(pool, name) for name in "abcde"]
        assert (warm.log[1:], first.log[1:], last.log[1:]) == (["a"], ["b", "d"], ["c", "e"])
        await begun(pool, "f")
        assert pool.waiting()[0].executor == "first or warm or last"
        last.gates["c"].set()
        assert (await started[2]).executor == "last"
        for _ in range(5):
            await asyncio.sleep(0)
        assert last.log[-1] == "f"
        assert pool.waiting() == []

    using(body, first, warm, last)


def test_what_calls_ask_for_is_counted() -> None:
    stub = Stub("box", capacity=8, memory_mb=1000)

    async def body(pool: ExecutorPool) -> None:
        await begun(pool, "a", memory_mb=600)
        await begun(pool, "b", memory_mb=600, gpu=1)
        await begun(pool, "c", memory_mb=100)
        assert [(each.call_id, each.reason) for each in pool.waiting()] == [
            ("b", "600 of 1000 memory_mb of the box executor are taken, and it asks for 600; 0 calls before it"),
            ("c", "1 calls before it"),
        ]
        assert stub.log == ["start", "a"], "nobody overtakes, so that a large call is never starved"
        stub.gates["a"].set()
        await asyncio.sleep(0.01)
        assert stub.log[-2:] == ["b", "c"]
        with pytest.raises(ToolInvalid, match="it asks for 2000 memory_mb, and there are 1000"):
            await pool.execute(Call(TOOL, {}, "d", "d", resources={"memory_mb": 2000}))

    using(body, stub)


def test_an_idle_executor_is_stopped_and_started_again() -> None:
    stub = Stub("box")

    async def body(pool: ExecutorPool) -> None:
        task = await begun(pool, "a")
        await asyncio.sleep(0.1)
        assert "stop" not in stub.log, "it is not idle"
        stub.gates["a"].set()
        await task
        while stub.log[-1] != "stop":
            await asyncio.sleep(0)
        await begun(pool, "b")
        while stub.log[-1] != "b":
            await asyncio.sleep(0)
        assert stub.log == ["start", "a", "stop", "stopped", "start", "b"]

    using(body, stub, idle_stop=0.03)


def test_a_placer_from_above_decides() -> None:
    first, second = Stub("first"), Stub("second")

    class Second:
        def choose(self, call: Call, offers: Sequence[Offer]) -> Offer | None:
            return next((each for each in offers if each.executor.name == "second"), None)

    async def body(pool: ExecutorPool) -> None:
        for name in "abc":
            await begun(pool, name)
        assert (first.log, second.log) == ([], ["start", "a", "b"])
        assert [each.call_id for each in pool.waiting()] == ["c"]

    using(body, first, second, placer=Second())
