"""The action language: from YAML documents to contracts, with every problem of all of them reported at once.

A file says which tool an action calls, where its parameters come from, and what must hold before and after. Nothing is
guessed: a key, tool, parameter or name that isn't known is a problem with its place and what to write instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, Protocol, cast

from agent_infra.actions.language.contract import (
    AFTER,
    BEFORE,
    ConfidenceRule,
    Contract,
    Effects,
    ResultNode,
    Timeout,
    reads_params,
)
from agent_infra.actions.language.parameter_reader import ParameterReader
from agent_infra.actions.language.parameters import Open, Parameter
from agent_infra.actions.tools import Tool
from agent_infra.content import JsonValue, fingerprint
from agent_infra.documents import Document, Fields, did_you_mean, parse_documents
from agent_infra.errors import ContractErrors, ExpressionError, Problem, ToolUnknown
from agent_infra.expressions import Expression, Template, compile_expression, compile_template, problems_at
from agent_infra.observability import get_logger

_WHAT: Final = ("name", "tool", "params", "preconditions", "postconditions", "confidence")
_HOW: Final = ("resources", "effects", "timeout", "result", "refers")
RESOURCES: Final = ("cpu", "memory_mb", "gpu", "gpu_memory_mb")
EFFECTS: Final = ("none", "idempotent", "once")
_NAME = re.compile(r"[\w.\-]{1,128}")
_log = get_logger(__name__)


class Tools(Protocol):
    """Where contracts find their tools."""

    def get(self, name: str) -> Tool:
        """The tool of that name. Raises ToolUnknown, saying where it was looked for."""
        ...


def compile_contracts(documents: Iterable[Document], tools: Tools, problems: Sequence[Problem] = ()) -> list[Contract]:
    """The contracts of some documents, one each. `problems` are those that reading the documents has found already.

    Raises ContractErrors with all problems of all documents; ToolUnknown if nothing but tools is missing.
    """
    found = list(problems)
    missing: list[ToolUnknown] = []
    contracts: list[Contract] = []
    places: dict[str, str] = {}
    for document in documents:
        reader = _ActionReader(document, tools)
        contract = reader.read()
        if contract is not None:
            reader.check_once(contract.name, places)
        found += [problem for problem in reader.fields.problems if not _is_echo(problem, problems)]
        missing += reader.missing
        if contract is not None:
            contracts.append(contract)
    if missing and all(problem.code == "ToolUnknown" for problem in found):
        raise missing[0]
    if found:
        raise ContractErrors(_in_file_order(found))
    return contracts


def implied_contract(tool: Tool) -> Contract:
    """The contract of a tool that no action file describes: all its parameters are open, nothing else is asked."""
    (contract,) = compile_contracts(parse_documents(scaffold(tool)), _Just(tool))
    return contract


def scaffold(tool: Tool) -> str:
    """An action file for a tool, to begin with: its implied contract written out."""
    names = list(cast("dict[str, Any]", tool.input_schema.get("properties", {})))
    lines = [f"name: {json.dumps(tool.name)}", f"tool: {json.dumps(tool.name)}"]
    if names:
        lines += ["params:", *(f"  {json.dumps(name, ensure_ascii=False)}: {{open: {{}}}}" for name in names)]
    return "\n".join(lines) + "\n"


def _is_echo(problem: Problem, earlier: Iterable[Problem]) -> bool:
    """Whether a problem comes from the stand-in value of one that reading the YAML has found."""
    return any(
        (each.file, each.line) == (problem.file, problem.line)
        and (each.column == problem.column or each.code == "FlowComma")
        for each in earlier
    )


def _in_file_order(problems: Sequence[Problem]) -> list[Problem]:
    files = list(dict.fromkeys(problem.file for problem in problems))
    return sorted(problems, key=lambda each: (files.index(each.file), each.line or 0, each.column or 0))


class _Just:
    """One tool, whatever name is asked for."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    def get(self, name: str) -> Tool:  # noqa: ARG002
        return self._tool


