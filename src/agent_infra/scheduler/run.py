"""Running a plan: what is ready starts, independent subgoals side by side, and every change is in the graph before
it counts.

Killed anywhere, a run can be gone on with: finished subgoals don't run again. A call whose intent is there and whose
receipt is not has an unknown outcome; it is repeated, with the same parameters and idempotency key, only where its
contract's effects allow that, else the subgoal waits for a person.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from agent_infra.actions import ActionLibrary, ActionResult
from agent_infra.observability import workflow_span
from agent_infra.scheduler.plan import Plan, Subgoal
from agent_infra.scheduler.progress import Progress
from agent_infra.scheduler.result import RunResult
from agent_infra.state import Node, Step, activation


class Run:
    """One run of one plan, new or gone on with."""

    def __init__(self, plan: Plan, progress: Progress, actions: ActionLibrary) -> None:
        self._plan = plan
        self._progress = progress
        self._actions = actions
        self._graph = plan.graph
        self._outputs: dict[str, Any] = {}

    async def execute(self) -> RunResult:
        """Run what is left of the plan. Cancelled, it leaves a run that can be resumed."""
        self._load_outputs()
        running: dict[asyncio.Task[None], str] = {}
        with workflow_span(self._plan.name, goal_id=self._progress.goal_id, session=self._graph.session_id):
            try:
                while True:
                    for subgoal in self._ready(set(running.values())):
                        running[asyncio.create_task(self._run(subgoal))] = subgoal.name
                    if not running:
                        break
                    done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        del running[task]
                        task.result()
            finally:
                await _cancel(running)
        return self._finish()

    # -- which may start ---------------------------------------------------------------------------

    def _status(self, name: str) -> str:
        return self._progress.states[name].status

    def _ready(self, running: set[str]) -> list[Subgoal]:
        """What may start. A subgoal whose receipt is written still runs until it is durable and its output is here."""
        return [
            subgoal
            for subgoal in self._plan
            if subgoal.name not in running
            and self._status(subgoal.name) in ("pending", "running")
            and all(self._status(before) == "succeeded" and before not in running for before in subgoal.after)
        ]

    def _load_outputs(self) -> None:
        """Outputs of what succeeded before this process: read back from evidence, where they are kept."""
        for name, state in self._progress.states.items():
            if state.status == "succeeded" and state.call is not None:
                self._outputs[name] = self._actions.output_of(state.call, self._graph)

    # -- one subgoal -------------------------------------------------------------------------------

    async def _run(self, subgoal: Subgoal) -> None:
        contract = self._plan.contract_of(subgoal)
        interrupted = self._interrupted(subgoal.name)
        if interrupted is not None and interrupted.data["effects"] == "once":
            self._wait(subgoal, interrupted)
            return
        filled = self._fill(subgoal)
        if filled is None:
            return

        unended = interrupted if interrupted is not None and not self._has_receipt(interrupted) else None

        def close(step: Step) -> None:
            nonlocal unended
            if unended is not None:
                _close_interrupted(step, unended)
            unended = None

        def on_call(step: Step, call: Node) -> None:
            close(step)
            self._progress.started(step, subgoal.name, contract.name, call)

        def on_receipt(step: Step, result: ActionResult) -> None:
            close(step)
            status = "succeeded" if result.ok else "waiting" if result.status == "unknown" else "failed"
            self._progress.ended(step, subgoal.name, contract.name, status, result.event_id, result.error)

        result = await self._actions.aexecute(
            contract,
            self._graph,
            params=filled,
            seed=(self._progress.goal_id, subgoal.name),
            about={"goal_id": self._progress.goal_id, "subgoal": subgoal.name},
            repeat=interrupted,
            on_call=on_call,
            on_receipt=on_receipt,
        )
        if result.ok:
            self._outputs[subgoal.name] = result.output

    def _interrupted(self, name: str) -> Node | None:
        """The call that was under way when an earlier process ended."""
        state = self._progress.states[name]
        return self._graph.node(state.call) if state.status == "running" and state.call else None

    def _has_receipt(self, call: Node) -> bool:
        """Whether a call ended: one between two tries did."""
        return any(edge.source == call.id and edge.type == "triggers" for edge in self._graph.edges(call.id))

    def _fill(self, subgoal: Subgoal) -> dict[str, Any] | None:
        """The values for open parameters, or None where a reference has none: the subgoal has then failed."""
        state, _ = activation(self._graph, [subgoal.fill])
        filled = subgoal.fill.resolve(self._bindings(subgoal) | state)
        if filled.error is None:
            return dict(filled.value) if isinstance(filled.value, dict) else {}
        error = {"code": "ReferenceUnresolved", "what": "an input has no value", "why": filled.error}
        with self._graph.step() as step:
            self._progress.ended(step, subgoal.name, subgoal.action, "failed", None, error)
        return None

    def _bindings(self, subgoal: Subgoal) -> dict[str, Any]:
        states = self._progress.states
        subgoals = {
            name: {"result": self._outputs.get(name), "status": states[name].status, "event_id": states[name].call}
            for name in subgoal.after
        }
        return {"goal": {"name": self._plan.name, "params": self._plan.params}, "subgoals": subgoals}

    def _wait(self, subgoal: Subgoal, call: Node) -> None:
        error = {
            "code": "OutcomeUnknown",
            "what": f"whether call {call.id} of {subgoal.action!r} took effect is unknown",
            "why": "the process ended after the call began and before its receipt, and its effects are `once`",
            "mend": "Find out whether it took effect. It is never repeated by itself: run the goal anew if it did not.",
        }
        with self._graph.step() as step:
            self._progress.ended(step, subgoal.name, subgoal.action, "waiting", call.id, error)

    # -- the end -----------------------------------------------------------------------------------

    def _finish(self) -> RunResult:
        states = self._progress.states
        failed = next(((name, s.error) for name, s in states.items() if s.status == "failed"), None)
        waiting = [f"{name}: {(s.error or {}).get('what')}" for name, s in states.items() if s.status == "waiting"]
        error = {"subgoal": failed[0], **(failed[1] or {})} if failed else None
        status = "waiting" if waiting else "failed" if failed else "succeeded"
        pending = {s.name: s.action for s in self._plan if self._status(s.name) == "pending"}
        self._progress.finish(status, error, {} if waiting else pending)
        return RunResult(
            ok=status == "succeeded",
            outputs=dict(self._outputs),
            event_ids=tuple(s.call for s in states.values() if s.call is not None),
            session=self._graph.session_id,
            version=self._graph.version,
            goal_id=self._progress.goal_id,
            waiting=tuple(waiting),
            error=error,
        )


def _close_interrupted(step: Step, call: Node) -> None:
    """Give an interrupted call the receipt that it never got."""
    error: Mapping[str, Any] = {"code": "Interrupted", "what": "the process ended while the call was under way"}
    receipt = step.add_node(
        "receipt", {"call": call.id, "status": "unknown", "error": dict(error), "conditions": [], "seconds": None}
    )
    step.add_edge(call.id, receipt.id, "triggers")


async def _cancel(tasks: Mapping[asyncio.Task[None], str]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
