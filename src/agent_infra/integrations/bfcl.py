"""Function documents of the Berkeley Function Calling Leaderboard (BFCL), as tools.

Many data sets of function calls describe their functions in this flavour of JSON Schema: types have Python names
("dict", "float", "tuple", "any"), `enum` may stand on an array, and a default needn't be of its parameter's own type.

    tool = tool_of({"name": "circle.area", "description": "…", "parameters": {"type": "dict", …}}, run)

Each spelling is read by a rule that stands here, and a spelling without a rule is refused with its place:

- A parameter may be given its default. Where that isn't of its type, the type is widened by just that value: `null` for
  a string whose default is null, "dontcare" for an integer whose default is "dontcare".
- Text in the `enum` or `default` of a number or boolean is the value that it spells: "False" is false, "2" is 2. Text that
  spells none stands for itself.
- `enum` on an array lists what its items may be.
- "any" is any value, "tuple" an array, and every number is a "float".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import jsonschema_rs

from agent_infra.actions import Tool
from agent_infra.actions.tools import Effects
from agent_infra.errors import ToolInvalid

TYPES: Final[Mapping[str, str | None]] = {
    "any": None,
    "array": "array",
    "bool": "boolean",
    "boolean": "boolean",
    "dict": "object",
    "float": "number",
    "integer": "integer",
    "list": "array",
    "number": "number",
    "object": "object",
    "string": "string",
    "tuple": "array",
}
"""The types of a document, and what JSON Schema calls them; None is any value."""
SAME: Final = ("description", "format", "maximum", "minimum")
"""Keywords that mean in a document what they mean in JSON Schema."""
READ: Final = ("type", "properties", "required", "items", "enum", "default")
"""Keywords that are read by a rule of their own."""
SAID_TWICE: Final = ("optional",)
"""Keywords that say again what `required` says; that one holds."""


def tool_of(document: Mapping[str, Any], run: Callable[..., Any], *, effects: Effects | None = None) -> Tool:
    """A tool from a function document and the function itself, which is called as `run(**params)`.

    It takes no parameters but those documented. A document's `response` becomes its output schema.

    Raises ToolInvalid for what has no rule, with the JSON pointer of the place.
    """
    name = str(document.get("name"))
    parameters = schema_of(document.get("parameters"), f"{name}:/parameters")
    if parameters.get("type") != "object":
        raise _refused(f"{name}:/parameters/type", "a function's parameters are a dict", "Write `dict`.")
    response: Any = document.get("response")
    return Tool(
        name,
        {**parameters, "additionalProperties": False},
        None if response is None else schema_of(response, f"{name}:/response"),
        run,
        effects=effects,
        description=str(document.get("description", "")),
    )


def schema_of(document: Any, where: str = "") -> dict[str, Any]:
    """The JSON Schema of a document's `parameters`, or of one parameter. `where` begins the places in errors.

    Raises ToolInvalid for a type or keyword that has no rule.
    """
    if not isinstance(document, Mapping):
        raise _refused(where, f"a schema is a dict, not {document!r}", "Write at least its `type`.")
    fields = cast("Mapping[str, Any]", document)
    for keyword in fields:
        if keyword not in (*SAME, *READ, *SAID_TWICE):
            raise _refused(f"{where}/{keyword}", f"the keyword {keyword!r} has no rule", "Leave it out, or add a rule.")
    name = fields.get("type")
    if name not in TYPES:
        raise _refused(f"{where}/type", f"the type {name!r} has no rule", f"Known are {', '.join(TYPES)}.")
    kind = TYPES[cast("str", name)]
    schema: dict[str, Any] = {keyword: fields[keyword] for keyword in SAME if keyword in fields}
    if kind is not None:
        schema["type"] = kind
    schema |= _parts(fields, where)
    if "enum" in fields:
        schema = _with_enum(schema, kind, fields["enum"], where)
    return _with_default(schema, kind, fields["default"]) if "default" in fields else schema


def _parts(fields: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The schemas inside: properties of a dict, items of an array."""
    parts: dict[str, Any] = {}
    if "properties" in fields:
        inner = cast("Mapping[str, Any]", fields["properties"])
        parts["properties"] = {key: schema_of(each, f"{where}/properties/{key}") for key, each in inner.items()}
    if fields.get("required"):
        parts["required"] = list(fields["required"])
    if "items" in fields:
        parts["items"] = schema_of(fields["items"], f"{where}/items")
    return parts


def _with_enum(schema: dict[str, Any], kind: str | None, entries: Any, where: str) -> dict[str, Any]:
    if not isinstance(entries, list) or not entries:
        raise _refused(f"{where}/enum", f"the choices are a list, not {entries!r}", "List them, or leave them out.")
    choices = cast("list[Any]", entries)
    if kind == "array":
        items = cast("dict[str, Any]", schema.get("items", {}))
        return {**schema, "items": _with_enum(items, items.get("type"), choices, where)}
    return _of_choices(schema, [_spelt(entry, kind) for entry in choices])


def _with_default(schema: dict[str, Any], kind: str | None, default: Any) -> dict[str, Any]:
    """A schema that its default is valid under."""
    value = _spelt(default, kind)
    if not _is_valid(schema, value):
        if "enum" in schema:
            schema = _of_choices(schema, [*schema["enum"], value])
        elif value is None:
            schema = {**schema, "type": [kind, "null"]}
        else:
            inner = {keyword: each for keyword, each in schema.items() if keyword != "description"}
            outer = {keyword: each for keyword, each in schema.items() if keyword == "description"}
            schema = {**outer, "anyOf": [inner, {"const": value}]}
    return {**schema, "default": value}


def _of_choices(schema: dict[str, Any], choices: list[Any]) -> dict[str, Any]:
    """A schema with an `enum`, without the type where a choice isn't of it: that would forbid what is listed."""
    kept = {keyword: each for keyword, each in schema.items() if keyword != "enum"}
    fits = all(_is_valid(kept, choice) for choice in choices)
    return {
        **(kept if fits else {keyword: each for keyword, each in kept.items() if keyword != "type"}),
        "enum": choices,
    }


def _spelt(value: Any, kind: str | None) -> Any:
    """The value that a text spells for a number or boolean; the value itself where it spells none."""
    if not isinstance(value, str) or kind not in ("boolean", "integer", "number"):
        return value
    try:
        read = json.loads(value.lower())
    except ValueError:
        return value
    return read if _is_valid({"type": kind}, read) else value


def _is_valid(schema: Mapping[str, Any], value: Any) -> bool:
    return jsonschema_rs.validator_for(dict(schema), offline=True).is_valid(value)


def _refused(where: str, why: str, mend: str) -> ToolInvalid:
    return ToolInvalid("a function document can't be read", where=where, why=why, mend=mend, facts={"path": where})
