"""The format of a home: a number in every store, and the way from each older one to the present.

A home of another format is refused when it is opened, never guessed at. `agent-infra state upgrade` brings an older one
up to date, one format at a time. Each upgrade leaves a store that can be upgraded again: the number is written last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from agent_infra.errors import StoreFormat
from agent_infra.state.rows import keys, records
from agent_infra.state.stores import Store

UpgradeStep: TypeAlias = Callable[[Store], None]
UPGRADES: Final[Mapping[int, UpgradeStep]] = {}
"""By the format that each begins with: it rewrites the rows of a store as the next format has them."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """What was done: from which format to which; equal where nothing was to be done."""

    home: str
    found: int
    now: int

    @property
    def is_done(self) -> bool:
        """Whether anything was changed."""
        return self.found != self.now

    def __str__(self) -> str:
        if not self.is_done:
            return f"{self.home} has format {self.now}, which is the present one: nothing to do"
        return f"{self.home} was brought from format {self.found} to {self.now}"


def check_format(store: Store, path: Path) -> None:
    """Write the format number into a new store. Raises StoreFormat for one of another format, or of none."""
    if store.get(keys.FORMAT) is None and next(iter(store.scan(b"", b"\xff")), None) is None:
        _write(store, records.FORMAT_NUMBER)
        return
    found = _format_of(store, path)
    if found > records.FORMAT_NUMBER:
        raise _refused(found, path, "Open it with the version that wrote it, or a newer one.")
    if found < records.FORMAT_NUMBER:
        raise _refused(found, path, "Make a copy of it, then run `agent-infra state upgrade`.")


def upgrade_store(store: Store, path: Path, upgrades: Mapping[int, UpgradeStep], present: int) -> Upgrade:
    """Apply one upgrade after the other until a store has the present format. Raises StoreFormat before any of them."""
    found = _format_of(store, path)
    if found > present or any(number not in upgrades for number in range(found, present)):
        raise _refused(found, path, "Upgrade it with a version between the one that wrote it and this one.")
    for number in range(found, present):
        upgrades[number](store)
        _write(store, number + 1)
    return Upgrade(str(path), found, present)


def _format_of(store: Store, path: Path) -> int:
    raw = store.get(keys.FORMAT)
    if raw is None or not raw.isdigit():
        told = "no format number" if raw is None else f"the format {raw.decode(errors='replace')!r}"
        raise StoreFormat(
            f"the home has {told}",
            where=str(path),
            mend="It is not a home that this library wrote, or it is damaged; restore it from a copy.",
            facts={"found": raw.decode(errors="replace") if raw else None, "reads": records.FORMAT_NUMBER},
        )
    return int(raw)


def _write(store: Store, number: int) -> None:
    store.write([(keys.FORMAT, str(number).encode())], sync=True)


def _refused(found: int, path: Path, mend: str) -> StoreFormat:
    return StoreFormat(
        f"the home has format {found}, this version reads format {records.FORMAT_NUMBER}",
        where=str(path),
        mend=mend,
        facts={"found": str(found), "reads": records.FORMAT_NUMBER},
    )
