"""What a run leaves in its caller's hands."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RunResult:
    """The outcome of executing a plan. Prints as its output, or, where it has none, as the reason.

    ok         every subgoal succeeded
    outputs    the output of each subgoal that succeeded
    event_ids  the calls that were made, by subgoal: what signals and rewards refer to
    session    the session that it ran in; `version` its head when the run ended
    healed     what was repaired on the way
    waiting    what the run waits for, in words; empty when it ended
    error      the first failure as JSON values: subgoal, code, what, why
    """

    ok: bool
    outputs: dict[str, Any]
    event_ids: tuple[str, ...]
    session: str
    version: str
    goal_id: str
    healed: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    error: dict[str, Any] | None = None

    def __str__(self) -> str:
        if self.ok:
            shown = next(iter(self.outputs.values())) if len(self.outputs) == 1 else self.outputs
            return json.dumps(shown, ensure_ascii=False)
        if self.waiting:
            return "waiting: " + "; ".join(self.waiting)
        error = self.error or {}
        why = f": {error['why']}" if error.get("why") else ""
        return f"failed at {error.get('subgoal', 'the start')}: [{error.get('code')}] {error.get('what')}{why}"
