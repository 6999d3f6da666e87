"""JSON Schemas of tools: checked against their own meta-schema once, then used to check values.

Nothing is ever fetched: a `$ref` may point into its own document only.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, cast

import jsonschema_rs

from agent_infra.content import json_bytes
from agent_infra.errors import NotJson, ToolInvalid

_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")


def compile_schema(schema: Any, where: str) -> jsonschema_rs.Validator:
    """The validator of a schema. Raises ToolInvalid, with the JSON pointer of what is wrong with the schema.

    `where` says whose schema it is. Formats (`date-time`, `email`, …) are checked.
    """
    try:
        json_bytes(schema, where=where)
    except NotJson as error:
        raise _invalid(where, error.facts["path"], error.why or "it is not JSON") from error
    if not isinstance(schema, dict):
        raise _invalid(where, "/", f"a schema is an object, not a {type(schema).__name__}")
    document = cast("dict[str, Any]", schema)
    remote = next((found for found in _references(document, "") if not found[1].startswith("#")), None)
    if remote is not None:
        raise _invalid(where, remote[0], f"{remote[1]!r} is outside this schema, and nothing is fetched")
    try:
        return jsonschema_rs.validator_for(document, offline=True, validate_formats=True)
    except jsonschema_rs.ValidationError as error:
        pointer, reason = pointer_of(error.instance_path), error.message
        if error.instance_path and error.instance_path[-1] == "type" and isinstance(error.instance, str):
            reason = _misspelt(error.instance)
        elif not error.instance_path:
            pointer = next((at for at, target in _references(document, "") if target.lstrip("#") in reason), "/")
        raise _invalid(where, pointer, reason) from error


def problems_of(validator: jsonschema_rs.Validator, value: Any, where: str) -> list[str]:
    """What is wrong with a value: `<JSON pointer>: <reason>` each. Bounds let NaN pass, so JSON is checked first."""
    try:
        json_bytes(value, where=where)
    except NotJson as error:
        return [f"{error.facts['path']}: {error.why}"]
    return [f"{pointer_of(error.instance_path)}: {error.message}" for error in validator.iter_errors(value)]


def pointer_of(path: list[str | int]) -> str:
    """A path as a JSON pointer; `/` for the whole."""
    return "/" + "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _references(schema: Any, pointer: str) -> Iterator[tuple[str, str]]:
    """(pointer, target) of each `$ref`. A property that is merely called `$ref` holds a schema, not text."""
    if isinstance(schema, list):
        for index, item in enumerate(cast("list[Any]", schema)):
            yield from _references(item, f"{pointer}/{index}")
    elif isinstance(schema, dict):
        for key, item in cast("dict[str, Any]", schema).items():
            at = pointer + pointer_of([key])
            if key in ("$ref", "$dynamicRef", "$recursiveRef") and isinstance(item, str):
                yield at, item
            elif key not in ("const", "enum", "default", "examples"):
                yield from _references(item, at)


def _misspelt(name: str) -> str:
    alike = difflib.get_close_matches(name, _TYPES, n=1)
    hint = f"; did you mean {alike[0]!r}?" if alike else ""
    return f"{name!r} is not a JSON Schema type ({', '.join(_TYPES)}){hint}"


def _invalid(where: str, pointer: str, reason: str) -> ToolInvalid:
    return ToolInvalid(
        f"{where} is not a usable JSON Schema",
        where=pointer,
        why=reason,
        mend="Mend the schema at that place.",
        facts={"path": pointer},
    )
