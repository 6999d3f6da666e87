"""Errors cross the wire as what they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agent_infra import errors
from agent_infra.errors import AgentInfraError, Problem, ProblemsError
from agent_infra.server.problems import error_of, problem_of, status_of


def kinds(kind: type[AgentInfraError] = AgentInfraError) -> Iterator[type[AgentInfraError]]:
    yield kind
    for each in kind.__subclasses__():
        if each.__module__ == "agent_infra.errors":
            yield from kinds(each)


def example(kind: type[AgentInfraError]) -> AgentInfraError:
    if issubclass(kind, ProblemsError):
        return kind([Problem("DuplicateKey", "两次", "动作.yaml", 3, 1, "once", "城市: 1")])
    if kind is errors.FileMissing:
        return errors.FileMissing("/tmp/没有.yaml")
    return kind("什么", where="哪里", why="为什么", mend="怎么办.", facts={"pid": 7, "list": [1, None]})


@pytest.mark.parametrize("kind", sorted(set(kinds()), key=lambda kind: kind.__name__))
def test_an_error_comes_back_as_it_was(kind: type[AgentInfraError]) -> None:
    error = example(kind)
    again = error_of(problem_of(error), status_of(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert (again.code, again.as_dict(), again.__dict__) == (error.code, error.as_dict(), error.__dict__)


def test_a_code_that_this_version_does_not_know_is_kept() -> None:
    error = error_of({"code": "FromTheFuture", "what": "something new"}, 400)
    assert type(error) is AgentInfraError
    assert error.code == "FromTheFuture"
    assert str(error) == "[FromTheFuture] something new."


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (errors.NodeUnknown, 404),
        (errors.VersionConflict, 409),
        (errors.VersionCollected, 410),
        (errors.SchemaMismatch, 422),
        (errors.ContractErrors, 422),
        (errors.LockTimeout, 423),
        (errors.HomeClosed, 503),
    ],
)
def test_a_class_has_one_status(kind: type[AgentInfraError], status: int) -> None:
    assert status_of(example(kind)) == status
    assert problem_of(example(kind))["status"] == status
