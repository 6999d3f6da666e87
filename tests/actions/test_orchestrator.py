"""One execution, from the head of a graph to its evidence: what is written when, and what is never written."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_infra import ActionResult, CallContext, Infra, Node, StateGraph, Tool, background
from agent_infra.actions import ActionLibrary, EvidenceStore, Orchestrator, ToolRegistry
from agent_infra.actions.executors import ExecutorPool, LocalExecutor
from agent_infra.state import BlobStore, StateEngine
from agent_infra.state.stores import MemoryStore

CONFIDENT = "state.nodes.user_intent.data.confidence > 0.8"
FORECAST = f"""
name: forecast
tool: weather_service
params:
  city: ${{state.nodes.user_intent.data.city}}
  unit: 摄氏度
preconditions: ["{CONFIDENT}"]
postconditions: ["result.temp != null"]
effects: none
result: {{type: api_response, key: "天气/${{params.city}}", ttl: 1800}}
"""
OBJECT = {"type": "object"}
PATIENCE = 20.0  # seconds until a wait gives up; only a failing test waits that long


class Service:
    """A stand-in weather service: what it was asked, and what it does when asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answer: Callable[..., Any] = lambda: {"temp": 22, "text": "晴，微风"}

    def __call__(self, city: str, unit: str) -> Any:
        self.asked.append({"city": city, "unit": unit})
        return self.answer()


@pytest.fixture
def service(infra: Infra) -> Service:
    found = Service()
    infra.tools.register(Tool("weather_service", _takes("city", "unit"), OBJECT, found.__call__, effects="none"))
    infra.actions.load(FORECAST)
    return found


def _takes(*names: str) -> dict[str, Any]:
    texts = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": texts, "required": list(names), "additionalProperties": False}


def wish(graph: StateGraph, confidence: float = 0.95, labels: tuple[str, ...] = ()) -> Node:
    data = {"query": "北京明天天气", "city": "北京", "confidence": confidence}
    return graph.add_node("user_intent", data, ttl=3600, labels=labels)


def only(graph: StateGraph, type: str) -> Node:
    (node,) = graph.nodes(type=type)
    return node


def edges(graph: StateGraph, node: Node) -> set[tuple[str, str]]:
    """(type, the other end's type) of the edges that go out from a node."""
    return {(edge.type, graph.node(edge.target).type) for edge in graph.edges(node.id) if edge.source == node.id}


# -- what is written when --------------------------------------------------------------------------


def test_the_intent_is_committed_and_readable_while_the_tool_runs(
    infra: Infra, graph: StateGraph, service: Service
) -> None:
    intent = wish(graph)
    before = graph.version
    seen: dict[str, Any] = {}

    def answer() -> dict[str, Any]:
        seen["call"] = only(infra.session(graph.session_id), "call")
        seen["receipts"] = graph.nodes(type="receipt")
        seen["versions"] = [version.id for version in graph.history()]
        return {"temp": 22}

    service.answer = answer
    result = infra.actions.execute("forecast", graph)

    call = seen["call"]
    assert seen["receipts"] == []
    assert seen["versions"][-2] == before
    assert len(seen["versions"]) == 2
    assert call.id == result.event_id
    assert call.tool == "weather_service"
    assert call.owner == "planner"
    assert call.data["params"] == {"city": "北京", "unit": "摄氏度"}
    assert call.data["contract"] == infra.actions.get("forecast").hash
    assert call.data["inputs"] == [intent.id]
    assert call.data["idempotency_key"]
    assert edges(graph, call) >= {("references", "user_intent")}


def test_receipt_result_and_edges_land_in_one_step(infra: Infra, graph: StateGraph, service: Service) -> None:
    wish(graph)
    result = infra.actions.execute("forecast", graph)
    noted, intended, ended = graph.history()
    receipt, answer, call = only(graph, "receipt"), only(graph, "api_response"), only(graph, "call")

    assert set(intended.nodes) == {call.id}
    assert set(ended.nodes) == {receipt.id, answer.id}
    assert result.version == ended.id == graph.version
    assert edges(graph, call) == {
        ("references", "user_intent"),
        ("causes", "api_response"),
        ("triggers", "receipt"),
    }
    out = [edge for edge in graph.edges(call.id) if edge.type != "references"]
    assert {edge.step for edge in out} == {ended.step_count}
    half = graph.at(intended.id)
    assert half.nodes(type="receipt") == half.nodes(type="api_response") == []


