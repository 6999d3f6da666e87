"""Action contracts: what an action file means, compiled.

A contract is the one thing that masks a policy's choices, judges what it proposes and guards the execution. Its `hash`
is of its meaning: tool, parameters, conditions, effects. Two contracts of one hash may stand in for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from agent_infra.actions.language.parameters import Given, Open, Parameter, equal_json
from agent_infra.actions.tools import Tool
from agent_infra.expressions import Evaluation, Expression, Path, Template

Effects: TypeAlias = Literal["none", "idempotent", "once"]
_HARM: Final = ("none", "idempotent", "once")
GIVEN: Final = ("state", "agent", "now")
"""What a parameter's value may read."""
BEFORE: Final = ("state", "params", "agent", "now")
AFTER: Final = ("state", "params", "result", "agent", "now")


@dataclass(frozen=True, slots=True)
class Timeout:
    """Limits in seconds: `idle` without progress, `total` over all. None: the executor's default."""

    idle: float | None = None
    total: float | None = None


RETRIED: Final = ("TimedOut", "ToolFailed", "WorkerDied")
"""The failures after which a call is tried again where `retries` doesn't say which."""
RETRIABLE: Final = (*RETRIED, "ToolOutOfMemory", "BadOutput", "ExecutorStopped", "OutputInvalid", "PostconditionFailed")


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a failed call is tried again.

    times   further tries, at most
    wait    seconds before each
    on      the codes of the failures that are worth another try
    """

    times: int
    wait: float = 1.0
    on: tuple[str, ...] = RETRIED


@dataclass(frozen=True, slots=True)
class Compensation:
    """The action that undoes this one, and what fills its open parameters; `params` and `result` are of this one."""

    action: str
    fill: Template


@dataclass(frozen=True, slots=True)
class ConfidenceRule:
    """What happens to a proposed spec whose confidence is under `min` or missing.

    below   "ask_human", "reject", or "fallback", which executes the action named by `fallback` instead
    """

    min: float
    below: Literal["ask_human", "reject", "fallback"]
    fallback: str | None = None

    @property
    def needs(self) -> str | None:
        """What a spec under the bar needs: "ask_human", the fallback action's name, or None where it is rejected."""
        return self.fallback if self.below == "fallback" else "ask_human" if self.below == "ask_human" else None


@dataclass(frozen=True, slots=True)
class ResultNode:
    """The node that a success writes: its type, its key (which may hold references) and its ttl in seconds."""

    type: str
    key: Template | None = None
    ttl: float | None = None

    def key_for(self, bindings: Mapping[str, Any]) -> Evaluation:
        """The node's key, None where it has none; or why it has no value."""
        return Evaluation() if self.key is None else self.key.resolve(bindings)


@dataclass(frozen=True, slots=True, eq=False)
class Contract:
    """A compiled action.

    params        by name: `Given` values, fixed or referenced, and `Open` ones, left to the policy
    resources     what a call needs: cpu cores, memory_mb, gpu, …; the tool's own where the file says nothing
    effects       whether a repeated call does harm; `once` where neither file nor tool says
    refers        business keys, by which signals find the session
    retries       what is tried again after a failure; None: nothing. Never with effects `once`
    compensation  the action that undoes this one, where there is one
    hash          fingerprint of the meaning
    source        the YAML that compiles to an equal contract as long as the tool stays the same
    """

    name: str
    tool: str
    tool_version: str
    description: str
    input_schema: Mapping[str, Any]
    params: Mapping[str, Parameter]
    preconditions: tuple[Expression, ...]
    postconditions: tuple[Expression, ...]
    confidence: ConfidenceRule | None
    resources: Mapping[str, float]
    effects: Effects
    timeout: Timeout
    result: ResultNode | None
    refers: Mapping[str, Template]
    hash: str
    source: str
    file: str | None
    retries: Retries | None = None
    compensation: Compensation | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Contract) and other.hash == self.hash

    def __hash__(self) -> int:
        return hash(self.hash)

    def is_for(self, tool: Tool | None) -> bool:
        """Whether it holds for a tool as it is now, which may declare no more harm than the contract says."""
        if tool is None or (tool.version, tool.input_schema) != (self.tool_version, self.input_schema):
            return False
        return tool.effects is None or _HARM.index(tool.effects) <= _HARM.index(self.effects)

    @property
    def given(self) -> dict[str, Given]:
        """The parameters whose values the contract gives."""
        return {name: parameter for name, parameter in self.params.items() if isinstance(parameter, Given)}

    @property
    def open(self) -> dict[str, Open]:
        """The parameters that are left open."""
        return {name: parameter for name, parameter in self.params.items() if isinstance(parameter, Open)}

    @property
    def required_open(self) -> tuple[str, ...]:
        """The open parameters that the policy must choose: the tool can't do without, and they have no default."""
        return tuple(name for name, parameter in self.open.items() if parameter.required)

    @property
    def readings(self) -> tuple[Expression | Template, ...]:
        """All that is evaluated before the call: what to fetch from the graph for it."""
        templates = [template for parameter in self.params.values() for template in parameter.templates]
        key = [] if self.result is None or self.result.key is None else [self.result.key]
        return (*templates, *self.preconditions, *self.refers.values(), *key)

    def resolve(self, bindings: Mapping[str, Any], fill: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The call's parameters, open ones from `fill` or their defaults; and what is wrong with them, each with its
        name.
        """
        params, problems = self.resolve_given(bindings)
        for name, value in fill.items():
            parameter = self.params.get(name)
            if parameter is None:
                problems.append(f"/{name}: {self.name} has no parameter of that name")
            elif isinstance(parameter, Given):
                if name in params and not equal_json(params[name], value):
                    problems.append(f"/{name}: it is given by the contract, as {params[name]!r}, not {value!r}")
            else:
                problems += [f"/{name}{reason}" for reason in parameter.problems(value, bindings)]
                params[name] = value
        for name, parameter in self.open.items():
            default = None if name in fill else parameter.default_on(bindings)
            if default is not None and default.error is not None:
                problems.append(f"/{name}: nothing was chosen, and {default.error}")
            elif default is not None:
                params[name] = default.value
        missing = [name for name in self.required_open if name not in fill]
        problems += [f"/{name}: it is left open, and nothing fills it" for name in missing]
        return {name: params[name] for name in self.params if name in params}, problems

    def resolve_given(self, bindings: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The fixed and referenced parameters, and which of them have no value."""
        params: dict[str, Any] = {}
        problems: list[str] = []
        for name, parameter in self.given.items():
            found = parameter.template.resolve(bindings)
            if found.error is None:
                params[name] = found.value
            else:
                problems.append(f"/{name}: {found.error}")
        return params, problems

    def references(self, bindings: Mapping[str, Any]) -> list[tuple[str, str]]:
        """The business keys of a call, as (kind, value); those without a value are left out."""
        found = {kind: template.resolve(bindings).value for kind, template in self.refers.items()}
        return [(kind, str(value)) for kind, value in found.items() if value is not None]

    def __repr__(self) -> str:
        return f"Contract({self.name!r}, tool={self.tool!r}, hash={self.hash!r})"


def reads_params(paths: Iterable[Path]) -> set[str]:
    """The names of the parameters that some paths read."""
    return {path[1] for path in paths if path[0] == "params" and len(path) > 1}
