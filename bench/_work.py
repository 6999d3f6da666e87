"""What is written in the benchmarks: the same nodes and edges for the product and for each peer.

Only the standard library is used here, as LangGraph reads this file in an environment of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

READING = "bench_reading"
READING_SCHEMA = {
    "type": "object",
    "required": ["city", "temp", "text"],
    "properties": {
        "city": {"type": "string"},
        "temp": {"type": "number", "minimum": -100, "maximum": 100},
        "text": {"type": "string"},
    },
}
NOTE = "bench_note"
NOTE_SCHEMA = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
SCHEMAS: dict[str, dict[str, Any]] = {READING: READING_SCHEMA, NOTE: NOTE_SCHEMA}
TOOL = "weather"
OTHER_TOOL = "search"
WITHIN = 300.0
"""Seconds: the window of every `caused_by` here."""
STEP_NODES = 1000
STEP_APART = 31.0
"""Seconds between the steps of a filled graph: ten of them lie within the window."""
CAUSED = 20
"""Nodes of such a step that TOOL caused: 200 within the window."""


@dataclass(slots=True)
class Item:
    """A node to be written."""

    type: str
    data: dict[str, Any]
    tool: str | None = None
    key: str | None = None


@dataclass(slots=True)
class Work:
    """A step to be written. An edge's end is an item's position in the step, or the id of an earlier node."""

    items: list[Item] = field(default_factory=list[Item])
    edges: list[tuple[int | str, int | str, str]] = field(default_factory=list[tuple[int | str, int | str, str]])


def reading(number: int, tool: str | None = None) -> Item:
    """A typical small result: some 90 bytes of JSON."""
    data = {"city": "北京", "temp": number % 60 - 20.5, "text": f"cloudy and mild, light wind, reading {number}"}
    return Item(READING, data, tool)


def call(tool: str = TOOL) -> Item:
    """A call of a tool, of the standard type."""
    data = {
        "action": f"{tool}_now",
        "contract": "3f9a0c51d7e2b846",
        "tool": tool,
        "tool_version": "1.0.0",
        "params": {"city": "北京"},
        "effects": "none",
        "idempotency_key": "5b1d6c0e9f",
    }
    return Item("call", data, tool)


def plain_step(nodes: int) -> Work:
    """Nodes found by type and by tool, without edges."""
    return Work([reading(number, TOOL) for number in range(nodes)])


def caused_step(nodes: int) -> Work:
    """A call, and so many results that it caused."""
    return Work([call(), *(reading(number) for number in range(nodes))], [(0, n + 1, "causes") for n in range(nodes)])


def filling_step(nodes: int = STEP_NODES, caused: int = CAUSED) -> Work:
    """One of the steps that a large graph is made of: two calls, results of the one and the other tool, notes."""
    caused = min(caused, nodes - 2)
    items = [call(), call(OTHER_TOOL), *(reading(number) for number in range(caused))]
    edges: list[tuple[int | str, int | str, str]] = [(0, number + 2, "causes") for number in range(caused)]
    edges += [(1, number + 2, "references") for number in range(caused)]
    items += [Item(NOTE, {"text": f"第 {number} 条记录, noted by the way"}) for number in range(nodes - len(items))]
    return Work(items, edges)


def agent_step(intent: str, key: str | None = None) -> Work:
    """A typical step of an agent: 3 nodes, 4 edges; with a key, its result supersedes the one before."""
    receipt = {"call": "01JB0000000000000000000000", "status": "succeeded", "conditions": [], "seconds": 0.25}
    result = reading(7, TOOL)
    result.key = key
    edges: list[tuple[int | str, int | str, str]] = [
        (0, intent, "references"),
        (0, 1, "causes"),
        (0, 2, "triggers"),
        (1, intent, "references"),
    ]
    return Work([call(), result, Item("receipt", receipt)], edges)


def filled(nodes: int) -> Iterator[Work]:
    """The steps of a large graph."""
    for start in range(0, nodes, STEP_NODES):
        yield filling_step(min(STEP_NODES, nodes - start))
