"""Whether a new version of a schema may follow the old ones.

    BACKWARD   data of the old versions is valid under the new one: new readers read old nodes as they are
    FORWARD    data of the new version is valid under the old ones: old readers read new nodes as they are
    FULL       both
    NONE       nothing is promised, and data goes from version to version by migrations only

A promise is checked against all versions *in use*: those that aren't deprecated, and those that a live node of some
session was written under. `…_TRANSITIVE` checks against every version that was ever registered, deprecated and unused
ones too: for data that lives outside of sessions' heads, as in exports, archives and versions opened by their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from agent_infra.errors import SchemaIncompatible
from agent_infra.state.schemas.losses import Loss, losses
from agent_infra.state.schemas.schema import Compatibility, Schema

MODES: Final[tuple[Compatibility, ...]] = (
    "NONE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)


@dataclass(frozen=True, slots=True)
class Break:
    """One broken promise: pointer into the data, the rule's name, the old versions, and the reason in words."""

    path: str
    rule: str
    versions: tuple[int, ...]
    reason: str


def reads_old(mode: Compatibility) -> bool:
    """Whether a version so registered takes the data of the old ones as it is."""
    return mode.startswith(("BACKWARD", "FULL"))


def read_by_old(mode: Compatibility) -> bool:
    """Whether the old versions take the data of one so registered as it is."""
    return mode.startswith(("FORWARD", "FULL"))


def breaks(new: Schema, old: Iterable[Schema], mode: Compatibility) -> list[Break]:
    """How a new schema breaks a promise towards old ones, the same break of several versions as one."""
    found: dict[tuple[bool, Loss], list[int]] = {}
    for each in old:
        if reads_old(mode):
            for loss in losses(each.schema, new.schema):
                found.setdefault((True, loss), []).append(each.version)
        if read_by_old(mode):
            for loss in losses(new.schema, each.schema):
                found.setdefault((False, loss), []).append(each.version)
    return [_break(new, backward, loss, versions) for (backward, loss), versions in found.items()]


def check_promise(new: Schema, old: Sequence[Schema], is_in_use: Callable[[Schema], bool]) -> tuple[int, ...]:
    """The versions towards which the new schema's promise holds. Raises SchemaIncompatible for one in use.

    `is_in_use` is asked of a deprecated version only, and only where it matters.
    """
    mode = new.compatibility
    if mode == "NONE":
        return ()
    kept: list[int] = []
    broken: list[Schema] = []
    for each in old:
        if not breaks(new, [each], mode):
            kept.append(each.version)
        elif mode.endswith("_TRANSITIVE") or each.deprecated is None or is_in_use(each):
            broken.append(each)
    if broken:
        raise _incompatible(new, breaks(new, broken, mode))
    return tuple(kept)


def _break(new: Schema, backward: bool, loss: Loss, versions: list[int]) -> Break:
    numbers = ", ".join(map(str, versions))
    old = f"version{'s' if len(versions) > 1 else ''} {numbers}"
    writer, reader = (old, f"version {new.version}") if backward else (f"version {new.version}", old)
    return Break(loss.path, loss.rule, tuple(versions), loss.told(writer, reader))


def _incompatible(new: Schema, found: list[Break]) -> SchemaIncompatible:
    first = found[0]
    versions = sorted({version for each in found for version in each.versions})
    return SchemaIncompatible(
        f"version {new.version} of schema {new.name!r} is not {new.compatibility} compatible with "
        f"{', '.join(map(str, versions))}",
        where=first.path,
        why="; ".join(f"{each.path}: {each.reason}" for each in found),
        mend="Make the change compatible, or register it with compatibility='NONE' and a migration.",
        facts={
            "schema": new.name,
            "version": new.version,
            "compatibility": new.compatibility,
            "path": first.path,
            "rule": first.rule,
            "versions": versions,
            "breaks": [
                {"path": each.path, "rule": each.rule, "versions": list(each.versions), "reason": each.reason}
                for each in found
            ],
        },
    )
