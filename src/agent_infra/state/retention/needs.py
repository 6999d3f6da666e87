"""Which nodes are still needed: those that some readable version shows alive.

A node lives from the version that wrote it until it is superseded, removed or out of time, and along any line the dead
stay dead. So it is enough to look at the version that wrote it and at those where readable versions begin: behind a
span of collected ones, and at each pin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent_infra.state.reading.view import Lineage
from agent_infra.state.retention.spans import covers
from agent_infra.state.rows import keys, records

if TYPE_CHECKING:
    from agent_infra.state.engine import StateEngine


@dataclass(frozen=True, slots=True)
class _Beginning:
    """A readable version whose parent is none."""

    last: dict[int, int]
    created: int

    @classmethod
    def at(cls, lineage: Lineage, created: int) -> _Beginning:
        return cls(dict(lineage), created)

    def sees(self, br: int, step: int) -> bool:
        return step <= self.last.get(br, -1)


class Needs:
    """What is needed as things stand: good for one pass under the topology lock."""

    def __init__(self, engine: StateEngine) -> None:
        self._engine = engine
        self._known: dict[int, list[_Beginning]] = {}

    def is_needed(self, ulid: bytes, row: bytes) -> bool:
        """Whether some readable version, of whatever session, shows a node alive."""
        _, br, step, _, _ = records.node_place(row)
        if self._engine.keeping.readable(br, step):
            return True
        beginnings = [each for each in self._beginnings_above(br) if each.sees(br, step)]
        if not beginnings:
            return False
        prefix = b"D" + ulid
        deaths = [keys.death_place(key) for key, _ in self._engine.store.scan(prefix, keys.after(prefix))]
        expires = records.read_node(ulid, row, "").expires
        return any(
            not any(each.sees(*death) for death in deaths) and (expires is None or expires > each.created)
            for each in beginnings
        )

    def _beginnings_above(self, br: int) -> list[_Beginning]:
        """Where readable versions begin, on a branch and on all that come from it."""
        known = self._known.get(br)
        if known is None:
            engine = self._engine
            known = self._known[br] = [
                _Beginning.at(engine.lineage(each, step), engine.place_at(each, step).created)
                for each in engine.branches_from(br)
                for step in set(self._steps(each))
            ]
        return known

    def _steps(self, br: int) -> Iterator[int]:
        """The steps of one branch at which readable versions begin."""
        engine, keeping = self._engine, self._engine.keeping
        gone, tip = keeping.gone(br), engine.tip(br)
        parent = engine.branch(br)
        behind = [last + 1 for _, last in gone]
        if covers(keeping.gone(parent.parent), parent.fork_step):
            behind.append(parent.fork_step + 1)
        yield from (step for step in behind if step <= tip and not covers(gone, step))
        yield from (step for step in keeping.pinned(br) if covers(gone, step))
