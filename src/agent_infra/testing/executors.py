"""The conformance suite of the Executor protocol: what the layers above expect, as things that can be tried.

    @pytest.mark.parametrize("promise", EXECUTOR_PROMISES, ids=str)
    def test_my_executor(promise):
        if promise.capability in OPTIONAL_EXECUTOR_CAPABILITIES - executor_capabilities(MyExecutor):
            pytest.skip(f"{promise.capability} is not offered")
        promise.check(MyExecutor)

In: a function that makes a new executor, called once for each promise; and for an executor whose tools are elsewhere (a
server, an image) `make_tool`, which gives its tool for each function of `testing.executor_tools`. Out: each promise kept,
or an AssertionError. `check_executor` runs all and reports.

Required of every executor: results, failures, context, limits, stopping. Optional, found by asking, not declared:

    functions    it runs Python functions: it can tell where they raised, and what they gave that is not JSON
    isolation    it accepts tools of isolation "process": what hangs, dies or prints there is ended, replaced, recorded
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import psutil

from agent_infra.actions import Tool, make_tool
from agent_infra.actions.executors import Call, Executor, Outcome
from agent_infra.errors import HomeClosed, ToolInvalid
from agent_infra.testing import executor_tools as tools

ExecutorMaker: TypeAlias = Callable[[], Executor]
ToolMaker: TypeAlias = Callable[[Callable[..., Any]], Tool]
OPTIONAL_EXECUTOR_CAPABILITIES: Final = frozenset({"functions", "isolation"})
_tool_maker: ContextVar[ToolMaker | None] = ContextVar("tool_maker", default=None)


@dataclass(frozen=True, slots=True)
class ExecutorPromise:
    """One thing that an executor must keep. `str(promise)` is its readable id."""

    capability: str
    name: str
    text: str
    attempt: Callable[[Executor], Awaitable[None]]

    def __str__(self) -> str:
        return f"{self.capability}: {self.name.replace('_', ' ')}"

    def check(self, make_executor: ExecutorMaker, make_tool: ToolMaker | None = None) -> None:
        """Try it on a new executor, on an event loop of its own. Raises AssertionError where the promise is broken."""
        asyncio.run(self._attempt(make_executor(), make_tool))

    async def _attempt(self, executor: Executor, make_tool: ToolMaker | None) -> None:
        _tool_maker.set(make_tool)
        await executor.start()
        try:
            await self.attempt(executor)
        finally:
            await executor.stop()


@dataclass(frozen=True, slots=True)
class ExecutorFinding:
    """What came of one promise: "kept", "broken" (with the reason), or "not offered"."""

    promise: ExecutorPromise
    outcome: str
    reason: str | None = None


_promises: list[ExecutorPromise] = []
_Check = Callable[[Executor], Awaitable[None]]


def _promise(capability: str) -> Callable[[_Check], _Check]:
    """Enter a check of a started executor."""

    def enter(check: _Check) -> _Check:
        _promises.append(ExecutorPromise(capability, check.__name__, (check.__doc__ or "").strip(), check))
        return check

    return enter


# -- running -----------------------------------------------------------------------------------------------------------


def executor_capabilities(make_executor: ExecutorMaker) -> frozenset[str]:
    """The optional capabilities that an executor offers."""
    plain = make_tool(tools.echo, effects="none")
    isolated = make_tool(tools.echo, effects="none", isolation="process")
    executor = make_executor()
    isolates = executor.accepts(isolated) is None
    functions = isolates or executor.accepts(plain) is None
    return frozenset(name for name, offered in (("functions", functions), ("isolation", isolates)) if offered)


def check_executor(make_executor: ExecutorMaker, make_tool: ToolMaker | None = None) -> list[ExecutorFinding]:
    """Try every promise, each on a new executor, and say what came of it."""
    offered = executor_capabilities(make_executor)
    findings: list[ExecutorFinding] = []
    for promise in EXECUTOR_PROMISES:
        if promise.capability in OPTIONAL_EXECUTOR_CAPABILITIES - offered:
            findings.append(ExecutorFinding(promise, "not offered"))
            continue
        try:
            promise.check(make_executor, make_tool)
        except Exception as error:  # noqa: BLE001 - an executor's own error breaks the promise as an assertion does
            findings.append(ExecutorFinding(promise, "broken", f"{type(error).__name__}: {error}"))
        else:
            findings.append(ExecutorFinding(promise, "kept"))
    return findings


def _tool(executor: Executor, function: Callable[..., Any]) -> Tool:
    """A tool of the least isolation that the executor takes, or the one that it has for this function."""
    maker = _tool_maker.get()
    if maker is not None:
        return maker(function)
    plain = make_tool(function, effects="none")
    return plain if executor.accepts(plain) is None else make_tool(function, effects="none", isolation="process")


def _call(executor: Executor, function: Callable[..., Any], params: dict[str, Any], **options: Any) -> Call:
    return Call(_tool(executor, function), params, "call-1", options.pop("key", "key-1"), **options)


async def _run(executor: Executor, function: Callable[..., Any], _limits: dict[str, Any], **params: Any) -> Outcome:
    return await executor.execute(_call(executor, function, params, **_limits))


async def _begun(executor: Executor, **params: Any) -> asyncio.Task[Outcome]:
    """A call of `write_later` that is under way."""
    begun = asyncio.Event()

    def listener(_: str | float) -> None:
        begun.set()

    call = asyncio.create_task(_run(executor, tools.write_later, {"on_progress": listener}, **params))
    await asyncio.wait_for(begun.wait(), 60)
    return call


def _failed(outcome: Outcome, code: str, status: str = "failed") -> dict[str, Any]:
    """The error of an outcome that must have failed with this code."""
    assert outcome.status == status, outcome
    assert outcome.output is None, outcome
    assert outcome.error is not None
    assert outcome.error["code"] == code, outcome
    assert outcome.error["what"], outcome
    return outcome.error


def _sleepers(seconds: str) -> list[int]:
    """Living processes that were started as `sleep <seconds>`."""
    found: list[int] = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if process.info["cmdline"] == ["sleep", seconds] and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


def _rare(number: int) -> str:
    """A number of seconds that no other sleeper of this machine has: far longer than any limit here."""
    return f"{61 + number}.{os.getpid():07d}"


async def _none_left(seconds: str) -> None:
    """Killed processes take a moment to go; what is still there after two seconds was not killed."""
    for _ in range(200):
        if not _sleepers(seconds):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"still alive: {_sleepers(seconds)}")


# -- results -----------------------------------------------------------------------------------------------------------


@_promise("results")
async def values_come_back_as_they_were(executor: Executor) -> None:
    """Parameters and results are any JSON, from functions and from coroutines."""
    nested: list[Any] = [[], {}]
    value = {
        "城市": "中文",
        "numbers": [0, -1, 2**62, 1.5, True, None],
        "": {"nested": nested},
        "long": "明" * 100_000,
    }
    for function in (tools.echo, tools.echo_later):
        outcome = await _run(executor, function, {}, value=value)
        assert outcome.ok, outcome
        assert outcome.error is None
        assert outcome.output == value
        assert outcome.executor == executor.name
        assert 0 < outcome.started <= outcome.finished
        assert outcome.seconds >= 0


@_promise("results")
async def typed_parameters_are_built(executor: Executor) -> None:
    """A dataclass arrives as one, and leaves as its JSON form."""
    outcome = await _run(executor, tools.turned, {}, spot={"latitude": 1.5})
    assert outcome.output == {"latitude": 0.0, "longitude": 1.5}, outcome


@_promise("results")
async def calls_side_by_side_keep_their_own_answers(executor: Executor) -> None:
    """As many calls as the capacity says run at the same time, each with its own result."""
    count = min(8, executor.capacity)
    outcomes = await asyncio.gather(
        *(_run(executor, tools.echo_later, {}, value=number, seconds=0.02 * (number % 3)) for number in range(count))
    )
    assert [outcome.output for outcome in outcomes] == list(range(count))


# -- failures ----------------------------------------------------------------------------------------------------------


@_promise("failures")
async def a_raising_tool_is_an_outcome(executor: Executor) -> None:
    """The error says what the tool said, and the next call runs."""
    assert "城市未知" in _failed(await _run(executor, tools.fail, {}, message="城市未知"), "ToolFailed")["what"]
    assert (await _run(executor, tools.echo, {}, value=1)).output == 1


@_promise("functions")
async def a_raising_function_tells_type_and_place(executor: Executor) -> None:
    """The error says type and message, and its traceback ends in the tool."""
    error = _failed(await _run(executor, tools.fail, {}, message="城市未知"), "ToolFailed")
    assert error["type"] == "ValueError"
    assert error["what"] == "城市未知"
    assert "in fail" in error["traceback"]


@_promise("functions")
async def a_tool_that_exits_ends_its_call_only(executor: Executor) -> None:
    """`sys.exit()` in a tool is a failure of that call; the next one runs."""
    assert _failed(await _run(executor, tools.leave, {}, code=3), "ToolFailed")["type"] == "SystemExit"
    assert (await _run(executor, tools.echo, {}, value=1)).output == 1


@_promise("functions")
async def a_result_that_is_not_json_is_named(executor: Executor) -> None:
    """NaN, sets and tuples aren't handed on; the error points at them."""
    for kind in ("nan", "set", "tuple"):
        assert _failed(await _run(executor, tools.odd, {}, kind=kind), "BadOutput")["path"] == "/deep/0"


