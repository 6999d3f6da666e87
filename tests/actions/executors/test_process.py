"""What is special to worker processes: starting, sharing, memory, deaths from outside, the parent's own death."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent_infra.actions import Tool, ToolRegistry, make_tool
from agent_infra.actions.executors import Call, Outcome, ProcessExecutor, wire
from agent_infra.errors import ToolInvalid

SRC = Path(__file__).parents[3] / "src"


def using(body: Callable[[ProcessExecutor], Awaitable[Any]], **options: Any) -> Any:
    """Run a body with a started executor, and stop that."""

    async def run() -> Any:
        executor = ProcessExecutor(**{"capacity": 2} | options)
        await executor.start()
        try:
            return await body(executor)
        finally:
            await executor.stop()

    return asyncio.run(run())


async def call(executor: ProcessExecutor, tool: Tool, **params: Any) -> Outcome:
    return await executor.execute(Call(tool, params, "call-1", "key-1"))


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came true")


def workers() -> list[psutil.Process]:
    """Living worker processes of this one."""
    found: list[psutil.Process] = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):  # zombies have no command line any more
            if "agent_infra.actions.executors.worker" in child.cmdline():
                found.append(child)
    return found


# -- starting and sharing ----------------------------------------------------------------------------------------------


def test_a_worker_serves_many_calls_and_is_not_the_users_main(samples: dict[str, Tool]) -> None:
    async def body(executor: ProcessExecutor) -> None:
        first = (await call(executor, samples["who"])).output
        again = [(await call(executor, samples["who"])).output for _ in range(5)]
        assert {each["pid"] for each in again} == {first["pid"]}
        assert first["pid"] != os.getpid()
        assert first["main"] == "worker.py"

    using(body)


def test_a_tools_children_get_the_python_path_of_the_user(samples: dict[str, Tool], monkeypatch: Any) -> None:
    async def body(executor: ProcessExecutor) -> Any:
        return (await call(executor, samples["who"])).output["python_path"]

    monkeypatch.setenv("PYTHONPATH", "/somewhere/else")
    assert using(body) == "/somewhere/else"
    monkeypatch.delenv("PYTHONPATH")
    assert using(body) is None


def test_calls_at_once_have_a_worker_each_and_no_more_than_the_capacity_stay(samples: dict[str, Tool]) -> None:
    async def body(executor: ProcessExecutor) -> None:
        outcomes = await asyncio.gather(*(call(executor, samples["nap"], seconds=0.3) for _ in range(4)))
        assert len({outcome.output for outcome in outcomes}) == 4
        await until(lambda: len(workers()) == 2)

    using(body)
    assert workers() == []


def test_an_idle_worker_is_stopped(samples: dict[str, Tool]) -> None:
    async def body(executor: ProcessExecutor) -> None:
        first = await call(executor, samples["nap"], seconds=0)
        await until(lambda: workers() == [])
        assert (await call(executor, samples["nap"], seconds=0)).output != first.output

    using(body, idle_stop=0.05)


def test_coroutines_share_one_loop_for_the_life_of_a_worker(samples: dict[str, Tool]) -> None:
    async def body(executor: ProcessExecutor) -> None:
        loops = [(await call(executor, samples["the_loop"])).output for _ in range(3)]
        assert len(set(loops)) == 1

    using(body)


def test_a_project_file_may_import_its_neighbours(tmp_path: Path) -> None:
    folder = tmp_path / "项目"
    folder.mkdir()
    (folder / "neighbour_of_tools.py").write_text("ANSWER = '答案'\n")
    (folder / "tools.py").write_text(
        "from agent_infra.actions import tool\n"
        "from neighbour_of_tools import ANSWER\n"
        "@tool(effects='none', isolation='process')\n"
        "def answer() -> str:\n"
        "    '''Answer.'''\n"
        "    return ANSWER\n"
    )
    (answer,) = ToolRegistry().load_module(folder / "tools.py")

    async def body(executor: ProcessExecutor) -> None:
        assert (await call(executor, answer)).output == "答案"

    using(body)


# -- modules that can't be loaded --------------------------------------------------------------------------------------


def write_tool(folder: Path, name: str, before: str = "") -> Tool:
    """A tool of a file of its own; `before` runs where the variable IN_WORKER is set."""
    path = folder / f"{name}.py"
    path.write_text(
        f"import os\nif os.environ.get('IN_WORKER'):\n    {before or 'pass'}\n"
        f"def {name}() -> int:\n    '''One.'''\n    return 1\n"
    )
    from agent_infra.actions.tools.places import load_file

    return make_tool(getattr(load_file(path), name), effects="none", isolation="process")


def test_a_module_that_fails_in_the_worker_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    tool = write_tool(tmp_path, "fails", "raise RuntimeError('没有配置')")
    monkeypatch.setenv("IN_WORKER", "1")

    async def body(executor: ProcessExecutor) -> None:
        outcome = await call(executor, tool)
        assert outcome.status == "failed"
        assert outcome.error is not None
        assert outcome.error["code"] == "ToolNotLoaded"
        assert "没有配置" in outcome.error["what"]
        assert "fails.py:3" in outcome.error["what"]

    using(body)


def test_a_module_that_never_finishes_loading_is_given_up(tmp_path: Path, monkeypatch: Any) -> None:
    tool = write_tool(tmp_path, "hangs", "__import__('time').sleep(60)")
    monkeypatch.setenv("IN_WORKER", "1")

    async def body(executor: ProcessExecutor) -> None:
        outcome = await call(executor, tool)
        assert outcome.error is not None
        assert outcome.error["code"] == "ToolNotLoaded"
        assert "2 s" in outcome.error["what"]

    using(body, start_limit=2.0)


def test_a_worker_that_can_not_start_fails_its_call(samples: dict[str, Tool], monkeypatch: Any, tmp_path: Path) -> None:
    async def body(executor: ProcessExecutor) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", "/bin/false")
            outcome = await call(executor, samples["who"])
            assert outcome.error is not None
            assert outcome.error["code"] == "WorkerDied"
            assert "exited" in outcome.error["what"]
            patch.setattr(sys, "executable", "/no/such/python")
            outcome = await call(executor, samples["who"])
            assert outcome.error is not None
            assert "/no/such/python" in outcome.error["what"]
            slow = tmp_path / "slow"
            slow.write_text("#!/bin/sh\nexec sleep 60\n")
            slow.chmod(0o755)
            patch.setattr(sys, "executable", str(slow))
            patch.setattr(executor, "start_limit", 0.2)
            outcome = await call(executor, samples["who"])
            assert outcome.error is not None
            assert "0.2 s" in outcome.error["what"]
        assert (await call(executor, samples["who"])).ok

    using(body)


# -- memory and size ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["grow", "child_grows"])
def test_a_tree_over_the_memory_limit_is_ended(samples: dict[str, Tool], name: str) -> None:
    async def body(executor: ProcessExecutor) -> None:
        outcome = await call(executor, samples[name], mb=2000)
        assert outcome.error is not None
        assert outcome.error["code"] == "ToolOutOfMemory", outcome
        assert outcome.error["memory_limit_mb"] == 200
        assert outcome.error["memory"] == "host"
        assert "by pages" in outcome.error["mend"]
        assert outcome.peak_memory_mb == outcome.error["peak_memory_mb"]
        assert 200 < outcome.error["peak_memory_mb"] < 1500
        assert (await call(executor, samples["grow"], mb=8)).output == 2

    using(body, memory_limit_mb=200)


def test_gpu_memory_of_the_calls_own_processes_is_measured_where_it_is_told(samples: dict[str, Tool]) -> None:
    def held() -> dict[int, float]:
        return {process.pid: 512.0 for process in workers()} | {os.getpid(): 9000.0}

    async def body(executor: ProcessExecutor) -> float | None:
        return (await call(executor, samples["nap"], seconds=1.0)).peak_gpu_memory_mb

    assert using(body, gpu_memory=held) == 512.0
    assert using(body, gpu_memory=lambda: None) is None
    assert using(body, gpu_memory=held, cpu_only=True) is None
    assert using(body) is None


def test_peak_memory_is_the_calls_own(samples: dict[str, Tool]) -> None:
    async def body(executor: ProcessExecutor) -> None:
        before = await call(executor, samples["nap"], seconds=0)
        large = await call(executor, samples["grow"], mb=200)
        after = await call(executor, samples["nap"], seconds=0)
        assert before.output == after.output, "one worker served all three"
        peaks = [each.peak_memory_mb for each in (before, large, after)]
        assert peaks[1] > 200
        assert peaks[1] - peaks[2] > 100

    using(body)


def test_what_is_too_large_to_hand_over_is_said(samples: dict[str, Tool], monkeypatch: Any) -> None:
    async def body(executor: ProcessExecutor) -> None:
        outcome = await call(executor, samples["large"], count=5000)
        assert outcome.error is not None
        assert outcome.error["code"] == "BadOutput"
        assert "MiB" in outcome.error["what"]
        monkeypatch.setattr(wire, "MAX_BYTES", 5000)
        outcome = await executor.execute(Call(samples["nap"], {"seconds": "x" * 6000}, "c", "k"))
        assert outcome.error is not None
        assert outcome.error["code"] == "BadInput"
        assert (await call(executor, samples["nap"], seconds=0)).ok

    using(body)


# -- deaths ------------------------------------------------------------------------------------------------------------


def test_a_worker_killed_from_outside_ends_its_call_only(samples: dict[str, Tool]) -> None:
    async def body(executor: ProcessExecutor) -> None:
        begun: list[str | float] = []
        long = Call(samples["nap"], {"seconds": 60.0}, "call-1", "key-1", on_progress=begun.append)
        calls = [asyncio.create_task(executor.execute(long))]
        await until(lambda: begun == ["napping"])
        (busy,) = workers()
        calls.append(asyncio.create_task(call(executor, samples["nap"], seconds=0.5)))
        busy.kill()
        outcome = await calls[0]
        assert outcome.error is not None
        assert (outcome.error["code"], outcome.error["signal"]) == ("WorkerDied", "SIGKILL")
        assert outcome.exit_code == -signal.SIGKILL
        assert (await calls[1]).ok
        assert (await call(executor, samples["nap"], seconds=0)).ok

    using(body)


def test_a_worker_that_died_while_idle_is_replaced(samples: dict[str, Tool]) -> None:
    async def body(executor: ProcessExecutor) -> None:
        outcome = await call(executor, samples["nap"], seconds=0)
        assert outcome.ok, outcome
        first = outcome.output
        os.kill(first, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # its end was noticed already
            os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
        outcome = await call(executor, samples["nap"], seconds=0)
        assert outcome.ok, outcome
        assert outcome.output != first

    using(body)


def test_nonsense_on_the_workers_socket_ends_it(samples: dict[str, Tool]) -> None:
    async def body(executor: ProcessExecutor) -> None:
        outcome = await call(executor, samples["babble"])
        assert outcome.error is not None
        assert outcome.error["code"] == "WorkerDied"
        assert "no message" in outcome.error["what"]
        assert (await call(executor, samples["nap"], seconds=0)).ok

    using(body)


def test_pythons_own_helper_process_is_spared(samples: dict[str, Tool]) -> None:
    async def body(executor: ProcessExecutor) -> None:
        for _ in range(2):
            outcome = await call(executor, samples["uses_multiprocessing"])
            assert outcome.ok
            assert outcome.leaked_processes == 0
            assert outcome.stderr == ""

    using(body)


SCRIPT = """
import asyncio, sys
open("started", "a").write("once\\n")
from pathlib import Path
from agent_infra.actions.executors import Call, ProcessExecutor
from agent_infra.actions import ToolRegistry, tool
from agent_infra.errors import ToolInvalid

