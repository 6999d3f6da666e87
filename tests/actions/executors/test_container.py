"""Commands in containers, on a real engine: podman's service, started here with storage of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from agent_infra import Infra
from agent_infra.actions import Tool, make_tool
from agent_infra.actions.executors import Call, ContainerExecutor, Outcome
from agent_infra.actions.tools import InContainer
from agent_infra.config import find_project
from agent_infra.errors import ExecutorUnavailable, HomeClosed, ToolInvalid
from agent_infra.testing import executor_tools
from agent_infra.testing.executors import (
    EXECUTOR_PROMISES,
    OPTIONAL_EXECUTOR_CAPABILITIES,
    ExecutorPromise,
    executor_capabilities,
)

engine_module = run_path(str(Path(__file__).with_name("podman.py")))
IMAGE, PYTHON = engine_module["IMAGE"], engine_module["PYTHON"]
SUITE = Path(__file__).with_name("suite_command.py")
PROMISES = [each for each in EXECUTOR_PROMISES if each.capability not in OPTIONAL_EXECUTOR_CAPABILITIES]
pytestmark = [pytest.mark.full, pytest.mark.xdist_group("containers")]


@pytest.fixture(scope="module")
def podman() -> Iterator[Any]:
    engine = engine_module["Podman"]()
    yield engine
    engine.close()


@pytest.fixture(autouse=True)
def nothing_is_left(podman: Any) -> Iterator[None]:
    """After each test: no container, no volume."""
    yield
    assert (podman.containers(), podman.volumes()) == ([], [])


def command(code: str, **options: Any) -> Tool:
    """A tool that runs Python code in the image. `given` in it are the parameters; what it leaves in `out` is printed."""
    run = f"import json, os, sys, time\ngiven = json.load(sys.stdin)\nout = None\n{code}\nprint(json.dumps(out))"
    return Tool("text_box", {}, {}, InContainer(IMAGE, (PYTHON, "-c", run), **options), effects="none")


def call(tool: Tool, params: dict[str, Any] | None = None, **limits: Any) -> Call:
    return Call(tool, params or {}, "call-1", "键-1", **limits)


def using(podman: Any, body: Callable[[ContainerExecutor], Awaitable[Any]], **options: Any) -> Any:
    """Run a body with a started executor, and stop that."""

    async def run() -> Any:
        executor = ContainerExecutor(engine=podman.url, home="/家", **options)
        await executor.start()
        try:
            return await body(executor)
        finally:
            await executor.stop()

    return asyncio.run(run())


def outcome(podman: Any, asked: Call, **options: Any) -> Outcome:
    return using(podman, lambda executor: executor.execute(asked), **options)


def failed(ended: Outcome, code: str) -> dict[str, Any]:
    assert ended.error is not None, ended
    assert ended.error["code"] == code, ended
    assert ended.output is None
    return ended.error


# -- the promises ----------------------------------------------------------------------------------


def suite_tool(function: Callable[..., Any]) -> Tool:
    mounts = {str(SUITE.parent): "/suite/here", str(Path(executor_tools.__file__).parent): "/suite/tools"}
    inside = InContainer(IMAGE, (PYTHON, f"/suite/here/{SUITE.name}", function.__name__), mounts=mounts)
    return Tool(f"box_{function.__name__}", {}, {}, inside, effects="none")


@pytest.mark.parametrize("promise", PROMISES, ids=str)
def test_it_keeps_the_promises(podman: Any, promise: ExecutorPromise) -> None:
    promise.check(lambda: ContainerExecutor(engine=podman.url), suite_tool)


def test_it_runs_no_functions(podman: Any) -> None:
    assert executor_capabilities(lambda: ContainerExecutor(engine=podman.url)) == frozenset()
    with pytest.raises(ToolInvalid, match="no command in an image"):
        outcome(podman, call(make_tool(executor_tools.block, effects="none")))


# -- what a call gets, and leaves ------------------------------------------------------------------


def test_a_result_with_the_image_that_gave_it(podman: Any) -> None:
    heard: list[Any] = []
    code = """
print("::progress 开始")
print("::progress 0.5")
out = {"城市": given["城市"], "key": os.environ["AGENT_INFRA_IDEMPOTENCY_KEY"]}
"""
    ended = outcome(podman, call(command(code), {"城市": "北京"}, on_progress=heard.append))
    assert ended.ok, ended
    assert ended.output == {"城市": "北京", "key": "键-1"}
    assert heard == ["开始", 0.5]
    [image] = json.loads(podman.run("image", "inspect", IMAGE))
    assert ended.facts["image"] == IMAGE
    assert ended.facts["image_digest"] == image["Digest"]
    assert ended.facts["image_id"].removeprefix("sha256:") == image["Id"]
    assert ended.peak_memory_mb is not None
    assert ended.peak_memory_mb > 1
    assert ended.cpu_seconds is not None


def test_a_command_that_fails_says_why(podman: Any) -> None:
    ended = outcome(podman, call(command("raise ValueError('没有这个城市')")))
    assert "没有这个城市" in failed(ended, "ToolFailed")["what"]
    assert ended.exit_code == 1
    assert "Traceback" in ended.stderr


def test_it_is_shut_in(podman: Any) -> None:
    code = """
