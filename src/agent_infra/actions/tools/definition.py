"""Tools: what an agent can call, each with the schemas of what goes in and what comes out.

A tool comes from a typed function (`make_tool`; `@tool` only marks it) or from `Tool(…)` with schemas written by
hand. Its definition is checked when it is made: a misspelt type or a remote `$ref` never reaches a contract or a
policy.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, TypeVar, overload

import jsonschema_rs

from agent_infra.actions.schemas import compile_schema, problems_of
from agent_infra.actions.tools.binding import Binding, bind, describe, input_schema, output_schema
from agent_infra.actions.tools.elsewhere import Elsewhere
from agent_infra.content import json_bytes
from agent_infra.errors import NotJson, ToolInvalid

Effects: TypeAlias = Literal["none", "idempotent", "once"]
Isolation: TypeAlias = Literal["none", "process", "container", "mcp"]
Function = TypeVar("Function", bound=Callable[..., Any])

MARK: Final = "__agent_infra_tool__"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,127}")
_RESOURCES = ("cpu", "memory_mb", "gpu", "gpu_memory_mb")
_EFFECTS = ("none", "idempotent", "once")
_ISOLATION = ("none", "process", "container", "mcp")


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """Something callable, with the schemas of its parameters and its result.

    run          called as `run(**params)`, sync or async; gives a JSON value. May take a CallContext. Or a record of a
                 tool that is elsewhere: OnMcpServer, InContainer
    resources    what a call needs: {"cpu": cores, "memory_mb": MiB, "gpu": devices, "gpu_memory_mb": MiB}
    effects      whether a repeated call does harm: "none", "idempotent", "once"; None, unsaid, is treated as "once"
    isolation    "none": in this process; "process": in a worker process, which a time or memory limit can end;
                 "container" or "mcp" follow from such a record
    settings     handed to it by `CallContext.settings`; a text `secret://NAME` in them is that secret's value there

    Raises ToolInvalid for a definition that can't be used.
    """

    name: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    run: Callable[..., Any]
    version: str = "1.0.0"
    resources: Mapping[str, float] | None = None
    effects: Effects | None = None
    description: str = ""
    isolation: Isolation = "none"
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    binding: Binding = field(init=False, repr=False)
    _input: jsonschema_rs.Validator = field(init=False, repr=False)
    _output: jsonschema_rs.Validator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.run, Elsewhere) and self.isolation == "none":
            object.__setattr__(self, "isolation", self.run.isolation)
        _check_words(self)
        try:
            json_bytes(self.settings, where=f"the settings of {self.name}")
        except NotJson as error:
            raise ToolInvalid(error.what, where=error.where, why=error.why, mend="Settings are JSON values.") from error
        binding = bind(self.run, self.name)
        read = compile_schema(self.input_schema, f"the input schema of {self.name}")
        output = {} if self.output_schema is None else self.output_schema
        written = compile_schema(output, f"the output schema of {self.name}")
        _check_parameters(self, binding)
        object.__setattr__(self, "output_schema", output)
        object.__setattr__(self, "resources", dict(self.resources or {}))
        object.__setattr__(self, "binding", binding)
        object.__setattr__(self, "_input", read)
        object.__setattr__(self, "_output", written)

    @property
    def effects_in_force(self) -> Effects:
        """The declared effects; `once` where none are, so that nothing undeclared is repeated."""
        return self.effects or "once"

    def check_input(self, params: Mapping[str, Any]) -> list[str]:
        """What is wrong with a call's parameters, each with its JSON pointer; empty when they may be used as given."""
        problems = problems_of(self._input, dict(params), "params")
        binding = self.binding
        if binding.inspected and binding.open is None and not problems:
            strange = [key for key in params if key not in binding.parameters]
            problems = [f"/{key}: {self.name} takes no parameter of that name" for key in strange]
        return problems

    def check_output(self, value: Any) -> list[str]:
        """What is wrong with a result, each with its JSON pointer."""
        return problems_of(self._output, value, "the output")

    def definition(self) -> dict[str, Any]:
        """All that a caller can know of the tool, as JSON: what contracts hash and lists show."""
        return {
            "name": self.name,
            "version": self.version,
            "description": self.description,
            "input_schema": self.input_schema,
            "output_schema": self.output_schema,
            "resources": dict(self.resources or {}),
            "effects": self.effects,
            "isolation": self.isolation,
        }


