"""Where settings come from, and which source wins."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from pydantic import ValidationError

from agent_infra.config.project import Project, find_project, suggest
from agent_infra.config.settings import Settings, default_of, names_in
from agent_infra.config.toml import Names, Table, TomlFile
from agent_infra.errors import ConfigErrors, Problem

PREFIX: Final = "AGENT_INFRA_"
HOME: Final = "AGENT_INFRA_HOME"
# Variables under the prefix that are no settings: the default home, and which tier of this project's own tests runs.
OTHER_VARIABLES: Final = frozenset({HOME, "AGENT_INFRA_TEST_TIER"})
SECRET: Final = "AGENT_INFRA_SECRET_"
"""How the variables begin that hold secrets, and no settings."""

Report: TypeAlias = Callable[[str, str, Names, str], Problem]


@dataclass(frozen=True, slots=True)
class _Source:
    """Settings as one place gives them, and how a problem there is told: `report(code, message, names, hint)`."""

    values: Table
    report: Report


def load_settings(project: Project | None = None, **keywords: Any) -> Settings:
    """The settings in force for a project (by default the one found from the working directory).

    `keywords` are the strongest source; a section is a dict: `state={"undeclared_types": "refuse"}`.
    Raises ConfigErrors with every unknown name and wrong value of every source, each with its place.
    """
    project = project or find_project()
    strongest_first = [_from_keywords(keywords), _from_environment(), _from_project(project), _from_pyproject(project)]
    problems = [problem for source in strongest_first for problem in _check(source)]
    if problems:
        raise ConfigErrors(problems)
    merged: Table = {}
    for source in reversed(strongest_first):
        merged = _merge(merged, source.values)
    return Settings.model_validate(merged)


def default_home(project: Project | None = None) -> Path:
    """Where state is kept unless told: `$AGENT_INFRA_HOME`, else `.agent_infra` in the project's root."""
    named = os.environ.get(HOME)
    return Path(named).expanduser().resolve() if named else (project or find_project()).root / ".agent_infra"


def _check(source: _Source) -> Iterator[Problem]:
    try:
        Settings.model_validate(source.values)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            names = tuple(str(name) for name in detail["loc"])
            spelt = ".".join(names)
            if detail["type"] == "extra_forbidden":
                hint = suggest(names[-1], names_in(names[:-1]))
                yield source.report("UnknownSetting", f"there is no setting `{spelt}`", names, hint)
            else:
                reason = detail["msg"].removeprefix("Value error, ").replace("Input should be", "it should be")
                message = f"`{spelt}` can't be {detail['input']!r}: {reason}"
                yield source.report("InvalidSetting", message, names, f"the default is {default_of(names)!r}")


def _merge(weak: Table, strong: Table) -> Table:
    """Both as one table; where both hold a value, the stronger's."""
    merged = dict(weak)
    for name, value in strong.items():
        below = merged.get(name)
        both = isinstance(value, dict) and isinstance(below, dict)
        merged[name] = _merge(cast("Table", below), cast("Table", value)) if both else value
    return merged


def _from_keywords(keywords: Table) -> _Source:
    def report(code: str, message: str, names: Names, hint: str) -> Problem:
        return Problem(code, message, file=f"<keyword {names[0]}>", hint=hint)

    return _Source(keywords, report)


def _from_environment() -> _Source:
    """`AGENT_INFRA_DURABILITY`; with two underscores after a section, `AGENT_INFRA_STATE__UNDECLARED_TYPES`."""
    values: Table = {}
    # Backwards, so that a variable that names a section itself comes after the section's parts, and is refused.
    for variable in sorted(os.environ, reverse=True):
        other = variable in OTHER_VARIABLES or variable.startswith(SECRET)
        if variable.startswith(PREFIX) and not other:
            value: Any = os.environ[variable]
            for name in reversed(variable.removeprefix(PREFIX).lower().split("__")):
                value = {name: value}
            values = _merge(values, value)

    def report(code: str, message: str, names: Names, hint: str) -> Problem:
        return Problem(code, message, file=f"<environment {PREFIX}{'__'.join(names).upper()}>", hint=hint)

    return _Source(values, report)


def _from_project(project: Project) -> _Source:
    """`[settings]`, and a section as `[state]` or as `[settings.state]`."""
    data = project.file.data if project.file else {}

    def report(code: str, message: str, names: Names, hint: str) -> Problem:
        place = names if names[0] in data else ("settings", *names)
        return project.problem(code, message, *place, hint=hint)

    return _Source(project.settings, report)


def _from_pyproject(project: Project) -> _Source:
    """`[tool.agent_infra]` of the nearest pyproject.toml, from the project's root upwards."""
    file = TomlFile.nearest("pyproject.toml", project.root) or TomlFile(project.root / "pyproject.toml")

    def report(code: str, message: str, names: Names, hint: str) -> Problem:
        return file.problem(code, message, "tool", "agent_infra", *names, hint=hint)

    return _Source(file.table("tool", "agent_infra"), report)
