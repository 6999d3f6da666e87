"""What a schema says of the data that its writers send, gathered from all of its parts.

`$ref` and `allOf` are followed, so a schema is a list of parts that all hold. Where two parts say different things about
one thing, what is gathered may allow more than both together, never less: a comparison that rests on it errs towards
refusing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from agent_infra.state.schemas.references import DATA, NAMED, REFERENCES, resolve

JsonSchema: TypeAlias = "dict[str, Any]"
TYPES: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
LOWER: Final = {"minimum": "number", "minLength": "string", "minItems": "array", "minProperties": "object"}
UPPER: Final = {"maximum": "number", "maxLength": "string", "maxItems": "array", "maxProperties": "object"}
_EXCLUSIVE: Final = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_MEANINGLESS: Final = frozenset(
    [
        "$id",
        "$schema",
        "$anchor",
        "$dynamicAnchor",
        "$vocabulary",
        "$comment",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "additionalItems",
    ]
)
_STRUCTURE: Final = frozenset(
    [
        "type",
        "enum",
        "const",
        "required",
        "properties",
        "patternProperties",
        "additionalProperties",
        "prefixItems",
        "items",
    ]
)
Bound: TypeAlias = tuple[float, bool]
"""A limit, and whether the limit itself is excluded."""


def as_object(schema: Any) -> JsonSchema:
    """A schema as keywords: `true` asks for nothing, `false` for what can't be."""
    if schema is True:
        return {}
    return {"not": {}} if schema is False else cast("JsonSchema", schema)


def parts(schema: Any, root: Any) -> Iterator[JsonSchema]:
    """The parts of a schema that all hold: its own keywords, and those behind `$ref` and `allOf`.

    Raises LookupError for a reference that can't be followed.
    """
    waiting = [schema]
    seen: set[int] = set()
    while waiting:
        part = as_object(waiting.pop(0))
        if id(part) in seen:
            continue
        seen.add(id(part))
        for keyword in REFERENCES:
            if isinstance(part.get(keyword), str):
                waiting.append(resolve(root, part[keyword]))
        waiting += part.get("allOf", [])
        yield _modern({key: value for key, value in part.items() if key not in (*REFERENCES, "allOf")})


def _modern(part: JsonSchema) -> JsonSchema:
    """`items` as a list, from before draft 2020-12, means `prefixItems`."""
    if not isinstance(part.get("items"), list):
        return part
    rest = {"items": part["additionalItems"]} if "additionalItems" in part else {}
    return {key: value for key, value in part.items() if key != "items"} | {"prefixItems": part["items"]} | rest


def types_of(part: JsonSchema) -> frozenset[str]:
    """The JSON types that a part allows; a number may be an integer."""
    named = part.get("type")
    if named is None:
        return TYPES
    types = frozenset([named]) if isinstance(named, str) else frozenset(cast("list[str]", named))
    return types | {"integer"} if "number" in types else types


def bounds_of(part: JsonSchema) -> Iterator[tuple[str, Bound]]:
    """(keyword, limit) of a part, `exclusiveMinimum` as a `minimum`."""
    for keyword in (*LOWER, *UPPER):
        if keyword in part:
            yield keyword, (part[keyword], False)
    for keyword, plain in _EXCLUSIVE.items():
        if keyword in part and not isinstance(part[keyword], bool):
            yield plain, (part[keyword], True)


def is_tighter(keyword: str, one: Bound, other: Bound) -> bool:
    """Whether a limit refuses something that another allows."""
    if one[0] == other[0]:
        return one[1] and not other[1]
    return (one[0] > other[0]) == (keyword in LOWER)


def further_keywords(part: JsonSchema) -> Iterator[tuple[str, Any]]:
    """What a part says besides structure and bounds: patterns, formats, alternatives, conditions."""
    if "if" in part:
        yield "if", {key: part[key] for key in ("if", "then", "else") if key in part}
    plain = _STRUCTURE | _MEANINGLESS | {"if", "then", "else"} | {*LOWER, *UPPER}
    for keyword, value in part.items():
        exclusive = keyword in _EXCLUSIVE and not isinstance(value, bool)
        if keyword not in plain and not exclusive and not keyword.startswith("x-"):
            yield keyword, value


