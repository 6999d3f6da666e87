"""Where schemas and migrations are kept: as nodes of the system session `_registry`.

A node `schema` is one version of a schema, a node `migration` one migration; when something about it changes (a further
tag, a deprecation, another mapping), a new node supersedes it. The data of `schema` nodes is all that another home needs
to read nodes of that version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from agent_infra.state.model import NodeDraft, StepDraft
from agent_infra.state.rows import keys
from agent_infra.state.schemas.migrations import Migration, kept_migration
from agent_infra.state.schemas.schema import Schema, compile_schema

if TYPE_CHECKING:
    from agent_infra.state.engine import StateEngine

REGISTRY: Final = "_registry"
LOCK_WAIT: Final = 30.0
"""Seconds to wait for another writer of the registry."""


def kept_schemas(engine: StateEngine) -> Iterator[Schema]:
    """The schemas that a home keeps."""
    for node in engine.view(REGISTRY).by_index(keys.BY_TYPE, "schema"):
        yield schema_from(node.data)


def kept_migrations(engine: StateEngine) -> Iterator[Migration]:
    """The migrations that a home keeps."""
    for node in engine.view(REGISTRY).by_index(keys.BY_TYPE, "migration"):
        yield kept_migration(node.data)


def schema_data(schema: Schema) -> dict[str, Any]:
    """A schema as it is kept."""
    return {
        "name": schema.name,
        "version": schema.version,
        "schema": schema.schema,
        "hash": schema.hash,
        "compatibility": schema.compatibility,
        "tags": list(schema.tags),
        "compatible_with": list(schema.compatible_with),
        "deprecated": schema.deprecated,
    }


def schema_from(data: Mapping[str, Any]) -> Schema:
    """A schema as it was kept. Raises SchemaInvalid."""
    return compile_schema(
        data["name"],
        data["version"],
        data["schema"],
        data.get("compatibility", "NONE"),
        tags=tuple(data.get("tags", ())),
        compatible_with=tuple(data.get("compatible_with", ())),
        deprecated=data.get("deprecated"),
    )


def schema_key(schema: Schema) -> str:
    """The key of a schema's node."""
    return f"schema/{schema.name}/{schema.version}"


def migration_key(migration: Migration) -> str:
    """The key of a migration's node."""
    return f"migration/{migration.name}/{migration.source}/{migration.target}"


def write(engine: StateEngine, drafts: list[NodeDraft]) -> None:
    """Keep some nodes, as one step."""
    with engine.writing(REGISTRY, agent=None, expect=None, timeout=LOCK_WAIT):
        _, ticket = engine.commit(REGISTRY, StepDraft(nodes=drafts))
    engine.settle(ticket)
