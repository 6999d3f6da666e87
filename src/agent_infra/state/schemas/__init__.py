"""The schema broker: every version of every node type's schema, and how data goes from one version to another.

Schemas come in by `register`, migrations by `migrate`; both are kept as nodes of `_registry`. A node's data comes in by
`draft` in whatever version its writer names and leaves in the one that new nodes have; readers get nodes in the version
that they name by `graph.with_schemas`.

    broker         the face: register, get, list, diff, deprecate, migrate, draft
    schema         one version, compiled; references: `$ref`
    compatibility  promises between versions; losses, known: where one schema refuses what another allows
    changes        the difference between two versions
    migrations     links, chains; mapping: migrations as data
    translation    nodes in the reader's versions
    registry       what is kept
"""

from agent_infra.state.schemas.broker import SchemaBroker
from agent_infra.state.schemas.changes import SchemaChange, SchemaDiff
from agent_infra.state.schemas.compatibility import Break
from agent_infra.state.schemas.migrations import Migration
from agent_infra.state.schemas.schema import Compatibility, MergeRules, Schema, compile_schema
from agent_infra.state.schemas.translation import Translation

__all__ = [
    "Break",
    "Compatibility",
    "MergeRules",
    "Migration",
    "Schema",
    "SchemaBroker",
    "SchemaChange",
    "SchemaDiff",
    "Translation",
    "compile_schema",
]