def test_a_success_says_all_that_it_knows(infra: Infra, graph: StateGraph, service: Service) -> None:
    wish(graph)
    result = infra.actions.execute("forecast", graph)
    assert result.ok
    assert result.error is None
    assert result.output == {"temp": 22, "text": "晴，微风"}
    assert str(result) == '{"temp": 22, "text": "晴，微风"}'
    assert result.node is not None
    assert result.node.id == only(graph, "api_response").id
    assert (result.node.key, result.node.ttl, result.node.data) == ("天气/北京", 1800, result.output)
    assert [condition["holds"] for condition in result.conditions] == [True, True]
    receipt = only(graph, "receipt").data
    assert receipt["status"] == "succeeded"
    assert receipt["call"] == result.event_id
    assert receipt["evidence"]["$cid"] == result.evidence_cid
    assert receipt["conditions"] == list(result.conditions)
    assert receipt["seconds"] == result.seconds
    assert infra.evidence.verify(result.evidence_cid).ok


def test_the_newest_answer_supersedes_the_older_of_its_key(infra: Infra, graph: StateGraph, service: Service) -> None:
    wish(graph)
    first = infra.actions.execute("forecast", graph)
    second = infra.actions.execute("forecast", graph)
    assert first.node is not None
    assert second.node is not None
    assert only(graph, "api_response").id == second.node.id
    assert graph.node(first.node.id).lifecycle == "superseded"


def test_results_are_found_by_the_tool_that_caused_them(infra: Infra, graph: StateGraph, service: Service) -> None:
    made: list[str] = []
    for city in ("北京", "上海", "広州"):
        graph.add_node("user_intent", {"city": city, "confidence": 0.9})
        result = infra.actions.execute("forecast", graph)
        assert result.node is not None
        made.append(result.node.id)
    wish(graph, confidence=0.1)
    infra.actions.execute("forecast", graph)
    service.answer = lambda: {"temp": None}
    wish(graph)
    infra.actions.execute("forecast", graph)

    assert [node.id for node in graph.caused_by("weather_service", within=3600)] == made[::-1]
    assert graph.caused_by("another_tool", within=3600) == []


# -- refusals --------------------------------------------------------------------------------------


def refused(graph: StateGraph, service: Service, result: ActionResult) -> dict[str, Any]:
    """The receipt of a refusal, after checking what holds for every refusal."""
    assert not result.ok
    assert result.status == "refused"
    assert service.asked == []
    assert result.node is None
    assert result.output is None
    assert graph.nodes(type="api_response") == []
    receipt = only(graph, "receipt")
    assert receipt.data["status"] == "refused"
    assert receipt.data["error"] == result.error
    assert receipt.data["call"] == result.event_id == only(graph, "call").id
    assert ("triggers", "receipt") in edges(graph, graph.node(result.event_id))
    return receipt.data


def test_a_refusal_is_recorded_with_the_condition_and_its_values(
    infra: Infra, graph: StateGraph, service: Service
) -> None:
    wish(graph, confidence=0.5)
    before = len(graph.history())
    result = infra.actions.execute("forecast", graph)

    receipt = refused(graph, service, result)
    (condition,) = receipt["conditions"]
    assert condition["kind"] == "pre"
    assert condition["source"] == CONFIDENT
    assert condition["holds"] is False
    assert condition["values"] == {"state.nodes.user_intent.data.confidence": 0.5}
    assert result.error is not None
    assert CONFIDENT in str(result)
    assert "0.5" in str(result)
    assert len(graph.history()) == before + 1
    bundle = infra.evidence.get(result.evidence_cid)
    assert (bundle["status"], bundle["conditions"]) == ("refused", receipt["conditions"])


