"""The chain of bundles: it reaches every bundle of its version, forks and rolls back with the graph, and tells which one
was changed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_infra import ActionResult, Infra, StateGraph, background
from agent_infra.config import Project
from agent_infra.state.rows import keys

QUIET = "name: {name}\ntool: answer\nparams: {{number: {{open: {{}}}}}}\neffects: none\n"


@pytest.fixture
def answering(infra: Infra) -> Infra:
    register(infra)
    return infra


def register(infra: Infra) -> None:
    @infra.tools.tool(effects="none")
    async def answer(number: int) -> dict[str, int]:
        """Answer; a negative number fails, a large one takes longer."""
        if number < 0:
            raise ValueError("负数")
        await asyncio.sleep(number / 1000)
        return {"double": number * 2}


def ask(infra: Infra, graph: StateGraph, number: int = 0) -> ActionResult:
    return infra.actions.execute({"tool": "answer", "params": {"number": number}}, graph)


def ask_at_once(infra: Infra, graph: StateGraph, numbers: list[int]) -> list[ActionResult]:
    async def all_of_them() -> list[ActionResult]:
        specs = [{"tool": "answer", "params": {"number": number}} for number in numbers]
        return list(await asyncio.gather(*(infra.actions.aexecute(spec, graph) for spec in specs)))

    return background.wait_for(all_of_them(), twin="gather")


def before(infra: Infra, cid: str) -> list[str]:
    """The CIDs that a bundle follows."""
    return [each["cid"] for each in infra.evidence.get(cid)["previous"]]


def chain(infra: Infra, cid: str) -> set[str]:
    """A bundle and all that it follows."""
    found, waiting = set[str](), [cid]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting += before(infra, each)
    return found


def told(graph: StateGraph) -> set[str]:
    """The bundles that a graph's receipts refer to."""
    return {receipt.data["evidence"]["$cid"] for receipt in graph.nodes(type="receipt")}


def tamper(infra: Infra, cid: str, position: int = 10) -> None:
    block = bytearray(infra.blobs.raw(cid))
    block[position] ^= 1
    infra.engine.store.write([(keys.block(cid), bytes(block))])


# -- what follows what -----------------------------------------------------------------------------


def test_each_call_follows_the_one_before(answering: Infra, graph: StateGraph) -> None:
    results = [ask(answering, graph, number) for number in (1, 2, -1, 3)]
    cids = [result.evidence_cid for result in results]
    assert [before(answering, cid) for cid in cids] == [[], [cids[0]], [cids[1]], [cids[2]]]
    previous = answering.evidence.get(cids[1])["previous"]
    assert previous == [{"cid": cids[0], "call": results[0].event_id}]


def test_a_refusal_is_part_of_the_chain(answering: Infra, graph: StateGraph) -> None:
    answering.actions.load("name: never\ntool: answer\nparams: {number: 1}\npreconditions: ['1 > 2']\neffects: none\n")
    first = ask(answering, graph)
    refused = answering.actions.execute("never", graph)
    last = ask(answering, graph)
    assert refused.status == "refused"
    assert before(answering, refused.evidence_cid) == [first.evidence_cid]
    assert before(answering, last.evidence_cid) == [refused.evidence_cid]


def test_parallel_calls_are_all_followed_by_the_next(answering: Infra, graph: StateGraph) -> None:
    first = ask(answering, graph)
    some = ask_at_once(answering, graph, [5, 1, -3, 9])
    after = ask(answering, graph)
    for result in some:
        assert before(answering, result.evidence_cid) == [first.evidence_cid]
    assert set(before(answering, after.evidence_cid)) == {result.evidence_cid for result in some}


def test_other_nodes_in_between_do_not_matter(answering: Infra, graph: StateGraph) -> None:
    first = ask(answering, graph)
    graph.add_node("note", {"text": "别的"})
    graph.add_node("receipt", {"call": "another's", "status": "unknown", "conditions": []})
    assert before(answering, ask(answering, graph).evidence_cid) == [first.evidence_cid]


def test_a_fork_follows_its_parent_and_goes_its_own_way(answering: Infra, graph: StateGraph) -> None:
    first = ask(answering, graph)
    fork = graph.fork("分支")
    here, there = ask(answering, graph, 1), ask(answering, fork, 2)
    assert before(answering, here.evidence_cid) == before(answering, there.evidence_cid) == [first.evidence_cid]
    assert before(answering, ask(answering, fork).evidence_cid) == [there.evidence_cid]


def test_what_was_rolled_back_is_not_followed(answering: Infra, graph: StateGraph) -> None:
    first = ask(answering, graph)
    version = graph.version
    abandoned = ask(answering, graph)
    graph.rollback(to=version)
    again = ask(answering, graph)
    assert before(answering, again.evidence_cid) == [first.evidence_cid]
    assert answering.evidence.verify(abandoned.evidence_cid).records == 2


def test_another_process_goes_on_with_the_chain(tmp_path: Path) -> None:
    cids: list[str] = []
    for _ in range(3):
        with Infra.open(tmp_path / "家", project=Project(root=tmp_path), durability="os") as infra:
            register(infra)
            some = ask_at_once(infra, infra.session("会话"), [1, 2])
            followed = before(infra, some[0].evidence_cid)
            assert set(followed) <= set(cids[-2:])  # both, unless the second began after the first had ended
            assert bool(followed) == bool(cids)
            assert chain(infra, some[0].evidence_cid) >= set(cids)
            cids += [result.evidence_cid for result in some]


MOVES = st.lists(st.sampled_from(["ask", "fail", "together", "note", "fork", "back", "other"]), max_size=12)


