"""Commands in containers, on a real engine: results, failures, limits, ends, and what is left behind (nothing)."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agent_infra.actions import Tool
from agent_infra.actions.executors import Call, ContainerExecutor, Outcome
from agent_infra.actions.executors.container_engine import Engine, _Link
from agent_infra.actions.tools.container import LABEL
from agent_infra.actions.tools.elsewhere import InContainer
from agent_infra.errors import ExecutorUnavailable, HomeClosed, ToolInvalid
from agent_infra.testing import executor_tools
from agent_infra.testing.executors import (
    EXECUTOR_PROMISES,
    OPTIONAL_EXECUTOR_CAPABILITIES,
    ExecutorPromise,
    executor_capabilities,
)

from .podman import IMAGE, PYTHON, Podman

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("podman")]
SRC = Path(__file__).parents[3] / "src"
BOUND = 60.0
"""Seconds after which a test gives up waiting."""
SLEEP = "import time; print('::progress begun', flush=True); time.sleep(600)"
READ = "import json, sys; params = json.load(sys.stdin)\n"


def tool(code: str, **options: Any) -> Tool:
    """A tool that is a few lines of Python in the image."""
    return Tool("t", {}, {}, InContainer(IMAGE, (PYTHON, "-c", code), **options), effects="none")


def call(made: Tool, params: dict[str, Any] | None = None, **options: Any) -> Call:
    return Call(made, params or {}, "call-1", options.pop("key", "key-1"), **options)


def using(podman: Podman, body: Callable[[ContainerExecutor], Awaitable[Any]], **options: Any) -> Any:
    """Run a body with a started executor, and stop that."""

    async def run() -> Any:
        executor = ContainerExecutor(engine=options.pop("url", podman.url), **options)
        await executor.start()
        try:
            return await asyncio.wait_for(body(executor), BOUND)
        finally:
            await executor.stop()

    return asyncio.run(run())


def once(podman: Podman, made: Tool, params: dict[str, Any] | None = None, **options: Any) -> Outcome:
    """One call, on an executor of its own."""
    executors = {name: options.pop(name) for name in ("url", "memory_mb", "pids", "resolve") if name in options}
    return using(podman, lambda executor: executor.execute(call(made, params, **options)), **executors)


def failed(outcome: Outcome, code: str, status: str = "failed") -> dict[str, Any]:
    assert outcome.status == status, outcome
    assert outcome.output is None
    assert outcome.error is not None
    assert outcome.error["code"] == code, outcome
    return outcome.error


async def begun(executor: ContainerExecutor, code: str = SLEEP, **options: Any) -> asyncio.Task[Outcome]:
    """A call whose command has said something."""
    heard = asyncio.Event()
    made = call(tool(code), on_progress=lambda _: heard.set(), **options)
    task = asyncio.create_task(executor.execute(made))
    await asyncio.wait_for(heard.wait(), BOUND)
    return task


# -- results and failures ------------------------------------------------------------------------------------------


def test_a_result_comes_back_with_the_image_that_gave_it(engine: Podman) -> None:
    code = READ + "print('ignored'); print(json.dumps({'给': params, 'more': [1, None]}, ensure_ascii=False))"
    outcome = once(engine, tool(code), {"城市": "北京 🌧", "": {"深": [True]}})
    assert outcome.ok, outcome
    assert outcome.output == {"给": {"城市": "北京 🌧", "": {"深": [True]}}, "more": [1, None]}
    assert outcome.executor == "container"
    assert outcome.exit_code == 0
    image = json.loads(engine.run("image", "inspect", IMAGE))[0]
    expected = {"image": IMAGE, "image_digest": image["Digest"], "image_id": f"sha256:{image['Id']}"}
    assert outcome.facts == expected
    assert (outcome.cpu_seconds or 0) > 0
    assert (outcome.peak_memory_mb or 0) > 1


def test_key_and_seconds_are_in_the_environment_and_progress_comes_in_order(engine: Podman) -> None:
    heard: list[Any] = []
    code = (
        "import os; print('::progress 0.25', flush=True); print('::progress 一半了', flush=True); print('::progress 2')\n"
        "import json; print(json.dumps([os.environ.get('AGENT_INFRA_' + n) for n in ('IDEMPOTENCY_KEY', 'SECONDS')]))"
    )
    outcome = once(engine, tool(code), key="钥匙", total=50.0, on_progress=heard.append)
    assert outcome.output == ["钥匙", "50"]
    assert heard == [0.25, "一半了", "2"]


def test_a_failure_carries_the_commands_own_words(engine: Podman) -> None:
    outcome = once(engine, tool("import sys; print('警告', file=sys.stderr); sys.exit('没有这个城市')"))
    error = failed(outcome, "ToolFailed")
    assert error["what"] == "it exited with code 1: 没有这个城市"
    assert error["exit_code"] == outcome.exit_code == 1
    assert outcome.stderr == "警告\n没有这个城市\n"
    assert outcome.facts["image_digest"].startswith("sha256:")
    spoken = "import json; print(json.dumps({'error': {'what': '余额不足', 'type': 'NoMoney'}})); raise SystemExit(4)"
    error = failed(once(engine, tool(spoken)), "ToolFailed")
    assert error == {"code": "ToolFailed", "what": "余额不足", "type": "NoMoney", "exit_code": 4}


def test_what_the_stream_missed_is_read_from_the_log(engine: Podman, monkeypatch: pytest.MonkeyPatch) -> None:
    receive = _Link.receive

    def deaf(link: _Link) -> bytes:
        while receive(link):
            pass
        return b""

    monkeypatch.setattr(_Link, "receive", deaf)
    outcome = once(engine, tool("import sys; print('警告', file=sys.stderr); print('[\"晴天\"]')"))
    assert outcome.output == ["晴天"], outcome
    assert (outcome.stdout, outcome.stderr) == ('["晴天"]\n', "警告\n")
    assert once(engine, tool("print('\"' + '明' * 100_000 + '\"')")).output == "明" * 100_000
    assert failed(once(engine, tool("raise SystemExit('没有')")), "ToolFailed")["what"].endswith(": 没有")


def test_what_is_no_result_is_said(engine: Podman) -> None:
    assert "printed no result" in failed(once(engine, tool("")), "BadOutput")["what"]
    assert "'晴天'" in failed(once(engine, tool("print('晴天')")), "BadOutput")["what"]
    killed = failed(once(engine, tool("import os; os.kill(os.getpid(), 11); os.abort()")), "WorkerDied")
    assert killed["signal"] in ("SIGSEGV", "SIGABRT")


def test_parameters_that_nobody_reads_hold_nothing_up(engine: Podman) -> None:
    large = {"text": "x" * 5_000_000}
    assert once(engine, tool("print(1)"), large).output == 1
    failed(once(engine, tool("import time; time.sleep(600)"), large, total=1.0), "TimedOut", "timed_out")


def test_large_parameters_and_results_come_through(engine: Podman) -> None:
    code = READ + "print(json.dumps(params['text'] * 2))"
    assert once(engine, tool(code), {"text": "明" * 500_000}).output == "明" * 1_000_000


# -- what can't begin ----------------------------------------------------------------------------------------------


def test_a_missing_image_is_named(engine: Podman) -> None:
    missing = Tool("t", {}, {}, InContainer("localhost/nobody-made-this:1", ("x",)), effects="none")
    error = failed(once(engine, missing), "ExecutorUnavailable")
    assert error["reason"] == "image_missing"
    assert "nobody-made-this" in error["what"]
    assert "docker pull localhost/nobody-made-this:1" in error["mend"]


@pytest.mark.parametrize("command", [("no-such-program",), ("/no/such/program",), ("/etc",), ()])
def test_a_missing_command_is_named(engine: Podman, command: tuple[str, ...]) -> None:
    missing = Tool("t", {}, {}, InContainer(IMAGE, command), effects="none")
    error = failed(once(engine, missing), "ToolNotLoaded")
    assert error["what"].startswith(f"its command can't be started in '{IMAGE}': ")
    assert not command or command[0] in error["what"]


def test_a_missing_mount_is_named_and_not_made(engine: Podman, tmp_path: Path) -> None:
    absent = tmp_path / "不在"
    error = failed(once(engine, tool("print(1)", mounts={str(absent): "/in"})), "ExecutorUnavailable")
    assert error["reason"] == "mount_missing"
    assert "不在" in error["what"]
    assert not absent.exists()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # the docker library's socket, which never connected
def test_no_engine_is_named(engine: Podman, tmp_path: Path) -> None:
    url = f"unix://{tmp_path}/nobody.sock"
    error = failed(once(engine, tool("print(1)"), url=url), "ExecutorUnavailable")
    assert error["reason"] == "no_engine"
    assert url in error["what"]
    assert "DOCKER_HOST" in error["mend"]

    async def discover(executor: ContainerExecutor) -> None:
        with pytest.raises(ExecutorUnavailable, match=r"nobody\.sock"):
            await executor.discover(IMAGE)

    using(engine, discover, url=url)
    gc.collect()


# -- what a command may do -----------------------------------------------------------------------------------------

CONNECT = READ + (
    "import socket\n"
    "routes = [line.split() for line in open('/proc/net/route')][1:]\n"
    "gateways = [bytes.fromhex(route[2])[::-1] for route in routes if route[1] == '00000000']\n"
    "place = socket.inet_ntoa(gateways[0]) if gateways else params['host']\n"
    "try:\n    socket.create_connection((place, params['port']), 10).close()\n    print('\"connected\"')\n"
    "except OSError as error:\n    print(json.dumps(error.strerror))\n"
)


def test_there_is_no_network_unless_asked_for(engine: Podman) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server:
        params = {"host": "192.0.2.1", "port": server.getsockname()[1]}
        assert once(engine, tool(CONNECT), params).output == "Network is unreachable"
        assert once(engine, tool(CONNECT, network=True), params).output == "connected"


def test_the_root_can_only_be_read_and_the_work_folders_are_empty_each_time(engine: Podman) -> None:
    code = (
        "import json, os\nfound = {}\n"
        "for place in ('/root.txt', '/etc/x', 'x', '/tmp/x'):\n"
        "    fresh = not os.path.exists(place)\n"
        "    try:\n        open(place, 'w').write('x'); found[place] = fresh\n"
        "    except OSError as error: found[place] = error.strerror\n"
        "print(json.dumps([found, os.getcwd()]))"
    )
    only_read = "Read-only file system"
    for _ in range(2):
        found, place = once(engine, tool(code)).output
        assert found == {"/root.txt": only_read, "/etc/x": only_read, "x": True, "/tmp/x": True}
        assert place == "/work"


def test_mounts_can_only_be_read(engine: Podman, tmp_path: Path) -> None:
    (tmp_path / "数据.txt").write_text("里面")
    code = (
        "import json\ntry: open('/in/new', 'w')\nexcept OSError as error: said = error.strerror\n"
        "print(json.dumps([open('/in/数据.txt').read(), said]))"
    )
    outcome = once(engine, tool(code, mounts={str(tmp_path): "/in"}))
    assert outcome.output == ["里面", "Read-only file system"], outcome
    assert [path.name for path in tmp_path.iterdir()] == ["数据.txt"]


def test_it_has_no_capabilities_and_can_gain_none(engine: Podman) -> None:
    code = "import json; print(json.dumps(dict(line.split(':', 1) for line in open('/proc/self/status'))))"
    status = once(engine, tool(code)).output
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"].strip() == "1"


FORK = (
    "import os, time\ncount = 0\n"
    "try:\n    while count < 200:\n        if os.fork() == 0: time.sleep(600)\n        count += 1\n"
    "except OSError: pass\nprint(count)"
)


def test_it_may_have_so_many_processes(engine: Podman) -> None:
    assert 5 <= once(engine, tool(FORK, pids=20)).output < 20
    assert 5 <= once(engine, tool(FORK), pids=30).output < 30
    assert once(engine, tool(FORK)).output == 200, "the usual limit is higher"


@pytest.mark.parametrize("place", ["its memory", "a child's memory", "a work folder"])
def test_memory_over_the_limit_is_told_with_its_figures(engine: Podman, place: str) -> None:
    eat = "kept = [bytearray(1 << 20) for _ in range(500)]; print(1)"
    child = f"import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', {eat!r}]).returncode and 1)"
    write = "f = open('x', 'wb')\nfor _ in range(500): f.write(bytes(1 << 20))\nprint(1)"
    code = {"its memory": eat, "a child's memory": child, "a work folder": write}[place]
    outcome = once(engine, tool(code, memory_mb=64))
    error = failed(outcome, "ToolOutOfMemory")
    assert error["memory"] == "host"
    assert error["memory_limit_mb"] == 64
    assert 60 < error["peak_memory_mb"] < 90
    assert error["what"] == "its processes held 64 MiB of the 64 MiB that it may have, and wanted more"
    assert "raise memory_mb" in error["mend"]
    assert outcome.peak_memory_mb == error["peak_memory_mb"]


def test_which_memory_limit_holds(engine: Podman) -> None:
    code = (
        "import json, pathlib\nroots = ('/sys/fs/cgroup/memory/memory.limit_in_bytes', '/sys/fs/cgroup/memory.max')\n"
        "print([int(pathlib.Path(p).read_text()) >> 20 for p in roots if pathlib.Path(p).exists()][0])"
    )
    assert once(engine, tool(code), memory_mb=300).output == 300
    assert once(engine, tool(code, memory_mb=200), memory_mb=300).output == 200
    assert once(engine, tool(code, memory_mb=200), resources={"memory_mb": 100.0}).output == 100


# -- ends ----------------------------------------------------------------------------------------------------------


def test_time_limits_end_it(engine: Podman) -> None:
    error = failed(once(engine, tool(SLEEP), total=1.0), "TimedOut", "timed_out")
    assert (error["limit"], error["seconds"]) == ("total", 1.0)
    engine.assert_empty()
    outcome = once(engine, tool(SLEEP), idle=1.0, total=500.0)
    assert failed(outcome, "TimedOut", "timed_out")["limit"] == "idle"
    assert outcome.stdout == "::progress begun\n"
    assert outcome.facts["image_digest"]


def test_a_cancelled_call_leaves_nothing(engine: Podman) -> None:
    async def body(executor: ContainerExecutor) -> None:
        task = await begun(executor)
        assert len(engine.containers()) == 1
        assert len(engine.volumes()) == 1
        task.cancel()
        await asyncio.wait({task}, timeout=BOUND)
        assert task.cancelled()
        engine.assert_empty()
        assert (await executor.execute(call(tool("print(2)")))).output == 2

    using(engine, body)


def test_a_call_cancelled_while_it_begins_leaves_nothing(engine: Podman, monkeypatch: pytest.MonkeyPatch) -> None:
    made = held(monkeypatch)

    async def body(executor: ContainerExecutor) -> None:
        task = asyncio.create_task(executor.execute(call(tool(SLEEP))))
        await asyncio.to_thread(made.reached.wait, BOUND)
        task.cancel()
        await asyncio.sleep(0)
        made.go_on.set()
        await asyncio.wait({task}, timeout=BOUND)
        assert task.cancelled()
        engine.assert_empty()

    using(engine, body)


def test_a_stop_ends_what_runs(engine: Podman) -> None:
    async def body(executor: ContainerExecutor) -> None:
        tasks = [await begun(executor) for _ in range(2)]
        await executor.stop()
        for task in tasks:
            failed(await asyncio.wait_for(task, BOUND), "ExecutorStopped")
        engine.assert_empty()
        with pytest.raises(HomeClosed):
            await executor.execute(call(tool("print(1)")))
        with pytest.raises(HomeClosed):
            await executor.sweep()

    using(engine, body)


def test_a_stop_ends_what_is_just_beginning(engine: Podman, monkeypatch: pytest.MonkeyPatch) -> None:
    made = held(monkeypatch)

    async def body(executor: ContainerExecutor) -> None:
        task = asyncio.create_task(executor.execute(call(tool(SLEEP))))
        await asyncio.to_thread(made.reached.wait, BOUND)
        stopping = asyncio.create_task(executor.stop())
        await asyncio.sleep(0.1)
        made.go_on.set()
        failed(await asyncio.wait_for(task, BOUND), "ExecutorStopped")
        await asyncio.wait_for(stopping, BOUND)
        engine.assert_empty()

    using(engine, body)


class held:  # noqa: N801 - used like a function
    """Hold up the making of containers: `reached` when one was made, which is handed on at `go_on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.go_on = threading.Event(), threading.Event()
        create = Engine.create

        def slowly(*arguments: Any) -> str:
            container = create(*arguments)
            self.reached.set()
            self.go_on.wait(BOUND)
            return container

        monkeypatch.setattr(Engine, "create", slowly)


def test_a_container_that_somebody_else_ends_is_a_death(engine: Podman) -> None:
    async def body(executor: ContainerExecutor) -> None:
        task = await begun(executor)
        await asyncio.to_thread(engine.run, "kill", *engine.containers())
        error = failed(await asyncio.wait_for(task, BOUND), "WorkerDied")
        assert error["signal"] == "SIGKILL"
        task = await begun(executor)
        await asyncio.to_thread(engine.run, "rm", "--force", "--volumes", *engine.containers())
        assert "lost sight" in failed(await asyncio.wait_for(task, BOUND), "WorkerDied")["what"]

    using(engine, body)


def test_what_was_printed_before_a_container_was_taken_away_is_no_result(engine: Podman) -> None:
    async def body(executor: ContainerExecutor) -> None:
        task = await begun(executor, f"print(17, flush=True)\n{SLEEP}")
        await asyncio.to_thread(engine.run, "rm", "--force", "--volumes", *engine.containers())
        failed(await asyncio.wait_for(task, BOUND), "WorkerDied")

    using(engine, body)


# -- what a killed client left -------------------------------------------------------------------------------------

CLIENT = """
import asyncio, sys
from agent_infra.actions import Tool
from agent_infra.actions.executors import Call, ContainerExecutor
from agent_infra.actions.tools.elsewhere import InContainer

async def main():
    executor = ContainerExecutor(engine=sys.argv[1], home="家")
    await executor.start()
    tool = Tool("t", {}, {}, InContainer(sys.argv[2], (sys.argv[3], "-c", sys.argv[4])), effects="none")
    await executor.execute(Call(tool, {}, "call-9", "key", on_progress=lambda said: print(said, flush=True)))

asyncio.run(main())
"""


def client(podman: Podman) -> subprocess.Popen[bytes]:
    """Another process, in the middle of a call."""
    command = [sys.executable, "-c", CLIENT, podman.url, IMAGE, PYTHON, SLEEP]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(SRC)})
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)  # harmless once it was waited for
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_what_a_killed_client_left_is_removed_by_the_next_one_and_a_living_ones_is_not(engine: Podman) -> None:
    living, killed = client(engine), client(engine)
    try:
        before = set(engine.containers())
        assert len(before) == len(engine.volumes()) == 2
        labels = [json.loads(engine.run("inspect", each))[0]["Config"]["Labels"] for each in before]
        assert {each["agent_infra.home"] for each in labels} == {"家"}
        assert {each["agent_infra.call"] for each in labels} == {"call-9"}
        assert {each["agent_infra.pid"] for each in labels} == {str(living.pid), str(killed.pid)}
        end(killed)
        assert set(engine.containers()) == before, "nobody is there to remove it"
        assert once(engine, tool("print(3)")).output == 3
        left = engine.containers()
        assert len(left) == len(engine.volumes()) == 1
        assert json.loads(engine.run("inspect", *left))[0]["Config"]["Labels"]["agent_infra.pid"] == str(living.pid)
        assert living.poll() is None
    finally:
        end(living)
        end(killed)
        removed = using(engine, sweep_twice)
    assert removed == 0, "the first was done as the engine was reached"


async def sweep_twice(executor: ContainerExecutor) -> int:
    await executor.sweep()
    return await executor.sweep()


def test_what_is_past_its_time_is_removed_whoever_owns_it(engine: Podman, monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(executor: ContainerExecutor) -> None:
        task = await begun(executor, total=300.0)
        assert await executor.sweep() == 0
        now = time.time
        monkeypatch.setattr("agent_infra.actions.executors.container.time.time", lambda: now() + 361.0)
        assert await executor.sweep() == 1
        failed(await asyncio.wait_for(task, BOUND), "WorkerDied")

    using(engine, body)


# -- secrets and labels --------------------------------------------------------------------------------------------


def test_a_secret_reaches_the_command_and_nothing_that_is_kept(engine: Podman) -> None:
    secret = "kanari-密钥-9f27"
    code = (
        "import hashlib, os; print('::progress begun', flush=True); import time; time.sleep(600 * ('WAIT' in os.environ))\n"
        "print('\"' + hashlib.sha256(os.environ['TOKEN'].encode()).hexdigest() + '\"')"
    )
    environment = {"TOKEN": "secret://NAME", "LANG": "C.UTF-8"}

    def resolve(text: str) -> str:
        return text.replace("secret://NAME", secret)

    outcome = once(engine, tool(code, environment=environment), resolve=resolve)
    assert outcome.output == hashlib.sha256(secret.encode()).hexdigest()
    assert secret not in repr(outcome)

    async def body(executor: ContainerExecutor) -> None:
        heard = asyncio.Event()
        waiting = tool(code, environment=environment | {"WAIT": "1"})
        task = asyncio.create_task(executor.execute(call(waiting, on_progress=lambda _: heard.set())))
        await asyncio.wait_for(heard.wait(), BOUND)
        labels = json.loads(engine.run("inspect", *engine.containers()))[0]["Config"]["Labels"]
        assert labels["agent_infra.call"] == "call-1"
        assert secret not in json.dumps(labels, ensure_ascii=False)
        task.cancel()
        await asyncio.wait({task})

    using(engine, body, resolve=resolve)


def test_an_image_says_which_tools_it_has(engine: Podman) -> None:
    entry = {
        "name": "count",
        "command": [PYTHON, "-c", READ + "print(len(params['text']))"],
        "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        "output_schema": {"type": "integer"},
        "effects": "none",
        "memory_mb": 128,
        "description": "数字符",
    }
    label = json.dumps([entry]).replace("$", "\\$")
    image = engine.build("localhost/with-label:1", f"LABEL {LABEL}={json.dumps(label)}")

    async def body(executor: ContainerExecutor) -> None:
        (found,) = await executor.discover(image)
        assert (found.name, found.effects, found.description) == ("count", "none", "数字符")
        assert found.resources == {"memory_mb": 128}
        assert (await executor.execute(call(found, {"text": "四个字符"}))).output == 4
        with pytest.raises(ToolInvalid, match="lists no tools"):
            await executor.discover(IMAGE)
        with pytest.raises(ExecutorUnavailable, match="is not there"):
            await executor.discover("localhost/nobody-made-this:1")

    using(engine, body)


# -- the public suite ----------------------------------------------------------------------------------------------

PROMISES = [each for each in EXECUTOR_PROMISES if each.capability not in OPTIONAL_EXECUTOR_CAPABILITIES]
MOUNTS = {
    str(Path(__file__).with_name("suite_command.py")): "/suite/run.py",
    executor_tools.__file__: "/suite/tools.py",
}


def suite_tool(function: Callable[..., Any]) -> Tool:
    command = (PYTHON, "-S", "/suite/run.py", "/suite/tools.py", function.__name__)
    return Tool(function.__name__, {}, {}, InContainer(IMAGE, command, mounts=MOUNTS), effects="none")


@pytest.mark.parametrize("promise", PROMISES, ids=str)
def test_it_keeps_the_promises(promise: ExecutorPromise, engine: Podman) -> None:
    promise.check(lambda: ContainerExecutor(engine=engine.url), suite_tool)


def test_it_offers_no_functions_and_no_worker_processes() -> None:
    assert executor_capabilities(ContainerExecutor) == frozenset()
