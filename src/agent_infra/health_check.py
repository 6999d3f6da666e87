"""`python -m agent_infra.health_check`, the same as `agent-infra health`: really use each layer, once, in a
temporary home.

Prints one line a layer with figures measured just now; exit status 1 if one fails, with the reason and the mend.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from agent_infra import Infra, Signal, Tool
from agent_infra.config import Project
from agent_infra.errors import AgentInfraError

SAMPLE_ACTION: Final = """\
name: double
tool: health_double
params: {number: "${state.nodes.user_intent.data.number}"}
preconditions: ["state.nodes.user_intent.data.number > 0"]
postconditions: ["result.doubled == state.nodes.user_intent.data.number * 2"]
effects: none
result: {type: api_response, key: doubled}
"""
SAMPLE_RULES: Final = """\
version: 1
sources:
  health_rating: {range: [-1, 1], weight: 1.0}
rules:
  - {id: praise, when: {r: {signal: 'r.value > 0.9'}}, then: {add: "0.1"}}
  - {id: blame, when: {r: {signal: 'r.value < -0.9'}}, then: {add: "-0.1"}}
  - {id: doubt, when: {r: {signal: 'r.confidence < 0.5'}}, then: {scale: "0.5"}}
  - {id: urgent, salience: 10, when: {r: {signal: 'r.priority == "high"'}}, then: {scale: "2.0"}}
  - {id: notice, when: {r: {signal: 'r.value > 0.0'}}, then: {flag: "a signal was woven"}}
"""
SAMPLE_GOAL: Final[dict[str, Any]] = {
    "goal": "health",
    "subgoals": {
        "first": {"action": "health_step", "with": {"number": 1}},
        "second": {"action": "health_step", "with": {"number": "${subgoals.first.result.doubled}"}},
        "third": {"action": "health_step", "with": {"number": "${subgoals.second.result.doubled}"}},
    },
}


@dataclass(frozen=True, slots=True)
class Check:
    """What one layer said: its name, whether it works, and the figures or the reason."""

    layer: str
    ok: bool
    message: str


class Failed(AgentInfraError):
    """A layer works, and gives a wrong answer."""


def run_checks() -> list[Check]:
    """Exercise every layer in a temporary home."""
    with tempfile.TemporaryDirectory(prefix="agent-infra-health-") as folder:
        root = Path(folder)
        try:
            infra = Infra.open(root / "home", project=Project(root=root))
        except Exception as error:  # noqa: BLE001 - a health check reports whatever goes wrong
            return [Check("State Graph", False, _told(error))]
        with infra:
            for name in ("health_double", "health_step"):
                infra.tools.register(_doubling(name))
            return [_checked(name, check, infra, root) for name, check in CHECKS.items()]


def _checked(name: str, check: Callable[[Infra, Path], str], infra: Infra, root: Path) -> Check:
    try:
        return Check(name, True, check(infra, root))
    except Exception as error:  # noqa: BLE001 - a health check reports whatever goes wrong
        return Check(name, False, _told(error))


def _told(error: Exception) -> str:
    """The reason and the mend."""
    if isinstance(error, AgentInfraError):
        return str(error)
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error}. Check the disk, its free space and its rights ($TMPDIR names the folder)."
    return f"{type(error).__name__}: {error}. Reinstall agent-infra-rl; report it if it stays."


def _doubling(name: str) -> Tool:
    number = {"type": "number"}
    return Tool(
        name,
        {"type": "object", "properties": {"number": number}, "required": ["number"], "additionalProperties": False},
        {"type": "object", "properties": {"doubled": number}, "required": ["doubled"]},
        _double,
        effects="none",
    )


def _double(number: float) -> dict[str, float]:
    return {"doubled": number * 2}


def _check_state(infra: Infra, _: Path) -> str:
    graph = infra.session("health_state")
    graph.add_node("note", {"text": "before"})
    before = graph.version
    started = time.perf_counter()
    with graph.step() as step:
        for number in range(1000):
            step.add_node("note", {"text": "node", "number": number})
    took = _milliseconds(started)
    _expect(len(graph.nodes(type="note")) == 1001, "1000 inserted nodes are not all found again")
    verification = graph.verify()
    _expect(verification.ok, "; ".join(verification.problems))
    _expect(graph.rollback(to=before) == before, "a rollback did not reach its version")
    _expect(len(graph.nodes(type="note")) == 1, "a rolled-back step is still to be seen")
    return f"1000 nodes inserted in {took}"


def _check_actions(infra: Infra, root: Path) -> str:
    sample = root / "sample.yaml"
    sample.write_text(SAMPLE_ACTION, encoding="utf-8")
    started = time.perf_counter()
    (contract,) = infra.actions.load(sample)
    took = _milliseconds(started)
    graph = infra.session("health_actions")
    graph.add_node("user_intent", {"number": 21})
    result = infra.actions.execute(contract.name, graph)
    _expect(result.ok and result.output == {"doubled": 42}, f"the sample action gave {result}")
    check = infra.evidence.verify(result.evidence_cid)
    _expect(check.ok, "; ".join(check.problems))
    return f"Compiled {sample.name} in {took}"


def _check_rewards(infra: Infra, root: Path) -> str:
    rules = root / "rules.yaml"
    rules.write_text(SAMPLE_RULES, encoding="utf-8")
    loaded = infra.weaver.load_rules(rules)
    result = infra.actions.execute("double", infra.session("health_actions"))
    infra.weaver.ingest(Signal("health_rating", 0.95, event_id=result.event_id))
    reward = infra.weaver.weave(result.event_id)
    _expect(reward.value == 1.0, f"a signal of 0.95 and a bonus of 0.1, clipped to 1, were woven to {reward.value}")
    parts = sum(part.micro for part in reward.contributions)
    _expect(parts == reward.micro, f"the contributions add up to {parts}, the value is {reward.micro}")
    return f"Loaded {len(loaded.rules)} rules, processed test signal"


def _check_scheduler(infra: Infra, _: Path) -> str:
    result = infra.run(SAMPLE_GOAL, session="health_scheduler")
    _expect(result.ok, str(result))
    _expect(result.outputs["third"] == {"doubled": 8}, f"the sample goal gave {result}")
    return f"Scheduled {len(result.outputs)} subgoals, all completed"


CHECKS: Final[dict[str, Callable[[Infra, Path], str]]] = {
    "State Graph": _check_state,
    "Action DSL": _check_actions,
    "Reward Weaver": _check_rewards,
    "GDEP Scheduler": _check_scheduler,
}


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Failed(otherwise, mend="Reinstall agent-infra-rl; report it if it stays.")


def _milliseconds(started: float) -> str:
    return f"{(time.perf_counter() - started) * 1000:.0f}ms"


def main(arguments: list[str] | None = None) -> int:
    """Print one line a layer (`--json`: a list of objects); give the exit status."""
    as_json = "--json" in (sys.argv[1:] if arguments is None else arguments)
    checks = run_checks()
    if as_json:
        print(json.dumps([asdict(check) for check in checks], ensure_ascii=False, indent=2))
    else:
        for check in checks:
            print(f"[{'OK' if check.ok else 'FAIL'}] {check.layer}: {check.message}")
    return 0 if all(check.ok for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
