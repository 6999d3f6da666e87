"""What a schema promises to the versions before it: found by structure, checked by data."""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import validator_for

from agent_infra.errors import MigrationMissing, SchemaIncompatible, SchemaInvalid
from agent_infra.state import Home, SchemaBroker, StateGraph, open_memory
from agent_infra.state.schemas.losses import losses

FULL = os.environ.get("AGENT_INFRA_TEST_TIER") == "full"
TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}
WHOLE: dict[str, Any] = {"type": "integer"}


def fields(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def closed(*required: str, **properties: Any) -> dict[str, Any]:
    return {**fields(*required, **properties), "additionalProperties": False}


@pytest.fixture
def schemas(home: Home) -> SchemaBroker:
    return home.engine.schemas


# -- against which versions ----------------------------------------------------------------------------------------------


def test_a_required_field_is_not_slipped_in_by_two_steps(schemas: SchemaBroker) -> None:
    """PAINS 15: the third version is checked against both that it follows, and all that is wrong is said at once."""
    schemas.register("report", fields(f1=TEXT))
    assert schemas.register("report", fields(f1=TEXT, f2={**TEXT, "default": "无"})).version == 2
    with pytest.raises(SchemaIncompatible) as caught:
        schemas.register("report", fields("f2", f1=TEXT, f2=TEXT))
    assert "'f2' is required; versions 1, 2 may lack it" in str(caught.value)
    assert caught.value.facts["breaks"] == [
        {
            "path": "/f2",
            "rule": "field_required",
            "versions": [1, 2],
            "reason": "'f2' is required; versions 1, 2 may lack it",
        }
    ]
    assert caught.value.facts["versions"] == [1, 2]
    assert [schema.version for schema in schemas.list("report")] == [1, 2]


def test_a_deprecated_version_counts_for_as_long_as_a_node_of_it_lives(home: Home, graph: StateGraph) -> None:
    schemas = home.engine.schemas
    schemas.register("report", fields(f1=TEXT))
    graph.add_node("report", {}, key="weather")
    schemas.register("report", fields("f1", f1=TEXT), "NONE")
    schemas.deprecate("report", 1, "f1 is always known now")
    narrower = fields("f1", f1={**TEXT, "minLength": 1})
    with pytest.raises(SchemaIncompatible) as caught:
        schemas.register("report", narrower)
    assert caught.value.facts["versions"] == [1, 2]
    graph.add_node("report", {"f1": "晴"}, key="weather")
    with pytest.raises(SchemaIncompatible) as caught:
        schemas.register("report", narrower)
    assert caught.value.facts["versions"] == [2]


def test_a_transitive_promise_is_kept_towards_deprecated_versions_too(schemas: SchemaBroker) -> None:
    schemas.register("report", fields(f1=TEXT))
    schemas.register("report", fields("f1", f1=TEXT), "NONE")
    schemas.deprecate("report", 1)
    third = fields("f1", f1=TEXT, f2=TEXT)
    with pytest.raises(SchemaIncompatible) as caught:
        schemas.register("report", third, "BACKWARD_TRANSITIVE")
    assert caught.value.facts["versions"] == [1]
    assert caught.value.facts["compatibility"] == "BACKWARD_TRANSITIVE"
    registered = schemas.register("report", third, "BACKWARD")
    assert (registered.version, registered.compatible_with) == (3, (2,))


@pytest.mark.parametrize(
    ("mode", "widened", "narrowed"),
    [
        ("NONE", True, True),
        ("BACKWARD", True, False),
        ("BACKWARD_TRANSITIVE", True, False),
        ("FORWARD", False, True),
        ("FORWARD_TRANSITIVE", False, True),
        ("FULL", False, False),
        ("FULL_TRANSITIVE", False, False),
    ],
)
def test_each_promise_looks_its_own_way(mode: Any, widened: bool, narrowed: bool) -> None:
    for new, allowed in ((NUMBER, widened), ({**WHOLE, "minimum": 0}, narrowed)):
        schemas = open_memory().engine.schemas
        schemas.register("reading", fields(value=WHOLE))
        if allowed:
            assert schemas.register("reading", fields(value=new), mode).version == 2
        else:
            with pytest.raises(SchemaIncompatible) as caught:
                schemas.register("reading", fields(value=new), mode)
            assert caught.value.facts["path"] == "/value"


def test_an_unknown_promise_is_refused(schemas: SchemaBroker) -> None:
    with pytest.raises(SchemaInvalid, match="BACKWARDS"):
        schemas.register("reading", fields(), "BACKWARDS")  # type: ignore[arg-type]


# -- the rule of open and closed objects -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "rule", "path"),
    [
        (fields(a=TEXT), fields(a=TEXT, b=NUMBER), None, None),
        (fields(a=TEXT, b=NUMBER), fields(a=TEXT), None, None),
        (fields(a=TEXT), closed(a=TEXT), "closed", "/"),
        (closed(a=TEXT), fields(a=TEXT, b=NUMBER), None, None),
        (closed(a=TEXT), closed(a=TEXT, b=NUMBER), None, None),
        (closed(a=TEXT, b=NUMBER), closed(a=TEXT), "field_closed_out", "/b"),
        (fields(), {"type": "object", "additionalProperties": TEXT}, "closed", "/"),
        ({"type": "object", "additionalProperties": WHOLE}, fields(城市=NUMBER), None, None),
        ({"type": "object", "additionalProperties": WHOLE}, fields(城市=TEXT), "type_narrowed", "/城市"),
        (
            {"type": "object", "additionalProperties": WHOLE},
            {"type": "object", "additionalProperties": TEXT},
            "type_narrowed",
            "/*",
        ),
        ({**closed(), "patternProperties": {"^x-": WHOLE}}, fields(**{"x-a": TEXT}), "type_narrowed", "/x-a"),
        (
            {**closed(), "patternProperties": {"^x-": WHOLE}},
            {**closed(), "patternProperties": {"^x-": NUMBER}},
            None,
            None,
        ),
        (
            {"type": "array", "items": fields(a=TEXT)},
            {"type": "array", "items": fields("a", a=TEXT)},
            "field_required",
            "/*/a",
        ),
        (fields(**{"a/b": WHOLE}), fields(**{"a/b": TEXT}), "type_narrowed", "/a~1b"),
    ],
    ids=str,
)
def test_what_a_schema_does_not_name_may_be_there_unless_it_is_closed(
    schemas: SchemaBroker, old: Any, new: Any, rule: str | None, path: str | None
) -> None:
    schemas.register("record", old)
    if rule is None:
        assert schemas.register("record", new).version == 2
        return
    with pytest.raises(SchemaIncompatible) as caught:
        schemas.register("record", new)
    assert (caught.value.facts["rule"], caught.value.facts["path"]) == (rule, path)


