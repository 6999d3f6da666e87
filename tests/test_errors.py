"""Errors: each says what, where, why and what to do; each can be stored, sent and pickled without losing anything."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
from collections.abc import Iterator

import pytest

from agent_infra import errors
from agent_infra.errors import AgentInfraError, FileMissing, Problem, ProblemsError


def kinds(of: type[AgentInfraError] = AgentInfraError) -> Iterator[type[AgentInfraError]]:
    yield of
    for kind in of.__subclasses__():
        yield from kinds(kind)


def made(kind: type[AgentInfraError]) -> AgentInfraError:
    """One error of a kind, everything filled in."""
    if issubclass(kind, ProblemsError):
        return kind([Problem("DuplicateKey", "两次", "a.yaml", 3, 5, "remove one", "a: 1"), Problem("NotYaml", "no")])
    if issubclass(kind, FileMissing):
        return kind("/tmp/报告.yaml", what="goal file")
    return kind(
        "什么 happened", where="here", why="because of 5", mend="Do that.", facts={"n": 5, "list": [None, "天"]}
    )


ALL = sorted((kind for kind in kinds() if kind.__module__ == "agent_infra.errors"), key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", ALL)
def test_an_error_is_pickled_and_copied_whole(kind: type[AgentInfraError]) -> None:
    error = made(kind)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind
        assert str(again) == str(error)
        assert again.as_dict() == error.as_dict()
        assert again.args == error.args
        assert vars(again) == vars(error)


@pytest.mark.parametrize("kind", ALL)
def test_an_error_is_json(kind: type[AgentInfraError]) -> None:
    error = made(kind)
    said = error.as_dict()
    assert json.loads(json.dumps(said, allow_nan=False)) == said
    assert said["code"] == error.code == kind.__name__
    assert None not in said.values()


@pytest.mark.parametrize("kind", ALL)
def test_an_error_is_documented(kind: type[AgentInfraError]) -> None:
    assert inspect.getdoc(kind)
    assert kind is AgentInfraError or inspect.getdoc(kind) != inspect.getdoc(AgentInfraError)


def test_every_error_of_the_module_has_the_common_base() -> None:
    found = {value for _, value in inspect.getmembers(errors, inspect.isclass) if issubclass(value, BaseException)}
    assert found == set(ALL)


def test_an_error_says_what_where_why_and_what_to_do() -> None:
    error = AgentInfraError("the head moved", where="session 's'", why="the head is s.2", mend="Read it again.")
    assert str(error) == "[AgentInfraError] the head moved (at session 's'): the head is s.2. Read it again."
    assert str(AgentInfraError("the head moved")) == "[AgentInfraError] the head moved."
    assert str(AgentInfraError("what now?", mend="Wait.")) == "[AgentInfraError] what now? Wait."
    assert AgentInfraError("x").as_dict() == {"code": "AgentInfraError", "what": "x"}


def test_an_errors_facts_are_its_own() -> None:
    facts = {"n": 1}
    error = AgentInfraError("x", facts=facts)
    facts["n"] = 2
    assert error.facts == {"n": 1}
    assert AgentInfraError("x").facts == {}
    assert AgentInfraError("x").facts is not AgentInfraError("y").facts


def test_a_problem_shows_the_line_and_the_place_in_it() -> None:
    problem = Problem("FlowComma", "a second key", "动作.yaml", 2, 4, "quote it", "a: b, c")
    assert str(problem) == "动作.yaml:2:4: FlowComma: a second key\n    a: b, c\n       ^\n    hint: quote it"
    assert str(Problem("NotYaml", "no")) == "<text>: NotYaml: no"
    assert Problem("NotYaml", "no", line=3).as_dict() == {"code": "NotYaml", "message": "no", "line": 3}


def test_all_problems_are_told_at_once() -> None:
    error = errors.ContractErrors([Problem("A", "first", "x.yaml", 1, 1), Problem("B", "second", "x.yaml", 9, 2)])
    assert [problem.code for problem in error.problems] == ["A", "B"]
    assert "2 problems in the action file" in str(error)
    assert "x.yaml:1:1: A: first" in str(error)
    assert "x.yaml:9:2: B: second" in str(error)
    assert [problem["code"] for problem in error.facts["problems"]] == ["A", "B"]
    assert "1 problem in" in str(errors.RuleErrors([Problem("A", "only")]))


def test_a_missing_file_is_named() -> None:
    error = FileMissing("rules/天气.yaml", what="rule file")
    assert "rule file rules/天气.yaml" in str(error)
    assert error.path == error.facts["path"] == "rules/天气.yaml"


def test_a_code_is_its_classs_name_also_for_classes_of_others() -> None:
    class MyToolFailed(errors.ToolUnknown):
        """A user's own."""

    assert MyToolFailed("x").code == "MyToolFailed"
    assert errors.ToolUnknown.code == "ToolUnknown"
