"""Goals as users write them: a goal file, a dict of the same form, or what a method of the knowledge base makes.

A goal comes in as any of these, and leaves as a `Goal`: read, with every problem at its file, line and column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from agent_infra.content import json_copy
from agent_infra.documents import Document, Fields, parse_documents
from agent_infra.errors import GoalErrors

GOAL_KEYS: Final = ("version", "goal", "params", "subgoals")
SUBGOAL_KEYS: Final = ("kind", "action", "with", "after")
KINDS: Final = ("action",)


@dataclass(frozen=True, slots=True)
class Part:
    """A subgoal as written; `path` is where it stands in its document."""

    name: str
    action: str
    fill: dict[str, Any]
    after: tuple[str, ...]
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal as written. `fields` is where it stands, and collects what is wrong with it."""

    name: str
    params: dict[str, Any]
    parts: tuple[Part, ...]
    definition: dict[str, Any]
    fields: Fields
    text: str | None = None
    inserted_by: str | None = None

    def check(self) -> None:
        """Raises GoalErrors if anything is wrong so far."""
        if self.fields.problems:
            raise GoalErrors(self.fields.problems)


def is_goal(document: Document) -> bool:
    """Whether a document is a goal (it has `goal` or `subgoals`) rather than an action."""
    return isinstance(document.data, dict) and not {"goal", "subgoals"}.isdisjoint(document.data)


def goal_of(definition: Mapping[str, Any], *, text: str | None = None, inserted_by: str | None = None) -> Goal:
    """A goal from a dict of the goal file's form. Raises NotJson; problems as in `read_goal`."""
    plain = json_copy(dict(definition), where="the goal")[1]
    (document,) = parse_documents(json.dumps(plain, ensure_ascii=False, indent=1), "<goal>")
    return read_goal(document, text=text, inserted_by=inserted_by)


def read_goal(document: Document, *, text: str | None = None, inserted_by: str | None = None) -> Goal:
    """A goal from its document. What is wrong is in its `fields.problems`, for the compiler to add to."""
    fields = Fields(document, [])
    definition = fields.mapping(known=GOAL_KEYS) or {}
    name = _required(fields, "goal") or "goal"
    params = fields.mapping("params") if fields.has("params") else {}
    if fields.has("version") and fields.get("version") != 1:
        fields.report("VersionUnknown", "this reads goal files of version 1", "version", hint="write `version: 1`")
    subgoals = fields.mapping("subgoals") if fields.has("subgoals") else {}
    parts = [part for each in subgoals or {} if (part := _part(fields, each)) is not None]
    return Goal(
        name,
        cast("dict[str, Any]", params or {}),
        tuple(parts),
        cast("dict[str, Any]", definition),
        fields,
        text,
        inserted_by,
    )


def _part(fields: Fields, name: str) -> Part | None:
    path = ("subgoals", name)
    if fields.mapping(*path, known=SUBGOAL_KEYS) is None:
        return None
    if fields.has(*path, "kind") and fields.choice(KINDS, *path, "kind") is None:
        return None
    action = _required(fields, *path, "action")
    after = fields.texts(*path, "after") if fields.has(*path, "after") else ()
    fill = fields.mapping(*path, "with") if fields.has(*path, "with") else {}
    if action is None or fill is None:
        return None
    return Part(name, action, cast("dict[str, Any]", fill), after, path)


def _required(fields: Fields, *path: str) -> str | None:
    if fields.has(*path):
        return fields.text(*path)
    fields.report("KeyMissing", f"`{path[-1]}` is missing", *path[:-1], hint=f"write `{path[-1]}: …`")
    return None