class _ActionReader:
    """Reads one document. `fields.problems` collects what is wrong; `missing` the tools that are."""

    def __init__(self, document: Document, tools: Tools) -> None:
        self.fields = Fields(document, [])
        self.missing: list[ToolUnknown] = []
        self._parts: list[tuple[Expression | Template, tuple[str | int, ...]]] = []
        self._document = document
        self._tools = tools

    def read(self) -> Contract | None:
        """The contract, or None where there are problems."""
        fields = self.fields
        if fields.mapping(known=(*_WHAT, *_HOW)) is None:
            return None
        name = self._name()
        tool = self._tool()
        params = ParameterReader(fields, tool.input_schema).read() if tool else {}
        before, after = self._conditions("preconditions", BEFORE), self._conditions("postconditions", AFTER)
        confidence, timeout = self._confidence(), self._timeout()
        resources, effects = self._resources(tool), self._effects(tool)
        result, refers = self._result(), self._refers()
        if not fields.has("params") or isinstance(fields.get("params"), dict):
            self._check_params_read()
        if fields.problems or tool is None or name is None:
            return None
        self._warn(name, params, before)
        contract = Contract(
            name=name,
            tool=tool.name,
            tool_version=tool.version,
            description=tool.description,
            input_schema=tool.input_schema,
            params=params,
            preconditions=before,
            postconditions=after,
            confidence=confidence,
            resources=resources,
            effects=effects,
            timeout=timeout,
            result=result,
            refers=refers,
            hash="",
            source=self._document.text,
            file=self._document.file,
        )
        return replace(contract, hash=fingerprint(_meaning(contract, tool)))

    def check_once(self, name: str, places: dict[str, str]) -> None:
        """That no document before had the same action name."""
        if name in places:
            self.fields.report("DuplicateAction", f"the action {name!r} stands at {places[name]} too", "name")
        places.setdefault(name, self.fields.place("name"))

    # -- the tool ------------------------------------------------------------------------------------------------------

    def _name(self) -> str | None:
        name = self._required_text("name")
        if name is None or _NAME.fullmatch(name):
            return name
        hint = "an action's name is letters, digits, `_`, `-` and `.`, 128 at most"
        self.fields.report("BadName", f"`{name}` can't be an action's name", "name", hint=hint)
        return None

    def _required_text(self, key: str) -> str | None:
        if self.fields.has(key):
            return self.fields.text(key)
        self.fields.report("KeyMissing", f"an action needs `{key}`", hint=f"write `{key}: …`")
        return None

    def _tool(self) -> Tool | None:
        name = self._required_text("tool")
        if name is None:
            return None
        try:
            return self._tools.get(name)
        except ToolUnknown as unknown:
            error = ToolUnknown(
                unknown.what,
                where=_place(self._document.problem("ToolUnknown", "", "tool")),
                why=unknown.why,
                mend=unknown.mend,
                facts=unknown.facts,
            )
        self.missing.append(error)
        self.fields.report("ToolUnknown", f"{error.what}: {error.why}", "tool", hint=error.mend)
        return None

    # -- conditions ----------------------------------------------------------------------------------------------------

    def _conditions(self, key: str, variables: Sequence[str]) -> tuple[Expression, ...]:
        found: list[Expression] = []
        for index in range(len(self.fields.sequence(key))):
            source = self.fields.text(key, index)
            try:
                if source is not None:
                    found.append(compile_expression(source, variables))
                    self._parts.append((found[-1], (key, index)))
            except ExpressionError as error:
                self.fields.problems += problems_at(error, self._document, key, index)
        return tuple(found)

    def _template(self, variables: Sequence[str], *path: str | int) -> Template | None:
        text = self.fields.text(*path)
        if text is None:
            return None
        try:
            template = compile_template(text, variables)
        except ExpressionError as error:
            self.fields.problems += problems_at(error, self._document, *path)
            return None
        self._parts.append((template, path))
        return template

    def _check_params_read(self) -> None:
        """That what conditions and templates read of `params` is a parameter of the action."""
        written = cast("dict[str, JsonValue]", self.fields.get("params") or {})
        for part, path in self._parts:
            for name in sorted(reads_params(part.reads) - written.keys()):
                offset = max(0, str(part.source).find(f"params.{name}"))
                message = f"the action has no parameter `{name}`"
                self.fields.report("ParamUnknown", message, *path, hint=did_you_mean(name, written), offset=offset)

    def _warn(self, name: str, params: Mapping[str, Parameter], conditions: Iterable[Expression]) -> None:
        """Say which conditions no schema can hold, as they read an open parameter without a finite domain."""
        for condition in conditions:
            wide = [param for param in sorted(reads_params(condition.reads)) if _is_wide(params[param])]
            if wide:
                _log.warning(
                    "condition_outside_schema", action=name, condition=condition.source, open=wide,
                    judged_by="validate",
                )  # fmt: skip

    # -- the rest ------------------------------------------------------------------------------------------------------

    def _confidence(self) -> ConfidenceRule | None:
        fields = self.fields
        if not fields.has("confidence") or fields.mapping("confidence", known=("min", "below")) is None:
            return None
        if not fields.has("confidence", "min"):
            fields.report("KeyMissing", "a confidence rule needs `min`", "confidence", hint="write `min: 0.6`")
            return None
        least = fields.number("confidence", "min", low=0, high=1)
        below, fallback = self._below()
        return ConfidenceRule(least, below, fallback) if least is not None and below is not None else None

    def _below(self) -> tuple[Literal["ask_human", "reject", "fallback"] | None, str | None]:
        path = ("confidence", "below")
        if isinstance(self.fields.get(*path), dict):
            self.fields.mapping(*path, known=("fallback",))
            return "fallback", self.fields.text(*path, "fallback")
        if not self.fields.has(*path):
            return "ask_human", None
        word = self.fields.choice(("ask_human", "reject"), *path)
        return cast("Literal['ask_human', 'reject'] | None", word), None

    def _resources(self, tool: Tool | None) -> dict[str, float]:
        declared = (tool.resources if tool else None) or {}
        resources = {"gpu": 0.0} | {name: float(amount) for name, amount in declared.items()}
        if not self.fields.has("resources"):
            return resources
        for name in self.fields.mapping("resources", known=RESOURCES) or ():
            amount = self.fields.number("resources", name, low=0) if name in RESOURCES else None
            if amount is not None:
                resources[name] = amount
        return resources

    def _effects(self, tool: Tool | None) -> Effects:
        declared = tool.effects if tool else None
        if not self.fields.has("effects"):
            return declared or "once"
        said = cast("Effects | None", self.fields.choice(EFFECTS, "effects"))
        if said and declared and EFFECTS.index(said) < EFFECTS.index(declared):
            message = f"the tool declares `{declared}`, so a repeated call does more harm than `{said}`"
            self.fields.report("EffectsConflict", message, "effects", hint=f"write `{declared}`")
        return said or "once"

    def _timeout(self) -> Timeout:
        fields = self.fields
        if not fields.has("timeout"):
            return Timeout()
        if not isinstance(fields.get("timeout"), dict):
            return Timeout(total=self._limit("timeout"))
        fields.mapping("timeout", known=("idle", "total"))
        return Timeout(self._limit("timeout", "idle"), self._limit("timeout", "total"))

    def _limit(self, *path: str) -> float | None:
        seconds = self.fields.seconds(*path) if self.fields.has(*path) else None
        if seconds == 0:
            self.fields.report("BadDuration", "a time limit is more than 0", *path)
        return seconds

    def _result(self) -> ResultNode | None:
        fields = self.fields
        if not fields.has("result") or fields.mapping("result", known=("type", "key", "ttl")) is None:
            return None
        if not fields.has("result", "type"):
            fields.report("KeyMissing", "a result needs the `type` of its node", "result", hint="write `type: …`")
            return None
        type = fields.text("result", "type")
        key = self._template(AFTER, "result", "key") if fields.has("result", "key") else None
        ttl = fields.seconds("result", "ttl") if fields.has("result", "ttl") else None
        return ResultNode(type, key, ttl) if type is not None else None

    def _refers(self) -> dict[str, Template]:
        kinds = (self.fields.mapping("refers") or {}) if self.fields.has("refers") else {}
        found = {kind: self._template(BEFORE, "refers", kind) for kind in kinds}
        return {kind: template for kind, template in found.items() if template is not None}


