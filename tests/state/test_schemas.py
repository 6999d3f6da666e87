"""The schema broker from outside: what is declared, what may follow what, and what is refused with which reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agent_infra.clock import ManualClock
from agent_infra.errors import InvalidNode, NotJson, SchemaIncompatible, SchemaInvalid, SchemaMismatch, SchemaUnknown
from agent_infra.state import Home, StateGraph

STANDARD = {
    *("user_intent", "api_response", "document", "call", "receipt", "goal", "plan", "subgoal", "decision", "approval"),
    *("diagnosis", "repair", "signal", "woven_reward", "alarm", "setting"),
}


def needing(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def test_the_types_that_the_system_writes_are_declared(home: Home) -> None:
    assert set(home.engine.schemas.names()) >= STANDARD
    for name in STANDARD:
        assert home.engine.schemas.get(name).version >= 1


def test_a_node_records_the_schema_that_it_was_checked_against(home: Home, graph: StateGraph) -> None:
    first = home.engine.schemas.register("forecast", needing("city", city={"type": "string"}))
    old = graph.add_node("forecast", {"city": "北京"})
    second = home.engine.schemas.register("forecast", needing("city", city={"type": "string"}, temp={"type": "number"}))
    new = graph.add_node("forecast", {"city": "北京", "temp": 22})
    assert (old.schema, new.schema) == (first.stamp, second.stamp)
    assert graph.node(old.id).schema == first.stamp
    assert first.stamp[:2] == ("forecast", 1)
    assert second.stamp[:2] == ("forecast", 2)
    with pytest.raises(SchemaMismatch) as caught:
        graph.add_node("forecast", {"city": "北京", "temp": "warm"})
    assert caught.value.facts["version"] == 2
    assert caught.value.facts["path"] == "/temp"


def test_versions_are_numbered_and_found(home: Home) -> None:
    schemas = home.engine.schemas
    first = schemas.register("天气", {"type": "object"})
    assert schemas.register("天气", {"type": "object"}) == first
    second = schemas.register("天气", needing(city={"type": "string"}))
    assert [first.version, second.version] == [1, 2]
    assert schemas.get("天气") == second
    assert schemas.get("天气", 1) == first
    assert schemas.get("天气", 1).schema == {"type": "object"}
    assert "天气" in schemas.names()
    for name, version in (("天气", 3), ("天气", 0), ("absent", None), ("absent", 1)):
        with pytest.raises(SchemaUnknown) as caught:
            schemas.get(name, version)
        assert caught.value.facts["schema"] == name


def test_the_registry_survives_reopening(homes: Callable[..., Home]) -> None:
    """Also where a project declared a version of its own of a standard type: the release's does not come back."""
    home = homes()
    mine = home.engine.schemas.register("note", needing("text", text={"type": "string"}), "NONE")
    second = home.engine.schemas.register("天气", {"type": "object"})
    for _ in range(3):
        if home.path is not None:  # nothing of a home in memory survives
            home.close()
            home = homes()
        schemas = home.engine.schemas
        assert schemas.get("note").stamp == mine.stamp
        assert schemas.get("天气").stamp == second.stamp
        with pytest.raises(SchemaMismatch):
            StateGraph("s", engine=home.engine).add_node("note", {})
    registry = StateGraph.of_system(home.engine, "_registry")
    assert registry.verify().ok
    assert "note" in {node.data["name"] for node in registry.nodes(type="schema")}


def test_a_schema_can_be_true_or_false(home: Home, graph: StateGraph) -> None:
    home.engine.schemas.register("anything", True)
    graph.add_node("anything", {"x": [1]})
    home.engine.schemas.register("nothing", False)
    with pytest.raises(SchemaMismatch):
        graph.add_node("nothing", {})


def test_a_schema_gives_its_nodes_a_lifetime(home: Home, graph: StateGraph, clock: ManualClock) -> None:
    home.engine.schemas.register("reading", {"type": "object", "x-ttl": 60})
    default, own = graph.add_node("reading", {}), graph.add_node("reading", {}, ttl=3600)
    assert (default.ttl, own.ttl) == (60, 3600)
    clock.advance(61)
    assert [node.id for node in graph.nodes(type="reading")] == [own.id]


