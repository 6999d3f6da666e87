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


@tool(effects="none", isolation="process")
def burn(seconds: float) -> int:
    """Use that much CPU time."""
    began = time.process_time()
    while time.process_time() - began < seconds:
        sum(range(1000))
    return os.getpid()


@tool(effects="none", isolation="process")
def open_many(count: int, folder: str) -> int:
    """Hold that many files open."""
    held = [open(os.path.join(folder, "f"), "w") for _ in range(count)]  # noqa: SIM115
    return len(held)


@tool(effects="none", isolation="process")
def write_large(mb: int, folder: str) -> int:
    """Write a file of that size."""
    with open(os.path.join(folder, "large"), "wb") as file:
        return sum(file.write(b"0" * 2**20) for _ in range(mb))


@tool(effects="none", isolation="process")
def devices() -> dict[str, Any]:
    """What the environment says of GPUs."""
    return {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")}


@tool(effects="none", isolation="process")
def runs_out(kind: str) -> None:
    """Run out of memory as libraries tell it."""
    if kind == "host":
        raise MemoryError
    error = type("OutOfMemoryError", (RuntimeError,), {"__module__": "torch"})
    raise error("CUDA out of memory. Tried to allocate 20.00 GiB")
