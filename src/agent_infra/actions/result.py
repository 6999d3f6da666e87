"""What one execution leaves in its caller's hands."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

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

    def __str__(self) -> str:
        if self.ok:
            return json.dumps(self.output, ensure_ascii=False)
        error = self.error or {}
        why = f": {error['why']}" if error.get("why") else ""
        return f"{self.status}: [{error.get('code')}] {error.get('what')}{why}"