def test_every_condition_that_does_not_hold_is_named(infra: Infra, graph: StateGraph, service: Service) -> None:
    infra.actions.load(FORECAST.replace(f'["{CONFIDENT}"]', f"""["{CONFIDENT}", "params.city == '上海'", "1 < 2"]"""))
    wish(graph, confidence=0.5)
    result = infra.actions.execute("forecast", graph)
    receipt = refused(graph, service, result)
    assert [entry["holds"] for entry in receipt["conditions"]] == [False, False, True]
    assert CONFIDENT in str(result)
    assert "params.city == '上海'" in str(result)
    assert "北京" in str(result)


def test_what_is_not_there_is_refused_and_named(infra: Infra, graph: StateGraph, service: Service) -> None:
    result = infra.actions.execute("forecast", graph)
    refused(graph, service, result)
    assert "city" in str(result)
    assert "user_intent" in str(result)


def test_a_condition_that_can_not_be_judged_has_failed_with_the_reason(
    infra: Infra, graph: StateGraph, service: Service
) -> None:
    graph.add_node("user_intent", {"city": "北京"})
    result = infra.actions.execute("forecast", graph)
    receipt = refused(graph, service, result)
    (condition,) = receipt["conditions"]
    assert condition["holds"] is False
    assert condition["values"] == {}
    assert "confidence" in condition["reason"]


def test_an_expired_node_is_not_an_input(infra: Infra, graph: StateGraph, service: Service) -> None:
    graph.add_node("user_intent", {"city": "北京", "confidence": 0.9}, ttl=0.000001)
    refused(graph, service, infra.actions.execute("forecast", graph))


def test_parameters_that_the_tool_does_not_take_are_refused(infra: Infra, graph: StateGraph, service: Service) -> None:
    graph.add_node("user_intent", {"city": 7, "confidence": 0.9})
    result = infra.actions.execute("forecast", graph)
    refused(graph, service, result)
    assert "/city" in str(result)


# -- failures --------------------------------------------------------------------------------------


def failed(infra: Infra, graph: StateGraph, result: ActionResult, code: str) -> dict[str, Any]:
    """The evidence of a failure, after checking that nothing but the receipt came into the state."""
    assert not result.ok
    assert result.error is not None
    assert result.error["code"] == code
    assert result.node is None
    (ended,) = [version for version in graph.history() if version.id == result.version]
    assert [graph.node(id).type for id in ended.nodes] == ["receipt"]
    receipt = graph.node(ended.nodes[0])
    assert receipt.data["status"] == result.status
    assert receipt.data["error"]["code"] == code
    assert graph.caused_by("weather_service", within=3600) == []
    assert infra.evidence.verify(result.evidence_cid).ok
    return infra.evidence.get(result.evidence_cid)


def test_a_postcondition_that_does_not_hold_fails_the_call(infra: Infra, graph: StateGraph, service: Service) -> None:
    service.answer = lambda: {"temp": None, "text": "不知道"}
    wish(graph)
    result = infra.actions.execute("forecast", graph)
    bundle = failed(infra, graph, result, "PostconditionFailed")
    assert result.status == "failed"
    assert "result.temp != null" in str(result)
    assert [(entry["kind"], entry["holds"]) for entry in result.conditions] == [("pre", True), ("post", False)]
    assert bundle["output"] == {"temp": None, "text": "不知道"}


def test_an_absent_field_does_not_pass_for_a_value(infra: Infra, graph: StateGraph, service: Service) -> None:
    service.answer = lambda: {"text": "没有温度"}
    wish(graph)
    failed(infra, graph, infra.actions.execute("forecast", graph), "PostconditionFailed")


def test_an_output_that_breaks_the_tools_schema_never_enters_the_state(infra: Infra, graph: StateGraph) -> None:
    schema = {"type": "object", "properties": {"temp": {"type": "number"}}, "required": ["temp"]}
    run = Service()
    run.answer = lambda: {"temp": "二十二"}
    infra.tools.register(Tool("weather_service", _takes("city", "unit"), schema, run.__call__, effects="none"))
    infra.actions.load(FORECAST)
    wish(graph)
    result = infra.actions.execute("forecast", graph)
    bundle = failed(infra, graph, result, "OutputInvalid")
    assert "/temp" in str(result)
    assert bundle["output"] == {"temp": "二十二"}


