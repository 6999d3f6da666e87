"""A step: some nodes and edges on their way into one version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from agent_infra.content import JsonValue
from agent_infra.errors import InvalidNode
from agent_infra.state.backend import Writer
from agent_infra.state.model import Node, NodeDraft, StepDraft, Version, check_edge_type, check_name


class Step:
    """Some nodes and edges on their way into one version. Get one from `graph.step()`."""

    def __init__(
        self,
        session: str,
        agent: str | None,
        writing: AbstractContextManager[Writer],
        schemas: Mapping[str, int | str] | None = None,
    ) -> None:
        self.version: str | None = None
        self._session = session
        self._writing = writing
        self._schemas = schemas or {}
        self._writer: Writer
        self._draft = StepDraft(agent)
        self._nodes: list[Node] = []
        self._open = False
        if agent is not None:
            check_name(agent, "an agent")

    def __enter__(self) -> Step:
        self._writer = self._writing.__enter__()
        self._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        try:
            if kind is None and (self._nodes or self._draft.edges or self._draft.removals or self._draft.references):
                version = self._writer.commit(self._draft)
                self.version = version.id
                for node, draft in zip(self._nodes, self._draft.nodes, strict=True):
                    _complete(node, draft, version)
        finally:
            self._writing.__exit__(None, None, None)

    def add_node(
        self,
        type: str,
        data: Mapping[str, Any],
        key: str | None = None,
        ttl: float | None = None,
        tool: str | None = None,
        permissions: Mapping[str, Any] | None = None,
        labels: Sequence[str] = (),
        schema_version: int | str | None = None,
    ) -> Node:
        """Add a node; its id is final at once, its time and step are set when the step is committed.

        `ttl` is in seconds, 0 is for ever. `schema_version` (a number or a tag) says under which version of the type's
        schema the data was made; it is brought to the one that new nodes have, and the node given back holds that.
        Raises NotJson, SchemaMismatch, SchemaUnknown, MigrationMissing, MigrationFailed, InvalidNode; the step then
        lands without it only if the caller catches the error inside the `with`.
        """
        self._check_open()
        draft = self._writer.draft(
            type,
            data,
            key=key,
            ttl=ttl,
            owner=self._draft.agent,
            tool=tool,
            permissions=permissions,
            labels=labels,
            schema_version=self._schemas.get(type) if schema_version is None else schema_version,
        )
        self._draft.nodes.append(draft)
        node = _drafted(draft, self._session, self._writer)
        self._nodes.append(node)
        return node

    def put_value(self, value: Any) -> dict[str, JsonValue]:
        """Store a JSON value as one block, and give the reference to put into a node's data of this step. Raises NotJson."""
        self._check_open()
        return self._writer.put_value(value)

    def add_edge(self, source_id: str, target_id: str, type: str) -> None:
        """Add an edge between nodes of this step or of the session before. Raises InvalidNode for an unknown edge
        type.
        """
        self._check_open()
        self._draft.edges.append((source_id, target_id, check_edge_type(type)))

    def remove(self, node_id: str, why: str) -> None:
        """Take a node out of the graph from this version on; earlier versions keep it."""
        self._check_open()
        check_name(why, "the reason for a removal")
        self._draft.removals.append((node_id, why))

    def refer(self, kind: str, value: str) -> None:
        """Say by which business key others know what this step is about, as `refer("ticket", "T-8841")`."""
        self._check_open()
        check_name(kind, "the kind of a business key")
        check_name(value, "a business key")
        self._draft.references.append((kind, value))

    def _check_open(self) -> None:
        if not self._open:
            raise InvalidNode(
                "this step is not open",
                why="its `with` has ended, or was never entered",
                mend="Write `with graph.step() as step:`, and add inside it.",
            )


def _complete(node: Node, draft: NodeDraft, version: Version) -> None:
    """Set what is known of a node once its step is committed."""
    fill = object.__setattr__
    fill(node, "created", version.created)
    fill(node, "step", version.step_count)
    if node.schema is not draft.schema:
        fill(node, "schema", draft.schema)
        fill(node, "ttl", draft.ttl)
        fill(node, "data", draft.data)


def _drafted(draft: NodeDraft, session: str, writer: Writer) -> Node:
    return Node(
        draft.id,
        draft.type,
        draft.data,
        draft.key,
        writer.now,
        writer.step,
        session,
        draft.schema,
        draft.ttl,
        draft.owner,
        draft.tool,
        draft.permissions,
        draft.labels,
    )
