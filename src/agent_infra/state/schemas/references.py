"""`$ref` inside a schema: where each one stands, and what it points at. Nothing is ever fetched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, cast
from urllib.parse import unquote

REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
DATA: Final = ("const", "enum", "default", "examples")
"""Keywords that hold data: a `$ref` in there is no reference."""
NAMED: Final = ("properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions")
"""Keywords that hold schemas by name: a property that is called `enum` is one of them."""


def pointer_of(path: Iterable[str | int]) -> str:
    """A path as a JSON pointer; `/` for the whole."""
    return "/" + "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in path)


def references(schema: Any) -> Iterator[tuple[str, str]]:
    """(pointer, target) of each reference."""
    for pointer, part in _parts(schema, ""):
        for keyword in REFERENCES:
            if isinstance(part.get(keyword), str):
                yield f"{pointer}/{keyword}", part[keyword]


def resolve(root: Any, target: str) -> Any:
    """What a reference points at: `#`, a pointer (`#/$defs/city`) or an anchor (`#city`) of the same schema.

    Raises LookupError where that can't be told: nothing is there, or a part with an `$id` of its own makes another
    base.
    """
    if not target.startswith("#") or _has_inner_id(root):
        raise LookupError(target)
    name = unquote(target[1:])
    if name and not name.startswith("/"):
        return _anchored(root, name)
    found: Any = root
    for part in name.split("/")[1:]:
        step = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and step.isdigit():
            found = cast("list[Any]", found)[int(step)]
        elif isinstance(found, dict):
            found = cast("dict[str, Any]", found)[step]
        else:
            raise LookupError(target)
    return found


def _anchored(schema: Any, name: str) -> Any:
    for _, part in _parts(schema, ""):
        if name in (part.get("$anchor"), part.get("$dynamicAnchor")):
            return part
    raise LookupError(name)


def _has_inner_id(root: Any) -> bool:
    return any(pointer and isinstance(part.get("$id"), str) for pointer, part in _parts(root, ""))


def _parts(schema: Any, pointer: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(pointer, schema) of a schema and every schema inside it."""
    if isinstance(schema, list):
        for index, item in enumerate(cast("list[Any]", schema)):
            yield from _parts(item, f"{pointer}/{index}")
    elif isinstance(schema, dict):
        mapping = cast("dict[str, Any]", schema)
        yield pointer, mapping
        for key, item in mapping.items():
            at = pointer + pointer_of([key])
            if key in NAMED and isinstance(item, dict):
                for name, inner in cast("dict[str, Any]", item).items():
                    yield from _parts(inner, at + pointer_of([name]))
            elif key not in DATA:
                yield from _parts(item, at)
