"""The background loop: waiting calls work in scripts, threads and running loops; what can't return says so."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_infra.background import loop, on_loop, wait_for
from agent_infra.errors import WouldDeadlock


async def answer(value: object, pause: float = 0.0) -> object:
    await asyncio.sleep(pause)
    return value


async def thread_name() -> str:
    return threading.current_thread().name


def test_a_waiting_call_gives_the_result() -> None:
    assert wait_for(answer("北京"), twin="aanswer") == "北京"


def test_a_waiting_call_raises_what_the_work_raises() -> None:
    async def fail() -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        wait_for(fail(), twin="afail")


def test_all_waiting_calls_run_on_one_loop_in_one_thread() -> None:
    with ThreadPoolExecutor(8) as pool:
        names = set(pool.map(lambda _: wait_for(thread_name(), twin="x"), range(50)))
    assert len(names) == 1
    assert loop() is loop()
    assert threading.current_thread().name not in names


def test_waiting_calls_run_beside_each_other() -> None:
    """Each of four waits until all have come."""
    met = asyncio.Event()
    count = 0

    async def meet() -> int:
        nonlocal count
        count += 1
        if count == 4:
            met.set()
        await asyncio.wait_for(met.wait(), 30)
        return count

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: wait_for(meet(), twin="ameet"), range(4))) == [4] * 4


def test_a_waiting_call_works_inside_a_running_loop() -> None:
    """As in a notebook."""

    async def cell() -> object:
        return wait_for(answer(5), twin="aanswer")

    assert asyncio.run(cell()) == 5


def test_a_waiting_call_on_the_loops_own_thread_names_its_twin() -> None:
    async def inside() -> object:
        return wait_for(answer(5), twin="infra.arun")

    with pytest.raises(WouldDeadlock) as caught:
        wait_for(inside(), twin="outer")
    assert caught.value.facts == {"twin": "infra.arun"}
    assert "infra.arun" in str(caught.value)
    assert wait_for(answer("goes on"), twin="x") == "goes on"


def test_work_can_be_awaited_from_any_loop() -> None:
    assert asyncio.run(on_loop(answer(1))) == 1
    assert asyncio.run(on_loop(thread_name())) == wait_for(thread_name(), twin="x")

    async def from_the_loop_itself() -> object:
        return await on_loop(answer(2))

    assert wait_for(from_the_loop_itself(), twin="x") == 2


def test_awaited_work_that_is_cancelled_is_cancelled_on_the_loop() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def long() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    async def main() -> None:
        task = asyncio.create_task(on_loop(long()))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ended.wait(30)


def test_ctrl_c_is_raised_again_once_the_work_has_ended() -> None:
    ended: list[str] = []

    async def long() -> None:
        threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.05)
            ended.append("put away")

    with pytest.raises(KeyboardInterrupt):
        wait_for(long(), twin="along")
    assert ended == ["put away"]
    assert wait_for(answer("goes on"), twin="x") == "goes on"


def test_a_forked_child_has_a_loop_of_its_own() -> None:
    script = """
import asyncio, os
from agent_infra.background import wait_for
async def answer(): return 5
assert wait_for(answer(), twin="x") == 5
child = os.fork()
if child == 0:
    os._exit(wait_for(answer(), twin="x"))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), wait_for(answer(), twin="x"))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["5", "5"]


def test_a_program_ends_although_its_loop_still_runs() -> None:
    script = "from agent_infra.background import loop; loop(); print('end')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "end"
    assert done.stderr == ""
