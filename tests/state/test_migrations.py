"""Data goes from one schema version to another: by mappings and functions, over chains, or not at all and with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_infra.clock import ManualClock
from agent_infra.errors import (
    MigrationFailed,
    MigrationInvalid,
    MigrationMissing,
    SchemaMismatch,
    SchemaUnknown,
)
from agent_infra.state import Home, StateGraph, activation, open_home, open_memory
from agent_infra.testing.strategies import json_values, texts

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}


def fields(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def strict(version: int) -> dict[str, Any]:
    """A schema that takes data of its own version only."""
    return fields("v", v={"const": version})


def numbered(home: Home, count: int, name: str = "state") -> None:
    for version in range(1, count + 1):
        home.engine.schemas.register(name, strict(version), "NONE")


def to(version: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def function(data: dict[str, Any]) -> dict[str, Any]:
        return data | {"v": version, "way": [*data.get("way", []), version]}

    return function


# -- writing under an older version ------------------------------------------------------------------------------------


def test_a_write_under_an_old_version_goes_through_the_chain(home: Home, graph: StateGraph) -> None:
    numbered(home, 3)
    schemas = home.engine.schemas
    schemas.migrate("state", 1, 2, to(2))
    schemas.migrate("state", 2, 3, to(3))
    node = graph.add_node("state", {"v": 1, "城市": "北京"}, schema_version=1)
    assert node.data == {"v": 3, "城市": "北京", "way": [2, 3]}
    assert graph.node(node.id) == node
    assert node.schema == schemas.get("state", 3).stamp
    assert graph.add_node("state", {"v": 3}, schema_version=3).data == {"v": 3}


def test_a_write_without_a_chain_is_refused_with_the_missing_link(home: Home, graph: StateGraph) -> None:
    numbered(home, 4)
    schemas = home.engine.schemas
    schemas.migrate("state", 1, 2, to(2))
    schemas.migrate("state", 3, 4, to(4))
    before = graph.version
    with pytest.raises(MigrationMissing) as caught:
        graph.add_node("state", {"v": 1}, schema_version=1)
    assert caught.value.facts["missing"] == [2, 3]
    assert (caught.value.facts["from"], caught.value.facts["to"]) == (1, 4)
    assert "no migration leads from 2 to 3" in str(caught.value)
    assert isinstance(caught.value, SchemaMismatch)
    assert graph.version == before
    schemas.migrate("state", 2, 3, to(3))
    assert graph.add_node("state", {"v": 1}, schema_version=1).data["way"] == [2, 3, 4]


def test_the_missing_link_on_the_way_down_is_named_too(home: Home, graph: StateGraph) -> None:
    numbered(home, 4)
    graph.add_node("state", {"v": 4})
    home.engine.schemas.migrate("state", 4, 3, to(3))
    home.engine.schemas.migrate("state", 2, 1, to(1))
    with pytest.raises(MigrationMissing) as caught:
        graph.with_schemas({"state": 1})
    assert caught.value.facts["missing"] == [3, 2]


def test_data_is_checked_under_the_version_that_it_names(home: Home, graph: StateGraph) -> None:
    numbered(home, 2)
    home.engine.schemas.migrate("state", 1, 2, to(2))
    with pytest.raises(SchemaMismatch) as caught:
        graph.add_node("state", {"v": 2}, schema_version=1)
    assert caught.value.facts["version"] == 1
    with pytest.raises(SchemaUnknown):
        graph.add_node("state", {"v": 2}, schema_version=5)


def test_what_a_migration_gives_is_checked_after_each_step(home: Home, graph: StateGraph) -> None:
    numbered(home, 3)
    schemas = home.engine.schemas
    schemas.migrate("state", 1, 2, lambda data: data | {"v": "two"})
    schemas.migrate("state", 2, 3, to(3))
    before = graph.version
    with pytest.raises(MigrationFailed) as caught:
        graph.add_node("state", {"v": 1}, schema_version=1)
    assert caught.value.facts == {"schema": "state", "step": [1, 2], "path": "/v"}
    assert graph.version == before


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda _: {"v": {1, 2}}, "/v"),
        (lambda data: [data], "not an object"),
        (lambda data: data["absent"], "KeyError: 'absent'"),
        (lambda _: None, "NoneType"),
    ],
)
def test_a_migration_that_goes_wrong_is_told(home: Home, graph: StateGraph, function: Any, told: str) -> None:
    numbered(home, 2)
    home.engine.schemas.migrate("state", 1, 2, function)
    with pytest.raises(MigrationFailed, match=told) as caught:
        graph.add_node("state", {"v": 1}, schema_version=1)
    assert caught.value.facts["step"] == [1, 2]


def test_a_function_can_change_what_it_is_given(home: Home, graph: StateGraph) -> None:
    """It gets a copy: neither the caller's data nor a stored node is touched."""
    numbered(home, 2)

    def in_place(data: dict[str, Any]) -> dict[str, Any]:
        data["v"] = 2
        data["inner"].append("changed")
        return data

    home.engine.schemas.migrate("state", 1, 2, in_place)
    given: dict[str, Any] = {"v": 1, "inner": []}
    assert graph.add_node("state", given, schema_version=1).data == {"v": 2, "inner": ["changed"]}
    assert given == {"v": 1, "inner": []}


