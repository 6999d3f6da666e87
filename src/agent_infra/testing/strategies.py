"""Hypothesis strategies for what flows through the graph: JSON values, values that are not JSON, programs of steps.

Texts hold Chinese, emoji, quotes, slashes, control characters and words that careless readers turn into something else.
A program is plain data that names nodes and versions by numbers; whoever runs it takes each number modulo what is
there, so every program means something and shrinks to a short one.
"""

from __future__ import annotations

import datetime
import itertools
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st

_WORDS: Final = (
    "", "你好，世界", "笔记", "café", "cafe\u0301", "𝄞", "🌧️", "null", "no", "0", "1.10", "a/b~c", "~1", "$ref", "$cid",
    'say "hi"', "back\\slash", "line\nbreak", "tab\t", "\0", "\x7f", "\u2028", "\ufeff", " ", "${state}", "__proto__",
)  # fmt: skip


def texts(max_size: int = 12) -> st.SearchStrategy[str]:
    """Any text that UTF-8 can hold."""
    return st.one_of(st.sampled_from(_WORDS), st.text(st.characters(exclude_categories=["Cs"]), max_size=max_size))


def numbers() -> st.SearchStrategy[int | float]:
    """Integers of 64 bits and finite floats, the edges often."""
    edges = st.sampled_from([0, -1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 0.1, -0.0, 1e-300, 1.5e300, 5e-324])
    integers = st.integers(-(2**63), 2**63 - 1)
    return st.one_of(edges, integers, st.floats(allow_nan=False, allow_infinity=False))


def json_values(max_leaves: int = 8) -> st.SearchStrategy[Any]:
    """JSON values of every kind, nested."""
    leaves = st.one_of(st.none(), st.booleans(), numbers(), texts())
    return st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts(), inner, max_size=4)),
        max_leaves=max_leaves,
    )


def node_data(max_leaves: int = 8) -> st.SearchStrategy[dict[str, Any]]:
    """JSON objects: what a node's data may be."""
    return st.dictionaries(texts(), json_values(max_leaves), max_size=4)


# -- what is not JSON ------------------------------------------------------------------------------

_OFFENDERS: Final[tuple[Any, ...]] = (
    float("nan"), float("inf"), float("-inf"), {1, 2}, frozenset({1}), (), (1, 2), b"bytes", object(), 1j,
    Decimal("1.5"),
    datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), 2**64, -(2**63) - 1, 10**400, "\ud800", "a\udfffb", {1: "a"},
    {None: "a"}, {"a": 1, 2.5: 2}, {("a",): 1}, {"\udc00": 1},
)  # fmt: skip


@st.composite
def not_json(draw: st.DrawFn, max_depth: int = 4) -> tuple[dict[str, Any], str]:
    """(data, pointer): an object of JSON values but for one offender, and the JSON pointer of that one.

    Where a key is the offender, the pointer is of the object that holds it.
    """
    value: Any = draw(st.sampled_from(_OFFENDERS))
    pointer = ""
    for _ in range(draw(st.integers(0, max_depth))):
        if draw(st.booleans()):
            before = draw(st.lists(json_values(2), max_size=2))
            value, step = [*before, value, *draw(st.lists(json_values(2), max_size=2))], str(len(before))
        else:
            value, step = _inside(draw, value)
        pointer = f"/{step}{pointer}"
    data, step = _inside(draw, value)
    return data, f"/{step}{pointer}"


def _inside(draw: st.DrawFn, value: Any) -> tuple[dict[str, Any], str]:
    name = draw(texts())
    around = draw(st.dictionaries(texts(), json_values(2), max_size=2))
    return {**around, name: value}, name.replace("~", "~0").replace("/", "~1")


# -- programs --------------------------------------------------------------------------------------

TYPES: Final = ("note", "note2", "api_response", "笔记")
KEYS: Final = ("report", "report2", "报告/明天", "note")
TOOLS: Final = ("search", "search_more", "笔记_api")
AGENTS: Final = ("planner", "执行者")
EDGE_TYPES: Final = ("causes", "references", "temporally_follows", "triggers", "depends_on")


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node to add."""

    type: str
    data: dict[str, Any]
    key: str | None
    ttl: float | None
    tool: str | None


@dataclass(frozen=True, slots=True)
class WriteStep:
    """A step. Edges name their ends among the session's nodes and the new ones, removals among the living nodes."""

    agent: str | None
    nodes: tuple[NewNode, ...]
    edges: tuple[tuple[int, int, str], ...]
    removals: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FailStep:
    """A step that must not happen: its body raises, or it asks for what is refused at its end."""

    nodes: tuple[NewNode, ...]
    fault: str


@dataclass(frozen=True, slots=True)
class StepsBack:
    """A rollback by some steps."""

    steps: int


@dataclass(frozen=True, slots=True)
class BackTo:
    """A rollback to any version that was ever made, on whatever branch."""

    version: int


@dataclass(frozen=True, slots=True)
class PassTime:
    """The clock moves; a negative amount is a corrected clock."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Reopen:
    """Close the home and open it again."""


Operation: TypeAlias = WriteStep | FailStep | StepsBack | BackTo | PassTime | Reopen
FAULTS: Final = ("raises", "not json", "mismatch", "unknown end", "same key twice")


def new_nodes() -> st.SearchStrategy[NewNode]:
    """Nodes of few types, keys and tools, so that they meet."""
    return st.builds(
        NewNode,
        type=st.sampled_from(TYPES),
        data=st.dictionaries(st.sampled_from(["n", "笔记"]), json_values(3), max_size=2),
        key=st.one_of(st.none(), st.sampled_from(KEYS)),
        ttl=st.sampled_from([None, None, None, 0, 0.5, 1, 60]),
        tool=st.one_of(st.none(), st.sampled_from(TOOLS)),
    )


def _distinct_keys(nodes: list[NewNode]) -> bool:
    keyed = [node.key for node in nodes if node.key is not None]
    return len(keyed) == len(set(keyed))


def operations() -> st.SearchStrategy[Operation]:
    """One thing that happens to a session; steps most often."""
    number = st.integers(0, 99)
    edge = st.tuples(number, number, st.sampled_from(("causes", "causes", *EDGE_TYPES)))
    write = st.builds(
        WriteStep,
        agent=st.one_of(st.none(), st.sampled_from(AGENTS)),
        nodes=st.lists(new_nodes(), max_size=3).filter(_distinct_keys).map(tuple),
        edges=st.lists(edge, max_size=3).map(tuple),
        removals=st.lists(number, max_size=1).map(tuple),
    )
    fail = st.builds(FailStep, nodes=st.lists(new_nodes(), max_size=1).map(tuple), fault=st.sampled_from(FAULTS))
    time = st.builds(PassTime, st.sampled_from([0.25, 0.5, 1, 59, 60, 3600, -1, -60]))
    back = st.one_of(st.builds(StepsBack, st.integers(0, 4)), st.builds(BackTo, number))
    return st.one_of(write, write, write, fail, time, back, st.builds(Reopen))


def programs(blocks: int = 8) -> st.SearchStrategy[list[Operation]]:
    """What happens to a session, in order: some blocks of operations, as one long list would seldom be long."""
    block = st.lists(operations(), max_size=8)
    return st.lists(block, max_size=blocks).map(lambda found: list(itertools.chain.from_iterable(found)))
