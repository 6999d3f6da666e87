"""Nodes in the schema versions that a reader understands, whatever versions they were written under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from agent_infra.state.model import Node
from agent_infra.state.rows import keys
from agent_infra.state.schemas.broker import SchemaBroker
from agent_infra.state.schemas.schema import Schema

if TYPE_CHECKING:
    from agent_infra.state.reading.view import View


class Translation:
    """The versions that one reader understands, by type. Raises SchemaUnknown for one that is not there."""

    def __init__(self, broker: SchemaBroker, versions: Mapping[str, int | str]) -> None:
        self._broker = broker
        self._targets = {type: broker.get(type, version) for type, version in versions.items()}

    def __call__(self, node: Node) -> Node:
        """A node as the reader understands it. Raises MigrationMissing, MigrationFailed."""
        target = self._targets.get(node.type)
        if target is None or node.schema[2] == target.hash:
            return node
        data = self._broker.bring(node.data, self._broker.under(node.schema), target)
        return replace(node, data=data, schema=target.stamp)

    def check(self, view: View) -> None:
        """Whether every node that a view shows undead can be brought to the reader's version.

        Raises MigrationMissing for the first that can't. Nodes are looked at only where some version of their type has
        no chain, so this costs nothing where all have one.
        """
        for type, target in self._targets.items():
            others = [self._broker.under((type, 0, "")), *self._broker.list(type)]
            stuck = [schema for schema in others if not self._broker.leads(schema, target)]
            if stuck:
                self._check_nodes(view, stuck, target)

    def _check_nodes(self, view: View, stuck: list[Schema], target: Schema) -> None:
        for node in view.by_index(keys.BY_TYPE, target.name, lifecycle=None):
            if node.lifecycle in ("active", "expired"):
                schema = self._broker.under(node.schema)
                if schema in stuck:
                    self._broker.check_chain(schema, target)