# -- reading in one's own version --------------------------------------------------------------------------------------


def test_readers_get_nodes_in_the_version_that_they_understand(home: Home, graph: StateGraph) -> None:
    schemas = home.engine.schemas
    schemas.register("report", fields("temp", temp=NUMBER), tag="celsius")
    old = graph.add_node("report", {"temp": 20}, key="天气", tool="weather_api")
    schemas.register("report", fields("fahrenheit", fahrenheit=NUMBER), "NONE", tag="fahrenheit")
    schemas.migrate("report", 1, 2, {"set": {"fahrenheit": "${data.temp * 1.8 + 32}"}, "drop": ["temp"]})
    schemas.migrate("report", 2, 1, {"set": {"temp": "${(data.fahrenheit - 32) / 1.8}"}, "drop": ["fahrenheit"]})
    with graph.step() as step:
        call = step.add_node("call_note", {}, tool="weather_api")
        new = step.add_node("report", {"fahrenheit": 50})
        step.add_edge(call.id, new.id, "causes")

    modern = graph.with_schemas({"report": "fahrenheit"})
    assert modern.node(old.id).data == {"fahrenheit": 68}
    assert modern.node(old.id).schema == schemas.get("report", 2).stamp
    assert modern.node(new.id) == graph.node(new.id)
    assert modern.latest("天气").data == {"fahrenheit": 68}  # type: ignore[union-attr]
    assert [node.data for node in modern.nodes(type="report")] == [{"fahrenheit": 50}, {"fahrenheit": 68}]
    assert [node.id for node in modern.nodes(where="node.data.fahrenheit > 60")] == [old.id]

    classic = graph.with_schemas({"report": 1})
    assert [node.data for node in classic.nodes(type="report")] == [{"temp": 10}, {"temp": 20}]
    assert [node.data for node in classic.caused_by("weather_api", within=60)] == [{"temp": 10}]
    assert [node.data for node in classic.descendants(call.id)] == [{"temp": 10}]
    assert [node.data for node in classic.nodes(tool="weather_api")] == [{}, {"temp": 20}]

    assert [node.data for node in graph.nodes(type="report")] == [{"fahrenheit": 50}, {"temp": 20}], "as written"


def test_conditions_see_nodes_in_the_readers_version(home: Home, graph: StateGraph) -> None:
    numbered(home, 2)
    graph.add_node("state", {"v": 2})
    home.engine.schemas.migrate("state", 2, 1, to(1))

    class Reads:
        reads = (("state", "nodes", "state", "v"),)

    bindings, _ = activation(graph.with_schemas({"state": 1}), [Reads()])
    assert bindings["state"]["nodes"]["state"]["v"] == 1


