"""What conditions and values read, against the schemas that are declared.

`state.nodes.<name>` is a key or a type, and keys are free: a name that nobody declares may be the key of a node that a
program writes. So an unknown name is never a mistake for certain; where it is almost the name of something known, that
is a warning. A name that is a declared type, or a key that an action writes, has a known schema. A field that this
schema rules out (it is closed, or the value is no object) is a problem; one that it merely doesn't list is a warning,
if it is almost one that is listed.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from agent_infra.actions.language.checking.schemas import (
    Found,
    Missing,
    NodeSchemas,
    Types,
    look_up,
    never_equal,
    say_types,
    types_of,
)
from agent_infra.actions.language.contract import Contract
from agent_infra.documents import did_you_mean
from agent_infra.expressions import Expression, Path, Template, spell

if TYPE_CHECKING:
    from agent_infra.actions.language.compiling import Surroundings
    from agent_infra.actions.language.reader import ActionReader

Place: TypeAlias = "tuple[str | int, ...]"
NODE_FIELDS: Final = frozenset({
    "id", "type", "key", "data", "created_at", "ttl", "owner", "tool", "permissions", "labels", "schema", "lifecycle",
    "session", "step",
})  # fmt: skip
"""A node's own fields, which stand before those of its data."""
_ALIKE: Final = 0.8
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems")


def check_references(readers: Sequence[ActionReader], contracts: Iterable[Contract], around: Surroundings) -> None:
    """Note what is wrong with what some documents read; `contracts` are those of them that could be read."""
    keys = _written_keys([*(around.contracts or {}).values(), *contracts])
    for reader in readers:
        checker = _Checker(reader, keys, around.schemas)
        for reading, place in reader.readings:
            checker.check_paths(reading, place)
            if isinstance(reading, Expression):
                checker.check_boolean(reading, place)
        for template, place, schema in reader.values:
            checker.check_paths(template, place)
            checker.check_values(template, place, schema)


def _written_keys(contracts: Iterable[Contract]) -> dict[str, set[str]]:
    """The keys under which actions write their results, and the node types that stand there."""
    keys: dict[str, set[str]] = {}
    for contract in contracts:
        result = contract.result
        if result is not None and result.key is not None and not result.key.is_reference:
            keys.setdefault(str(result.key.source), set()).add(result.type)
        elif result is not None:
            keys.setdefault(result.type, set()).add(result.type)
    return keys