@_promise("failures")
async def a_tool_that_is_not_accepted_is_refused(executor: Executor) -> None:
    """`accepts` gives a reason, and `execute` raises ToolInvalid rather than try."""
    name = "not_found"
    for isolation in ("none", "process"):
        stray = Tool(name, {}, {}, lambda: 1, effects="none", isolation=isolation)
        reason = executor.accepts(stray)
        if reason is None:
            assert (await executor.execute(Call(stray, {}, "c", "k"))).output == 1
            continue
        assert reason
        refusal = ""
        try:
            await executor.execute(Call(stray, {}, "c", "k"))
        except ToolInvalid as error:
            refusal = str(error)
        assert name in refusal


# -- context and limits ------------------------------------------------------------------------------------------------


@_promise("context")
async def the_context_brings_key_deadline_and_progress(executor: Executor) -> None:
    """The key is the call's, the deadline what is left of the total limit, progress reaches the caller in order."""
    heard: list[str | float] = []
    outcome = await _run(executor, tools.about_the_call, {"key": "钥匙", "total": 50.0, "on_progress": heard.append})
    await asyncio.sleep(0)
    assert outcome.output["key"] == "钥匙", outcome
    assert 0 < outcome.output["deadline"] <= 50.0
    assert heard == ["begun", 0.5]
    assert (await _run(executor, tools.about_the_call, {})).output["deadline"] is None


