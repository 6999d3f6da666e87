"""MCP servers that die, fall silent or print: with a stub that misbehaves on purpose."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent_infra.actions import Tool, ToolRegistry
from agent_infra.actions.executors import Call, McpExecutor, Outcome
from agent_infra.actions.tools import OnMcpServer
from agent_infra.actions.tools.mcp import Discovered, McpServer, StdioServer, enter
from agent_infra.errors import ExecutorUnavailable, HomeClosed, ToolInvalid

STUB = Path(__file__).with_name("mcp_stub.py")
PROGRESS = {"idle": 0.5, "total": 60.0}


def stub(mode: str, folder: Path, name: str = "stub") -> StdioServer:
    return StdioServer(name, (sys.executable, str(STUB), mode, str(folder / f"{name}.log")))


def using(servers: Sequence[McpServer], body: Callable[[McpExecutor], Awaitable[Any]], **options: Any) -> Any:
    """Run a body with a started executor, and stop that; no process may be left then."""

    async def run() -> Any:
        executor = McpExecutor(servers, **options)
        await executor.start()
        try:
            return await body(executor)
        finally:
            await executor.stop()

    before = children()
    try:
        return asyncio.run(run())
    finally:
        assert children() <= before


def children() -> set[int]:
    found = psutil.Process().children(recursive=True)
    return {child.pid for child in found if child.status() != psutil.STATUS_ZOMBIE}


def echo(server: str = "stub") -> Tool:
    return Tool(f"{server}_echo", {}, {}, OnMcpServer(server, "echo"), effects="none")


async def call(executor: McpExecutor, text: str = "你好", *, server: str = "stub", **limits: Any) -> Outcome:
    return await executor.execute(Call(echo(server), {"text": text}, "call-1", "key-1", **limits))


def failed(outcome: Outcome, code: str) -> dict[str, Any]:
    assert outcome.error is not None, outcome
    assert outcome.error["code"] == code, outcome
    assert outcome.output is None
    return outcome.error


def sent(folder: Path, method: str, name: str = "stub") -> list[dict[str, Any]]:
    """The messages of a method that the stub was sent."""
    lines = (folder / f"{name}.log").read_text(encoding="utf-8").splitlines()
    return [message for message in map(json.loads, lines) if message.get("method") == method]


def test_a_server_that_dies_in_a_call_ends_it_at_once_with_its_exit_code(tmp_path: Path) -> None:
    async def body(executor: McpExecutor) -> None:
        await executor.discover("stub")
        began = time.monotonic()
        outcome = await call(executor)
        assert time.monotonic() - began < 2.0, "as the requirement says"
        error = failed(outcome, "WorkerDied")
        assert error["exit_code"] == outcome.exit_code == 3
        assert outcome.stderr == "going down"

    using([stub("exit", tmp_path)], body)


@pytest.mark.parametrize("mode", ["forks", "shut"])
def test_an_end_is_noticed_also_where_its_output_says_otherwise(mode: str, tmp_path: Path) -> None:
    """A child may hold the output of a dead server open, and a living one may close its own."""

    async def body(executor: McpExecutor) -> None:
        failed(await call(executor), "WorkerDied")

    using([stub(mode, tmp_path)], body)


def test_lines_that_are_no_messages_are_recorded_and_the_call_goes_on(tmp_path: Path) -> None:
    async def body(executor: McpExecutor) -> None:
        outcome = await call(executor)
        assert outcome.output == "你好"
        assert outcome.facts["noise"] == 1
        assert outcome.stdout == "hello 你好"
        assert (await call(executor)).facts["noise"] == 0

    using([stub("noise", tmp_path)], body)


def test_too_much_noise_ends_the_server_by_name(tmp_path: Path) -> None:
    async def body(executor: McpExecutor) -> None:
        outcome = await call(executor)
        assert "200 lines" in failed(outcome, "ServerNoise")["what"]
        assert outcome.facts["noise"] > 200

    using([stub("flood", tmp_path)], body, noise_limit=200)


@pytest.mark.parametrize(("mode", "acknowledged"), [("silent", True), ("deaf", False)])
def test_a_silent_call_is_timed_out_and_the_server_is_told(mode: str, acknowledged: bool, tmp_path: Path) -> None:
    async def body(executor: McpExecutor) -> None:
        outcome = await call(executor, total=0.5)
        assert outcome.status == "timed_out"
        assert failed(outcome, "TimedOut")["limit"] == "total"
        assert outcome.facts["cancel"] == {"sent": True, "acknowledged": acknowledged}
        (asked,), (notice, *_) = sent(tmp_path, "tools/call"), sent(tmp_path, "notifications/cancelled")
        assert notice["params"]["requestId"] == asked["id"]
        await call(executor, total=0.5)
        assert len(sent(tmp_path, "initialize")) == (1 if acknowledged else 2), "a deaf server is started again"

    using([stub(mode, tmp_path)], body, acknowledge_limit=0.3)


def test_progress_renews_the_idle_limit_and_not_the_total_one(tmp_path: Path) -> None:
    async def body(executor: McpExecutor) -> None:
        heard: list[str | float] = []
        outcome = await call(executor, idle=0.5, total=60.0, on_progress=heard.append)
        assert outcome.output == "done"
        assert heard == [pytest.approx(n / 10) for n in range(1, 11)]
        assert failed(await call(executor, idle=0.5, total=0.6), "TimedOut")["limit"] == "total"

    using([stub("progress", tmp_path)], body)


def test_a_call_without_limits_has_one(tmp_path: Path) -> None:
    async def body(executor: McpExecutor) -> None:
        assert failed(await call(executor), "TimedOut")["limit"] == "idle"

    using([stub("silent", tmp_path)], body, silence_limit=0.2)


def test_a_server_that_never_answers_the_first_request_is_given_up(tmp_path: Path) -> None:
    async def body(executor: McpExecutor) -> None:
        error = failed(await call(executor), "ExecutorUnavailable")
        assert error["reason"] == "no_session"
        with pytest.raises(ExecutorUnavailable, match="'stub'"):
            await executor.discover("stub")

    using([stub("mute", tmp_path)], body, request_limit=0.3)


def test_a_program_that_is_not_there_is_an_infrastructure_problem(tmp_path: Path) -> None:
    async def body(executor: McpExecutor) -> None:
        error = failed(await call(executor), "ExecutorUnavailable")
        assert "/no/such/server" in error["what"]

    using([StdioServer("stub", ("/no/such/server",))], body)


def test_a_program_that_is_no_server_says_how_it_ended(tmp_path: Path) -> None:
    program = "import sys; print('缺少配置', file=sys.stderr); sys.exit(7)"

    async def body(executor: McpExecutor) -> None:
        error = failed(await call(executor), "ExecutorUnavailable")
        assert "code 7" in error["what"]
        assert "缺少配置" in error["what"]

    using([StdioServer("stub", (sys.executable, "-c", program), {"PYTHONIOENCODING": "utf-8"})], body)


def test_a_dead_server_is_started_again_until_it_died_too_often(tmp_path: Path) -> None:
    async def body(executor: McpExecutor) -> None:
        for _ in range(3):
            failed(await call(executor), "WorkerDied")
        error = failed(await call(executor), "ExecutorUnavailable")
        assert error["reason"] == "died_too_often"
        assert "code 3" in error["what"]
        assert len(sent(tmp_path, "initialize")) == 3

    using([stub("exit", tmp_path)], body, deaths=2)


def test_a_server_killed_from_outside_is_back_at_the_next_call(tmp_path: Path) -> None:
    async def body(executor: McpExecutor) -> None:
        assert (await call(executor)).output == "你好"
        (pid,) = children()
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # its end was noticed already
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert (await call(executor, "再")).output == "再"
        assert children() != {pid}

    using([stub("echo", tmp_path)], body)


def test_sessions_are_closed_in_any_order_from_another_task(tmp_path: Path) -> None:
    """Opened A, B; closed A, B; by other tasks than those that opened them: nothing is raised, nothing is left."""
    from agent_infra.actions.executors.mcp_session import McpSession, SessionOptions

    options = SessionOptions(10.0, 100, str, None)

    async def opened(name: str) -> McpSession:
        session = McpSession(stub("echo", tmp_path, name), options)
        await session.open()
        return session

    async def body() -> None:
        first = await asyncio.create_task(opened("a"))
        second = await asyncio.create_task(opened("b"))
        assert len(children()) == 2
        await asyncio.create_task(first.close())
        result = await second.call("echo", {"text": "还在"}, {}, lambda _: None)
        assert result.content[0].text == "还在"
        await asyncio.create_task(second.close())
        await second.close()
        assert children() == set()

    asyncio.run(body())


def test_a_cancelled_neighbour_does_no_harm(tmp_path: Path) -> None:
    async def body(executor: McpExecutor) -> None:
        long = asyncio.create_task(call(executor, idle=5.0))
        other = asyncio.create_task(call(executor))
        await asyncio.sleep(0.3)
        other.cancel()
        assert (await long).output == "done"
        assert other.cancelled()
        assert len(sent(tmp_path, "notifications/cancelled")) == 1

    using([stub("progress", tmp_path)], body)


def test_a_stop_in_the_middle_of_calls_leaves_nothing(tmp_path: Path) -> None:
    async def body(executor: McpExecutor) -> None:
        calls = [asyncio.create_task(call(executor, server=name)) for name in ("a", "b")]
        while len(sent_or_none(tmp_path, "a")) + len(sent_or_none(tmp_path, "b")) < 2:
            await asyncio.sleep(0.01)
        await executor.stop()
        for each in calls:
            failed(await each, "ExecutorStopped")
        with pytest.raises(HomeClosed):
            await call(executor, server="a")

    using([stub("silent", tmp_path, "a"), stub("deaf", tmp_path, "b")], body)


def sent_or_none(folder: Path, name: str) -> list[dict[str, Any]]:
    with contextlib.suppress(FileNotFoundError, ValueError):
        return sent(folder, "tools/call", name)
    return []


def test_a_changed_list_comes_into_the_registry(tmp_path: Path) -> None:
    registry = ToolRegistry()

    def told(found: Discovered) -> None:
        enter(registry, found)

    async def body(executor: McpExecutor) -> None:
        await executor.discover("stub")
        assert registry.names() == ["stub_echo"]
        for names in (["stub_echo", "stub_echo1"], ["stub_echo1", "stub_echo2"]):
            await call(executor)
            for _ in range(500):
                if registry.names() == names:
                    break
                await asyncio.sleep(0.01)
            assert registry.names() == names
        assert [entry for entry in registry.searched if "'stub'" in entry] == ["the MCP server 'stub' (2 tools)"]

    using([stub("lists", tmp_path)], body, on_tools=told)


def test_a_tool_of_another_place_is_refused(tmp_path: Path) -> None:
    executor = McpExecutor([stub("echo", tmp_path)])
    assert executor.accepts(echo()) is None
    assert executor.accepts(Tool("f", {}, {}, lambda: 1)) == "the tool is on no MCP server"
    assert executor.accepts(echo("other")) == "there is no MCP server 'other'; known are stub"
    with pytest.raises(ToolInvalid, match="can't be called as a function"):
        echo().run()


def test_secrets_are_resolved_where_the_server_starts(tmp_path: Path) -> None:
    program = f"import os,sys; sys.argv = ['x', 'echo', os.environ['LOG']]; exec(open({str(STUB)!r}).read())"
    server = StdioServer("stub", (sys.executable, "-c", program), {"LOG": "secret://LOG"})
    folder = str(tmp_path / "stub.log")

    async def body(executor: McpExecutor) -> None:
        assert (await call(executor)).output == "你好"
        assert len(sent(tmp_path, "tools/call")) == 1

    using([server], body, resolve=lambda text: text.replace("secret://LOG", folder))