def test_a_lifetime_of_nothing_is_for_ever_and_warned_of_unless_declared(
    home: Home, graph: StateGraph, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    home.engine.schemas.register("reading", {"type": "object", "x-ttl": 60})
    home.engine.schemas.register("law", {"type": "object", "x-ttl": 0})
    mine = [graph.add_node("reading", {}, ttl=0) for _ in range(3)]
    laws = [graph.add_node("law", {}), graph.add_node("law", {}, ttl=0)]
    (warning,) = caplog.messages
    assert "permanent_node" in warning
    assert "reading" in warning
    clock.advance(1e9)
    assert {node.id for node in graph.nodes()} == {node.id for node in [*mine, *laws]}
    assert {node.ttl for node in graph.nodes()} == {None}


def test_a_type_that_nobody_declared_is_warned_of_once(graph: StateGraph, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        graph.add_node("随笔", {"any": ["thing"]})
    (warning,) = caplog.messages
    assert "undeclared_type" in warning
    assert "随笔" in warning


# -- compatibility ---------------------------------------------------------------------------------


def test_an_optional_field_may_come_and_must_not_become_required(home: Home) -> None:
    """PAINS 15: not checked against the latest version only, and a reason that says where, why and towards what."""
    schemas = home.engine.schemas
    text = {"type": "string"}
    schemas.register("report", needing(f1=text))
    schemas.register("report", needing(f1=text, f2=text))
    with pytest.raises(SchemaIncompatible) as caught:
        schemas.register("report", needing("f2", f1=text, f2=text))
    assert caught.value.facts["path"] == "/f2"
    assert caught.value.facts["rule"] == "field_required"
    assert {1, 2} <= set(caught.value.facts["versions"])
    assert "f2" in str(caught.value)
    with pytest.raises(SchemaIncompatible):
        schemas.register("report", needing("f2", f1=text, f2={"type": "string", "default": ""}))
    assert schemas.get("report").version == 2
    assert schemas.register("report", needing("f2", f1=text, f2=text), "NONE").version == 3


TEXT: dict[str, Any] = {"type": "string"}
NARROWED: dict[str, tuple[Any, Any, Any]] = {
    # name: (old schema of the field, new schema of the field, a value that only the old one allows)
    "type": ({"type": ["string", "null"]}, TEXT, None),
    "integer": ({"type": "number"}, {"type": "integer"}, 1.5),
    "any": (True, TEXT, 5),
    "nothing": (TEXT, False, "x"),
    "enum": ({"enum": ["a", "b"]}, {"enum": ["a"]}, "b"),
    "new enum": (TEXT, {"type": "string", "enum": ["a"]}, "b"),
    "const": (TEXT, {"type": "string", "const": "a"}, "b"),
    "minimum": ({"type": "number", "minimum": 0}, {"type": "number", "minimum": 1}, 0),
    "maximum": ({"type": "number"}, {"type": "number", "maximum": 1}, 2),
    "exclusive": ({"type": "number", "minimum": 0}, {"type": "number", "minimum": 0, "exclusiveMinimum": 0}, 0),
    "multiple": ({"type": "integer"}, {"type": "integer", "multipleOf": 2}, 3),
    "length": (TEXT, {"type": "string", "maxLength": 2}, "北京市"),
    "pattern": (TEXT, {"type": "string", "pattern": "^a"}, "b"),
    "format": (TEXT, {"type": "string", "format": "date"}, "tomorrow"),
    "items": ({"type": "array", "items": TEXT}, {"type": "array", "items": {"type": "string", "minLength": 1}}, [""]),
    "item count": ({"type": "array"}, {"type": "array", "maxItems": 1}, [1, 2]),
    "unique": ({"type": "array"}, {"type": "array", "uniqueItems": True}, [1, 1]),
    "contains": ({"type": "array"}, {"type": "array", "contains": TEXT}, []),
    "prefix": ({"type": "array"}, {"type": "array", "prefixItems": [TEXT]}, [1]),
    "required": (needing(a=TEXT), needing("a", a=TEXT), {}),
    "nested": (needing(a=needing(b=TEXT)), needing(a=needing("b", b=TEXT)), {"a": {}}),
    "closed": (needing(a=TEXT), {**needing(a=TEXT), "additionalProperties": False}, {"c": 1}),
    "additional": ({"type": "object"}, {"type": "object", "additionalProperties": TEXT}, {"c": 1}),
    "field gone": (
        {**needing(a=TEXT, b=TEXT), "additionalProperties": False},
        {**needing(a=TEXT), "additionalProperties": False},
        {"b": "x"},
    ),
    "names": ({"type": "object"}, {"type": "object", "propertyNames": {"pattern": "^a"}}, {"b": 1}),
    "property count": ({"type": "object"}, {"type": "object", "minProperties": 1}, {}),
    "dependent": ({"type": "object"}, {"type": "object", "dependentRequired": {"a": ["b"]}}, {"a": 1}),
    "anyOf": ({"anyOf": [TEXT, {"type": "null"}]}, {"anyOf": [TEXT]}, None),
    "allOf": (TEXT, {"type": "string", "allOf": [{"minLength": 1}]}, ""),
    "not": (TEXT, {"type": "string", "not": {"const": "a"}}, "a"),
    "if": (TEXT, {"type": "string", "if": {"const": "a"}, "then": {"minLength": 2}}, "a"),
}


@pytest.mark.parametrize("name", NARROWED)
def test_a_schema_that_refuses_old_data_is_not_backward_compatible(home: Home, graph: StateGraph, name: str) -> None:
    """Each case is checked by data: a value that is valid under the old schema and not under the new one."""
    old, new, value = NARROWED[name]
    schemas = home.engine.schemas
    schemas.register("record", needing(f=old))
    graph.add_node("record", {"f": value})
    with pytest.raises(SchemaIncompatible) as caught:
        schemas.register("record", needing(f=new))
    assert caught.value.facts["path"].startswith("/f")
    assert schemas.get("record").version == 1
    assert schemas.register("record", needing(f=new), "NONE").version == 2
    with pytest.raises(SchemaMismatch):
        graph.add_node("record", {"f": value})
    with pytest.raises(SchemaIncompatible):
        schemas.register("record", needing(f=old), "FORWARD")


def test_a_definition_that_changes_behind_a_reference_counts(home: Home) -> None:
    schemas = home.engine.schemas
    schemas.register("r", {"$ref": "#/$defs/it", "$defs": {"it": needing(a=TEXT)}})
    with pytest.raises(SchemaIncompatible):
        schemas.register("r", {"$ref": "#/$defs/it", "$defs": {"it": needing("a", a=TEXT)}})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (needing(a=TEXT), needing(a=TEXT, b=TEXT)),
        (needing("a", a=TEXT), needing(a=TEXT)),
        (needing(a={"type": "integer"}), needing(a={"type": "number"})),
        (needing(a=TEXT), needing(a={"type": ["string", "null"]})),
        (needing(a={"enum": ["a"]}), needing(a={"enum": ["a", "天"]})),
        (needing(a={"type": "number", "minimum": 1}), needing(a={"type": "number", "minimum": 0})),
        ({**needing(a=TEXT), "additionalProperties": False}, needing(a=TEXT, b=TEXT)),
        (needing(a=TEXT), {**needing(a=TEXT), "title": "报告", "description": "said better", "$comment": "x"}),
    ],
    ids=str,
)
def test_what_takes_all_old_data_is_backward_compatible(home: Home, old: Any, new: Any) -> None:
    schemas = home.engine.schemas
    schemas.register("record", old)
    assert schemas.register("record", new).version == 2