# -- references and alternatives -------------------------------------------------------------------------------------------


def chain(value: Any) -> dict[str, Any]:
    """A list, by a schema that refers to itself."""
    return fields(value=value, next={"$ref": "#"})


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        (fields(a=WHOLE), {"$ref": "#/$defs/%E8%AE%B0%E5%BD%95", "$defs": {"记录": fields(a=NUMBER)}}, True),
        ({"$ref": "#/$defs/r", "$defs": {"r": fields(a=NUMBER)}}, fields(a=WHOLE), False),
        ({"$ref": "#r", "$defs": {"x": {"$anchor": "r", **fields(a=WHOLE)}}}, fields(a=NUMBER), True),
        (chain(WHOLE), chain(NUMBER), True),
        (chain(NUMBER), chain(WHOLE), False),
        ({"allOf": [fields("a", a=WHOLE), fields("b", b=TEXT)]}, fields("a", "b", a=NUMBER, b=TEXT), True),
        (fields("a", a=WHOLE), {"allOf": [fields("a"), fields(a=TEXT)]}, False),
        (fields(a={"anyOf": [TEXT, WHOLE]}), fields(a={"type": ["string", "number"]}), True),
        (fields(a={"type": ["string", "integer"]}), fields(a={"anyOf": [NUMBER, TEXT]}), True),
        (fields(a={"oneOf": [TEXT, WHOLE]}), fields(a={"oneOf": [TEXT, WHOLE, {"type": "null"}]}), True),
        (fields(a={"oneOf": [TEXT, WHOLE, {"type": "null"}]}), fields(a={"oneOf": [TEXT, WHOLE]}), False),
        ({"anyOf": [fields("a", a=TEXT), fields("a", a=WHOLE)]}, fields("a"), True),
        ({"anyOf": [fields("a", a=TEXT), fields("b", b=WHOLE)]}, fields("a"), False),
        (fields(a={"enum": ["晴", "雨"]}), fields(a=TEXT), True),
        (fields(a={"enum": ["晴", 5]}), fields(a=TEXT), False),
        (fields(a={"type": "boolean"}), fields(a={"enum": [True, False, None]}), True),
        (fields(a={"const": 3}), fields(a={**NUMBER, "minimum": 3}), True),
        (fields(a={**NUMBER, "exclusiveMinimum": 3}), fields(a={**NUMBER, "minimum": 3}), True),
        (fields(a={**NUMBER, "minimum": 3}), fields(a={**NUMBER, "exclusiveMinimum": 3}), False),
        (fields(a={**WHOLE, "minimum": 3}), fields(a={**NUMBER, "exclusiveMinimum": 2}), True),
        (fields(a={**WHOLE, "multipleOf": 4}), fields(a={**WHOLE, "multipleOf": 2}), True),
        (fields(a={**TEXT, "format": "date"}), fields(a={**TEXT, "format": "date", "title": "日期"}), True),
    ],
    ids=str,
)
def test_references_and_alternatives_are_looked_into(schemas: SchemaBroker, old: Any, new: Any, kept: bool) -> None:
    schemas.register("record", old)
    if kept:
        assert schemas.register("record", new).version == 2
    else:
        with pytest.raises(SchemaIncompatible):
            schemas.register("record", new)


