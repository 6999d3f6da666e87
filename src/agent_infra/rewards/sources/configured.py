"""Sources as a project declares them: the `[sources.NAME]` tables of agent_infra.toml."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from agent_infra.content import JsonValue
from agent_infra.documents import did_you_mean
from agent_infra.errors import SourceInvalid
from agent_infra.rewards.sources.base import Source
from agent_infra.rewards.sources.metric import MetricSource
from agent_infra.rewards.sources.polling import PollingSource

KINDS: Final[Mapping[str, tuple[str, ...]]] = {"poll": ("poll", "value"), "metric": ("metric",)}
"""The key that says what kind of source a table is, and all keys that such a table has."""


def sources_from_config(tables: Mapping[str, Any], *, environment: Mapping[str, str] | None = None) -> list[Source]:
    """The sources of a project's tables: `{"name": {"poll": url, "value": path}}` or `{"name": {"metric": field}}`.

    `environment` is what `${env.NAME}` reads: the process's environment unless given.
    Raises SourceInvalid with all that is wrong, each table named.
    """
    sources: list[Source] = []
    problems: list[str] = []
    for name, table in tables.items():
        wrong = _problems(name, table)
        if wrong:
            problems += wrong
            continue
        try:
            sources.append(_source(name, table, environment))
        except SourceInvalid as error:
            problems.append(f"{error.what}: {error.why or error.mend}")
    if problems:
        raise SourceInvalid(
            f"{len(problems)} problem{'s' if len(problems) != 1 else ''} in the declared sources",
            where="[sources] of agent_infra.toml",
            why="; ".join(problems),
            mend='A table has poll = "https://…" with value = "path.to.number", or metric = "seconds".',
            facts={"problems": cast("JsonValue", problems), "known": list(KINDS)},
        )
    return sources


def _problems(name: str, table: object) -> list[str]:
    if not isinstance(table, dict):
        return [f"sources.{name} is no table"]
    entries = cast("dict[str, object]", table)
    kinds = [kind for kind in KINDS if kind in entries]
    if len(kinds) != 1:
        said = f"has {' and '.join(kinds)}" if kinds else f"has only {', '.join(entries) or 'nothing'}"
        return [f"sources.{name} {said}; it needs one of {', '.join(KINDS)}"]
    known = KINDS[kinds[0]]
    problems: list[str] = []
    for key in entries:
        if key not in known:
            problems.append(f"sources.{name} has an unknown key {key}; {did_you_mean(key, known)}")
    for key in known:
        if not isinstance(entries.get(key), str) or not entries[key]:
            problems.append(f"sources.{name} needs {key} as a text")
    return problems


def _source(name: str, table: Mapping[str, str], environment: Mapping[str, str] | None) -> Source:
    if "poll" in table:
        return PollingSource(name, table["poll"], table["value"], environment=environment)
    return MetricSource(name, table["metric"])
