"""Declared schemas: what stands at a path of one, and whether two can hold one value.

Everything here is careful: where a schema doesn't tell (`anyOf` of several, `not`, `patternProperties`, …) the answer
is that nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, cast

from agent_infra.content import fingerprint

Types: TypeAlias = frozenset[str]
_UNCLEAR: Final = ("allOf", "not", "if", "dependentSchemas", "patternProperties", "$dynamicRef", "$recursiveRef")

_FOLLOWED: Final = 20
"""`$ref`s after each other; beyond that they go round."""


class Declared(Protocol):
    """One node type's schema."""

    @property
    def schema(self) -> Any:
        """The JSON Schema."""
        ...

    @property
    def hash(self) -> str:
        """A fingerprint of it."""
        ...


class NodeSchemas(Protocol):
    """The node types that are declared. The state layer's schema broker is one."""

    def names(self) -> Sequence[str]:
        """The declared types."""
        ...

    def get(self, name: str) -> Declared:
        """The schema that new nodes of a declared type have."""
        ...

    def digest(self) -> str:
        """A hash over what is declared."""
        ...


class NoSchemas:
    """No node type is declared."""

    def names(self) -> Sequence[str]:
        """None."""
        return ()

    def get(self, name: str) -> Declared:
        """Raises KeyError: there is none."""
        raise KeyError(name)

    def digest(self) -> str:
        """The same always."""
        return ""


@dataclass(frozen=True, slots=True)
class PlainSchema:
    """A schema by itself."""

    schema: Any
    hash: str = ""


class PlainSchemas:
    """Node types from a mapping of names to JSON Schemas."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self._schemas = {name: PlainSchema(schema, repr(schema)) for name, schema in schemas.items()}

    def names(self) -> Sequence[str]:
        """The declared types."""
        return sorted(self._schemas)

    def get(self, name: str) -> Declared:
        """A declared type's schema. Raises KeyError."""
        return self._schemas[name]

    def digest(self) -> str:
        """A hash over all of them."""
        return fingerprint({name: self.get(name).hash for name in self.names()})


@dataclass(frozen=True, slots=True)
class Found:
    """A schema at a path, with the document that its `$ref`s point into."""

    schema: Mapping[str, Any]
    root: Any


@dataclass(frozen=True, slots=True)
class Missing:
    """A schema says nothing of a field.

    depth    which name of the path it is
    known    the fields that there are
    certain  whether there can be none: the schema is closed, or what should hold it is no object
    types    what it is instead of an object, where that is why
    """

    depth: int
    known: tuple[str, ...] = ()
    certain: bool = False
    types: Types | None = None


def look_up(schema: Any, path: Sequence[str | int], root: Any = None) -> Found | Missing | None:
    """What a schema says of the value at a path: its schema, that there is no such field, or None: nothing."""
    root = schema if root is None else root
    for depth, name in enumerate(path):
        here = _plain(schema, root)
        if here is None:
            return None
        types = types_of(here, root)
        if types is not None and ("array" if isinstance(name, int) else "object") not in types:
            return Missing(depth, certain=True, types=types)
        if isinstance(name, int):
            schema = _item(here, name)
            continue
        properties = cast("dict[str, Any]", here.get("properties", {}))
        if name in properties:
            schema = properties[name]
            continue
        rest: Any = here.get("additionalProperties", here.get("unevaluatedProperties", True))
        if not isinstance(rest, dict) or not rest:
            return Missing(depth, tuple(properties), certain=rest is False)
        schema = cast("dict[str, Any]", rest)
    here = _plain(schema, root, whole=False)
    return None if here is None else Found(here, root)


def types_of(schema: Any, root: Any) -> Types | None:
    """The JSON types that a schema allows; None where it doesn't tell. A number may be an integer."""
    here = _plain(schema, root, whole=False)
    if here is None or "$ref" in here:
        return None
    for word in ("anyOf", "oneOf"):
        if isinstance(here.get(word), list):
            parts = [types_of(part, root) for part in cast("list[Any]", here[word])]
            known = [part for part in parts if part is not None]
            return frozenset[str]().union(*known) if len(known) == len(parts) and "type" not in here else None
    if "const" in here or isinstance(here.get("enum"), list):
        values = [here["const"]] if "const" in here else cast("list[Any]", here["enum"])
        return frozenset(name for value in values for name in _type_names(value))
    types: Any = here.get("type")
    if types is None:
        return None
    named = [types] if isinstance(types, str) else cast("list[str]", types)
    return frozenset(named) | frozenset(["integer"] if "number" in named else [])


def say_types(types: Types) -> str:
    """Types in words."""
    return " or ".join(sorted(types - ({"integer"} if "number" in types else set())))


def never_equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two schemas list their values, and have none in common."""
    first, second = one.get("enum"), other.get("enum")
    if not isinstance(first, list) or not isinstance(second, list):
        return False
    return not any(value in cast("list[Any]", second) for value in cast("list[Any]", first))


def _plain(schema: Any, root: Any, *, whole: bool = True) -> Mapping[str, Any] | None:
    """A schema with `$ref`s followed and the null of an optional taken away (`whole`); None where it doesn't tell."""
    here, seen = schema, 0
    while isinstance(here, dict) and "$ref" in here and seen < _FOLLOWED:
        if any(word in here for word in (*_UNCLEAR, "properties", "additionalProperties", "anyOf", "oneOf")):
            return None  # both would hold
        seen += 1
        here = _target(root, str(cast("dict[str, Any]", here)["$ref"]))
    if not isinstance(here, dict):
        return None
    fields = cast("dict[str, Any]", here)
    if any(word in fields for word in _UNCLEAR):
        return None
    for word in ("anyOf", "oneOf") if whole else ():
        if word in fields:
            parts = [part for part in cast("list[Any]", fields[word]) if part != {"type": "null"}]
            return _plain(parts[0], root) if len(parts) == 1 and "properties" not in fields else None
    return fields


def _target(root: Any, pointer: str) -> Any:
    value: Any = root
    for part in pointer.lstrip("#").strip("/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if name and isinstance(value, dict):
            value = cast("dict[str, Any]", value).get(name)
        elif name:
            return None
    return value


def _item(schema: Mapping[str, Any], index: int) -> Any:
    first: Any = schema.get("prefixItems", [])
    if isinstance(first, list) and index < len(cast("list[Any]", first)):
        return cast("list[Any]", first)[index]
    return schema.get("items")


def _type_names(value: Any) -> tuple[str, ...]:
    match value:
        case None:
            return ("null",)
        case bool():
            return ("boolean",)
        case int():
            return ("integer", "number")
        case float():
            return ("number", "integer") if value.is_integer() else ("number",)
        case str():
            return ("string",)
        case list():
            return ("array",)
        case _:
            return ("object",)
