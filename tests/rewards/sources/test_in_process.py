"""Sources in this process: figures of receipts, and functions of the user's own."""

from __future__ import annotations

from typing import Any

import pytest

from agent_infra.rewards import FunctionSource, MetricSource, Signal

RULES = """
version: 1
sources:
  latency: {range: [0, 30], better: low, weight: 1}
  tokens: {range: [0, 1000], weight: 1}
"""


@pytest.fixture
def ruled(world: Any) -> Any:
    world.rules(RULES)
    return world


def test_a_figure_of_the_receipt_is_the_signal(ruled: Any, until: Any) -> None:
    source = MetricSource("latency", "seconds")
    ruled.weaver.add_source(source)
    call = ruled.call(seconds=7.5)
    ruled.clock.advance(9)
    ruled.weaver.weave(call)
    until(lambda: source.health.delivered)
    reward = ruled.weaver.weave(call)
    (row,) = reward.provenance
    assert (row["source"], row["value"], reward.value) == ("latency", 7.5, 0.5)
    evidence = ruled.home.blobs.get_value(row["evidence"]["$cid"])
    receipt = ruled.graph.node(evidence["receipt"])
    assert receipt.data["call"] == call
    assert row["at"] == receipt.created_at.isoformat()


def test_a_running_call_has_none_yet_and_gets_one_as_it_ends(ruled: Any, until: Any) -> None:
    source = MetricSource("latency", "seconds", first_delay=0.01)
    ruled.weaver.add_source(source)
    call = ruled.call()
    assert ruled.weaver.weave(call).missing == ["latency", "tokens"]
    ruled.end(call, seconds=3)
    until(lambda: source.health.delivered)
    assert ruled.weaver.weave(call).missing == ["tokens"]


def test_figures_further_in_and_figures_that_are_not_there(ruled: Any, until: Any) -> None:
    tokens = MetricSource("tokens", "usage.tokens", first_delay=0.01)
    latency = MetricSource("latency", "secnds", first_delay=0.01)
    ruled.weaver.add_source(tokens)
    ruled.weaver.add_source(latency)
    call = ruled.call()
    ruled.end(call, usage={"tokens": 250}, seconds=None)
    ruled.weaver.weave(call)
    until(lambda: tokens.health.delivered and latency.health.last_error)
    assert ruled.weaver.weave(call).provenance[0]["value"] == 250
    assert "no figure 'secnds'" in latency.health.last_error


@pytest.mark.parametrize("seconds", [None, True, "3"])
def test_what_is_no_number_never_becomes_one(ruled: Any, seconds: Any, until: Any) -> None:
    source = MetricSource("latency", "spent", first_delay=0.01)
    ruled.weaver.add_source(source)
    call = ruled.call()
    ruled.end(call, spent=seconds)
    ruled.weaver.weave(call)
    until(lambda: source.health.last_error)
    assert "no figure" in source.health.last_error
    assert ruled.weaver.weave(call).provenance == []


def test_functions_plain_and_async(ruled: Any) -> None:
    async def tokens(event: Any) -> Signal:
        return Signal("tokens", 1000, event.id, session_id=event.session_id)

    ruled.weaver.add_source(FunctionSource("latency", lambda _: Signal("latency", 0)))
    ruled.weaver.add_source(FunctionSource("tokens", tokens))
    assert ruled.weaver.weave(ruled.call(), wait=20).value == 1


@pytest.mark.parametrize(
    ("given", "told"),
    [(0.5, "no Signal"), (Signal("tokens", 1), "of source 'tokens'"), (Signal("latency", 99), "[0, 30]")],
)
def test_what_a_function_may_not_give(ruled: Any, given: Any, told: str, until: Any) -> None:
    source = FunctionSource("latency", lambda _: given, first_delay=0.01)
    ruled.weaver.add_source(source)
    call = ruled.call()
    ruled.weaver.weave(call)
    until(lambda: source.health.last_error)
    assert told in source.health.last_error
    assert ruled.weaver.weave(call).provenance == []