import socket
def tried(work):
    try:
        return work() or "could"
    except OSError as error:
        return type(error).__name__
out = {
    "network": tried(lambda: socket.create_connection(("127.0.0.1", 9), 1) and None),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "root": tried(lambda: open("/new", "w").close()),
    "work": tried(lambda: open("/work/new", "w").close()),
    "tmp": tried(lambda: open("/tmp/new", "w").close()),
    "capabilities": [line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")],
}
"""
    out = outcome(podman, call(command(code))).output
    assert out["interfaces"] in ([], ["lo"])
    assert out | {"interfaces": 0} == {
        "network": out["network"],
        "interfaces": 0,
        "root": "OSError",
        "work": "could",
        "tmp": "could",
        "capabilities": ["0000000000000000"],
    }
    assert out["network"] != "could"


def test_what_is_mounted_can_be_read_and_not_written(podman: Any, tmp_path: Path) -> None:
    (tmp_path / "页.txt").write_text("第一页", encoding="utf-8")
    code = """
text = open("/data/页.txt", encoding="utf-8").read()
try:
    open("/data/new", "w")
    out = [text, "written"]
except OSError:
    out = [text, "refused"]
"""
    ended = outcome(podman, call(command(code, mounts={str(tmp_path): "/data"})))
    assert ended.output == ["第一页", "refused"], ended
    assert [each.name for each in tmp_path.iterdir()] == ["页.txt"]


def test_the_number_of_its_processes_is_limited(podman: Any) -> None:
    code = """
import threading
started = 0
try:
    for _ in range(200):
        threading.Thread(target=time.sleep, args=(5,), daemon=True).start()
        started += 1
except RuntimeError:
    pass
out = started
"""
    ended = outcome(podman, call(command(code, pids=20)))
    assert ended.ok, ended
    assert ended.output < 20


def test_over_its_memory_limit_it_is_ended_with_the_figures(podman: Any) -> None:
    ended = outcome(podman, call(command("held = bytearray(300 << 20); out = len(held)", memory_mb=64)))
    error = failed(ended, "ToolOutOfMemory")
    assert error["memory_limit_mb"] == 64
    assert 40 < error["peak_memory_mb"] < 70
    assert error["memory"] == "host"
    assert error["mend"]
    assert ended.exit_code == 137
    fits = outcome(podman, call(command("held = bytearray(30 << 20); out = len(held)", memory_mb=128)))
    assert fits.output == 30 << 20
    asked = call(command("held = bytearray(300 << 20)", memory_mb=1000), resources={"memory_mb": 64.0})
    assert failed(outcome(podman, asked), "ToolOutOfMemory")["memory_limit_mb"] == 64


@pytest.mark.parametrize(("limits", "word"), [({"total": 1.5}, "total"), ({"idle": 1.5, "total": 60.0}, "idle")])
def test_a_limit_ends_it(podman: Any, limits: dict[str, float], word: str) -> None:
    ended = outcome(podman, call(command("print('halfway', flush=True)\ntime.sleep(100)"), **limits))
    assert ended.status == "timed_out"
    assert failed(ended, "TimedOut")["limit"] == word
    assert ended.stdout == "halfway\n"


def test_a_cancelled_call_is_ended_first(podman: Any) -> None:
    async def body(executor: ContainerExecutor) -> None:
        heard = asyncio.Event()
        tool = command("print('::progress here', flush=True)\ntime.sleep(100)")
        task = asyncio.create_task(executor.execute(call(tool, on_progress=lambda _: heard.set())))
        await asyncio.wait_for(heard.wait(), 60)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()
        assert podman.containers() == []

    using(podman, body)


def test_a_stopped_executor_leaves_nothing_and_takes_nothing_in(podman: Any) -> None:
    async def body(executor: ContainerExecutor) -> None:
        heard = asyncio.Event()
        tool = command("print('::progress here', flush=True)\ntime.sleep(100)")
        task = asyncio.create_task(executor.execute(call(tool, on_progress=lambda _: heard.set())))
        await asyncio.wait_for(heard.wait(), 60)
        await executor.stop()
        failed(await task, "ExecutorStopped")
        assert podman.containers() == []
        with pytest.raises(HomeClosed):
            await executor.execute(call(tool))

    using(podman, body)


# -- what can't begin ------------------------------------------------------------------------------


def test_what_is_not_there_is_named(podman: Any, tmp_path: Path) -> None:
    missing = Tool("t", {}, {}, InContainer("localhost/nobody-has-this:1", ("x",)), effects="none")
    assert failed(outcome(podman, call(missing)), "ExecutorUnavailable")["reason"] == "image_missing"
    strange = Tool("t", {}, {}, InContainer(IMAGE, ("/no/such/program",)), effects="none")
    failed(outcome(podman, call(strange)), "ToolNotLoaded")

    async def nobody() -> Outcome:
        executor = ContainerExecutor(engine=f"unix://{tmp_path}/none.sock")
        await executor.start()
        try:
            return await executor.execute(call(command("")))
        finally:
            await executor.stop()

    assert failed(asyncio.run(nobody()), "ExecutorUnavailable")["reason"] == "no_engine"


# -- secrets, lists of tools -----------------------------------------------------------------------


def test_a_secret_is_put_in_where_the_command_runs(podman: Any) -> None:
    tool = command("out = os.environ['TOKEN'][::-1]", environment={"TOKEN": "secret://WEATHER"})
    asked: list[str] = []

    def resolve(text: str) -> str:
        asked.append(text)
        return "ieheim-密-42" if text == "secret://WEATHER" else text

    ended = outcome(podman, call(tool), resolve=resolve)
    assert ended.output == "24-密-miehei", ended
    assert asked == ["secret://WEATHER"]


def test_an_image_may_list_its_tools(podman: Any) -> None:
    name = "localhost/agent-infra-test-listing:1"
    entry = {
        "name": "shout",
        "command": [PYTHON, "-c", "import json, sys; print(json.dumps(json.load(sys.stdin)['text'].upper()))"],
        "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        "effects": "none",
    }
    container = podman.run("create", f"--label=agent_infra.tools={json.dumps([entry])}", IMAGE, "x").strip()
    podman.run("commit", container, name)
    podman.run("rm", container)
    podman.run("volume", "prune", "--force")

    async def body(executor: ContainerExecutor) -> Outcome:
        [tool] = await executor.discover(name)
        assert (tool.name, tool.effects) == ("shout", "none")
        with pytest.raises(ToolInvalid, match="lists no tools"):
            await executor.discover(IMAGE)
        with pytest.raises(ExecutorUnavailable):
            await executor.discover("localhost/nobody-has-this:1")
        return await executor.execute(call(tool, {"text": "straße"}))

    assert using(podman, body).output == "STRASSE"


# -- after a crash ---------------------------------------------------------------------------------

CLIENT = """
import asyncio, sys
from runpy import run_path
here = run_path(sys.argv[2])
async def main():
    executor = here["ContainerExecutor"](engine=sys.argv[1], home="/家")
    await executor.start()
    tool = here["command"]("print('::progress here', flush=True)\\ntime.sleep(300)")
    await executor.execute(here["call"](tool, on_progress=lambda _: print("running", flush=True)))
asyncio.run(main())
"""


def test_what_a_killed_client_left_is_removed_and_nothing_else(podman: Any) -> None:
    here = [sys.executable, "-c", CLIENT, podman.url, __file__]
    with subprocess.Popen(here, stdout=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"running\n"
        [theirs] = podman.containers()
        assert using(podman, lambda executor: executor.sweep()) == 0, "its owner lives"
        assert podman.containers() == [theirs]
        client.send_signal(signal.SIGKILL)
        client.wait()
        assert podman.containers() == [theirs]
        ended = outcome(podman, call(command("out = 1")))
        assert ended.output == 1
        assert podman.containers() == []
        assert podman.volumes() == []


# -- through the whole product ---------------------------------------------------------------------

PROJECT = """
[containers]
engine = "{engine}"

[containers.tools.count_words]
image = "{image}"
command = ["{python}", "-c", "import json, sys; print(json.dumps({{'words': len(json.load(sys.stdin)['text'].split())}}))"]
input_schema = {{type = "object", properties = {{text = {{type = "string"}}}}, required = ["text"]}}
output_schema = {{type = "object", properties = {{words = {{type = "integer"}}}}, required = ["words"]}}
effects = "none"

[containers.tools.hold_much]
image = "{image}"
command = ["{python}", "-c", "held = bytearray(300 << 20); print(1)"]
input_schema = {{type = "object"}}
effects = "none"
memory_mb = 64
"""
ACTION = """
name: count
tool: count_words
params: {text: "${state.nodes.user_intent.data.query}"}
postconditions: ["result.words > 0"]
result: {type: answer, key: words}
"""


def test_a_declared_command_is_an_action_with_evidence(podman: Any, tmp_path: Path) -> None:
    text = PROJECT.format(engine=podman.url, image=IMAGE, python=PYTHON)
    (tmp_path / "agent_infra.toml").write_text(text, encoding="utf-8")
    (tmp_path / "actions").mkdir()
    (tmp_path / "actions" / "count.yaml").write_text(ACTION, encoding="utf-8")
    with Infra.open(tmp_path / "家", project=find_project(tmp_path)) as infra:
        graph = infra.session("会话")
        graph.add_node("user_intent", {"query": "北京 明天 天气", "confidence": 0.9})
        result = infra.actions.execute("count", graph)
        assert result.ok, result
        assert result.output == {"words": 3}
        bundle = infra.evidence.get(result.evidence_cid)
        [image] = json.loads(podman.run("image", "inspect", IMAGE))
        assert bundle["image_digest"] == image["Digest"]
        assert bundle["facts"]["image"] == IMAGE
        assert bundle["executor"] == "container"
        over = infra.actions.execute("hold_much", graph)
        assert (over.status, over.error and over.error["code"]) == ("failed", "ToolOutOfMemory")
        why = infra.evidence.why(graph, "hold_much").text()
        assert "64 MiB" in why
        print(result, over.error, why, sep="\n")
