"""Servers made with the MCP library, over both transports: the promises, and deaths in the middle of a call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_infra.actions import Tool, ToolRegistry
from agent_infra.actions.executors import Call, McpExecutor
from agent_infra.actions.tools import OnMcpServer
from agent_infra.actions.tools.mcp import Discovered, HttpServer, McpServer, StdioServer, enter
from agent_infra.errors import ExecutorUnavailable
from agent_infra.testing.executors import (
    EXECUTOR_PROMISES,
    OPTIONAL_EXECUTOR_CAPABILITIES,
    ExecutorPromise,
    executor_capabilities,
)

SERVER = Path(__file__).with_name("suite_server.py")
SRC = Path(__file__).parents[3] / "src"
STDIO = StdioServer("suite", (sys.executable, str(SERVER)), {"PYTHONPATH": str(SRC)}, trust_hints=True)
PROMISES = [each for each in EXECUTOR_PROMISES if each.capability not in OPTIONAL_EXECUTOR_CAPABILITIES]


def tool_of(function: Callable[..., Any]) -> Tool:
    return Tool(f"suite_{function.__name__}", {}, {}, OnMcpServer("suite", function.__name__, True), effects="none")


class HttpProcess:
    """The suite's server on a port of the loopback. It can be killed, and started again on the same port."""

    def __init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.server = HttpServer("suite", f"http://127.0.0.1:{self.port}/mcp", {"X-Token": "秘密".encode().hex()})
        self.start()

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(SRC)}
        self.process = subprocess.Popen([sys.executable, str(SERVER), str(self.port)], env=environment)
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        raise AssertionError("the server never listened")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def shared_http() -> Iterator[HttpProcess]:
    process = HttpProcess()
    yield process
    process.kill()


@pytest.fixture
def own_http() -> Iterator[HttpProcess]:
    process = HttpProcess()
    yield process
    process.kill()


@pytest.mark.full
@pytest.mark.parametrize("promise", PROMISES, ids=str)
def test_a_server_on_standard_streams_keeps_the_promises(promise: ExecutorPromise) -> None:
    promise.check(lambda: McpExecutor([STDIO]), tool_of)


@pytest.mark.parametrize("promise", PROMISES, ids=str)
def test_a_server_by_http_keeps_the_promises(promise: ExecutorPromise, shared_http: HttpProcess) -> None:
    promise.check(lambda: McpExecutor([shared_http.server]), tool_of)


def test_it_offers_no_functions_and_no_worker_processes() -> None:
    assert executor_capabilities(lambda: McpExecutor([STDIO])) == frozenset()


async def begun(executor: McpExecutor) -> asyncio.Task[Any]:
    """A call that is under way on the server."""
    heard = asyncio.Event()
    params = {"path": "", "seconds": 60.0}
    tool = Tool("t", {}, {}, OnMcpServer("suite", "write_later"))
    call = Call(tool, params, "call-1", "key-1", total=50.0, on_progress=lambda _: heard.set())
    task = asyncio.create_task(executor.execute(call))
    await asyncio.wait_for(heard.wait(), 30)
    return task


def running(servers: list[McpServer], body: Callable[[McpExecutor], Any], **options: Any) -> None:
    async def run() -> None:
        executor = McpExecutor(servers, **options)
        await executor.start()
        try:
            await body(executor)
        finally:
            await executor.stop()

    asyncio.run(run())


def echo() -> Call:
    return Call(Tool("t", {}, {}, OnMcpServer("suite", "echo", True)), {"value": [1, "二"]}, "call-2", "key-2")


def test_a_real_server_killed_in_the_middle_of_a_call_is_told_and_replaced() -> None:
    async def body(executor: McpExecutor) -> None:
        task = await begun(executor)
        process = executor._slots["suite"].session.process.root  # type: ignore[union-attr]  # whom to kill
        began = time.monotonic()
        process.kill()
        outcome = await task
        assert time.monotonic() - began < 2.0, "as the requirement says"
        assert (outcome.error or {})["code"] == "WorkerDied"
        assert outcome.exit_code == -signal.SIGKILL
        assert (await executor.execute(echo())).output == [1, "二"]

    running([STDIO], body)


def test_a_server_by_http_killed_in_the_middle_of_a_call_is_told_and_found_again(own_http: HttpProcess) -> None:
    async def body(executor: McpExecutor) -> None:
        task = await begun(executor)
        await asyncio.to_thread(own_http.kill)
        outcome = await asyncio.wait_for(task, 30)
        assert (outcome.error or {})["code"] == "WorkerDied", outcome
        assert (outcome.error or {})["what"].startswith("the connection to its server was lost")
        outcome = await executor.execute(echo())
        assert (outcome.error or {})["code"] == "ExecutorUnavailable", outcome
        with pytest.raises(ExecutorUnavailable):
            await executor.discover("suite")
        await asyncio.to_thread(own_http.start)
        assert (await executor.execute(echo())).output == [1, "二"]

    running([own_http.server], body)


def test_its_tools_come_into_the_registry_with_their_schemas() -> None:
    registry = ToolRegistry()

    def told(found: Discovered) -> None:
        enter(registry, found)

    async def body(executor: McpExecutor) -> None:
        await executor.discover("suite")

    running([STDIO], body, on_tools=told)
    turned = registry.get("suite_turned")
    assert turned.isolation == "mcp"
    assert turned.effects == "none"
    assert turned.check_input({"spot": {"latitude": 1.0}}) == []
    assert turned.check_input({"spot": {"latitude": "north"}}) != []
    assert turned.description.startswith("Swap the coordinates")
    assert len(turned.version) == 12
