"""The schema broker: which JSON Schema a node type has, in which versions, and whether data is valid under them.

Data comes in by `draft`, and leaves checked, in the version that new nodes have, and as the bytes that will be stored.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from agent_infra.clock import new_ulid
from agent_infra.content import fingerprint, json_bytes, json_copy
from agent_infra.errors import InvalidNode, SchemaInvalid, SchemaUnknown
from agent_infra.observability import get_logger
from agent_infra.state.model import NodeDraft, check_name
from agent_infra.state.rows import keys
from agent_infra.state.schemas import registry
from agent_infra.state.schemas.changes import SchemaDiff, schema_diff
from agent_infra.state.schemas.compatibility import MODES, check_promise
from agent_infra.state.schemas.migrations import Function, Migration, Migrations, make_migration
from agent_infra.state.schemas.schema import Compatibility, Schema, Stamp, are_permissions, check_ttl, compile_schema
from agent_infra.state.standard import STANDARD

if TYPE_CHECKING:
    from agent_infra.state.engine import StateEngine

_log = get_logger(__name__)


class SchemaBroker:
    """All schemas of a home, and the migrations between their versions.

    A version is named by its number or by one of its tags.
    """

    def __init__(self, engine: StateEngine, *, undeclared: Literal["warn", "refuse"] = "warn") -> None:
        self._engine = engine
        self._undeclared = undeclared
        self._versions: dict[str, list[Schema]] = {}
        self._current: dict[str, Schema] = {}
        self._digest: str | None = None
        self._open: dict[str, Schema] = {}
        self._warned: set[tuple[str, str]] = set()
        self._lock = threading.RLock()
        self._migrations = Migrations(self)
        for schema in registry.kept_schemas(engine):
            self._keep(schema)
        self._declare_standard()
        for migration in registry.kept_migrations(engine):
            self._migrations.add(migration)

    def _declare_standard(self) -> None:
        """Bring the standard types of this release into the registry, in one step, where it lacks them.

        What a project registered on top of one stays the newest.
        """
        missing = [
            compile_schema(name, self._next(name), schema, "NONE")
            for name, schema in STANDARD.items()
            if all(known.hash != fingerprint(schema) for known in self._versions.get(name, []))
        ]
        for schema in missing:
            self._keep(schema)
        if missing:
            self._write(missing)

    # -- declaring ---------------------------------------------------------------------------------

    def register(
        self,
        name: str,
        schema: Mapping[str, Any] | bool,
        compatibility: Compatibility = "BACKWARD",
        tag: str | None = None,
    ) -> Schema:
        """Declare a type's schema, as a new version unless the newest, or the one with that tag, is the same.

        `tag` is a name for the version, as "2.1"; a version may have several. What each compatibility promises, and
        towards which versions, is said in `compatibility.py`. Raises SchemaInvalid, SchemaIncompatible.
        """
        check_name(name, "a schema's name")
        plain = json_copy(dict(schema) if isinstance(schema, Mapping) else schema, where=f"schema {name}")[1]
        if compatibility not in MODES:
            raise SchemaInvalid(f"{compatibility!r} is no compatibility", mend=f"Use one of {', '.join(MODES)}.")
        with self._lock:
            known = self._same(name, fingerprint(plain), tag)
            if known is not None:
                return self._tagged(known, tag)
            tags = (_check_tag(tag),) if tag is not None else ()
            new = compile_schema(name, self._next(name), plain, compatibility, tags=tags)
            kept = check_promise(new, self._versions.get(name, []), self._is_in_use)
            new = replace(new, compatible_with=kept)
            self._write([new])
            self._keep(new)
            return new

    def _same(self, name: str, hash: str, tag: str | None) -> Schema | None:
        """The version that a schema is registered as already. Raises SchemaInvalid where its tag names another."""
        versions = self._versions.get(name, [])
        tagged = next((each for each in versions if tag is not None and tag in each.tags), None)
        if tagged is None:
            return versions[-1] if versions and versions[-1].hash == hash else None
        if tagged.hash != hash:
            raise SchemaInvalid(
                f"tag {tag!r} of schema {name!r} names {tagged}, which is another schema",
                mend="Give the new version a tag of its own.",
                facts={"schema": name, "tag": tag, "version": tagged.version},
            )
        return tagged

    def _tagged(self, schema: Schema, tag: str | None) -> Schema:
        if tag is None or tag in schema.tags:
            return schema
        return self._change(replace(schema, tags=(*schema.tags, _check_tag(tag))))

    def deprecate(self, name: str, version: int | str, why: str = "deprecated") -> Schema:
        """Take a version out of use: new nodes are not of it, and promises towards it end with its last live node.

        What was written under it stays readable. Raises SchemaUnknown, and SchemaInvalid for the last version in use.
        """
        with self._lock:
            schema = self.get(name, version)
            if all(each.deprecated is not None or each is schema for each in self._versions.get(name, [])):
                raise SchemaInvalid(
                    f"{schema} is the last one in use", mend="Register another version first.", facts={"schema": name}
                )
            return self._change(replace(schema, deprecated=why))

    def migrate(
        self, name: str, from_version: int | str, to_version: int | str, function: Function | Mapping[str, Any]
    ) -> Migration:
        """Say how data of one version becomes data of another; the way back is a migration of its own.

        `function` is a Python function from data to data, or a mapping (see `mapping.py`). Mappings are kept in the
        home. Of a function only the name is, so every process registers it; where it is needed and missing, it is
        named. Raises SchemaUnknown, MigrationInvalid.
        """
        source, target = (self._any_version(name, version) for version in (from_version, to_version))
        migration = make_migration(name, source.version, target.version, function)
        with self._lock:
            if self._migrations.add(migration):
                draft = self.draft("migration", migration.as_dict(), key=registry.migration_key(migration))
                registry.write(self._engine, [draft])
        return migration

    # -- looking up --------------------------------------------------------------------------------

    def digest(self) -> str:
        """A hash over the schemas that new nodes have: another one where anything else is declared."""
        if self._digest is None:
            self._digest = fingerprint({name: schema.hash for name, schema in self._current.items()})
        return self._digest

    def get(self, name: str, version: int | str | None = None) -> Schema:
        """A schema by name, in the version that new nodes have unless one is named. Raises SchemaUnknown."""
        versions = self._versions.get(name, [])
        if version is None and versions:
            return self._current[name]
        for schema in versions:
            if schema.version == version or version in schema.tags:
                return schema
        known = ", ".join(" or ".join(map(repr, (each.version, *each.tags))) for each in versions)
        raise SchemaUnknown(
            f"there is no schema {name!r}" if not known else f"schema {name!r} has no version {version!r}",
            why=f"its versions are {known}" if known else None,
            mend="Register it with infra.schemas.register().",
            facts={"schema": name, "version": version},
        )

    def list(self, name: str | None = None) -> tuple[Schema, ...]:
        """All versions of a schema, or of all schemas, by name and from the oldest on."""
        names = self.names() if name is None else [name]
        return tuple(schema for each in names for schema in self._versions.get(each, []))

    def migrations(self, name: str | None = None) -> tuple[Migration, ...]:
        """The registered migrations of a schema, or of all."""
        return self._migrations.registered(name)

    def diff(self, name: str, old: int | str, new: int | str | None = None) -> SchemaDiff:
        """What changed from one version to another, or to the one that new nodes have. Raises SchemaUnknown."""
        return schema_diff(self.get(name, old), self.get(name, new))

    def names(self) -> Sequence[str]:
        """The declared types."""
        return sorted(self._versions)

    def under(self, stamp: Stamp) -> Schema:
        """The schema that a node was checked against. Its hash says so: numbers are a home's own, and a node may have
        come from another one. Raises SchemaUnknown.
        """
        name, version, hash = stamp
        if version == 0:
            return self._undeclared_schema(name)
        found = [schema for schema in self._versions.get(name, []) if schema.hash == hash]
        return next((schema for schema in found if schema.version == version), found[0] if found else None) or self.get(
            name, version
        )

    def schema_for(self, type: str) -> Schema:
        """The schema that new nodes of a type are checked against; an open one for a type that none declares.

        Raises SchemaUnknown for an undeclared type where the setting `undeclared_types` says "refuse".
        """
        schema = self._current.get(type)
        if schema is not None:
            return schema
        if self._undeclared == "refuse":
            raise SchemaUnknown(
                f"no schema declares the node type {type!r}",
                why="the setting undeclared_types is 'refuse'",
                mend="Put a schema into schemas/, or register one with infra.schemas.register().",
                facts={"schema": type},
            )
        self._warn_once("undeclared_type", type, "its data is not checked; declare a schema for it")
        return self._undeclared_schema(type)

    def _warn_once(self, warning: str, type: str, meaning: str) -> None:
        if (warning, type) not in self._warned:
            self._warned.add((warning, type))
            _log.warning(warning, type=type, meaning=meaning)

    def merge_rule(self, type: str) -> str | None:
        """What a type's schema says of two writers of one key, by `x-merge`; None: nothing."""
        schema = self._current.get(type)
        return None if schema is None else schema.merge

    # -- data --------------------------------------------------------------------------------------

    def bring(self, data: Mapping[str, Any], source: Schema, target: Schema) -> dict[str, Any]:
        """Data of one version as data of another. Raises MigrationMissing, MigrationFailed."""
        return self._migrations.bring(dict(data), source, target)

    def leads(self, source: Schema, target: Schema) -> bool:
        """Whether data of one version can be brought to another."""
        return self._migrations.leads(source, target)

    def check_chain(self, source: Schema, target: Schema) -> None:
        """Raises MigrationMissing where data of one version can't be brought to another, naming what is missing."""
        self._migrations.chain(source, target)

    def draft(
        self,
        type: str,
        data: Mapping[str, Any],
        *,
        key: str | None = None,
        ttl: float | None = None,
        owner: str | None = None,
        tool: str | None = None,
        permissions: Mapping[str, Any] | None = None,
        labels: Sequence[str] = (),
        schema_version: int | str | None = None,
    ) -> NodeDraft:
        """A node ready to be written: its data checked and copied.

        `ttl` is in seconds; 0 is for ever, with a warning unless the type's schema says so too (`x-ttl: 0`).
        `schema_version` is the version that the data is of: it is checked under that one, and brought to the one that
        new nodes have. Raises NotJson, SchemaMismatch, SchemaUnknown, MigrationMissing, MigrationFailed, InvalidNode.
        """
        schema = self.schema_for(type)
        body, copy = json_copy(data, where=f"the data of a {type!r} node")
        if not isinstance(copy, dict):
            raise InvalidNode(f"the data of a {type!r} node must be an object, not a {_kind(data)}")
        written = schema if schema_version is None else self.get(type, schema_version)
        if not written.validator.is_valid(copy):
            written.check(copy)
        if written is not schema:
            copy = self.bring(cast("dict[str, Any]", copy), written, schema)
            body = json_bytes(copy)
        for text, what in ((key, "a node's key"), (tool, "a node's tool"), (owner, "a node's owner")):
            if text is not None:
                check_name(text, what)
        checked = _check_permissions(permissions) if permissions else None
        for label in labels if not isinstance(labels, str) else (None,):
            check_name(label, "a label")
        valid_for = check_ttl(schema.ttl if ttl is None else ttl) or None  # 0 is for ever
        if ttl == 0 and schema.ttl != 0:
            self._warn_once("permanent_node", type, "its ttl is 0, which is for ever; if that is meant: `x-ttl: 0`")
        return NodeDraft(
            new_ulid(self._engine.clock.micros()),
            type,
            cast("dict[str, Any]", copy),
            body,
            schema.stamp,
            key,
            valid_for,
            owner,
            tool,
            checked,
            tuple(labels),
        )

    @contextmanager
    def adopting(self, found: Sequence[Schema], why: str) -> Generator[list[Schema]]:
        """The schemas of another home that this one lacks; they are its own once the `with` ends.

        A schema is known by its hash. One whose name is new here keeps its number and tags; else it becomes a further
        version, deprecated from the start with `why`: its nodes can be read, and no others are made of it.
        """
        with self._lock:
            new: list[Schema] = []
            for schema in found:
                others = [*self._versions.get(schema.name, []), *(each for each in new if each.name == schema.name)]
                if any(each.hash == schema.hash for each in others):
                    continue
                if schema.name in self._versions:
                    number = max(each.version for each in others) + 1
                    schema = replace(schema, version=number, tags=(), compatible_with=(), deprecated=why)
                new.append(schema)
            yield new
            for schema in new:
                self._keep(schema)

    # -- keeping -----------------------------------------------------------------------------------

    def _next(self, name: str) -> int:
        return max((schema.version for schema in self._versions.get(name, [])), default=0) + 1

    def _keep(self, schema: Schema) -> None:
        others = [each for each in self._versions.get(schema.name, []) if each.version != schema.version]
        versions = sorted([*others, schema], key=lambda each: each.version)
        self._versions[schema.name] = versions
        self._digest = None
        self._current[schema.name] = next((each for each in reversed(versions) if not each.deprecated), versions[-1])

    def _change(self, schema: Schema) -> Schema:
        self._write([schema])
        self._keep(schema)
        return schema

    def _write(self, schemas: Sequence[Schema]) -> None:
        registry.write(self._engine, [self.kept_draft(schema) for schema in schemas])

    def kept_draft(self, schema: Schema) -> NodeDraft:
        """The node that keeps a schema."""
        return self.draft("schema", registry.schema_data(schema), key=registry.schema_key(schema))

    def _any_version(self, name: str, version: int | str) -> Schema:
        """A version, 0 for the time before the type was declared."""
        return self._undeclared_schema(name) if version == 0 else self.get(name, version)

    def _undeclared_schema(self, type: str) -> Schema:
        schema = self._open.get(type)
        if schema is None:
            check_name(type, "a node's type")
            schema = self._open[type] = compile_schema(type, 0, {}, "NONE")
        return schema

    def _is_in_use(self, schema: Schema) -> bool:
        """Whether some session's head shows a node of a version that is neither superseded nor removed."""
        for session in self._engine.all_sessions():
            for node in self._engine.view(session).by_index(keys.BY_TYPE, schema.name, lifecycle=None):
                if node.lifecycle in ("active", "expired") and self.under(node.schema) is schema:
                    return True
        return False


def _check_permissions(permissions: Mapping[str, Any]) -> dict[str, Any]:
    plain = json_copy(permissions, where="permissions")[1]
    if not are_permissions(plain):
        raise InvalidNode(
            f"{permissions!r} can't be a node's permissions",
            mend='Write {"read": [names], "write": [names]}; a name is an agent\'s, `role:<name>`, or `*`.',
        )
    return cast("dict[str, Any]", plain)


def _check_tag(tag: str) -> str:
    check_name(tag, "a version's tag")
    return tag


def _kind(value: Any) -> str:
    return type(value).__name__
