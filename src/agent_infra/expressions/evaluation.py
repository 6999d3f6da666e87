"""What an evaluation gives, and how JSON values enter and leave the engine.

Inside, whole numbers are doubles (`rewrite.py` says why). Outside, a whole result is an int again, as JSON knows one
kind of number only. An int too large to be exact as a double stays an int: it compares exactly, and calculating with it
is an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias, cast

from agent_infra.content import JsonValue
from agent_infra.expressions.faults import operator, plain_types
from agent_infra.expressions.paths import Path, obstacle
from agent_infra.expressions.rewrite import EXACT

Shape: TypeAlias = "dict[str, Shape | None]"
NOW = "now"
_OVERLOAD = re.compile(r"No matching overloads found : (.+?)(?:\((.*)\))?$")
_INDEX = re.compile(r"index=(-?\d+) size=(\d+)")
_UNREADABLE = re.compile(r"Key not found in map|No value with name|Applying SELECT")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """A value, or the reason why there is none."""

    value: JsonValue = None
    error: str | None = None

    @property
    def ok(self) -> bool:
        """Whether there is a value."""
        return self.error is None

    @property
    def holds(self) -> bool:
        """Whether it is a condition that is fulfilled: an error is not."""
        return self.error is None and self.value is True


def shape_of(paths: Iterable[Path]) -> Shape:
    """Paths as nested names; None where everything below is read."""
    shape: Shape = {}
    for path in sorted(paths, key=len):
        level = shape
        for name in path[:-1]:
            below = level.setdefault(name, {})
            if below is None:
                break
            level = below
        else:
            level.setdefault(path[-1], None)
    return shape


def engine_data(bindings: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """The read part of some bindings as the engine takes it. Raises ValueError if `now` is no time."""
    data = cast("dict[str, Any]", _project(bindings, shape))
    if isinstance(data.get(NOW), str):
        moment = datetime.fromisoformat(data[NOW])
        data[NOW] = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return data


def _project(value: Any, shape: Shape | None) -> Any:
    if shape is None or not isinstance(value, Mapping):
        return _doubles(value)
    fields = cast("Mapping[str, Any]", value)
    return {name: _project(fields[name], below) for name, below in shape.items() if name in fields}


def _doubles(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) <= EXACT else value
    if isinstance(value, Mapping):
        return {_whole(name): _doubles(item) for name, item in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [_doubles(item) for item in cast("list[Any]", value)]
    return _whole(value) if isinstance(value, str) else value


def _whole(text: str) -> str:
    if "\0" in text:  # the engine would cut the text there
        raise ValueError("a text holds a NUL character, which conditions can't read")
    return text


def plain_value(value: Any) -> JsonValue:
    """A result as JSON: whole numbers as int, times as ISO 8601 text, durations in seconds.

    Raises ValueError for what JSON can't hold.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if not math.isfinite(value):
                raise ValueError(f"the result is {value}, which is not a finite number")
            return int(value) if value.is_integer() and abs(value) <= EXACT else value
        case list():
            return [plain_value(item) for item in cast("list[Any]", value)]
        case dict():
            fields = cast("dict[Any, Any]", value)
            bad = next((name for name in fields if not isinstance(name, str)), None)
            if bad is not None:
                raise ValueError(f"the result has the key {bad!r}, which is not text")
            return {name: plain_value(item) for name, item in fields.items()}
        case datetime():
            return value.isoformat()
        case timedelta():
            return plain_value(value.total_seconds())
        case _:
            raise ValueError(f"the result is of type {type(value).__name__}, which JSON can't hold")


def told(status: str, bindings: Mapping[str, Any], reads: Iterable[Path]) -> str:
    """The engine's error in words that name the user's fields."""
    reason = status.partition(": ")[2] or status
    if _UNREADABLE.search(reason):
        return obstacle(bindings, reads) or f"a field is absent ({reason})"
    if overload := _OVERLOAD.search(reason):
        function, types = overload.groups()
        if types is not None:
            return f"{operator(function)} can't be applied to ({plain_types(types)})"
        name = "the condition of `? :`" if function == "<jump_condition>" else f"each side of {operator(function)}"
        return f"{name} must be true or false"
    if index := _INDEX.search(reason):
        return f"there is no item {index[1]} in a list of {index[2]}"
    if "Iteration budget" in reason:
        return "it goes over more items than an expression may (10,000 in all)"
    return "division by zero" if reason == "divide by zero" else reason
