"""Calls that wait for an executor are shown with the reason, and calls that none could ever hold are not left open."""

from __future__ import annotations

import asyncio

from agent_infra import CallContext, Infra, StateGraph
from agent_infra.actions.executors import LocalExecutor

PATIENCE = 20.0


def test_a_call_that_waits_is_shown_with_its_reason(infra: Infra, graph: StateGraph) -> None:
    places = LocalExecutor().capacity
    gate: list[bool] = []
    begun: list[str] = []

    @infra.tools.tool(effects="none", name="gate")
    async def at_the_gate(context: CallContext) -> str:
        """Wait until the gate opens."""
        begun.append(context.idempotency_key)
        while not gate:
            await asyncio.sleep(0.005)
        return "过"

    infra.actions.load("name: 过门\ntool: gate\n")

    async def program() -> None:
        calls = [asyncio.create_task(infra.actions.aexecute("过门", graph)) for _ in range(places + 2)]
        while len(begun) < places or len(infra.actions.waiting()) < 2:
            await asyncio.sleep(0.005)
        first, second = infra.actions.waiting()
        for waiting in (first, second):
            assert (waiting.tool, waiting.executor) == ("gate", "local")
            assert f"{places} of {places} places of the local executor are taken (gate)" in waiting.reason
            assert graph.node(waiting.call_id).data["action"] == "过门", "its intent is written"
        assert first.since <= second.since
        assert "0 calls before it" in first.reason
        assert "1 calls before it" in second.reason
        gate.append(True)
        assert all(result.ok for result in await asyncio.gather(*calls))

    assert infra.actions.waiting() == []
    asyncio.run(asyncio.wait_for(program(), PATIENCE))
    assert infra.actions.waiting() == []
    assert len(begun) == places + 2


def test_a_call_that_no_executor_could_ever_hold_fails_with_the_reason(infra: Infra, graph: StateGraph) -> None:
    infra.tools.tool(effects="none", name="big", isolation="process")(big)
    infra.actions.load("name: 大\ntool: big\nresources: {cpu: 100000}\n")
    result = infra.actions.execute("大", graph)
    assert (result.status, (result.error or {})["code"]) == ("failed", "ToolInvalid")
    assert "100000 cpu" in str(result)
    (receipt,) = graph.nodes(type="receipt")
    assert receipt.data["call"] == result.event_id, "no intent stays open"


def big() -> str:
    """Would need a very big machine."""
    return "大"