def _is_wide(parameter: Parameter) -> bool:
    if not isinstance(parameter, Open):
        return False
    schema = {**parameter.schema, **cast("dict[str, Any]", parameter.template.source)}
    return "enum" not in schema and "const" not in schema and schema.get("type") not in ("boolean", "null")


def _place(problem: Problem) -> str:
    return ":".join(str(part) for part in (problem.file or "<text>", problem.line, problem.column))


def _meaning(contract: Contract, tool: Tool) -> dict[str, Any]:
    """All that makes one contract differ from another, as JSON; writing out a default makes no difference."""
    rule, result, timeout = contract.confidence, contract.result, contract.timeout
    return {
        "name": contract.name,
        "tool": [tool.name, tool.version, tool.input_schema, tool.output_schema],
        "params": {
            name: ["open" if isinstance(parameter, Open) else "given", parameter.template.source]
            for name, parameter in contract.params.items()
        },
        "preconditions": [condition.source for condition in contract.preconditions],
        "postconditions": [condition.source for condition in contract.postconditions],
        "confidence": rule and [rule.min, rule.below, rule.fallback],
        "resources": dict(contract.resources),
        "effects": contract.effects,
        "timeout": [timeout.idle, timeout.total],
        "result": result and [result.type, result.key and result.key.source, result.ttl],
        "refers": {kind: template.source for kind, template in contract.refers.items()},
    }
