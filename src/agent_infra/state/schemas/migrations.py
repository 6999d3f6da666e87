"""Migrations: how data of one schema version becomes data of another, in both directions, over as many steps as it
takes.

A *link* leads from one version to another: a migration, or the promise of a compatible version, under which data passes
as it is. The chain with the fewest links is taken; a promise counts once for every version that it passes over, so that
a migration is preferred to it. Where a link is missing, the error names it. After each link the data is checked against
the schema that it has reached.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, Protocol, TypeAlias, cast

from agent_infra.content import json_copy
from agent_infra.errors import AgentInfraError, MigrationFailed, MigrationInvalid, MigrationMissing, NotJson
from agent_infra.state.schemas.compatibility import read_by_old, reads_old
from agent_infra.state.schemas.mapping import DeclaredMapping
from agent_infra.state.schemas.schema import Schema

Data: TypeAlias = "dict[str, Any]"
Function: TypeAlias = Callable[[Data], Data]
Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Migration:
    """One link from version `source` to version `target` of a schema.

    kind      "mapping": data, kept in the home; "python": a function, registered anew by each process; "promise": data
              passes as it is
    function  what it does; None for a Python function that this process has not registered
    said      the mapping itself, or the function's name
    """

    name: str
    source: int
    target: int
    kind: Literal["mapping", "python", "promise"]
    function: Function | None
    said: Any = None

    @property
    def pair(self) -> Pair:
        """(source, target)."""
        return self.source, self.target

    def as_dict(self) -> dict[str, Any]:
        """The migration as it is kept."""
        said = {"mapping": self.said} if self.kind == "mapping" else {"function": self.said}
        return {"name": self.name, "from": self.source, "to": self.target, "kind": self.kind, **said}

    def apply(self, data: Data, target: Schema) -> Data:
        """Data of the source version as data of the target version. Raises MigrationFailed."""
        assert self.function is not None, "chains hold usable links only"
        try:
            made = json_copy(self.function(json_copy(data)[1]), where=f"what the migration of {self.name} gave")[1]
        except NotJson as error:
            raise self._failed(str(error), error.facts.get("path", "/")) from error
        except AgentInfraError as error:
            raise self._failed(str(error), "/") from error
        except Exception as error:
            told = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise self._failed(told, "/") from error
        if not isinstance(made, dict):
            raise self._failed(f"it gave a {type(made).__name__}, not an object", "/")
        problems = target.problems(made)
        if problems:
            told = "; ".join(f"{each['path']}: {each['message']}" for each in problems)
            raise self._failed(f"what it gave is not valid there: {told}", problems[0]["path"])
        return cast("Data", made)

    def _failed(self, why: str, path: str) -> MigrationFailed:
        what = "the promise of compatibility" if self.kind == "promise" else "the migration"
        return MigrationFailed(
            f"{what} of {self.name!r} from version {self.source} to {self.target} failed",
            where=path,
            why=why,
            mend="Mend the migration, or register one; nothing was written.",
            facts={"schema": self.name, "step": [self.source, self.target], "path": path},
        )


class Versions(Protocol):
    """Where the versions of a schema are looked up."""

    def get(self, name: str, version: int | str | None = None) -> Schema:
        """One version. Raises SchemaUnknown."""
        ...

    def list(self, name: str | None = None) -> Sequence[Schema]:
        """All versions of a schema, oldest first."""
        ...


class Migrations:
    """All migrations of a home, and the chains that they make."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._known: dict[str, dict[Pair, Migration]] = {}

    def add(self, migration: Migration) -> bool:
        """Take in a migration, in place of one between the same versions; whether what is kept of it changed."""
        known = self._known.setdefault(migration.name, {})
        before = known.get(migration.pair)
        known[migration.pair] = migration
        return before is None or before.as_dict() != migration.as_dict()

    def registered(self, name: str | None = None) -> tuple[Migration, ...]:
        """The registered migrations, of one schema or of all."""
        names = sorted(self._known) if name is None else [name]
        return tuple(self._known.get(each, {})[pair] for each in names for pair in sorted(self._known.get(each, {})))

    def bring(self, data: Data, source: Schema, target: Schema) -> Data:
        """Data of one version as data of another. Raises MigrationMissing, MigrationFailed."""
        for link in self.chain(source, target):
            data = link.apply(data, self._versions.get(link.name, link.target))
        return data

    def chain(self, source: Schema, target: Schema) -> list[Migration]:
        """The links to follow, in order. Raises MigrationMissing, naming the step that is not there."""
        links = list(self._links(target.name))
        found = _shortest(source.version, target.version, [link for link in links if link.function is not None])
        if found is None:
            raise self._missing(source, target, links)
        return found

    def leads(self, source: Schema, target: Schema) -> bool:
        """Whether there is a chain."""
        links = [link for link in self._links(target.name) if link.function is not None]
        return _shortest(source.version, target.version, links) is not None

    def _links(self, name: str) -> Iterator[Migration]:
        """Migrations, and promises where there is none. Data of the time before a type was declared passes as it is,
        if it is valid.
        """
        known = self._known.get(name, {})
        yield from known.values()
        schemas = self._versions.list(name)
        promised = [(0, schema.version) for schema in schemas[:1]]
        for new in schemas:
            promised += [(old, new.version) for old in new.compatible_with if reads_old(new.compatibility)]
            promised += [(new.version, old) for old in new.compatible_with if read_by_old(new.compatibility)]
        yield from (Migration(name, *pair, "promise", _unchanged) for pair in promised if pair not in known)

    def _missing(self, source: Schema, target: Schema, links: Sequence[Migration]) -> MigrationMissing:
        dormant = _shortest(source.version, target.version, links)
        step = next((link for link in dormant or () if link.function is None), None)
        if step is not None:
            missing = step.pair
            why = (
                f"the step from {step.source} to {step.target} is the Python function {step.said}, which this process "
            )
            why += "has not registered"
        else:
            missing = _gap(source.version, target.version, links)
            why = f"no migration leads from {missing[0]} to {missing[1]}"
        name = target.name
        return MigrationMissing(
            f"data of {source} can't be brought to {target}",
            where=f"{name} {source.version} -> {target.version}",
            why=why,
            mend=f"Register it: infra.schemas.migrate({name!r}, {missing[0]}, {missing[1]}, …).",
            facts={
                "schema": name,
                "from": source.version,
                "to": target.version,
                "missing": list(missing),
                "function": step.said if step is not None else None,
            },
        )


