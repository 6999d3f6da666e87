"""The schema broker: which JSON Schema a node type has, in which version, and whether data is valid under it.

Schemas are nodes of the system session `_registry`, so every version that a node was ever checked against can be
read again. Data comes in by `draft`, and leaves checked and as the bytes that will be stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import jsonschema_rs

from agent_infra.clock import new_ulid
from agent_infra.content import fingerprint, json_bytes, json_copy
from agent_infra.errors import InvalidNode, SchemaIncompatible, SchemaInvalid, SchemaMismatch, SchemaUnknown
from agent_infra.observability import get_logger
from agent_infra.state import keys
from agent_infra.state.compatibility import Break, breaks
from agent_infra.state.model import NodeDraft, StepDraft, check_name
from agent_infra.state.standard import STANDARD

if TYPE_CHECKING:
    from agent_infra.state.engine import StateEngine

Compatibility: TypeAlias = Literal["NONE", "BACKWARD", "FORWARD", "FULL"]
REGISTRY: Final = "_registry"
_PERMISSIONS: Final = jsonschema_rs.validator_for(
    {
        "type": "object",
        "properties": {right: {"type": "array", "items": {"type": "string"}} for right in ("read", "write")},
        "additionalProperties": False,
    },
    offline=True,
)
LONGEST_TTL: Final = 1e11
"""Seconds; some 3,000 years."""
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of a node type's schema. `ttl` is the schema's own `x-ttl`: seconds of validity where a node sets
    none.
    """

    name: str
    version: int
    schema: Any
    hash: str
    compatibility: Compatibility
    validator: Any
    ttl: float | None

    @property
    def stamp(self) -> tuple[str, int, str]:
        """What a node records of the schema that it was checked against."""
        return self.name, self.version, self.hash


class SchemaBroker:
    """All schemas of a home."""

    def __init__(self, engine: StateEngine, *, undeclared: Literal["warn", "refuse"] = "warn") -> None:
        self._engine = engine
        self._undeclared = undeclared
        self._versions: dict[str, list[Schema]] = {}
        self._open: dict[str, Schema] = {}
        for node in engine.view(REGISTRY).by_index(keys.BY_TYPE, "schema", lifecycle=None):
            found = node.data
            self._add(_compiled(found["name"], found["version"], found["schema"], found["compatibility"]))
        self._declare_standard()

    def _declare_standard(self) -> None:
        """Bring the standard types of this release into the registry, in one step, where it lacks them.

        What a project registered on top of one stays the newest.
        """
        missing = [
            _compiled(name, self._next(name), schema, "NONE")
            for name, schema in STANDARD.items()
            if not self._has(name, fingerprint(schema))
        ]
        for schema in missing:
            self._add(schema)
        if missing:
            self._write(missing)

    # -- declaring ---------------------------------------------------------------------------------

    def register(
        self, name: str, schema: Mapping[str, Any] | bool, compatibility: Compatibility = "BACKWARD"
    ) -> Schema:
        """Declare a type's schema, as a new version unless the newest is the same.

        BACKWARD: data of the old schema is valid under the new one. FORWARD: the other way round. FULL: both. NONE:
        neither is asked for. Raises SchemaInvalid, SchemaIncompatible.
        """
        check_name(name, "a schema's name")
        plain = json_copy(dict(schema) if isinstance(schema, Mapping) else schema, where=f"schema {name}")[1]
        versions = self._versions.get(name, [])
        if versions and versions[-1].hash == fingerprint(plain):
            return versions[-1]
        new = _compiled(name, self._next(name), plain, compatibility)
        for old in versions:
            broken = breaks(old.schema, plain, compatibility)
            if broken:
                raise _incompatible(new, old, broken)
        self._write([new])
        self._add(new)
        return new

    def get(self, name: str, version: int | None = None) -> Schema:
        """A schema by name, the newest version unless one is named. Raises SchemaUnknown."""
        for schema in reversed(self._versions.get(name, [])):
            if version is None or schema.version == version:
                return schema
        known = ", ".join(str(schema.version) for schema in self._versions.get(name, []))
        raise SchemaUnknown(
            f"there is no schema {name!r}" if not known else f"schema {name!r} has no version {version}",
            why=f"its versions are {known}" if known else None,
            mend="Register it with infra.schemas.register().",
            facts={"schema": name, "version": version},
        )

    def names(self) -> list[str]:
        """The declared types."""
        return sorted(self._versions)

    def _has(self, name: str, hash: str) -> bool:
        return any(schema.hash == hash for schema in self._versions.get(name, []))

    def _next(self, name: str) -> int:
        return max((schema.version for schema in self._versions.get(name, [])), default=0) + 1

    def _add(self, schema: Schema) -> None:
        versions = self._versions.setdefault(schema.name, [])
        versions.append(schema)
        versions.sort(key=lambda each: each.version)

    def _write(self, schemas: Iterable[Schema]) -> None:
        drafts = [
            self.draft(
                "schema",
                {
                    "name": schema.name,
                    "version": schema.version,
                    "schema": schema.schema,
                    "hash": schema.hash,
                    "compatibility": schema.compatibility,
                },
                key=f"schema/{schema.name}/{schema.version}",
            )
            for schema in schemas
        ]
        with self._engine.writing(REGISTRY, agent=None, expect=None, timeout=30.0):
            _, ticket = self._engine.commit(REGISTRY, StepDraft(nodes=drafts))
        self._engine.settle(ticket)

    # -- checking ----------------------------------------------------------------------------------

    def schema_for(self, type: str) -> Schema:
        """The schema that new nodes of a type are checked against; an open one for a type that none declares.

        Raises SchemaUnknown for an undeclared type where the setting `undeclared_types` says "refuse".
        """
        versions = self._versions.get(type)
        if versions:
            return versions[-1]
        if self._undeclared == "refuse":
            raise SchemaUnknown(
                f"no schema declares the node type {type!r}",
                why="the setting undeclared_types is 'refuse'",
                mend="Put a schema into schemas/, or register one with infra.schemas.register().",
                facts={"schema": type},
            )
        schema = self._open.get(type)
        if schema is None:
            check_name(type, "a node's type")
            schema = self._open[type] = _compiled(type, 0, {}, "NONE")
            _log.warning("undeclared_type", type=type, meaning="its data is not checked; declare a schema for it")
        return schema

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
    ) -> NodeDraft:
        """A node ready to be written: its data checked and copied.

        Raises NotJson, SchemaMismatch, SchemaUnknown, InvalidNode.
        """
        schema = self.schema_for(type)
        body, copy = json_copy(data, where=f"the data of a {type!r} node")
        if not isinstance(copy, dict):
            raise InvalidNode(f"the data of a {type!r} node must be an object, not a {_kind(data)}")
        if not schema.validator.is_valid(copy):
            raise _mismatch(schema, copy)
        for text, what in ((key, "a node's key"), (tool, "a node's tool"), (owner, "a node's owner")):
            if text is not None:
                check_name(text, what)
        checked = _check_permissions(permissions) if permissions else None
        for label in labels if not isinstance(labels, str) else (None,):
            check_name(label, "a label")
        valid_for = _check_ttl(schema.ttl if ttl is None else ttl)
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


