"""Errors on the wire: problem JSON (RFC 9457) with the error's own words, and a status that is the same for a class
wherever it is raised. The other end raises the same class again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from agent_infra import errors
from agent_infra.errors import AgentInfraError, Problem, ProblemsError

MEDIA_TYPE: Final = "application/problem+json"
STATUS: Final[Mapping[type[AgentInfraError], int]] = {
    errors.PermissionRefused: 403,
    errors.NodeUnknown: 404,
    errors.VersionUnknown: 404,
    errors.SchemaUnknown: 404,
    errors.EvidenceUnknown: 404,
    errors.EventUnknown: 404,
    errors.GoalUnknown: 404,
    errors.ToolUnknown: 404,
    errors.ContractUnknown: 404,
    errors.ReportUnknown: 404,
    errors.FileMissing: 404,
    errors.VersionConflict: 409,
    errors.SessionExists: 409,
    errors.NodesExist: 409,
    errors.SchemaIncompatible: 409,
    errors.DuplicateConflict: 409,
    errors.StaleDecision: 409,
    errors.ContractDrift: 409,
    errors.LeaseLost: 409,
    errors.NotOwner: 409,
    errors.VersionCollected: 410,
    errors.StoreLocked: 423,
    errors.LockTimeout: 423,
    errors.LeaseHeld: 423,
    errors.StoreDamaged: 500,
    errors.EvidenceDamaged: 500,
    errors.HomeClosed: 503,
    errors.OwnerUnreachable: 503,
    errors.StoreFull: 507,
}
INVALID: Final = 422


def status_of(error: AgentInfraError) -> int:
    """The HTTP status of an error: its class's, else that of the nearest class above, else 422."""
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), INVALID)


def problem_of(error: AgentInfraError) -> dict[str, Any]:
    """An error as problem JSON."""
    return {"title": error.code, "status": status_of(error), "detail": str(error)} | error.as_dict()


def error_of(problem: Mapping[str, Any], status: int) -> AgentInfraError:
    """The error that a problem JSON tells of, of its own class where this version knows it."""
    code = str(problem.get("code") or "AgentInfraError")
    kind = next((each for each in _classes(AgentInfraError) if each.code == code), AgentInfraError)
    facts: dict[str, Any] = problem.get("facts") or {}
    what = str(problem.get("what") or problem.get("detail") or f"the server answered with status {status}")
    error = kind.__new__(kind, what)
    AgentInfraError.__init__(
        error, what, where=problem.get("where"), why=problem.get("why"), mend=problem.get("mend"), facts=facts
    )
    if code != kind.code:
        error.__dict__["code"] = code
    if isinstance(error, ProblemsError):
        error.problems = tuple(Problem(**each) for each in facts.get("problems", ()))
    if isinstance(error, errors.FileMissing):
        error.path = str(facts.get("path", ""))
    return error


def _classes(kind: type[AgentInfraError]) -> Iterator[type[AgentInfraError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _classes(each)
