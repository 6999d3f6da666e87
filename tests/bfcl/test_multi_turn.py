"""The leaderboard's multi-turn tasks: eight APIs with a state of their own, as tools, driven through real executions.

Each ground-truth sequence runs twice: by the package's own runner, which evaluates the calls as Python, and here, call by
call, through contract, executor, evidence and commit. After every turn its own checker compares the states of the API
objects and the responses of the two.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import runpy
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agent_infra import Infra, StateGraph
from agent_infra.config import Project
from agent_infra.integrations.bfcl import tool_of

lines_of = runpy.run_path(str(Path(__file__).with_name("answers.py")))["lines_of"]
SET = "BFCL_v4_multi_turn_base.json"
CALLS = 1142
REFUSED = {"multi_turn_base_173": 'close_ticket/ticket_id: "ticket_001" is not of type "integer"'}
"""Tasks with a call that its own function's document forbids, and what it is refused for."""
OTHERWISE = {
    "echo": "gives None where its document has a dict",
    "list_all_airports": "gives a list where its document has a dict",
    "mkdir": "gives None where its document has a dict",
    "send_message": "gives a dict as the message's id, which is documented as an integer",
    "touch": "gives None where its document has a dict",
}
"""Methods that give something else than their own documents say: such a call fails by its output, after its effect."""


class Theirs(NamedTuple):
    """What the package brings: its runner and checker, where its classes are, and which need no scenario."""

    runner: Any
    checker: Any
    modules: Mapping[str, str]
    documents: Mapping[str, str]
    stateless: list[str]


class Stage:
    """The API objects of the task that is being played; the tools call these."""

    def __init__(self, theirs: Theirs) -> None:
        self.theirs = theirs
        self.cast: dict[str, Any] = {}

    def set_for(self, task: Mapping[str, Any]) -> None:
        """Fresh objects in a task's initial state."""
        self.cast = {}
        for name in task["involved_classes"]:
            made = getattr(importlib.import_module(self.theirs.modules[name]), name)()
            if name not in self.theirs.stateless:
                made._load_scenario(json.loads(json.dumps(task["initial_config"].get(name, {}))))
            self.cast[name] = made

    def method(self, api: str, name: str) -> Callable[..., Any]:
        """A function that calls the method of whichever object is on stage then."""

        def run(**params: Any) -> Any:
            return plain(getattr(self.cast[api], name)(**params))

        return run

    def spec_of(self, call: str) -> dict[str, Any]:
        """The spec of a call written in Python; positional arguments get their names from the method."""
        written = ast.parse(call, mode="eval").body
        assert isinstance(written, ast.Call)
        assert isinstance(written.func, ast.Name)
        name = written.func.id
        method = next(getattr(each, name) for each in self.cast.values() if hasattr(each, name))
        positional = [ast.literal_eval(each) for each in written.args]
        named = {str(each.arg): ast.literal_eval(each.value) for each in written.keywords}
        return {"tool": name, "params": dict(inspect.signature(method).bind(*positional, **named).arguments)}


def plain(value: Any) -> Any:
    """A method's result as JSON: `logarithm` gives a number of a library of its own, `mpf('2.5')`."""
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return float(repr(value)[5:-2]) if type(value).__module__.startswith("mpmath.") else value


@pytest.fixture(scope="module")
def theirs(package: Path) -> Theirs:
    evaluation = "bfcl_eval.eval_checker.multi_turn_eval"
    where = importlib.import_module("bfcl_eval.constants.executable_backend_config")
    return Theirs(
        importlib.import_module(f"{evaluation}.multi_turn_utils").execute_multi_turn_func_call,
        importlib.import_module(f"{evaluation}.multi_turn_checker"),
        where.CLASS_FILE_PATH_MAPPING,
        where.MULTI_TURN_FUNC_DOC_FILE_MAPPING,
        where.STATELESS_CLASSES,
    )


@pytest.fixture
def tasks(data: Path) -> list[tuple[dict[str, Any], list[list[str]]]]:
    """(task, its turns' calls) of each, in order."""
    answers = {each["id"]: each["ground_truth"] for each in lines_of(data / "possible_answer" / SET)}
    return [(task, answers[task["id"]]) for task in lines_of(data / SET)]


@pytest.fixture
def stage(theirs: Theirs) -> Stage:
    return Stage(theirs)