def test_an_output_that_the_result_nodes_schema_refuses_never_enters_the_state(
    infra: Infra, graph: StateGraph, service: Service
) -> None:
    infra.schemas.register("temperature", {"type": "object", "properties": {"temp": {"maximum": 60}}})
    infra.actions.load(FORECAST.replace("type: api_response", "type: temperature"))
    service.answer = lambda: {"temp": 900}
    wish(graph)
    result = infra.actions.execute("forecast", graph)
    failed(infra, graph, result, "OutputInvalid")
    assert "temperature" in str(result)


@pytest.mark.parametrize("answer", [{"temp": float("nan")}, {"temp": {22}}, object()], ids=["nan", "set", "object"])
def test_an_output_that_is_no_json_never_enters_the_state(
    infra: Infra, graph: StateGraph, service: Service, answer: object
) -> None:
    service.answer = lambda: answer
    wish(graph)
    failed(infra, graph, infra.actions.execute("forecast", graph), "BadOutput")


def test_a_tool_that_raises_is_an_outcome_with_its_own_words(infra: Infra, graph: StateGraph, service: Service) -> None:
    def answer() -> None:
        raise ConnectionError("服务没有回答")

    service.answer = answer
    wish(graph)
    result = infra.actions.execute("forecast", graph)
    failed(infra, graph, result, "ToolFailed")
    assert result.status == "failed"
    assert result.error is not None
    assert result.error["type"] == "ConnectionError"
    assert "服务没有回答" in str(result)
    assert "answer" in result.error["traceback"]


