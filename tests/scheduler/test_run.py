"""Running a plan: order, overlap, failure, and progress that lives in the graph."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from agent_infra import Infra, Node, Plan, RunResult, Signal, StateGraph, WouldDeadlock, background
from agent_infra.errors import InvalidSessionId

PATIENCE = 20.0  # seconds until a wait gives up; only a failing test waits that long
CHAIN: dict[str, Any] = {
    "goal": "三步",
    "subgoals": {
        "first": {"action": "note", "with": {"text": "一"}},
        "second": {"action": "join", "with": {"left": "${subgoals.first.result.text}", "right": "二"}},
        "third": {"action": "join", "with": {"left": "${subgoals.second.result.text}", "right": "三"}},
    },
}


def run(infra: Infra, goal: dict[str, Any], graph: StateGraph) -> RunResult:
    return infra.scheduler.execute_gdep(infra.scheduler.compile_gdep(goal, state_graph=graph))


def subgoals(graph: StateGraph) -> dict[str, Node]:
    """The newest node of each subgoal, by name."""
    return {node.data["name"]: node for node in graph.nodes(type="subgoal")}


def statuses(graph: StateGraph) -> dict[str, str]:
    return {name: node.data["status"] for name, node in subgoals(graph).items()}


def within_patience(work: Coroutine[Any, Any, RunResult]) -> RunResult:
    """The result of a run that must end by itself."""
    return asyncio.run(asyncio.wait_for(work, PATIENCE))


# -- order and overlap -----------------------------------------------------------------------------


def test_dependent_subgoals_run_in_order_with_each_others_results(
    infra: Infra, graph: StateGraph, done: list[Any]
) -> None:
    result = run(infra, CHAIN, graph)
    assert result.ok
    assert done == ["一", ("一", "二"), ("一二", "三")]
    assert result.outputs == {"first": {"text": "一"}, "second": {"text": "一二"}, "third": {"text": "一二三"}}
    assert len(result.event_ids) == len(set(result.event_ids)) == 3
    assert all(graph.node(id).type == "call" for id in result.event_ids)
    assert (result.session, result.version) == (graph.session_id, graph.version)
    assert (result.error, result.waiting, result.healed) == (None, (), ())


def test_independent_subgoals_overlap_and_the_dependent_one_comes_after(infra: Infra, graph: StateGraph) -> None:
    barrier = threading.Barrier(2)
    log: list[str] = []

    @infra.tools.tool(effects="none")
    def meet(name: str) -> str:
        """Go on once another one is here, too."""
        barrier.wait(PATIENCE)
        log.append(name)
        return name

    parts = {
        "甲": {"action": "meet", "with": {"name": "甲"}},
        "乙": {"action": "meet", "with": {"name": "乙"}},
        "后一": {"action": "meet", "with": {"name": "后一"}, "after": ["甲", "乙"]},
        "后二": {"action": "meet", "with": {"name": "后二"}, "after": ["甲", "乙"]},
    }
    result = run(infra, {"goal": "并行", "subgoals": parts}, graph)
    assert result.ok, str(result)
    assert set(log[:2]) == {"甲", "乙"}
    assert set(log[2:]) == {"后一", "后二"}


def test_async_tools_overlap_as_well(infra: Infra, graph: StateGraph) -> None:
    here: list[str] = []
    both: asyncio.Event | None = None

    @infra.tools.tool(effects="none")
    async def meet(name: str) -> str:
        """Go on once another one is here, too."""
        nonlocal both
        both = both or asyncio.Event()
        here.append(name)
        if len(here) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), PATIENCE)
        return name

    parts = {name: {"action": "meet", "with": {"name": name}} for name in ("甲", "乙")}
    assert run(infra, {"goal": "并行", "subgoals": parts}, graph).ok


def test_a_slow_part_holds_up_nobody_who_does_not_wait_for_it(infra: Infra, graph: StateGraph, done: list[Any]) -> None:
    last = threading.Event()

    @infra.tools.tool(effects="none")
    def slow() -> bool:
        """Wait until the whole other branch is done."""
        return last.wait(PATIENCE)

    @infra.tools.tool(effects="none")
    def finish(text: str) -> None:
        """The end of the other branch."""
        last.set()

    parts = {
        "slow": {"action": "slow"},
        "a": {"action": "note", "with": {"text": "甲"}},
        "b": {"action": "finish", "with": {"text": "${subgoals.a.result.text}"}},
    }
    assert run(infra, {"goal": "g", "subgoals": parts}, graph).outputs["slow"] is True


def test_parallel_results_are_all_there(infra: Infra, graph: StateGraph) -> None:
    barrier = threading.Barrier(4)

    @infra.tools.tool(effects="none")
    def count(number: int) -> dict[str, int]:
        """Wait for three others."""
        barrier.wait(PATIENCE)
        return {"number": number}

    infra.actions.load(
        "name: count\ntool: count\nparams: {number: {open: {}}}\neffects: none\n"
        'result: {type: api_response, key: "第${params.number}"}\n'
    )
    parts = {f"n{number}": {"action": "count", "with": {"number": number}} for number in range(4)}
    for _ in range(20):
        result = run(infra, {"goal": "数", "subgoals": parts}, graph)
        assert {output["number"] for output in result.outputs.values()} == {0, 1, 2, 3}
        assert {node.data["number"] for node in graph.nodes(type="api_response")} == {0, 1, 2, 3}
    assert graph.verify().ok


# -- progress in the graph -------------------------------------------------------------------------


def test_progress_can_be_read_while_it_is_made(infra: Infra, graph: StateGraph, done: list[Any]) -> None:
    seen: list[Any] = []

    @infra.tools.tool(effects="none")
    def look() -> None:
        """See what the graph says of this very run."""
        (goal,) = graph.nodes(type="goal")
        seen.append((goal.data["status"], statuses(graph)))

    parts = {
        "before": {"action": "note", "with": {"text": "好"}},
        "now": {"action": "look", "after": "before"},
        "later": {"action": "note", "with": {"text": "好"}, "after": "now"},
    }
    run(infra, {"goal": "看", "subgoals": parts}, graph)
    assert seen == [("running", {"before": "succeeded", "now": "running", "later": "pending"})]
    assert statuses(graph) == dict.fromkeys(parts, "succeeded")


def test_the_whole_story_is_nodes_and_edges(infra: Infra, graph: StateGraph, done: list[Any]) -> None:
    result = run(infra, CHAIN, graph)

    def out(node: Node, type: str) -> list[str]:
        return [edge.target for edge in graph.edges(node.id) if edge.type == type and edge.source == node.id]

    goal_nodes = graph.nodes(type="goal", lifecycle=None)
    assert [node.data["status"] for node in reversed(goal_nodes)] == ["running", "succeeded"]
    assert {node.key for node in goal_nodes} == {f"goal/{result.goal_id}"}
    (plan,) = graph.nodes(type="plan")
    assert out(goal_nodes[-1], "triggers") == [plan.id]
    assert [each["name"] for each in plan.data["subgoals"]] == ["first", "second", "third"]
    assert set(plan.data["contracts"]) == {"note", "join"}
    for recorded in plan.data["contracts"].values():
        assert recorded["hash"]
        assert recorded["source"]

    told: dict[str, list[str]] = {}
    for node in reversed(graph.nodes(type="subgoal", lifecycle=None)):
        told.setdefault(node.data["name"], []).append(node.data["status"])
        assert node.key == f"subgoal/{result.goal_id}/{node.data['name']}"
    assert list(told) == ["first", "second", "third"]
    assert all(story == ["pending", "running", "succeeded"] for story in told.values())

    first = {graph.node(id).data["name"]: graph.node(id) for id in out(plan, "triggers")}
    assert set(first) == {"first", "second", "third"}
    assert out(first["third"], "depends_on") == [first["second"].id]
    assert out(first["first"], "depends_on") == []
    for call_id, name in zip(result.event_ids, told, strict=True):
        call = graph.node(call_id)
        assert (call.data["goal_id"], call.data["subgoal"]) == (result.goal_id, name)
        triggered_by = [
            edge.source for edge in graph.edges(call_id) if edge.type == "triggers" and edge.target == call_id
        ]
        assert {graph.node(id).data["name"] for id in triggered_by} == {name}
        assert subgoals(graph)[name].data["call"] == call_id


def test_running_and_intent_are_one_step_and_so_are_receipt_and_end(
    infra: Infra, graph: StateGraph, done: list[Any]
) -> None:
    run(infra, CHAIN, graph)
    steps = [sorted(graph.node(id).type for id in version.nodes) for version in graph.history()]
    assert steps == [
        ["goal", "plan", "subgoal", "subgoal", "subgoal"],
        *[["call", "subgoal"], ["receipt", "subgoal"]] * 3,
        ["goal"],
    ]


def test_each_execution_is_a_new_request(infra: Infra, graph: StateGraph, done: list[Any]) -> None:
    plan = infra.scheduler.compile_gdep(CHAIN, state_graph=graph)
    first, second = infra.scheduler.execute_gdep(plan), infra.scheduler.execute_gdep(plan)
    assert first.ok
    assert second.ok
    assert len(done) == 6
    assert first.goal_id != second.goal_id
    assert not set(first.event_ids) & set(second.event_ids)
    keys = [graph.node(id).data["idempotency_key"] for id in (*first.event_ids, *second.event_ids)]
    assert len(set(keys)) == 6
    assert infra.resume() == []
    assert len(graph.nodes(type="goal")) == 2


def test_two_runs_of_one_session_at_once_keep_apart(infra: Infra, graph: StateGraph, done: list[Any]) -> None:
    plan = infra.scheduler.compile_gdep(CHAIN, state_graph=graph)

    async def both() -> list[RunResult]:
        return await asyncio.gather(*(infra.scheduler.aexecute_gdep(plan) for _ in range(2)))

    first, second = asyncio.run(both())
    assert first.outputs == second.outputs
    assert not set(first.event_ids) & set(second.event_ids)
    assert len(done) == 6
    assert graph.verify().ok


def test_a_run_takes_a_session_of_its_own_unless_one_is_named(infra: Infra, done: list[Any]) -> None:
    first, second = infra.run(CHAIN), infra.run(CHAIN)
    named = infra.run(CHAIN, session="有名字", agent="planner")
    assert len({first.session, second.session, named.session}) == 3
    assert set(infra.sessions()) == {first.session, second.session, named.session}
    assert {node.owner for node in infra.session("有名字").nodes()} == {"planner"}
    with pytest.raises(InvalidSessionId):
        infra.run(CHAIN, session="_control")


# -- failure ---------------------------------------------------------------------------------------


def test_a_failure_skips_what_waits_for_it_and_names_itself(infra: Infra, graph: StateGraph, done: list[Any]) -> None:
    parts = {
        "ok": {"action": "note", "with": {"text": "好"}},
        "坏": {"action": "fail", "with": {"reason": "文件损坏"}},
        "next": {"action": "note", "with": {"text": "不会"}, "after": ["ok", "坏"]},
        "last": {"action": "note", "with": {"text": "不会"}, "after": "next"},
        "other": {"action": "note", "with": {"text": "也好"}, "after": "ok"},
    }
    plan = infra.scheduler.compile_gdep({"goal": "g", "subgoals": parts}, state_graph=graph)
    result = within_patience(infra.scheduler.aexecute_gdep(plan))

    assert not result.ok
    assert result.error is not None
    assert (result.error["subgoal"], result.error["code"]) == ("坏", "ToolFailed")
    for told in ("坏", "文件损坏", "ToolFailed"):
        assert told in str(result)
    assert sorted(done) == sorted(["好", "文件损坏", "也好"])
    assert result.outputs == {"ok": {"text": "好"}, "other": {"text": "也好"}}
    assert statuses(graph) == {
        "ok": "succeeded",
        "坏": "failed",
        "next": "skipped",
        "last": "skipped",
        "other": "succeeded",
    }
    (goal,) = graph.nodes(type="goal")
    assert goal.data["status"] == "failed"
    assert goal.data["error"]["subgoal"] == "坏"
    assert subgoals(graph)["last"].data["error"]["subgoal"] == "坏"
    assert infra.resume() == [], "a run that failed has ended"


def test_a_refusal_fails_the_run_with_the_condition(infra: Infra, graph: StateGraph, done: list[Any]) -> None:
    condition = "state.nodes.user_intent.data.confidence > 0.8"
    infra.actions.load(f'name: say\ntool: note\nparams: {{text: 好}}\neffects: none\npreconditions: ["{condition}"]\n')
    graph.add_node("user_intent", {"query": "北京明天天气", "confidence": 0.5})
    result = run(infra, {"goal": "g", "subgoals": {"说": {"action": "say"}}}, graph)
    assert not result.ok
    for told in ("说", condition, "0.5"):
        assert told in str(result)
    assert done == []
    (receipt,) = graph.nodes(type="receipt")
    assert receipt.data["status"] == "refused"
    assert statuses(graph) == {"说": "failed"}
    assert result.event_ids == (receipt.data["call"],)


def test_a_reference_without_value_fails_by_name_and_never_fills_in(
    infra: Infra, graph: StateGraph, done: list[Any]
) -> None:
    parts = {
        "a": {"action": "note", "with": {"text": "好"}},
        "b": {"action": "note", "with": {"text": "${subgoals.a.result.没有}"}},
        "c": {"action": "note", "with": {"text": "不会"}, "after": "b"},
    }
    parts["b"]["with"] = {"text": '${subgoals.a.result["没有"]}'}
    result = run(infra, {"goal": "g", "subgoals": parts}, graph)
    assert not result.ok
    assert result.error is not None
    assert result.error["subgoal"] == "b"
    assert "没有" in str(result)
    assert done == ["好"]
    assert statuses(graph) == {"a": "succeeded", "b": "failed", "c": "skipped"}


def test_a_failed_upstream_beside_a_skipped_sibling_ends(infra: Infra, graph: StateGraph, done: list[Any]) -> None:
    parts = {
        "bad": {"action": "fail", "with": {"reason": "坏"}},
        "left": {"action": "note", "with": {"text": "x"}, "after": "bad"},
        "right": {"action": "note", "with": {"text": "x"}, "after": "bad"},
        "joined": {"action": "note", "with": {"text": "x"}, "after": ["left", "right"]},
    }
    plan = infra.scheduler.compile_gdep({"goal": "g", "subgoals": parts}, state_graph=graph)
    assert not within_patience(infra.scheduler.aexecute_gdep(plan)).ok
    assert statuses(graph) == {"bad": "failed", "left": "skipped", "right": "skipped", "joined": "skipped"}


# -- how a result prints ---------------------------------------------------------------------------


def test_a_run_of_one_prints_as_its_output(infra: Infra, graph: StateGraph, done: list[Any]) -> None:
    result = run(infra, {"goal": "g", "subgoals": {"一": {"action": "note", "with": {"text": "你好"}}}}, graph)
    assert str(result) == '{"text": "你好"}'


def test_a_run_of_several_prints_as_their_outputs(infra: Infra, graph: StateGraph, done: list[Any]) -> None:
    result = run(infra, CHAIN, graph)
    assert json.loads(str(result)) == result.outputs
    assert "一二三" in str(result)


# -- rewards and loops -----------------------------------------------------------------------------


def test_a_result_can_be_rewarded(infra: Infra, graph: StateGraph, done: list[Any]) -> None:
    rules = infra.project.root / "rules.yaml"
    rules.write_text("version: 1\nsources:\n  满意: {range: [-1, 1], weight: 1.0}\n", encoding="utf-8")
    infra.weaver.load_rules(rules)
    result = run(infra, CHAIN, graph)
    for event, value in zip(result.event_ids, (1.0, 0.5, 0.0), strict=True):
        infra.weaver.ingest(Signal("满意", value, event_id=event))
    reward = infra.weaver.weave_reward(result, wait=0)
    assert reward.value == 0.5
    assert graph.version == result.version, "evidence never moves an agent's head"


def test_it_works_inside_a_running_loop(infra: Infra, done: list[Any]) -> None:
    async def program() -> list[RunResult]:
        return [await infra.arun(CHAIN), infra.run(CHAIN)]

    assert [result.ok for result in asyncio.run(program())] == [True, True]


@pytest.mark.parametrize(
    ("face", "call"),
    [
        ("", lambda infra, _: infra.run(CHAIN)),
        ("", lambda infra, _: infra.resume()),
        ("scheduler", lambda infra, graph: infra.scheduler.execute_gdep(_plan(infra, graph))),
        ("scheduler", lambda infra, _: infra.scheduler.resume()),
        ("actions", lambda infra, graph: infra.actions.execute("note", graph)),
        ("weaver", lambda infra, _: infra.weaver.weave("01J00000000000000000000000", wait=1)),
    ],
    ids=["run", "resume", "scheduler.execute_gdep", "scheduler.resume", "actions.execute", "weaver.weave"],
)
def test_a_waiting_call_on_the_loops_own_thread_names_its_twin(
    infra: Infra, graph: StateGraph, done: list[Any], face: str, call: Any
) -> None:
    async def on_the_loop() -> WouldDeadlock:
        with pytest.raises(WouldDeadlock) as caught:
            call(infra, graph)
        return caught.value

    error = background.wait_for(on_the_loop(), twin="")
    twin = error.facts["twin"].rpartition(".")[2]
    assert twin in str(error)
    assert infra.sessions() == []
    assert done == []
    owner = getattr(infra, face) if face else infra
    assert asyncio.iscoroutinefunction(getattr(owner, twin, None)), f"{owner!r} has no {twin}"


def _plan(infra: Infra, graph: StateGraph) -> Plan:
    return infra.scheduler.compile_gdep(CHAIN, state_graph=graph)


def test_an_async_tool_that_runs_a_goal_awaits_it(infra: Infra, graph: StateGraph, done: list[Any]) -> None:
    @infra.tools.tool(effects="none")
    async def impatient() -> str:
        """Wait on the loop that it blocks."""
        return str(infra.run(CHAIN, session="里面"))

    @infra.tools.tool(effects="none")
    async def patient() -> str:
        """Await."""
        return str(await infra.arun(CHAIN, session="里面"))

    refused = run(infra, {"goal": "外面", "subgoals": {"x": {"action": "impatient"}}}, graph)
    assert not refused.ok
    assert "WouldDeadlock" in json.dumps(refused.error)
    assert done == []
    assert run(infra, {"goal": "外面", "subgoals": {"x": {"action": "patient"}}}, graph).ok
    assert len(done) == 3
