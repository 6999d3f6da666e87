"""One version of a type's schema: compiled, and what is wrong with data under it."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias, cast

import jsonschema_rs

from agent_infra.content import fingerprint, json_bytes
from agent_infra.errors import InvalidNode, SchemaInvalid, SchemaMismatch
from agent_infra.state.schemas.references import pointer_of, references

Compatibility: TypeAlias = Literal[
    "NONE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"
]
Stamp: TypeAlias = tuple[str, int, str]
LONGEST_TTL: Final = 1e11
"""Seconds; some 3,000 years."""
_MERGE_RULES: Final = ("newest",)
_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")


class MergeRules(Protocol):
    """What node types say of two writers of one key."""

    def merge_rule(self, type: str) -> str | None:
        """ "newest": the later commit supersedes the earlier one. None: there is no rule, two writers are a mistake."""
        ...


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of a node type's schema.

    version          from 1 on; 0 is the open schema of a type that none declares
    hash             of the schema's content
    compatibility    what was promised when it was registered
    ttl              the schema's own `x-ttl`: seconds of validity where a node sets none; 0: its nodes are permanent
    merge            the schema's own `x-merge`: "newest" where two writers of one key may commit in either order
    tags             names that people give the version, as "2.1"
    compatible_with  the versions for which the promise was found kept
    deprecated       why no new node should be of it, or None
    """

    name: str
    version: int
    schema: Any
    hash: str
    compatibility: Compatibility
    validator: Any
    ttl: float | None
    tags: tuple[str, ...] = ()
    compatible_with: tuple[int, ...] = ()
    deprecated: str | None = None
    merge: str | None = None

    @property
    def stamp(self) -> Stamp:
        """What a node records of the schema that it was checked against."""
        return self.name, self.version, self.hash

    def __str__(self) -> str:
        tags = f" ({', '.join(self.tags)})" if self.tags else ""
        return f"version {self.version}{tags} of {self.name!r}"

    def problems(self, data: Any) -> list[dict[str, str]]:
        """What is wrong with data: JSON pointer and message, each."""
        if self.validator.is_valid(data):
            return []
        return [
            {"path": pointer_of(error.instance_path), "message": str(error.message)}
            for error in self.validator.iter_errors(data)
        ]

    def check(self, data: Any) -> None:
        """Raises SchemaMismatch with everything that is wrong with data."""
        problems = self.problems(data)
        if problems:
            raise SchemaMismatch(
                f"the data is not a valid {self.name!r}",
                where=problems[0]["path"],
                why="; ".join(f"{each['path']}: {each['message']}" for each in problems),
                mend=f"Version {self.version} of its schema asks for this; nothing was written.",
                facts={
                    "schema": self.name,
                    "version": self.version,
                    "path": problems[0]["path"],
                    "problems": problems,
                },
            )


def compile_schema(
    name: str,
    version: int,
    schema: Any,
    compatibility: Compatibility,
    *,
    tags: tuple[str, ...] = (),
    compatible_with: tuple[int, ...] = (),
    deprecated: str | None = None,
) -> Schema:
    """A schema ready to check data, itself checked against JSON Schema's own.

    Raises SchemaInvalid, with the JSON pointer of what is wrong; a `$ref` that leaves the schema is wrong.
    """
    json_bytes(schema, where=f"schema {name}")
    remote = next((found for found in references(schema) if not found[1].startswith("#")), None)
    if remote is not None:
        raise _invalid(name, remote[0], f"{remote[1]!r} is outside this schema, and nothing is fetched")
    try:
        validator = jsonschema_rs.validator_for(schema, offline=True, validate_formats=True)
    except jsonschema_rs.ValidationError as error:
        raise _invalid(name, *_told(schema, error)) from None
    except (ValueError, TypeError) as error:
        raise _invalid(name, "/", str(error)) from None
    told = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
    ttl = check_ttl(told.get("x-ttl"))
    if not are_permissions(told.get("x-permissions", {})):
        raise _invalid(name, "/x-permissions", 'it is {"read": [names], "write": [names]}')
    merge = told.get("x-merge")
    if merge not in (None, *_MERGE_RULES):
        raise _invalid(name, "/x-merge", f"it is one of {', '.join(_MERGE_RULES)}, not {merge!r}")
    return Schema(
        name,
        version,
        schema,
        fingerprint(schema),
        compatibility,
        validator,
        ttl,
        tags,
        compatible_with,
        deprecated,
        merge,
    )


def are_permissions(rule: Any) -> bool:
    """Whether a rule has the form {"read": [names], "write": [names]}."""
    if not isinstance(rule, dict) or not set(cast("dict[str, Any]", rule)) <= {"read", "write"}:
        return False
    lists = cast("dict[str, Any]", rule).values()
    return all(
        isinstance(each, list) and all(isinstance(name, str) for name in cast("list[Any]", each)) for each in lists
    )


def check_ttl(ttl: float | None) -> float | None:
    """A ttl itself, if it can be one. Raises InvalidNode."""
    if ttl is None:
        return None
    is_number = isinstance(cast("Any", ttl), int | float) and not isinstance(cast("Any", ttl), bool)
    if not is_number or not 0 <= ttl <= LONGEST_TTL:
        raise InvalidNode(f"a ttl is seconds from 0 on, not {ttl!r}", mend="Leave it out for a node that stays valid.")
    return ttl


def _told(schema: Any, error: jsonschema_rs.ValidationError) -> tuple[str, str]:
    """(pointer, reason) of what the library found wrong with a schema."""
    path, instance = list(error.instance_path), cast("Any", error.instance)
    if path and path[-1] == "type" and isinstance(instance, str):
        alike = difflib.get_close_matches(instance, _TYPES, n=1)
        hint = f"; did you mean {alike[0]!r}?" if alike else ""
        return pointer_of(path), f"{instance!r} is not a JSON Schema type ({', '.join(_TYPES)}){hint}"
    if not path:
        dangling = next((at for at, target in references(schema) if target[1:] and target[1:] in error.message), "/")
        return dangling, error.message
    return pointer_of(path), error.message


def _invalid(name: str, pointer: str, reason: str) -> SchemaInvalid:
    return SchemaInvalid(
        f"schema {name!r} can't be used",
        where=pointer,
        why=reason,
        mend="Schemas are JSON Schema; a $ref may point inside the schema only.",
        facts={"schema": name, "path": pointer},
    )
