"""What changed from one version of a schema to another, and what that means for those who read and write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

from agent_infra.content import json_bytes
from agent_infra.state.schemas.compatibility import Break, breaks
from agent_infra.state.schemas.references import pointer_of
from agent_infra.state.schemas.schema import Schema


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One place of the schema, by JSON pointer, that was added, removed or changed."""

    path: str
    kind: Literal["added", "removed", "changed"]
    old: Any = None
    new: Any = None

    def __str__(self) -> str:
        sign = {"added": "+", "removed": "-", "changed": "~"}[self.kind]
        told = {
            "added": _short(self.new),
            "removed": _short(self.old),
            "changed": f"{_short(self.old)} -> {_short(self.new)}",
        }
        return f"{sign} {self.path}: {told[self.kind]}"


@dataclass(frozen=True, slots=True)
class SchemaDiff:
    """From version `old` to version `new` of a schema.

    backward  why readers of the new version can't take data of the old one as it is; empty where they can
    forward   the other way round
    """

    name: str
    old: int
    new: int
    changes: tuple[SchemaChange, ...]
    backward: tuple[Break, ...]
    forward: tuple[Break, ...]

    def __str__(self) -> str:
        lines = [f"{self.name} {self.old} -> {self.new}", *(f"  {change}" for change in self.changes)]
        for word, found in (("backward", self.backward), ("forward", self.forward)):
            lines.append(f"  {word} compatible: {'no' if found else 'yes'}")
            lines += [f"    {each.path}: {each.reason}" for each in found]
        return "\n".join(lines)


def schema_diff(old: Schema, new: Schema) -> SchemaDiff:
    """The difference between two versions of one schema."""
    changes = tuple(_changes(old.schema, new.schema, ""))
    return SchemaDiff(
        new.name,
        old.version,
        new.version,
        changes,
        tuple(breaks(new, [old], "BACKWARD")),
        tuple(breaks(new, [old], "FORWARD")),
    )


def _changes(old: Any, new: Any, path: str) -> Iterator[SchemaChange]:
    if isinstance(old, dict) and isinstance(new, dict):
        before, after = cast("dict[str, Any]", old), cast("dict[str, Any]", new)
        for name in sorted(before.keys() | after.keys()):
            at = path + pointer_of([name])
            if name not in after:
                yield SchemaChange(at, "removed", old=before[name])
            elif name not in before:
                yield SchemaChange(at, "added", new=after[name])
            else:
                yield from _changes(before[name], after[name], at)
    elif json_bytes(old) != json_bytes(new):
        yield SchemaChange(path or "/", "changed", old, new)


def _short(value: Any) -> str:
    text = json_bytes(value).decode()
    return text if len(text) <= 60 else text[:59] + "…"
