"""What must be kept: pins, each session's line, and what retention left of each branch.

A *line* is what leads to a session's head; it is readable from its first readable place on. A version is readable if a
line or a pin needs it, or if retention has never been asked to remove it. Everything here is a small table held in
memory and written through; `collect.py` is what removes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agent_infra.errors import InvalidNode, VersionCollected
from agent_infra.state import keys, records
from agent_infra.state.records import Line, Pin, Remains

if TYPE_CHECKING:
    from agent_infra.state.engine import StateEngine
    from agent_infra.state.view import Place

EVERYTHING: Final = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Retention:
    """Which versions of a session's line stay readable; the head always does. None: no limit of that kind.

    keep_last        so many versions
    max_age          versions committed in the last so many seconds
    max_bytes        the newest versions whose nodes take so many bytes together
    abandoned_after  versions that were rolled back, until so many seconds after their last commit
    """

    keep_last: int | None = None
    max_age: float | None = None
    max_bytes: int | None = None
    abandoned_after: float | None = None

    def __post_init__(self) -> None:
        for name in ("keep_last", "max_age", "max_bytes", "abandoned_after"):
            value = getattr(self, name)
            if value is not None and value < (1 if name == "keep_last" else 0):
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
        scan = engine.store.scan
        self._pins: dict[tuple[int, int], dict[str, Pin]] = {}
        for key, value in scan(b"R", b"S"):
            br, step, owner = keys.pin_parts(key)
            self._pins.setdefault((br, step), {})[owner] = records.decode_pin(value)
        self._remains = {
            int.from_bytes(key[1:], "big"): records.decode_remains(value) for key, value in scan(b"Z", b"[")
        }
        self._lines = {key[1:].decode(): records.decode_line(value) for key, value in scan(b"L", b"M")}

    # -- pins --------------------------------------------------------------------------------------------------------

    def pin(self, place: Place, owner: str, why: str | None) -> None:
        """Keep a version readable until `unpin` by the same owner. Raises VersionCollected."""
        with self.topology:
            self.check(place, "")
            pin = Pin(why, self._engine.clock.micros())
            self._engine.store.write([(keys.pin(place.branch, place.step, owner), records.pack(pin))], sync=True)
            self._pins.setdefault((place.branch, place.step), {})[owner] = pin

    def unpin(self, place: Place, owner: str) -> bool:
        """Let go of a pin; whether there was one."""
        with self.topology:
            owners = self._pins.get((place.branch, place.step), {})
            if owners.pop(owner, None) is None:
                return False
            if not owners:
                del self._pins[place.branch, place.step]
            self._engine.store.write([(keys.pin(place.branch, place.step, owner), None)], sync=True)
            return True

    def pins(self) -> Iterator[tuple[int, int, str, Pin]]:
        """(branch, step, owner, pin) of every pin."""
        for (br, step), owners in sorted(self._pins.items()):
            for owner, pin in sorted(owners.items()):
                yield br, step, owner, pin

    # -- what is readable --------------------------------------------------------------------------------------------

    def readable(self, br: int, step: int) -> bool:
        """Whether a version can be opened."""
        return step >= self.first(br) or (br, step) in self._pins

    def check(self, place: Place, session: str) -> None:
        """Raises VersionCollected for a version that retention has removed."""
        if place.branch and not self.readable(place.branch, place.step):
            raise collected(self._engine.version_of(session, place))

    def first(self, br: int) -> int:
        """The first readable step of a branch, pins aside."""
        return self._remains.get(br, _WHOLE).first

    def closed(self, br: int) -> bool:
        """Whether a branch lost its tail, so that its step numbers must not be used again."""
        return self._remains.get(br, _WHOLE).closed

    def set_remains(self, br: int, first: int, *, closed: bool) -> None:
        """Say what is left of a branch, before anything of it is removed."""
        remains = Remains(max(first, self.first(br)), closed or self.closed(br))
        self._engine.store.write([(keys.remains(br), records.pack(remains))])
        self._remains[br] = remains

    # -- lines -------------------------------------------------------------------------------------------------------

    def line(self, session: str) -> Line:
        """The first readable place of a session's line; (0, 0) where nothing of it was ever removed."""
        return self._lines.get(session, _FROM_THE_START)

    def set_line(self, session: str, line: Line) -> None:
        """Say from where on a session's line is readable."""
        self._engine.store.write([(keys.line(session), records.pack(line))])
        self._lines[session] = line


_WHOLE: Final = Remains()
_FROM_THE_START: Final = Line(0, 0)


def collected(version: str) -> VersionCollected:
    """The error for a version that is gone."""
    return VersionCollected(
        f"version {version!r} was removed by retention",
        mend="Pin versions that must stay; `graph.history()` lists those that can be opened.",
        facts={"version": version},
    )
