"""The action library, the face of layer 2: contracts by name, what is legal now, and execution."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from agent_infra import background
from agent_infra.actions.evidence import EvidenceStore
from agent_infra.actions.execution import Proposal
from agent_infra.actions.executors import Waiting
from agent_infra.actions.language import (
    Compiled,
    Contract,
    NodeSchemas,
    ProgramCache,
    compile_contracts,
    implied_contract,
)
from agent_infra.actions.loading import ActionFiles, Source
from agent_infra.actions.orchestrator import OnCall, OnReceipt, Orchestrator
from agent_infra.actions.result import ActionResult
from agent_infra.actions.space import SPEC_KEYS, ActionSpace, Check, action_space
from agent_infra.actions.tools import Tool, ToolRegistry
from agent_infra.documents import Document, parse_documents
from agent_infra.errors import ContractDrift, ContractErrors, ContractUnknown, NodeUnknown, SpecInvalid, ToolUnknown
from agent_infra.observability import get_logger
from agent_infra.state import Node, StateGraph, activation

_log = get_logger(__name__)


class ActionLibrary:
    """The contracts of a home.

    schemas   the declared node types, against which references are checked; none unless given
    cache     keeps compiled programs; nothing is kept unless given
    """

    def __init__(
        self,
        tools: ToolRegistry,
        orchestrator: Orchestrator,
        evidence: EvidenceStore,
        *,
        schemas: NodeSchemas | None = None,
        cache: ProgramCache | None = None,
    ) -> None:
        self._tools = tools
        self._files = ActionFiles(tools, schemas, cache)
        self._templates: dict[str, Source] = {}
        self._implied: dict[str, tuple[Tool, Contract]] = {}
        self._orchestrator = orchestrator
        self._evidence = evidence
        self._contracts: dict[str, Contract] = {}
        self._revision = tools.revision
        self._drifted: dict[str, str] = {}

    # -- contracts ---------------------------------------------------------------------------------

    def load(self, path_or_text: str | Path) -> list[Contract]:
        """Compile and add contracts: a file, a folder with the YAML files below it, or YAML text. All of it is added, or
        nothing. A contract or template replaces the one of its name from an earlier load.

        Raises FileMissing, ContractErrors, ToolUnknown.
        """
        contracts, templates = self._files.load(path_or_text, self._contracts, self._templates)
        self._contracts.update({contract.name: contract for contract in contracts})
        self._templates.update(templates)
        return contracts

    def check(self, path_or_text: str | Path, beside: str | Path | None = None) -> Compiled:
        """Compile without adding, and without raising for what is wrong: contracts, problems, warnings.

        `beside` is a folder whose actions and templates may be named. Raises FileMissing.
        """
        return self._files.check(path_or_text, beside)

    def compile(self, documents: Sequence[Document]) -> list[Contract]:
        """Compile contracts without adding them. Raises ContractErrors with every problem, ToolUnknown."""
        return self._files.compile(documents, self._contracts, self._templates)

    def recompile(self, name: str, source: str, hash: str) -> Contract:
        """A contract from the source that a run recorded. Raises ContractDrift where it no longer means the same."""
        try:
            contracts = compile_contracts(parse_documents(source), self._tools)
        except ContractErrors as error:
            raise _drifted(name, str(error.problems[0].message), hash, None) from error
        now = next((contract.hash for contract in contracts if contract.name == name), None)
        found = next((contract for contract in contracts if contract.hash == hash), None)
        if found is None:
            raise _drifted(name, "its tool's version or schemas have changed since", hash, now)
        return found

    def get(self, name: str) -> Contract:
        """A contract by its name, or the implied one of a tool that has no action file. Raises ContractUnknown."""
        self._follow_tools()
        found = self._contracts.get(name)
        if found is not None:
            return found
        of_tool = [contract for contract in self._contracts.values() if contract.tool == name]
        if len(of_tool) == 1:
            return of_tool[0]
        if not of_tool and name in self._tools:
            return self._implied_contract(self._tools.get(name))
        near = difflib.get_close_matches(name, self.names(), n=1)
        hint = f"Did you mean {near[0]!r}?" if near else f"Known: {', '.join(self.names()) or 'none'}."
        several = f"{len(of_tool)} actions use the tool {name!r}; name one of them" if of_tool else None
        raise ContractUnknown(f"there is no action {name!r}", why=several, mend=hint, facts={"action": name})

    def names(self) -> list[str]:
        """The names that can be executed: loaded contracts, and tools without one."""
        covered = {contract.tool for contract in self._contracts.values()}
        return sorted({*self._contracts, *(name for name in self._tools.names() if name not in covered)})

    def _follow_tools(self) -> None:
        """Compile the contracts anew whose tools have changed. One that no longer compiles stays as it was: executing
        it raises ContractDrift.
        """
        if self._revision == self._tools.revision:
            return
        self._revision = self._tools.revision
        self._drifted = {}
        for name, contract in self._contracts.items():
            if not contract.is_for(self._tools.find(contract.tool)):
                try:
                    [found] = compile_contracts(parse_documents(contract.source), self._tools)
                except (ContractErrors, ToolUnknown) as error:
                    self._drifted[name] = f"its tool {contract.tool!r} is no longer the one that it was compiled for"
                    mend = "mend the action file, or bring the tool back"
                    _log.warning("action_drifted", action=name, tool=contract.tool, why=str(error), mend=mend)
                else:
                    self._contracts[name] = replace(found, file=contract.file)

    def _implied_contract(self, tool: Tool) -> Contract:
        known = self._implied.get(tool.name)
        if known is None or known[0] is not tool:
            known = self._implied[tool.name] = (tool, implied_contract(tool))
        return known[1]

    # -- what is legal -----------------------------------------------------------------------------

    def space(self, graph: StateGraph, agent: str | None = None) -> ActionSpace:
        """What may be done at a graph's version: legal contracts, and why the others are not."""
        contracts = [self.get(name) for name in self.names()]
        return self._space(contracts, graph, agent)

    def add_validator(self, name: str, check: Check, action: str | None = None) -> None:
        """Register a check of one's own: from a call's complete parameters and the graph to what is wrong (a text,
        several, or nothing). It is asked about every spec of an action, or of all, from now on: by the space and again
        before execution. Raises DuplicateConflict for a name that is taken.
        """
        self._orchestrator.validators.add(name, check, action)

    def remove_validator(self, name: str) -> bool:
        """Ask a check no more; whether there was one of that name."""
        return self._orchestrator.validators.remove(name)

    # -- execution ---------------------------------------------------------------------------------

    def execute(
        self, name_or_spec: str | Contract | Mapping[str, Any], graph: StateGraph, agent: str | None = None
    ) -> ActionResult:
        """Execute an action at the head of a graph and wait for its outcome: a name, or a spec with parameters.

        A refusal or a failing tool is in the result. Raises ContractUnknown, SpecInvalid, ToolUnknown.
        """
        return background.wait_for(self._execute(name_or_spec, graph, agent=agent), twin="aexecute")

    async def aexecute(
        self,
        name_or_spec: str | Contract | Mapping[str, Any],
        graph: StateGraph,
        agent: str | None = None,
        *,
        params: Mapping[str, Any] | None = None,
        seed: Sequence[str] | None = None,
        about: Mapping[str, Any] | None = None,
        repeat: Node | None = None,
        on_call: OnCall | None = None,
        on_receipt: OnReceipt | None = None,
    ) -> ActionResult:
        """`execute` for running loops; the further arguments are those of `Orchestrator.execute`."""
        return await background.on_loop(
            self._execute(
                name_or_spec,
                graph,
                agent=agent,
                params=params,
                seed=seed,
                about=about,
                repeat=repeat,
                on_call=on_call,
                on_receipt=on_receipt,
            )
        )

    def waiting(self) -> list[Waiting]:
        """The calls that wait for an executor, oldest first, each with what it waits for. From any thread."""
        return self._orchestrator.waiting()

    def compensate(self, call_id: str, graph: StateGraph, agent: str | None = None) -> ActionResult:
        """Undo a call that succeeded by the action that its contract names for that. The idempotency key is the same
        however often it is asked for, and the new call's node says which one it undoes.

        Raises NodeUnknown for no such success, ContractUnknown where nothing undoes the action, SpecInvalid where what
        fills its parameters has no value.
        """
        return background.wait_for(self._compensate(call_id, graph, agent), twin="acompensate")

    async def acompensate(self, call_id: str, graph: StateGraph, agent: str | None = None) -> ActionResult:
        """`compensate` for running loops."""
        return await background.on_loop(self._compensate(call_id, graph, agent))

    async def _compensate(self, call_id: str, graph: StateGraph, agent: str | None) -> ActionResult:
        output, call = self.output_of(call_id, graph), graph.node(call_id)
        undo = self.get(call.data["action"]).compensation
        if undo is None:
            raise ContractUnknown(
                f"nothing undoes the action {call.data['action']!r}",
                mend="Name an action under `compensation` in its file.",
                facts={"action": call.data["action"]},
            )
        state, _ = activation(graph, [undo.fill])
        filled = undo.fill.resolve(state | {"params": call.data["params"], "result": output})
        if filled.error is not None:
            raise SpecInvalid(f"the parameters of {undo.action!r} have no value", why=filled.error)
        return await self._orchestrator.execute(
            self.get(undo.action),
            graph,
            agent=agent,
            params=cast("dict[str, Any]", filled.value),
            seed=("compensation", call_id),
            about={"compensates": call_id},
        )

    async def _execute(
        self, name_or_spec: str | Contract | Mapping[str, Any], graph: StateGraph, **options: Any
    ) -> ActionResult:
        if isinstance(name_or_spec, Contract):
            contract = name_or_spec
        elif isinstance(name_or_spec, str):
            contract = self.get(name_or_spec)
        else:
            contract = self._of_spec(name_or_spec)
            needs = self._space([contract], graph, options.get("agent")).validate(name_or_spec).needs
            if needs not in (None, "ask_human"):
                options["about"] = {**(options.get("about") or {}), "instead_of": contract.name}
                contract = self.get(needs)
            else:
                options["params"] = {**name_or_spec.get("params", {}), **(options.get("params") or {})}
                options["proposal"] = Proposal(name_or_spec.get("confidence"))
        return await self._orchestrator.execute(contract, graph, **options)

    def _space(self, contracts: Sequence[Contract], graph: StateGraph, agent: str | None) -> ActionSpace:
        return action_space(contracts, graph, agent or graph.agent, self._orchestrator.validators, self._drifted)

    def _of_spec(self, spec: Mapping[str, Any]) -> Contract:
        problem = _spec_problem(spec)
        if problem is not None:
            raise SpecInvalid(
                "this is not an action spec",
                why=problem,
                mend='Write {"tool": name, "params": {…}, "confidence": 0…1}.',
                facts={"spec": repr(dict(spec))},
            )
        return self.get(spec["tool"])

    def output_of(self, call_id: str, graph: StateGraph) -> Any:
        """What a finished call gave back, from its evidence. Raises NodeUnknown where it has no receipt."""
        for edge in graph.edges(call_id):
            if edge.source == call_id and edge.type == "triggers":
                receipt = graph.node(edge.target)
                if receipt.type == "receipt" and receipt.data["status"] == "succeeded":
                    return self._evidence.output(receipt.data["evidence"]["$cid"])
        raise NodeUnknown(f"call {call_id} has no receipt of a success", facts={"call": call_id})


def _spec_problem(spec: Mapping[str, Any]) -> str | None:
    """What keeps a mapping from being a spec, before any contract is asked."""
    strange = sorted(str(key) for key in spec if key not in SPEC_KEYS)
    if strange:
        return f"it has the unknown keys {', '.join(strange)}"
    if not isinstance(spec.get("tool"), str):
        return "`tool` must be the name of an action"
    if not isinstance(spec.get("params", {}), Mapping):
        return "`params` must be a mapping"
    sure = spec.get("confidence")
    is_number = isinstance(sure, int | float) and not isinstance(sure, bool) and 0 <= sure <= 1
    return None if sure is None or is_number else f"`confidence` must be a number from 0 to 1, not {sure!r}"


def _drifted(name: str, why: str, recorded: str, now: str | None) -> ContractDrift:
    return ContractDrift(
        f"action {name!r} no longer means what it meant when the run began",
        why=why,
        mend="Bring the tool back to its former version, or start the goal anew.",
        facts={"recorded": recorded, "now": now},
    )
