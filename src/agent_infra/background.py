"""The one background event loop of a process, on which every waiting call runs.

Scripts, notebooks and code inside a running loop all call the same synchronous functions: the work runs on this
loop, in its own daemon thread, and the caller's thread waits. A waiting call made *on* that thread could never
return; it raises WouldDeadlock and names the async twin instead.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from agent_infra.errors import WouldDeadlock

T = TypeVar("T")
_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def _after_fork() -> None:
    global _lock, _loop, _thread
    _lock, _loop, _thread = threading.Lock(), None, None


os.register_at_fork(after_in_child=_after_fork)


def loop() -> asyncio.AbstractEventLoop:
    """The process's background loop, started at first use."""
    global _loop, _thread
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_loop.run_forever, name="agent-infra-loop", daemon=True)
            _thread.start()
        return _loop


def wait_for(work: Coroutine[Any, Any, T], *, twin: str) -> T:
    """Run `work` on the background loop and wait for it. Ctrl-C cancels it and is raised again once it has ended.

    Raises WouldDeadlock on the loop's own thread; `twin` is the async function to await there instead.
    """
    if threading.current_thread() is _thread:
        work.close()
        raise WouldDeadlock(
            "a waiting call was made on the background loop's own thread",
            why="it would wait for the loop that it blocks",
            mend=f"Await `{twin}` instead.",
            facts={"twin": twin},
        )
    tasks: list[asyncio.Task[Any] | None] = []
    future: Future[T] = asyncio.run_coroutine_threadsafe(_noted(work, tasks), loop())
    try:
        return future.result()
    except KeyboardInterrupt:
        future.cancel()
        for task in filter(None, tasks):
            asyncio.run_coroutine_threadsafe(_ended(task), loop()).result()
        raise


async def _noted(work: Coroutine[Any, Any, T], tasks: list[asyncio.Task[Any] | None]) -> T:
    tasks.append(asyncio.current_task())
    return await work


async def _ended(task: asyncio.Task[Any]) -> None:
    await asyncio.wait([task])


async def on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` from any loop: on the background loop directly, from another loop through it."""
    if asyncio.get_running_loop() is _loop:
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop()))
