"""Who may see and change what: `graph.as_agent(name)` gives a graph that asks before every read and write.

A node's own `permissions`, or its type's `x-permissions` in the schema, say it: {"read": [...], "write": [...]}, each a
list of agent names, `role:<name>`, or `*`. A list that is absent lets everybody; the owner of a node is always let.
Writing means adding nodes of a type, and superseding or removing a node. Inside one process this guards against
mistakes, not enemies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from agent_infra.errors import PermissionRefused, SchemaUnknown
from agent_infra.state.model import LEDGER, Node

if TYPE_CHECKING:
    from agent_infra.state.schemas import SchemaBroker

Right: TypeAlias = Literal["read", "write"]


@dataclass(frozen=True, slots=True)
class Guard:
    """One agent's rights, by its name and roles."""

    agent: str
    roles: tuple[str, ...]
    schemas: SchemaBroker

    def sees(self, node: Node) -> bool:
        """Whether the agent may read a node."""
        return self._refusal("read", node) is None

    def check_read(self, node: Node) -> None:
        """Raises PermissionRefused, naming the rule, for a node that the agent may not read."""
        self._refuse("read", node.id, self._refusal("read", node), node.session)

    def check_change(self, node: Node) -> None:
        """Raises PermissionRefused for a node that the agent may neither supersede nor remove."""
        self._refuse("write", node.id, self._refusal("write", node), node.session)

    def check_add(self, type: str, session: str) -> None:
        """Raises PermissionRefused for a type of which the agent may add no nodes."""
        self._refuse(
            "write", f"a new {type!r} node", self._by_rule("write", self._of_type(type), f"type {type!r}"), session
        )

    def check_author(self, agent: str | None, session: str) -> None:
        """Raises PermissionRefused for a step in another agent's name: its nodes would be that agent's own."""
        if agent != self.agent:
            self._refuse("write", f"as {agent!r}", "an agent writes in its own name", session)

    def check_session(self, session: str) -> None:
        """Raises PermissionRefused for a reward ledger: no agent reads or writes the rewards that it is given."""
        if session.endswith(LEDGER):
            self._refuse("read", f"session {session!r}", "no agent reads or writes a reward ledger", session)

    def _refusal(self, right: Right, node: Node) -> str | None:
        """The rule that refuses, in words; None where none does."""
        if node.owner == self.agent:
            return None
        own = self._by_rule(right, node.permissions, f"node {node.key or node.id}")
        return own or self._by_rule(right, self._of_type(node.type), f"type {node.type!r}")

    def _of_type(self, type: str) -> Mapping[str, Any] | None:
        try:
            schema = self.schemas.get(type).schema
        except SchemaUnknown:  # nobody declared the type, so nobody limited it
            return None
        return cast("dict[str, Any]", schema).get("x-permissions") if isinstance(schema, dict) else None

    def _by_rule(self, right: Right, rule: Mapping[str, Any] | None, of: str) -> str | None:
        allowed = cast("Sequence[str] | None", rule.get(right)) if rule else None
        if allowed is None or "*" in allowed or any(f"role:{role}" in allowed for role in self.roles):
            return None
        if self.agent in allowed and not self.agent.startswith("role:"):
            return None
        return f"{of} lets only {', '.join(allowed) or 'nobody'} {right}"

    def _refuse(self, right: Right, what: str, rule: str | None, session: str) -> None:
        if rule is not None:
            raise PermissionRefused(
                f"agent {self.agent!r} may not {right} {what}",
                where=f"session {session!r}",
                why=rule,
                mend="Act as an agent or role that the rule names, or change the rule.",
                facts={"agent": self.agent, "right": right, "rule": rule},
            )
