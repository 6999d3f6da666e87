"""Whether a contract is legal at one version, and what it leaves to choose there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from agent_infra.actions.language.conditions import why_not
from agent_infra.actions.language.contract import Contract, reads_params
from agent_infra.actions.language.parameters import schema_problems
from agent_infra.expressions import Expression


@dataclass(frozen=True, slots=True)
class Choice:
    """An open parameter at one version. `values` are all that may be chosen, None if that isn't a finite list."""

    schema: Mapping[str, Any]
    required: bool
    values: tuple[Any, ...] | None


@dataclass(slots=True)
class Legality:
    """A contract as it stands at one version. `reasons` say why it isn't legal; there are none if it is.

    given      the values that the contract gives itself
    choices    its open parameters
    defaults   what open parameters are where they are left out
    validators  the names of the user's own checks that are asked about it
    judged     the preconditions that read open parameters: they hold for some specs and not for others
    """

    contract: Contract
    bindings: Mapping[str, Any]
    given: dict[str, Any] = field(default_factory=dict[str, Any])
    choices: dict[str, Choice] = field(default_factory=dict[str, Choice])
    defaults: dict[str, Any] = field(default_factory=dict[str, Any])
    judged: list[Expression] = field(default_factory=list[Expression])
    reasons: list[str] = field(default_factory=list[str])
    validators: list[str] = field(default_factory=list[str])

    def params_schema(self) -> dict[str, Any]:
        """The JSON Schema of the open parameters."""
        return {
            "type": "object",
            "properties": {name: dict(choice.schema) for name, choice in self.choices.items()},
            "required": [name for name, choice in self.choices.items() if choice.required],
            "additionalProperties": False,
        }

    def identity(self) -> list[Any]:
        """What makes this standing differ from others for a policy: the contract, and what may be chosen."""
        return [self.contract.hash, self.params_schema(), *self.validators]


def legality_of(contract: Contract, bindings: Mapping[str, Any]) -> Legality:
    """A contract on the bindings of one version."""
    standing = Legality(contract, bindings)
    standing.given, problems = contract.resolve_given(bindings)
    standing.reasons += problems
    for name, parameter in contract.open.items():
        schema, reason = parameter.narrowed(bindings)
        if schema is None:
            standing.reasons.append(f"/{name}: {reason}")
        else:
            default = parameter.default_on(bindings)
            unusable = default is not None and default.error is not None
            standing.choices[name] = Choice(schema, parameter.required or unusable, _values(schema))
            if default is not None and not unusable:
                standing.defaults[name] = default.value
    unresolved = set(contract.params) - set(standing.given) - set(standing.choices)
    for condition in contract.preconditions:
        read = _params_read(condition, contract)
        if not read & unresolved:
            _judge(standing, condition, read & set(contract.open))
    return standing


def _params_read(condition: Expression, contract: Contract) -> set[str]:
    whole = ("params",) in condition.reads
    return set(contract.params) if whole else reads_params(condition.reads)


def _judge(standing: Legality, condition: Expression, open_read: set[str]) -> None:
    """Hold a precondition against the standing, or against each choice of the one open parameter that it reads."""
    if open_read:
        standing.judged.append(condition)
        name = next(iter(open_read))
        if len(open_read) == 1 and name in standing.choices and standing.choices[name].values is not None:
            _filter(standing, condition, name)
        return
    reason = why_not(condition, _with(standing, {}))
    if reason is not None:
        standing.reasons.append(reason)


def _filter(standing: Legality, condition: Expression, name: str) -> None:
    choice = standing.choices[name]
    left = [value for value in choice.values or () if condition.evaluate(_with(standing, {name: value})).holds]
    if left:
        refused = name in standing.defaults and not condition.evaluate(_with(standing, {})).holds
        standing.choices[name] = Choice({**choice.schema, "enum": left}, choice.required or refused, tuple(left))
    elif not choice.required and condition.evaluate(_with(standing, {})).holds:
        del standing.choices[name]  # it may only be left out
    else:
        standing.reasons.append(f"/{name}: no choice fulfils {condition.source}")


def _with(standing: Legality, chosen: Mapping[str, Any]) -> dict[str, Any]:
    return {**standing.bindings, "params": {**standing.given, **standing.defaults, **chosen}}


def _values(schema: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """All values of a schema, if it lists them."""
    if "const" in schema:
        listed = [schema["const"]]
    elif isinstance(schema.get("enum"), list):
        listed = cast("list[Any]", schema["enum"])
    elif schema.get("type") in ("boolean", "null"):
        listed = [True, False] if schema["type"] == "boolean" else [None]
    else:
        return None
    return tuple(value for value in listed if not schema_problems(schema, value))