@_promise("context")
async def a_listener_that_fails_does_no_harm(executor: Executor) -> None:
    """An error in `on_progress` is not the tool's."""

    def listener(_: str | float) -> None:
        raise RuntimeError("the listener's own fault")

    assert (await _run(executor, tools.about_the_call, {"on_progress": listener})).ok


@_promise("limits")
async def the_total_limit_ends_a_call(executor: Executor) -> None:
    """After `total` seconds the call is timed out, progress or not, and what it was going to do isn't done."""
    with tempfile.TemporaryDirectory() as folder:
        late = Path(folder) / "late"
        outcome = await _run(executor, tools.write_later, {"total": 0.2}, path=str(late), seconds=0.6)
        assert _failed(outcome, "TimedOut", "timed_out")["limit"] == "total"
        await asyncio.sleep(0.8)
        assert not late.exists()
    outcome = await _run(executor, tools.report_often, {"total": 0.3, "idle": 10.0}, times=100, pause=0.05)
    assert _failed(outcome, "TimedOut", "timed_out")["limit"] == "total"


@_promise("limits")
async def progress_renews_the_idle_limit(executor: Executor) -> None:
    """A tool that keeps reporting may take longer than `idle`; one that says nothing may not."""
    outcome = await _run(executor, tools.report_often, {"idle": 1.0, "total": 60.0}, times=6, pause=0.3)
    assert outcome.output == 6, outcome
    outcome = await _run(executor, tools.report_often, {"idle": 0.2, "total": 60.0}, times=1, pause=30.0)
    assert _failed(outcome, "TimedOut", "timed_out")["limit"] == "idle"


@_promise("limits")
async def a_cancelled_call_ends(executor: Executor) -> None:
    """Cancelling `execute` ends the tool, and the executor goes on."""
    with tempfile.TemporaryDirectory() as folder:
        late = Path(folder) / "late"
        call = await _begun(executor, path=str(late), seconds=0.5)
        call.cancel()
        try:
            await call
        except asyncio.CancelledError:
            pass
        else:
            raise AssertionError("a cancelled call gave an outcome")
        await asyncio.sleep(0.8)
        assert not late.exists()
    assert (await _run(executor, tools.echo, {}, value=1)).output == 1


# -- stopping ----------------------------------------------------------------------------------------------------------


