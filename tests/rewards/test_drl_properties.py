"""The reader against an oracle that knows nothing of it, and against texts that are no rules."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from agent_infra.rewards import Event, RuleSet, SourceTerms
from agent_infra.rewards.rules.drl import read_drl
from agent_infra.rewards.signals import KeptSignal
from agent_infra.rewards.weaving.contributions import conclude

EVENT = Event("e", "s", 0)
SOURCES = ("合规", "api", "a.b")
TERMS = {name: SourceTerms(name, -10, 10) for name in SOURCES}
NUMBERS: Final = ("0", "1", "2", "0.5", "-1")
COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
COUNTED: Final[Mapping[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


@dataclass(frozen=True)
class Said:
    """A piece of DRL, how tightly its operator binds (the higher, the tighter), and what it means for a signal."""

    text: str
    rank: int
    means: Callable[[KeptSignal], Any]


def wrapped(said: Said, rank: int) -> str:
    return said.text if said.rank >= rank else f"({said.text})"


def counted(sign: str, left: Said, right: Said) -> Said:
    rank = 4 if sign in "+-" else 5
    text = f"{wrapped(left, rank)} {sign} {wrapped(right, rank + 1)}"
    return Said(text, rank, lambda signal: COUNTED[sign](left.means(signal), right.means(signal)))


def compared(sign: str, left: Said, right: Said) -> Said:
    text = f"{wrapped(left, 4)}{sign}{wrapped(right, 4)}"
    return Said(text, 3, lambda signal: COMPARED[sign](left.means(signal), right.means(signal)))


def joined(sign: str, parts: list[Said]) -> Said:
    rank, every = (2, all) if sign == "&&" else (1, any)
    text = f" {sign} ".join(wrapped(each, rank + 1) for each in parts)
    return Said(text, rank, lambda signal: every(each.means(signal) for each in parts))


def negated(said: Said) -> Said:
    return Said(f"!({said.text})", 3, lambda signal: not said.means(signal))


def of_source(names: list[str], word: str) -> Said:
    listed = ", ".join(f'"{name}"' for name in names)
    if word == "contains":
        return Said(f'source contains "{names[0]}"', 3, lambda signal: names[0] in signal.source)
    if word == "matches":
        return Said(f'source matches "a|{names[0][:1]}.*"', 3, lambda signal: signal.source[:1] == names[0][:1])
    inside = word == "in"
    return Said(f"source {word} ({listed})", 3, lambda signal: (signal.source in names) == inside)


def fields(name: str) -> Said:
    return Said(name, 6, operator.attrgetter(name))


def constant(text: str) -> Said:
    return Said(text, 6, lambda _: float(text))


plain = st.one_of(st.sampled_from(["value", "confidence"]).map(fields), st.sampled_from(NUMBERS).map(constant))
amounts = st.recursive(plain, lambda inner: st.builds(counted, st.sampled_from([*COUNTED]), inner, inner), max_leaves=4)
names = st.lists(st.sampled_from(SOURCES), min_size=1, max_size=2)
atoms = st.one_of(
    st.builds(compared, st.sampled_from([*COMPARED]), amounts, amounts),
    st.builds(of_source, names, st.sampled_from(["in", "not in", "contains", "matches"])),
)
constraints = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.builds(joined, st.sampled_from(["&&", "||"]), st.lists(inner, min_size=2, max_size=3)), inner.map(negated)
    ),
    max_leaves=6,
)
signals = st.builds(
    lambda number, source, value, confidence: KeptSignal(str(number), source, value, "e", "s", 1, 2, confidence),
    st.integers(0, 10**9),
    st.sampled_from(SOURCES),
    st.sampled_from([-1.0, 0.0, 0.5, 1.0, 3.0]),
    st.sampled_from([0.0, 0.5, 1.0]),
)


@given(
    st.lists(constraints, min_size=1, max_size=3),
    st.sampled_from(["", "not ", "exists "]),
    st.lists(signals, max_size=4, unique_by=lambda each: each.source),
)
def test_constraints_mean_what_they_mean_in_java(asked: list[Said], word: str, given: list[KeptSignal]) -> None:
    text = f'rule "r" when {word}Reward({", ".join(each.text for each in asked)}) then insert(new WovenReward(-1)); end'
    found = read_drl(text)
    assert not found.problems, (text, found.problems)
    rules = RuleSet(sources=TERMS, rules=tuple(found.rules))
    conclusion = conclude(given, rules, event=EVENT)
    assert not conclusion.doubts, (text, conclusion.doubts)
    matching = sum(all(each.means(signal) for each in asked) for signal in given)
    fires = (matching == 0) if word == "not " else matching > 0
    assert [fired.rule for fired in conclusion.fired] == (["r"] if fires else []), text


WHOLE = """package a.b; /* 注释 "x" */
declare 升级 等级: double end // end
rule "一" salience -1.5 agenda-group "facts" when $r: Reward($v: value < 0 || !(priority in ('a', "b"))) not Session()
then insert(new 升级($v * (2 - 1))); insert(new WovenReward($r.value, "甲", $r.provenance)); end
rule 二 when exists (Action(params.x contains "y", this != null)) then insert(new WovenReward(1e-1)); end
"""
PIECES = st.sampled_from(
    [
        *"()\"'$:;,.!&|=<>+-*/#\\\n（",
        "rule",
        "end",
        "when",
        "then",
        "declare",
        "insert",
        "new",
        "not",
        "$r",
        "/*",
        "*/",
        "规",
    ]
)


@given(st.lists(st.tuples(st.integers(0, len(WHOLE)), st.integers(0, 12), PIECES), max_size=4))
def test_no_text_stops_the_reader(edits: list[tuple[int, int, str]]) -> None:
    """Whatever became of a file: rules, or problems with a place inside of it."""
    text = WHOLE
    for at, gone, piece in edits:
        text = text[:at] + piece + text[at + gone :]
    found = read_drl(text, "f.drl")
    lines = text.split("\n")
    for problem in found.problems:
        assert problem.line is not None
        assert 1 <= problem.line <= len(lines), problem
        assert problem.column is None or 1 <= problem.column <= len(lines[problem.line - 1]) + 1, problem
        assert problem.source in (None, lines[problem.line - 1])
    assert found.rules or found.problems


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    found = read_drl(text)
    assert found.rules or found.problems or "declare" in text
