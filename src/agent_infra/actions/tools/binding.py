"""How a Python function is called as a tool: JSON parameters in, a JSON value out.

A `Binding` is read once from a function's signature. It knows which parameter takes the `CallContext`, which ones are
dataclasses or enums and must be built from their JSON form, and whether the function is a coroutine. The executors of
this process and those of worker processes call through it, so a tool sees the same arguments wherever it runs.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from agent_infra.actions.tools.context import CallContext
from agent_infra.actions.tools.hints import Schema, needs_conversion, schema_of
from agent_infra.content import json_bytes
from agent_infra.errors import NotJson, ToolInvalid

_POSITIONAL = inspect.Parameter.POSITIONAL_ONLY
_MANY = inspect.Parameter.VAR_POSITIONAL
_NAMED = inspect.Parameter.VAR_KEYWORD


@dataclass(frozen=True, slots=True)
class Binding:
    """A function and how it takes its parameters.

    parameters  the names it takes from the caller, with whether each may be left out
    hints       the resolved type hints of those that have one; `return` is the result's
    context     the name of the parameter annotated CallContext, or None
    open        whether it takes any further name (`**others`)
    inspected   False for a callable whose signature can't be read; nothing is known of it then
    """

    function: Callable[..., Any]
    name: str
    parameters: Mapping[str, inspect.Parameter] = field(default_factory=dict[str, inspect.Parameter])
    hints: Mapping[str, Any] = field(default_factory=dict[str, Any])
    context: str | None = None
    open: inspect.Parameter | None = None
    inspected: bool = True
    is_async: bool = False
    converted: frozenset[str] = frozenset()

    def call(self, params: Mapping[str, Any], context: CallContext) -> Any:
        """Call the function. What a coroutine function returns is to be awaited."""
        arguments = dict(params)
        for name in self.converted & arguments.keys():
            arguments[name] = msgspec.convert(arguments[name], self.hints[name])
        if self.context is not None:
            arguments[self.context] = context
        return self.function(**arguments)

    def plain(self, value: Any) -> Any:
        """The JSON value of a result. Raises NotJson for one that is none."""
        if "return" in self.converted:
            value = msgspec.to_builtins(value)
        json_bytes(value, where=f"the output of {self.name}")
        return value


def bind(function: Callable[..., Any], name: str) -> Binding:
    """Read a function's signature. Raises ToolInvalid for parameters that can't be given by name."""
    target = function if inspect.isroutine(function) or not callable(function) else type(function).__call__
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(target)
    try:
        parameters = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return Binding(function, name, inspected=False, is_async=is_async)
    _refuse_unnamed(parameters, name)
    hints = _hints(function)
    context = next((key for key in parameters if _is_context(hints.get(key))), None)
    others = next((parameter for parameter in parameters.values() if parameter.kind is _NAMED), None)
    taken = {key: p for key, p in parameters.items() if key != context and p.kind is not _NAMED}
    converted = frozenset(key for key in (*taken, "return") if key in hints and needs_conversion(hints[key]))
    for key in converted:
        _check_convertible(hints[key], f"{name}: {key}")
    return Binding(function, name, taken, hints, context, others, is_async=is_async, converted=converted)


def input_schema(binding: Binding) -> Schema:
    """The schema of a function's parameters, from hints, defaults and docstring. Raises ToolInvalid (no hint)."""
    notes = describe(binding.function)[1]
    properties: dict[str, Schema] = {}
    for key, parameter in binding.parameters.items():
        schema = schema_of(_hint(binding, key), f"parameter {key!r} of {binding.name}")
        if key in notes:
            schema.setdefault("description", notes[key])
        if parameter.default is not parameter.empty:
            schema |= _default(parameter.default)
        properties[key] = schema
    required = [key for key, parameter in binding.parameters.items() if parameter.default is parameter.empty]
    others: Any = False
    if binding.open is not None:
        others = schema_of(_hint(binding, binding.open.name), f"parameter '**{binding.open.name}' of {binding.name}")
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": others}


