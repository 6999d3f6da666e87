"""What a function document says of a value, read a second time: on values, without JSON Schema and without the library.

It says what is wrong with a call, so that a mutation is known to be wrong before the library is asked, and so that the
table of contradictions is checked by more than the code under test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

PYTHON = {
    "any": object,
    "array": list,
    "boolean": bool,
    "dict": dict,
    "float": (int, float),
    "integer": int,
    "string": str,
    "tuple": list,
}
SPELT = {"true": True, "false": False}
TYPE, CHOICE, FORMAT, BOUND = "not of the type", "not among the choices", "not of the format", "over the maximum"
MISSING, UNKNOWN = "required, and left out", "not in the document"


def wrong_in(document: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, str]:
    """What is wrong with a call under its function's document: a reason for each parameter that isn't right."""
    parameters = document["parameters"]
    reasons: dict[str, str] = dict.fromkeys(
        [name for name in parameters.get("required", []) if name not in params], MISSING
    )
    for name, value in params.items():
        known = parameters["properties"].get(name)
        reason = UNKNOWN if known is None else next(_wrong(known, value), None)
        if reason is not None:
            reasons[name] = reason
    return reasons


def _wrong(document: Mapping[str, Any], value: Any) -> Iterator[str]:
    """The reasons why a document doesn't allow a value."""
    kind = document["type"]
    if "default" in document and _same(value, _spelt(document["default"], kind)):
        return
    choices = document.get("enum")
    if choices is not None and kind != "array":
        if not any(_same(value, _spelt(choice, kind)) for choice in choices):
            yield CHOICE if _is_a(kind, value) else TYPE
    elif not _is_a(kind, value):
        yield TYPE
    elif kind == "dict":
        yield from _wrong_inside(document, value)
    elif kind in ("array", "tuple"):
        for item in value:
            if choices is not None and item not in choices:
                yield CHOICE
            if "items" in document:
                yield from _wrong(document["items"], item)
    if _is_a(kind, value) and document.get("format") == "date" and not _is_date(value):
        yield FORMAT
    if _is_a(kind, value) and "maximum" in document and value > document["maximum"]:
        yield BOUND


def _wrong_inside(document: Mapping[str, Any], value: Mapping[str, Any]) -> Iterator[str]:
    if any(name not in value for name in document.get("required", [])):
        yield MISSING
    for name, known in document.get("properties", {}).items():
        if name in value:
            yield from _wrong(known, value[name])


def _is_a(kind: str, value: Any) -> bool:
    return isinstance(value, PYTHON[kind]) and not (isinstance(value, bool) and kind in ("integer", "float"))


def _same(a: Any, b: Any) -> bool:
    return isinstance(a, bool) == isinstance(b, bool) and a == b


def _spelt(value: Any, kind: str) -> Any:
    if isinstance(value, str) and kind == "boolean":
        return SPELT.get(value.lower(), value)
    if isinstance(value, str) and kind in ("integer", "float") and value.isdigit():
        return int(value)
    return value


def _is_date(text: str) -> bool:
    try:
        return len(text) == 10 and bool(date.fromisoformat(text))
    except ValueError:
        return False