@pytest.fixture
def infra(tmp_path: Path, data: Path, stage: Stage, tasks: list[Any]) -> Iterator[Infra]:
    """A home with the methods of all eight APIs as tools, by the package's documents."""
    apis = sorted({name for task, _ in tasks for name in task["involved_classes"]})
    assert len(apis) == 8
    with Infra.open(tmp_path / "home", project=Project(root=tmp_path), durability="os") as opened:
        for api in apis:
            for document in lines_of(data / "multi_turn_func_doc" / stage.theirs.documents[api]):
                opened.tools.register(tool_of(document, stage.method(api, document["name"]), effects="once"))
        yield opened


class Played(NamedTuple):
    """How a task went: where the two sides differ, what was refused or failed, and the evidence of each call."""

    differences: list[str]
    errors: list[tuple[str, Mapping[str, Any]]]
    cids: list[str]
    graph: StateGraph


def play(
    infra: Infra, stage: Stage, task: dict[str, Any], turns: list[list[str]], ours: list[list[str]] | None = None
) -> Played:
    """Play a task on both sides; on ours other calls than the ground truth's if they are given."""
    played = Played([], [], [], infra.session(task["id"], agent="truth"))
    said: list[str] = []
    theirs = f"truth_{uuid.uuid4().hex}"  # their runner keeps its objects by this name
    stage.set_for(task)
    for number, (calls, own) in enumerate(zip(turns, ours or turns, strict=True)):
        for call in own:
            result = infra.actions.execute(stage.spec_of(call), played.graph)
            played.cids.append(result.evidence_cid)
            said.append(as_text(result.output))
            if result.error is not None:
                played.errors.append((str(result.tool), result.error))
        expected, objects = stage.theirs.runner(
            calls, task["initial_config"], task["involved_classes"], theirs, task["id"], is_evaL_run=True
        )
        failed = [text for text in expected if text.startswith("Error during execution")]
        played.differences.extend(f"turn {number}: their run failed: {text}" for text in failed)
        states = stage.theirs.checker.state_checker(stage.cast, objects)
        responses = stage.theirs.checker.response_checker(said, [plainly(text) for text in expected], number)
        for check in (states, responses):
            played.differences.extend([] if check["valid"] else [f"turn {number}: {check['error_message']}"])
    return played


def as_text(output: Any) -> str:
    """An output as their runner writes it."""
    return output if isinstance(output, str) else json.dumps(output) if isinstance(output, dict) else str(output)


def plainly(text: str) -> str:
    """A response of theirs; numbers that aren't JSON, which they write as Python, as our tools give them."""
    found = re.fullmatch(r"\{'result': mpf\('(.+)'\)\}", text)
    return as_text({"result": float(found[1])}) if found else text


@pytest.mark.full
def test_all_200_sequences_end_where_their_own_run_ends(infra: Infra, stage: Stage, tasks: list[Any]) -> None:
    played = {task["id"]: play(infra, stage, task, turns) for task, turns in tasks}
    differing = {id: each.differences for id, each in played.items() if each.differences}
    print(f"\n{len(played) - len(differing)}/{len(played)} sequences match")
    assert len(played) == 200
    assert differing.keys() == REFUSED.keys()
    errors = [(id, tool, error) for id, each in played.items() for tool, error in each.errors]
    assert {tool for _, tool, error in errors if error["code"] == "OutputInvalid"} == OTHERWISE.keys()
    others = [(id, f"{tool}{error['why']}") for id, tool, error in errors if error["code"] != "OutputInvalid"]
    assert others == list(REFUSED.items())
    assert sum(len(each.cids) for each in played.values()) == CALLS
    assert all(infra.evidence.verify(cid).ok for each in played.values() for cid in each.cids)
    assert all(each.graph.verify().ok for each in played.values())


def test_a_sample_of_them(infra: Infra, stage: Stage, tasks: list[Any]) -> None:
    for task, turns in tasks[::20]:
        played = play(infra, stage, task, turns)
        assert played.differences == []
        assert [
            tool for tool, error in played.errors if error["code"] != "OutputInvalid" or tool not in OTHERWISE
        ] == []
        receipts = played.graph.nodes(type="receipt")
        assert sorted(node.data["evidence"]["$cid"] for node in receipts) == sorted(played.cids)
        assert len(played.cids) == sum(map(len, turns))


def test_a_call_that_is_left_out_makes_a_difference(infra: Infra, stage: Stage, tasks: list[Any]) -> None:
    task, turns = tasks[0]
    assert turns[0][-1].startswith("mv(")
    played = play(infra, stage, task, turns, ours=[turns[0][:-1], *turns[1:]])
    assert "GorillaFileSystem does not match" in played.differences[0]