def make_tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    version: str = "1.0.0",
    effects: Effects | None = None,
    resources: Mapping[str, float] | None = None,
    isolation: Isolation = "none",
    settings: Mapping[str, Any] | None = None,
) -> Tool:
    """A tool from a typed function: schemas from its hints, descriptions from its docstring. Raises ToolInvalid."""
    called = name or str(getattr(function, "__name__", type(function).__name__))
    binding = bind(function, called)
    return Tool(
        called,
        input_schema(binding),
        output_schema(binding),
        function,
        version=version,
        resources=resources,
        effects=effects,
        description=describe(function)[0],
        isolation=isolation,
        settings=dict(settings or {}),
    )


@overload
def tool(function: Function) -> Function: ...


@overload
def tool(
    *,
    name: str | None = None,
    version: str = "1.0.0",
    effects: Effects | None = None,
    resources: Mapping[str, float] | None = None,
    isolation: Isolation = "none",
    settings: Mapping[str, Any] | None = None,
) -> Callable[[Function], Function]: ...


def tool(function: Any = None, **options: Any) -> Any:
    """Mark a function as a tool, with the options of `make_tool`. It stays the function it is; whoever loads its module
    registers it, so a tools.py never opens a home.
    """

    def mark(target: Function) -> Function:
        setattr(target, MARK, options)
        return target

    return mark if function is None else mark(function)


def _check_words(tool: Tool) -> None:
    """Refuse a name, version, effects, isolation or resource that means nothing."""
    if not _NAME.fullmatch(tool.name):
        raise ToolInvalid(
            f"{tool.name!r} can't be a tool's name",
            why="it is 1 to 128 letters of a to z, digits, `_`, `-` and `.`, and begins with a letter, digit or `_`",
            mend="Give the tool a plain `name=`; its description may be in any language.",
        )
    if not tool.version:
        raise ToolInvalid(f"{tool.name} has an empty version", mend="Leave it out, or write one such as '1.0.0'.")
    if not callable(tool.run):
        raise ToolInvalid(f"{tool.name} can't be called", why=f"run is a {type(tool.run).__name__}, not a function")
    if tool.effects is not None:
        _check_choice(tool.name, "effects", tool.effects, _EFFECTS)
    _check_choice(tool.name, "isolation", tool.isolation, _ISOLATION)
    fitting = (tool.run.isolation,) if isinstance(tool.run, Elsewhere) else ("none", "process")
    if tool.isolation not in fitting:
        raise ToolInvalid(
            f"{tool.name} has the isolation {tool.isolation!r}",
            why=f"its run is {_said(tool.run)}, for which it can be {' or '.join(map(repr, fitting))}",
            mend="A tool in a container has an InContainer as its run, one of an MCP server an OnMcpServer.",
        )
    for key, amount in (tool.resources or {}).items():
        _check_choice(tool.name, "resource", key, _RESOURCES)
        if type(amount) not in (int, float) or not 0 <= amount < float("inf"):
            raise ToolInvalid(f"{tool.name} asks for {key}: {amount!r}", why="a resource is a number of 0 or more")


def _said(run: object) -> str:
    return str(run) if isinstance(run, Elsewhere) else "a function of Python"


def _check_choice(name: str, what: str, given: str, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        alike = difflib.get_close_matches(str(given), allowed, n=1)
        raise ToolInvalid(
            f"{name} has the {what} {given!r}",
            why=f"known are {', '.join(allowed)}",
            mend=f"Did you mean {alike[0]!r}?" if alike else None,
        )


def _check_parameters(tool: Tool, binding: Binding) -> None:
    """Refuse a schema and a function that don't take the same parameters: a valid call would fail each time."""
    schema = tool.input_schema
    if schema.get("type", "object") != "object":
        raise ToolInvalid(
            f"the input schema of {tool.name} has the type {schema['type']!r}",
            where="/type",
            why="a tool's parameters are given by name, as one object",
        )
    if not binding.inspected or any(word in schema for word in ("$ref", "allOf", "anyOf", "oneOf", "if")):
        return
    declared, required = set(schema.get("properties", {})), set(schema.get("required", []))
    if binding.open is None and declared - binding.parameters.keys():
        strange = ", ".join(sorted(declared - binding.parameters.keys()))
        raise ToolInvalid(f"the input schema of {tool.name} declares {strange}, which its function doesn't take")
    for key, parameter in binding.parameters.items():
        if parameter.default is parameter.empty and key not in required:
            raise ToolInvalid(
                f"the function of {tool.name} needs {key!r}, which its input schema doesn't require",
                mend=f"Add {key!r} to `required`, or give the parameter a default.",
            )