def output_schema(binding: Binding) -> Schema:
    """The schema of a function's result, from its return hint; without one, anything."""
    return schema_of(binding.hints.get("return", Any), f"the result of {binding.name}")


def describe(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """(what it does, {parameter: text}) of a docstring with the parameters under `Args:`, as lines of `name: text`."""
    text = inspect.getdoc(_bare(function)) or ""
    head, *rest = re.split(r"^(?:Args|Arguments|Parameters|参数)[:：][ \t]*$", text, maxsplit=1, flags=re.MULTILINE)
    head = re.split(r"^(?:Returns|Raises|Yields|返回|异常)[:：]", head, maxsplit=1, flags=re.MULTILINE)[0]
    notes: dict[str, str] = {}
    current, margin = "", 0
    for line in rest[0].strip("\n").splitlines() if rest else []:
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent == 0:
            break
        found = re.match(r"\s+(\w+)\s*(?:\([^)]*\))?\s*[:：]\s*(.*)", line)
        if found and (not current or indent <= margin):
            current, margin = found[1], indent
            notes[current] = found[2].strip()
        elif current:
            notes[current] = f"{notes[current]} {line.strip()}".strip()
    return head.strip(), notes


def _bare(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a partial application applies: hints and docstring stand there."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[Any]", function).func
    return function


def _refuse_unnamed(parameters: Mapping[str, inspect.Parameter], name: str) -> None:
    for parameter in parameters.values():
        if parameter.kind in (_POSITIONAL, _MANY):
            raise ToolInvalid(
                f"{name} takes {str(parameter)!r} by position",
                why="a tool's parameters are given by name",
                mend="Give each parameter a name that can be used as a keyword.",
            )


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Resolved hints. One that can't be resolved (imported for type checkers only) stays text; the others count."""
    target: Any = _bare(function)
    target = inspect.unwrap(target if inspect.isroutine(target) else type(target).__call__)
    try:
        return typing.get_type_hints(target, include_extras=True)
    except Exception:  # noqa: BLE001 - resolving runs the user's own annotations: anything may come out
        pass
    space = vars(sys.modules.get(target.__module__, sys))
    hints: dict[str, Any] = {}
    for key, written in getattr(target, "__annotations__", {}).items():
        probe = type("probe", (), {"__annotations__": {key: written}})
        try:
            hints |= typing.get_type_hints(probe, globalns=dict(space), include_extras=True)
        except Exception:  # noqa: BLE001
            hints[key] = written
    return hints


def _is_context(hint: Any) -> bool:
    if isinstance(hint, str):
        return hint.split(".")[-1].removesuffix(" | None") == "CallContext"
    return hint is CallContext or CallContext in typing.get_args(hint)


def _hint(binding: Binding, key: str) -> Any:
    if key not in binding.hints:
        raise ToolInvalid(
            f"parameter {key!r} of {binding.name} has no type hint",
            why="its schema is made from the hint",
            mend=f"Write `{key}: str`, say, or give Tool(…) its schemas by hand.",
        )
    hint = binding.hints[key]
    if isinstance(hint, str):
        raise ToolInvalid(
            f"parameter {key!r} of {binding.name} has the hint {hint!r}, which names nothing at run time",
            mend="Import the type outside `if TYPE_CHECKING:`.",
        )
    return hint


def _check_convertible(hint: Any, where: str) -> None:
    try:
        msgspec.json.Decoder(hint)
    except (TypeError, msgspec.MsgspecError) as error:
        raise ToolInvalid(f"{where}: its type can't be built from JSON", why=str(error)) from error


def _default(value: Any) -> Schema:
    """{"default": …} where the default has a JSON form."""
    try:
        plain = msgspec.to_builtins(value)
        json_bytes(plain)
    except (TypeError, ValueError, NotJson, msgspec.MsgspecError):
        return {}
    return {"default": plain}
