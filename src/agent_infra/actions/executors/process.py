"""Tools in worker processes: what hangs, grows or crashes there can be ended, and takes nothing else with it.

Workers are started on demand and kept warm for the next call; each runs one call at a time. A worker that was
ended, or that died, is replaced at the next call. A tool's own processes end with its call, whatever it did to
hide them; what it printed is recorded. One kind escapes: a process that cleared its environment and outlived a
worker that died by itself.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Mapping
from typing import Any

from agent_infra.actions.executors.base import (
    LESS_MEMORY,
    Call,
    Failure,
    Limits,
    Outcome,
    Timer,
    stopped,
    until_done,
)
from agent_infra.actions.executors.handle import Gone, Worker, uncut
from agent_infra.actions.executors.memory import GpuMemory, MemoryWatch, Watched
from agent_infra.actions.executors.wire import Address, Bounds, Done
from agent_infra.actions.tools import Tool
from agent_infra.actions.tools.places import check_place
from agent_infra.clock import Clock
from agent_infra.errors import HomeClosed, ToolInvalid
from agent_infra.platform import machine_limits


class ProcessExecutor:
    """Runs tools in worker processes of one event loop.

    capacity         workers at the same time; default: one a core
    memory_limit_mb  MiB that a worker and all its descendants may hold together; never more than the machine lets us
    cpu_seconds      CPU time after which a call is ended; open_files, file_mb: files that a worker may hold open, and how
                     large one that it writes may be (MiB). None: the system's own limits
    cpu_only         its workers see no GPU, and calls that ask for one are refused
    idle_stop        seconds after which an idle worker is stopped
    gpu_memory       tells what processes hold on GPUs, as `GpuProbe.held` does; measured where it is given
    start_limit      seconds that a worker may take to start, and a tool's module to be imported
    """

    def __init__(
        self,
        *,
        capacity: int | None = None,
        memory_limit_mb: float = 24576,
        cpu_seconds: float | None = None,
        open_files: int | None = None,
        file_mb: float | None = None,
        cpu_only: bool = False,
        idle_stop: float = 60.0,
        start_limit: float = 60.0,
        gpu_memory: GpuMemory | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.name = "process"
        self.cost = 10.0
        machine = machine_limits()
        self.capacity = capacity or max(1, int(machine.cpus))
        self.memory_limit_mb = min(memory_limit_mb, machine.memory_mb or memory_limit_mb)
        self.resources: Mapping[str, float] = {
            "cpu": max(machine.cpus, float(self.capacity)),
            "memory_mb": machine.memory_mb or self.memory_limit_mb,
        } | ({"gpu": 0.0, "gpu_memory_mb": 0.0} if cpu_only else {})
        self.bounds = Bounds(cpu_seconds, open_files, file_mb, cpu_only)
        self.idle_stop = idle_stop
        self.start_limit = start_limit
        self._clock = clock
        self._memory = MemoryWatch(self.memory_limit_mb, None if cpu_only else gpu_memory)
        self._open = False
        self._idle: dict[Worker, asyncio.TimerHandle] = {}
        self._busy: set[Worker] = set()
        self._tasks: set[asyncio.Future[Any]] = set()  # calls and farewells that a stop waits for

    def accepts(self, tool: Tool) -> str | None:
        """Any tool whose function another process can find."""
        try:
            check_place(tool.run, tool.name)
        except ToolInvalid as error:
            return error.why
        return None

    def is_warm(self, tool: Tool) -> bool:
        """Whether an idle worker has imported the tool's module."""
        try:
            address = _address(tool)
        except ToolInvalid:
            return False
        return any(address in worker.loaded for worker in self._idle)

    async def start(self) -> None:
        """Let calls in. Workers start at the first one."""
        self._open = True

    async def stop(self) -> None:
        """End running calls as ExecutorStopped, let idle workers exit; afterwards there is no child left."""
        self._open = False
        for worker in list(self._busy):
            worker.kill()
        for worker in list(self._idle):
            self._retire(worker)
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    async def execute(self, call: Call) -> Outcome:
        """Run a call; see `Executor`."""
        address = _address(call.tool)
        if not self._open:
            raise HomeClosed("the process executor is stopped", mend="Start it before calls.")
        running: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks.add(running)
        try:
            return await self._execute(call, address)
        finally:
            self._tasks.discard(running)
            running.set_result(None)

    async def _execute(self, call: Call, address: Address) -> Outcome:
        timer = Timer(self._clock)
        try:
            worker = await self._take(address)
        except OSError as error:
            failure = {"code": "WorkerDied", "what": f"no worker process could be started: {error}"}
            return Outcome("failed", None, failure, timer.started, timer.finished(), self.name)
        self._busy.add(worker)
        watched = self._memory.watch(worker.root, worker.mark)
        try:
            ended = await self._converse(worker, call, address)
        except BaseException:
            await worker.end()
            raise
        finally:
            self._memory.forget(watched)
            self._busy.discard(worker)
            self._keep(worker, watched)
        return self._outcome(worker, watched, timer, ended)

    async def _take(self, address: Address) -> Worker:
        """A warm worker, one that knows the tool before others, else a new one. One that died meanwhile answers every
        message with `Gone`.
        """
        while self._idle:
            knowing = (each for each in reversed(self._idle) if address in each.loaded)
            worker = next(knowing, None) or next(reversed(self._idle))
            self._idle.pop(worker).cancel()
            if worker.alive() and not any(_is_older(each, address) for each in worker.loaded):
                return worker
            self._say_farewell(worker.close())
        starting = asyncio.create_task(Worker.start(self.bounds))
        try:
            await uncut(starting)
            worker = starting.result()
            if await until_done(worker.ready, Limits(None, self.start_limit)):
                raise TimeoutError(f"it wasn't ready within {self.start_limit:g} s")
            if not self._open:
                raise HomeClosed("the process executor was stopped while a worker started")
        except BaseException:
            if starting.done() and not starting.cancelled() and starting.exception() is None:
                await starting.result().end()
            raise
        return worker

    def _keep(self, worker: Worker, watched: Watched) -> None:
        """Keep a worker warm for the next call, if it lives and is wanted."""
        if watched.over or not worker.alive():
            self._say_farewell(worker.end())
            return
        loop = asyncio.get_running_loop()
        self._idle[worker] = loop.call_later(self.idle_stop, self._retire, worker)
        if not self._open or len(self._idle) + len(self._busy) > self.capacity:
            self._retire(worker)

    def _retire(self, worker: Worker) -> None:
        handle = self._idle.pop(worker, None)
        if handle is not None:
            handle.cancel()
            self._say_farewell(worker.close())

    def _say_farewell(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _converse(self, worker: Worker, call: Call, address: Address) -> Done | Gone | Failure:
        """What the worker answered, or the failure of a limit that passed and for which it was ended."""
        failure = await self._load(worker, address)
        if failure is not None:
            return failure
        limits = Limits(call.idle, call.total)

        def progressed(update: Any) -> None:
            limits.renew()
            call.report(update)

        try:
            settings = call.settings.open()
            answer = worker.run(address, call.params, call.idempotency_key, call.total, progressed, settings)
        except ValueError as error:
            return {"code": "BadInput", "what": f"the parameters are {error}"}
        passed = await until_done(answer, limits)
        if passed is not None:
            await worker.end()
            return passed
        return answer.result()

    async def _load(self, worker: Worker, address: Address) -> Gone | Failure | None:
        """Have the tool's module imported, once a worker; that is no part of the tool's own time."""
        if address in worker.loaded:
            return None
        answer = worker.load(address)
        if await until_done(answer, Limits(None, self.start_limit)):
            await worker.end()
            return {"code": "ToolNotLoaded", "what": f"its module wasn't imported within {self.start_limit:g} s"}
        loaded = answer.result()
        if isinstance(loaded, Gone):
            return loaded
        if loaded.error is None:
            worker.loaded.add(address)
        return loaded.error

    def _outcome(self, worker: Worker, watched: Watched, timer: Timer, ended: Done | Gone | Failure) -> Outcome:
        finished = timer.finished()
        stdout, stderr = worker.printed()
        done = ended if isinstance(ended, Done) else None
        error = ended.error if isinstance(ended, Done) else ended
        if isinstance(error, Gone):
            error = self._death(error, watched)
        peaks = [peak for peak in (watched.peak_mb, done.peak_memory_mb if done else None) if peak]
        return Outcome(
            "succeeded" if error is None else "timed_out" if error["code"] == "TimedOut" else "failed",
            done.output if done else None,
            error,
            timer.started,
            finished,
            self.name,
            stdout,
            stderr,
            exit_code=worker.gone.exit_code if worker.gone else None,
            cpu_seconds=done.cpu_seconds if done else None,
            peak_memory_mb=max(peaks, default=None),
            peak_gpu_memory_mb=watched.peak_gpu_mb,
            leaked_processes=done.leaked if done else worker.ended + watched.ended,
        )

    def _death(self, gone: Gone, watched: Watched) -> Failure:
        """Why a worker ended under its call."""
        if watched.over:
            peak, limit = watched.peak_mb, self.memory_limit_mb
            what = f"its processes held {peak:.0f} MiB, over the limit of {limit:.0f} MiB"
            return {
                "code": "ToolOutOfMemory",
                "what": what,
                "memory": "host",
                "peak_memory_mb": peak,
                "memory_limit_mb": limit,
                "mend": LESS_MEMORY,
            }
        if not self._open:
            return stopped(self.name)
        if gone.fault is not None:
            return {"code": "WorkerDied", "what": f"its worker process was ended: {gone.fault}"}
        if gone.exit_code >= 0:
            what = f"its worker process exited with code {gone.exit_code}"
            return {"code": "WorkerDied", "what": what, "exit_code": gone.exit_code}
        number = -gone.exit_code
        if number == signal.SIGXCPU and self.bounds.cpu_seconds is not None:
            limit = self.bounds.cpu_seconds
            return {
                "code": "TimedOut",
                "what": f"it used more than {limit:g} s of CPU",
                "limit": "cpu",
                "seconds": limit,
            }
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        what = f"its worker process was ended by {name}, and not by this library"
        return {"code": "WorkerDied", "what": what, "exit_code": gone.exit_code, "signal": name}


def _is_older(loaded: Address, asked: Address) -> bool:
    """Whether a worker has imported another state of a tool's source than the one that is asked for."""
    return (loaded.module, loaded.file) == (asked.module, asked.file) and loaded.digest != asked.digest


def _address(tool: Tool) -> Address:
    place = check_place(tool.run, tool.name)
    return Address(place.module, place.file, place.qualname, place.digest)
