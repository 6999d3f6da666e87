"""What the action space promises of itself: a constrained decoder writes nothing but legal specs, every legal spec
executes without a contract error, and the hash changes when legality or domains do, and only then.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from typing import Any

import llguidance
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_infra import Infra, StateGraph
from agent_infra.actions.language import compile_contracts
from agent_infra.actions.space import ActionSpace, action_space
from agent_infra.actions.tools import Tool, ToolRegistry
from agent_infra.clock import ManualClock
from agent_infra.documents import parse_documents
from agent_infra.errors import DuplicateConflict
from agent_infra.state import open_memory

ACTIONS = """\
name: parse
tool: pdf_parser
params:
  file_id: ${state.nodes.pdf_report.id}
  output_format: {open: {enum: [markdown, text, 表格]}}
  first: {open: {minimum: 1, maximum: "${state.nodes.pdf_report.pages}"}}
preconditions: ["state.nodes.pdf_report.status == 'ready'"]
effects: none
---
name: ask
tool: ask_user
params: {question: {open: {enum: ["哪一年?", "Which \\"quarter\\"?"]}}, urgent: {open: {}}}
preconditions: ["!has(params.urgent) || !params.urgent || state.nodes.user_intent.confidence < 0.5"]
effects: none
---
name: stop
tool: stop
effects: none
"""


def pdf_parser(file_id: str, output_format: str, first: int = 1) -> dict[str, Any]:
    return {"file": file_id, "format": output_format, "first": first}


def ask_user(question: str, urgent: bool = False) -> dict[str, Any]:
    return {"question": question, "urgent": urgent}


def stop() -> None:
    return None


@pytest.fixture
def acting(infra: Infra, graph: StateGraph) -> StateGraph:
    for function in (pdf_parser, ask_user, stop):
        infra.tools.tool(effects="none")(function)
    infra.actions.load(ACTIONS)
    graph.add_node("pdf_report", {"status": "ready", "pages": 3}, key="pdf_report")
    graph.add_node("user_intent", {"query": "净利润是多少", "confidence": 0.9})
    return graph


# -- a constrained decoder -------------------------------------------------------------------------------------------


def decoded(space: ActionSpace, rng: random.Random) -> str:
    """What a policy that knows nothing writes, letter by letter, under the space's schema as a grammar."""
    tokenizer = llguidance.LLTokenizer("byte")
    grammar = llguidance.LLMatcher.grammar_from_json_schema(
        space.json_schema(), defaults={"whitespace_flexible": False}
    )
    matcher = llguidance.LLMatcher(tokenizer, grammar)
    assert not matcher.get_error()
    written = bytearray()
    while not matcher.is_stopped():
        allowed = [token for token, bias in enumerate(matcher.compute_logit_bias()) if bias]
        token = rng.choice(allowed)
        assert matcher.consume_token(token)
        if token < 256:
            written.append(token)
        assert len(written) < 10_000
    return written.decode()


def test_a_constrained_decoder_writes_legal_specs_only(infra: Infra, acting: StateGraph) -> None:
    space, rng = infra.actions.space(acting), random.Random(7)
    seen = set[str]()
    for _ in range(60):
        text = decoded(space, rng)
        verdict = space.validate(text, confidence=False)
        judged = json.loads(text)["params"].get("urgent") is True  # a condition that no schema holds
        assert verdict.ok is not judged, (text, verdict)
        seen.add(json.loads(text)["tool"])
    assert seen == {"parse", "ask", "stop"}


def test_the_decoder_follows_the_graph(infra: Infra, acting: StateGraph) -> None:
    acting.add_node("pdf_report", {"status": "broken", "pages": 3}, key="pdf_report")
    space, rng = infra.actions.space(acting), random.Random(7)
    assert {json.loads(decoded(space, rng))["tool"] for _ in range(40)} == {"ask", "stop"}


# -- what is legal executes ------------------------------------------------------------------------------------------


def test_every_listed_spec_executes_without_a_contract_error(infra: Infra, acting: StateGraph) -> None:
    infra.actions.load(
        ACTIONS.replace("name: parse", "name: parse_first").replace(
            'first: {open: {minimum: 1, maximum: "${state.nodes.pdf_report.pages}"}}', "first: {open: {enum: [1, 2]}}"
        ).split("---")[0]
    )  # fmt: skip
    space = infra.actions.space(acting)
    specs = space.enumerate(only=["parse_first", "ask", "stop"])
    assert len(specs) == 3 * 3 + 2 * 2 + 1
    for spec in specs:
        assert space.validate(spec).ok
        result = infra.actions.execute(spec, acting)
        assert result.ok, (spec, result.error)