def make_migration(name: str, source: int, target: int, function: Function | Mapping[str, Any]) -> Migration:
    """A migration from a Python function or a declarative mapping. Raises MigrationInvalid."""
    if source == target:
        raise MigrationInvalid(
            f"a migration of {name!r} leads from version {source} to itself", mend="Name two versions."
        )
    if isinstance(function, Mapping):
        source_data = cast("Mapping[str, Any]", function)
        mapping = DeclaredMapping(source_data, f"the migration of {name!r} from {source} to {target}")
        return Migration(name, source, target, "mapping", mapping, mapping.source)
    if not callable(cast("Any", function)):
        raise MigrationInvalid(
            f"a migration of {name!r} is a function or a mapping, not a {type(function).__name__}",
            mend="Give a Python function of the data, or an object with drop, rename, set and default.",
        )
    called = f"{getattr(function, '__module__', '?')}:{getattr(function, '__qualname__', repr(function))}"
    return Migration(name, source, target, "python", function, called)


def kept_migration(data: Mapping[str, Any]) -> Migration:
    """A migration as it was kept; a Python function is known by name only until it is registered again."""
    name, source, target = data["name"], data["from"], data["to"]
    if data["kind"] == "mapping":
        return make_migration(name, source, target, cast("Mapping[str, Any]", data["mapping"]))
    return Migration(name, source, target, "python", None, data["function"])


def _unchanged(data: Data) -> Data:
    return data


def _shortest(source: int, target: int, links: Iterable[Migration]) -> list[Migration] | None:
    """The cheapest chain (Dijkstra), among equals that with more migrations; None where there is none."""
    outgoing: dict[int, list[Migration]] = {}
    for link in links:
        outgoing.setdefault(link.source, []).append(link)
    tie = count()
    waiting: list[tuple[int, int, int, int, list[Migration]]] = [(0, 0, -source, next(tie), [])]
    done: set[int] = set()
    while waiting:
        cost, preferred, negative, _, chain = heapq.heappop(waiting)
        if -negative in done:
            continue
        if -negative == target:
            return chain
        done.add(-negative)
        for link in outgoing.get(-negative, []):
            is_promise = link.kind == "promise"
            step = abs(link.target - link.source) if is_promise else 1
            heapq.heappush(
                waiting,
                (cost + step, preferred if is_promise else preferred - 1, -link.target, next(tie), [*chain, link]),
            )
    return None


def _gap(source: int, target: int, links: Iterable[Migration]) -> Pair:
    """The step that is missing: from the farthest version that can be reached to the next from where the target can."""
    pairs = [link.pair for link in links if link.function is not None]
    ahead = _reached(source, pairs)
    behind = _reached(target, [(to, start) for start, to in pairs])
    low, high = min(source, target), max(source, target)
    up = target > source
    last = (max if up else min)(version for version in ahead if low <= version <= high)
    rest = [version for version in behind if low <= version <= high and (version > last if up else version < last)]
    return last, (min if up else max)(rest)


def _reached(start: int, pairs: Sequence[Pair]) -> set[int]:
    found = {start}
    waiting = [start]
    while waiting:
        here = waiting.pop()
        new = {to for begin, to in pairs if begin == here} - found
        found |= new
        waiting += new
    return found