def test_a_program_writes_what_it_reads(home: Home, graph: StateGraph) -> None:
    numbered(home, 2)
    home.engine.schemas.migrate("state", 1, 2, to(2))
    home.engine.schemas.migrate("state", 2, 1, to(1))
    old = graph.with_schemas({"state": 1})
    node = old.add_node("state", {"v": 1})
    assert node.data["v"] == 2, "what is given back is what is stored"
    assert old.node(node.id).data["v"] == 1
    with old.step() as step:
        step.add_node("state", {"v": 1})
        step.add_node("note", {"text": "其他类型不变"})
        with pytest.raises(SchemaMismatch):
            step.add_node("state", {"v": 2})
        step.add_node("state", {"v": 2}, schema_version=2)
    assert [node.data["v"] for node in old.nodes(type="state")] == [1, 1, 1]
    assert [node.data["v"] for node in old.as_agent("planner").nodes(type="state")] == [1, 1, 1]
    assert [node.data["v"] for node in old.at(old.version).nodes(type="state")] == [1, 1, 1]
    assert [node.data["v"] for node in old.fork("another").nodes(type="state")] == [1, 1, 1]


def test_nodes_that_are_not_asked_for_need_no_chain(home: Home, graph: StateGraph) -> None:
    """Superseded nodes of a version without a chain, and nodes of other types, keep nobody from reading."""
    numbered(home, 2)
    schemas = home.engine.schemas
    schemas.deprecate("state", 2)
    graph.add_node("state", {"v": 1}, key="now", tool="t")
    schemas.register("state", strict(2) | {"title": "again"}, "NONE")
    graph.add_node("state", {"v": 2}, key="now", tool="t")
    graph.add_node("note", {}, tool="t")
    modern = graph.with_schemas({"state": 3})
    assert [node.data for node in modern.nodes(type="state")] == [{"v": 2}]
    assert len(modern.nodes(type="note", tool="t")) == 1
    with pytest.raises(MigrationMissing):
        modern.nodes(type="state", lifecycle=None)
    with pytest.raises(MigrationMissing):
        graph.at(graph.history()[0].id).with_schemas({"state": 3})


def test_a_kept_promise_needs_no_migration(home: Home, graph: StateGraph) -> None:
    schemas = home.engine.schemas
    schemas.register("report", fields("city", city=TEXT))
    old = graph.add_node("report", {"city": "北京"})
    schemas.register("report", fields("city", city=TEXT, temp=NUMBER))
    assert graph.with_schemas({"report": 2}).node(old.id).data == {"city": "北京"}
    graph.add_node("report", {"city": "上海"}, schema_version=1)
    graph.add_node("report", {"city": "上海", "temp": 20})
    with pytest.raises(MigrationMissing) as caught:
        graph.with_schemas({"report": 1})
    assert caught.value.facts["missing"] == [2, 1], "BACKWARD says nothing about old readers"


def test_promises_that_break_in_the_data_are_told(home: Home, graph: StateGraph) -> None:
    """An open object may hold what a later version names; the promise passes over that, the data doesn't."""
    schemas = home.engine.schemas
    schemas.register("report", fields())
    node = graph.add_node("report", {"temp": "warm"})
    schemas.register("report", fields(temp=NUMBER))
    with pytest.raises(MigrationFailed, match="promise") as caught:
        graph.with_schemas({"report": 2}).node(node.id)
    assert caught.value.facts == {"schema": "report", "step": [1, 2], "path": "/temp"}


def test_nodes_from_before_a_type_was_declared_pass_if_they_are_valid(home: Home, graph: StateGraph) -> None:
    good = graph.add_node("reading", {"temp": 20})
    home.engine.schemas.register("reading", fields("temp", temp=NUMBER))
    home.engine.schemas.register("reading", fields("temp", temp=NUMBER, unit=TEXT))
    modern = graph.with_schemas({"reading": 2})
    assert modern.node(good.id).schema[1] == 2
    bad = graph.fork("bad")
    with pytest.raises(SchemaMismatch):
        bad.add_node("reading", {"temp": "warm"})
    home.engine.schemas.migrate("reading", 0, 1, {"default": {"temp": 0}})
    assert graph.with_schemas({"reading": 1}).node(good.id).data == {"temp": 20}


# -- chains ------------------------------------------------------------------------------------------------------------