def test_a_comparison_that_would_take_for_ever_is_undecided(schemas: SchemaBroker) -> None:
    many = {"allOf": [{"anyOf": [{"required": [f"{n}{m}"]} for m in "abcd"]} for n in range(40)]}
    schemas.register("record", many)
    with pytest.raises(SchemaIncompatible) as caught:
        schemas.register("record", {"required": ["x"]})
    assert caught.value.facts["rule"] in ("field_required", "undecided")


# -- by data -----------------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "城市")
VALUES = (None, True, False, -2, 0, 1, 2, 3, 1.5, "", "晴", "ab", "abc")
LEAVES: tuple[Any, ...] = (
    True,
    {},
    *({"type": type} for type in ("null", "boolean", "string", "integer", "number", ["string", "null"])),
    *({**WHOLE, "minimum": low} for low in (-2, 0, 2)),
    *({**NUMBER, "exclusiveMaximum": high} for high in (0, 2)),
    *({**TEXT, "maxLength": most} for most in (0, 2)),
    *({"enum": allowed} for allowed in ([1, "晴"], [None, 2, ""], [True])),
)


def any_schema(random: Random, depth: int = 3) -> Any:
    """A small schema. All of its objects limit the fields that they don't name, so nothing is left to the rule of open
    objects."""
    kind = random.choice(["leaf", "object", "object", "array", "anyOf", "oneOf", "allOf", "not"]) if depth else "leaf"

    def inner() -> Any:
        return any_schema(random, depth - 1)

    if kind == "leaf":
        return random.choice(LEAVES)
    if kind == "object":
        return {
            "type": "object",
            "properties": {name: inner() for name in random.sample(NAMES, random.randint(0, 2))},
            "required": random.sample(NAMES, random.randint(0, 2)),
            "additionalProperties": random.choice([False, inner()]),
        }
    if kind == "array":
        return {"type": "array", "items": inner(), "maxItems": random.randint(1, 3)}
    return {"not": inner()} if kind == "not" else {kind: [inner() for _ in range(random.randint(1, 2))]}


def changed(random: Random, schema: Any) -> Any:
    """The schema with a change at one place, so that promises are often nearly kept."""
    deep = [key for key, part in schema.items() if isinstance(part, dict | list) and part] if schema is not True else []
    deep = [key for key in deep if key not in ("required", "enum", "type")]
    if not deep or random.random() < 0.25:
        less = dict(schema) if schema is not True else {}
        less.pop("required" if "required" in less and random.random() < 0.5 else "maxItems", None)
        more = {"anyOf": [schema, {"type": "null"}]}, {"allOf": [schema, {"maximum": 1}]}
        return random.choice([random.choice(LEAVES), less, *more])
    key = random.choice(deep)
    part = schema[key]
    if isinstance(part, list):
        return {**schema, key: [changed(random, part[0]), *part[1:]]}
    if key == "properties":
        name = random.choice(list(part))
        return {**schema, key: {**part, name: changed(random, part[name])}}
    return {**schema, key: changed(random, part)}


def sent(random: Random, schema: Any) -> Any:
    """Data that a writer of a schema may well send."""
    if not isinstance(schema, dict) or not schema or "not" in schema:
        return random.choice([*VALUES, [], {}, [1], {"a": "晴"}])
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema:
            return sent(random, random.choice(schema[keyword]))
    if schema.get("type") == "array":
        return [sent(random, schema["items"]) for _ in range(random.randint(0, 2))]
    if schema.get("type") == "object":
        names = [*schema["required"], *random.sample(NAMES, random.randint(0, 2))]
        return {name: sent(random, schema["properties"].get(name, schema["additionalProperties"])) for name in names}
    return random.choice([*schema.get("enum", []), *VALUES])


@settings(max_examples=3000 if FULL else 100)
@given(st.integers(0, 2**32))
def test_a_kept_promise_holds_for_data(seed: int) -> None:
    """What is found compatible takes all data of the old version."""
    random = Random(seed)
    for _ in range(20):
        old = any_schema(random)
        new = changed(random, old) if random.random() < 0.8 else any_schema(random)
        if not losses(old, new):
            was_valid, is_valid = (validator_for(schema, offline=True).is_valid for schema in (old, new))
            for value in (sent(random, old) for _ in range(8)):
                assert is_valid(value) or not was_valid(value), (old, new, value)
        assert losses(old, old) == []


# -- what a broken promise leads to ------------------------------------------------------------------------------------


def test_without_a_promise_data_needs_a_migration(home: Home, graph: StateGraph) -> None:
    schemas = home.engine.schemas
    schemas.register("report", fields(f1=TEXT))
    old = graph.add_node("report", {"f1": "晴"})
    schemas.register("report", fields("f1", f1=TEXT), "NONE")
    with pytest.raises(MigrationMissing):
        graph.with_schemas({"report": 2})
    assert graph.with_schemas({"report": 1}).node(old.id) == old
