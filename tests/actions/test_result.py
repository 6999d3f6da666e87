"""A result as its caller meets it: as text, and checked."""

from __future__ import annotations

import pickle

import pytest

from agent_infra import ActionFailed, ActionResult, AgentInfraError, ApprovalNeeded, ToolOutOfMemory


def ended(error: dict[str, object] | None, status: str = "failed") -> ActionResult:
    """A result of 订房 that ended so."""
    return ActionResult(
        ok=error is None,
        status="succeeded" if error is None else status,
        output={"房": "101"} if error is None else None,
        error=error,
        evidence_cid="bafy",
        node=None,
        version="v",
        event_id="e",
        conditions=(),
        action="订房",
        tool="book",
        session="客人",
    )


def test_a_success_is_its_own_check() -> None:
    result = ended(None)
    assert result.checked() is result
    assert str(result) == '{"房": "101"}'


@pytest.mark.parametrize(
    ("error", "kind", "facts"),
    [
        ({"code": "ApprovalNeeded", "what": "a person has to approve", "why": "0.1"}, ApprovalNeeded, {}),
        (
            {"code": "ToolOutOfMemory", "what": "wanted more", "memory_limit_mb": 4},
            ToolOutOfMemory,
            {"memory_limit_mb": 4},
        ),
        ({"code": "ToolFailed", "what": "ValueError: 满"}, ActionFailed, {"code": "ToolFailed"}),
        ({"code": "Problem", "what": "not an error's name"}, ActionFailed, {"code": "Problem"}),
        (
            {"code": "ContractErrors", "what": "2 problems", "mend": "Mend them."},
            ActionFailed,
            {"code": "ContractErrors"},
        ),
    ],
)
def test_everything_else_is_raised(
    error: dict[str, object], kind: type[AgentInfraError], facts: dict[str, object]
) -> None:
    with pytest.raises(kind, match="订房 failed: ") as raised:
        ended(error).checked()
    assert type(raised.value) is kind
    assert raised.value.facts == facts | {"status": "failed", "evidence_cid": "bafy"}
    assert (raised.value.why, raised.value.mend) == (error.get("why"), error.get("mend"))
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.facts) == (str(raised.value), raised.value.facts)
