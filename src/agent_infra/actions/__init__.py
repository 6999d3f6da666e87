"""Layer 2, actions: what an agent may do, under which contract, and the evidence of what was done.

Tools and YAML contracts come in (`tools.register`, `actions.load`); a name or a spec comes in by `actions.execute`, and
leaves as an `ActionResult` whose evidence is stored under its content id.

    tools/        Tool, the `tool` mark, the registry
    language/     YAML -> Contract
    space/        what is legal at a version, and why the rest is not
    executors/    where tools run
    orchestrator  one execution, from the head to its evidence; execution: what is known of it meanwhile
    result        what is left of it in its caller's hands
    evidence/     what each execution leaves: bundles by content id, their chain, CAR files, IPFS, why
    outside       MCP servers and images that a project declares
    secrets       secret://NAME: put in where a tool runs, taken out of what is written
    library       ActionLibrary: the face
    schemas       JSON Schema: compiled, and what is wrong with a value
"""

from agent_infra.actions.evidence import EvidenceCheck, EvidenceStore, Outbox, PriceTable, Why, read_prices
from agent_infra.actions.language import Contract
from agent_infra.actions.library import ActionLibrary
from agent_infra.actions.orchestrator import Orchestrator
from agent_infra.actions.outside import OutsideTools
from agent_infra.actions.result import ActionResult
from agent_infra.actions.secrets import Secrets
from agent_infra.actions.space import ActionSpace, Verdict
from agent_infra.actions.tools import CallContext, Tool, ToolRegistry, make_tool, tool

__all__ = [
    "ActionLibrary",
    "ActionResult",
    "ActionSpace",
    "CallContext",
    "Contract",
    "EvidenceCheck",
    "EvidenceStore",
    "Orchestrator",
    "Outbox",
    "OutsideTools",
    "PriceTable",
    "Secrets",
    "Tool",
    "ToolRegistry",
    "Verdict",
    "Why",
    "make_tool",
    "read_prices",
    "tool",
]