@dataclass(slots=True)
class Known:
    """What is known of the data that a schema lets pass."""

    types: frozenset[str] = TYPES
    values: list[Any] | None = None
    required: set[str] = field(default_factory=set[str])
    properties: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    patterns: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    allowed: set[str] | None = None
    """The only fields that may be there, where a closed part lists them all."""
    others: list[Any] = field(default_factory=list[Any])
    """Schemas for fields that are not named; none for an open object."""
    prefix: list[Any] = field(default_factory=list[Any])
    items: list[Any] = field(default_factory=list[Any])
    bounds: dict[str, Bound] = field(default_factory=dict[str, Bound])
    further: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])

    @property
    def is_closed(self) -> bool:
        """Whether no field may be there that is not named."""
        return False in self.others

    def add(self, part: JsonSchema) -> None:
        """Take in one part."""
        self.types &= types_of(part)
        allowed = [part["const"]] if "const" in part else part.get("enum")
        if allowed is not None and (self.values is None or len(allowed) < len(self.values)):
            self.values = allowed
        self.required.update(part.get("required", []))
        for name, schema in part.get("properties", {}).items():
            self.properties.setdefault(name, []).append(schema)
        for pattern, schema in part.get("patternProperties", {}).items():
            self.patterns.setdefault(pattern, []).append(schema)
        if part.get("additionalProperties", True) not in (True, {}):
            self.others.append(part["additionalProperties"])
            if part["additionalProperties"] is False and not part.get("patternProperties"):
                names = set(part.get("properties", {}))
                self.allowed = names if self.allowed is None else self.allowed & names
        if not self.prefix and not self.items:
            self.prefix = part.get("prefixItems", [])
            self.items = [part["items"]] if "items" in part else []
        elif "items" in part and "prefixItems" not in part and not self.prefix:
            self.items.append(part["items"])
        for keyword, bound in bounds_of(part):
            if keyword not in self.bounds or is_tighter(keyword, bound, self.bounds[keyword]):
                self.bounds[keyword] = bound
        for keyword, value in further_keywords(part):
            self.further.setdefault(keyword, []).append(value)


def gather(schema: Any, root: Any) -> Known:
    """What a schema says; parts behind a reference that can't be followed are left out, which allows more."""
    known = Known()
    try:
        for part in parts(schema, root):
            known.add(part)
    except LookupError:
        known.add(_modern(as_object(schema)))
    for part in [each for keyword in ("if", "dependentSchemas") for each in known.further.get(keyword, [])]:
        for name in _named_in(list(part.values()), root):
            known.properties.setdefault(name, [{}])
    if known.allowed is not None:
        known.properties = {name: sent for name, sent in known.properties.items() if name in known.allowed}
    return known


def _named_in(schemas: list[Any], root: Any) -> set[str]:
    """The fields that conditional schemas name: they may be sent, and what they hold depends."""
    names: set[str] = set()
    waiting = list(schemas)
    seen: set[int] = set()
    while waiting:
        schema = as_object(waiting.pop())
        if id(schema) in seen:
            continue
        seen.add(id(schema))
        names |= set(schema.get("properties", {}))
        if isinstance(schema.get("$ref"), str):
            try:
                waiting.append(resolve(root, schema["$ref"]))
            except LookupError:
                continue
        for keyword in ("allOf", "anyOf", "oneOf"):
            waiting += schema.get(keyword, [])
        waiting += [schema[keyword] for keyword in ("then", "else") if keyword in schema]
        waiting += schema.get("dependentSchemas", {}).values()
    return names


def inlined(schema: Any, root: Any, above: tuple[int, ...] = ()) -> Any:
    """A schema that stands alone, each `$ref` replaced by what it points at.

    Raises LookupError for one that points at itself or can't be followed.
    """
    if isinstance(schema, list):
        return [inlined(item, root, above) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    mapping = cast("JsonSchema", schema)
    if id(mapping) in above or "$dynamicRef" in mapping or "$recursiveRef" in mapping:
        raise LookupError("recursive")
    inside = (*above, id(mapping))
    plain: JsonSchema = {}
    for key, value in mapping.items():
        if key in DATA:
            plain[key] = value
        elif key in NAMED and isinstance(value, dict) and key not in ("$defs", "definitions"):
            named = cast("JsonSchema", value)
            plain[key] = {name: inlined(item, root, inside) for name, item in named.items()}
        elif key not in ("$ref", "$defs", "definitions", "$id", "$anchor"):
            plain[key] = inlined(value, root, inside)
    target = mapping.get("$ref")
    if not isinstance(target, str):
        return plain
    followed = inlined(resolve(root, target), root, inside)
    return {"allOf": [followed, plain]} if plain else followed
