"""Tools in containers, by the Docker API: Docker, or podman's service.

Each call gets a container of its own: no network unless the tool asks, a read-only root with work folders in memory
(`/work`, `/tmp`), no capabilities, limits for memory and processes. It is removed with its volumes when the call ends,
however it ends. What a client that was killed left behind is found by its labels and removed by the next one that
reaches the engine. `container_output` says how a command takes parameters and gives its result.

Needs the extra `[containers]`; the library is imported at the first call.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from agent_infra.actions.executors.base import (
    LESS_MEMORY_IN_CONTAINER,
    Call,
    Failure,
    Limits,
    Outcome,
    Timer,
    stopped,
    until_done,
)
from agent_infra.actions.executors.cgroups import Group, groups_named, remove_groups
from agent_infra.actions.executors.container_engine import CommandUnknown, Engine, Image, Wish, unavailable
from agent_infra.actions.executors.container_output import Printed
from agent_infra.actions.executors.handle import uncut
from agent_infra.actions.executors.owners import abandoned, tag_is_gone, this_process
from agent_infra.actions.tools import Tool
from agent_infra.actions.tools.container import tools_of_image
from agent_infra.actions.tools.elsewhere import InContainer
from agent_infra.clock import Clock
from agent_infra.content import json_bytes
from agent_infra.errors import ExecutorUnavailable, HomeClosed, ToolInvalid
from agent_infra.observability import get_logger
from agent_infra.platform import machine_limits

KEY: Final = "AGENT_INFRA_IDEMPOTENCY_KEY"
SECONDS: Final = "AGENT_INFRA_SECONDS"
_LOOK: Final = 0.05
_SPARE: Final = 60.0
"""Seconds past a call's total limit after which anyone may remove its container."""
_NEAR: Final = 0.97
"""A group's highest memory counts as its limit from this share of it."""
T = TypeVar("T")
_log = get_logger(__name__)