def test_the_shortest_chain_is_taken_and_migrations_before_promises(home: Home, graph: StateGraph) -> None:
    numbered(home, 4)
    schemas = home.engine.schemas
    for step in (1, 2, 3):
        schemas.migrate("state", step, step + 1, to(step + 1))
    assert graph.add_node("state", {"v": 1}, schema_version=1).data["way"] == [2, 3, 4]
    schemas.migrate("state", 1, 3, to(3))
    assert graph.add_node("state", {"v": 1}, schema_version=1).data["way"] == [3, 4]
    schemas.migrate("state", 1, 4, to(4))
    assert graph.add_node("state", {"v": 1}, schema_version=1).data["way"] == [4]

    for added in ("a", "b", "c"):
        schemas.register("report", fields(**{added: TEXT}))
    schemas.migrate("report", 1, 2, {"default": {"said": "by the migration"}})
    assert graph.add_node("report", {}, schema_version=1).data == {"said": "by the migration"}


@given(st.integers(2, 7), st.integers(0, 2**32))
def test_any_chain_is_the_shortest_there_is(count: int, seed: int) -> None:
    """Against a plain search over all pairs; and where there is none, the step that is named is what was missing."""
    random = Random(seed)
    home = open_memory()
    numbered(home, count)
    schemas = home.engine.schemas
    pairs = [(a, b) for a in range(1, count + 1) for b in range(1, count + 1) if a != b and random.random() < 0.3]
    for source, target in pairs:
        schemas.migrate("state", source, target, to(target))
    near = dict.fromkeys(pairs, 1) | {(v, v): 0 for v in range(1, count + 1)}
    for middle in range(1, count + 1):
        for a in range(1, count + 1):
            for b in range(1, count + 1):
                if (a, middle) in near and (middle, b) in near:
                    near[a, b] = min(near.get((a, b), 99), near[a, middle] + near[middle, b])
    for a in range(1, count + 1):
        for b in range(1, count + 1):
            source, target = schemas.get("state", a), schemas.get("state", b)
            assert schemas.leads(source, target) == ((a, b) in near)
            if (a, b) in near:
                brought = schemas.bring({"v": a}, source, target)
                way = brought.get("way", [])
                assert (brought["v"], len(way)) == (b, near[a, b])
                assert all(link in pairs for link in zip([a, *way], way, strict=False))
                continue
            with pytest.raises(MigrationMissing) as caught:
                schemas.bring({"v": a}, source, target)
            last, next_one = caught.value.facts["missing"]
            assert (a, last) in near
            assert (next_one, b) in near
            assert (last, next_one) not in near
            assert abs(next_one - last) <= abs(b - a)


@given(st.dictionaries(texts(), json_values(4), max_size=4))
def test_up_and_down_again_is_the_same(data: dict[str, Any]) -> None:
    home = open_memory()
    numbered(home, 4)
    schemas = home.engine.schemas
    for step in (1, 2, 3):
        inside = f"/layer{step}/其余"
        schemas.migrate("state", step, step + 1, {"rename": {"rest": inside}, "set": {"v": step + 1}})
        schemas.migrate("state", step + 1, step, {"rename": {inside: "rest"}, "set": {"v": step}})
    whole = {"v": 1, "rest": data}
    up = schemas.bring(whole, schemas.get("state", 1), schemas.get("state", 4))
    down = schemas.bring(up, schemas.get("state", 4), schemas.get("state", 1))
    assert {key: value for key, value in down.items() if not key.startswith("layer")} == whole


# -- mappings ----------------------------------------------------------------------------------------------------------


