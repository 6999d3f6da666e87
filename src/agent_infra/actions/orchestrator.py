"""One execution of a contract, from the head of a graph to its evidence.

    1. under the session's lock: references are resolved and preconditions judged at the head, and the *intent* (a
       `call` node with its idempotency key) is written, or the refusal with its reasons
    2. no lock held: the executor runs the tool
    3. under the lock again: the output is checked, postconditions judged, and one step commits the receipt with its
       evidence, the result node and the edges

A refusal or failure is an outcome that is recorded like any other; exceptions are for callers that asked for something
impossible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias, cast

from agent_infra.actions.evidence import Chain, EvidenceStore, Kept, Tip
from agent_infra.actions.execution import (
    Ending,
    Execution,
    Proposal,
    Stored,
    as_error,
    conditions_failed,
    confidence_problem,
    error_of,
    is_retried,
    told,
    without_secrets,
)
from agent_infra.actions.executors import Call, ExecutorPool, Outcome, Waiting
from agent_infra.actions.language import Contract, Retries, judged
from agent_infra.actions.result import ActionResult
from agent_infra.actions.secrets import Secrets
from agent_infra.actions.space import Validators
from agent_infra.actions.tools import Tool, ToolRegistry
from agent_infra.clock import MICROS, new_ulid, to_datetime
from agent_infra.content import fingerprint
from agent_infra.errors import (
    ContractDrift,
    LockTimeout,
    NotJson,
    SchemaMismatch,
    SecretMissing,
    SecretUnusable,
    ToolInvalid,
    ToolUnknown,
)
from agent_infra.expressions import Expression
from agent_infra.observability import get_logger, mark_failed, metrics, tool_span
from agent_infra.state import Node, StateEngine, StateGraph, Step, activation

OnCall: TypeAlias = Callable[[Step, Node], None]
OnReceipt: TypeAlias = Callable[[Step, ActionResult], None]
RECEIPT_WAIT: Final = 600.0
"""Seconds for which a call that has ended waits for another writer of its session."""
_log = get_logger(__name__)
_HIDDEN: Final = "its parameters held a secret, which is not recorded"
UNSURE: Final = ("TimedOut", "ToolOutOfMemory", "WorkerDied", "ExecutorStopped")
"""Failures after which nobody knows what the tool had done; with effects `once` the outcome is then unknown."""


class Orchestrator:
    """Executes contracts: the one way from a spec to a tool call."""

    def __init__(
        self,
        engine: StateEngine,
        tools: ToolRegistry,
        pool: ExecutorPool,
        evidence: EvidenceStore,
        secrets: Secrets | None = None,
        validators: Validators | None = None,
    ) -> None:
        self.validators = validators or Validators()
        self._engine = engine
        self._secrets = secrets or Secrets()
        self._chain = Chain(engine)
        self._tools = tools
        self._pool = pool
        self._evidence = evidence

    def waiting(self) -> list[Waiting]:
        """The calls that wait for an executor."""
        return self._pool.waiting()

    def now(self) -> str:
        """The time as expressions read it."""
        return to_datetime(self._engine.clock.micros()).isoformat()

    async def execute(
        self,
        contract: Contract,
        graph: StateGraph,
        *,
        params: Mapping[str, Any] | None = None,
        agent: str | None = None,
        proposal: Proposal | None = None,
        seed: Sequence[str] | None = None,
        about: Mapping[str, Any] | None = None,
        repeat: Node | None = None,
        on_call: OnCall | None = None,
        on_receipt: OnReceipt | None = None,
    ) -> ActionResult:
        """Execute a contract at the head of a graph, again after a failure that its `retries` name.

        params      values for its open parameters
        proposal    the policy's spec that asks for it; its confidence is judged by the contract's rule
        seed        what makes this request this one, for the idempotency key; a fresh id unless given
        about       further fields of the call node (goal, subgoal)
        repeat      the interrupted call that this one repeats: same parameters, same idempotency key
        on_call     adds to the very step that writes an intent: once for each try; a refusal has none
        on_receipt  adds to the very step that writes the last receipt

        Raises ToolUnknown, ContractDrift and what the state layer raises; everything else is in the result.
        """
        asked = Execution(
            contract, self._tool_of(contract), graph, agent or graph.agent, dict(params or {}), dict(about or {})
        )
        asked.proposal = proposal
        key = seed or (new_ulid(self._engine.clock.micros()),)
        if not self._evidence.is_prepared:
            await asyncio.to_thread(self._evidence.prepare)
        while True:
            execution = replace(asked, inputs={}, written={}, usages=[], conditions=[])
            result = await self._try(execution, key, repeat, on_call, on_receipt)
            if not is_retried(execution, result):
                return result
            wait = cast("Retries", contract.retries).wait
            code = (result.error or {}).get("code")
            _log.warning("call.retried", action=contract.name, call=result.event_id, code=code, after_seconds=wait)
            await asyncio.sleep(wait)
            repeat, asked.repeated = execution.call, execution.given

    async def _try(
        self,
        execution: Execution,
        seed: Sequence[str],
        repeat: Node | None,
        on_call: OnCall | None,
        on_receipt: OnReceipt | None,
    ) -> ActionResult:
        """One call, or its refusal."""
        contract, graph = execution.contract, execution.graph
        with graph.step(agent=execution.agent, durable=False) as step:
            refusal = self._prepare(execution, seed, repeat)
            call = execution.call = self._write_call(step, execution)
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

    def _tool_of(self, contract: Contract) -> Tool:
        """The tool that a contract was compiled for. Raises ToolUnknown, ContractDrift where it is another by now."""
        tool = self._tools.get(contract.tool)
        if not contract.is_for(tool):
            raise ContractDrift(
                f"action {contract.name!r} was compiled for another state of the tool {tool.name!r}",
                why=_difference(contract, tool),
                mend="Load the action again, which checks it against the tool as it is now.",
                facts={
                    "action": contract.name,
                    "tool": tool.name,
                    "compiled": contract.tool_version,
                    "now": tool.version,
                },
            )
        return tool

    async def _settled(self, graph: StateGraph) -> None:
        """Wait for the disk off the loop, so that parallel calls share an fsync."""
        if self._engine.durability == "group":
            await asyncio.to_thread(graph.flush)

    # -- before the call ---------------------------------------------------------------------------

    def _prepare(self, execution: Execution, seed: Sequence[str], repeat: Node | None) -> Ending | None:
        """Resolve and judge at the head; the refusal, or None where the call may be made."""
        error = self._obstacle(execution, seed, repeat)
        if error is None:
            return None
        metrics().refused(execution.contract.name, error["code"])
        return Ending("refused", None, error)

    def _obstacle(self, execution: Execution, seed: Sequence[str], repeat: Node | None) -> dict[str, Any] | None:
        contract, graph = execution.contract, execution.graph
        execution.attempt = repeat.data.get("attempt", 1) + 1 if repeat is not None else 1
        self._begin(execution)
        state, execution.inputs = activation(graph, contract.readings)
        execution.written = {name: self._written(graph, node) for name, node in execution.inputs.items()}
        bindings = state | {"agent": {"name": execution.agent}, "now": self.now()}
        try:
            if repeat is not None:  # the tool may be another by now
                execution.tool = self._tool_of(contract)
            execution.settings = self._secrets.seal(execution.tool.settings)
            missing = None
        except (ToolUnknown, ContractDrift, SecretMissing, SecretUnusable) as error:
            missing = as_error(error)
        problems: list[str] = []
        if repeat is None:
            execution.given, problems = contract.resolve(bindings, execution.fill)
        else:
            execution.given = dict(repeat.data["params"]) if execution.repeated is None else execution.repeated
        execution.params = self._secrets.clean(execution.given)
        execution.bindings = self._secrets.clean(bindings | {"params": execution.given})
        execution.key = (
            repeat.data["idempotency_key"]
            if repeat is not None
            else fingerprint([graph.session_id, *seed, contract.name, execution.params, contract.tool_version])
        )
        if missing is not None:
            return missing
        if repeat is not None and repeat.data.get("hidden") and execution.repeated is None:
            return error_of("ParametersHidden", "the call can't be repeated as it was", [_HIDDEN])
        if problems:
            return error_of(
                "ParametersInvalid", f"the parameters are not what action {contract.name!r} takes", problems
            )
        wrong = execution.tool.check_input(execution.given)
        if wrong:
            return error_of("InputInvalid", f"the parameters are not what {contract.tool!r} takes", wrong)
        failed = self._judge(execution, "pre", contract.preconditions)
        if failed:
            return conditions_failed("PreconditionFailed", failed)
        wrong = self.validators.problems(contract.name, execution.given, graph)
        if wrong:
            return error_of("ValidatorRefused", "a validator of the user's own refuses the call", wrong)
        return confidence_problem(execution)

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
        if ended is not None:
            self._evidence.recorded(ended.evidence_cid)

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

    def _write_call(self, step: Step, execution: Execution) -> Node:
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
            "attempt": execution.attempt,
            **execution.proposed(),
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
            outcome = without_secrets(await self._call(execution), self._secrets)
            if outcome.status != "succeeded":
                mark_failed(span, (outcome.error or {}).get("code", outcome.status))
        metrics().called(contract.tool, outcome.status, (outcome.finished - outcome.started) / MICROS)
        kept = Stored(await self._keep(execution.params), await self._keep(outcome.output))
        result = await self._record(execution, outcome, kept, on_receipt)
        await self._settled(execution.graph)
        return result

    async def _call(self, execution: Execution) -> Outcome:
        contract = execution.contract
        call = Call(
            tool=execution.tool,
            params=execution.given,
            call_id=cast("Node", execution.call).id,
            idempotency_key=execution.key,
            idle=contract.timeout.idle,
            total=contract.timeout.total,
            on_progress=execution.note_usage,
            resources=contract.resources,
            settings=execution.settings,
        )
        try:
            return await self._pool.execute(call)
        except (SecretMissing, SecretUnusable) as error:  # one that only the executor asks for
            now = self._engine.clock.micros()
            return Outcome("failed", None, as_error(error), now, now, self._pool.choose(execution.tool).name)
        except ToolInvalid as error:  # no executor takes it, or could ever hold what it asks for
            now = self._engine.clock.micros()
            return Outcome("failed", None, as_error(error), now, now, "")

    async def _keep(self, value: Any) -> Kept:
        """A value as the bundle holds it. A large one is written off the loop."""
        return Kept(value) if self._evidence.is_small(value) else await asyncio.to_thread(self._evidence.keep, value)

    async def _record(
        self, execution: Execution, outcome: Outcome, kept: Stored, on_receipt: OnReceipt | None
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

    def _judged(self, execution: Execution, outcome: Outcome) -> Ending:
        """The outcome after the output's schema and the postconditions had their say."""
        if outcome.status != "succeeded":
            unsure = (outcome.error or {}).get("code") in UNSURE and execution.contract.effects == "once"
            return Ending("unknown" if unsure else outcome.status, None, outcome.error, outcome)
        wrong = execution.tool.check_output(outcome.output)
        if wrong:
            error = error_of("OutputInvalid", f"{execution.tool.name!r} gave what its output schema forbids", wrong)
            return Ending("failed", outcome.output, error, outcome)
        state, _ = activation(execution.graph, execution.contract.postconditions)
        execution.bindings |= self._secrets.clean(state) | {"result": outcome.output}
        failed = self._judge(execution, "post", execution.contract.postconditions)
        if failed:
            return Ending("failed", outcome.output, conditions_failed("PostconditionFailed", failed), outcome)
        return Ending("succeeded", outcome.output, None, outcome)

    def _write_end(
        self, step: Step, execution: Execution, ending: Ending, on_receipt: OnReceipt | None
    ) -> ActionResult:
        """Add result node, evidence, receipt and edges to an open step."""
        call = cast("Node", execution.call)
        node: Node | None = None
        if ending.status == "succeeded":
            node, ending = self._write_result(step, execution, ending)
        seconds = ending.seconds
        ending = replace(ending, error=self._secrets.clean(ending.error))
        evidence = self._evidence.record(told(execution, ending, self._evidence), step)
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
        if on_receipt is not None and not is_retried(execution, result):
            on_receipt(step, result)
        return result

    def _write_result(self, step: Step, execution: Execution, ending: Ending) -> tuple[Node | None, Ending]:
        """The result node that the contract asks for; or the failure, where its own schema refuses the output."""
        contract, call = execution.contract, cast("Node", execution.call)
        if contract.result is None:
            return None, ending
        output = ending.output
        data = cast("dict[str, Any]", output) if isinstance(output, dict) else {"value": output}
        key = contract.result.key_for(execution.bindings | {"result": output})
        if key.error is not None:
            error = error_of("ReferenceUnresolved", "the result's key has no value", [key.error])
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
            error = error_of("OutputInvalid", f"the output is no valid {contract.result.type!r} node", [str(refused)])
            return None, replace(ending, status="failed", error=error)
        step.add_edge(call.id, node.id, "causes")
        return node, ending


def _difference(contract: Contract, tool: Tool) -> str:
    """What makes a tool another one than a contract was compiled for."""
    if tool.version != contract.tool_version:
        return f"for version {contract.tool_version}, and it is {tool.version} now"
    if tool.input_schema != contract.input_schema:
        return f"its parameters were changed, and it is still called version {tool.version}"
    return f"for the effects `{contract.effects}`, and it declares `{tool.effects}` now"


def _inherited(nodes: Sequence[Node]) -> tuple[str, ...]:
    """Labels go on to whatever is made from a node."""
    return tuple(sorted({label for node in nodes for label in node.labels}))
