"""The node types that every home knows: what the layers write, and a few that most agents need.

Each is JSON Schema draft 2020-12, open (further fields are allowed) and says what must be there.
"""

from __future__ import annotations

from typing import Any, Final

_TEXT: Final = {"type": "string"}
_OBJECT: Final = {"type": "object"}
_CID: Final = {
    "type": "object",
    "required": ["$cid", "bytes", "media_type"],
    "properties": {"$cid": _TEXT, "bytes": {"type": "integer", "minimum": 0}, "media_type": _TEXT},
}
_PROMISES: Final = ("BACKWARD", "FORWARD", "FULL")
_RUN_STATUS: Final = {"enum": ["running", "succeeded", "failed", "waiting", "cancelled"]}


def _record(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required, "properties": properties}


STANDARD: Final[dict[str, dict[str, Any]]] = {
    # what agents and users bring
    "user_intent": _record([], query=_TEXT, confidence={"type": "number", "minimum": 0, "maximum": 1}),
    "api_response": _OBJECT,
    "document": _record([], title=_TEXT, content=_CID),
    "note": _record([], text=_TEXT),
    # what the state layer writes
    "schema": _record(
        ["name", "version", "schema", "hash"],
        name=_TEXT,
        version={"type": "integer", "minimum": 1},
        schema={"type": ["object", "boolean"]},
        hash=_TEXT,
        compatibility={"enum": ["NONE", *_PROMISES, *(f"{promise}_TRANSITIVE" for promise in _PROMISES)]},
        tags={"type": "array", "items": _TEXT},
        compatible_with={"type": "array", "items": {"type": "integer"}},
        deprecated={"type": ["string", "null"]},
    ),
    "migration": _record(
        ["name", "from", "to", "kind"],
        name=_TEXT,
        to={"type": "integer", "minimum": 0},
        kind={"enum": ["mapping", "python"]},
        mapping=_OBJECT,
        function=_TEXT,
        **{"from": {"type": "integer", "minimum": 0}},
    ),
    "move": _record(["session", "from", "to"], session=_TEXT, **{"from": _TEXT, "to": _TEXT}),
    "erasure": _record(["session", "node", "type", "why"], session=_TEXT, node=_TEXT, type=_TEXT, why=_TEXT),
    "setting": _record(["name"], name=_TEXT),
    # what the action layer writes
    "call": _record(
        ["action", "contract", "tool", "tool_version", "params", "effects", "idempotency_key"],
        action=_TEXT,
        contract=_TEXT,
        tool=_TEXT,
        tool_version=_TEXT,
        params=_OBJECT,
        effects={"enum": ["none", "idempotent", "once"]},
        idempotency_key=_TEXT,
        inputs={"type": "array", "items": _TEXT},
        attempt={"type": "integer", "minimum": 1},
    ),
    "receipt": _record(
        ["call", "status", "conditions"],
        call=_TEXT,
        status={"enum": ["succeeded", "failed", "refused", "timed_out", "unknown"]},
        error={"type": ["object", "null"]},
        evidence=_CID,
        conditions={"type": "array", "items": _OBJECT},
        seconds={"type": ["number", "null"], "minimum": 0},
    ),
    # what the reward layer writes, in ledgers
    "event": _record(["event_id", "session_id"], event_id=_TEXT, session_id=_TEXT),
    "signal": _record(
        ["source", "value", "event_id"], source=_TEXT, value={"type": ["number", "null"]}, event_id=_TEXT
    ),
    "withdrawal": _record(["signal", "source", "why", "event_id"], signal=_TEXT, source=_TEXT, event_id=_TEXT),
    "woven_reward": _record(
        ["event_id", "status", "micro"], event_id=_TEXT, status=_TEXT, micro={"type": ["integer", "null"]}
    ),
    "reward_use": _record(["event_id", "used", "by", "kind"], event_id=_TEXT, used=_TEXT, by=_TEXT, kind=_TEXT),
    # what the scheduler writes
    "goal": _record(["name", "goal_id", "definition", "status"], name=_TEXT, goal_id=_TEXT, status=_RUN_STATUS),
    "plan": _record(
        ["goal_id", "subgoals", "contracts"],
        goal_id=_TEXT,
        subgoals={"type": "array", "items": _OBJECT},
        contracts=_OBJECT,
    ),
    "subgoal": _record(
        ["goal_id", "name", "action", "status"],
        goal_id=_TEXT,
        name=_TEXT,
        action=_TEXT,
        status={"enum": ["pending", "running", "succeeded", "failed", "waiting", "skipped", "cancelled"]},
    ),
    "decision": _OBJECT,
    "approval": _OBJECT,
    "diagnosis": _OBJECT,
    "repair": _OBJECT,
    "alarm": _OBJECT,
}
