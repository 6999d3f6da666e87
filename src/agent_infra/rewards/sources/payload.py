"""Reading JSON that came from outside: the value at a path of names, as "answer.score" or "items.0.score"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from agent_infra.errors import SourceFailed, SourceInvalid


def path_of(source: str, text: str) -> tuple[str, ...]:
    """The names of a path. Raises SourceInvalid for one that has empty parts."""
    names = tuple(text.split("."))
    if not all(names):
        raise SourceInvalid(
            f"source {source!r} can't read the value at {text!r}", mend="Write the names with dots: answer.score"
        )
    return names


def value_at(payload: Any, path: Sequence[str]) -> Any:
    """The value at a path; None where there is none."""
    for name in path:
        if isinstance(payload, Mapping):
            payload = cast("Mapping[str, Any]", payload).get(name)
        elif isinstance(payload, list) and name.isdigit() and int(name) < len(cast("list[Any]", payload)):
            payload = cast("list[Any]", payload)[int(name)]
        else:
            return None
    return payload


def number_at(payload: Any, path: Sequence[str], where: str) -> float | None:
    """The number at a path; None where there is nothing. Raises SourceFailed for anything else."""
    found = value_at(payload, path)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise SourceFailed(f"{where} gives {found!r} at {'.'.join(path)}, which is no number")
    return found


def text_at(payload: Any, path: Sequence[str]) -> str | None:
    """What stands at a path as a text; None where there is nothing."""
    found = value_at(payload, path)
    return None if found is None else str(found)
