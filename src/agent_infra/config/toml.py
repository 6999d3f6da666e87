"""TOML files with places: the data, and at which line of the text a key stands."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, cast

from agent_infra.errors import ConfigErrors, FileMissing, Problem

Table: TypeAlias = dict[str, Any]
Names: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A TOML file as read. A file that isn't there can stand in as an empty one: `TomlFile(path)`."""

    path: Path
    text: str = ""
    data: Table = field(default_factory=dict[str, Any])

    @classmethod
    def read(cls, path: Path) -> TomlFile:
        """Read a file. Raises FileMissing, or ConfigErrors with the place where it stops being TOML."""
        try:
            text = path.read_bytes().decode()
        except FileNotFoundError as error:
            raise FileMissing(path) from error
        except UnicodeDecodeError as error:
            raise ConfigErrors([Problem("NotToml", f"not UTF-8: {error.reason}", file=str(path))]) from error
        try:
            return cls(path, text, tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise ConfigErrors([_syntax_problem(error, path, text)]) from error

    @classmethod
    def nearest(cls, name: str, start: Path) -> TomlFile | None:
        """The file of that name in a folder or the nearest folder above it, if there is one. Raises as `read` does."""
        found = (folder / name for folder in (start, *start.parents) if (folder / name).is_file())
        path = next(found, None)
        return cls.read(path) if path else None

    def table(self, *names: str) -> Table:
        """The table of that name, empty if there is none. Raises ConfigErrors if something else has the name."""
        inner: Any = self.data
        for name in names:
            inner = cast("Table", inner).get(name, {})
            if not isinstance(inner, dict):
                hint = f"write [{'.'.join(names)}]"
                raise ConfigErrors([self.problem("WrongShape", f"`{name}` is not a table", *names, hint=hint)])
        return cast("Table", inner)

    def problem(self, code: str, message: str, *names: str, hint: str | None = None) -> Problem:
        """A problem at a key; where the key has no line of its own, at the nearest table that has."""
        places = _places(self.text)
        near = next((names[:size] for size in range(len(names), 0, -1) if names[:size] in places), None)
        if near is None:
            return Problem(code, message, str(self.path), hint=hint)
        line, column = places[near]
        return Problem(code, message, str(self.path), line, column, hint, self.text.splitlines()[line - 1])


def _syntax_problem(error: tomllib.TOMLDecodeError, path: Path, text: str) -> Problem:
    message, _, place = str(error).partition(" (at ")
    found = re.match(r"line (\d+), column (\d+)", place)
    if found is None:
        return Problem("NotToml", f"{message} at the end of the file", file=str(path))
    line, column = int(found[1]), int(found[2])
    return Problem("NotToml", message, str(path), line, column, source=text.splitlines()[line - 1])


def _places(text: str) -> dict[Names, tuple[int, int]]:
    """Line and column of each table header and key. A key inside an inline table has no line of its own."""
    places: dict[Names, tuple[int, int]] = {}
    table: Names = ()
    for number, line in enumerate(text.splitlines(), 1):
        header = line.lstrip().startswith("[")
        try:
            names = _names(tomllib.loads(line if header else line.partition("=")[0] + "= 0"))
        except tomllib.TOMLDecodeError:
            continue  # a further line of a value that began above
        table = names if header else table
        places.setdefault(names if header else table + names, (number, len(line) - len(line.lstrip()) + 1))
    return places


def _names(parsed: Table) -> Names:
    names: list[str] = []
    inner: Any = parsed
    while isinstance(inner, dict) and inner:
        name, inner = next(iter(cast("Table", inner).items()))
        names.append(name)
    return tuple(names)
