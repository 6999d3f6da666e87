"""Every single-call task of the leaderboard, through implied contracts: right calls are let in, wrong ones are not.

Right is what the answer files list; wrong are eleven kinds of mutation of it. Where a task's answer contradicts its own
function document, contradictions.json says so, and the test fails if that isn't so, or is so elsewhere.
"""

from __future__ import annotations

import json
import runpy
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jsonschema_rs
import llguidance
import pytest

from agent_infra.actions.language import implied_contract
from agent_infra.actions.space import ActionSpace, action_space
from agent_infra.actions.tools import ToolRegistry
from agent_infra.integrations.bfcl import tool_of
from agent_infra.state import LocalBackend, StateGraph, open_memory

HERE = Path(__file__).parent
answers, oracle, mutations = (
    SimpleNamespace(**runpy.run_path(str(HERE / f"{name}.py"))) for name in ("answers", "oracle", "mutations")
)
CONTRADICTIONS: dict[str, list[dict[str, Any]]] = json.loads((HERE / "contradictions.json").read_text("utf-8"))
TOKENIZER = llguidance.LLTokenizer("byte")
CALLS = dict(zip(answers.SETS, (400, 200, 540, 607, 258, 1053, 39, 55), strict=True))


def run(**params: Any) -> Any:
    return params


@pytest.fixture
def graph() -> Iterator[StateGraph]:
    home = open_memory()
    yield StateGraph("bfcl", engine=LocalBackend(home.engine))
    home.close()


@dataclass
class Tally:
    """What one set came to. `mistakes` are what must not be; `contradicted` what a task's own document forbids."""

    calls: int = 0
    accepted: int = 0
    forms: int = 0
    forms_accepted: int = 0
    mutants: Counter[str] = field(default_factory=Counter[str])
    mistakes: list[str] = field(default_factory=list[str])
    contradicted: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])


class Examiner:
    """Puts the calls of one task to its action space."""

    def __init__(self, entry: Any, graph: StateGraph, theirs: ModuleType, tally: Tally) -> None:
        tools = ToolRegistry()
        for document in entry.documents.values():
            tools.register(tool_of(document, run, effects="none"))
        self.entry, self.tally, self.theirs = entry, tally, theirs
        self.space: ActionSpace = action_space([implied_contract(tool) for tool in tools], graph)
        schema = self.space.json_schema()
        self.schema = jsonschema_rs.validator_for(schema, offline=True, validate_formats=True)
        grammar = llguidance.LLMatcher.grammar_from_json_schema(schema, defaults={"whitespace_flexible": False})
        self.decoder = llguidance.LLMatcher(TOKENIZER, grammar)

    def examine(self) -> None:
        for name, answer in self.entry.calls:
            forms = answers.forms_of(self.entry.documents[name], answer)
            right = [form for form in forms if self.is_right(name, form)]
            self.tally.calls += 1
            self.tally.accepted += len(right) == len(forms)
            self.tally.forms += len(forms)
            self.tally.forms_accepted += len(right)
            for form in right:
                self.expect(self.theirs_accept(name, form, answer), "their checker refuses a form", form)
            if right:
                self.mutate(name, right[0], answer)

    def is_right(self, name: str, form: dict[str, Any]) -> bool:
        """Whether a form is let in; if not, its parameters' contradictions are noted."""
        verdict = self.space.validate({"tool": name, "params": form})
        wrong = oracle.wrong_in(self.entry.documents[name], form)
        self.expect(verdict.ok == (not wrong), f"{wrong or 'nothing'} is wrong, and it says {verdict}", form)
        self.expect(verdict.ok == self.schema_allows(name, form), "the space's schema says otherwise", form)
        for at, reason in wrong.items():
            self.expect(_names(verdict.problems, at), f"{at} is not named by {verdict.problems}", form)
            row = {"param": at, "reason": reason} | ({"answer": form[at]} if at in form else {})
            rows = self.tally.contradicted.setdefault(self.entry.id, [])
            rows += [] if row in rows else [row]
        return verdict.ok

    def mutate(self, name: str, params: dict[str, Any], answer: Mapping[str, Any]) -> None:
        document = self.entry.documents[name]
        for mutant in mutations.mutants_of(document, params, oracle.wrong_in):
            self.tally.mutants[mutant.kind] += 1
            verdict = self.space.validate(mutant.spec)
            self.expect(verdict.kind == "invalid", f"{mutant.kind}: {verdict}", mutant.spec)
            if mutant.params is not None:
                self.expect(_names(verdict.problems, mutant.at), f"{mutant.at} not in {verdict.problems}", mutant.spec)
                self.expect(not self.schema_allows(name, mutant.params), "the space's schema allows it", mutant.spec)
                self.expect(not self.theirs_accept(name, mutant.params, answer), "they accept it", mutant.spec)

    def schema_allows(self, name: str, params: dict[str, Any]) -> bool:
        """Whether the space's schema lets a call through, as a validator and as a decoder's grammar: they agree."""
        allowed = self.schema.is_valid({"tool": name, "params": params})
        ordered = _ordered(self.entry.documents[name]["parameters"], params)
        text = json.dumps({"tool": name, "params": ordered}, ensure_ascii=False, separators=(",", ":")).encode()
        decoder = self.decoder.deep_copy()
        decoded = decoder.try_consume_tokens(list(text)) == len(text) and decoder.is_accepting()
        self.expect(decoded == allowed, f"the schema {allowed}, the decoder {decoded}", text.decode())
        return allowed

    def theirs_accept(self, name: str, params: dict[str, Any], answer: Mapping[str, Any]) -> bool:
        language = self.theirs.Language.PYTHON
        document = self.entry.documents[name]
        return self.theirs.simple_function_checker(document, {name: params}, {name: answer}, language, "ours")["valid"]

    def expect(self, holds: bool, what: str, about: Any) -> None:
        if not holds:
            self.tally.mistakes.append(f"{self.entry.id}: {what}: {about}")