def _compiled(name: str, version: int, schema: Any, compatibility: Compatibility) -> Schema:
    json_bytes(schema, where=f"schema {name}")
    try:
        jsonschema_rs.meta.validate(schema)
        validator = jsonschema_rs.validator_for(schema, offline=True, validate_formats=True)
    except Exception as error:  # noqa: BLE001 - ValueError, ValidationError, ReferencingError, by what is wrong
        pointer = _pointer(getattr(error, "instance_path", ()))
        raise SchemaInvalid(
            f"schema {name!r} can't be used",
            where=pointer,
            why=getattr(error, "message", None) or str(error),
            mend="Schemas are JSON Schema; a $ref may point inside the schema only.",
            facts={"schema": name, "path": pointer},
        ) from None
    ttl = cast("dict[str, Any]", schema).get("x-ttl") if isinstance(schema, dict) else None
    return Schema(name, version, schema, fingerprint(schema), compatibility, validator, _check_ttl(ttl))


def _incompatible(new: Schema, old: Schema, broken: Break) -> SchemaIncompatible:
    return SchemaIncompatible(
        f"version {new.version} of schema {new.name!r} is not {new.compatibility} compatible with {old.version}",
        where=broken.path,
        why=broken.reason,
        mend="Make the change compatible, or register it with compatibility='NONE' under a new name.",
        facts={"schema": new.name, "path": broken.path, "rule": broken.rule, "versions": [old.version, new.version]},
    )


def _mismatch(schema: Schema, data: Any) -> SchemaMismatch:
    problems = [
        {"path": _pointer(error.instance_path), "message": str(error.message)}
        for error in schema.validator.iter_errors(data)
    ]
    return SchemaMismatch(
        f"the data is not a valid {schema.name!r}",
        where=problems[0]["path"],
        why="; ".join(f"{each['path']}: {each['message']}" for each in problems),
        mend=f"Version {schema.version} of its schema asks for this; nothing was written.",
        facts={"schema": schema.name, "version": schema.version, "path": problems[0]["path"], "problems": problems},
    )


def _pointer(path: Iterable[Any]) -> str:
    return "/" + "/".join(str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _check_permissions(permissions: Mapping[str, Any]) -> dict[str, Any]:
    plain = json_copy(permissions, where="permissions")[1]
    lists = list(cast("dict[str, Any]", plain).values()) if isinstance(plain, dict) else [None]
    right_form = all(
        isinstance(each, list) and all(isinstance(name, str) for name in cast("list[Any]", each)) for each in lists
    )
    if not right_form or not set(cast("dict[str, Any]", plain)) <= {"read", "write"}:
        raise InvalidNode(
            f"{permissions!r} can't be a node's permissions",
            mend='Write {"read": [names], "write": [names]}; a name is an agent\'s, `role:<name>`, or `*`.',
        )
    return cast("dict[str, Any]", plain)


def _check_ttl(ttl: float | None) -> float | None:
    if ttl is None:
        return None
    if (
        isinstance(cast("Any", ttl), bool)
        or not isinstance(cast("Any", ttl), int | float)
        or not 0 <= ttl <= LONGEST_TTL
    ):
        raise InvalidNode(f"a ttl is seconds from 0 on, not {ttl!r}", mend="Leave it out for a node that stays valid.")
    return ttl


def _kind(value: Any) -> str:
    return type(value).__name__
