"""The paths that an expression reads from its variables, and reading them from plain data.

A path is a tuple of names, the variable first: `state.nodes["中文键"].n` is ("state", "nodes", "中文键", "n").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from agent_infra.content import json_bytes
from agent_infra.expressions.tree import Call, Constant, Fold, ListOf, MapOf, Name, Select, Tree

Path: TypeAlias = tuple[str, ...]
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHOLE_GRAPH: frozenset[Path] = frozenset({("state",), ("state", "nodes")})
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class ReadsWholeGraph(Exception):
    """An expression reads `state.nodes` by a computed name or as a whole; `at` is the offset."""

    path: Path
    at: int


def reads_of(tree: Tree) -> tuple[Path, ...]:
    """Every path that a tree reads, in the order of the source, each once. Raises ReadsWholeGraph."""
    found: list[Path] = []

    def take(path: Path, at: int) -> None:
        if path in _WHOLE_GRAPH:
            raise ReadsWholeGraph(path, at)
        found.append(path)

    _walk(tree, frozenset(), take)
    return tuple(dict.fromkeys(found))


def path_of(tree: Tree, bound: frozenset[str] = frozenset()) -> Path | None:
    """The path that a tree is, if it is nothing but a path from a variable (`bound`: the names that macros bind)."""
    match tree:
        case Name(name):
            return None if name in bound else (name,)
        case Select(operand, field, test=False) | Call("_[_]", (operand, Constant(str() as field))):
            path = path_of(operand, bound)
            return None if path is None else (*path, field)
        case _:
            return None


def _walk(tree: Tree, bound: frozenset[str], take: Callable[[Path, int], None]) -> None:
    path = path_of(tree, bound)
    if path is not None:
        take(path, tree.at)
        return
    match tree:
        case Select(operand, field, test=True):
            _walk(Select(operand, field, at=tree.at), bound, take)
        case Select(operand):
            _walk(operand, bound, take)
        case Call("@in", (Constant(str() as key), container)) if path_of(container, bound) in _WHOLE_GRAPH:
            take((*(path_of(container, bound) or ()), key), tree.at)
        case Call(_, args, target):
            for part in args if target is None else (target, *args):
                _walk(part, bound, take)
        case ListOf(items):
            for item in items:
                _walk(item, bound, take)
        case MapOf(entries):
            for pair in entries:
                for part in pair:
                    _walk(part, bound, take)
        case Fold():
            inner = bound | {tree.variable, tree.second_variable, tree.accumulator}
            for part in (tree.over, tree.initial):
                _walk(part, bound, take)
            for part in (tree.condition, tree.step, tree.result):
                _walk(part, inner, take)
        case Name() | Constant():
            pass


def spell(path: Path) -> str:
    """A path as one writes it in an expression."""
    first, *rest = path
    return first + "".join(f".{name}" if _WORD.fullmatch(name) else f"[{json_bytes(name).decode()}]" for name in rest)


def values_at(bindings: Mapping[str, Any], paths: Iterable[Path]) -> dict[str, Any]:
    """The values at the paths that are there, by the paths' spelling."""
    found = {spell(path): _at(bindings, path) for path in paths}
    return {name: value for name, value in found.items() if value is not _ABSENT}


def obstacle(bindings: Mapping[str, Any], paths: Iterable[Path]) -> str | None:
    """Why the first unreadable one of some paths can't be read, in words; None if all are there."""
    for path in paths:
        value: Any = bindings
        for depth, name in enumerate(path):
            if not isinstance(value, Mapping):
                return f"`{spell(path[:depth])}` is {describe(value)} and has no field `{name}`"
            fields = cast("Mapping[str, Any]", value)
            if name not in fields:
                return f"`{spell(path[: depth + 1])}` is absent"
            value = fields[name]
    return None


def describe(value: Any) -> str:
    """What a value is, in a word or two."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"the number {value}"
        case str():
            return "a text"
        case Mapping():
            return "an object"
        case list():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


def _at(bindings: Mapping[str, Any], path: Path) -> Any:
    value: Any = bindings
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            return _ABSENT
        value = cast("Mapping[str, Any]", value)[name]
    return value
