"""A run's progress as nodes: the only memory that a run has, so that another process can go on from it.

    goal      key goal/<goal id>            running -> succeeded | failed | waiting
    plan      key plan/<goal id>            the subgoals and the contracts' sources
    subgoal   key subgoal/<goal id>/<name>  pending -> running -> succeeded | failed | waiting, or skipped

A subgoal's `running` lands in the same step as the call's intent, and its end in the same step as the call's
receipt: there is no moment at which one is on the disk without the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent_infra.scheduler.plan import Plan
from agent_infra.state import Node, StateGraph, Step

UNFINISHED = ("running", "waiting")


@dataclass(slots=True)
class State:
    """Where a subgoal stands: its status, its newest node, the call it made, and why it failed or waits."""

    status: str = "pending"
    node: str | None = None
    call: str | None = None
    error: dict[str, Any] | None = None


class Progress:
    """The records of one goal's run in one session."""

    def __init__(self, graph: StateGraph, goal_id: str, states: dict[str, State]) -> None:
        self.graph = graph
        self.goal_id = goal_id
        self.states = states
        self._goal: dict[str, Any] = {}

    @classmethod
    def begin(cls, plan: Plan, goal_id: str) -> Progress:
        """Write a new run's goal, plan and subgoals as one step."""
        progress = cls(plan.graph, goal_id, {name: State() for name in plan.names})
        progress._goal = {
            "name": plan.name,
            "goal_id": goal_id,
            "definition": plan.definition,
            "params": plan.params,
            "status": "running",
            "agent": plan.graph.agent,
        } | ({"text": plan.text} if plan.text else {})
        with plan.graph.step(durable=False) as step:
            goal = step.add_node("goal", progress._goal, key=f"goal/{goal_id}")
            written = step.add_node("plan", _plan_data(plan, goal_id), key=f"plan/{goal_id}")
            step.add_edge(goal.id, written.id, "triggers")
            for subgoal in plan:
                progress._write(step, subgoal.name, subgoal.action, "pending")
                step.add_edge(written.id, progress._id(subgoal.name), "triggers")
            for subgoal in plan:
                for before in subgoal.after:
                    step.add_edge(progress._id(subgoal.name), progress._id(before), "depends_on")
        return progress

    @classmethod
    def load(cls, graph: StateGraph, goal: Node) -> Progress:
        """The progress that the graph holds of a goal."""
        goal_id = goal.data["goal_id"]
        progress = cls(graph, goal_id, {})
        progress._goal = dict(goal.data)
        for name in [each["name"] for each in progress.plan_data()["subgoals"]]:
            node = progress._newest(name)
            data = node.data
            progress.states[name] = State(data["status"], node.id, data.get("call"), data.get("error"))
        return progress

    def plan_data(self) -> dict[str, Any]:
        """The plan as it was written."""
        return self._keyed(f"plan/{self.goal_id}").data

    def definition(self) -> dict[str, Any]:
        """The goal as it was written."""
        return self._goal

    def _newest(self, name: str) -> Node:
        return self._keyed(f"subgoal/{self.goal_id}/{name}")

    def _keyed(self, key: str) -> Node:
        return self.graph.nodes(key=key, limit=1)[0]

    def _id(self, name: str) -> str:
        node = self.states[name].node
        assert node is not None, f"subgoal {name} was not written"
        return node

    # -- what happens ------------------------------------------------------------------------------

    def started(self, step: Step, name: str, action: str, call: Node) -> None:
        """Note in an open step that a subgoal runs by this call."""
        self._write(step, name, action, "running", call=call.id)
        step.add_edge(self._id(name), call.id, "triggers")

    def ended(
        self, step: Step, name: str, action: str, status: str, call: str | None, error: Mapping[str, Any] | None = None
    ) -> None:
        """Note in an open step how a subgoal ended, or why it waits."""
        begun = self.states[name].call
        self._write(step, name, action, status, call=call, error=error)
        if call is not None and call != begun:
            step.add_edge(self._id(name), call, "triggers")

    def finish(self, status: str, error: Mapping[str, Any] | None, skipped: Mapping[str, str]) -> None:
        """Write how the goal ended, with what was never begun. Returns when all of the run is durable."""
        with self.graph.step() as step:
            for name, action in skipped.items():
                self._write(step, name, action, "skipped", error=error)
            self._goal = self._goal | {"status": status} | ({"error": dict(error)} if error else {})
            step.add_node("goal", self._goal, key=f"goal/{self.goal_id}")

    def _write(
        self,
        step: Step,
        name: str,
        action: str,
        status: str,
        *,
        call: str | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> None:
        data: dict[str, Any] = {"goal_id": self.goal_id, "name": name, "action": action, "status": status}
        data |= {"call": call} if call else {}
        data |= {"error": dict(error)} if error else {}
        node = step.add_node("subgoal", data, key=f"subgoal/{self.goal_id}/{name}")
        self.states[name] = State(status, node.id, call, dict(error) if error else None)


def _plan_data(plan: Plan, goal_id: str) -> dict[str, Any]:
    return {
        "goal_id": goal_id,
        "name": plan.name,
        "subgoals": [subgoal.as_dict() for subgoal in plan],
        "contracts": {
            name: {"hash": contract.hash, "source": contract.source} for name, contract in plan.contracts.items()
        },
    }
