"""A graph does the same whether it is the owner's own or goes through the owner's socket."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import math
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_infra import Infra, StateGraph, errors
from agent_infra.server import RemoteBackend, RemoteSchemas
from agent_infra.server.remote import RemoteReader, RemoteWriter
from agent_infra.state import Change, LocalBackend, Page, SchemaBroker
from agent_infra.state.local import LocalReader, LocalWriter

WEATHER = {"type": "object", "properties": {"degrees": {"type": "number"}}, "required": ["degrees"]}


def forecast(graph: StateGraph) -> dict[str, str]:
    """A small causal story in two steps; the ids of its nodes."""
    with graph.step() as step:
        intent = step.add_node("user_intent", {"query": "北京的天气?"}, ttl=3600)
        call = step.add_node("call_note", {"n": 1}, tool="weather_api", key="call/1")
        step.add_edge(intent.id, call.id, "triggers")
    with graph.step(agent="executor") as step:
        answer = step.add_node("answer", {"degrees": 21.5, "raw": [1, None, {"城市": "北京"}]}, key="answer")
        step.add_edge(call.id, answer.id, "causes")
        step.refer("ticket", "T-8841")
    return {"intent": intent.id, "call": call.id, "answer": answer.id}


# -- writing ---------------------------------------------------------------------------------------


def test_a_node_has_its_final_id_at_once_and_everything_else_after_its_step(graph: StateGraph) -> None:
    with graph.step() as step:
        node = step.add_node("user_intent", {"query": "北京"}, key="wish", ttl=3600, labels=("personal",))
        given = node.id
    assert node == graph.node(given) == graph.latest("wish")
    assert (node.session, node.step, node.owner, node.ttl) == ("天气_001", 1, "planner", 3600)
    assert step.version == graph.version


def test_a_schemas_own_ttl_and_version_come_with_the_node(infra: Infra, graph: StateGraph) -> None:
    schema = infra.schemas.register("forecast", WEATHER | {"x-ttl": 1800})
    node = graph.add_node("forecast", {"degrees": 3})
    assert (node.ttl, node.schema) == (1800, schema.stamp)
    assert node == graph.node(node.id)


def test_an_exception_inside_a_step_writes_nothing(graph: StateGraph) -> None:
    forecast(graph)
    before = graph.version
    with pytest.raises(ZeroDivisionError), graph.step() as step:
        step.add_node("answer", {"degrees": 1})
        raise ZeroDivisionError
    assert graph.version == before


@pytest.mark.parametrize(
    ("add", "error"),
    [
        (lambda step: step.add_node("forecast", {"city": "北京"}), errors.SchemaMismatch),
        (lambda step: step.add_node("note", {"x": math.nan}), errors.NotJson),
        (lambda step: step.add_node("note", {"x": {1, 2}}), errors.NotJson),
        (lambda step: step.add_node("note", [1, 2]), errors.InvalidNode),
        (lambda step: step.add_node("", {}), errors.InvalidNode),
        (lambda step: step.add_node("note", {}, ttl=-1), errors.InvalidNode),
        (lambda step: step.add_node("note", {}, ttl=math.inf), errors.InvalidNode),
        (lambda step: step.add_edge("01ARZ3NDEKTSV4RRFFQ69G5FAV", "nothing", "causes"), errors.NodeUnknown),
        (lambda step: step.add_edge("a", "b", "likes"), errors.InvalidNode),
        (lambda step: step.remove("01ARZ3NDEKTSV4RRFFQ69G5FAV", "why not"), errors.NodeUnknown),
        (lambda step: step.refer("", "x"), errors.InvalidNode),
    ],
)
def test_what_is_wrong_in_a_step_is_refused_and_the_whole_step_with_it(
    infra: Infra, graph: StateGraph, add: Any, error: type[errors.AgentInfraError]
) -> None:
    infra.schemas.register("forecast", WEATHER)
    before = graph.version
    with pytest.raises(error), graph.step() as step:
        step.add_node("note", {"good": True})
        add(step)
    assert graph.version == before
    assert graph.nodes() == []


def test_a_mismatch_names_its_path(infra: Infra, graph: StateGraph) -> None:
    infra.schemas.register("forecast", WEATHER)
    with pytest.raises(errors.SchemaMismatch, match="degrees") as caught:
        graph.add_node("forecast", {"degrees": "warm"})
    assert caught.value.facts["path"] == "/degrees"


def test_expect_refuses_a_head_that_moved(graph: StateGraph) -> None:
    graph.add_node("note", {"n": 1})
    seen = graph.version
    with graph.step(expect=seen) as step:
        step.add_node("note", {"n": 2})
    with pytest.raises(errors.VersionConflict) as caught, graph.step(expect=seen) as step:
        step.add_node("note", {"n": 3})
    assert caught.value.facts["head"] == graph.version


def test_expect_notices_a_commit_and_a_rollback_in_between(graph: StateGraph) -> None:
    graph.add_node("note", {"n": 1})
    seen = graph.version
    graph.add_node("note", {"n": 2})
    assert graph.rollback() == seen
    with pytest.raises(errors.VersionConflict, match="rolled back"), graph.step(expect=seen) as step:
        step.add_node("note", {"n": 3})


def test_a_held_session_times_out_and_names_the_holder(owned: Infra, infra: Infra) -> None:
    held = owned.session("held", agent="慢")
    graph = infra.session("held")
    with held.step():
        assert graph.stale
        with pytest.raises(errors.LockTimeout), graph.step(lock_wait_timeout=0.05) as step:
            step.add_node("note", {})
    assert not graph.stale


def test_a_newer_node_supersedes_and_a_removed_one_is_gone(graph: StateGraph) -> None:
    ids = forecast(graph)
    graph.add_node("answer", {"degrees": 22}, key="answer")
    with graph.step() as step:
        step.remove(ids["intent"], "asked to forget")
    assert graph.node(ids["answer"]).lifecycle == "superseded"
    assert graph.node(ids["intent"]).lifecycle == "tombstoned"
    assert [node.data["degrees"] for node in graph.nodes(type="answer")] == [22]
    assert len(graph.nodes(type="answer", lifecycle=None)) == 2


def test_a_lease_guards_its_session(infra: Infra, graph: StateGraph) -> None:
    graph.add_node("note", {})
    with graph.lease(owner="first") as lease:
        with pytest.raises(errors.LeaseHeld, match="first"):
            infra.session("天气_001").lease(owner="second")
        with graph.step(lease=lease) as step:
            step.add_node("note", {"n": 1})
        lease.renew()
    with infra.session("天气_001").lease(owner="second"):
        with pytest.raises(errors.LeaseLost), graph.step(lease=lease) as step:
            step.add_node("note", {"n": 2})
        with pytest.raises(errors.LeaseLost):
            lease.renew()


# -- reading ---------------------------------------------------------------------------------------


def test_reads_answer_alike(graph: StateGraph) -> None:
    ids = forecast(graph)
    call, answer = graph.node(ids["call"]), graph.node(ids["answer"])
    assert graph.nodes(type="answer") == graph.nodes(key="answer") == graph.nodes(owner="executor") == [answer]
    assert graph.nodes(tool="weather_api") == [call]
    assert graph.nodes(where="node.data.degrees > 21.0") == [answer]
    assert graph.nodes(since=answer.created_at) == [answer]
    assert graph.latest("call/1") == call
    assert graph.latest("nothing") is None
    assert {(edge.source, edge.target, edge.type) for edge in graph.edges(call.id)} == {
        (ids["intent"], ids["call"], "triggers"),
        (ids["call"], ids["answer"], "causes"),
    }
    assert graph.edges("nothing") == []
    assert graph.caused_by("weather_api", within=300) == [answer]
    assert [node.id for node in graph.ancestors(answer.id)] == [ids["call"], ids["intent"]]
    assert graph.ancestors(answer.id, edges=["causes"], depth=1) == [call]
    assert graph.ancestors(answer.id, edges=[]) == []
    assert [node.id for node in graph.descendants(ids["intent"], depth=1)] == [ids["call"]]
    assert [node.id for node in graph.path(ids["intent"], answer.id)] == list(ids.values())


def test_unknown_names_are_told_alike(graph: StateGraph) -> None:
    forecast(graph)
    for ask, error in (
        (lambda: graph.node("../../head?x#y"), errors.NodeUnknown),
        (lambda: graph.node(""), errors.NodeUnknown),
        (lambda: graph.ancestors("x"), errors.NodeUnknown),
        (lambda: graph.at("天气_001.9.0123456789abcdef"), errors.VersionUnknown),
        (lambda: graph.at("what"), errors.VersionUnknown),
        (lambda: graph.nodes(where="node.data."), errors.ExpressionError),
        (lambda: graph.nodes(limit=0), errors.InvalidNode),
        (lambda: graph.nodes(cursor="!"), errors.InvalidNode),
    ):
        with pytest.raises(error):
            ask()


def test_a_listing_goes_on_where_it_was_cut(graph: StateGraph) -> None:
    for n in range(7):
        graph.add_node("note", {"n": n})
    found: list[int] = []
    page = graph.nodes(type="note", limit=3)
    while True:
        assert isinstance(page, Page)
        found += [node.data["n"] for node in page]
        if page.cursor is None:
            break
        page = graph.nodes(type="note", limit=3, cursor=page.cursor)
    assert found == [6, 5, 4, 3, 2, 1, 0]


def test_explain_names_the_index(graph: StateGraph) -> None:
    forecast(graph)
    explanation = graph.nodes(tool="weather_api", explain=True)
    assert not isinstance(explanation, Page)
    assert (explanation.index, explanation.rows) == ("tool", 1)


@pytest.mark.parametrize("name", ["a/b", ".", "..", "?x=1&y=2", "100%", "a b+c", "\u2028", "“”", "#"])
def test_keys_of_any_spelling(graph: StateGraph, name: str) -> None:
    node = graph.add_node("note", {"name": name}, key=name)
    assert graph.latest(name) == node
    assert graph.nodes(key=name) == [node]


# -- time travel -----------------------------------------------------------------------------------


def test_the_past_is_readable_and_read_only(graph: StateGraph) -> None:
    ids = forecast(graph)
    first = graph.history()[0]
    assert [version.step_count for version in graph.history()] == [1, 2]
    assert first.agent == "planner"
    past = graph.at(first.id)
    assert past.version == first.id
    assert past.latest("answer") is None
    assert not past.stale
    assert past.at(graph.version).latest("answer") is not None
    with pytest.raises(errors.ReadOnlyView):
        past.add_node("note", {})
    late = graph.at(first.id, as_of=graph.node(ids["intent"]).created_at + timedelta(hours=2))
    assert late.node(ids["intent"]).lifecycle == "expired"


def test_rollback_diff_fork_and_verify(infra: Infra, graph: StateGraph) -> None:
    ids = forecast(graph)
    first, second = (version.id for version in graph.history())
    difference = graph.diff(first, second)
    assert [node.id for node in difference.added] == [ids["answer"]]
    fork = graph.fork("分支", at=first)
    assert (fork.session_id, fork.version) == ("分支", first)
    assert graph.at(first).fork("分支二").version == first
    with pytest.raises(errors.SessionExists):
        graph.fork("分支")
    assert graph.rollback(to=first, why="another way") == first
    assert graph.version == first
    assert graph.at(second).latest("answer") is not None
    with pytest.raises(errors.VersionUnknown):
        graph.rollback(steps=5)
    assert graph.verify().ok
    assert infra.sessions() == sorted(["天气_001", "分支", "分支二"])
    assert infra.sessions(where="session.id.startsWith('分')") == sorted(["分支", "分支二"])


def test_pins_keep_what_retention_would_remove(graph: StateGraph) -> None:
    for n in range(4):
        graph.add_node("note", {"n": n}, key="note")
    first, second = (version.id for version in graph.history()[:2])
    graph.pin(first, owner="test", why="an example")
    assert graph.gc(keep_last=1).versions == 2
    assert graph.at(first).latest("note") is not None
    with pytest.raises(errors.VersionCollected):
        graph.at(second)
    assert not graph.unpin(first, owner="another")
    assert graph.unpin(first, owner="test")
    assert graph.verify().ok


def test_data_is_erased(infra: Infra, graph: StateGraph) -> None:
    ids = forecast(graph)
    assert graph.erase(ids["answer"], "她的请求").nodes == 1
    assert graph.erase(ids["answer"], "她的请求").nodes == 0
    with pytest.raises(errors.NodeUnknown, match="erased"):
        graph.node(ids["answer"])
    with pytest.raises(errors.NodeUnknown):
        graph.erase("01ARZ3NDEKTSV4RRFFQ69G5FAV", "她的请求")
    closed = graph.add_node("note", {}, permissions={"write": ["boss"]})
    with pytest.raises(errors.PermissionRefused):
        graph.as_agent("executor").erase(closed.id, "她的请求")
    assert graph.verify().ok


def test_nodes_are_found_by_schema_version(infra: Infra, graph: StateGraph) -> None:
    infra.schemas.register("forecast", WEATHER, tag="一")
    old = graph.add_node("forecast", {"degrees": 3})
    infra.schemas.register("forecast", WEATHER | {"title": "two"}, tag="二")
    new = graph.add_node("forecast", {"degrees": 4})
    assert [node.id for node in graph.nodes(schema="forecast")] == [new.id, old.id]
    assert [node.id for node in graph.nodes(schema="forecast@一")] == [old.id]
    assert [node.id for node in graph.nodes(schema="forecast@2")] == [new.id]


def test_an_agent_sees_and_changes_what_it_may(graph: StateGraph) -> None:
    secret = graph.add_node("note", {"n": 1}, key="plan", permissions={"read": ["role:lead"], "write": ["planner"]})
    other, lead = graph.as_agent("executor"), graph.as_agent("executor", roles=["lead"])
    assert other.nodes() == []
    with pytest.raises(errors.PermissionRefused):
        other.node(secret.id)
    assert lead.node(secret.id) == secret
    with pytest.raises(errors.PermissionRefused):
        lead.add_node("note", {"n": 2}, key="plan")
    assert graph.as_agent("planner").add_node("note", {"n": 2}, key="plan").owner == "planner"


def test_readers_and_writers_of_an_older_schema(infra: Infra, graph: StateGraph) -> None:
    infra.schemas.register("forecast", WEATHER, tag="1.8")
    newer = {"type": "object", "required": ["degrees", "confidence"]}
    infra.schemas.register("forecast", newer, compatibility="NONE", tag="2.1")
    infra.schemas.migrate("forecast", "1.8", "2.1", {"set": {"confidence": 0.5}})
    infra.schemas.migrate("forecast", "2.1", "1.8", {"drop": ["confidence"]})
    old = graph.with_schemas({"forecast": "1.8"})
    node = old.add_node("forecast", {"degrees": 3.5})
    assert graph.node(node.id).data == {"degrees": 3.5, "confidence": 0.5}
    assert old.node(node.id).data == {"degrees": 3.5}


# -- watching --------------------------------------------------------------------------------------


def test_a_watch_tells_each_move_once_and_in_order(graph: StateGraph) -> None:
    forecast(graph)
    graph.rollback()
    graph.add_node("note", {})
    changes = list(graph.watch(since=0, timeout=0.1))
    assert [change.kind for change in changes] == ["step", "step", "rollback", "step"]
    assert [change.seq for change in changes] == [1, 2, 3, 4]
    assert changes[-1].version == graph.version
    assert list(graph.watch(since=2, timeout=0.1)) == changes[2:]
    assert list(graph.watch(timeout=0.05)) == []


def test_a_watch_wakes_for_what_comes_later(owned: Infra, graph: StateGraph) -> None:
    seen = itertools.islice(graph.watch(since=0, timeout=30), 3)
    writer = owned.session(graph.session_id)
    found: list[Change] = []
    for n in range(3):
        writer.add_node("note", {"n": n})
        found.append(next(seen))
    assert [change.seq for change in found] == [1, 2, 3]


def test_a_watch_in_a_running_loop(owned: Infra, graph: StateGraph) -> None:
    async def follow() -> list[int]:
        found: list[int] = []
        async for change in graph.awatch(since=0, timeout=0.5):
            found.append(change.seq)
            if change.seq < 5:
                await asyncio.to_thread(owned.session(graph.session_id).add_node, "note", {"n": change.seq})
        return found

    graph.add_node("note", {})
    assert asyncio.run(follow()) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (LocalBackend, RemoteBackend),
        (LocalReader, RemoteReader),
        (LocalWriter, RemoteWriter),
        (SchemaBroker, RemoteSchemas),
    ],
)
def test_both_sides_take_the_same_arguments(here: type, there: type) -> None:
    owners_own = {
        "engine",
        "under",
        "schema_for",
        "merge_rule",
        "bring",
        "leads",
        "check_chain",
        "draft",
        "kept_draft",
        "migrations",
        "adopting",
    }
    for name, method in inspect.getmembers(here, inspect.isfunction):
        if not name.startswith("_") and not (here is SchemaBroker and name in owners_own):
            assert (
                str(inspect.signature(method)).split("->")[0]
                == str(inspect.signature(getattr(there, name))).split("->")[0]
                or name == "migrate"
            ), name


# -- content, schemas, evidence --------------------------------------------------------------------


def test_content_goes_in_and_comes_out(infra: Infra, tmp_path: Path) -> None:
    large = bytes(range(256)) * 4096
    file = tmp_path / "报告.pdf"
    file.write_bytes(large)
    small = infra.blobs.put(b"", "text/plain")
    stored = infra.blobs.put(file, "application/pdf")
    value = infra.blobs.put_value({"城市": "北京", "page": stored})
    assert stored == infra.blobs.put(large, "application/pdf")
    assert infra.blobs.get(str(small["$cid"])) == b""
    assert infra.blobs.get(str(stored["$cid"])) == large
    assert b"".join(infra.blobs.stream(str(stored["$cid"]))) == large
    assert infra.blobs.get_value(str(value["$cid"])) == {"城市": "北京", "page": stored}
    assert infra.blobs.has(str(stored["$cid"]))
    assert not infra.blobs.has("bafkreif2pall7dybz7vecqka3zo24irdwabwdi4wc55jznaq75q7eaavvu")
    for ask in (infra.blobs.get, infra.blobs.raw, infra.evidence.verify):
        with pytest.raises(errors.EvidenceUnknown):
            ask("bafkreif2pall7dybz7vecqka3zo24irdwabwdi4wc55jznaq75q7eaavvu")
    with pytest.raises(errors.FileMissing):
        infra.blobs.put(tmp_path / "nothing", "text/plain")


def test_evidence_is_read_and_verified(owned: Infra, infra: Infra) -> None:
    cid = owned.evidence.write({"kind": "call", "output": {"城市": "北京"}})["$cid"]
    assert infra.evidence.get(cid)["kind"] == "call"
    assert infra.evidence.verify(cid).ok
    assert infra.evidence.output(cid) == {"城市": "北京"}


def test_schemas_are_registered_listed_and_compared(infra: Infra) -> None:
    first = infra.schemas.register("forecast", WEATHER, tag="1")
    second = infra.schemas.register("forecast", WEATHER | {"title": "天气"}, tag="v2")
    assert infra.schemas.get("forecast").stamp == second.stamp
    assert infra.schemas.get("forecast", "1").stamp == infra.schemas.get("forecast", 1).stamp == first.stamp
    assert [schema.version for schema in infra.schemas.list("forecast")] == [1, 2]
    assert "forecast" in infra.schemas.names()
    assert "title" in str(infra.schemas.diff("forecast", 1, "v2"))
    assert infra.schemas.deprecate("forecast", 1, "old").deprecated == "old"
    assert first.problems({}) != []
    with pytest.raises(errors.SchemaUnknown):
        infra.schemas.get("forecast", 9)
    with pytest.raises(errors.SchemaInvalid):
        infra.schemas.register("bad", {"type": "strin"})
    with pytest.raises(errors.SchemaIncompatible):
        infra.schemas.register("forecast", {"type": "object", "required": ["new"]})


def test_a_closed_infra_says_so(infra: Infra) -> None:
    graph = infra.session("天气_001")
    infra.close()
    with pytest.raises(errors.HomeClosed):
        infra.session("天气_001")
    with pytest.raises(errors.HomeClosed):
        graph.add_node("note", {})