specs = st.one_of(
    st.fixed_dictionaries(
        {"tool": st.sampled_from(["parse", "ask", "stop", "pdf_parser"])},
        optional={
            "params": st.fixed_dictionaries(
                {},
                optional={
                    "output_format": st.sampled_from(["markdown", "表格", "html", 1]),
                    "first": st.integers(-1, 5),
                    "question": st.sampled_from(["哪一年?", "?"]),
                    "urgent": st.sampled_from([True, False, None, "yes"]),
                },
            ),
            "confidence": st.floats(0, 1),
        },
    )
)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_spec_is_valid_exactly_if_it_executes_without_a_contract_error(data: st.DataObject, acting_once: Any) -> None:
    infra, graph = acting_once
    spec = data.draw(specs)
    verdict = infra.actions.space(graph).validate(spec)
    result = infra.actions.execute(spec | {"params": spec.get("params", {})}, graph)
    refused = not result.ok and result.status == "refused"
    assert verdict.ok is not refused, (spec, verdict, result.error)


@pytest.fixture(scope="module")
def acting_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Infra, StateGraph]]:
    from agent_infra.config import Project

    folder = tmp_path_factory.mktemp("家")
    with Infra.open(folder, project=Project(root=folder), durability="os") as infra:
        graph = infra.session("会话")
        for function in (pdf_parser, ask_user, stop):
            infra.tools.tool(effects="none")(function)
        infra.actions.load(ACTIONS)
        graph.add_node("pdf_report", {"status": "ready", "pages": 3}, key="pdf_report")
        graph.add_node("user_intent", {"confidence": 0.9})
        yield infra, graph


# -- the hash --------------------------------------------------------------------------------------------------------


def what_is_legal(space: ActionSpace) -> Any:
    """Legality and domains, told without the hash."""
    return [json.dumps([contract.hash for contract in space.legal]), json.dumps(space.json_schema(), sort_keys=True)]


worlds = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["ready", "broken"]),
        "pages": st.integers(1, 3),
        "confidence": st.sampled_from([0.2, 0.4, 0.9]),
        "title": st.sampled_from(["年报", "半年报"]),
    }
)


@settings(max_examples=40, deadline=None)
@given(st.lists(worlds, min_size=2, max_size=5))
def test_the_hash_changes_exactly_when_legality_or_domains_do(states: list[dict[str, Any]]) -> None:
    tools = ToolRegistry()
    for function in (pdf_parser, ask_user, stop):
        tools.tool(effects="none")(function)
    contracts = compile_contracts(parse_documents(ACTIONS, "a.yaml"), tools)
    graph = StateGraph("会话", engine=open_memory(clock=ManualClock()).engine)
    seen: list[tuple[str, Any]] = []
    for state in states:
        graph.add_node("pdf_report", {key: state[key] for key in ("status", "pages", "title")}, key="pdf_report")
        graph.add_node("user_intent", {"confidence": state["confidence"]}, key="intent")
        space = action_space(contracts, graph)
        seen.append((space.hash, what_is_legal(space)))
    for (hash, legal), (other_hash, other_legal) in itertools.combinations(seen, 2):
        assert (hash == other_hash) is (legal == other_legal)


def test_the_hash_tells_two_tools_apart(graph: StateGraph) -> None:
    """The same words for a tool that means something else are another space."""

    def spaces(**changes: Any) -> str:
        tools = ToolRegistry()
        tools.register(Tool("stop", {"type": "object", "properties": {}}, None, stop, effects="none", **changes))
        return action_space(compile_contracts(parse_documents("name: stop\ntool: stop\n", "a.yaml"), tools), graph).hash

    assert spaces() == spaces()
    assert spaces() != spaces(version="2.0.0")


# -- checks of one's own ---------------------------------------------------------------------------------------------


def test_a_validator_of_ones_own_judges_specs_and_calls(infra: Infra, acting: StateGraph) -> None:
    spec = {"tool": "parse", "params": {"output_format": "markdown", "first": 2}}
    before = infra.actions.space(acting)
    infra.actions.add_validator(
        "第一页", lambda params, graph: None if params["first"] == graph.latest("pdf_report").data["pages"] else "not last",
        action="parse",
    )  # fmt: skip
    infra.actions.add_validator("never fails", lambda params, _: ["a", "b"] if params.get("urgent") else [])
    space = infra.actions.space(acting)
    assert space.validate(spec).problems == ("第一页: not last",)
    assert space.validate({"tool": "parse", "params": {"output_format": "markdown", "first": 3}}).ok
    assert space.hash != before.hash
    refused = infra.actions.execute(spec, acting)
    assert (refused.status, (refused.error or {})["code"]) == ("refused", "ValidatorRefused")
    assert "第一页: not last" in refused.error["why"]
    with pytest.raises(DuplicateConflict):
        infra.actions.add_validator("第一页", lambda *_: None)
    assert infra.actions.remove_validator("第一页")
    assert not infra.actions.remove_validator("第一页")
    assert infra.actions.execute(spec, acting).ok


def test_a_validator_that_fails_refuses(infra: Infra, acting: StateGraph) -> None:
    infra.actions.add_validator("broken", lambda *_: 1 / 0)  # type: ignore[arg-type]
    verdict = infra.actions.space(acting).validate({"tool": "stop", "params": {}})
    assert verdict.problems == ("broken: it could not be checked: ZeroDivisionError: division by zero",)
