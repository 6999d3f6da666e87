"""Reading one document as a contract, with every problem of it.

A document says which tool an action calls, where its parameters come from, and what must hold before and after. Nothing
is guessed: a key, tool, parameter or name that isn't known is a problem with its place and what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, Protocol, cast

from agent_infra.actions.language.contract import (
    AFTER,
    BEFORE,
    RETRIABLE,
    Compensation,
    ConfidenceRule,
    Contract,
    Effects,
    ResultNode,
    Retries,
    Timeout,
    reads_params,
)
from agent_infra.actions.language.parameter_reader import ParameterReader
from agent_infra.actions.language.parameters import Open, Parameter
from agent_infra.actions.language.versions import bad_wish, fulfils
from agent_infra.actions.tools import Tool
from agent_infra.content import JsonValue, fingerprint
from agent_infra.documents import Document, Fields, did_you_mean
from agent_infra.errors import ExpressionError, Problem, ToolUnknown
from agent_infra.expressions import Expression, Template, compile_expression, compile_template, problems_at
from agent_infra.observability import get_logger

_WHAT: Final = ("tool", "params", "preconditions", "postconditions", "confidence")
_HOW: Final = ("resources", "effects", "timeout", "retries", "compensation", "result", "refers")
ACTION_KEYS: Final = ("name", "use", *_WHAT, *_HOW)
TEMPLATE_KEYS: Final = ("template", "use", *_WHAT, *_HOW)
RESOURCES: Final = ("cpu", "memory_mb", "gpu", "gpu_memory_mb")
EFFECTS: Final = ("none", "idempotent", "once")
_NAME = re.compile(r"[\w.\-]{1,128}")
_log = get_logger(__name__)


class Tools(Protocol):
    """Where contracts find their tools."""

    def get(self, name: str) -> Tool:
        """The tool of that name. Raises ToolUnknown, saying where it was looked for."""
        ...


def readable_name(fields: Fields, key: str) -> str | None:
    """The name of an action or a template; None, and a problem, where there is none that can be one."""
    if not fields.has(key):
        fields.report("KeyMissing", f"an action needs `{key}`", hint=f"write `{key}: …`")
        return None
    name = fields.text(key)
    if name is None or _NAME.fullmatch(name):
        return name
    hint = "a name is letters, digits, `_`, `-` and `.`, 128 at most"
    fields.report("BadName", f"`{name}` can't be a name", key, hint=hint)
    return None


class ActionReader:
    """Reads one document.

    fields    its problems, in `fields.problems`
    warnings  what may well be meant otherwise, but is no mistake
    missing   the tool that isn't there, as an error of its own
    tool      the tool that it names
    readings  the conditions and templates in it, each with its place
    values    the templates of its parameters, each with its place and the schema of what stands there
    """

    def __init__(self, document: Document, tools: Tools) -> None:
        self.fields = Fields(document, [])
        self.warnings: list[Problem] = []
        self.missing: ToolUnknown | None = None
        self.tool: Tool | None = None
        self.readings: list[tuple[Expression | Template, tuple[str | int, ...]]] = []
        self.values: list[tuple[Template, tuple[str | int, ...], Mapping[str, Any]]] = []
        self._document = document
        self._tools = tools

    def read(self) -> Contract | None:
        """The contract, or None where there are problems."""
        fields = self.fields
        if fields.mapping(known=ACTION_KEYS) is None:
            return None
        name, tool = readable_name(fields, "name"), self._tool()
        params = self._params(tool)
        before, after = self._conditions("preconditions", BEFORE), self._conditions("postconditions", AFTER)
        confidence, timeout = self._confidence(), self._timeout()
        resources, effects = self._resources(tool), self._effects(tool)
        retries, compensation = self._retries(effects), self._compensation()
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
            retries=retries,
            compensation=compensation,
        )
        return replace(contract, hash=fingerprint(_meaning(contract, tool)))

    def warn(
        self, code: str, message: str, *path: str | int, hint: str | None = None, offset: int | None = None
    ) -> None:
        """Note what may be meant otherwise."""
        self.warnings.append(self._document.problem(code, message, *path, hint=hint, offset=offset))

    # -- the tool ------------------------------------------------------------------------------------------------------

    def _tool(self) -> Tool | None:
        name, wish = self._wanted_tool()
        if name is None:
            return None
        try:
            tool = self._tools.get(name)
        except ToolUnknown as unknown:
            self.missing = ToolUnknown(
                unknown.what,
                where=_place(self._document.problem("ToolUnknown", "", "tool")),
                why=unknown.why,
                mend=unknown.mend,
                facts=unknown.facts,
            )
            self.fields.report("ToolUnknown", f"{unknown.what}: {unknown.why}", "tool", hint=unknown.mend)
            return None
        if wish is not None and not fulfils(tool.version, wish):
            path = ("tool", "version") if self.fields.has("tool", "version") else ("tool",)
            message = f"the tool `{name}` is there in version {tool.version}, not in `{wish}`"
            hint = f"write `{name}@{tool.version}`, or bring the tool to the version that is meant"
            self.fields.report("ToolVersion", message, *path, hint=hint)
            return None
        self.tool = tool
        return tool

    def _wanted_tool(self) -> tuple[str | None, str | None]:
        """The tool's name, and the versions that it may have; None: any."""
        fields, path = self.fields, ("tool",)
        if not fields.has("tool"):
            fields.report("KeyMissing", "an action needs `tool`", hint="write `tool: …`")
            return None, None
        if isinstance(fields.get("tool"), dict):
            fields.mapping("tool", known=("name", "version"))
            if not fields.has("tool", "name"):
                fields.report("KeyMissing", "a tool needs its `name`", "tool", hint="write `name: …`")
                return None, None
            name = fields.text("tool", "name")
            wish = fields.text("tool", "version") if fields.has("tool", "version") else None
            path = ("tool", "version")
        else:
            name, sign, wish = (fields.text("tool") or "").partition("@")
            wish = wish if sign else None
        wrong = bad_wish(wish) if wish is not None else None
        if wrong is not None:
            fields.report("BadVersion", wrong, *path, hint="write `1.2.0` for one version, or bounds as in `>=1.2, <2`")
            return None, None
        return name or None, wish

    def _params(self, tool: Tool | None) -> dict[str, Parameter]:
        if tool is None:
            return {}
        reader = ParameterReader(self.fields, tool.input_schema)
        params = reader.read()
        self.values += reader.templates
        return params

    # -- conditions ----------------------------------------------------------------------------------------------------

    def _conditions(self, key: str, variables: Sequence[str]) -> tuple[Expression, ...]:
        found: list[Expression] = []
        for index in range(len(self.fields.sequence(key))):
            source = self.fields.text(key, index)
            try:
                if source is not None:
                    found.append(compile_expression(source, variables))
                    self.readings.append((found[-1], (key, index)))
            except ExpressionError as error:
                self.fields.problems += problems_at(error, self._document, key, index)
        return tuple(found)

    def _text_template(self, variables: Sequence[str], *path: str | int) -> Template | None:
        text = self.fields.text(*path)
        return None if text is None else self._template(text, variables, *path)

    def _template(self, value: JsonValue, variables: Sequence[str], *path: str | int) -> Template | None:
        try:
            template = compile_template(value, variables)
        except ExpressionError as error:
            self.fields.problems += problems_at(error, self._document, *path)
            return None
        self.readings.append((template, path))
        return template

    def _check_params_read(self) -> None:
        """That what conditions and templates read of `params` is a parameter of the action."""
        written = cast("dict[str, JsonValue]", self.fields.get("params") or {})
        for part, path in self.readings:
            for name in sorted(reads_params(part.reads) - written.keys()):
                offset = max(0, part.source.find(f"params.{name}")) if isinstance(part.source, str) else None
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

    def _retries(self, effects: Effects) -> Retries | None:
        fields = self.fields
        if not fields.has("retries"):
            return None
        written = isinstance(fields.get("retries"), dict)
        if written and fields.mapping("retries", known=("times", "wait", "on")) is None:
            return None
        if written and not fields.has("retries", "times"):
            fields.report("KeyMissing", "retries need `times`", "retries", hint="write `times: 2`")
            return None
        path = ("retries", "times") if written else ("retries",)
        times = fields.number(*path, low=1, high=100)
        if times is not None and not times.is_integer():
            fields.report("WrongType", "`retries` must be a whole number of further tries", *path)
        retries = Retries(int(times or 1))
        if fields.has("retries", "wait"):
            retries = replace(retries, wait=fields.seconds("retries", "wait") or 0.0)
        if fields.has("retries", "on"):
            count = range(len(fields.sequence("retries", "on")))
            on = [fields.choice(RETRIABLE, "retries", "on", index) for index in count]
            retries = replace(retries, on=tuple(word for word in on if word is not None))
            if not count and isinstance(fields.get("retries", "on"), list):
                fields.report("BadRetries", "`on` names no failure", "retries", "on", hint=f"write [{RETRIABLE[0]}]")
        if effects == "once" and fields.get("effects") in (None, "once"):
            message = "an action with the effects `once` is never repeated"
            hint = "say `effects: idempotent` where a repeated call does no harm, or leave `retries` out"
            fields.report("RetriesOnce", message, "retries", key=True, hint=hint)
        return retries

    def _compensation(self) -> Compensation | None:
        fields = self.fields
        if not fields.has("compensation") or fields.mapping("compensation", known=("action", "with")) is None:
            return None
        if not fields.has("compensation", "action"):
            hint = "write `action: …`, the action that undoes this one"
            fields.report("KeyMissing", "a compensation needs `action`", "compensation", hint=hint)
            return None
        action = fields.text("compensation", "action")
        fill = (fields.mapping("compensation", "with") or {}) if fields.has("compensation", "with") else {}
        template = self._template(fill, AFTER, "compensation", "with")
        return Compensation(action, template) if action is not None and template is not None else None

    def _result(self) -> ResultNode | None:
        fields = self.fields
        if not fields.has("result") or fields.mapping("result", known=("type", "key", "ttl")) is None:
            return None
        if not fields.has("result", "type"):
            fields.report("KeyMissing", "a result needs the `type` of its node", "result", hint="write `type: …`")
            return None
        type = fields.text("result", "type")
        key = self._text_template(AFTER, "result", "key") if fields.has("result", "key") else None
        ttl = fields.seconds("result", "ttl") if fields.has("result", "ttl") else None
        return ResultNode(type, key, ttl) if type is not None else None

    def _refers(self) -> dict[str, Template]:
        kinds = (self.fields.mapping("refers") or {}) if self.fields.has("refers") else {}
        found = {kind: self._text_template(BEFORE, "refers", kind) for kind in kinds}
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
        "params": {name: _parameter_meaning(parameter) for name, parameter in contract.params.items()},
        "preconditions": [condition.source for condition in contract.preconditions],
        "postconditions": [condition.source for condition in contract.postconditions],
        "confidence": rule and [rule.min, rule.below, rule.fallback],
        "resources": dict(contract.resources),
        "effects": contract.effects,
        "timeout": [timeout.idle, timeout.total],
        "result": result and [result.type, result.key and result.key.source, result.ttl],
        "refers": {kind: template.source for kind, template in contract.refers.items()},
    } | _later_meaning(contract)


def _later_meaning(contract: Contract) -> dict[str, Any]:
    """What contracts had no word for at first, left out where it is unsaid, so that recorded hashes stay as they are."""
    retries, undo = contract.retries, contract.compensation
    said = {
        "retries": retries and [retries.times, retries.wait, sorted(retries.on)],
        "compensation": undo and [undo.action, undo.fill.source],
    }
    return {name: meaning for name, meaning in said.items() if meaning is not None}


def _parameter_meaning(parameter: Parameter) -> list[Any]:
    meaning = ["open" if isinstance(parameter, Open) else "given", parameter.template.source]
    default = parameter.default if isinstance(parameter, Open) else None
    return meaning if default is None else [*meaning, default.source]
