"""Tools of MCP servers: sessions that are opened at need, watched, and opened again when a server died.

    limits   idle (renewed by the server's progress) and total; past either, or when the call is cancelled, the server is
             sent the cancel notice, and the outcome's facts say whether it acknowledged: whether it answered a ping that
             was sent after the notice. A server that doesn't is ended, unless other calls run in it. A call without
             any limit gets `silence_limit` as its idle one
    death    a server's exit ends its calls at once as WorkerDied, with its exit code
    noise    lines on its standard output that are no messages are the outcome's `stdout`; `facts["noise"]` counts them
    drift    a tool that isn't the registered one any more as its session begins is not called: `ContractDrift`
    again    a server that died is started again at the next call, after a pause that doubles with each death in a row

Needs the extra `[mcp]`; the library is imported at the first call.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from agent_infra.actions.executors.base import Call, Failure, Limits, Outcome, Timer, stopped, until_done
from agent_infra.actions.executors.handle import uncut
from agent_infra.actions.tools import Tool
from agent_infra.actions.tools.elsewhere import OnMcpServer
from agent_infra.actions.tools.mcp import Discovered, McpServer
from agent_infra.clock import Clock
from agent_infra.errors import AgentInfraError, ExecutorUnavailable, HomeClosed, ToolInvalid

if TYPE_CHECKING:
    from agent_infra.actions.executors.mcp_session import McpSession

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_NOTICE: Final = 6.0
_SESSION_GONE: Final = (-32000, -32600)
"""JSON-RPC codes of a closed connection, and of a session that the server no longer knows."""


class McpExecutor:
    """Runs the tools of MCP servers, in sessions of one event loop.

    servers        as declared
    registered     the tool of a name as it is known now; a call of another state of it is refused
    on_tools       told of a server's tools when a session begins, and whenever the server says that they changed
    resolve        makes the value of a variable or header from what is declared, such as `secret://NAME`
    capacity       calls at the same time, over all servers
    request_limit  seconds for each request that is no call of a tool, the first included
    silence_limit  seconds without progress for a call that has no limits of its own
    noise_limit    lines on a server's standard output that are no messages, between two outcomes
    deaths         how often in a row a server may die before calls are refused for `cool_down` seconds
    """

    def __init__(
        self,
        servers: Sequence[McpServer],
        *,
        on_tools: Callable[[Discovered], None] | None = None,
        registered: Callable[[str], Tool | None] | None = None,
        resolve: Callable[[str], str] = str,
        capacity: int = 32,
        request_limit: float = 30.0,
        silence_limit: float = 300.0,
        noise_limit: int = 1000,
        acknowledge_limit: float = 1.0,
        deaths: int = 5,
        cool_down: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        self.name = "mcp"
        self.cost = 20.0
        self.resources: Mapping[str, float] = {}
        self.capacity = capacity
        self.request_limit, self.silence_limit, self.noise_limit = request_limit, silence_limit, noise_limit
        self.acknowledge_limit = acknowledge_limit
        self.deaths, self.cool_down = deaths, cool_down
        self._on_tools, self._resolve, self._clock = on_tools, resolve, clock
        self._registered = registered
        self._slots = {server.name: _Slot(server) for server in servers}
        self._open = False
        self._running: set[asyncio.Future[None]] = set()

    @property
    def servers(self) -> list[str]:
        """The names of the servers."""
        return list(self._slots)

    def accepts(self, tool: Tool) -> str | None:
        """A tool of one of its servers."""
        if not isinstance(tool.run, OnMcpServer):
            return "the tool is on no MCP server"
        if tool.run.server not in self._slots:
            return f"there is no MCP server {tool.run.server!r}; known are {', '.join(self._slots) or 'none'}"
        return None

    def is_warm(self, tool: Tool) -> bool:
        """Whether there is a session with the tool's server."""
        slot = self._slots.get(tool.run.server) if isinstance(tool.run, OnMcpServer) else None
        return slot is not None and slot.session is not None and slot.session.usable

    async def start(self) -> None:
        """Let calls in. Servers start at the first one."""
        self._open = True

    async def stop(self) -> None:
        """End running calls as ExecutorStopped, close the sessions, end the servers' processes."""
        self._open = False
        sessions = [slot.session for slot in self._slots.values() if slot.session is not None]
        await asyncio.gather(*(session.close() for session in sessions))
        while self._running:
            await asyncio.wait(set(self._running))
        for slot in self._slots.values():
            if slot.session is not None:
                await slot.session.close()
                slot.session = None

    async def discover(self, server: str) -> Discovered:
        """What a server offers now. A session that is opened for this is closed again, unless calls have come into it.

        Raises ExecutorUnavailable, HomeClosed.
        """
        self._check_open()
        slot = self._slots.get(server)
        if slot is None:
            raise ExecutorUnavailable(
                f"there is no MCP server {server!r}", facts={"reason": "unknown_server", "known": self.servers}
            )
        before = slot.session
        session = await self._session(slot)
        if session is before:
            try:
                await session.list_again()
            except Exception as error:  # what a library raises for a connection that ends is its own
                raise _unavailable(slot, "no_list", _fate(session, error)) from error
        elif not slot.calls:
            slot.session = None
            await session.close()
        return session.found

    async def execute(self, call: Call) -> Outcome:
        """Run a call; see `Executor`."""
        run, reason = call.tool.run, self.accepts(call.tool)
        if reason is not None or not isinstance(run, OnMcpServer):
            raise ToolInvalid(f"{self.name} can't run {call.tool.name!r}", why=reason)
        self._check_open()
        running: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running.add(running)
        self._slots[run.server].calls += 1
        try:
            return await self._execute(call, run, self._slots[run.server])
        finally:
            self._slots[run.server].calls -= 1
            self._running.discard(running)
            running.set_result(None)

    def _check_open(self) -> None:
        if not self._open:
            raise HomeClosed("the mcp executor is stopped", mend="Start it before calls.")

    async def _execute(self, call: Call, run: OnMcpServer, slot: _Slot) -> Outcome:
        timer = Timer(self._clock)
        try:
            session = await self._session(slot)
        except ExecutorUnavailable as error:
            failure = {"code": error.code, "what": f"{error.what}: {error.why}", **error.facts}
            failure = failure if self._open else stopped(self.name)
            return Outcome("failed", None, failure, timer.started, timer.finished(), self.name)
        drift = self._drift(call.tool)
        if drift is not None:
            return Outcome("failed", None, drift, timer.started, timer.finished(), self.name)
        ended = await self._converse(session, call, run)
        if ended.error is None or ended.error["code"] == "ToolFailed":
            slot.deaths = 0
        finished, error = timer.finished(), ended.error
        return Outcome(
            "succeeded" if error is None else "timed_out" if error["code"] == "TimedOut" else "failed",
            ended.output,
            error,
            timer.started,
            finished,
            self.name,
            exit_code=_exit_code(session),
            **_printed(session, ended.facts),
        )

    def _drift(self, tool: Tool) -> Failure | None:
        """Why a tool can't be called as it was when the call was judged: its session's list has shown another state."""
        now = self._registered(tool.name) if self._registered is not None else tool
        if now is tool:
            return None
        if now is None:
            return _drifted(tool, "its server no longer offers it")
        if (now.run, now.version, now.input_schema, now.effects) == (
            tool.run,
            tool.version,
            tool.input_schema,
            tool.effects,
        ):
            return None
        if now.version != tool.version:
            return _drifted(tool, f"it was judged as version {tool.version}, and its server offers {now.version} now")
        return _drifted(tool, "its server has changed its parameters or its effects since it was judged")

    async def _converse(self, session: McpSession, call: Call, run: OnMcpServer) -> _Ended:
        from agent_infra.actions.executors.mcp_session import KEY_META, SECONDS_META

        idle = call.idle if (call.idle, call.total) != (None, None) else self.silence_limit
        limits = Limits(idle, call.total)

        def progressed(update: str | float) -> None:
            limits.renew()
            call.report(update)

        meta = {KEY_META: call.idempotency_key} | ({} if call.total is None else {SECONDS_META: call.total})
        work = asyncio.create_task(session.call(run.tool, call.params, meta, progressed))
        try:
            passed = await until_done(work, limits)
        except asyncio.CancelledError:
            with contextlib.suppress(asyncio.CancelledError):
                await uncut(asyncio.create_task(self._abandon(session, work)))
            raise
        if passed is not None:
            acknowledged = await self._abandon(session, work)
            return _Ended(error=passed, facts={"cancel": {"sent": True, "acknowledged": acknowledged}})
        return await self._result(session, work, run)

    async def _abandon(self, session: McpSession, work: asyncio.Task[Any]) -> bool:
        """Give a call up: the notice, and whether it was acknowledged; a server that is dead to us is ended."""
        work.cancel()
        await asyncio.wait({work}, timeout=_NOTICE)
        acknowledged = not session.broken and await session.answers(self.acknowledge_limit)
        if not acknowledged and not session.calls:
            await session.close()
        return acknowledged

    async def _result(self, session: McpSession, work: asyncio.Task[Any], run: OnMcpServer) -> _Ended:
        from mcp import MCPError

        from agent_infra.actions.executors.mcp_session import output_of, text_of

        error = work.exception() if not work.cancelled() else asyncio.CancelledError()
        if error is None:
            result = work.result()
            if not result.is_error:
                return _Ended(output_of(result, wrapped=run.wrapped))
            return _Ended(error={"code": "ToolFailed", "what": text_of(result) or "the server says no more"})
        if not self._open:
            return _Ended(error=stopped(self.name))
        if session.process is not None:  # its end may be behind the news of its closed output
            await asyncio.wait({session.process.ended}, timeout=0 if isinstance(error, ValueError) else 1.0)
        if session.broken or (isinstance(error, MCPError) and error.code in _SESSION_GONE):
            await session.close()
            return _Ended(error=_death(session, error))
        if isinstance(error, MCPError):
            return _Ended(error={"code": "ToolFailed", "what": error.message, "rpc_code": error.code})
        what = f"its answer is not what the protocol allows: {error}"
        return _Ended(error={"code": "BadOutput", "what": what[:2000], "path": "/"})

    # -- sessions ----------------------------------------------------------------------------------

    async def _session(self, slot: _Slot) -> McpSession:
        """An open session with a server. Raises ExecutorUnavailable."""
        async with slot.lock:
            if slot.session is not None and slot.session.usable:
                return slot.session
            if slot.session is not None:
                await slot.session.close()
                slot.died(_fate(slot.session, None))
                slot.session = None
            await self._pause(slot)
            slot.session = await self._opened(slot)
            return slot.session

    async def _pause(self, slot: _Slot) -> None:
        """Wait before a server is started again; refuse while it has died too often."""
        since = time.monotonic() - slot.since
        if slot.deaths > self.deaths and since < self.cool_down:
            raise _unavailable(slot, "died_too_often", f"it ended {slot.deaths} times in a row; last: {slot.fate}")
        if slot.deaths:
            await asyncio.sleep(max(0.0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (slot.deaths - 1)) - since))

    async def _opened(self, slot: _Slot) -> McpSession:
        if importlib.util.find_spec("mcp") is None:
            raise _unavailable(slot, "not_installed", "the library `mcp` is not installed: install agent-infra-rl[mcp]")
        from agent_infra.actions.executors.mcp_session import McpSession, SessionOptions

        options = SessionOptions(self.request_limit, self.noise_limit, self._resolve, self._on_tools)
        session = McpSession(slot.server, options)
        try:
            await session.open()
            self._check_open()
        except BaseException as error:
            await session.close()
            if isinstance(error, asyncio.CancelledError) or not isinstance(error, Exception):
                raise
            fate = _fate(session, error)
            slot.died(fate)
            raise _unavailable(slot, "no_session", fate) from error
        return session


