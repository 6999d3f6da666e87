"""Erasing a node's data: gone from every version, a stub and a clean chain left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agent_infra.errors import InvalidNode, InvalidSessionId, NodeUnknown, PermissionRefused
from agent_infra.state import Home, Node, StateGraph, open_memory

NUMBER = "身份证 11010519491231002X"


@pytest.fixture
def person(graph: StateGraph) -> Node:
    """A node with what must go, in the middle of a story."""
    with graph.step() as step:
        call = step.add_node("api_call", {}, tool="registry")
        node = step.add_node("person", {"number": NUMBER}, key="customer", tool="registry", ttl=3600)
        step.add_edge(call.id, node.id, "causes")
    graph.add_node("note", {"text": "later"})
    return node


def everything(home: Home) -> bytes:
    return b"".join(key + value for key, value in home.engine.store.scan(b"", b"\xff"))


def test_erased_data_is_gone_from_every_version_and_the_chain_is_whole(
    home: Home, graph: StateGraph, person: Node
) -> None:
    versions = [version.id for version in graph.history()]
    fork = graph.fork("分支")
    assert NUMBER.encode() in everything(home)
    freed = graph.erase(person.id, "Art. 17 GDPR")
    assert (freed.versions, freed.nodes, freed.more) == (0, 1, False)
    assert freed.bytes > len(NUMBER.encode())
    assert NUMBER.encode() not in everything(home)
    assert [version.id for version in graph.history()] == versions
    for seen in (graph, graph.at(versions[0]), fork):
        assert seen.verify().ok, seen.verify().problems
        assert person.id not in {node.id for node in seen.nodes(lifecycle=None)}
        assert seen.caused_by("registry", within=3600) == []
        assert seen.latest("customer") is None
        with pytest.raises(NodeUnknown, match="erased"):
            seen.node(person.id)


def test_who_erased_what_and_why_is_noted_without_the_data(home: Home, graph: StateGraph, person: Node) -> None:
    StateGraph(graph.session_id, engine=home.engine, agent="datenschutz").erase(person.id, "她的请求")
    control = StateGraph.of_system(home.engine, "_control")
    (note,) = control.nodes(type="erasure")
    assert note.data == {"session": graph.session_id, "node": person.id, "type": "person", "why": "她的请求"}
    assert note.owner == "datenschutz"
    assert control.verify().ok


def test_life_goes_on_after_an_erasure(graph: StateGraph, person: Node) -> None:
    graph.erase(person.id, "asked for")
    again = graph.add_node("person", {"number": "none"}, key="customer")
    assert graph.latest("customer") == again
    assert [node.id for node in graph.nodes(key="customer", lifecycle=None)] == [again.id]
    graph.rollback()
    assert graph.latest("customer") is None
    graph.gc(keep_last=1)
    assert graph.verify().ok


def test_one_of_several_under_a_key_can_be_erased(graph: StateGraph, person: Node) -> None:
    newer = graph.add_node("person", {"number": "new"}, key="customer")
    graph.erase(person.id, "asked for")
    assert graph.latest("customer") == newer
    assert [node.id for node in graph.nodes(key="customer", lifecycle=None)] == [newer.id]
    assert graph.verify().ok


def test_content_goes_with_the_last_that_referred_to_it(home: Home, graph: StateGraph) -> None:
    only, shared = (home.blobs.put(text.encode() * 2000, "text/plain") for text in ("扫描件", "公告"))
    scan = graph.add_node("document", {"content": only, "cover": shared})
    graph.add_node("document", {"content": shared})
    freed = graph.erase(scan.id, "asked for")
    assert freed.blobs == 1
    assert not home.blobs.has(only["$cid"])
    assert home.blobs.has(shared["$cid"])


def test_erasing_twice_does_nothing_more(home: Home, graph: StateGraph, person: Node) -> None:
    graph.erase(person.id, "asked for")
    assert graph.erase(person.id, "asked for again").nodes == 0
    assert len(StateGraph.of_system(home.engine, "_control").nodes(type="erasure")) == 1


def test_what_can_not_be_erased_is_refused_and_kept(home: Home, graph: StateGraph, person: Node) -> None:
    fork = graph.fork("分支")
    for session, id in ((graph, "01ARZ3NDEKTSV4RRFFQ69G5FAV"), (graph, "no id"), (fork, person.id)):
        with pytest.raises(NodeUnknown) as caught:
            session.erase(id, "asked for")
        assert caught.value.facts["node"] == id
    with pytest.raises(NodeUnknown, match=graph.session_id):
        fork.erase(person.id, "asked for")
    with pytest.raises(InvalidNode):
        graph.erase(person.id, "")
    move = home.engine
    graph.rollback(why="so that _control has a node")
    (note,) = StateGraph.of_system(move, "_control").nodes(type="move", limit=1)
    with pytest.raises(InvalidSessionId):
        StateGraph.of_system(move, "_control").erase(note.id, "asked for")
    assert fork.node(person.id).data == {"number": NUMBER}


def test_an_agent_erases_what_it_may_change(graph: StateGraph) -> None:
    mine = graph.add_node("person", {"number": "1"}, permissions={"write": ["desk"]})
    other = graph.add_node("person", {"number": "2"}, permissions={"write": ["boss"]})
    desk = graph.as_agent("desk")
    assert desk.erase(mine.id, "asked for").nodes == 1
    with pytest.raises(PermissionRefused, match="boss"):
        desk.erase(other.id, "asked for")
    assert graph.node(other.id).data == {"number": "2"}


def test_an_export_brings_the_gap_and_not_the_data(home: Home, graph: StateGraph, person: Node, tmp_path: Path) -> None:
    graph.erase(person.id, "asked for")
    path = tmp_path / "export.jsonl"
    with path.open("wb") as file:
        graph.backend.export_session(graph.session_id, file)
    assert NUMBER not in path.read_text("utf-8")
    other = open_memory()
    StateGraph("x", engine=other.engine).backend.import_session(path)
    brought = StateGraph(graph.session_id, engine=other.engine)
    assert brought.version == graph.version
    assert brought.verify().ok, brought.verify().problems
    with pytest.raises(NodeUnknown, match="erased"):
        brought.node(person.id)


def test_an_erasure_survives_reopening(homes: Callable[..., Home], graph: StateGraph, home: Home, person: Node) -> None:
    graph.erase(person.id, "asked for")
    if home.path is not None:
        home.close()
        graph = StateGraph(graph.session_id, engine=homes().engine)
    assert graph.verify().ok
    with pytest.raises(NodeUnknown, match="erased"):
        graph.node(person.id)


def test_data_that_is_gone_without_an_erasure_is_found(home: Home, graph: StateGraph, person: Node) -> None:
    """A row cut down to its place is no stub that anybody made."""
    key = next(
        key for key, value in home.engine.store.scan(b"", b"\xff") if NUMBER.encode() in value and key[:1] == b"N"
    )
    row = home.engine.store.get(key)
    assert row is not None
    length = len(row) - len(row[40:])
    home.engine.store.write([(key, bytes(16) + row[16:length])])
    found = graph.verify()
    assert not found.ok
    assert any(person.id in problem for problem in found.problems)