class _Checker:
    """Checks one document."""

    def __init__(self, reader: ActionReader, keys: Mapping[str, Collection[str]], schemas: NodeSchemas) -> None:
        self._reader = reader
        self._keys = keys
        self._schemas = schemas
        self._types = set(schemas.names())

    # -- what is read is there -----------------------------------------------------------------------------------------

    def check_paths(self, reading: Expression | Template, place: Place) -> None:
        """Note each path that leads to nothing."""
        for path in reading.reads:
            if path[:2] == ("state", "nodes") and len(path) > 2 and not self._known(path[2]):
                self._warn_of_name(path, reading, place)
                continue
            found = [missing for missing in self._look_up(path) if isinstance(missing, Missing)]
            if found and len(found) == len(self._look_up(path)):
                self._report(found, path, reading, place)

    def _known(self, name: str) -> bool:
        return name in self._types or name in self._keys

    def _warn_of_name(self, path: Path, reading: Expression | Template, place: Place) -> None:
        near = difflib.get_close_matches(path[2], [*self._types, *self._keys], 1, _ALIKE)
        if near:
            message = f"no node type and no result is called `{path[2]}`"
            hint = f"did you mean `{near[0]}`? A key that a program writes needs no declaration"
            self._reader.warn("NameUnknown", message, *place, hint=hint, offset=_offset(reading, path, 2))

    def _look_up(self, path: Path) -> list[Found | Missing | None]:
        """What each schema that a path may lead through says of its end; depths count from the path's begin."""
        starts = self._starts(path)
        return [_deeper(look_up(schema, path[depth:]), depth) for schema, depth in starts]

    def _starts(self, path: Path) -> list[tuple[Any, int]]:
        """The schemas that a path may lead into, and at which of its names."""
        tool, root = self._reader.tool, path[0]
        if root == "params" and len(path) > 2 and tool is not None:
            return [(tool.input_schema, 1)]
        if root == "result" and tool is not None:
            return [(tool.output_schema, 1)]
        if path[:2] != ("state", "nodes") or len(path) < 4 or (path[3] in NODE_FIELDS and path[3] != "data"):
            return []
        types = {*self._keys.get(path[2], ()), *({path[2]} & self._types)}
        if not types <= self._types:
            return []
        return [(self._schemas.get(type).schema, 4 if path[3] == "data" else 3) for type in sorted(types)]

    def _report(self, found: Sequence[Missing], path: Path, reading: Expression | Template, place: Place) -> None:
        first = min(found, key=lambda missing: missing.depth)
        name, holder = path[first.depth], spell(path[: first.depth])
        known = sorted({each for missing in found for each in missing.known})
        offset = _offset(reading, path, first.depth)
        if all(missing.certain for missing in found):
            what = f"`{holder}` is {say_types(first.types)} and has" if first.types else f"`{holder}` has"
            hint = did_you_mean(name, known) if known else None
            self._reader.fields.report("FieldUnknown", f"{what} no field `{name}`", *place, hint=hint, offset=offset)
            return
        near = difflib.get_close_matches(name, known, 1, _ALIKE)
        if near:
            message = f"no schema lists a field `{name}` of `{holder}`"
            self._reader.warn("FieldUnlisted", message, *place, hint=f"did you mean `{near[0]}`?", offset=offset)

    # -- what is read fits ---------------------------------------------------------------------------------------------

    def check_boolean(self, condition: Expression, place: Place) -> None:
        """Report a condition that is nothing but a value which is never true or false."""
        types = self._types_at(condition.path) if condition.path is not None else None
        if types is not None and "boolean" not in types:
            message = f"the condition is {say_types(types)}, never true or false"
            hint = "compare it, as in `… > 0` or `… != null`"
            self._reader.fields.report("NotBoolean", message, *place, hint=hint)

    def check_values(self, template: Template, place: Place, schema: Mapping[str, Any]) -> None:
        """Report each reference whose values the tool can't take where it stands."""
        is_domain = place[-1:] == ("open",)
        for inner, path in template.paths:
            found = self._only(path)
            if found is None:
                continue
            if is_domain:
                self._check_domain(found, path, inner, place, schema)
            else:
                self._check_fit(found, path, (*place, *inner), look_up(schema, inner), "ParamType")

    def _check_domain(self, found: Found, path: Path, inner: Place, place: Place, schema: Mapping[str, Any]) -> None:
        """A domain's keyword that is bound to a value of the graph."""
        word, where = inner[-1], (*place, *inner)
        wanted: dict[str, Any] = {}
        if word in ("enum", "choices"):
            wanted = {"type": "array", "items": dict(schema)} if len(inner) == 1 else {"type": "array"}
        elif word in _BOUNDS or word in _COUNTS:
            wanted = {"type": "number" if word in _BOUNDS else "integer"}
        if not wanted:
            return
        if self._check_fit(found, path, where, Found(wanted, wanted), "BadDomain") and "items" in wanted:
            items = look_up(found.schema, (0,), found.root)
            if isinstance(items, Found):
                self._check_fit(items, path, where, Found(schema, schema), "BadDomain", of="holds ")

    def _check_fit(
        self, found: Found, path: Path, place: Place, wanted: Found | Missing | None, code: str, of: str = "is "
    ) -> bool:
        """Whether a value can be what is wanted, as far as both are known."""
        if not isinstance(wanted, Found):
            return True
        have, want = types_of(found.schema, found.root), types_of(wanted.schema, wanted.root)
        if have is not None and want is not None and not have & want:
            said = f"`{spell(path)}` {of}{say_types(have)}, and {say_types(want)} is wanted here"
        elif never_equal(found.schema, wanted.schema):
            said = f"`{spell(path)}` {of}never one of the values that are taken here"
        else:
            return True
        self._reader.fields.report(code, said, *place)
        return False

    def _only(self, path: Path) -> Found | None:
        """The one schema that is known of the value at a path."""
        found = self._look_up(path) if not _own_field(path) else [_own_schema(path)]
        return found[0] if len(found) == 1 and isinstance(found[0], Found) else None

    def _types_at(self, path: Path) -> Types | None:
        found = self._only(path) if path[0] != "params" or len(path) > 2 else self._param(path)
        return None if found is None else types_of(found.schema, found.root)

    def _param(self, path: Path) -> Found | None:
        tool = self._reader.tool
        found = look_up(tool.input_schema, path[1:]) if tool is not None and len(path) == 2 else None
        return found if isinstance(found, Found) else None


def _own_field(path: Path) -> bool:
    return path[:2] == ("state", "nodes") and len(path) == 4 and path[3] in NODE_FIELDS and path[3] != "data"


def _own_schema(path: Path) -> Found | None:
    """The schema of a node's own field."""
    types: dict[str, Any] = {"step": "integer", "labels": "array", "schema": "object"}
    texts = ("id", "type", "created_at", "lifecycle", "session")
    schema = {"type": "string" if path[3] in texts else types.get(path[3])}
    return Found(schema, schema) if schema["type"] is not None else None


def _deeper(found: Found | Missing | None, depth: int) -> Found | Missing | None:
    if not isinstance(found, Missing):
        return found
    return Missing(found.depth + depth, found.known, found.certain, found.types)


def _offset(reading: Expression | Template, path: Path, depth: int) -> int | None:
    """Where a path's name stands in the text that reads it; None where it can't be told."""
    if not isinstance(reading.source, str):
        return None
    start = reading.source.find(spell(path[: depth + 1]))
    return None if start < 0 else start + len(spell(path[: depth + 1])) - len(path[depth])