@given(moves=MOVES)
def test_every_bundle_of_a_version_is_reached_from_the_next(moves: list[str], tmp_path_factory: Any) -> None:
    home = tmp_path_factory.mktemp("home")
    with Infra.open(home, project=Project(root=home), durability="os") as infra:
        register(infra)
        graphs = [infra.session("s0")]
        for count, move in enumerate(moves):
            graph = graphs[-1]
            visible = told(graph)
            if move in ("ask", "fail"):
                result = ask(infra, graph, -1 if move == "fail" else 0)
                assert chain(infra, result.evidence_cid) == visible | {result.evidence_cid}
            elif move == "together":
                for result in ask_at_once(infra, graph, [3, 0, 1]):
                    assert chain(infra, result.evidence_cid) >= visible
            elif move == "note":
                graph.add_node("note", {"text": str(count)})
            elif move == "fork":
                graphs.append(graph.fork(f"s{count + 1}"))
            elif move == "back" and graph.history():
                graph.rollback(min(2, len(graph.history())))
            elif move == "other":
                graphs.insert(0, graphs.pop())
        for graph in graphs:
            visible = told(graph)
            last = ask(infra, graph)
            assert chain(infra, last.evidence_cid) == visible | {last.evidence_cid}


# -- what was changed is named ---------------------------------------------------------------------


@pytest.mark.parametrize("broken", range(6))
def test_a_flipped_byte_of_any_record_is_found_from_the_last(answering: Infra, graph: StateGraph, broken: int) -> None:
    results = [ask(answering, graph, number) for number in (0, 1, -1, 2, 0, 0)]
    last = results[-1].evidence_cid
    fine = answering.evidence.verify(last)
    assert (fine.ok, fine.records, fine.broken, fine.ended) == (True, 6, (), ())
    tamper(answering, results[broken].evidence_cid)
    check = answering.evidence.verify(last)
    assert not check.ok
    assert check.broken == (results[broken].event_id if broken < 5 else last,)
    assert results[broken].evidence_cid in check.problems[0]
    assert check.records == 6 - broken, "nothing behind it can be trusted, so nothing behind it is looked at"
    assert answering.evidence.verify(last, chain=False).ok == (broken < 5)


def test_a_changed_output_of_an_earlier_call_names_that_call(answering: Infra, graph: StateGraph) -> None:
    @answering.tools.tool(effects="none")
    def page() -> str:
        """A large page."""
        return "长" * 100_000

    results = [ask(answering, graph), answering.actions.execute("page", graph), ask(answering, graph)]
    output = answering.evidence.get(results[1].evidence_cid)["output"]["$cid"]
    (path,) = [path for path in answering.home.rglob(output) if path.is_file()]
    path.write_bytes(b"x" + path.read_bytes()[1:])
    check = answering.evidence.verify(results[2].evidence_cid)
    assert check.broken == (results[1].event_id,)
    assert output in check.problems[0]
    assert check.records == 3


def test_a_lost_bundle_is_told_from_a_collected_one(answering: Infra, graph: StateGraph) -> None:
    results = [ask(answering, graph) for _ in range(4)]
    last = results[-1].evidence_cid
    for receipt in graph.nodes(type="receipt"):
        if receipt.data["evidence"]["$cid"] == results[0].evidence_cid:
            graph.erase(receipt.id, "个人数据")
    check = answering.evidence.verify(last)
    assert (check.ok, check.records) == (True, 3)
    assert results[0].event_id in check.ended[0]
    answering.engine.store.write([(keys.block(results[1].evidence_cid), None)])
    check = answering.evidence.verify(last)
    assert check.broken == (results[1].event_id,)
    assert "is missing" in check.problems[0]


def test_the_chain_keeps_nothing_alive(answering: Infra, graph: StateGraph) -> None:
    results = [ask(answering, graph, number) for number in range(5)]
    for node in [*graph.nodes(type="call"), *graph.nodes(type="receipt")]:
        if node.id != results[-1].event_id and node.data.get("call") != results[-1].event_id:
            with graph.step() as step:
                step.remove(node.id, "不再需要")
    graph.gc(keep_last=1)
    assert [answering.blobs.has(result.evidence_cid) for result in results] == [False] * 4 + [True]
    check = answering.evidence.verify(results[-1].evidence_cid)
    assert check.ok
    assert check.ended
    environment = answering.evidence.environment(results[-1].evidence_cid)
    assert environment["python"]


def test_a_long_chain_is_followed_as_far_as_asked(answering: Infra, graph: StateGraph) -> None:
    last = [ask(answering, graph) for _ in range(8)][-1].evidence_cid
    check = answering.evidence.verify(last, limit=5)
    assert (check.ok, check.records) == (True, 5)
    assert "not followed beyond 5 bundles" in check.ended[0]


def test_a_session_takes_its_chain_to_another_home(answering: Infra, graph: StateGraph, tmp_path: Path) -> None:
    results = [ask(answering, graph, number) for number in (1, -1, 2)]
    with (tmp_path / "会话.jsonl").open("wb") as file:
        answering.backend.export_session(graph.session_id, file)
    with Infra.open(tmp_path / "另一个", project=Project(root=tmp_path), durability="os") as other:
        other.backend.import_session(tmp_path / "会话.jsonl")
        register(other)
        check = other.evidence.verify(results[-1].evidence_cid)
        assert (check.ok, check.records, check.ended) == (True, 3, ())
        after = ask(other, other.session(graph.session_id))
        assert before(other, after.evidence_cid) == [results[-1].evidence_cid]
