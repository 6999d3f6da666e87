"""Retries: a failed call is made again under the same key, each try on its own in the graph and in evidence."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_infra import ActionResult, CallContext, Infra, Node, StateGraph, Tool
from agent_infra.config import Project
from agent_infra.errors import ContractErrors

PATIENCE = 20.0
OBJECT = {"type": "object"}
ASK = """
name: 问天气
tool: ask
params: {city: {open: {}}}
effects: idempotent
retries: {times: 2, wait: 1ms}
result: {type: api_response, key: "天气/${params.city}"}
"""


class Service:
    """A service that fails as often as it is told to: the answers that are left, and what it was asked."""

    def __init__(self, infra: Infra) -> None:
        self.answers: list[Any] = []
        self.asked: list[tuple[str, str]] = []
        self.before: Callable[[], None] = lambda: None
        self.schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
        infra.tools.register(Tool("ask", self.schema, OBJECT, self.ask, effects="idempotent"))

    def ask(self, city: str, context: CallContext) -> Any:
        self.asked.append((city, context.idempotency_key))
        self.before()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def service(infra: Infra) -> Service:
    return Service(infra)


def ask(infra: Infra, graph: StateGraph, contract: str = ASK, city: str = "北京") -> ActionResult:
    infra.actions.load(contract)
    return infra.actions.execute({"tool": "问天气", "params": {"city": city}}, graph)


def tries(graph: StateGraph) -> list[tuple[Node, Node]]:
    """Every call with its receipt, oldest first."""
    receipts = {node.data["call"]: node for node in graph.nodes(type="receipt")}
    assert len(receipts) == len(graph.nodes(type="receipt")), "a call has one receipt"
    return [(call, receipts[call.id]) for call in reversed(graph.nodes(type="call"))]


# -- what a retry is -------------------------------------------------------------------------------


def test_the_second_try_is_the_result(infra: Infra, graph: StateGraph, service: Service) -> None:
    service.answers = [OSError("断线"), {"temp": 22}]
    result = ask(infra, graph)
    assert (result.ok, result.output) == (True, {"temp": 22})
    first, second = tries(graph)
    assert result.event_id == second[0].id
    assert result.version == graph.version
    assert [call.data["attempt"] for call, _ in (first, second)] == [1, 2]
    assert [receipt.data["status"] for _, receipt in (first, second)] == ["failed", "succeeded"]
    assert "断线" in str(first[1].data["error"])
    assert first[0].data["idempotency_key"] == second[0].data["idempotency_key"]
    assert {key for _, key in service.asked} == {first[0].data["idempotency_key"]}
    assert first[0].data["params"] == second[0].data["params"] == {"city": "北京"}
    assert len(graph.nodes(type="api_response")) == 1


def test_each_try_has_evidence_of_its_own_that_follows_the_one_before(
    infra: Infra, graph: StateGraph, service: Service
) -> None:
    service.answers = [OSError("一"), OSError("二"), {"temp": 22}]
    assert ask(infra, graph).ok
    cids = [receipt.data["evidence"]["$cid"] for _, receipt in tries(graph)]
    assert len(set(cids)) == 3
    assert all(infra.evidence.verify(cid).ok for cid in cids)
    bundles = [infra.evidence.get(cid) for cid in cids]
    assert [bundle["status"] for bundle in bundles] == ["failed", "failed", "succeeded"]
    assert [[each["cid"] for each in bundle["previous"]] for bundle in bundles] == [[], cids[:1], cids[1:2]]


def test_it_is_tried_no_more_often_than_asked(infra: Infra, graph: StateGraph, service: Service) -> None:
    service.answers = [OSError(f"第{number}次") for number in range(1, 6)]
    result = ask(infra, graph)
    assert (result.status, (result.error or {})["code"]) == ("failed", "ToolFailed")
    assert "第3次" in str(result)
    assert [call.data["attempt"] for call, _ in tries(graph)] == [1, 2, 3]
    assert graph.nodes(type="api_response") == []


def test_a_success_is_not_repeated(infra: Infra, graph: StateGraph, service: Service) -> None:
    service.answers = [{"temp": 22}]
    assert ask(infra, graph).ok
    assert len(tries(graph)) == 1


def test_two_requests_have_keys_of_their_own(infra: Infra, graph: StateGraph, service: Service) -> None:
    service.answers = [OSError("一"), {"temp": 1}, {"temp": 2}]
    assert ask(infra, graph).ok
    assert ask(infra, graph).ok
    one, two, three = (key for _, key in service.asked)
    assert one == two != three


# -- which failures --------------------------------------------------------------------------------


def test_a_failure_that_is_not_named_ends_it(infra: Infra, graph: StateGraph, service: Service) -> None:
    service.answers = [OSError("断线"), {"temp": 22}]
    result = ask(infra, graph, ASK.replace("wait: 1ms", "wait: 1ms, on: [TimedOut]"))
    assert (result.error or {})["code"] == "ToolFailed"
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    ("named", "times"), [("PostconditionFailed", 2), ("OutputInvalid", 1), ("ToolFailed", 1)], ids=str
)
def test_a_postcondition_that_fails_is_retried_where_it_is_named(
    infra: Infra, graph: StateGraph, service: Service, named: str, times: int
) -> None:
    service.answers = [{"temp": None}, {"temp": 22}]
    text = ASK.replace("wait: 1ms", f"wait: 1ms, on: [{named}]") + "postconditions: ['result.temp != null']\n"
    assert ask(infra, graph, text).ok == (times == 2)
    assert len(service.asked) == times


def test_a_call_that_took_too_long_is_retried(infra: Infra, graph: StateGraph) -> None:
    asked: list[str] = []

    @infra.tools.tool(effects="none", name="slow")
    async def slow(context: CallContext) -> str:
        """Take for ever, the first time."""
        asked.append(context.idempotency_key)
        if len(asked) == 1:
            await asyncio.sleep(PATIENCE)
        return "慢"

    infra.actions.load("name: 慢\ntool: slow\ntimeout: 50ms\nretries: {times: 1, wait: 0s}\n")
    result = infra.actions.execute("慢", graph)
    assert result.output == "慢"
    assert [receipt.data["status"] for _, receipt in tries(graph)] == ["timed_out", "succeeded"]
    assert len(set(asked)) == 1


def test_a_refusal_between_two_tries_ends_it(infra: Infra, graph: StateGraph, service: Service) -> None:
    graph.add_node("user_intent", {"confidence": 0.9})
    service.before = lambda: graph.add_node("user_intent", {"confidence": 0.1})
    service.answers = [OSError("断线"), {"temp": 22}]
    result = ask(infra, graph, ASK + "preconditions: ['state.nodes.user_intent.confidence > 0.5']\n")
    assert (result.status, (result.error or {})["code"]) == ("refused", "PreconditionFailed")
    assert len(service.asked) == 1
    assert [call.data["attempt"] for call, _ in tries(graph)] == [1, 2]


@pytest.mark.parametrize(
    ("change", "code"),
    [({"version": "2.0.0"}, "ContractDrift"), ({"effects": "once"}, "ContractDrift"), (None, "ToolUnknown")],
    ids=["version", "effects", "gone"],
)
def test_a_tool_that_became_another_between_two_tries_ends_it(
    infra: Infra, graph: StateGraph, service: Service, change: dict[str, Any] | None, code: str
) -> None:
    def become() -> None:
        if change is None:
            infra.tools.remove("ask")
        else:
            infra.tools.register(Tool("ask", service.schema, OBJECT, service.ask, **{"effects": "idempotent"} | change))

    service.before, service.answers = become, [OSError("断线"), {"temp": 22}]
    result = ask(infra, graph)
    assert (result.status, (result.error or {})["code"]) == ("refused", code)
    assert len(service.asked) == 1
    assert [receipt.data["status"] for _, receipt in tries(graph)] == ["failed", "refused"]


def test_the_tool_is_the_one_that_is_registered_when_it_is_tried(
    infra: Infra, graph: StateGraph, service: Service
) -> None:
    mended: list[Service] = []

    def mend() -> None:
        mended.append(Service(infra))  # it registers itself, as the tools of a file do that is loaded anew
        mended[0].answers = [{"temp": 23}]

    service.before, service.answers = mend, [OSError("断线"), {"temp": 22}]
    assert ask(infra, graph).output == {"temp": 23}
    assert mended[0].asked == service.asked, "the same request, under the same key"


def test_a_refusal_is_not_retried(infra: Infra, graph: StateGraph, service: Service) -> None:
    infra.actions.load(ASK)
    assert infra.actions.execute({"tool": "问天气", "params": {"city": 7}}, graph).status == "refused"
    assert len(tries(graph)) == 1


def test_the_parameters_stay_those_of_the_first_try(infra: Infra, graph: StateGraph, service: Service) -> None:
    graph.add_node("user_intent", {"city": "北京"})
    service.before = lambda: graph.add_node("user_intent", {"city": "上海"})
    service.answers = [OSError("断线"), {"temp": 22}]
    infra.actions.load(ASK.replace("{open: {}}", '"${state.nodes.user_intent.city}"'))
    assert infra.actions.execute("问天气", graph).ok
    assert [city for city, _ in service.asked] == ["北京", "北京"], "one key stands for one request"


def test_an_action_with_effects_once_has_no_retries(infra: Infra, service: Service) -> None:
    with pytest.raises(ContractErrors, match="never repeated"):
        infra.actions.load(ASK.replace("effects: idempotent", "effects: once"))


# -- secrets ---------------------------------------------------------------------------------------


def test_a_call_whose_parameters_hold_a_secret_is_tried_again_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_INFRA_SECRET_CITY", "秘密城市-4471")
    with Infra.open(tmp_path / "家", project=Project(root=tmp_path), durability="os") as infra:
        service, graph = Service(infra), infra.session("会话")
        service.answers = [OSError("断线"), {"temp": 22}]
        result = ask(infra, graph, city="在秘密城市-4471")
        assert result.ok
        assert [city for city, _ in service.asked] == ["在秘密城市-4471"] * 2
        assert [call.data["params"] for call, _ in tries(graph)] == [{"city": "在secret://CITY"}] * 2
        assert result.node is not None
        assert result.node.key == "天气/在secret://CITY"


# -- in a goal -------------------------------------------------------------------------------------

GOAL: dict[str, Any] = {
    "goal": "出门",
    "subgoals": {
        "看": {"action": "问天气", "with": {"city": "北京"}},
        "记": {"action": "note", "with": {"text": '${subgoals["看"].result.text}'}},
    },
}


def test_a_subgoal_ends_only_with_the_last_try(infra: Infra, graph: StateGraph, service: Service) -> None:
    statuses: list[tuple[str, str]] = []
    noted: list[str] = []

    @infra.tools.tool(effects="none", name="note")
    def note(text: str) -> str:
        """Note a text."""
        noted.append(text)
        return text

    def look() -> None:
        (node,) = (each for each in graph.nodes(type="subgoal") if each.data["name"] == "看")
        statuses.append((node.data["status"], node.data["call"]))

    service.before, service.answers = look, [OSError("一"), OSError("二"), {"text": "晴"}]
    infra.actions.load(ASK)
    result = infra.run(GOAL, session=graph.session_id)
    assert result.ok, result
    assert noted == ["晴"]
    calls = [call.id for call, _ in tries(graph) if call.data["subgoal"] == "看"]
    assert statuses == [("running", call) for call in calls]
    assert len(set(calls)) == 3
    ended = [node for node in graph.nodes(type="subgoal") if node.data["name"] == "看"]
    assert [(node.data["status"], node.data["call"]) for node in ended] == [("succeeded", calls[-1])]
    assert all(call.data["goal_id"] == result.goal_id for call, _ in tries(graph))
    seen = {node.data["status"] for version in graph.history() for node in graph.at(version.id).nodes(type="subgoal")}
    assert seen == {"pending", "running", "succeeded"}, "no version shows it as failed"


def test_a_subgoal_fails_with_its_last_try(infra: Infra, graph: StateGraph, service: Service) -> None:
    service.answers = [OSError(text) for text in ("一", "二", "三")]
    infra.actions.load(ASK)
    goal = {"goal": "出门", "subgoals": {"看": GOAL["subgoals"]["看"]}}
    result = infra.run(goal, session=graph.session_id)
    assert not result.ok
    assert "三" in str(result.error)
    (subgoal,) = graph.nodes(type="subgoal")
    assert (subgoal.data["status"], subgoal.data["call"]) == ("failed", tries(graph)[-1][0].id)
    assert len(tries(graph)) == 3


def test_a_run_cancelled_between_two_tries_is_gone_on_with(infra: Infra, graph: StateGraph, service: Service) -> None:
    service.answers = [OSError("断线"), {"text": "晴"}]
    infra.actions.load(ASK.replace("wait: 1ms", f"wait: {PATIENCE:g}s"))
    goal = {"goal": "出门", "subgoals": {"看": GOAL["subgoals"]["看"]}}

    async def cancelled() -> None:
        run = asyncio.create_task(infra.arun(goal, session=graph.session_id))
        while not graph.nodes(type="receipt"):
            await asyncio.sleep(0.005)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        while infra.scheduler.parts.active:
            await asyncio.sleep(0.005)

    asyncio.run(asyncio.wait_for(cancelled(), PATIENCE))
    (result,) = infra.resume(graph.session_id)
    assert result.ok
    first, second = tries(graph)
    assert [receipt.data["status"] for _, receipt in (first, second)] == ["failed", "succeeded"]
    assert first[0].data["idempotency_key"] == second[0].data["idempotency_key"]


def test_a_home_that_is_closed_between_two_tries_is_not_written_to(tmp_path: Path) -> None:
    raised: list[BaseException] = []
    with Infra.open(tmp_path / "家", project=Project(root=tmp_path), durability="os") as infra:
        service, graph = Service(infra), infra.session("会话")
        service.answers = [OSError("断线"), {"temp": 22}]

        def execute() -> None:
            try:
                ask(infra, graph, ASK.replace("wait: 1ms", "wait: 1s"))
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=execute)
        thread.start()
        while not graph.nodes(type="receipt"):
            os.sched_yield()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert len(service.asked) == 1 + (not raised), "it was closed in time, or the second try came before"
    assert {type(error).__name__ for error in raised} <= {"HomeClosed"}
