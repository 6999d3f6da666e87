"""Versions of schemas: their tags, their end, their differences, and that a home keeps all of it."""

from __future__ import annotations

from typing import Any

import pytest

from agent_infra.clock import ManualClock
from agent_infra.errors import SchemaInvalid, SchemaMismatch, SchemaUnknown
from agent_infra.state import Home, SchemaBroker, StateGraph, open_home

TEXT: dict[str, Any] = {"type": "string"}


def fields(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


@pytest.fixture
def schemas(home: Home) -> SchemaBroker:
    return home.engine.schemas


# -- tags --------------------------------------------------------------------------------------------------------------


def test_a_version_is_found_by_its_tags(schemas: SchemaBroker) -> None:
    first = schemas.register("计划", fields(step=TEXT), tag="1.8")
    second = schemas.register("计划", fields(step=TEXT, score=TEXT), tag="2.0")
    again = schemas.register("计划", fields(step=TEXT, score=TEXT), tag="2.1")
    assert again.version == second.version == 2
    assert again.tags == ("2.0", "2.1")
    assert schemas.get("计划", "1.8") == first
    assert schemas.get("计划", "2.0") == schemas.get("计划", "2.1") == schemas.get("计划", 2) == again
    with pytest.raises(SchemaUnknown, match=r"1 or '1.8', 2 or '2.0' or '2.1'"):
        schemas.get("计划", "1.9")


def test_an_older_program_declares_its_own_version_again(schemas: SchemaBroker) -> None:
    """By its tag: a schema that has moved on stays where it is."""
    schemas.register("计划", fields(step=TEXT), tag="1.8")
    schemas.register("计划", fields(step=TEXT, score=TEXT), tag="2.1")
    assert schemas.register("计划", fields(step=TEXT), tag="1.8").version == 1
    assert schemas.get("计划").version == 2
    assert schemas.register("计划", fields(step=TEXT)).version == 3, "without a tag it is a change back"


def test_a_tag_names_one_version(schemas: SchemaBroker) -> None:
    schemas.register("计划", fields(step=TEXT), tag="1.8")
    with pytest.raises(SchemaInvalid) as caught:
        schemas.register("计划", fields(step=TEXT, score=TEXT), tag="1.8")
    assert caught.value.facts == {"schema": "计划", "tag": "1.8", "version": 1}
    assert len(schemas.list("计划")) == 1


# -- the end of a version ----------------------------------------------------------------------------------------------


def test_new_nodes_are_of_the_newest_version_that_is_not_deprecated(home: Home, graph: StateGraph) -> None:
    schemas = home.engine.schemas
    schemas.register("note2", fields(text=TEXT))
    schemas.register("note2", fields("text", text=TEXT), "NONE")
    written = graph.add_node("note2", {"text": "晴"})
    assert schemas.deprecate("note2", 2, "too strict").deprecated == "too strict"
    assert schemas.get("note2").version == 1
    assert graph.add_node("note2", {}).schema[1] == 1
    assert graph.node(written.id).schema[1] == 2, "what was written stays as it was"
    assert schemas.get("note2", 2).deprecated == "too strict"


def test_the_last_version_in_use_stays(schemas: SchemaBroker) -> None:
    schemas.register("note2", fields(text=TEXT))
    with pytest.raises(SchemaInvalid, match="last one in use"):
        schemas.deprecate("note2", 1)
    schemas.register("note2", fields(text=TEXT, more=TEXT))
    schemas.deprecate("note2", 1)
    with pytest.raises(SchemaInvalid, match="last one in use"):
        schemas.deprecate("note2", 2)
    with pytest.raises(SchemaUnknown):
        schemas.deprecate("note2", 3)


# -- differences -------------------------------------------------------------------------------------------------------


def test_a_difference_says_what_changed_and_whom_it_breaks(schemas: SchemaBroker) -> None:
    schemas.register("report", fields(city=TEXT, note=TEXT))
    schemas.register("report", fields("city", city={"type": ["string", "null"]}, 温度={"type": "number"}), "NONE")
    found = schemas.diff("report", 1, 2)
    assert [(change.kind, change.path) for change in found.changes] == [
        ("changed", "/properties/city/type"),
        ("removed", "/properties/note"),
        ("added", "/properties/温度"),
        ("changed", "/required"),
    ]
    assert [(each.path, each.rule) for each in found.backward] == [("/city", "field_required")]
    assert [(each.path, each.rule) for each in found.forward] == [("/city", "type_narrowed")]
    told = str(found)
    assert '~ /required: [] -> ["city"]' in told
    assert "backward compatible: no" in told
    assert schemas.diff("report", 2).changes == (), "towards the version that new nodes have"


# -- keeping -----------------------------------------------------------------------------------------------------------


def test_a_home_keeps_versions_tags_promises_and_ends(disk_home: Home, clock: ManualClock) -> None:
    schemas = disk_home.engine.schemas
    schemas.register("report", fields(a=TEXT), tag="1.8")
    schemas.register("report", fields(a=TEXT, b=TEXT), "FULL_TRANSITIVE", tag="2.1")
    schemas.deprecate("report", "1.8", "旧")
    kept = [(s.version, s.tags, s.compatibility, s.compatible_with, s.deprecated) for s in schemas.list("report")]
    assert kept == [(1, ("1.8",), "BACKWARD", (), "旧"), (2, ("2.1",), "FULL_TRANSITIVE", (1,), None)]
    disk_home.close()
    assert disk_home.path is not None
    again = open_home(disk_home.path, clock=clock)
    try:
        found = again.engine.schemas.list("report")
        assert [(s.version, s.tags, s.compatibility, s.compatible_with, s.deprecated) for s in found] == kept
        with pytest.raises(SchemaMismatch):
            StateGraph("s", engine=again.engine).add_node("report", {"b": 5})
    finally:
        again.close()


def test_a_remote_meta_schema_is_refused_and_not_fetched(schemas: SchemaBroker) -> None:
    with pytest.raises(SchemaInvalid, match=r"nobody\.invalid"):
        schemas.register("report", {"$schema": "http://nobody.invalid/schema", "type": "object"})


def test_a_property_that_is_named_like_a_keyword_is_a_property(schemas: SchemaBroker, graph: StateGraph) -> None:
    schemas.register(
        "odd", fields(**{"$ref": TEXT, "enum": {"$ref": "#/$defs/n"}}) | {"$defs": {"n": {"type": "integer"}}}
    )
    graph.add_node("odd", {"$ref": "http://example.com", "enum": 3})
    with pytest.raises(SchemaMismatch):
        graph.add_node("odd", {"enum": "three"})
    with pytest.raises(SchemaInvalid) as caught:
        schemas.register("bad", fields(default={"$ref": "other.json"}))
    assert caught.value.facts["path"] == "/properties/default/$ref"
