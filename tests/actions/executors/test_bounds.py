"""What a worker may use besides memory: CPU time, files, devices; and how running out is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agent_infra.actions import Tool
from agent_infra.actions.executors import Call, ExecutorPool, LocalExecutor, Outcome, ProcessExecutor
from agent_infra.background import wait_for
from agent_infra.errors import ToolInvalid


def using(body: Callable[[ProcessExecutor], Awaitable[Any]], **options: Any) -> Any:
    async def run() -> Any:
        executor = ProcessExecutor(capacity=1, **options)
        await executor.start()
        try:
            return await body(executor)
        finally:
            await executor.stop()

    return asyncio.run(run())


async def call(executor: ProcessExecutor, tool: Tool, **params: Any) -> Outcome:
    return await executor.execute(Call(tool, params, "call-1", "key-1"))


def test_cpu_time_is_bounded_for_each_call(samples: dict[str, Tool]) -> None:
    async def body(executor: ProcessExecutor) -> None:
        first = await call(executor, samples["burn"], seconds=0.6)
        second = await call(executor, samples["burn"], seconds=0.6)
        assert first.output == second.output, "one worker served both: the limit is each call's own"
        outcome = await call(executor, samples["burn"], seconds=60)
        assert outcome.status == "timed_out"
        assert outcome.error is not None
        assert (outcome.error["limit"], outcome.error["seconds"]) == ("cpu", 1)
        assert (await call(executor, samples["burn"], seconds=0)).ok

    using(body, cpu_seconds=1)


def test_open_files_are_bounded(samples: dict[str, Tool], tmp_path: Path) -> None:
    async def body(executor: ProcessExecutor) -> None:
        assert (await call(executor, samples["open_many"], count=10, folder=str(tmp_path))).ok
        outcome = await call(executor, samples["open_many"], count=200, folder=str(tmp_path))
        assert outcome.error is not None
        assert "Too many open files" in outcome.error["what"]

    using(body, open_files=64)


def test_the_size_of_a_file_is_bounded(samples: dict[str, Tool], tmp_path: Path) -> None:
    async def body(executor: ProcessExecutor) -> None:
        assert (await call(executor, samples["write_large"], mb=1, folder=str(tmp_path))).ok
        outcome = await call(executor, samples["write_large"], mb=8, folder=str(tmp_path))
        assert outcome.error is not None
        assert "File too large" in outcome.error["what"]

    using(body, file_mb=2)


def test_a_cpu_only_executor_hides_the_gpu_and_refuses_calls_that_need_one(samples: dict[str, Tool]) -> None:
    async def body() -> None:
        pool = ExecutorPool([LocalExecutor(), ProcessExecutor(capacity=1, cpu_only=True)])
        with pytest.raises(ToolInvalid, match="it asks for 1 gpu, and there are 0"):
            await pool.execute(Call(samples["devices"], {}, "1", "1", resources={"gpu": 1}))
        seen = await pool.execute(Call(samples["devices"], {}, "2", "2", resources={"gpu": 0}))
        await pool.stop()
        assert seen.output == {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}

    wait_for(body(), twin="body")


@pytest.mark.parametrize("kind", ["host", "gpu"])
def test_running_out_of_memory_is_told_apart_with_what_would_help(samples: dict[str, Tool], kind: str) -> None:
    async def body(executor: ProcessExecutor) -> None:
        outcome = await call(executor, samples["runs_out"], kind=kind)
        assert outcome.error is not None
        assert (outcome.error["code"], outcome.error["memory"]) == ("ToolOutOfMemory", kind)
        assert ("CPU variant" if kind == "gpu" else "by pages") in outcome.error["mend"]

    using(body)
