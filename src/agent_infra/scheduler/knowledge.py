"""The knowledge base: methods that turn a sentence into a goal with subgoals.

Read from YAML files; a text that no method matches is refused with the methods that there are, never guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from agent_infra.documents import Fields, read_documents
from agent_infra.errors import GoalErrors, GoalUnknown, Problem
from agent_infra.scheduler.goals import Goal, goal_of

_METHOD_KEYS: Final = ("goal", "match", "subgoals")


@dataclass(frozen=True, slots=True)
class Method:
    """How one kind of goal is decomposed: the texts that ask for it, and its subgoals."""

    goal: str
    patterns: tuple[re.Pattern[str], ...]
    subgoals: dict[str, Any]


class KnowledgeBase:
    """The methods of a home, in the order loaded."""

    def __init__(self) -> None:
        self._methods: list[Method] = []

    def load(self, path: str | Path) -> list[Method]:
        """Add a file's methods, or those of every YAML file of a folder. Raises GoalErrors with all problems."""
        root = Path(path)
        files = sorted([*root.glob("*.yaml"), *root.glob("*.yml")]) if root.is_dir() else [root]
        problems: list[Problem] = []
        documents = [document for file in files for document in read_documents(file)]
        found = [method for document in documents for method in _methods(Fields(document, problems))]
        if problems:
            raise GoalErrors(problems)
        self._methods += found
        return found

    def decompose(self, text: str) -> Goal:
        """The goal that a text asks for, by the first method whose pattern matches all of it. Raises GoalUnknown."""
        for method in self._methods:
            for pattern in method.patterns:
                match = pattern.fullmatch(text.strip())
                if match:
                    params = {name: value for name, value in match.groupdict().items() if value is not None}
                    definition = {"goal": method.goal, "params": params, "subgoals": method.subgoals}
                    return goal_of(definition, text=text, inserted_by=f"method {method.goal}")
        known = ", ".join(method.goal for method in self._methods)
        raise GoalUnknown(
            f"no method knows how to reach {text!r}",
            why=f"the methods are for: {known}" if known else "no knowledge base is loaded",
            mend="Give a goal file (a name that ends in .yaml), a dict, or add a method to the project's knowledge base.",
            facts={"text": text, "methods": [method.goal for method in self._methods]},
        )


def _methods(fields: Fields) -> Iterator[Method]:
    if fields.mapping(known=("version", "methods")) is None:
        return
    for index in range(len(fields.sequence("methods"))):
        method = _method(fields, "methods", index)
        if method is not None:
            yield method


def _method(fields: Fields, *path: str | int) -> Method | None:
    before = len(fields.problems)
    fields.mapping(*path, known=_METHOD_KEYS)
    goal = fields.text(*path, "goal")
    subgoals = fields.mapping(*path, "subgoals")
    patterns: list[re.Pattern[str]] = []
    for index, text in enumerate(fields.texts(*path, "match")):
        try:
            patterns.append(re.compile(text))
        except re.error as error:
            fields.report("BadPattern", f"`{text}` is no regular expression: {error}", *path, "match", index)
    if goal is None or subgoals is None or len(fields.problems) > before:
        return None
    return Method(goal, tuple(patterns), cast("dict[str, Any]", subgoals))
