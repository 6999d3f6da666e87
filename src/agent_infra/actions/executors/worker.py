"""A worker process, seen from inside: `python -m agent_infra.actions.executors.worker`, started by a `ProcessExecutor`.

Tools run on the main thread, one at a time, as they would in a script; coroutines on one event loop that lives as
long as the worker, so what a tool keeps between calls (a client, a model) stays good. Another thread listens to the
parent: when the parent is gone, the worker ends itself and everything that its tools started.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import io
import math
import os
import queue
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable
from typing import Any

import msgspec

from agent_infra.actions.executors.base import failure_of
from agent_infra.actions.executors.tree import end_descendants
from agent_infra.actions.executors.wire import Address, Bounds, Done, Load, Loaded, Progress, Ready, Run, WorkerSide
from agent_infra.actions.tools.binding import Binding, bind
from agent_infra.actions.tools.context import CallContext
from agent_infra.actions.tools.places import Place, find
from agent_infra.errors import ContractDrift

_PR_SET_CHILD_SUBREAPER = 36
_FAREWELL = 2.0


class _Worker:
    def __init__(self, side: WorkerSide, bounds: Bounds) -> None:
        self._side = side
        self._bounds = bounds
        self._inbox: queue.SimpleQueue[Load | Run | None] = queue.SimpleQueue()
        self._busy = threading.Lock()  # held while a tool runs: tells the listener how to end
        self._bindings: dict[Address, Binding] = {}
        self._runner: asyncio.Runner | None = None

    def serve(self) -> None:
        """Answer the parent until it is gone."""
        threading.Thread(target=self._listen, name="agent-infra-parent", daemon=True).start()
        self._side.send(Ready(_adopt_orphans()))
        while True:
            message = self._inbox.get()
            if message is None:
                break
            with self._busy:
                self._answer(message)
        if self._runner is not None:
            self._runner.close()

    def _listen(self) -> None:
        while True:
            message = self._side.receive()
            if message is None:
                break
            self._inbox.put(message)
        if not self._busy.locked():  # idle: leave by the front door, so that exit handlers run
            self._inbox.put(None)
            time.sleep(_FAREWELL)
        end_descendants(os.getpid())
        os.killpg(0, signal.SIGKILL)

    def _answer(self, message: Load | Run) -> None:
        if isinstance(message, Load):
            self._side.send(self._load(message))
            return
        done = self._run(message)
        try:
            self._side.send(done)
        except ValueError as error:
            failure = {"code": "BadOutput", "what": f"the output is {error}", "path": "/"}
            self._side.send(msgspec.structs.replace(done, output=None, error=failure))

    def _load(self, message: Load) -> Loaded:
        sys.path[:] = [*message.path, *(each for each in sys.path if each not in message.path)]
        address = message.address
        try:
            function = find(Place(address.module, address.file, address.qualname, address.digest))
            self._bindings[address] = bind(function, address.qualname)
        except ContractDrift as drift:
            return Loaded({"code": drift.code, "what": drift.what, "why": drift.why, "mend": drift.mend})
        except BaseException as error:  # noqa: BLE001 - importing runs the user's module
            return Loaded(failure_of(error) | {"code": "ToolNotLoaded"})
        return Loaded(None)

    def _run(self, message: Run) -> Done:
        began = _cpu_seconds()
        _bound_cpu(self._bounds.cpu_seconds)
        measured = _reset_peak()
        output, error = self._call(message)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        leaked = _end_children()
        peak = _peak_mb() if measured else None
        return Done(message.number, output, error, _cpu_seconds() - began, peak, leaked)

    def _call(self, message: Run) -> tuple[Any, dict[str, Any] | None]:
        def report(update: Any) -> None:
            self._side.send(Progress(message.number, update))

        context = CallContext(
            message.idempotency_key, seconds=message.seconds, report=report, settings=message.settings
        )
        try:
            binding = self._bindings[message.address]
            value = binding.call(message.params, context)
            if inspect.isawaitable(value):
                value = self._on_loop(value)
            return binding.plain(value), None
        except BaseException as error:  # noqa: BLE001 - also SystemExit: a tool can't end its worker by raising
            return None, failure_of(error)

    def _on_loop(self, value: Awaitable[Any]) -> Any:
        async def run() -> Any:
            return await value

        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(run())


def _adopt_orphans() -> bool:
    """Make this process the one that orphans of its tree go to; False where the system has no such thing."""
    try:
        return ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False


def _end_children() -> int:
    """Kill and reap what a call left behind; how many processes were alive. One system call where there are none."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0
    ended = end_descendants(os.getpid(), _helpers())
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return ended


def _helpers() -> frozenset[int]:
    """Processes that Python itself keeps beside this one: multiprocessing starts its resource tracker once."""
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    pid = getattr(tracker, "_pid", None)
    return frozenset({pid} if isinstance(pid, int) else ())


def _cpu_seconds() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _reset_peak() -> bool:
    """Begin to measure peak memory anew; False where the system can't."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        return False
    return True


def _peak_mb() -> float | None:
    with open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) / 1024
    return None


def _bound_files(bounds: Bounds) -> None:
    """Set this process's limits of files; what it starts inherits them."""
    for kind, most in (
        (resource.RLIMIT_NOFILE, bounds.open_files),
        (resource.RLIMIT_FSIZE, None if bounds.file_mb is None else round(bounds.file_mb * 2**20)),
    ):
        if most is not None:
            _, hard = resource.getrlimit(kind)
            resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _bound_cpu(seconds: float | None) -> None:
    """Let the system end this process (SIGXCPU) once it has used so many CPU seconds more; whole ones, rounded up."""
    if seconds is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(used.ru_utime + used.ru_stime + seconds), hard))


def main(descriptor: int, python_path: str, bounds: Bounds) -> None:
    """Serve the parent at the other end of a socket. `python_path` is the PYTHONPATH that tools' own processes get."""
    _bound_files(bounds)
    if python_path:
        os.environ["PYTHONPATH"] = python_path
    else:
        os.environ.pop("PYTHONPATH", None)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    link = socket.socket(fileno=descriptor)
    link.set_inheritable(False)
    _Worker(WorkerSide(link), bounds).serve()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Bounds.of(sys.argv[3]))
