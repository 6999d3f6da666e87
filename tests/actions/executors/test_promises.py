"""Every executor keeps every promise of the public suite, and the suite notices one that doesn't."""

from __future__ import annotations

import dataclasses

import pytest

from agent_infra.actions.executors import Call, LocalExecutor, Outcome, ProcessExecutor
from agent_infra.testing.executors import (
    EXECUTOR_PROMISES,
    OPTIONAL_EXECUTOR_CAPABILITIES,
    ExecutorMaker,
    ExecutorPromise,
    check_executor,
    executor_capabilities,
)

EXECUTORS: dict[str, ExecutorMaker] = {"local": LocalExecutor, "process": lambda: ProcessExecutor(capacity=8)}
OFFERED = {"local": frozenset({"functions"}), "process": frozenset({"functions", "isolation"})}


@pytest.mark.parametrize("name", EXECUTORS)
def test_what_an_executor_offers_is_found_by_asking(name: str) -> None:
    assert executor_capabilities(EXECUTORS[name]) == OFFERED[name]


MADE = [
    pytest.param(name, promise, id=f"{name}-{promise}")
    for name in EXECUTORS
    for promise in EXECUTOR_PROMISES
    if promise.capability not in OPTIONAL_EXECUTOR_CAPABILITIES - OFFERED[name]
]


@pytest.mark.parametrize(("name", "promise"), MADE)
def test_an_executor_keeps_its_promises(name: str, promise: ExecutorPromise) -> None:
    promise.check(EXECUTORS[name])


def test_every_promise_says_what_it_is_about() -> None:
    assert all(promise.text for promise in EXECUTOR_PROMISES)
    assert len({str(promise) for promise in EXECUTOR_PROMISES}) == len(EXECUTOR_PROMISES)
    assert {promise.capability for promise in EXECUTOR_PROMISES} >= OPTIONAL_EXECUTOR_CAPABILITIES


class _Forgetful(LocalExecutor):
    """Knows no limit, and gives a failure's output as 0."""

    async def execute(self, call: Call) -> Outcome:
        outcome = await super().execute(dataclasses.replace(call, total=None))
        return dataclasses.replace(outcome, output=outcome.output if outcome.ok else 0)


def test_a_broken_executor_is_told_which_promises_it_breaks() -> None:
    findings = check_executor(_Forgetful)
    outcomes = {finding.promise.name: finding.outcome for finding in findings}
    assert outcomes["a_raising_tool_is_an_outcome"] == "broken"
    assert outcomes["the_total_limit_ends_a_call"] == "broken"
    assert outcomes["values_come_back_as_they_were"] == "kept"
    assert outcomes["a_stop_leaves_no_child"] == "not offered"