def _names(problems: tuple[str, ...], param: str) -> bool:
    """Whether the problems name the parameter that is wrong."""
    return any(problem.startswith((f"/{param}:", f"/{param}/")) for problem in problems)


def _ordered(document: Mapping[str, Any], value: Any) -> Any:
    """A value with its keys in the document's order: a decoder writes them in no other."""
    if isinstance(value, list):
        return [_ordered(document.get("items", {}), item) for item in value]
    if not isinstance(value, dict):
        return value
    known = document.get("properties", {})
    keys = [*(key for key in known if key in value), *(key for key in value if key not in known)]
    return {key: _ordered(known.get(key, {}), value[key]) for key in keys}


def examine(data: Path, name: str, graph: StateGraph, theirs: ModuleType, every: int = 1) -> Tally:
    tally = Tally()
    for number, entry in enumerate(answers.entries_of(data, name)):
        if number % every == 0:
            Examiner(entry, graph, theirs, tally).examine()
    return tally


@pytest.mark.full
@pytest.mark.parametrize("name", answers.SETS)
def test_all_right_calls_are_let_in_and_all_wrong_ones_refused(
    name: str, data: Path, graph: StateGraph, their_checker: ModuleType
) -> None:
    tally = examine(data, name, graph, their_checker)
    print(
        f"\n{name}: {tally.accepted}/{tally.calls} calls, {tally.forms_accepted}/{tally.forms} forms let in; refused:"
    )
    print("  " + ", ".join(f"{kind} {tally.mutants[kind]}" for kind in mutations.KINDS))
    assert tally.mistakes == []
    assert tally.calls == CALLS[name]
    assert tally.contradicted == {id: rows for id, rows in CONTRADICTIONS.items() if id.rpartition("_")[0] == name}


def test_a_sample_of_them(data: Path, graph: StateGraph, their_checker: ModuleType) -> None:
    tallies = [examine(data, name, graph, their_checker, every=25) for name in answers.SETS]
    assert [mistake for tally in tallies for mistake in tally.mistakes] == []
    assert sum((tally.mutants for tally in tallies), Counter[str]()).keys() == set(mutations.KINDS)
    for tally in tallies:
        assert all(CONTRADICTIONS[id] == rows for id, rows in tally.contradicted.items())
