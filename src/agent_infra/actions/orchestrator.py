"""One execution of a contract, from the head of a graph to its evidence.

    1. under the session's lock: references are resolved and preconditions judged at the head, and the *intent* (a
    `call`
       node with its idempotency key) is written, or the refusal with its reasons
    2. no lock held: the executor runs the tool
    3. under the lock again: the output is checked, postconditions judged, and one step commits the receipt with its
       evidence, the result node and the edges

A refusal or failure is an outcome that is recorded like any other; exceptions are for callers that asked for something
impossible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, TypeAlias, cast

from agent_infra.actions.evidence import Chain, EvidenceStore, Kept, Tip, Told, Usage
from agent_infra.actions.executors import Call, ExecutorPool, Outcome
from agent_infra.actions.language import Contract, condition_text, judged
from agent_infra.actions.result import ActionResult
from agent_infra.actions.secrets import NO_SETTINGS, Sealed, Secrets
from agent_infra.actions.tools import Tool, ToolRegistry
from agent_infra.clock import MICROS, new_ulid, to_datetime
from agent_infra.content import fingerprint
from agent_infra.errors import AgentInfraError, LockTimeout, NotJson, SchemaMismatch, SecretMissing, SecretUnusable
from agent_infra.expressions import Expression
from agent_infra.observability import mark_failed, metrics, tool_span
from agent_infra.state import Node, StateEngine, StateGraph, Step, activation

OnCall: TypeAlias = Callable[[Step, Node], None]
OnReceipt: TypeAlias = Callable[[Step, ActionResult], None]
RECEIPT_WAIT: Final = 600.0
"""Seconds for which a call that has ended waits for another writer of its session."""
_OUTCOME_FIELDS: Final = tuple(each.name for each in fields(Outcome))
_HIDDEN: Final = "its parameters held a secret, which is not recorded"
UNSURE: Final = ("TimedOut", "ToolOutOfMemory", "WorkerDied", "ExecutorStopped")
"""Failures after which nobody knows what the tool had done; with effects `once` the outcome is then unknown."""


@dataclass(slots=True)
class Execution:
    """What is known of one execution so far.

    given, params    the parameters as the tool gets them, and as they are recorded: without secrets
    written          by name, the version that wrote each node of `inputs`
    start, previous  the step that it started from, and the bundles that its own follows
    """

    contract: Contract
    tool: Tool
    graph: StateGraph
    agent: str | None
    fill: Mapping[str, Any]
    about: Mapping[str, Any]
    key: str = ""
    started_at: str = ""
    bindings: dict[str, Any] = field(default_factory=dict[str, Any])
    inputs: dict[str, Node] = field(default_factory=dict[str, Node])
    written: dict[str, str] = field(default_factory=dict[str, str])
    given: dict[str, Any] = field(default_factory=dict[str, Any])
    params: dict[str, Any] = field(default_factory=dict[str, Any])
    settings: Sealed = NO_SETTINGS
    start: int = 0
    previous: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    usages: list[Usage] = field(default_factory=list[Usage])
    conditions: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    call: Node | None = None


class Orchestrator:
    """Executes contracts: the one way from a spec to a tool call."""

    def __init__(
        self,
        engine: StateEngine,
        tools: ToolRegistry,
        pool: ExecutorPool,
        evidence: EvidenceStore,
        secrets: Secrets | None = None,
    ) -> None:
        self._engine = engine
        self._secrets = secrets or Secrets()
        self._chain = Chain(engine)
        self._tools = tools
        self._pool = pool
        self._evidence = evidence

    async def execute(
        self,
        contract: Contract,
        graph: StateGraph,
        *,
        params: Mapping[str, Any] | None = None,
        agent: str | None = None,
        seed: Sequence[str] | None = None,
        about: Mapping[str, Any] | None = None,
        repeat: Node | None = None,
        on_call: OnCall | None = None,
        on_receipt: OnReceipt | None = None,
    ) -> ActionResult:
        """Execute a contract at the head of a graph.

        params      values for its open parameters
        seed        what makes this request this one, for the idempotency key; a fresh id unless given
        about       further fields of the call node (goal, subgoal)
        repeat      the interrupted call that this one repeats: same parameters, same idempotency key
        on_call, on_receipt   add to the very steps that write the intent and the receipt; a refusal has no intent

        Raises ToolUnknown, ContractDrift and what the state layer raises; everything else is in the result.
        """
        execution = Execution(
            contract, self._tools.get(contract.tool), graph, agent or graph.agent, dict(params or {}), dict(about or {})
        )
        if not self._evidence.is_prepared:
            await asyncio.to_thread(self._evidence.prepare)
        with graph.step(agent=execution.agent, durable=False) as step:
            refusal = self._prepare(execution, seed or (new_ulid(self._engine.clock.micros()),), repeat)
            call = execution.call = self._write_call(step, execution, repeat)
            refused = self._write_end(step, execution, refusal, on_receipt) if refusal is not None else None
            if refused is None and on_call is not None:
                on_call(step, call)
        self._follow(execution, execution.started_at, step, refused)
        if refused is None:
            if contract.effects == "once":
                await self._settled(graph)
            return await self._run(execution, on_receipt)
        await self._settled(graph)
        return replace(refused, version=step.version or "")

    async def _settled(self, graph: StateGraph) -> None:
        """Wait for the disk off the loop, so that parallel calls share an fsync."""
        if self._engine.durability == "group":
            await asyncio.to_thread(graph.flush)

    # -- before the call ---------------------------------------------------------------------------

    def _prepare(self, execution: Execution, seed: Sequence[str], repeat: Node | None) -> _Ending | None:
        """Resolve and judge at the head; the refusal, or None where the call may be made."""
        error = self._obstacle(execution, seed, repeat)
        if error is None:
            return None
        metrics().refused(execution.contract.name, error["code"])
        return _Ending("refused", None, error)

    def _obstacle(self, execution: Execution, seed: Sequence[str], repeat: Node | None) -> dict[str, Any] | None:
        contract, graph = execution.contract, execution.graph
        self._begin(execution)
        state, execution.inputs = activation(graph, contract.readings)
        execution.written = {name: self._written(graph, node) for name, node in execution.inputs.items()}
        now = to_datetime(self._engine.clock.micros()).isoformat()
        bindings = state | {"agent": {"name": execution.agent}, "now": now}
        try:
            execution.settings = self._secrets.seal(execution.tool.settings)
            missing = None
        except (SecretMissing, SecretUnusable) as error:
            missing = _told(error)
        if repeat is None:
            execution.given, problems = contract.resolve(bindings, execution.fill)
        else:
            execution.given, problems = dict(repeat.data["params"]), []
        execution.params = self._secrets.clean(execution.given)
        execution.bindings = self._secrets.clean(bindings | {"params": execution.given})
        execution.key = (
            repeat.data["idempotency_key"]
            if repeat is not None
            else fingerprint([graph.session_id, *seed, contract.name, execution.params, contract.tool_version])
        )
        if missing is not None:
            return missing
        if repeat is not None and repeat.data.get("hidden"):
            return _error("ParametersHidden", "the call can't be repeated as it was", [_HIDDEN])
        if problems:
            return _error("ParametersInvalid", f"the parameters are not what action {contract.name!r} takes", problems)
        wrong = execution.tool.check_input(execution.given)
        if wrong:
            return _error("InputInvalid", f"the parameters are not what {contract.tool!r} takes", wrong)
        failed = self._judge(execution, "pre", contract.preconditions)
        return _condition_error("PreconditionFailed", failed) if failed else None

    def _begin(self, execution: Execution) -> None:
        """Note the version that an execution starts from, and the bundles that its own will follow."""
        graph = execution.graph
        execution.started_at = str(graph.version)
        execution.start = self._engine.head(graph.session_id).step
        execution.previous = self._chain.previous(graph.session_id, execution.started_at)

    def _follow(self, execution: Execution, before: str, step: Step, ended: ActionResult | None) -> None:
        """Tell the chain of a step that was committed, and of the bundle that it brought."""
        if step.version is None:
            return
        number = int(step.version.rsplit(".", 2)[1])
        tip = Tip(ended.evidence_cid, ended.event_id, number, execution.start) if ended is not None else None
        self._chain.moved(execution.graph.session_id, before, step.version, tip)

    def _written(self, graph: StateGraph, node: Node) -> str:
        """The version that wrote a node which the head shows."""
        return self._engine.version_of(graph.session_id, self._engine.place_in_line(graph.session_id, node.step))

    def _judge(
        self, execution: Execution, kind: Literal["pre", "post"], conditions: Sequence[Expression]
    ) -> list[dict[str, Any]]:
        """Evaluate conditions into the log; those that don't hold."""
        log = [judged(kind, condition, execution.bindings) for condition in conditions]
        execution.conditions += log
        return [entry for entry in log if not entry["holds"]]

    def _write_call(self, step: Step, execution: Execution, repeat: Node | None) -> Node:
        contract = execution.contract
        inputs = list(execution.inputs.values())
        data = {
            "action": contract.name,
            "contract": contract.hash,
            "tool": contract.tool,
            "tool_version": contract.tool_version,
            "params": execution.params,
            **({"hidden": True} if execution.params is not execution.given else {}),
            "effects": contract.effects,
            "idempotency_key": execution.key,
            "inputs": [node.id for node in inputs],
            "attempt": repeat.data.get("attempt", 1) + 1 if repeat is not None else 1,
        } | self._secrets.clean(dict(execution.about))
        call = step.add_node("call", data, tool=contract.tool, labels=_inherited(inputs))
        for node in inputs:
            step.add_edge(call.id, node.id, "references")
        for kind, value in contract.references(execution.bindings):
            step.refer(kind, value)
        return call

    # -- the call and after ------------------------------------------------------------------------

    async def _run(self, execution: Execution, on_receipt: OnReceipt | None) -> ActionResult:
        contract, call = execution.contract, cast("Node", execution.call)
        with tool_span(contract.tool, call_id=call.id, session=execution.graph.session_id) as span:
            outcome = await self._pool.execute(
                Call(
                    tool=execution.tool,
                    params=execution.given,
                    call_id=call.id,
                    idempotency_key=execution.key,
                    idle=contract.timeout.idle,
                    total=contract.timeout.total,
                    on_progress=_collector(execution),
                    settings=execution.settings,
                )
            )
            outcome = self._without_secrets(outcome)
            if outcome.status != "succeeded":
                mark_failed(span, (outcome.error or {}).get("code", outcome.status))
        metrics().called(contract.tool, outcome.status, (outcome.finished - outcome.started) / MICROS)
        kept = _Stored(await self._keep(execution.params), await self._keep(outcome.output))
        result = await self._record(execution, outcome, kept, on_receipt)
        await self._settled(execution.graph)
        return result

    async def _keep(self, value: Any) -> Kept:
        """A value as the bundle holds it. A large one is written off the loop."""
        return Kept(value) if self._evidence.is_small(value) else await asyncio.to_thread(self._evidence.keep, value)

    def _without_secrets(self, outcome: Outcome) -> Outcome:
        """The outcome as it is recorded and given back: whatever of it holds a secret, without it."""
        found: dict[str, Any] = {}
        for name in _OUTCOME_FIELDS:
            value = getattr(outcome, name)
            tail = name in ("stdout", "stderr")
            cleaned = self._secrets.clean_tail(value) if tail else self._secrets.clean(value)
            if cleaned is not value:
                found[name] = cleaned
        return replace(outcome, **found) if found else outcome

    async def _record(
        self, execution: Execution, outcome: Outcome, kept: _Stored, on_receipt: OnReceipt | None
    ) -> ActionResult:
        """Commit the end of a call. Where another writer has the session, wait on a thread: neither the loop nor what is
        known of the outcome may be lost for want of a lock.
        """

        def write(timeout: float) -> ActionResult:
            graph = execution.graph
            with graph.step(agent=execution.agent, lock_wait_timeout=timeout, durable=False) as step:
                before = str(graph.version)
                ending = replace(self._judged(execution, outcome), kept=kept)
                result = self._write_end(step, execution, ending, on_receipt)
            self._follow(execution, before, step, result)
            return replace(result, version=step.version or "")

        try:
            return write(0)
        except LockTimeout:
            return await asyncio.to_thread(write, RECEIPT_WAIT)

    def _judged(self, execution: Execution, outcome: Outcome) -> _Ending:
        """The outcome after the output's schema and the postconditions had their say."""
        if outcome.status != "succeeded":
            unsure = (outcome.error or {}).get("code") in UNSURE and execution.contract.effects == "once"
            return _Ending("unknown" if unsure else outcome.status, None, outcome.error, outcome)
        wrong = execution.tool.check_output(outcome.output)
        if wrong:
            error = _error("OutputInvalid", f"{execution.tool.name!r} gave what its output schema forbids", wrong)
            return _Ending("failed", outcome.output, error, outcome)
        state, _ = activation(execution.graph, execution.contract.postconditions)
        execution.bindings |= self._secrets.clean(state) | {"result": outcome.output}
        failed = self._judge(execution, "post", execution.contract.postconditions)
        if failed:
            return _Ending("failed", outcome.output, _condition_error("PostconditionFailed", failed), outcome)
        return _Ending("succeeded", outcome.output, None, outcome)

    def _write_end(
        self, step: Step, execution: Execution, ending: _Ending, on_receipt: OnReceipt | None
    ) -> ActionResult:
        """Add result node, evidence, receipt and edges to an open step."""
        call = cast("Node", execution.call)
        node: Node | None = None
        if ending.status == "succeeded":
            node, ending = self._write_result(step, execution, ending)
        seconds = (ending.outcome.finished - ending.outcome.started) / MICROS if ending.outcome else None
        ending = replace(ending, error=self._secrets.clean(ending.error))
        evidence = self._evidence.record(self._told(execution, ending, seconds))
        receipt: dict[str, Any] = {
            "call": call.id,
            "status": ending.status,
            "error": ending.error,
            "evidence": evidence,
            "conditions": execution.conditions,
            "seconds": seconds,
        }
        written = step.add_node("receipt", receipt, labels=call.labels)
        step.add_edge(call.id, written.id, "triggers")
        result = ActionResult(
            ok=ending.status == "succeeded",
            status=ending.status,
            output=ending.output,
            error=ending.error,
            evidence_cid=cast("str", evidence["$cid"]),
            node=node,
            version="",
            event_id=call.id,
            conditions=tuple(execution.conditions),
            action=execution.contract.name,
            tool=execution.contract.tool,
            session=execution.graph.session_id,
            seconds=seconds,
        )
        if on_receipt is not None:
            on_receipt(step, result)
        return result

    def _write_result(self, step: Step, execution: Execution, ending: _Ending) -> tuple[Node | None, _Ending]:
        """The result node that the contract asks for; or the failure, where its own schema refuses the output."""
        contract, call = execution.contract, cast("Node", execution.call)
        if contract.result is None:
            return None, ending
        output = ending.output
        data = cast("dict[str, Any]", output) if isinstance(output, dict) else {"value": output}
        key = contract.result.key_for(execution.bindings | {"result": output})
        if key.error is not None:
            error = _error("ReferenceUnresolved", "the result's key has no value", [key.error])
            return None, replace(ending, status="failed", error=error)
        try:
            node = step.add_node(
                contract.result.type,
                data,
                key=None if key.value is None else str(key.value),
                ttl=contract.result.ttl,
                labels=call.labels,
            )
        except (SchemaMismatch, NotJson) as refused:
            error = _error("OutputInvalid", f"the output is no valid {contract.result.type!r} node", [str(refused)])
            return None, replace(ending, status="failed", error=error)
        step.add_edge(call.id, node.id, "causes")
        return node, ending

    def _told(self, execution: Execution, ending: _Ending, seconds: float | None) -> Told:
        kept = ending.kept or _Stored(self._evidence.keep(execution.params), Kept())
        return Told(
            session=execution.graph.session_id,
            version=execution.started_at,
            previous=execution.previous,
            call=cast("Node", execution.call),
            agent=execution.agent,
            contract=execution.contract,
            tool=execution.tool,
            key=execution.key,
            inputs=execution.inputs,
            written=execution.written,
            conditions=execution.conditions,
            status=ending.status,
            error=ending.error,
            seconds=seconds,
            cost=self._evidence.cost(execution.usages, ending.outcome.output if ending.outcome else None),
            params=kept.params,
            output=kept.output,
            outcome=ending.outcome,
        )


