"""What becomes of a proposal that isn't sure enough, and how a call is undone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_infra import ActionFailed, ActionResult, ApprovalNeeded, ContractUnknown, Infra, NodeUnknown, StateGraph
from agent_infra.config import Project
from agent_infra.errors import SpecInvalid

BOOK = """
name: 订房
tool: book
params:
  city: {open: {enum: [北京, 上海]}}
  night: 今晚
confidence: {min: 0.6, below: BELOW}
effects: idempotent
compensation: {action: 退房, with: {room: "${result.room}", why: "${agent.name}：${params.city}"}}
---
name: 退房
tool: cancel
params: {room: {open: {}}, why: {open: {}}}
effects: idempotent
---
name: 问人
tool: ask
params: {about: 订房}
confidence: {min: 0.99, below: reject}
"""


class Hotel:
    """What was booked, cancelled and asked."""

    def __init__(self, infra: Infra) -> None:
        self.did: list[tuple[str, ...]] = []
        self.keys: list[str] = []

        @infra.tools.tool(effects="idempotent", name="book")
        def book(city: str, night: str) -> dict[str, str]:
            """Book a room."""
            self.did.append(("book", city, night))
            return {"room": f"{city}-101"}

        @infra.tools.tool(effects="idempotent", name="cancel")
        def cancel(room: str, why: str) -> str:
            """Cancel it."""
            self.did.append(("cancel", room, why))
            return "退了"

        @infra.tools.tool(effects="none", name="ask")
        def ask(about: str) -> str:
            """Ask a person."""
            self.did.append(("ask", about))
            return "问过了"


@pytest.fixture
def hotel(infra: Infra) -> Hotel:
    return Hotel(infra)


def propose(infra: Infra, graph: StateGraph, below: str, confidence: float | None, **params: Any) -> ActionResult:
    infra.actions.load(BOOK.replace("BELOW", below))
    spec: dict[str, Any] = {"tool": "订房", "params": {"city": "北京", **params}}
    return infra.actions.execute(spec | ({} if confidence is None else {"confidence": confidence}), graph)


@pytest.mark.parametrize(("below", "code"), [("ask_human", "ApprovalNeeded"), ("reject", "ConfidenceTooLow")])
@pytest.mark.parametrize("confidence", [0.59, 0, None], ids=str)
def test_a_proposal_under_the_bar_is_refused(
    infra: Infra, graph: StateGraph, hotel: Hotel, below: str, code: str, confidence: float | None
) -> None:
    result = propose(infra, graph, below, confidence)
    assert (result.status, (result.error or {})["code"]) == ("refused", code)
    assert "0.6" in str(result)
    assert ("missing" in str(result)) == (confidence is None)
    assert hotel.did == []
    (receipt,) = graph.nodes(type="receipt")
    assert receipt.data["error"] == result.error
    assert graph.node(result.event_id).data["confidence"] == confidence
    assert infra.evidence.get(result.evidence_cid)["status"] == "refused"
    with pytest.raises(ApprovalNeeded if below == "ask_human" else ActionFailed, match="订房 refused: "):
        result.checked()


@pytest.mark.parametrize("below", ["ask_human", "reject", "{fallback: 问人}"])
@pytest.mark.parametrize("confidence", [0.6, 1, 0.97])
def test_a_proposal_at_the_bar_is_executed(
    infra: Infra, graph: StateGraph, hotel: Hotel, below: str, confidence: float
) -> None:
    result = propose(infra, graph, below, confidence)
    assert result.ok
    assert hotel.did == [("book", "北京", "今晚")]
    assert graph.node(result.event_id).data["confidence"] == confidence
    assert "instead_of" not in graph.node(result.event_id).data


@pytest.mark.parametrize("confidence", [0.2, None], ids=str)
def test_a_fallback_is_executed_instead(
    infra: Infra, graph: StateGraph, hotel: Hotel, confidence: float | None
) -> None:
    result = propose(infra, graph, "{fallback: 问人}", confidence)
    assert (result.ok, result.action, result.output) == (True, "问人", "问过了")
    assert hotel.did == [("ask", "订房")]
    call = graph.node(result.event_id)
    assert (call.data["action"], call.data["instead_of"]) == ("问人", "订房")
    assert call.data["params"] == {"about": "订房"}


def test_nothing_is_executed_instead_of_a_proposal_that_is_wrong(infra: Infra, graph: StateGraph, hotel: Hotel) -> None:
    result = propose(infra, graph, "{fallback: 问人}", 0.2, city="巴黎")
    assert (result.status, result.action, (result.error or {})["code"]) == ("refused", "订房", "ParametersInvalid")
    assert hotel.did == []


def test_what_else_is_wrong_comes_before_the_confidence(infra: Infra, graph: StateGraph, hotel: Hotel) -> None:
    result = propose(infra, graph, "ask_human", 0.2, city="巴黎")
    assert (result.error or {})["code"] == "ParametersInvalid", "nobody is asked to approve what can't be executed"


def test_a_call_by_name_is_not_judged(infra: Infra, graph: StateGraph, hotel: Hotel) -> None:
    infra.actions.load(
        BOOK.replace("BELOW", "reject").replace("{open: {enum: [北京, 上海]}}", "{open: {default: 北京}}")
    )
    result = infra.actions.execute("订房", graph)
    assert result.ok
    assert "confidence" not in graph.node(result.event_id).data
    assert infra.actions.execute({"tool": "订房", "params": {}}, graph).status == "refused"


def test_an_action_that_leaves_nothing_open_is_not_judged(infra: Infra, graph: StateGraph, hotel: Hotel) -> None:
    infra.actions.load(BOOK.replace("BELOW", "reject"))
    for spec in ({"tool": "问人"}, {"tool": "问人", "confidence": 0.1}):
        assert infra.actions.execute(spec, graph).ok


def test_a_subgoal_is_not_judged(infra: Infra, graph: StateGraph, hotel: Hotel) -> None:
    infra.actions.load(BOOK.replace("BELOW", "reject"))
    goal = {"goal": "住", "subgoals": {"a": {"action": "订房", "with": {"city": "上海"}}}}
    assert infra.run(goal, session=graph.session_id).ok


def test_the_space_says_what_a_proposal_needs(infra: Infra, graph: StateGraph, hotel: Hotel) -> None:
    spec = {"tool": "订房", "params": {"city": "北京"}, "confidence": 0.1}
    for below, needs in (("ask_human", "ask_human"), ("reject", None), ("{fallback: 问人}", "问人")):
        infra.actions.load(BOOK.replace("BELOW", below))
        verdict = infra.actions.space(graph).validate(spec)
        assert (verdict.ok, verdict.needs) == (False, needs)


# -- compensation ----------------------------------------------------------------------------------


def test_a_call_is_undone_by_the_action_that_its_contract_names(infra: Infra, graph: StateGraph, hotel: Hotel) -> None:
    booked = propose(infra, graph, "reject", 0.9)
    undone = infra.actions.compensate(booked.event_id, graph)
    assert undone.output == "退了"
    assert hotel.did == [("book", "北京", "今晚"), ("cancel", "北京-101", "planner：北京")]
    call = graph.node(undone.event_id)
    assert call.data["compensates"] == booked.event_id
    assert infra.evidence.verify(undone.evidence_cid).ok
    again = infra.actions.compensate(booked.event_id, graph)
    assert graph.node(again.event_id).data["idempotency_key"] == call.data["idempotency_key"]
    other = propose(infra, graph, "reject", 0.9)
    undone = infra.actions.compensate(other.event_id, graph)
    assert graph.node(undone.event_id).data["idempotency_key"] != call.data["idempotency_key"]


def test_only_a_success_is_undone(infra: Infra, graph: StateGraph, hotel: Hotel) -> None:
    refused = propose(infra, graph, "reject", 0.1)
    for call_id in (refused.event_id, "01M8R4QRP7MSK68J5HAHXFC4KY"):
        with pytest.raises(NodeUnknown):
            infra.actions.compensate(call_id, graph)
    assert hotel.did == []


def test_what_nothing_undoes_is_told(infra: Infra, graph: StateGraph, hotel: Hotel) -> None:
    infra.actions.load(BOOK.replace("BELOW", "reject"))
    asked = infra.actions.execute("问人", graph)
    with pytest.raises(ContractUnknown, match="nothing undoes the action '问人'"):
        infra.actions.compensate(asked.event_id, graph)


def test_what_fills_it_must_have_a_value(infra: Infra, graph: StateGraph, hotel: Hotel) -> None:
    infra.actions.load(BOOK.replace("BELOW", "reject").replace("result.room", "result.number"))
    booked = infra.actions.execute({"tool": "订房", "params": {"city": "上海"}, "confidence": 1}, graph)
    with pytest.raises(SpecInvalid, match="退房"):
        infra.actions.compensate(booked.event_id, graph)


@pytest.fixture
def secretive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Infra]:
    monkeypatch.setenv("AGENT_INFRA_SECRET_CITY", "秘密城市-4471")
    with Infra.open(tmp_path / "家 2", project=Project(root=tmp_path), durability="os") as opened:
        yield opened


@pytest.mark.parametrize("left", ["why: 不", "room: 一"], ids=["result", "params"])
def test_it_is_never_filled_with_what_stands_for_a_secret(secretive: Infra, left: str) -> None:
    infra, graph = secretive, secretive.session("会话")
    hotel = Hotel(infra)
    filled = {"room": '"${result.room}"', "why": '"${params.city}"'} | dict([left.split(": ")])
    text = BOOK.replace('room: "${result.room}", why: "${agent.name}：${params.city}"', "room: ROOM, why: WHY")
    text = text.replace("ROOM", filled["room"]).replace("WHY", filled["why"]).replace("BELOW", "reject")
    infra.actions.load(text.replace("{open: {enum: [北京, 上海]}}", "{open: {}}"))
    booked = infra.actions.execute({"tool": "订房", "params": {"city": "秘密城市-4471"}, "confidence": 1}, graph)
    assert booked.ok
    with pytest.raises(SpecInvalid, match="held a secret"):
        infra.actions.compensate(booked.event_id, graph)
    assert len(hotel.did) == 1