@dataclass(slots=True, eq=False)
class _Slot:
    """A server, its session if there is one, the calls that use or open it, and how often in a row it died."""

    server: McpServer
    session: McpSession | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    calls: int = 0
    deaths: int = 0
    since: float = 0.0
    fate: str = ""

    def died(self, fate: str) -> None:
        self.deaths, self.since, self.fate = self.deaths + 1, time.monotonic(), fate


@dataclass(frozen=True, slots=True)
class _Ended:
    output: Any = None
    error: Failure | None = None
    facts: dict[str, Any] = field(default_factory=dict[str, Any])


def _exit_code(session: McpSession) -> int | None:
    process = session.process
    return process.ended.result() if process is not None and process.ended.done() else None


def _printed(session: McpSession, facts: dict[str, Any]) -> dict[str, Any]:
    """What a server's process printed: fields of an outcome."""
    facts = {"server": session.server.name} | facts
    if session.process is None:
        return {"facts": facts}
    lines, noise = session.process.take_noise()
    return {"stdout": noise, "stderr": session.process.take_errors(), "facts": facts | {"noise": lines}}


def _fate(session: McpSession, error: BaseException | None) -> str:
    """How a session ended, in words."""
    code = _exit_code(session)
    said = session.process.take_errors().strip() if session.process is not None and error is not None else ""
    if session.process is not None and session.process.fault is not None:
        return f"the server was ended: {session.process.fault[1]}"
    if code is not None:
        return f"the server exited with code {code}" + (f", saying: {said[-500:]}" if said else "")
    while isinstance(error, BaseExceptionGroup):  # as task groups wrap what ended them
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    words = error.what if isinstance(error, AgentInfraError) else str(error or "")
    return words or (type(error).__name__ if error is not None else "the session was closed")


def _death(session: McpSession, error: BaseException) -> Failure:
    fault = session.process.fault if session.process is not None else None
    if fault is not None:
        return {"code": fault[0], "what": f"its server was ended: {fault[1]}"}
    code = _exit_code(session)
    if code is None:
        return {"code": "WorkerDied", "what": f"the connection to its server was lost: {error}"}
    return {"code": "WorkerDied", "what": f"its server exited with code {code}", "exit_code": code}


def _drifted(tool: Tool, why: str) -> Failure:
    return {
        "code": "ContractDrift",
        "what": f"the tool {tool.name!r} is another by now: {why}",
        "mend": "Ask for the action again: it is then judged by the tool as it is now.",
    }


def _unavailable(slot: _Slot, reason: str, why: str) -> ExecutorUnavailable:
    return ExecutorUnavailable(
        f"there is no session with the MCP server {slot.server.name!r}",
        why=why,
        mend="Run its command by hand, or look at its URL; `[mcp.NAME]` in agent_infra.toml declares it.",
        facts={"reason": reason, "server": slot.server.name},
    )
