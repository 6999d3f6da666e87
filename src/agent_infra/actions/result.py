"""What one execution leaves in its caller's hands."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from agent_infra import errors
from agent_infra.state import Node


@dataclass(frozen=True, slots=True)
class ActionResult:
    """The outcome of one execution. Prints as its output, or as the reason for which there is none.

    ok            it succeeded, postconditions included
    status        succeeded | failed | refused | timed_out | unknown (whether it took effect)
    output        what the tool gave
    error         code, what and why, as JSON values; None on success
    evidence_cid  the bundle that proves it
    node          the result node, where the contract writes one
    version       the head after the execution
    event_id      the call's id: what signals and rewards refer to
    conditions    each condition with its values and verdict
    seconds       how long the tool ran; None where it did not run
    """

    ok: bool
    status: str
    output: Any
    error: dict[str, Any] | None
    evidence_cid: str
    node: Node | None
    version: str
    event_id: str
    conditions: tuple[dict[str, Any], ...]
    action: str
    tool: str
    session: str
    seconds: float | None = None

    @property
    def event_ids(self) -> tuple[str, ...]:
        """The same event as a tuple, so that a result of one call is woven like that of a run."""
        return (self.event_id,)

    def checked(self) -> ActionResult:
        """This result, for callers that go on with its output only where there is one.

        Raises the class of `agent_infra.errors` that bears the recorded error's code (`ToolOutOfMemory`,
        `ApprovalNeeded`, `ContractDrift`, …), and `ActionFailed` for every other way in which an execution ends.
        """
        if self.ok:
            return self
        error = self.error or {}
        facts = {name: value for name, value in error.items() if name not in ("what", "why", "mend")}
        kind = _exceptions().get(str(error.get("code")))
        if kind is not None:
            del facts["code"]
        raise (kind or errors.ActionFailed)(
            f"{self.action} {self.status}: {error.get('what')}",
            where=f"session {self.session}",
            why=error.get("why") or None,
            mend=error.get("mend"),
            facts=facts | {"status": self.status, "evidence_cid": self.evidence_cid},
        )

    def __str__(self) -> str:
        if self.ok:
            return json.dumps(self.output, ensure_ascii=False)
        error = self.error or {}
        why = f": {error['why']}" if error.get("why") else ""
        return f"{self.status}: [{error.get('code')}] {error.get('what')}{why}"


def _exceptions() -> dict[str, type[errors.AgentInfraError]]:
    """The classes that can say what an execution ended with, by code; a file's problems are said in another way."""
    classes = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return {
        kind.__name__: kind
        for kind in classes
        if issubclass(kind, errors.AgentInfraError) and not issubclass(kind, errors.ProblemsError)
    }
