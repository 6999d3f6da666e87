"""Sources as a project declares them: the `[sources.NAME]` tables of agent_infra.toml."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from agent_infra.content import JsonValue
from agent_infra.documents import did_you_mean
from agent_infra.errors import SourceInvalid
from agent_infra.rewards.sources.base import Source
from agent_infra.rewards.sources.metric import MetricSource
from agent_infra.rewards.sources.polling import PollingSource
from agent_infra.rewards.sources.webhook import Places, WebhookSource

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "poll": ("poll", "value"),
    "metric": ("metric",),
    "webhook": ("webhook", "value"),
}
"""The key that says what kind of source a table is, and all keys that such a table must have."""
_FURTHER: Final[Mapping[str, tuple[str, ...]]] = {"webhook": ("event", "join", "at", "confidence", "priority")}
SECRET: Final = "secret://"


def sources_from_config(
    tables: Mapping[str, Any],
    *,
    environment: Mapping[str, str] | None = None,
    secret: Callable[[str], str] | None = None,
) -> list[Source]:
    """The sources of a project's tables: `{"name": {"poll": url, "value": path}}`, `{"name": {"metric": field}}`, or
    `{"name": {"webhook": "secret://NAME", "value": path, "event": path}}`.

    environment  what `${env.NAME}` reads: the process's environment unless given
    secret       from a secret's name to its value

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
            sources.append(_source(name, table, environment, secret))
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
    needed = KINDS[kinds[0]]
    known = (*needed, *_FURTHER.get(kinds[0], ()))
    problems: list[str] = []
    for key, value in entries.items():
        if key not in known:
            problems.append(f"sources.{name} has an unknown key {key}; {did_you_mean(key, known)}")
        elif key == "join" and not _is_texts(value):
            problems.append(f'sources.{name} needs join as a table of texts: {{ticket = "data.ticket_id"}}')
        elif key != "join" and key not in needed and (not isinstance(value, str) or not value):
            problems.append(f"sources.{name} needs {key} as a text")
    for key in needed:
        if not isinstance(entries.get(key), str) or not entries[key]:
            problems.append(f"sources.{name} needs {key} as a text")
    return problems


def _is_texts(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(each, str) and each for pair in cast("dict[object, object]", value).items() for each in pair
    )


def _source(
    name: str, table: Mapping[str, Any], environment: Mapping[str, str] | None, secret: Callable[[str], str] | None
) -> Source:
    if "poll" in table:
        return PollingSource(name, table["poll"], table["value"], environment=environment)
    if "webhook" in table:
        further = {key: table.get(key) for key in ("event", "at", "confidence", "priority")}
        places = Places(table["value"], refs=table.get("join"), **further)
        return WebhookSource(name, [_secret(name, table["webhook"], secret)], places)
    return MetricSource(name, table["metric"])


def _secret(name: str, text: str, secret: Callable[[str], str] | None) -> str:
    """The value of a `secret://NAME`: a secret itself doesn't stand in a file that is committed."""
    if not text.startswith(SECRET) or secret is None:
        raise SourceInvalid(
            f"source {name!r} needs its secret by name",
            mend='Write webhook = "secret://NAME", and keep it in the home.',
        )
    return secret(text.removeprefix(SECRET))