@pytest.mark.parametrize(
    "raised", [SystemExit(3), KeyboardInterrupt(), StopIteration()], ids=lambda e: type(e).__name__
)
def test_nothing_that_a_tool_raises_ends_the_process_or_the_loop(
    infra: Infra, graph: StateGraph, service: Service, raised: BaseException
) -> None:
    def answer() -> None:
        raise raised

    service.answer = answer
    wish(graph)
    failed(infra, graph, infra.actions.execute("forecast", graph), "ToolFailed")
    service.answer = lambda: {"temp": 1}
    assert infra.actions.execute("forecast", graph).ok


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds a tool back; opened at the end at the latest, so that no thread stays behind."""
    event = threading.Event()
    yield event
    event.set()


def test_a_tool_that_takes_too_long_is_timed_out(
    infra: Infra, graph: StateGraph, service: Service, gate: threading.Event
) -> None:
    infra.actions.load(FORECAST + "timeout: 0.05\n")
    service.answer = lambda: gate.wait(PATIENCE) and {"temp": 1}
    wish(graph)
    result = infra.actions.execute("forecast", graph)
    failed(infra, graph, result, "TimedOut")
    assert result.status == "timed_out"
    assert result.error is not None
    assert (result.error["limit"], result.error["seconds"]) == ("total", 0.05)


def test_what_comes_after_the_time_limit_changes_nothing(
    infra: Infra, graph: StateGraph, service: Service, gate: threading.Event
) -> None:
    infra.actions.load(FORECAST + "timeout: 0.05\n")
    returned = threading.Event()

    def answer() -> dict[str, Any]:
        gate.wait(PATIENCE)
        returned.set()
        return {"temp": 1}

    service.answer = answer
    wish(graph)
    result = infra.actions.execute("forecast", graph)
    gate.set()
    assert returned.wait(PATIENCE)
    background.wait_for(asyncio.sleep(0), twin="")
    assert graph.version == result.version


# -- what a call carries on ------------------------------------------------------------------------


def test_labels_go_on_to_whatever_is_made_from_a_node(infra: Infra, graph: StateGraph, service: Service) -> None:
    graph.add_node("note", {"text": "不相干"}, labels=("canary",))
    wish(graph, labels=("tainted", "personal"))
    infra.actions.execute("forecast", graph)
    for type in ("call", "receipt", "api_response"):
        assert set(only(graph, type).labels) == {"tainted", "personal"}, type


def test_a_refusal_inherits_labels_too(infra: Infra, graph: StateGraph, service: Service) -> None:
    wish(graph, confidence=0.1, labels=("personal",))
    infra.actions.execute("forecast", graph)
    assert set(only(graph, "receipt").labels) == {"personal"}


def test_the_idempotency_key_reaches_the_tool_and_stays_out_of_its_schema(infra: Infra, graph: StateGraph) -> None:
    seen: list[str] = []

    @infra.tools.tool(effects="idempotent")
    def pay(金额: int, context: CallContext) -> dict[str, int]:  # noqa: N803
        """Pay."""
        seen.append(context.idempotency_key)
        return {"paid": 金额}

    first = infra.actions.execute({"tool": "pay", "params": {"金额": 3}}, graph)
    second = infra.actions.execute({"tool": "pay", "params": {"金额": 3}}, graph)
    keys = [graph.node(result.event_id).data["idempotency_key"] for result in (first, second)]
    assert seen == keys
    assert keys[0] != keys[1], "each execution is a new request"
    assert graph.node(first.event_id).data["params"] == {"金额": 3}
    assert list(infra.tools.get("pay").input_schema["properties"]) == ["金额"]


def test_business_keys_are_kept_with_the_call(infra: Infra, graph: StateGraph, service: Service) -> None:
    infra.actions.load(FORECAST + 'refers: {城市: "${params.city}"}\n')
    wish(graph)
    assert infra.actions.execute("forecast", graph).ok


# -- locks and loops -------------------------------------------------------------------------------


def test_another_step_of_the_session_commits_while_the_tool_runs(
    infra: Infra, graph: StateGraph, service: Service, gate: threading.Event
) -> None:
    began = threading.Event()

    def answer() -> dict[str, Any]:
        began.set()
        assert gate.wait(PATIENCE)
        return {"temp": 22}

    service.answer = answer
    wish(graph)
    results: list[ActionResult] = []
    runner = threading.Thread(target=lambda: results.append(infra.actions.execute("forecast", graph)))
    runner.start()
    assert began.wait(PATIENCE)
    assert not graph.stale
    with graph.step(agent="另一个", lock_wait_timeout=0) as step:
        between = step.add_node("note", {"text": "在调用之间"})
    gate.set()
    runner.join(PATIENCE)

    assert results[0].ok
    assert [version.agent for version in graph.history()][-3:] == ["planner", "另一个", "planner"]
    assert graph.node(between.id).data == {"text": "在调用之间"}
    assert graph.verify().ok


def test_a_tool_may_write_to_its_own_session(infra: Infra, graph: StateGraph, service: Service) -> None:
    def answer() -> dict[str, Any]:
        graph.add_node("note", {"text": "工具自己写的"})
        return {"temp": 22}

    service.answer = answer
    wish(graph)
    assert infra.actions.execute("forecast", graph).ok
    assert only(graph, "note").data == {"text": "工具自己写的"}


def test_many_calls_of_one_session_lose_nothing(infra: Infra, graph: StateGraph) -> None:
    barrier = threading.Barrier(4)

    @infra.tools.tool(effects="none")
    def meet(number: int) -> dict[str, int]:
        """Wait for three others."""
        barrier.wait(PATIENCE)
        return {"number": number}

    infra.actions.load(
        "name: meet\ntool: meet\nparams: {number: {open: {}}}\neffects: none\n"
        'result: {type: api_response, key: "号/${params.number}"}\n'
    )

    async def all_at_once() -> list[ActionResult]:
        calls = [infra.actions.aexecute({"tool": "meet", "params": {"number": n}}, graph) for n in range(4)]
        return await asyncio.gather(*calls)

    for _ in range(10):
        results = asyncio.run(all_at_once())
        assert all(result.ok for result in results)
        assert {node.data["number"] for node in graph.nodes(type="api_response")} == {0, 1, 2, 3}
    assert len(graph.nodes(type="receipt")) == 40
    assert graph.verify().ok


def test_it_works_inside_a_running_loop_both_ways(infra: Infra, graph: StateGraph, service: Service) -> None:
    wish(graph)

    async def program() -> list[ActionResult]:
        return [await infra.actions.aexecute("forecast", graph), infra.actions.execute("forecast", graph)]

    assert [result.ok for result in asyncio.run(program())] == [True, True]


def test_async_tools_run_on_the_background_loop(infra: Infra, graph: StateGraph) -> None:
    loops: list[object] = []

    @infra.tools.tool(effects="none")
    async def ask() -> str:
        """Say something."""
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return "好"

    async def program() -> Any:
        return (await infra.actions.aexecute("ask", graph)).output

    assert asyncio.run(program()) == "好"
    assert infra.actions.execute("ask", graph).output == "好"
    assert loops == [background.loop()] * 2


def test_a_waiting_call_from_an_async_tool_says_which_twin_to_await(
    infra: Infra, graph: StateGraph, service: Service
) -> None:
    wish(graph)

    @infra.tools.tool(effects="none")
    async def impatient() -> None:
        """Wait on the loop that it blocks."""
        infra.actions.execute("forecast", graph)

    result = infra.actions.execute("impatient", graph)
    assert not result.ok
    assert result.error is not None
    assert result.error["type"] == "WouldDeadlock"
    assert "aexecute" in result.error["what"]
    assert service.asked == []


def test_an_async_tool_may_await_the_twin_and_a_sync_tool_may_wait(
    infra: Infra, graph: StateGraph, service: Service
) -> None:
    wish(graph)

    @infra.tools.tool(effects="none")
    async def patient() -> int:
        """Await another action."""
        return (await infra.actions.aexecute("forecast", graph)).output["temp"]

    @infra.tools.tool(effects="none")
    def threaded() -> int:
        """Wait for another action in a thread of its own."""
        return infra.actions.execute("forecast", graph).output["temp"]

    assert infra.actions.execute("patient", graph).output == 22
    assert infra.actions.execute("threaded", graph).output == 22


# -- durability ------------------------------------------------------------------------------------


class Counting(MemoryStore):
    """Counts what was written, and how much of it was brought onto the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.written = self.synced = 0

    def write(self, batch: Any, *, sync: bool = False) -> None:
        super().write(batch, sync=sync)
        self.written += 1

    def sync(self) -> None:
        self.synced = self.written


