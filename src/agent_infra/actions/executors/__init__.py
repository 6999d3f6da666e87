"""Executors: where tools run.

In: a `Call` (a tool and checked parameters). Out: an `Outcome`; a tool that fails, hangs, dies or eats all memory
is an outcome too. `ExecutorPool` is what the layers above use, and the only queue: it gives a call to the cheapest
executor that fits.

    base.py     Call, Outcome, the Executor protocol, limits
    local.py    in this process: coroutines on the loop, functions in threads
    process.py  in worker processes that can be ended: by a time limit, a memory limit, a stop
    handle.py   one worker process, seen from its parent       worker.py  the same, seen from inside
    wire.py     the messages between the two                   tree.py    process trees: memory, ending them
    mcp.py      on MCP servers; mcp_session.py: one session; mcp_stdio.py: the process of a server
    container.py  in containers; container_engine.py: the engine's API; container_output.py: what a command prints
    cgroups.py    what a container used, by its control group
    pool.py     which executor, and waiting for it
"""

from __future__ import annotations

from agent_infra.actions.executors.base import Call, Executor, Outcome
from agent_infra.actions.executors.container import ContainerExecutor
from agent_infra.actions.executors.local import LocalExecutor
from agent_infra.actions.executors.mcp import McpExecutor
from agent_infra.actions.executors.pool import ExecutorPool, LeastLoaded, Offer, Placer, Waiting
from agent_infra.actions.executors.process import ProcessExecutor

__all__ = [
    "Call",
    "ContainerExecutor",
    "Executor",
    "ExecutorPool",
    "LeastLoaded",
    "LocalExecutor",
    "McpExecutor",
    "Offer",
    "Outcome",
    "Placer",
    "ProcessExecutor",
    "Waiting",
]