@dataclass(frozen=True, slots=True)
class _Stored:
    """Parameters and output as the bundle holds them."""

    params: Kept
    output: Kept


@dataclass(frozen=True, slots=True)
class _Ending:
    status: str
    output: Any
    error: dict[str, Any] | None
    outcome: Outcome | None = None
    kept: _Stored | None = None


def _error(code: str, what: str, reasons: Sequence[str]) -> dict[str, Any]:
    return {"code": code, "what": what, "why": "; ".join(reasons)}


def _told(error: AgentInfraError) -> dict[str, Any]:
    return _error(error.code, error.what, [error.why] if error.why else []) | (
        {"mend": error.mend} if error.mend else {}
    )


def _collector(execution: Execution) -> Callable[[Any], None]:
    """Gathers what the tool says that it used."""

    def collect(update: Any) -> None:
        if isinstance(update, dict):
            execution.usages.append(Usage(**cast("dict[str, Any]", update)["usage"]))

    return collect


def _condition_error(code: str, failed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    what = "a condition does not hold" if len(failed) == 1 else f"{len(failed)} conditions do not hold"
    return _error(code, what, [condition_text(entry) for entry in failed])


def _inherited(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Labels go on to whatever is made from a node."""
    return tuple(sorted({label for node in nodes for label in node.labels}))
