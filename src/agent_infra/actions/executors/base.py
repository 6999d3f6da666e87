"""What an executor is: it takes a call and gives its outcome.

A failing tool is an outcome, not an exception. The codes that an outcome's `error` may hold:

    ToolFailed        the tool raised
    BadOutput         what it gave is not JSON, or too large to hand over
    BadInput          the parameters are too large to hand over
    TimedOut          it passed its idle, total or CPU limit (`limit` says which)
    ToolOutOfMemory   its process tree passed the memory limit and was ended, or it ran out by itself; `memory` says of
                      what: "host" or "gpu"
    WorkerDied        its worker process ended under it (`exit_code`, and `signal` where one ended it)
    ToolNotLoaded     its module can't be imported in a worker, its command not be started in its image
    ContractDrift     its source there is another one than where it was registered
    ServerNoise       its MCP server printed too much that is no message, and was ended
    ExecutorUnavailable  the call didn't begin: no container engine, no image, no server, a full disk (`reason`)
    ExecutorStopped   the executor was stopped while it ran

After TimedOut, ToolOutOfMemory, WorkerDied and ExecutorStopped nobody knows what the tool had done before it ended.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias

from agent_infra.actions.secrets import NO_SETTINGS, Sealed
from agent_infra.actions.tools import Tool
from agent_infra.clock import MICROS, Clock, SystemClock
from agent_infra.errors import NotJson
from agent_infra.observability import get_logger

Status: TypeAlias = Literal["succeeded", "failed", "timed_out"]
Failure: TypeAlias = "dict[str, Any]"
_log = get_logger(__name__)
_TRACEBACK_LINES = 30
_HERE = str(Path(__file__).parents[1])


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool, its parameters already checked.

    idle         seconds that may pass without progress, or None
    total        seconds that it may take, from when the tool begins, or None
    on_progress  called on the executor's loop with each message or fraction that the tool reports, and each `usage`
    resources    what it needs while it runs: cpu cores, memory_mb (MiB), gpu, gpu_memory_mb
    settings     the tool's settings, to be opened where the tool is called
    """

    tool: Tool
    params: dict[str, Any]
    call_id: str
    idempotency_key: str
    idle: float | None = None
    total: float | None = None
    on_progress: Callable[[Any], Any] | None = None
    resources: Mapping[str, float] = field(default_factory=dict[str, float])
    settings: Sealed = NO_SETTINGS

    def report(self, update: Any) -> None:
        """Pass on what the tool reports. A listener that fails doesn't harm the call."""
        if self.on_progress is not None:
            try:
                self.on_progress(update)
            except Exception as error:  # noqa: BLE001
                _log.warning("tool.progress_listener_failed", call=self.call_id, error=repr(error))


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended. What an executor can't measure is None, never 0.

    started, finished  microseconds since 1970
    stdout, stderr     the tail of what it printed, where it has a process of its own
    exit_code          of a worker that ended under the call; -N for signal N
    peak_memory_mb     MiB resident of its process tree; pages shared between processes count once each
    peak_gpu_memory_mb  MiB on GPUs of its process tree
    leaked_processes   processes it left behind, which were ended with it
    facts              what else its executor knows, as JSON: an image's digest, lines of noise, how a cancel went
    """

    status: Status
    output: Any
    error: Failure | None
    started: int
    finished: int
    executor: str
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    cpu_seconds: float | None = None
    peak_memory_mb: float | None = None
    leaked_processes: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    peak_gpu_memory_mb: float | None = None

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.status == "succeeded"

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.finished - self.started) / MICROS


class Executor(Protocol):
    """Runs tools. `agent_infra.testing.executors` holds the promises that every executor keeps."""

    @property
    def name(self) -> str:
        """How outcomes and waiting reasons call it."""
        ...

    @property
    def capacity(self) -> int:
        """Calls that it runs at the same time."""
        ...

    @property
    def cost(self) -> float:
        """What a call costs here, against one in this process, which costs 0. The cheapest kind that fits is used."""
        ...

    @property
    def resources(self) -> Mapping[str, float]:
        """What its calls may take together: cpu cores, memory_mb (MiB), gpu, …; what isn't named isn't counted."""
        ...

    def is_warm(self, tool: Tool) -> bool:
        """Whether a call of the tool could begin at once."""
        ...

    def accepts(self, tool: Tool) -> str | None:
        """None if it can run the tool, else why not."""
        ...

    async def start(self) -> None:
        """Get ready; called before the first call, and again after a stop. Harmless when started."""
        ...

    async def stop(self) -> None:
        """End running calls (ExecutorStopped) and leave no process behind. From any task; harmless when stopped."""
        ...

    async def execute(self, call: Call) -> Outcome:
        """Run a call. A cancelled `execute` ends the call first.

        Raises ToolInvalid for a tool that it doesn't accept, HomeClosed when it isn't started.
        """
        ...


class Timer:
    """When a call began and ended, by the clock, with a length that a corrected system clock can't bend."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.started = (clock or SystemClock()).micros()
        self._began = time.perf_counter()

    def finished(self) -> int:
        """Now, as microseconds since 1970."""
        return self.started + round((time.perf_counter() - self._began) * MICROS)


