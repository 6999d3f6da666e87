"""Type hints as JSON Schema: what a typed Python function says about its parameters and its result.

| hint | schema |
|---|---|
| `str`, `int`, `float`, `bool`, `None` | `string`, `integer`, `number`, `boolean`, `null` |
| `Literal`, an enum of strings | `enum` |
| `A \\| B`, `Optional[A]` | `anyOf` |
| `list[T]`, `Sequence[T]` | `array` |
| `dict[str, T]`, `Mapping[str, T]` | `object` with any names |
| `TypedDict`, dataclass | `object` with these names only; what has a default may be left out |
| `Annotated[T, "text"]` | `T` with a description |
| `Any`, `object`, `JsonValue` | anything |

Anything else is refused: a schema that says less than the hint would let wrong values in.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Annotated, Any, Literal, NewType, NotRequired, Required, Union, cast

from agent_infra.content import JsonValue
from agent_infra.errors import ToolInvalid

Schema = dict[str, Any]
_SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_ARRAYS = (list, Sequence, MutableSequence)
_OBJECTS = (dict, Mapping, MutableMapping)


def _any_json(value: JsonValue) -> None: ...


# The alias names itself, so what it resolves to is known only by resolving it.
_JSON_VALUE = typing.get_type_hints(_any_json)["value"]


def schema_of(hint: Any, where: str, _inside: tuple[Any, ...] = ()) -> Schema:
    """The JSON Schema of a resolved type hint. Raises ToolInvalid, naming `where`, for a hint that has none."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        texts: list[Schema] = [{"description": extra} for extra in arguments[1:] if isinstance(extra, str)]
        return schema_of(arguments[0], where, _inside) | (texts[0] if texts else {})
    if hint in (Any, object, _JSON_VALUE):
        return {}
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if isinstance(hint, NewType):
        return schema_of(hint.__supertype__, where, _inside)
    if hasattr(hint, "__value__"):  # `type Name = …` of Python 3.12
        return schema_of(hint.__value__, where, _inside)
    if origin is Literal:
        return _enumeration(list(arguments), where)
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(part, where, _inside) for part in arguments]}
    if (origin or hint) in _ARRAYS:
        return {"type": "array"} | ({"items": schema_of(arguments[0], where, _inside)} if arguments else {})
    if (origin or hint) in _OBJECTS:
        return _mapping(arguments, where, _inside)
    if isinstance(hint, type):
        return _class(cast("type[Any]", hint), where, _inside)
    raise _refusal(hint, where)


def needs_conversion(hint: Any, _inside: tuple[Any, ...] = ()) -> bool:
    """Whether values of a hint differ from their JSON form: dataclasses and enums, at any depth."""
    if hint in _inside:
        return False
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, enum.Enum)):
        return True
    if isinstance(hint, type) and typing.is_typeddict(hint):
        return any(needs_conversion(part, (*_inside, hint)) for part in typing.get_type_hints(hint).values())
    return any(needs_conversion(part, _inside) for part in typing.get_args(hint))


def _enumeration(values: list[Any], where: str) -> Schema:
    if not values or any(type(value) not in _SCALARS for value in values):
        raise ToolInvalid(f"{where} allows {values!r}", why="only text, numbers, booleans and None are JSON scalars")
    kinds = {_SCALARS[type(value)] for value in values}
    return ({"type": kinds.pop()} if len(kinds) == 1 else {}) | {"enum": values}


def _mapping(arguments: tuple[Any, ...], where: str, inside: tuple[Any, ...]) -> Schema:
    if not arguments:
        return {"type": "object"}
    key, value = arguments
    if key is not str:
        raise ToolInvalid(f"{where} has keys of type {_name(key)}", why="the keys of a JSON object are text")
    values = schema_of(value, where, inside)
    return {"type": "object"} | ({"additionalProperties": values} if values else {})


def _class(kind: type[Any], where: str, inside: tuple[Any, ...]) -> Schema:
    if kind in inside:
        raise ToolInvalid(f"{where}: {_name(kind)} contains itself", mend="Give the tool its schema by hand.")
    if issubclass(kind, enum.Enum):
        values = [member.value for member in kind]
        if not all(isinstance(value, str) for value in values):
            raise ToolInvalid(f"{where}: the enum {_name(kind)} has values that aren't text", mend="Use Literal[…].")
        return _enumeration(values, where)
    if typing.is_typeddict(kind):
        return _typed_dict(kind, where, (*inside, kind))
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        fields = [field for field in dataclasses.fields(kind) if field.init]
        missing = dataclasses.MISSING
        required = [f.name for f in fields if f.default is missing and f.default_factory is missing]
        return _closed({f.name: hints[f.name] for f in fields}, required, where, (*inside, kind))
    raise _refusal(kind, where)


def _typed_dict(kind: type[Any], where: str, inside: tuple[Any, ...]) -> Schema:
    names = cast("frozenset[str]", kind.__required_keys__)
    hints: dict[str, Any] = {}
    required: list[str] = []
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        # Under `from __future__ import annotations` only the resolved hint shows a field's own Required or NotRequired.
        marked = typing.get_origin(hint)
        hints[name] = typing.get_args(hint)[0] if marked in (Required, NotRequired) else hint
        if marked is Required or (marked is not NotRequired and name in names):
            required.append(name)
    return _closed(hints, required, where, inside)


def _closed(hints: Mapping[str, Any], required: list[str], where: str, inside: tuple[Any, ...]) -> Schema:
    return {
        "type": "object",
        "properties": {name: schema_of(hint, f"{where}.{name}", inside) for name, hint in hints.items()},
        "required": required,
        "additionalProperties": False,
    }


def _name(hint: Any) -> str:
    return getattr(hint, "__qualname__", None) or str(hint)


def _refusal(hint: Any, where: str) -> ToolInvalid:
    return ToolInvalid(
        f"{where} has the type {_name(hint)}",
        why="parameters and results are JSON, and this type has no JSON form of its own",
        mend="Use str, int, float, bool, None, list, dict[str, T], Literal, an enum of strings, a TypedDict or a "
        "dataclass; or give Tool(…) its schemas by hand.",
        facts={"type": _name(hint)},
    )
