"""What must be kept: pins, what each session asks for of its line, and what retention took of each branch.

A *line* is what leads to a session's head. A version is collected once every line through it has moved on past what
its session asks to keep, or once it was rolled back for long enough; then only a pin still opens it. Everything here is
a small table held in memory and written through; `collect.py` is what removes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent_infra.errors import InvalidNode, VersionCollected
from agent_infra.state.retention.spans import Spans, covers, without
from agent_infra.state.rows import keys, records
from agent_infra.state.rows.records import Pin, Remains

if TYPE_CHECKING:
    from agent_infra.state.engine import StateEngine
    from agent_infra.state.reading.view import Place
    from agent_infra.state.stores import Write


@dataclass(frozen=True, slots=True)
class Retention:
    """Which versions of a session's line stay readable; the head always does. None: no limit of that kind.

    keep_last        so many versions
    max_age          versions committed in the last so many seconds
    max_bytes        the newest versions whose nodes, with what they refer to, take so many bytes together
    abandoned_after  versions that were rolled back, until so many seconds after their last commit
    """

    keep_last: int | None = None
    max_age: float | None = None
    max_bytes: int | None = None
    abandoned_after: float | None = None

    def __post_init__(self) -> None:
        for name in ("keep_last", "max_age", "max_bytes", "abandoned_after"):
            value = getattr(self, name)
            if value is not None and not value >= (1 if name == "keep_last" else 0):
                raise InvalidNode(f"{name} can't be {value!r}", mend="The head always stays: keep_last is at least 1.")

    @property
    def limits_line(self) -> bool:
        """Whether it asks for versions of the line to be removed."""
        return (self.keep_last, self.max_age, self.max_bytes) != (None, None, None)


class Keeping:
    """The tables of what is kept. `topology` guards moves of heads, forks, pins and collection against each other."""

    def __init__(self, engine: StateEngine) -> None:
        self.topology = threading.RLock()
        self._engine = engine
        self._pins: dict[int, dict[int, dict[str, Pin]]] = {}
        self._remains: dict[int, Remains] = {}
        self._asked: dict[str, int] = {}
        for kind in (b"L", b"R", b"Z"):
            self.note(engine.store.scan(kind, keys.after(kind)))

    def write(self, rows: list[Write], *, sync: bool = False) -> None:
        """Write rows of these tables, in one batch."""
        self._engine.store.write(rows, sync=sync)
        self.note(rows)

    def note(self, rows: Iterable[Write]) -> None:
        """Take over rows of these tables that are in the store."""
        for key, value in rows:
            if key[:1] == b"Z":
                self._remains[keys.remains_branch(key)] = records.decode_remains(value) if value else _WHOLE
            elif key[:1] == b"L":
                self._asked[key[1:].decode()] = int.from_bytes(value or b"", "big")
            else:
                br, step, owner = keys.pin_parts(key)
                owners = self._pins.setdefault(br, {}).setdefault(step, {})
                if value is not None:
                    owners[owner] = records.decode_pin(value)
                elif owners.pop(owner, None) is not None and not owners:
                    del self._pins[br][step]

    # -- pins --------------------------------------------------------------------------------------------------------

    def pin(self, place: Place, owner: str, why: str | None) -> None:
        """Keep a version readable until `unpin` by the same owner. Raises VersionCollected."""
        with self.topology:
            self.check(place, "")
            pin = Pin(why, self._engine.clock.micros())
            self.write([(keys.pin(place.branch, place.step, owner), records.pack(pin))], sync=True)

    def unpin(self, place: Place, owner: str) -> bool:
        """Let go of a pin; whether there was one."""
        with self.topology:
            if owner not in self._pins.get(place.branch, {}).get(place.step, {}):
                return False
            self.write([(keys.pin(place.branch, place.step, owner), None)], sync=True)
            return True

    def pins(self) -> Iterator[tuple[int, int, str, Pin]]:
        """(branch, step, owner, pin) of every pin."""
        for br, steps in sorted(self._pins.items()):
            for step, owners in sorted(steps.items()):
                for owner, pin in sorted(owners.items()):
                    yield br, step, owner, pin

    def pinned(self, br: int) -> list[int]:
        """The pinned steps of a branch."""
        return list(self._pins.get(br, ()))

    # -- what is readable --------------------------------------------------------------------------------------------

    def readable(self, br: int, step: int) -> bool:
        """Whether a version can be opened."""
        return not covers(self.gone(br), step) or step in self._pins.get(br, {})

    def check(self, place: Place, session: str) -> None:
        """Raises VersionCollected for a version that retention has removed."""
        if place.branch and not self.readable(place.branch, place.step):
            raise collected(self._engine.version_of(session, place))

    def gone(self, br: int) -> Spans:
        """The steps of a branch that were collected."""
        return self._remains.get(br, _WHOLE).gone

    def closed(self, br: int) -> bool:
        """Whether a branch lost its tail, so that its step numbers must not be used again."""
        return self._remains.get(br, _WHOLE).closed

    def remains_row(self, br: int, gone: Spans, *, closed: bool = False) -> Write:
        """The row that says what is left of a branch. It is written before anything of it is removed."""
        return keys.remains(br), records.pack(Remains(gone, closed or self.closed(br)))

    # -- lines -------------------------------------------------------------------------------------------------------

    def asked_from(self, session: str) -> int:
        """The step from which on a session asks for its line; 0 where it never let go of any."""
        return self._asked.get(session, 0)

    def asked_row(self, session: str, step: int) -> Write:
        """The row that says from where on a session asks for its line."""
        return keys.line(session), step.to_bytes(4, "big")

    def move_rows(self, session: str, to: Place) -> list[Write]:
        """What a head's move changes here: the session asks for the whole of its new line, and a version that only a
        pin kept is the line's own from now on.
        """
        rows: list[Write] = [(keys.line(session), None)] if session in self._asked else []
        if covers(self.gone(to.branch), to.step):
            rows.append(self.remains_row(to.branch, without(self.gone(to.branch), to.step, to.step)))
        return rows


_WHOLE: Final = Remains()


def collected(version: str) -> VersionCollected:
    """The error for a version that is gone."""
    return VersionCollected(
        f"version {version!r} was removed by retention",
        mend="Pin versions that must stay; `graph.history()` lists those that can be opened.",
        facts={"version": version},
    )