class Limits:
    """A call's idle and total limit. Progress renews the idle one; any thread may call `renew`."""

    def __init__(self, idle: float | None, total: float | None) -> None:
        self._idle, self._total = idle, total
        self._began = self._renewed = time.monotonic()

    def renew(self) -> None:
        """There was progress."""
        self._renewed = time.monotonic()

    def left(self) -> float | None:
        """Seconds until the nearer limit, never below 0; None without limits."""
        ends = [
            since + limit
            for since, limit in ((self._renewed, self._idle), (self._began, self._total))
            if limit is not None
        ]
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def passed(self) -> Failure | None:
        """The error of the limit that was passed, if one was."""
        now = time.monotonic()
        for word, since, limit in (("total", self._began, self._total), ("idle", self._renewed, self._idle)):
            if limit is not None and now - since >= limit:
                what = f"it took longer than {limit:g} s" if word == "total" else f"no progress for {limit:g} s"
                return {"code": "TimedOut", "what": what, "limit": word, "seconds": limit}
        return None


async def until_done(work: asyncio.Future[Any], limits: Limits) -> Failure | None:
    """Wait for `work`, which is left as it is; the error of the limit that passed first, if one did."""
    while not work.done():
        await asyncio.wait({work}, timeout=limits.left())
        passed = None if work.done() else limits.passed()
        if passed is not None:
            return passed
    return None


def stopped(name: str) -> Failure:
    """The error of a call whose executor was stopped under it."""
    return {"code": "ExecutorStopped", "what": f"the {name} executor was stopped while the call ran"}


_LESS: Final = (
    "Give it less at a time (a document by pages, a table by rows), use a variant of the tool that needs less"
)
LESS_MEMORY: Final = f"{_LESS}, or raise memory_limit_mb."
LESS_MEMORY_IN_CONTAINER: Final = f"{_LESS}, or raise memory_mb (of the tool, or in the resources of its contract)."
LESS_GPU_MEMORY: Final = (
    "Use the tool's CPU variant (an executor with cpu_only=True hides the GPU from it), give it less at a time, or place "
    "it where more GPU memory is free."
)


def failure_of(error: BaseException) -> Failure:
    """The `error` of an outcome for what a tool raised: type, message, traceback from the tool on."""
    if isinstance(error, NotJson):
        return {"code": "BadOutput", "what": str(error), "path": error.facts.get("path", "/")}
    out_of_memory = _memory_error(error)
    lines = "".join(traceback.format_exception(type(error), error, _outside(error))).splitlines()
    return {
        "code": "ToolFailed",
        "what": _storable(str(error) or type(error).__name__),
        "type": type(error).__name__,
        "traceback": _storable("\n".join(lines[-_TRACEBACK_LINES:])),
    } | (out_of_memory or {})


def _memory_error(error: BaseException) -> Failure | None:
    """What differs where a tool ran out of memory by itself: of the host, or of a GPU, as torch, CuPy and JAX tell it."""
    module, text = type(error).__module__.partition(".")[0], str(error)
    if isinstance(error, MemoryError) and module == "builtins":
        return {"code": "ToolOutOfMemory", "memory": "host", "mend": LESS_MEMORY}
    named = "OutOfMemory" in type(error).__name__
    if (module in ("torch", "cupy") and (named or "out of memory" in text)) or "RESOURCE_EXHAUSTED" in text:
        return {"code": "ToolOutOfMemory", "memory": "gpu", "mend": LESS_GPU_MEMORY}
    return None


def _storable(text: str) -> str:
    """Text that UTF-8 can hold: a message may quote a file name with undecodable bytes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _outside(error: BaseException) -> Any:
    """An error's traceback without the leading frames of this library, which say nothing about the tool."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next
    return trace
