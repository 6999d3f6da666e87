"""A plan (GDEP: goal-driven execution plan): the parts of a goal as a DAG, with the contracts that it will run under.

A plan is made by the compiler and is only data until it is executed: compiling writes nothing. Its JSON form is what
the graph keeps, so that a run can go on after a crash under the very contracts that it began with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent_infra.actions import Contract
from agent_infra.expressions import Template, compile_template
from agent_infra.state import StateGraph

FILL_VARIABLES = ("goal", "subgoals", "state")
"""What a subgoal's `with:` may refer to."""


def compile_fill(values: dict[str, Any]) -> Template:
    """Values for open parameters, with their references compiled. Raises ExpressionError."""
    return compile_template(values, FILL_VARIABLES)


@dataclass(frozen=True, slots=True)
class Subgoal:
    """One part of a goal.

    name         its place in the plan
    action       the contract that it executes
    fill         values for the contract's open parameters; may refer to `goal`, `state` and to other subgoals' results
    after        the subgoals that must have succeeded before
    inserted_by  what put it there: None for the goal itself, else a method's or rule's name
    """

    name: str
    action: str
    fill: Template
    after: tuple[str, ...] = ()
    inserted_by: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The subgoal as JSON values, in the grammar of a goal file."""
        written: dict[str, Any] = {"name": self.name, "action": self.action, "after": list(self.after)}
        written["with"] = self.fill.source
        return written | ({"inserted_by": self.inserted_by} if self.inserted_by else {})


@dataclass(frozen=True, slots=True)
class Plan:
    """A compiled goal. Print it, draw it with `to_mermaid()`, execute it with `scheduler.execute_gdep(plan)`."""

    name: str
    definition: dict[str, Any]
    params: dict[str, Any]
    subgoals: tuple[Subgoal, ...]
    contracts: Mapping[str, Contract]
    graph: StateGraph
    text: str | None = None

    @classmethod
    def from_records(
        cls,
        goal: Mapping[str, Any],
        subgoals: Iterable[Mapping[str, Any]],
        contracts: Mapping[str, Contract],
        graph: StateGraph,
    ) -> Plan:
        """The plan that the graph keeps: the data of its goal node and its subgoals."""
        parts = tuple(
            Subgoal(
                each["name"], each["action"], compile_fill(each["with"]), tuple(each["after"]), each.get("inserted_by")
            )
            for each in subgoals
        )
        return cls(goal["name"], goal["definition"], goal["params"], parts, contracts, graph, goal.get("text"))

    def subgoal(self, name: str) -> Subgoal:
        """A subgoal by its name. Raises KeyError."""
        return {subgoal.name: subgoal for subgoal in self.subgoals}[name]

    @property
    def names(self) -> tuple[str, ...]:
        """The subgoals' names, each after those that it waits for."""
        return tuple(subgoal.name for subgoal in self.subgoals)

    def contract_of(self, subgoal: Subgoal) -> Contract:
        """The contract that a subgoal executes."""
        return self.contracts[subgoal.action]

    def to_mermaid(self) -> str:
        """The plan as a Mermaid flow chart; what a rule inserted says which."""
        ids = {name: f"s{index}" for index, name in enumerate(self.names)}
        lines = ["graph TD"]
        for subgoal in self.subgoals:
            label = subgoal.name if subgoal.name == subgoal.action else f"{subgoal.name}: {subgoal.action}"
            if subgoal.inserted_by:
                label += f" (by {subgoal.inserted_by})"
            lines.append(f'    {ids[subgoal.name]}["{_escaped(label)}"]')
        lines += [f"    {ids[before]} --> {ids[each.name]}" for each in self.subgoals for before in each.after]
        return "\n".join(lines)

    def __iter__(self) -> Iterator[Subgoal]:
        return iter(self.subgoals)

    def __str__(self) -> str:
        rows = [f"plan {self.name}: {len(self.subgoals)} subgoal{'s' if len(self.subgoals) != 1 else ''}"]
        for subgoal in self.subgoals:
            after = f" after {', '.join(subgoal.after)}" if subgoal.after else ""
            rows.append(f"  {subgoal.name}: {subgoal.action}{after}")
        return "\n".join(rows)


def _escaped(label: str) -> str:
    return label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