@pytest.mark.parametrize(("effects", "waits"), [("once", True), ("idempotent", False), ("none", False)])
def test_only_the_claim_of_a_once_call_waits_for_the_disk_and_every_answer_does(effects: Any, waits: bool) -> None:
    store = Counting()
    engine = StateEngine(store, durability="group")
    blobs = engine.blobs = BlobStore(store)
    tools, evidence = ToolRegistry(), EvidenceStore(blobs)
    pool = ExecutorPool([LocalExecutor()])
    library = ActionLibrary(tools, Orchestrator(engine, tools, pool, evidence), evidence)
    on_disk: list[bool] = []

    def look() -> str:
        on_disk.append(store.synced == store.written)
        return "看到了"

    tools.register(Tool("look", {"type": "object"}, None, look, effects=effects))
    result = library.execute("look", StateGraph("会话", engine=engine))
    assert result.ok
    assert on_disk == [waits]
    assert store.synced == store.written
    background.wait_for(pool.stop(), twin="pool.stop")


def test_what_was_executed_is_there_when_the_home_is_opened_again(
    infra: Infra, graph: StateGraph, service: Service, tmp_path: Path
) -> None:
    wish(graph)
    result = infra.actions.execute("forecast", graph)
    infra.close()
    with Infra.open(infra.home, project=infra.project) as again:
        reopened = again.session(graph.session_id)
        assert reopened.version == result.version
        assert reopened.node(result.event_id).data["params"]["city"] == "北京"
        assert again.evidence.verify(result.evidence_cid).ok
        assert reopened.verify().ok
