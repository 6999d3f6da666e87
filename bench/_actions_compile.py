"""Compiling action files: cold, and from the cache of programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from _measure import MILLI, Report, at_most, interleave, rounded

from agent_infra.actions.language import ProgramCache
from agent_infra.actions.loading import ActionFiles
from agent_infra.actions.tools import Tool, ToolRegistry
from agent_infra.state import open_memory

TEXT: dict[str, Any] = {"type": "string"}
INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {"city": TEXT, "units": TEXT | {"enum": ["metric", "imperial"]}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
SAMPLE = """\
name: {name}
tool: openweathermap_api
params:
  city: ${{state.nodes.user_intent.data.city}}
  units: {{open: {{enum: [metric, imperial]}}}}
preconditions: ["state.nodes.user_intent.data.confidence > 0.8"]
postconditions: ["result.temp != null"]
confidence: {{min: 0.6, below: ask_human}}
resources: {{cpu: 1, memory_mb: 512, gpu: 0}}
effects: none
refers: {{city: "${{params.city}}"}}
timeout: 30s
result: {{type: api_response, key: weather, ttl: 1800}}
"""


def compiling(report: Report, folder: Path, repetitions: int) -> None:
    """One sample action, and a folder of 50: read and checked, or taken from the cache."""
    tools = ToolRegistry()
    tools.register(Tool("openweathermap_api", INPUT, {"type": "object"}, dict, effects="none"))
    home = open_memory()
    try:
        cold = ActionFiles(tools, home.engine.schemas, None)
        kept = ActionFiles(tools, home.engine.schemas, ProgramCache(folder / "programs"))
        one = folder / "sample.yaml"
        one.write_text(SAMPLE.format(name="get_weather"), encoding="utf-8")
        library = folder / "library"
        library.mkdir()
        for number in range(50):
            (library / f"{number}.yaml").write_text(SAMPLE.format(name=f"weather_{number}"), encoding="utf-8")
        _figure(report, "compile_sample", "one action file of 13 lines", cold, kept, one, repetitions, (5.0, 0.1))
        _figure(
            report, "compile_library", "a folder of 50 action files", cold, kept, library, repetitions // 10 + 1, None
        )
    finally:
        home.close()


def _figure(
    report: Report,
    name: str,
    what: str,
    cold: ActionFiles,
    kept: ActionFiles,
    path: Path,
    repetitions: int,
    goals: tuple[float, float] | None,
) -> None:
    samples, answers = interleave(
        repetitions,
        {"cold": lambda: cold.load(path, {}, {}).contracts, "cached": lambda: kept.load(path, {}, {}).contracts},
    )
    cold_ms, cached_ms = samples["cold"].wall_ms(), samples["cached"].wall_ms()
    report.add(
        name,
        f"{what}: YAML read, expressions checked, references held against the declared node types; or from the cache",
        durability="none: nothing is written",
        ours={kind: found.summary() for kind, found in samples.items()},
        ratios={"cold_to_cached": cold_ms / cached_ms},
        goals=(at_most("cold_p50_ms", cold_ms, goals[0]), at_most("cached_p50_ms", cached_ms, goals[1]))
        if goals
        else (),
        facts={"same_answer": answers["cold"] == answers["cached"], "cached_p50_us": rounded(cached_ms * MILLI)},
    )
