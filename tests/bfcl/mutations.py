"""Eleven ways in which a policy gets a call wrong, applied to calls that are right wherever they can be applied.

A mutant is given out only if it is wrong beyond doubt. One of parameters must be wrong under the function's document as
`oracle` reads it, in the parameter that was changed and in no other; a text must be none that Python's `json` reads; a
spec must break the form of specs itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

SCALARS = ("string", "integer", "float", "boolean")
NUMBERS = ("integer", "float")
KINDS = (
    "missing required",
    "unknown parameter",
    "wrong type",
    "wrong enum value",
    "null for required",
    "nested wrong type",
    "boolean for number",
    "unknown function",
    "arguments no object",
    "extra key",
    "malformed JSON",
)


class Mutant(NamedTuple):
    """A wrong spec, or the text of one; for one of parameters, which one was changed and the parameters it has now."""

    kind: str
    spec: Any
    at: str | None = None
    params: dict[str, Any] | None = None


WrongIn = Callable[[Mapping[str, Any], Mapping[str, Any]], Mapping[str, str]]


def mutants_of(document: Mapping[str, Any], params: dict[str, Any], wrong_in: WrongIn) -> Iterator[Mutant]:
    """All mutants of a right call."""
    name = document["name"]
    for kind, at, changed in _of_params(document["parameters"], params):
        if list(wrong_in(document, changed)) == [at]:
            yield Mutant(kind, {"tool": name, "params": changed}, at, changed)
    yield from _of_specs(name, params)


def _of_params(parameters: Mapping[str, Any], params: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(kind, parameter, parameters) of each change to a call's parameters."""
    properties, required = parameters["properties"], parameters.get("required", [])
    for name in required:
        yield "missing required", name, {key: value for key, value in params.items() if key != name}
        yield "null for required", name, {**params, name: None}
    near = f"{next(iter(params), 'param')}_"
    yield "unknown parameter", near, {**params, near: 1}
    for name, value in params.items():
        known = properties[name]
        for kind, changed in _of_value(known, value):
            yield kind, name, {**params, name: changed}


def _of_value(document: Mapping[str, Any], value: Any) -> Iterator[tuple[str, Any]]:
    """(kind, value) of each change to a value."""
    for other in _other_types(document["type"], value):
        yield "wrong type", other
    if document["type"] in NUMBERS:
        yield "boolean for number", True
    if "enum" in document:
        strange = _strange(document["enum"][0])
        yield "wrong enum value", [strange] if document["type"] == "array" else strange
    if isinstance(value, list) and "items" in document:
        for at, item in enumerate(value):
            for other in _inner(document["items"], item):
                yield "nested wrong type", [*value[:at], other, *value[at + 1 :]]
    if isinstance(value, dict):
        for key, inner in document.get("properties", {}).items():
            if key in value:
                for other in _inner(inner, value[key]):
                    yield "nested wrong type", {**value, key: other}


def _inner(document: Mapping[str, Any], value: Any) -> Iterator[Any]:
    """Wrong types for a value inside another, at any depth."""
    yield from _other_types(document["type"], value)
    yield from (other for kind, other in _of_value(document, value) if kind == "nested wrong type")


def _other_types(kind: str, value: Any) -> Iterator[Any]:
    if kind in NUMBERS:
        yield str(value)
    if kind == "boolean":
        yield str(value).lower()
        yield 7  # not 1, which their checker takes for True
    if kind == "string":
        yield 7
        yield False
    if kind in SCALARS:
        yield [value]
        yield {"value": value}
    if kind in ("array", "tuple"):
        yield json.dumps(value)
        yield {"0": value}
    if kind == "dict":
        yield json.dumps(value)
        yield [value]


def _strange(choice: Any) -> Any:
    """A value of a choice's type that is no choice."""
    return f"{choice} or so" if isinstance(choice, str) else 987_654


def _of_specs(name: str, params: dict[str, Any]) -> Iterator[Mutant]:
    spec = {"tool": name, "params": params}
    text = json.dumps(spec, ensure_ascii=False)
    yield Mutant("unknown function", {**spec, "tool": f"{name}_"})
    yield Mutant("unknown function", {**spec, "tool": None})
    for other in (list(params.values()), json.dumps(params), None):
        yield Mutant("arguments no object", {**spec, "params": other})
    yield Mutant("extra key", {**spec, "arguments": params})
    yield Mutant("extra key", {**spec, "": 1})
    for broken in (text[:-1], repr(spec), text[:-1] + ",}", text + "}"):
        yield Mutant("malformed JSON", _malformed(broken))


def _malformed(text: str) -> str:
    try:
        json.loads(text)
    except ValueError:
        return text
    raise AssertionError(f"this is JSON: {text}")
