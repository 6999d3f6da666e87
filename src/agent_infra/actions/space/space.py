"""The action space: what may be done at one version of one session, computed from its graph.

Contracts and a graph go in. Out come the legal contracts, the reasons why the others are not, and the legal specs: as
JSON Schema, as OpenAI tools, as a list where they are finite, and as a verdict on any spec.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, cast

from agent_infra.actions.language.contract import Contract
from agent_infra.actions.space.legality import Legality, legality_of
from agent_infra.actions.space.validators import Validators
from agent_infra.actions.space.verdict import Checked, Verdict, judge, read_json
from agent_infra.clock import to_datetime
from agent_infra.content import fingerprint
from agent_infra.errors import ContractUnknown, NotEnumerable
from agent_infra.state import StateGraph, activation

_FUNCTION = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The names that OpenAI's chat API takes for a function."""
_ALIAS: Final = "action_"


class ActionSpace:
    """The legal action specs of one version.

    version    the version that it was computed from
    legal      the contracts that may be executed
    illegal    the others, each with its reason
    fixed      the values that legal contracts give themselves, by contract and parameter
    hash       of what is legal and what may be chosen; given values have no part in it
    """

    def __init__(
        self, standings: Sequence[Legality], version: str | None = None, checked: Checked | None = None
    ) -> None:
        self.version = version
        self._checked = checked
        self._standings = {standing.contract.name: standing for standing in standings}
        self._legal = {name: standing for name, standing in self._standings.items() if not standing.reasons}
        self.legal: list[Contract] = [standing.contract for standing in self._legal.values()]
        self.illegal: list[tuple[Contract, str]] = [
            (standing.contract, "; ".join(standing.reasons)) for standing in standings if standing.reasons
        ]
        self.fixed: dict[str, dict[str, Any]] = {name: standing.given for name, standing in self._legal.items()}
        self.hash = fingerprint({name: standing.identity() for name, standing in self._legal.items()})

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of the legal specs, without given parameters. Nothing matches it where nothing is legal."""
        specs = [
            {
                "type": "object",
                "properties": {
                    "tool": {"const": name},
                    "params": standing.params_schema(),
                    "confidence": {"type": "number", "minimum": 0, "maximum": 1},
                },
                "required": ["tool", "params"],
                "additionalProperties": False,
            }
            for name, standing in self._legal.items()
        ]
        return {"anyOf": specs} if specs else {"not": {}}

    def openai_tools(self) -> list[dict[str, Any]]:
        """The legal contracts as tools of OpenAI's chat API, their open parameters as the arguments.

        That API takes plain names only: an action called 退款 goes by a name made of its hash, and its own stands in the
        description. `spec_of_call` leads back.
        """
        return [
            {
                "type": "function",
                "function": {
                    "name": _function_name(name),
                    "description": _described(name, standing.contract.description),
                    "parameters": standing.params_schema(),
                },
            }
            for name, standing in self._legal.items()
        ]

    def spec_of_call(self, name: str, arguments: str | Mapping[str, Any]) -> dict[str, Any]:
        """The spec that a call of one of `openai_tools` means, to be validated. Nothing is mended: what can't be read
        stands in the spec as it came, and its verdict is invalid.
        """
        params: Any = arguments
        if isinstance(arguments, str):
            try:
                params = read_json(arguments)
            except (ValueError, RecursionError):
                params = arguments
        own = next((each for each in self._standings if _function_name(each) == name), name)
        return {
            "tool": own,
            "params": dict(cast("Mapping[str, Any]", params)) if isinstance(params, Mapping) else params,
        }

    def enumerate(self, only: str | Iterable[str] | None = None, limit: int = 10_000) -> list[dict[str, Any]]:
        """All legal specs, or those of some contracts. Where confidence is judged, they carry the confidence 1.

        Raises NotEnumerable, naming the parameter whose domain isn't finite, or where there are more than `limit`;
        ContractUnknown.
        """
        specs: list[dict[str, Any]] = []
        for name in self._wanted(only):
            standing = self._legal.get(name)
            for spec in _specs(standing, limit) if standing else ():
                if self.validate(spec).ok:
                    specs.append(spec)
            if len(specs) > limit:
                raise NotEnumerable(f"there are more than {limit} legal specs", mend="Raise `limit`, or use `only`.")
        return specs

    def _wanted(self, only: str | Iterable[str] | None) -> list[str]:
        names = list(self._standings) if only is None else [only] if isinstance(only, str) else list(only)
        unknown = next((name for name in names if name not in self._standings), None)
        if unknown is not None:
            raise ContractUnknown(f"there is no action {unknown!r}", mend=f"Known: {', '.join(self._standings)}.")
        return names

    def validate(self, spec: Any, *, confidence: bool = True) -> Verdict:
        """Whether a spec may be executed, with all reasons why not at once. Takes JSON text too. Never raises.

        confidence   False: don't judge it, as for specs that a rule or a person proposes
        """
        return judge(spec, self._standings, confidence=confidence, checked=self._checked)

    def __repr__(self) -> str:
        return f"ActionSpace(legal={[contract.name for contract in self.legal]}, hash={self.hash!r})"


def _function_name(name: str) -> str:
    """An action's name as OpenAI's chat API takes it."""
    return name if _FUNCTION.fullmatch(name) else f"{_ALIAS}{fingerprint(name)}"


def _described(name: str, description: str) -> str:
    return description if _FUNCTION.fullmatch(name) else f"{name}: {description}" if description else name


def action_space(
    contracts: Sequence[Contract],
    graph: StateGraph,
    agent: str | None = None,
    validators: Validators | None = None,
    drifted: Mapping[str, str] | None = None,
) -> ActionSpace:
    """The space of some contracts at a graph's version, for an agent.

    validators  are asked about each spec too
    drifted     by name, what keeps contracts from being executed at all
    """
    version, moment = graph.version, to_datetime(graph.view.as_of)
    view = graph.at(version, moment)
    bindings = _bindings(contracts, view, moment, agent)
    standings = [legality_of(contract, bindings) for contract in contracts]
    for standing in standings:
        if drifted and standing.contract.name in drifted:
            standing.reasons.insert(0, drifted[standing.contract.name])
    if validators is None:
        return ActionSpace(standings, version)
    for standing in standings:
        standing.validators = validators.names(standing.contract.name)
    return ActionSpace(standings, version, lambda action, params: validators.problems(action, params, view))


def _bindings(contracts: Sequence[Contract], view: StateGraph, moment: datetime, agent: str | None) -> dict[str, Any]:
    """What conditions and references see."""
    state, _ = activation(view, [reading for contract in contracts for reading in contract.readings])
    return state | {"agent": {"name": agent}, "now": moment.isoformat()}


def _specs(standing: Legality, limit: int) -> Iterator[dict[str, Any]]:
    """Every combination of a contract's choices; an optional parameter may be left out. Raises NotEnumerable."""
    contract = standing.contract
    ranges: list[list[dict[str, Any]]] = []
    for name, choice in standing.choices.items():
        if choice.values is None:
            raise NotEnumerable(
                f"the parameter {name!r} of action {contract.name!r} has no finite domain",
                mend=f"List its values, as in {name}: {{open: {{enum: […]}}}}, or name other actions by `only`.",
                facts={"action": contract.name, "param": name},
            )
        ranges.append([{name: value} for value in choice.values] + ([] if choice.required else [{}]))
    if math.prod(len(values) for values in ranges) > limit:
        raise NotEnumerable(
            f"action {contract.name!r} has more than {limit} combinations of its choices",
            mend="Raise `limit`, or use `only`.",
            facts={"action": contract.name},
        )
    sure = {"confidence": 1.0} if contract.confidence is not None and contract.open else {}
    for combination in itertools.product(*ranges):
        params = {name: value for part in combination for name, value in part.items()}
        yield {"tool": contract.name, "params": params} | sure