def mapped(mapping: Mapping[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    home = open_memory()
    for version in (1, 2):
        home.engine.schemas.register("thing", fields() | {"title": str(version)}, "NONE")
    home.engine.schemas.migrate("thing", 1, 2, mapping)
    schemas = home.engine.schemas
    return schemas.bring(data, schemas.get("thing", 1), schemas.get("thing", 2))


@pytest.mark.parametrize(
    ("mapping", "data", "expected"),
    [
        ({}, {"a": 1}, {"a": 1}),
        ({"drop": ["note", "absent"]}, {"note": "x", "日志": [1]}, {"日志": [1]}),
        ({"rename": {"title": "name"}}, {"title": "报告"}, {"name": "报告"}),
        ({"rename": {"title": "name"}}, {}, {}),
        ({"rename": {"a": "b", "b": "a"}}, {"a": 1, "b": 2}, {"a": 2, "b": 1}),
        ({"drop": ["b"], "rename": {"a": "b"}}, {"a": 1, "b": 2}, {"b": 1}),
        ({"rename": {"/address/town": "/city/name"}}, {"address": {"town": "北京"}}, {"address": {}, "city": {"name": "北京"}}),
        ({"drop": ["/a~1b/c~0d"]}, {"a/b": {"c~d": 1, "e": 2}}, {"a/b": {"e": 2}}),
        ({"drop": ["/a/b"]}, {"a": "text"}, {"a": "text"}),
        ({"default": {"score": 0.5}}, {}, {"score": 0.5}),
        ({"default": {"score": 0.5}}, {"score": 0}, {"score": 0}),
        ({"default": {"score": 0.5}}, {"score": None}, {"score": None}),
        ({"default": {"/a/b": [1]}}, {"a": {}}, {"a": {"b": [1]}}),
        ({"set": {"c": "${data.a} ${data.b}"}, "drop": ["b"]}, {"a": "李", "b": "白"}, {"a": "李", "c": "李 白"}),
        ({"set": {"list": ["${data.a}", "x"]}}, {"a": {"n": 1}}, {"a": {"n": 1}, "list": [{"n": 1}, "x"]}),
        ({"drop": ["a"], "set": {"b": "${data.a}"}}, {"a": [1, "é", None]}, {"b": [1, "é", None]}),
        ({"rename": {"a": "b"}, "default": {"a": "${data.a + 1}"}}, {"a": 1}, {"b": 1, "a": 2}),
    ],
)  # fmt: skip
def test_a_mapping_does_what_it_says(mapping: Any, data: Any, expected: Any) -> None:
    assert mapped(mapping, data) == expected


@pytest.mark.parametrize(
    ("mapping", "data", "told"),
    [
        ({"rename": {"a": "b"}}, {"a": 1, "b": 2}, "something at /b already"),
        ({"default": {"/a/b": 1}}, {"a": "text"}, "/a is no object"),
        ({"set": {"b": "${data.absent}"}}, {}, "/b can't be set"),
    ],
)
def test_a_mapping_that_can_not_be_done_is_told(mapping: Any, data: Any, told: str) -> None:
    with pytest.raises(MigrationFailed, match=told):
        mapped(mapping, data)


@pytest.mark.parametrize(
    ("mapping", "told"),
    [
        ({"remove": ["a"]}, "'remove' is none of"),
        ({"drop": "a"}, "'drop' is a list"),
        ({"rename": ["a"]}, "'rename' is an object"),
        ({"rename": {"a": 5}}, "renamed to a path"),
        ({"rename": {"a": "c", "b": "/c"}}, "two fields are renamed to one"),
        ({"set": {"a": "${data.}"}}, "'a'"),
        ({"set": {"a": "${state.nodes.x}"}}, "'a'"),
    ],
)
def test_a_mapping_that_can_not_be_meant_is_refused(mapping: Any, told: str) -> None:
    with pytest.raises(MigrationInvalid, match=told):
        mapped(mapping, {})


@pytest.mark.parametrize("function", [5, "text", None, ["drop"]])
def test_a_migration_is_a_function_or_a_mapping(function: Any) -> None:
    with pytest.raises(MigrationInvalid):
        mapped(function, {})


def test_a_migration_leads_somewhere_else(home: Home) -> None:
    numbered(home, 2)
    with pytest.raises(MigrationInvalid, match="to itself"):
        home.engine.schemas.migrate("state", 1, 1, {})
    with pytest.raises(SchemaUnknown):
        home.engine.schemas.migrate("state", 1, 3, {})


# -- keeping -----------------------------------------------------------------------------------------------------------


def test_mappings_survive_reopening_and_functions_are_asked_for(disk_home: Home, clock: ManualClock) -> None:
    numbered(disk_home, 3)
    schemas = disk_home.engine.schemas
    schemas.migrate("state", 1, 2, {"set": {"v": 2}, "default": {"城市": "北京"}})
    schemas.migrate("state", 2, 3, to(3))
    StateGraph("s", engine=disk_home.engine).add_node("state", {"v": 1}, schema_version=1)
    disk_home.close()
    assert isinstance(disk_home.path, Path)
    again = open_home(disk_home.path, clock=clock)
    try:
        graph = StateGraph("s", engine=again.engine)
        schemas = again.engine.schemas
        assert [(found.pair, found.kind) for found in schemas.migrations("state")] == [
            ((1, 2), "mapping"),
            ((2, 3), "python"),
        ]
        assert schemas.bring({"v": 1}, schemas.get("state", 1), schemas.get("state", 2)) == {"v": 2, "城市": "北京"}
        with pytest.raises(MigrationMissing) as caught:
            graph.add_node("state", {"v": 1}, schema_version=1)
        assert caught.value.facts["missing"] == [2, 3]
        assert caught.value.facts["function"].endswith("to.<locals>.function")
        assert "has not registered" in str(caught.value)
        registry = StateGraph.of_system(again.engine, "_registry").version
        schemas.migrate("state", 2, 3, to(3))
        assert StateGraph.of_system(again.engine, "_registry").version == registry, (
            "registered again, not written again"
        )
        assert graph.add_node("state", {"v": 1}, schema_version=1).data["v"] == 3
    finally:
        again.close()


def test_a_migration_can_be_mended(home: Home, graph: StateGraph) -> None:
    numbered(home, 2)
    schemas = home.engine.schemas
    schemas.migrate("state", 1, 2, {})
    with pytest.raises(MigrationFailed):
        graph.add_node("state", {"v": 1}, schema_version=1)
    schemas.migrate("state", 1, 2, {"set": {"v": 2}})
    assert graph.add_node("state", {"v": 1}, schema_version=1).data == {"v": 2}
    kept = StateGraph.of_system(home.engine, "_registry").nodes(type="migration")
    assert [node.data["mapping"] for node in kept] == [{"set": {"v": 2}}]


# -- a session that was paused under another schema (PAINS 4, T2) --------------------------------------------------------


LOG = {"type": "array", "items": TEXT}


def run(graph: StateGraph, version: int) -> list[str]:
    """A little program of two steps that keeps its state in the graph and pauses before the last; what it did now."""
    mine = graph.with_schemas({"loop_state": version})
    done: list[str] = []
    while True:
        state = mine.latest("loop_state")
        log = state.data["log"] if state else []
        if len(log) == 2 or (len(log) == 1 and version == 1):
            return done
        name = ("first", "last")[len(log)]
        done.append(name)
        data: dict[str, Any] = {"log": [*log, name]}
        mine.add_node("loop_state", data | ({"note": "暂停"} if version == 1 else {}), key="loop_state")


@pytest.mark.parametrize("migrated", [False, True])
def test_a_paused_session_goes_on_under_a_new_schema_only_by_a_migration(
    disk_home: Home, clock: ManualClock, migrated: bool
) -> None:
    closed = {"additionalProperties": False}
    disk_home.engine.schemas.register("loop_state", fields("log", log=LOG, note=TEXT) | closed)
    assert run(StateGraph("s", engine=disk_home.engine), 1) == ["first"]
    disk_home.close()
    assert disk_home.path is not None
    again = open_home(disk_home.path, clock=clock)
    try:
        graph = StateGraph("s", engine=again.engine)
        again.engine.schemas.register("loop_state", fields("log", log=LOG) | closed, "NONE")
        paused = graph.version
        if migrated:
            again.engine.schemas.migrate("loop_state", 1, 2, {"drop": ["note"]})
            assert run(graph, 2) == ["last"]
            assert graph.latest("loop_state").data == {"log": ["first", "last"]}  # type: ignore[union-attr]
            assert run(graph, 2) == [], "done"
        else:
            with pytest.raises(SchemaMismatch, match="1 -> 2") as caught:
                run(graph, 2)
            assert caught.value.facts["missing"] == [1, 2]
            assert graph.version == paused, "no step ran"
        assert [version.step_count for version in graph.history()] == ([1, 2] if migrated else [1])
        assert graph.verify().ok
    finally:
        again.close()
