"""Queries over the nodes of a view: which index answers, what is left to filter, and where a cut-off listing goes
on.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import get_args

from agent_infra.clock import ulid_bytes
from agent_infra.errors import InvalidNode
from agent_infra.expressions import compile_expression
from agent_infra.state.model import Lifecycle, Node
from agent_infra.state.reading.view import View, node_facts, position
from agent_infra.state.rows import keys

_COUNT_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Query:
    """What `graph.nodes()` was asked. `schema` is a name, or a name and a version's number as "plan_step@2"."""

    type: str | None = None
    tool: str | None = None
    key: str | None = None
    owner: str | None = None
    schema: str | None = None
    since: int | None = None
    where: str | None = None
    lifecycle: Lifecycle | None = "active"
    limit: int | None = None
    cursor: str | None = None


class Page(list[Node]):
    """Nodes, newest first. `cursor` is to be given back to go on, or None at the end."""

    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a query would be answered: the index, and how many of its rows lie in the range (10000 means that many or
    more).
    """

    index: str
    rows: int


def run_query(view: View, query: Query) -> Page:
    """The nodes that a query asks for. Raises ExpressionError, InvalidNode."""
    if query.lifecycle not in (None, *get_args(Lifecycle)):
        names = ", ".join(get_args(Lifecycle))
        raise InvalidNode(f"there is no lifecycle {query.lifecycle!r}", mend=f"Use {names}, or None for all.")
    after = _position_of(query.cursor) if query.cursor else None
    condition = compile_expression(query.where, ["node"]) if query.where else None
    asked = (view.translated(node) for node in _candidates(view, query, after)[1] if _fits(node, query))
    fitting = (node for node in asked if condition is None or condition.evaluate({"node": node_facts(node)}).holds)
    if query.limit is None:
        return Page(fitting)
    if query.limit < 1:
        raise InvalidNode(f"limit must be at least 1, not {query.limit}")
    page = Page(islice(fitting, query.limit + 1))
    if len(page) > query.limit:
        page.pop()
        row = view.row(ulid_bytes(page[-1].id))
        page.cursor = base64.urlsafe_b64encode(position(row)).decode() if row else None
    return page


def explain_query(view: View, query: Query) -> Explanation:
    """Which index a query uses, and how many rows it would read."""
    index, nodes = _candidates(view, query, None)
    return Explanation(index, sum(1 for _ in islice(nodes, _COUNT_LIMIT)))


def _candidates(view: View, query: Query, after: bytes | None) -> tuple[str, Iterator[Node]]:
    """The narrowest index that fits, and its nodes."""
    lifecycle = query.lifecycle
    type = query.type if query.type is not None or query.schema is None else query.schema.partition("@")[0]
    if query.key is not None:
        newest = 1 if lifecycle == "active" else None  # a key's older nodes were all superseded
        return "key", _keyed(view, query.key, after, query.since, newest)
    for name, kind, value in (
        ("tool", keys.BY_TOOL, query.tool),
        ("type", keys.BY_TYPE, type),
        ("owner", keys.BY_OWNER, query.owner),
    ):
        if value is not None:
            return name, view.by_index(kind, value, since=query.since, after=after, lifecycle=lifecycle)
    return "time", view.by_time(since=query.since, after=after, lifecycle=lifecycle)


def _keyed(view: View, key: str, after: bytes | None, since: int | None, newest: int | None) -> Iterator[Node]:
    for node, place in islice(view.all_keyed(key), newest):
        if since is not None and node.created < since:
            return
        if after is None or place > after:
            yield node


def _fits(node: Node, query: Query) -> bool:
    return (
        (query.type is None or node.type == query.type)
        and (query.tool is None or node.tool == query.tool)
        and (query.key is None or node.key == query.key)
        and (query.owner is None or node.owner == query.owner)
        and (query.schema is None or _is_of(node, query.schema))
        and (query.lifecycle is None or node.lifecycle == query.lifecycle)
    )


def _is_of(node: Node, schema: str) -> bool:
    """Whether a node was written under a schema, of whatever version where none is named."""
    name, _, version = schema.partition("@")
    return node.schema[0] == name and (not version or str(node.schema[1]) == version)


def _position_of(cursor: str) -> bytes:
    try:
        raw = base64.urlsafe_b64decode(cursor)
    except (ValueError, binascii.Error):
        raw = b""
    if len(raw) != keys.SUFFIX_LENGTH:
        raise InvalidNode(f"{cursor!r} is not a cursor", mend="Give back the `.cursor` of an earlier listing.")
    return raw
