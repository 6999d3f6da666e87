"""The project: what `agent_infra.toml` says about where things are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from agent_infra.config.settings import SECTIONS, names_in
from agent_infra.config.toml import Table, TomlFile
from agent_infra.errors import ConfigErrors, Problem

PROJECT_FILE: Final = "agent_infra.toml"
FOLDERS: Final = ("actions", "schemas", "rules", "knowledge", "agents", "experiments")
KEYS: Final = ("tools", *FOLDERS, "mcp", "containers", "sources", "settings", *SECTIONS)


@dataclass(frozen=True, slots=True)
class Project:
    """What a folder's `agent_infra.toml` says. Without that file: a folder, with its `tools.py` if there is one.

    root       the folder; relative paths in the file are relative to it
    file       the file itself, or None
    tools      Python files to collect tools from: `tools.py` beside the file, then those that the file names
    actions, schemas, rules, knowledge, agents, experiments
               a folder (or one file) as named, else the folder of that name if it exists, else None
    mcp, containers
               the `[mcp.NAME]` tables and `[containers]` as written
    sources    the `[sources.NAME]` tables as written
    settings   `[settings]` and the sections (`[state]`, `[state.rocksdb]`) as written
    """

    root: Path
    file: TomlFile | None = None
    tools: tuple[Path, ...] = ()
    actions: Path | None = None
    schemas: Path | None = None
    rules: Path | None = None
    knowledge: Path | None = None
    agents: Path | None = None
    experiments: Path | None = None
    mcp: Table = field(default_factory=dict[str, Any])
    containers: Table = field(default_factory=dict[str, Any])
    sources: dict[str, Table] = field(default_factory=dict[str, Table])
    settings: Table = field(default_factory=dict[str, Any])

    def problem(self, code: str, message: str, *names: str, hint: str | None = None) -> Problem:
        """A problem at a key of the project's file, such as `"sources", "tickets", "join"`."""
        file = self.file or TomlFile(self.root / PROJECT_FILE)
        return file.problem(code, message, *names, hint=hint)


def find_project(start: str | Path | None = None) -> Project:
    """The project of a folder (default: the working directory): the nearest `agent_infra.toml`, from there upwards.

    Raises ConfigErrors with every unknown key, missing path and wrong shape, each with file, line and hint.
    """
    start = Path(start or Path.cwd()).resolve()
    file = TomlFile.nearest(PROJECT_FILE, start)
    return _Reader(file).project() if file else Project(root=start, tools=_default_tools(start))


def read_project(path: str | Path) -> Project:
    """The project of that `agent_infra.toml`. Raises FileMissing and what `find_project` raises."""
    return _Reader(TomlFile.read(Path(path).resolve())).project()


def suggest(name: str, known: Iterable[str]) -> str:
    """A hint for a name that isn't known: the nearest known one, or all of them."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}"


def _default_tools(root: Path) -> tuple[Path, ...]:
    path = root / "tools.py"
    return (path,) if path.is_file() else ()


class _Reader:
    """Reads one file and collects all its problems before it raises."""

    def __init__(self, file: TomlFile) -> None:
        self.file = file
        self.root = file.path.parent
        self.problems: list[Problem] = []

    def project(self) -> Project:
        self._refuse_unknown_keys()
        folders = {name: self._folder(name) for name in FOLDERS}
        tools, sources, settings = self._tools(), self._sources(), self._settings()
        mcp, containers = self._table("mcp"), self._table("containers")
        if self.problems:
            raise ConfigErrors(self.problems)
        return Project(
            self.root, self.file, tools, **folders, mcp=mcp, containers=containers, sources=sources, settings=settings
        )

    def _wrong(self, code: str, message: str, *names: str, hint: str) -> None:
        self.problems.append(self.file.problem(code, message, *names, hint=hint))

    def _refuse_unknown_keys(self) -> None:
        for name in self.file.data:
            if name in KEYS:
                continue
            if name in names_in(()):
                self._wrong("UnknownKey", f"`{name}` is a setting", name, hint="settings stand under [settings]")
            else:
                self._wrong("UnknownKey", f"there is no key `{name}`", name, hint=suggest(name, KEYS))

    def _tools(self) -> tuple[Path, ...]:
        named = self.file.data.get("tools", [])
        if not isinstance(named, list) or not all(isinstance(item, str) for item in cast("list[Any]", named)):
            self._wrong("WrongShape", "`tools` is a list of paths", "tools", hint='write tools = ["tools.py"]')
            return ()
        paths = [(self.root / name).resolve() for name in cast("list[str]", named)]
        for path in paths:
            if not path.is_file():
                self._wrong("PathMissing", f"{path} is not a file", "tools", hint=f"paths start at {self.root}")
        return tuple(dict.fromkeys([*_default_tools(self.root), *paths]))

    def _folder(self, name: str) -> Path | None:
        if name not in self.file.data:
            usual = self.root / name
            return usual if usual.is_dir() else None
        named = self.file.data[name]
        if not isinstance(named, str):
            self._wrong("WrongShape", f"`{name}` is one path", name, hint=f'write {name} = "{name}/"')
            return None
        path = (self.root / named).resolve()
        if not path.exists():
            self._wrong("PathMissing", f"{path} does not exist", name, hint=f"paths start at {self.root}")
        return path

    def _sources(self) -> dict[str, Table]:
        tables = self._table("sources")
        for name, table in tables.items():
            if not isinstance(table, dict):
                hint = f"write [sources.{name}] and the source's keys below it"
                self._wrong("WrongShape", f"source `{name}` is not a table", "sources", name, hint=hint)
        return tables

    def _settings(self) -> Table:
        settings = self._table("settings")
        sections = {name: self._table(name) for name in SECTIONS if name in self.file.data}
        for name in sections.keys() & settings.keys():
            message = f"[{name}] and [settings.{name}] are one section"
            self._wrong("SectionTwice", message, name, hint="keep one of them")
        return settings | sections

    def _table(self, name: str) -> Table:
        table = self.file.data.get(name, {})
        if isinstance(table, dict):
            return cast("Table", table)
        self._wrong("WrongShape", f"`{name}` is not a table", name, hint=f"write [{name}]")
        return {}