class ContainerExecutor:
    """Runs commands in images, each call in a container of its own.

    engine     the engine's address; default: $DOCKER_HOST, else the usual sockets of Docker and podman
    home       the home that it works for; in the labels
    capacity   containers at the same time
    memory_mb  MiB for a tool that names none (nor the resource `memory_mb`); never more than this machine's, where the
               engine is on it
    pids       processes and threads for a tool that names none
    resolve    makes the value of a variable from what is declared, such as `secret://NAME`
    """

    def __init__(
        self,
        *,
        engine: str | None = None,
        home: str = "",
        capacity: int = 8,
        memory_mb: int = 2048,
        pids: int = 256,
        resolve: Callable[[str], str] = str,
        clock: Clock | None = None,
    ) -> None:
        self.name = "container"
        self.cost = 50.0
        self.capacity = capacity
        machine = machine_limits().memory_mb if engine is None or engine.startswith("unix:") else None
        self.resources: Mapping[str, float] = {"gpu": 0} if machine is None else {"gpu": 0, "memory_mb": machine}
        self.memory_mb, self.pids = memory_mb, pids
        self._url, self._home, self._resolve, self._clock = engine, home, resolve, clock
        self._owner = this_process(home)
        self._engine: Engine | None = None
        self._connecting = asyncio.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._numbers = itertools.count(1)
        self._open = False
        self._runs: set[_Run] = set()
        self._tasks: set[asyncio.Future[None]] = set()

    def accepts(self, tool: Tool) -> str | None:
        """A command in an image."""
        return None if isinstance(tool.run, InContainer) else "the tool is no command in an image"

    def is_warm(self, tool: Tool) -> bool:  # noqa: ARG002 - each call gets a container of its own
        """Whether the engine is reached."""
        return self._engine is not None

    async def start(self) -> None:
        """Let calls in. The engine is reached at the first one."""
        self._open = True

    async def stop(self) -> None:
        """End running calls as ExecutorStopped; no container of this executor is left afterwards."""
        self._open = False
        await asyncio.gather(*(self._end(run) for run in list(self._runs)), return_exceptions=True)
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False)
            self._threads = None

    async def sweep(self) -> int:
        """Remove what owners that are gone left behind, and say how many containers that were.

        Done by itself when the engine is first reached. Raises ExecutorUnavailable, HomeClosed.
        """
        self._check_open()
        return await self._in_thread(self._sweep, await self._reached())

    async def discover(self, image: str, *, pull: bool = False) -> tuple[Tool, ...]:
        """The tools that an image's label lists. Raises ExecutorUnavailable, HomeClosed, ToolInvalid."""
        self._check_open()
        engine = await self._reached()
        found = await self._in_thread(partial(engine.image, image, pull=pull))
        return tools_of_image(image, found.labels)

    async def execute(self, call: Call) -> Outcome:
        """Run a call; see `Executor`."""
        run, reason = call.tool.run, self.accepts(call.tool)
        if not isinstance(run, InContainer):
            raise ToolInvalid(f"{self.name} can't run {call.tool.name!r}", why=reason)
        self._check_open()
        running: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks.add(running)
        try:
            return await self._execute(call, run)
        finally:
            self._tasks.discard(running)
            running.set_result(None)

    def _check_open(self) -> None:
        if not self._open:
            raise HomeClosed("the container executor is stopped", mend="Start it before calls.")

    async def _execute(self, call: Call, wanted: InContainer) -> Outcome:
        timer = Timer(self._clock)
        beginning = asyncio.create_task(self._begin(call, wanted))
        try:
            await uncut(beginning)
            run = beginning.result()
        except asyncio.CancelledError:
            if not beginning.cancelled() and beginning.exception() is None:
                await self._finish(beginning.result())
            raise
        except (ExecutorUnavailable, CommandUnknown) as error:
            failure = self._not_begun(error, wanted)
            return Outcome("failed", None, failure, timer.started, timer.finished(), self.name)
        try:
            output, error, exit_code = await self._attend(call, run)
        finally:
            finishing = asyncio.create_task(self._finish(run))
            await uncut(finishing)
        return Outcome(
            "succeeded" if error is None else "timed_out" if error["code"] == "TimedOut" else "failed",
            output,
            error,
            timer.started,
            timer.finished(),
            self.name,
            run.printed.stdout,
            run.printed.stderr,
            exit_code,
            cpu_seconds=run.group.cpu_seconds if run.group else None,
            peak_memory_mb=run.group.peak_mb if run.group else None,
            facts={"image": wanted.image, "image_digest": run.image.digest, "image_id": run.image.id},
        )

    def _not_begun(self, error: ExecutorUnavailable | CommandUnknown, wanted: InContainer) -> Failure:
        if not self._open:  # a stop removed the container as it was being started
            return stopped(self.name)
        if isinstance(error, CommandUnknown):
            return {"code": "ToolNotLoaded", "what": f"its command can't be started in {wanted.image!r}: {error}"}
        mend = {} if error.mend is None else {"mend": error.mend}
        return {"code": error.code, "what": f"{error.what}: {error.why}", **error.facts, **mend}

    # -- before and after --------------------------------------------------------------------------

    async def _begin(self, call: Call, wanted: InContainer) -> _Run:
        """A started container. Raises ExecutorUnavailable, CommandUnknown; nothing is left of it then."""
        engine = await self._reached()
        image = await self._in_thread(partial(engine.image, wanted.image, pull=wanted.pull))
        missing = [outside for outside in wanted.mounts if engine.is_local and not Path(outside).exists()]
        if missing:  # podman would make a folder there
            why = f"{', '.join(missing)}, to be mounted, is not there"
            raise unavailable("mount_missing", why, "Make it, or correct its path under mounts.")
        name = f"{self._owner.tag}-{id(self):x}-{next(self._numbers)}"
        group = Group.around(name) if engine.is_local and engine.uses_cgroupfs else None
        wish = self._wish(call, wanted, name, engine, own_group=group is not None)
        container = await self._in_thread(engine.create, wish)
        loop = asyncio.get_running_loop()
        limits = Limits(call.idle, call.total)

        def progressed(update: str | float) -> None:
            limits.renew()
            loop.call_soon_threadsafe(call.report, update)

        run = _Run(engine, container, image, wish, group, Printed(progressed), limits)
        self._runs.add(run)
        try:
            if not self._open:  # the stop that came meanwhile didn't know of this one
                raise unavailable("stopped", "the container executor was stopped", None)
            run.link = await self._in_thread(engine.attach, container)
            await self._in_thread(engine.start, container)
            if run.group is None and engine.is_local:
                run.group = Group.of_process((await self._in_thread(engine.state, container)).pid)
        except BaseException:
            await self._finish(run)
            raise
        run.limits = limits = Limits(call.idle, call.total)  # the container's start is no part of the tool's own time
        return run

    def _wish(self, call: Call, wanted: InContainer, name: str, engine: Engine, *, own_group: bool) -> Wish:
        asked = int(call.resources.get("memory_mb", 0)) or wanted.memory_mb or self.memory_mb
        machine = machine_limits().memory_mb if engine.is_local else None
        environment = {key: self._resolve(value) for key, value in wanted.environment.items()}
        environment[KEY] = call.idempotency_key
        if call.total is not None:
            environment[SECONDS] = f"{call.total:g}"
        until = None if call.total is None else time.time() + call.total + _SPARE
        return Wish(
            wanted.image,
            wanted.command,
            name,
            self._owner.labels(call.call_id, until),
            environment,
            wanted.mounts,
            min(asked, machine or asked),
            wanted.pids or self.pids,
            wanted.network,
            f"/{name}" if own_group else None,
        )

    async def _finish(self, run: _Run) -> None:
        """Remove a container, its volumes and its group."""
        self._runs.discard(run)
        try:
            await self._end(run)
        except ExecutorUnavailable as error:
            _log.warning("container.not_removed", container=run.id, error=str(error))
        if run.link is not None:
            run.link.close()
        if run.group is not None:
            run.group.look()
            await self._in_thread(run.group.remove)

    async def _end(self, run: _Run) -> None:
        await self._in_thread(run.engine.remove, run.id)

    # -- during a call -----------------------------------------------------------------------------

    async def _attend(self, call: Call, run: _Run) -> tuple[Any, Failure | None, int | None]:
        """(output, error, exit code) of a started container, which is ended where a limit passes."""
        sending = asyncio.create_task(self._in_thread(run.link.send, json_bytes(call.params)))
        work = asyncio.create_task(self._until_exit(run))
        looking = asyncio.create_task(_look_often(run))
        try:
            passed = await until_done(work, run.limits)
            if passed is not None:
                await self._end(run)
        finally:
            looking.cancel()
            if not work.done():  # a limit passed, or the call was cancelled: the container is removed, then it is done
                with contextlib.suppress(ExecutorUnavailable):
                    await uncut(asyncio.create_task(self._end(run)))
            await uncut(asyncio.ensure_future(asyncio.wait({work, sending})))
        lost = work.exception()
        if passed is not None:
            return None, passed, None
        if not self._open:
            return None, stopped(self.name), None
        if lost is not None:
            what = f"the engine lost sight of its container: {lost}"
            return None, {"code": "WorkerDied", "what": what}, None
        return await self._ended(run, work.result())

    async def _until_exit(self, run: _Run) -> int:
        """Read what is printed until the container has ended; its exit code."""
        await self._in_thread(_read, run)
        exit_code = await self._in_thread(run.engine.wait, run.id)
        if run.printed.lacks(exit_code):
            with contextlib.suppress(ExecutorUnavailable):  # an engine may keep no log
                run.printed = printed = Printed(lambda _: None)
                for stream, text in enumerate(await self._in_thread(run.engine.logs, run.id), 1):
                    printed.take(stream, text)
        return exit_code

    async def _ended(self, run: _Run, exit_code: int) -> tuple[Any, Failure | None, int | None]:
        output, error = run.printed.result(exit_code)
        if error is None or exit_code == 0:
            return output, error, exit_code
        if run.group is not None:
            run.group.look()
        peak, limit = run.group.peak_mb if run.group else None, run.wish.memory_mb
        killed = exit_code == 137
        full = peak is not None and peak >= limit * _NEAR and killed
        if full or (run.group and run.group.oom_kills) or (killed and await self._engine_says_oom(run)):
            held = "an unknown amount" if peak is None else f"{min(peak, limit):.0f} MiB"
            what = f"its processes held {held} of the {limit} MiB that it may have, and wanted more"
            error = {"code": "ToolOutOfMemory", "what": what, "peak_memory_mb": peak, "memory_limit_mb": limit}
            error |= {"memory": "host", "mend": LESS_MEMORY_IN_CONTAINER}
        return None, error, exit_code

    async def _engine_says_oom(self, run: _Run) -> bool:
        try:
            return (await self._in_thread(run.engine.state, run.id)).oom_killed
        except ExecutorUnavailable:
            return False

    # -- the engine --------------------------------------------------------------------------------

    async def _reached(self) -> Engine:
        async with self._connecting:
            if self._engine is None:
                self._engine = await self._in_thread(Engine, self._url)
                await self._in_thread(self._sweep, self._engine)
            return self._engine

    def _sweep(self, engine: Engine) -> int:
        removed = 0
        for container, labels in engine.ours().items():
            if abandoned(labels, time.time()):
                try:
                    engine.remove(container)
                except (
                    ExecutorUnavailable
                ) as error:  # others may be removing it just now; no call of ours is to fail for it
                    _log.warning("container.not_swept", container=container, error=str(error))
                else:
                    removed += 1
        for name in groups_named("agent-infra-"):
            if tag_is_gone(name):
                remove_groups(name)
        if removed:
            _log.info("container.swept", removed=removed)
        return removed

    def _in_thread(self, work: Callable[..., T], *arguments: Any) -> Coroutine[Any, Any, T]:
        """Blocking work on threads of our own: as many as all containers together can keep busy, and some to end them."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(3 * self.capacity + 8, thread_name_prefix="agent-infra-container")
        return _awaited(asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *arguments)))


@dataclass(slots=True, eq=False)
class _Run:
    """One container."""

    engine: Engine
    id: str
    image: Image
    wish: Wish
    group: Group | None
    printed: Printed
    limits: Limits
    link: Any = None


def _read(run: _Run) -> None:
    while data := run.link.receive():
        run.printed.feed(data)


async def _look_often(run: _Run) -> None:
    while run.group is not None:
        run.group.look()
        await asyncio.sleep(_LOOK)


async def _awaited(future: asyncio.Future[T]) -> T:
    return await future
