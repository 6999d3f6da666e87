"""Whether a new schema may follow an old one.

Objects are read as *open* unless a schema says `additionalProperties: false`: what a schema does not name may be
there and may be anything. Under that rule adding an optional field is compatible in both directions, and requiring a
field that old data may lack is not backward compatible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

_LOWER_BOUNDS = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER_BOUNDS = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")


@dataclass(frozen=True, slots=True)
class Break:
    """The first place where compatibility is lost: JSON pointer, the rule's name, and the reason in words."""

    path: str
    rule: str
    reason: str


def breaks(old: Any, new: Any, compatibility: Literal["NONE", "BACKWARD", "FORWARD", "FULL"]) -> Break | None:
    """How `new` breaks the promise towards `old`, or None where it keeps it."""
    if compatibility in ("BACKWARD", "FULL"):
        found = next(_lost(_as_object(old), _as_object(new), ""), None)
        if found:
            return found
    if compatibility in ("FORWARD", "FULL"):
        return next(_lost(_as_object(new), _as_object(old), ""), None)
    return None


def _as_object(schema: Any) -> dict[str, Any]:
    if schema is True:
        return {}
    return {"not": {}} if schema is False else cast("dict[str, Any]", schema)


def _lost(writer: dict[str, Any], reader: dict[str, Any], path: str) -> Iterator[Break]:
    """Where data that the writer's schema allows may be refused by the reader's."""
    where = path or "/"
    missing = _types(writer) - _types(reader)
    if missing:
        yield Break(
            where, "type_narrowed", f"the writer may send {', '.join(sorted(missing))}, which the reader refuses"
        )
    yield from _lost_values(writer, reader, where)
    for name in reader.get("required", []):
        if name not in writer.get("required", []):
            yield Break(f"{path}/{name}", "field_required", f"{name!r} is required; older data may lack it")
    yield from _lost_fields(writer, reader, path)
    if "items" in reader:
        yield from _lost(_as_object(writer.get("items", {})), _as_object(reader["items"]), f"{path}/items")
    for keyword in ("anyOf", "oneOf", "allOf", "not", "if", "$ref", "pattern", "patternProperties", "const"):
        if keyword in reader and reader[keyword] != writer.get(keyword):
            yield Break(where, "undecided", f"{keyword!r} changed, and whether that is compatible can't be decided")


def _lost_values(writer: dict[str, Any], reader: dict[str, Any], where: str) -> Iterator[Break]:
    if "enum" in reader:
        allowed = reader["enum"]
        extra = [value for value in writer["enum"] if value not in allowed] if "enum" in writer else None
        if extra is None or extra:
            yield Break(where, "enum_narrowed", f"the reader allows only {allowed!r}")
    for keywords, direction in ((_LOWER_BOUNDS, 1), (_UPPER_BOUNDS, -1)):
        for keyword in keywords:
            if keyword in reader and (
                keyword not in writer or direction * reader[keyword] > direction * writer[keyword]
            ):
                reason = f"{keyword} is {reader[keyword]}, the writer's {writer.get(keyword, 'unbounded')}"
                yield Break(where, "bound_narrowed", reason)


def _lost_fields(writer: dict[str, Any], reader: dict[str, Any], path: str) -> Iterator[Break]:
    written: dict[str, Any] = writer.get("properties", {})
    read: dict[str, Any] = reader.get("properties", {})
    for name, schema in read.items():
        if name in written:
            yield from _lost(_as_object(written[name]), _as_object(schema), f"{path}/{name}")
    if reader.get("additionalProperties", True) is False:
        for name in written:
            if name not in read:
                yield Break(f"{path}/{name}", "field_closed_out", f"the reader is closed and does not know {name!r}")
        if writer.get("additionalProperties", True) is not False:
            yield Break(
                path or "/", "closed", "the reader is closed, and the writer may send fields that it does not name"
            )


def _types(schema: dict[str, Any]) -> set[str]:
    every = {"null", "boolean", "integer", "number", "string", "array", "object"}
    named = schema.get("type")
    if named is None:
        return every
    types = {named} if isinstance(named, str) else set(cast("list[str]", named))
    return types | {"integer"} if "number" in types else types
