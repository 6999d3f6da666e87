"""Operational records: small JSON values beside the graph, overwritten in place.

Where a source stands, what waits for its event, how often a letter was tried: no history is kept of these. What they
*cause* is a node. One `Records` is one table of names; the rows of all tables lie in the home's store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from agent_infra.content import JsonValue
from agent_infra.state.rows import keys

if TYPE_CHECKING:
    from agent_infra.state.engine import StateEngine
    from agent_infra.state.stores import Write

_decode = msgspec.msgpack.Decoder().decode
_encode = msgspec.msgpack.Encoder().encode


class Records:
    """A table of JSON values by name. Names are texts without NUL; they are listed in the order of their UTF-8 bytes."""

    def __init__(self, engine: StateEngine, table: str) -> None:
        self._engine = engine
        self._prefix = keys.records_prefix(table)

    def get(self, name: str) -> JsonValue:
        """The value under a name; None where there is none."""
        raw = self._engine.store.get(self._prefix + name.encode())
        return None if raw is None else _decode(raw)

    def put(self, name: str, value: JsonValue) -> None:
        """Set a value, and return once it is as durable as the home's setting promises. None removes it."""
        self.put_all({name: value})

    def put_all(self, values: Mapping[str, JsonValue]) -> None:
        """Set several values at once, all or nothing; None removes."""
        engine = self._engine
        engine.store.write(self.rows(values), sync=engine.durability == "step")
        engine.settle(engine.ticket())

    def rows(self, values: Mapping[str, JsonValue]) -> list[Write]:
        """The rows of several values, to be written in the batch of a step."""
        return [
            (self._prefix + name.encode(), None if value is None else _encode(value)) for name, value in values.items()
        ]

    def items(self, start: str = "", limit: int | None = None) -> Iterator[tuple[str, Any]]:
        """Names that begin with `start`, and their values; by name."""
        lower = self._prefix + start.encode()
        for count, (key, raw) in enumerate(self._engine.store.scan(lower, keys.after(lower))):
            if limit is not None and count >= limit:
                return
            yield key[len(self._prefix) :].decode(), _decode(raw)

    def remove(self, names: Iterable[str]) -> None:
        """Remove several values at once."""
        self.put_all(dict.fromkeys(names))
