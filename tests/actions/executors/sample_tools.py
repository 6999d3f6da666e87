"""Tools of a project, loaded by path: this folder is on no sys.path."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from agent_infra.actions import CallContext, tool
from agent_infra.actions.executors import wire


@tool(effects="none", isolation="process")
def who() -> dict[str, Any]:
    """The process that runs this, and the environment it gives to its children."""
    main = sys.modules["__main__"].__file__ or ""
    return {"pid": os.getpid(), "main": Path(main).name, "python_path": os.environ.get("PYTHONPATH")}


@tool(effects="none", isolation="process")
def nap(seconds: float, context: CallContext) -> int:
    """Sleep, and say so."""
    context.progress("napping")
    time.sleep(seconds)
    return os.getpid()


@tool(effects="none", isolation="process")
async def the_loop() -> int:
    """The event loop that coroutines run on."""
    return id(asyncio.get_running_loop())


@tool(effects="none", isolation="process")
def grow(mb: int) -> int:
    """Hold that much memory, gathered slowly enough to be seen."""
    held = []
    for _ in range(mb // 4):
        held.append(b"1" * (4 * 2**20))
        time.sleep(0.002)
    return len(held)


@tool(effects="none", isolation="process")
def child_grows(mb: int) -> None:
    """Have a child process hold that much memory."""
    program = f"import time; x = [time.sleep(0.002) or b'1' * (4 * 2**20) for _ in range({mb // 4})]; time.sleep(60)"
    subprocess.run([sys.executable, "-c", program], check=False)


@tool(effects="none", isolation="process")
def large(count: int) -> str:
    """A result over the limit, which is lowered for this worker."""
    wire.MAX_BYTES = 1000
    return "x" * count


@tool(effects="none", isolation="process")
def babble() -> None:
    """Write nonsense into the worker's own socket."""
    for descriptor in range(3, 64):
        try:
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, b"\xff" * 64)
        except OSError:
            continue
    time.sleep(60)


@tool(effects="none", isolation="process")
def uses_multiprocessing() -> int:
    """Start Python's resource tracker, which is nobody's leftover."""
    from multiprocessing import shared_memory

    block = shared_memory.SharedMemory(create=True, size=16)
    block.close()
    block.unlink()
    return os.getpid()
