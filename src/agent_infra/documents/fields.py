"""Typed reading of one document: every wrong value becomes a problem at its place, and reading goes on."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from agent_infra.content import JsonValue
from agent_infra.documents.document import Document
from agent_infra.errors import Problem

Path: TypeAlias = tuple[str | int, ...]
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class Fields:
    """The fields of a document, and the problems found in it. A method that finds one reports it and gives None.

    Methods take the path of a value, and are for values that are there: ask `has` first.
    """

    def __init__(self, document: Document, problems: list[Problem]) -> None:
        self.document = document
        self.problems = problems

    def report(
        self,
        code: str,
        message: str,
        *path: str | int,
        key: bool = False,
        hint: str | None = None,
        offset: int | None = None,
    ) -> None:
        """Note a problem at the value (or key) at `path`."""
        self.problems.append(self.document.problem(code, message, *path, key=key, hint=hint, offset=offset))

    def place(self, *path: str | int) -> str:
        """`file:line` of a value."""
        return f"{self.document.file or '<text>'}:{self.document.position(*path).line}"

    def get(self, *path: str | int) -> JsonValue:
        """The value at `path`; None where there is none."""
        value = self.document.data
        for name in path:
            if isinstance(value, dict) and isinstance(name, str):
                value = value.get(name)
            elif isinstance(value, list) and isinstance(name, int) and name < len(value):
                value = value[name]
            else:
                return None
        return value

    def has(self, *path: str | int) -> bool:
        """Whether there is something at `path`, if only `null`."""
        parent = self.get(*path[:-1])
        return isinstance(parent, dict) and path[-1] in parent

    def mapping(self, *path: str | int, known: Sequence[str] | None = None) -> dict[str, JsonValue] | None:
        """A mapping; with `known`, its keys must be among these."""
        value = self.get(*path)
        if not isinstance(value, dict):
            return self._wrong("a mapping", *path)
        for name in value if known is not None else ():
            if name not in (known or ()):
                message = f"there is no key `{name}` in {_named(path)}"
                self.report("UnknownKey", message, *path, name, key=True, hint=did_you_mean(name, known or ()))
        return value

    def sequence(self, *path: str | int) -> list[JsonValue]:
        """A list; empty where there is none."""
        value = self.get(*path)
        if isinstance(value, list):
            return value
        if self.has(*path):
            self._wrong("a list", *path)
        return []

    def text(self, *path: str | int) -> str | None:
        """A text that isn't empty; a scalar that looks like a number stays as it is written."""
        raw = self.document.raw(*path)
        return raw if raw and self.get(*path) is not None else self._wrong("a text", *path)

    def texts(self, *path: str | int) -> tuple[str, ...]:
        """A list of texts, or one text for a list of one."""
        if isinstance(self.get(*path), list):
            found = [self.text(*path, index) for index in range(len(self.sequence(*path)))]
            return tuple(text for text in found if text is not None)
        text = self.text(*path)
        return (text,) if text is not None else ()

    def number(self, *path: str | int, low: float = -math.inf, high: float = math.inf) -> float | None:
        """A finite number, within bounds."""
        value = self.get(*path)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return self._wrong("a number", *path)
        if not low <= value <= high:
            bounds = f"from {low:g} to {high:g}" if high < math.inf else f"of at least {low:g}"
            return self._wrong(f"a number {bounds}", *path)
        return float(value)

    def seconds(self, *path: str | int) -> float | None:
        """A duration: seconds, or a text like `30s`, `5m`, `24h`."""
        found = seconds_of(self.get(*path))
        if found is None:
            message = f"{_named(path)} is {_shown(self.get(*path))}, which is no duration"
            self.report("BadDuration", message, *path, hint="write 30s, 5m, 24h or a number of seconds")
        return found

    def choice(self, options: Sequence[str], *path: str | int) -> str | None:
        """One of some words."""
        value = self.get(*path)
        if isinstance(value, str) and value in options:
            return value
        hint = did_you_mean(value, options) if isinstance(value, str) else None
        message = f"{_named(path)} must be one of {', '.join(options)}, not {_shown(value)}"
        self.report("UnknownWord", message, *path, hint=hint)
        return None

    def span(self, *path: str | int) -> tuple[float, float] | None:
        """`[low, high]`, low under high."""
        value = self.get(*path)
        if isinstance(value, list) and len(value) == 2:
            low, high = self.number(*path, 0), self.number(*path, 1)
            if low is None or high is None:
                return None
            if low < high and math.isfinite(high - low):
                return low, high
        message = f"{_named(path)} is {_shown(value)}"
        self.report("BadRange", message, *path, hint="write [low, high], the lower end first")
        return None

    def _wrong(self, wanted: str, *path: str | int) -> None:
        self.report("WrongType", f"{_named(path)} must be {wanted}, not {_shown(self.get(*path))}", *path)


def seconds_of(value: JsonValue) -> float | None:
    """The seconds of a duration: a number of 0 or more, or a text like `30s`, `5m`, `24h`. None for anything else."""
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip())
        return float(found[1]) * _SECONDS[found[2]] if found else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < math.inf else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for a name that isn't known."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean `{near[0]}`?" if near else f"known are {', '.join(names) or 'none'}"


def _named(path: Path) -> str:
    return f"`{'.'.join(str(part) for part in path)}`" if path else "the file"


def _shown(value: JsonValue) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text `{value}`"
        case list():
            return "a list"
        case dict():
            return "a mapping"
