"""What the leaderboard's answer files say: for each call the values that each parameter may have, `""` for left out.

A call stands for as many forms as its longest list has values: the n-th form takes the n-th value of each list, from
the beginning again where a list is shorter. So each value is in one form at least, and so is the call with all that is
optional left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

SETS = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
)
LEFT_OUT = object()
Spread = Callable[[Mapping[str, Any], Any], list[Any]]
"""From a parameter's document and a listed value to the values that this stands for."""


class Entry(NamedTuple):
    """One task: its functions' documents by name, and the calls that answer it, as (name, answer)."""

    id: str
    documents: dict[str, dict[str, Any]]
    calls: list[tuple[str, dict[str, list[Any]]]]


def entries_of(data: Path, name: str) -> Iterator[Entry]:
    """The tasks of one set."""
    answers = {each["id"]: each["ground_truth"] for each in lines_of(data / "possible_answer" / f"BFCL_v4_{name}.json")}
    for task in lines_of(data / f"BFCL_v4_{name}.json"):
        documents = {document["name"]: document for document in task["function"]}
        assert len(documents) == len(task["function"]), f"{task['id']} has two functions of one name"
        calls = [pair for call in answers.pop(task["id"]) for pair in call.items()]
        yield Entry(task["id"], documents, calls)
    assert not answers, f"answers without a task: {sorted(answers)}"


def lines_of(path: Path) -> list[Any]:
    """The JSON values of a file, one a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def forms_of(document: Mapping[str, Any], answer: Mapping[str, list[Any]]) -> list[dict[str, Any]]:
    """The argument objects that an answer allows, by the rule above; each once."""
    return _forms(document["parameters"], answer, _spread)


def _forms(document: Mapping[str, Any], answer: Mapping[str, list[Any]], spread: Spread) -> list[dict[str, Any]]:
    properties, required = document.get("properties", {}), document.get("required", [])
    options = {
        name: _options(values, name in required, properties.get(name, {}), spread) for name, values in answer.items()
    }
    rounds = range(max((len(values) for values in options.values()), default=1))
    found = [{name: values[turn % len(values)] for name, values in options.items()} for turn in rounds]
    found.append({name: values[-1 if values[-1] is LEFT_OUT else 0] for name, values in options.items()})
    forms = [{name: value for name, value in form.items() if value is not LEFT_OUT} for form in found]
    return [form for turn, form in enumerate(forms) if form not in forms[:turn]]


def _options(values: list[Any], required: bool, document: Mapping[str, Any], spread: Spread) -> list[Any]:
    """The values of one parameter, and last that it may be left out. What a document requires is left out only where
    nothing else is listed and the empty text is no value of it.
    """
    written = [value for value in values if value != ""]
    options = [each for value in written for each in spread(document, value)]
    if "" in values and not required:
        return [*options, LEFT_OUT]
    return options or ["" if document.get("type") == "string" else LEFT_OUT]


def _spread(document: Mapping[str, Any], value: Any) -> list[Any]:
    """The values that one listed value stands for: each key of a dict has a list again. What is deeper is as it stands."""
    if isinstance(value, dict):
        return _forms(document, value, _plain)
    items = document.get("items", {})
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        each = [_forms(items, item, _plain) for item in value]
        rounds = range(max(len(forms) for forms in each))
        return [[forms[turn % len(forms)] for forms in each] for turn in rounds]
    return [value]


def _plain(document: Mapping[str, Any], value: Any) -> list[Any]:
    return [value]