def test_full_asks_for_both_directions(home: Home) -> None:
    schemas = home.engine.schemas
    schemas.register("record", needing(a=TEXT))
    for changed in (needing("a", a=TEXT), needing(a={"type": ["string", "null"]})):
        with pytest.raises(SchemaIncompatible):
            schemas.register("record", changed, "FULL")
    assert schemas.register("record", needing(a=TEXT, b=TEXT), "FULL").version == 2


# -- what is no schema -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "integr"}, "/type"),
        ({"properties": {"天气": {"type": "strin"}}}, "/properties/天气/type"),
        ({"required": "a"}, "/required"),
        ({"properties": {"a": {"minimum": "low"}}}, "/properties/a/minimum"),
        ({"properties": {"a": {"pattern": "("}}}, "/properties/a"),
        ({"properties": {"a": {"$ref": "https://example.com/schema.json"}}}, "/properties/a"),
        ({"$ref": "other.json#/$defs/x"}, "/"),
        ({"properties": {"a": {"$ref": "#/$defs/absent"}}}, "/properties/a"),
    ],
    ids=str,
)
def test_what_is_no_schema_is_refused_with_its_place(home: Home, graph: StateGraph, schema: Any, path: str) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        home.engine.schemas.register("bad", schema)
    assert caught.value.facts["path"].startswith(path)
    assert "bad" not in home.engine.schemas.names()
    with pytest.raises(SchemaUnknown):
        home.engine.schemas.get("bad")


def test_a_reference_inside_the_schema_is_followed(home: Home, graph: StateGraph) -> None:
    schema = {"properties": {"a": {"$ref": "#/$defs/city"}}, "$defs": {"city": {"type": "string", "minLength": 1}}}
    home.engine.schemas.register("local", schema)
    graph.add_node("local", {"a": "北京"})
    with pytest.raises(SchemaMismatch) as caught:
        graph.add_node("local", {"a": ""})
    assert caught.value.facts["path"] == "/a"


@pytest.mark.parametrize(("name", "schema"), [("", {}), ("a\0", {}), ("\ud800", {}), (5, {})])
def test_a_bad_name_is_refused(home: Home, name: Any, schema: Any) -> None:
    with pytest.raises(InvalidNode):
        home.engine.schemas.register(name, schema)


def test_a_schema_is_plain_json(home: Home) -> None:
    with pytest.raises(NotJson) as caught:
        home.engine.schemas.register("bad", {"enum": [{1, 2}]})
    assert caught.value.facts["path"] == "/enum/0"
    with pytest.raises((SchemaInvalid, InvalidNode)):
        home.engine.schemas.register("bad", {"x-ttl": -1})
