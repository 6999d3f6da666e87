"""Where data that one schema's writers send may be refused by another schema's readers.

Objects are read as *open* unless a schema says `additionalProperties: false`: what a schema doesn't name may be there,
and writers are taken to send only what they name. So adding an optional field loses nothing, in either direction;
requiring a field that writers may leave out does, and so does closing an object. `default` is an annotation in JSON
Schema: it fills in nothing, so a field with a default may still be absent.

Paths are JSON pointers into the *data*; `*` stands for any item or any field that is not named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import jsonschema_rs

from agent_infra.content import json_bytes
from agent_infra.state.schemas.known import (
    LOWER,
    UPPER,
    JsonSchema,
    Known,
    bounds_of,
    further_keywords,
    gather,
    inlined,
    is_tighter,
    parts,
    types_of,
)
from agent_infra.state.schemas.references import pointer_of

_COMPARISONS: Final = 5_000
"""Pairs of subschemas looked at before a comparison is given up as undecided: deep alternatives multiply."""
_ABOUT: Final = {
    "pattern": {"string"},
    "format": {"string"},
    "multipleOf": {"number", "integer"},
    "uniqueItems": {"array"},
    "contains": {"array"},
    "minContains": {"array"},
    "maxContains": {"array"},
    "unevaluatedItems": {"array"},
    "propertyNames": {"object"},
    "dependentRequired": {"object"},
    "dependentSchemas": {"object"},
    "unevaluatedProperties": {"object"},
} | {keyword: {type} if type != "number" else {"number", "integer"} for keyword, type in {**LOWER, **UPPER}.items()}


@dataclass(frozen=True, slots=True)
class Loss:
    """One place where a reader may refuse what a writer may send: pointer into the data, rule, and the particular."""

    path: str
    rule: str
    detail: str

    def told(self, writer: str, reader: str) -> str:
        """The reason in words, with the writer's and the reader's versions."""
        return _REASONS[self.rule].format(detail=self.detail, writer=writer, reader=reader)


_REASONS: Final = {
    "type_narrowed": "{writer} may send {detail}, which {reader} refuses",
    "value_refused": "{writer} may send {detail}, which {reader} refuses",
    "enum_narrowed": "{reader} allows only {detail}",
    "bound_narrowed": "{reader} asks for {detail}; {writer} may send others",
    "field_required": "{detail!r} is required; {writer} may lack it",
    "field_closed_out": "{reader} is closed and doesn't know {detail!r}, which {writer} may send",
    "closed": "{reader} limits fields that it doesn't name ({detail}); {writer} is open",
    "undecided": "whether {reader} takes all that {writer} may send can't be decided: {detail} changed",
}


def losses(writer: Any, reader: Any) -> list[Loss]:
    """Every loss from a writer's schema to a reader's, each once."""
    return list(dict.fromkeys(_Comparison(writer, reader).between(writer, reader, "")))


class _Comparison:
    """Two whole schemas; `between` compares a part of the one with a part of the other."""

    def __init__(self, writer: Any, reader: Any) -> None:
        self._writer = writer
        self._reader = reader
        self._comparing: set[tuple[int, int]] = set()
        self._left = _COMPARISONS
        self._alike = writer == reader

    def between(self, writer: Any, reader: Any, path: str, split: frozenset[int] = frozenset()) -> Iterator[Loss]:
        """What is lost from a part of the writer to a part of the reader. `split` are the writer's lists of alternatives
        of which one was chosen already.
        """
        pair = (id(writer), id(reader))
        if (
            self._same(writer, reader) or pair in self._comparing
        ):  # recursive schemas: a pair on the way is taken to fit
            return
        if self._left <= 0:
            yield Loss(path or "/", "undecided", "the schema")
            return
        self._left -= 1
        self._comparing.add(pair)
        try:
            yield from self._by_alternative(writer, reader, path, split)
        finally:
            self._comparing.remove(pair)

    def _by_alternative(self, writer: Any, reader: Any, path: str, split: frozenset[int]) -> Iterator[Loss]:
        """Each alternative of the writer by itself: it says more than the whole, and names fields that the whole doesn't."""
        known = gather(writer, self._writer)
        if any(each in ({}, True) for each in known.further.get("not", [])):
            return  # nothing is ever sent
        alternatives = [*known.further.get("anyOf", []), *known.further.get("oneOf", [])]
        branches = next((each for each in alternatives if id(each) not in split), None)
        if branches is not None:
            for branch in branches:
                yield from self.between({"allOf": [writer, branch]}, reader, path, split | {id(branches)})
            return
        try:
            asked = list(parts(reader, self._reader))
        except LookupError as reference:
            yield Loss(path or "/", "undecided", f"$ref {reference}")
            return
        for part in asked:
            yield from self._part(writer, known, part, path)

    def _part(self, writer: Any, known: Known, part: JsonSchema, path: str) -> Iterator[Loss]:
        values = known.values
        if values is None and known.types <= {"null", "boolean"}:
            simple = ((None, "null"), (True, "boolean"), (False, "boolean"))
            values = [value for value, type in simple if type in known.types]
        checks = self._validators(writer, part) if values is not None else None
        if values is None or checks is None:
            yield from self._keywords(writer, known, part, path)
            return
        may_send, takes = checks
        for value in values:
            if may_send(value) and not takes(value):
                yield Loss(path or "/", "value_refused", json_bytes(value).decode())

    # -- keywords --------------------------------------------------------------------------------------------------------

    def _keywords(self, writer: Any, known: Known, part: JsonSchema, path: str) -> Iterator[Loss]:
        where = path or "/"
        if part.get("not") in ({}, True):
            yield Loss(where, "value_refused", "something")
            return
        missing = known.types - types_of(part)
        if missing and not self._covers(writer, {"type": part["type"]}):
            yield Loss(where, "type_narrowed", ", ".join(sorted(missing)))
        if "enum" in part or "const" in part:
            yield Loss(where, "enum_narrowed", json_bytes(part.get("enum", [part.get("const")])).decode())
        for keyword, bound in bounds_of(part):
            mine = known.bounds.get(keyword)
            narrowed = mine is None or is_tighter(keyword, bound, mine)
            if narrowed and self._matters(keyword, known) and not self._covers(writer, _bound_schema(keyword, bound)):
                yield Loss(where, "bound_narrowed", f"{keyword} {bound[0]}{' (excluded)' if bound[1] else ''}")
        if "object" in known.types:
            yield from self._fields(known, part, path)
        if "array" in known.types:
            yield from self._items(known, part, path)
        for keyword, value in further_keywords(part):
            if self._matters(keyword, known) and not self._kept(writer, known, keyword, value):
                yield Loss(where, "undecided", keyword)

    def _matters(self, keyword: str, known: Known) -> bool:
        return keyword not in _ABOUT or bool(known.types & _ABOUT[keyword])

    def _kept(self, writer: Any, known: Known, keyword: str, value: Any) -> bool:
        """Whether the writer promises a further keyword of the reader: in the same words, or demonstrably."""
        if any(self._same(mine, value) for mine in known.further.get(keyword, [])):
            return True
        if keyword == "anyOf" and any(not self._loses(writer, branch) for branch in value):
            return True
        return self._covers(writer, value if keyword == "if" else {keyword: value})

    def _loses(self, writer: Any, reader: Any) -> bool:
        return bool(list(self.between(writer, reader, "")))

    def _fields(self, known: Known, part: JsonSchema, path: str) -> Iterator[Loss]:
        for name in part.get("required", []):
            if name not in known.required:
                yield Loss(path + pointer_of([name]), "field_required", name)
        named: JsonSchema = part.get("properties", {})
        patterns: JsonSchema = part.get("patternProperties", {})
        if not all(_is_readable(pattern) for pattern in (*patterns, *known.patterns)):
            yield Loss(path or "/", "undecided", "patternProperties")
            return
        for name, schema in named.items():
            by_pattern = [each for pattern, sent in known.patterns.items() if re.search(pattern, name) for each in sent]
            sent = [*known.properties.get(name, []), *by_pattern] or ([] if known.is_closed else known.others)
            if sent:
                yield from self.between(_all(sent), schema, path + pointer_of([name]))
        for pattern, schema in patterns.items():
            sent_by_pattern = known.patterns.get(pattern)
            if sent_by_pattern:
                yield from self.between(_all(sent_by_pattern), schema, f"{path}/*")
            for name, sent in known.properties.items():
                if re.search(pattern, name):
                    yield from self.between(_all(sent), schema, path + pointer_of([name]))
        others = part.get("additionalProperties", True)
        if others not in (True, {}):
            unnamed = {name: sent for name, sent in known.properties.items() if name not in named}
            unnamed = {name: sent for name, sent in unnamed.items() if not any(re.search(p, name) for p in patterns)}
            yield from self._unnamed(known, unnamed, patterns, others, path)

    def _unnamed(
        self, known: Known, unnamed: dict[str, list[Any]], patterns: JsonSchema, others: Any, path: str
    ) -> Iterator[Loss]:
        """Fields that the reader doesn't name, where it limits these."""
        for name, sent in unnamed.items():
            at = path + pointer_of([name])
            if others is not False:
                yield from self.between(_all(sent), others, at)
            elif False not in sent:
                yield Loss(at, "field_closed_out", name)
        if known.patterns.keys() - patterns.keys():
            yield Loss(path or "/", "undecided", "patternProperties")
        if not known.others:
            yield Loss(path or "/", "closed", "additionalProperties")
        elif not known.is_closed:
            yield from self.between(_all(known.others), others, f"{path}/*")

    def _items(self, known: Known, part: JsonSchema, path: str) -> Iterator[Loss]:
        sent_rest: Any = _all(known.items) if known.items else {}
        read_first, read_rest = part.get("prefixItems", []), part.get("items", {})
        for index in range(max(len(known.prefix), len(read_first))):
            sent = known.prefix[index] if index < len(known.prefix) else sent_rest
            yield from self.between(
                sent, read_first[index] if index < len(read_first) else read_rest, f"{path}/{index}"
            )
        if "items" in part:
            yield from self.between(sent_rest, read_rest, f"{path}/*")

    # -- whole schemas ---------------------------------------------------------------------------------------------------

    def _same(self, writer: Any, reader: Any) -> bool:
        if self._alike and writer == reader:
            return True
        try:
            return inlined(writer, self._writer) == inlined(reader, self._reader)
        except LookupError:
            return False

    def _covers(self, writer: Any, reader: Any) -> bool:
        """Whether the reader's part takes, provably and by the letter, all that the writer's allows."""
        try:
            sent, read = inlined(writer, self._writer), inlined(reader, self._reader)
            one = jsonschema_rs.canonicalize(sent, offline=True, validate_formats=True)
            other = jsonschema_rs.canonicalize(read, offline=True, validate_formats=True)
        except (LookupError, ValueError):
            return False
        return str(other.covers(one)) == "yes"

    def _validators(self, writer: Any, reader: Any) -> tuple[Callable[[Any], bool], Callable[[Any], bool]] | None:
        try:
            return (
                jsonschema_rs.validator_for(
                    inlined(writer, self._writer), offline=True, validate_formats=True
                ).is_valid,
                jsonschema_rs.validator_for(
                    inlined(reader, self._reader), offline=True, validate_formats=True
                ).is_valid,
            )
        except (LookupError, ValueError):
            return None


def _is_readable(pattern: str) -> bool:
    """Whether Python reads a pattern as JSON Schema's regular expressions are meant."""
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _all(schemas: list[Any]) -> Any:
    return schemas[0] if len(schemas) == 1 else {"allOf": schemas}


def _bound_schema(keyword: str, bound: tuple[float, bool]) -> JsonSchema:
    if not bound[1]:
        return {keyword: bound[0]}
    return {f"exclusive{keyword[:1].upper()}{keyword[1:]}": bound[0]}