@tool(effects="none", isolation="process")
def here() -> int:
    return 1

async def main():
    registry = ToolRegistry()
    try:
        from agent_infra.actions import make_tool
        registry.register(make_tool(here, effects="none", isolation="process"))
    except ToolInvalid as error:
        print(error)
    tools = {each.name: each for each in registry.load_module(sys.argv[1])}
    executor = ProcessExecutor(capacity=2)
    await executor.start()
    print((await executor.execute(Call(tools["who"], {}, "1", "1"))).output["pid"], flush=True)
    await executor.execute(Call(tools["nap"], {"seconds": float(sys.argv[2])}, "2", "2"))
    await executor.stop()

asyncio.run(main())
"""


def start_script(folder: Path, seconds: float) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py", str(Path(__file__).with_name("sample_tools.py")), str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


def test_a_script_without_a_main_guard_runs_once(tmp_path: Path) -> None:
    with start_script(tmp_path, 0.0) as script:
        output, _ = script.communicate(timeout=60)
    assert script.returncode == 0
    assert (tmp_path / "started").read_text() == "once\n"
    assert "'here' can't run in a worker process: it is defined in __main__" in output


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    with start_script(tmp_path, 600.0) as script:
        assert script.stdout is not None
        script.stdout.readline()
        worker = psutil.Process(int(script.stdout.readline()))
        time.sleep(0.3)  # it naps now
        script.kill()
        script.wait()
    worker.wait(timeout=30)
    assert not worker.is_running()


# -- tools that no worker can find -------------------------------------------------------------------------------------


class _Callable:
    def __call__(self) -> int:
        return 1

    def method(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (lambda: 1, "lambda"),
        (_Callable(), "_Callable"),
        (json.JSONDecoder().decode, "another object"),
    ],
)
def test_a_tool_that_no_other_process_can_find_is_refused_by_name(run: Callable[..., Any], why: str) -> None:
    tool = Tool("stray", {}, {}, run, effects="none") if why != "another object" else make_tool_of(run)

    async def body(executor: ProcessExecutor) -> None:
        assert why in (executor.accepts(tool) or "")
        with pytest.raises(ToolInvalid, match="'stray'"):
            await executor.execute(Call(tool, {}, "c", "k"))

    using(body)


def make_tool_of(run: Callable[..., Any]) -> Tool:
    schema = {"type": "object", "properties": {"s": {"type": "string"}}, "required": ["s"]}
    return Tool("stray", schema, {}, run, effects="none")


def test_a_function_inside_a_function_is_refused() -> None:
    def inner() -> int:
        return 1

    reason = ProcessExecutor().accepts(make_tool(inner, effects="none"))
    assert reason == "it is defined inside the function 'test_a_function_inside_a_function_is_refused'"
