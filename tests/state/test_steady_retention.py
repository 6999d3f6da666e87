"""Retention while others write: it keeps up, survives what goes wrong in one session, and cries no damage."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from agent_infra.state import Home, Janitor, Retention, StateGraph, collect_all
from agent_infra.state.reading import verify as verifying


def test_what_is_written_meanwhile_keeps_no_pass_from_collecting(graph: StateGraph) -> None:
    freed = 0
    for number in range(8):
        for turn in range(30):
            graph.add_node("note", {"n": number, "turn": turn}, key="k")
        freed += graph.gc(keep_last=1, limit=20).nodes
    assert freed >= 100, "each pass frees about its limit, however much is written between two"


@pytest.mark.parametrize("size", [1000, 100_000])
def test_content_that_no_step_ever_referred_to_goes(
    home: Home, graph: StateGraph, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    graph.add_node("note", {})
    forgotten = home.blobs.put(b"x" * size, "text/plain")
    used = home.blobs.put(b"y" * size, "text/plain")
    graph.add_node("note", {"file": used})
    assert graph.gc(keep_last=1).blobs == 0, "its step may still come"
    monkeypatch.setattr("agent_infra.state.blobs.FRESH", 0.0)
    assert graph.gc(keep_last=1).blobs == 1
    assert (home.blobs.has(str(forgotten["$cid"])), home.blobs.has(str(used["$cid"]))) == (False, True)


def failing(home: Home, session: str, error: Exception) -> Any:
    really = home.engine.collect

    def collect(name: str, *rest: Any) -> Any:
        if name == session:
            raise error
        return really(name, *rest)

    return collect


@pytest.mark.parametrize("error", [OSError("read-only file system"), RuntimeError("?")], ids=str)
def test_what_goes_wrong_in_one_session_stops_no_other(
    home: Home, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    for name in ("甲", "乙", "丙"):
        graph = StateGraph(name, engine=home.engine)
        for n in range(3):
            graph.add_node("note", {"n": n}, key="k")
    monkeypatch.setattr(home.engine, "collect", failing(home, "乙", error))
    if isinstance(error, OSError):
        assert collect_all(home.engine, Retention(keep_last=1), limit=100, timeout=1).nodes == 4
    janitor = Janitor(home.engine, Retention(keep_last=1), 0.01)
    janitor.start()
    time.sleep(0.1)
    assert "agent-infra-retention" in [thread.name for thread in threading.enumerate()]
    janitor.stop()


def test_what_is_erased_while_it_is_verified_is_no_damage(graph: StateGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    node = graph.add_node("note", {"secret": "张三"}, key="k")
    graph.add_node("other", {})
    owner = next(each for each in vars(verifying).values() if isinstance(each, type) and "_rows" in vars(each))
    really = owner._rows
    erased: list[str] = []

    def rows(self: Any, *rest: Any) -> Any:
        found = list(really(self, *rest))
        if not erased and any("key row" in what for _, what in found):
            erased.append(node.id)
            graph.erase(node.id, why="asked")
        return found

    monkeypatch.setattr(owner, "_rows", rows)
    checked = graph.verify()
    assert erased
    assert checked.ok, checked.problems


def test_a_key_that_was_often_superseded_is_found_at_its_newest(graph: StateGraph) -> None:
    for n in range(50):
        graph.add_node("note", {"n": n}, key="热")
    assert [node.data["n"] for node in graph.nodes(key="热")] == [49]
    assert [node.data["n"] for node in graph.nodes(type="note", limit=1)] == [49]
    assert len(graph.nodes(key="热", lifecycle=None)) == 50
    with graph.step() as step:
        step.remove(graph.latest("热").id, "weg")
    assert graph.nodes(key="热") == []