@_promise("stopping")
async def a_stop_ends_running_calls(executor: Executor) -> None:
    """They end as ExecutorStopped; afterwards calls are refused until it is started again."""
    call = await _begun(executor, path="", seconds=60.0)
    await asyncio.create_task(executor.stop())
    _failed(await call, "ExecutorStopped")
    await executor.stop()
    try:
        await _run(executor, tools.echo, {}, value=1)
    except HomeClosed:
        pass
    else:
        raise AssertionError("a stopped executor ran a call")
    await executor.start()
    assert (await _run(executor, tools.echo, {}, value=2)).output == 2


# -- isolation ---------------------------------------------------------------------------------------------------------


@_promise("isolation")
async def a_hanging_tool_is_ended_with_its_whole_tree(executor: Executor) -> None:
    """At its limit a tool that never gives way is ended, and so are its children, in whatever session they are."""
    outcome = await _run(executor, tools.block, {"total": 0.3}, seconds=60.0)
    _failed(outcome, "TimedOut", "timed_out")
    seconds = _rare(1)
    outcome = await _run(executor, tools.start_and_wait, {"total": 0.6}, seconds=seconds)
    _failed(outcome, "TimedOut", "timed_out")
    await _none_left(seconds)
    assert (outcome.leaked_processes or 0) >= 3, outcome


@_promise("isolation")
async def a_cancelled_call_leaves_no_process(executor: Executor) -> None:
    """When `execute` was cancelled, nothing that its tool started is alive."""
    seconds = _rare(2)
    call = asyncio.create_task(_run(executor, tools.start_and_wait, {}, seconds=seconds))
    while len(_sleepers(seconds)) < 3:
        await asyncio.sleep(0.02)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert call.cancelled()
    await _none_left(seconds)


@_promise("isolation")
async def what_a_tool_leaves_behind_is_ended_and_counted(executor: Executor) -> None:
    """A call doesn't wait for processes left in the background; they end with it, and the outcome says how many."""
    seconds = _rare(3)
    outcome = await _run(executor, tools.start_and_go, {"total": 30.0}, seconds=seconds)
    assert outcome.output == "gone", outcome
    assert outcome.leaked_processes == 2, outcome
    await _none_left(seconds)


@_promise("isolation")
async def a_dying_tool_ends_its_call_only(executor: Executor) -> None:
    """The outcome says how it died; what it left behind is ended; the next call runs."""
    error = _failed(await _run(executor, tools.vanish, {}, code=3), "WorkerDied")
    assert error["exit_code"] == 3
    error = _failed(await _run(executor, tools.be_killed, {}), "WorkerDied")
    assert error["signal"] == signal.SIGKILL.name
    seconds = _rare(4)
    outcome = await _run(executor, tools.start_and_vanish, {}, seconds=seconds, code=4)
    assert outcome.exit_code == 4, outcome
    await _none_left(seconds)
    assert (await _run(executor, tools.echo, {}, value=1)).output == 1


@_promise("isolation")
async def printing_is_recorded_and_breaks_nothing(executor: Executor) -> None:
    """What a tool prints, in any bytes and amount, is in the outcome's tail and can't be taken for a message."""
    for text in ("晴天", "x" * 300_000):
        outcome = await _run(executor, tools.chatter, {}, text=text)
        assert outcome.output == text
        assert text[-100:] in outcome.stdout
        assert "raw noise" in outcome.stdout
        assert text[-100:] in outcome.stderr
    assert (await _run(executor, tools.echo, {}, value=1)).stdout == ""


@_promise("isolation")
async def a_call_is_measured(executor: Executor) -> None:
    """CPU seconds and peak memory are there, and are those of a real process."""
    outcome = await _run(executor, tools.echo, {}, value=1)
    assert outcome.cpu_seconds is not None
    assert outcome.cpu_seconds >= 0
    assert outcome.peak_memory_mb is not None
    assert outcome.peak_memory_mb > 1


@_promise("isolation")
async def a_stop_leaves_no_child(executor: Executor) -> None:
    """After a stop, in the middle of calls, no process of this one is left that wasn't there before."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    await _run(executor, tools.echo, {}, value=1)
    calls = [
        asyncio.create_task(_run(executor, tools.start_and_wait, {}, seconds=_rare(5)))
        for _ in range(min(2, executor.capacity))
    ]
    while len(_sleepers(_rare(5))) < 3 * len(calls):
        await asyncio.sleep(0.02)
    await executor.stop()
    for call in calls:
        _failed(await call, "ExecutorStopped")
    await _none_left(_rare(5))
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


EXECUTOR_PROMISES: Final = tuple(_promises)
