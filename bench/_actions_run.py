"""Validating specs, computing spaces, calling tools: in this process, and in worker processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from _measure import MILLI, Report, Samples, at_least, at_most, interleave, rounded
from _steps_peer import LIBRARIES, StepsPeer

from agent_infra import Infra
from agent_infra.actions.executors import Call, ProcessExecutor
from agent_infra.actions.tools import ToolRegistry
from agent_infra.config import Project

CONDITIONS = """\
name: {name}
tool: {tool}
params:
  x: {{open: {{}}}}
  unit: {{open: {{enum: [metric, imperial]}}}}
preconditions:
  - "state.nodes.user_intent.data.confidence > 0.8"
  - "params.x > 0"
  - "params.unit in ['metric', 'imperial']"
effects: none
"""
NOOP = "name: do_{tool}\ntool: {tool}\nparams: {{x: 3}}\neffects: none\nresult: {{type: answer, key: answer}}\n"
STEP = 200
WORKERS_TOOLS = """\
from agent_infra import tool

@tool(effects="none", isolation="process")
def echo(x: int) -> dict[str, int]:
    \"\"\"Give it back.\"\"\"
    return {"x": x}
"""


def validating(report: Report, folder: Path, repetitions: int) -> None:
    """One spec against a contract with three preconditions, on a space that is there."""
    with _home(folder, "os") as infra:
        infra.actions.load(CONDITIONS.format(name="converted", tool="convert"))
        graph = _intent(infra)
        space = infra.actions.space(graph)
        spec = {"tool": "converted", "params": {"x": 3, "unit": "metric"}}
        samples, answers = interleave(repetitions * 10, {"validate": lambda: space.validate(spec)})
    micros = samples["validate"].wall_ms() * MILLI
    report.add(
        "validate_spec",
        "a spec with two parameters held against schema, domains and three preconditions",
        durability="none: nothing is written",
        ours={"validate": samples["validate"].summary()},
        goals=(at_most("p50_us", micros, 50.0),),
        facts={"valid": answers["validate"].ok, "p50_us": rounded(micros)},
    )


def spaces(report: Report, folder: Path, repetitions: int) -> None:
    """What is legal of 50 contracts, over a session of 10,000 nodes."""
    nodes = 10_000 if repetitions > 5 else 200
    with _home(folder, "os") as infra:
        for number in range(50):
            infra.actions.load(CONDITIONS.format(name=f"converted_{number}", tool="convert"))
        graph = _intent(infra)
        for first in range(0, nodes, STEP):
            with graph.step() as step:
                for number in range(first, first + STEP):
                    step.add_node("note", {"number": number, "text": "北京明天天气"})
        samples, answers = interleave(repetitions, {"space": lambda: infra.actions.space(graph)})
    report.add(
        "space",
        f"the space of 50 contracts with three preconditions each, over a session of {nodes} nodes",
        durability="none: nothing is written",
        ours={"space": samples["space"].summary()},
        goals=(at_most("p50_ms", samples["space"].wall_ms(), 5.0),),
        facts={"legal": len(answers["space"].legal)},
    )


def calls(report: Report, folder: Path, repetitions: int) -> None:
    """A tool that does nothing, called with full evidence and commit, beside a durable no-op step of two peers."""
    for durability, goal in (("os", 0.5), ("group", 1.5)):
        ours, peers = _beside_peers(report, folder / durability, durability, repetitions)
        call = ours["async tool"].wall_ms()
        report.add(
            f"noop_call_{durability}",
            "intent, call, result node, receipt, evidence bundle: two commits a call; a peer's step is one of a run of "
            f"{_run_of(repetitions)}",
            durability=durability,
            ours={name: found.summary() for name, found in ours.items()},
            peers={name: found.summary() for name, found in peers.items()},
            ratios={f"to_{name}": call / found.wall_ms() for name, found in peers.items()},
            goals=(at_most("async_tool_p50_ms", call, goal),),
        )


def _beside_peers(
    report: Report, folder: Path, durability: str, repetitions: int
) -> tuple[dict[str, Samples], dict[str, Samples]]:
    """Samples by name, taken in turn."""
    ours = {"async tool": Samples(), "sync tool": Samples()}
    peers: dict[str, Samples] = {}
    with ExitStack() as stack:
        infra = stack.enter_context(_home(folder, durability))
        for tool in ("wait_nothing", "do_nothing"):
            infra.actions.load(NOOP.format(tool=tool))
        graph = _intent(infra)
        jobs = {"async tool": "do_wait_nothing", "sync tool": "do_do_nothing"}
        running: dict[str, StepsPeer] = {}
        for name in LIBRARIES:
            missing = StepsPeer.missing(name)
            if missing is not None:
                report.skip(f"noop_call_{durability} beside {name}", f"{name} is not installed", missing)
                continue
            inside = folder / name
            inside.mkdir()
            running[name] = StepsPeer(name, inside)
            stack.callback(running[name].close)
            peers[name] = Samples()
        run = _run_of(repetitions)
        for round_ in range(max(2, repetitions // run) + 1):
            for name, action in jobs.items():
                for _ in range(run):
                    result = ours[name].run(lambda action=action: infra.actions.execute(action, graph))
                    assert result.ok, result
            for name, peer in running.items():
                peers[name].wall.append(peer.steps(run))
            if round_ == 0:  # the first round warms up
                ours = {name: Samples() for name in ours}
                peers = {name: Samples() for name in peers}
    return ours, peers


def _run_of(repetitions: int) -> int:
    return max(2, min(50, repetitions // 5))


def workers(report: Report, folder: Path, repetitions: int) -> None:
    """Calls a second that warm worker processes answer."""
    file = folder / "worker_tools.py"
    file.write_text(WORKERS_TOOLS, encoding="utf-8")
    [tool] = ToolRegistry().load_module(file)
    count = repetitions * 2

    async def run() -> Samples:
        executor = ProcessExecutor(capacity=2)
        await executor.start()
        samples = Samples()
        try:
            for _ in range(4):
                began = time.perf_counter()
                calls = [executor.execute(Call(tool, {"x": each}, f"c{each}", f"k{each}")) for each in range(count)]
                outcomes = await _two_at_a_time(calls)
                samples.wall.append((time.perf_counter() - began) / count)
                assert all(outcome.ok for outcome in outcomes)
        finally:
            await executor.stop()
        samples.wall = samples.wall[1:]
        return samples

    samples = asyncio.run(run())
    rate = MILLI / samples.wall_ms()
    report.add(
        "process_executor",
        f"{count} calls of a tool that gives back what it gets, in two warm worker processes",
        durability="none: nothing is written",
        ours={"call": samples.summary()},
        goals=(at_least("calls_per_second", rate, 300.0),),
        facts={"calls_per_second": rounded(rate)},
    )


async def _two_at_a_time(calls: list[Any]) -> list[Any]:
    lanes = asyncio.Semaphore(2)

    async def one(call: Any) -> Any:
        async with lanes:
            return await call

    return await asyncio.gather(*(one(call) for call in calls))


def _home(folder: Path, durability: str) -> Infra:
    """A home with three tools that do nothing."""
    folder.mkdir(exist_ok=True)
    infra = Infra.open(folder / "home", project=Project(root=folder), durability=durability)
    infra.schemas.register("user_intent", {"type": "object"})
    infra.schemas.register("answer", {"type": "object"})
    infra.schemas.register("note", {"type": "object"})
    given: Mapping[str, Callable[..., Any]] = {
        "convert": _convert,
        "wait_nothing": _wait_nothing,
        "do_nothing": _nothing,
    }
    for name, function in given.items():
        infra.tools.tool(name=name, effects="none")(function)
    return infra


def _intent(infra: Infra) -> Any:
    graph = infra.session("bench")
    graph.add_node("user_intent", {"query": "北京明天天气", "confidence": 0.95}, ttl=3600)
    return graph


def _convert(x: int, unit: str) -> dict[str, object]:
    """Nothing."""
    return {"x": x, "unit": unit}


async def _wait_nothing(x: int) -> dict[str, int]:
    """Nothing."""
    return {"x": x}


def _nothing(x: int) -> dict[str, int]:
    """Nothing."""
    return {"x": x}
