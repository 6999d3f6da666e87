"""Expressions as Python functions: for plain data they give what the engine gives, some twenty times sooner.

Only what is certain is done here: texts, numbers, truth values and null, compared and calculated with as CEL does.
Whatever is unusual (a field is absent, types are mixed, a number has no exact double, a value is no scalar) raises, and the
engine is asked instead; so a function never gives another result than the engine, only sometimes none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from agent_infra.content import JsonValue
from agent_infra.expressions.paths import Path, path_of
from agent_infra.expressions.rewrite import EXACT
from agent_infra.expressions.tree import Call, Constant, ListOf, Tree

Closure: TypeAlias = Callable[[Mapping[str, Any]], JsonValue]
_SCALARS: Final = (float, str, bool)
_METHODS: Final = {"contains": "{0} in {1}", "startsWith": "{1}.startswith({0})", "endsWith": "{1}.endswith({0})"}
_BINARY: Final = {
    "_<_": "_lt", "_<=_": "_le", "_>_": "_gt", "_>=_": "_ge",
    "_+_": "_add", "_-_": "_sub", "_*_": "_mul", "_/_": "_div",
}  # fmt: skip
_DEEPEST: Final = 40


class Unusual(Exception):
    """The engine has to be asked."""


def closure_of(tree: Tree, reads: Iterable[Path]) -> Closure | None:
    """The function of an expression's own tree; None for an expression that isn't of the certain kind."""
    paths = list(reads)
    if any(path[0] == "now" for path in paths):
        return None
    names = {path: f"v{place}" for place, path in enumerate(paths)}
    try:
        body = _Writer(names).write(tree, 0)
    except Unusual:
        return None
    fetched = [f" {name} = _leaf(b{''.join(f'[{part!r}]' for part in path)})" for path, name in names.items()]
    text = "\n".join(["def closure(b):", *fetched, f" return _result({body})"])
    found: dict[str, Any] = {}
    exec(compile(text, "<expression>", "exec"), dict(_HELPERS), found)  # only names and literals of our own making
    return found["closure"]


class _Writer:
    """Writes a tree as the text of a Python expression."""

    def __init__(self, names: Mapping[Path, str]) -> None:
        self._names = names

    def write(self, tree: Tree, depth: int) -> str:
        if depth > _DEEPEST:
            raise Unusual
        path = path_of(tree)
        if path is not None and path in self._names:
            return self._names[path]
        match tree:
            case Constant(value):
                return _literal(value)
            case Call():
                return self._call(tree, depth + 1)
            case _:
                raise Unusual

    def _call(self, tree: Call, depth: int) -> str:
        if tree.function == "@in":
            return self._among(tree, depth)
        parts = [self.write(part, depth) for part in tree.args]
        target = None if tree.target is None else self.write(tree.target, depth)
        match tree.function, parts:
            case "_&&_", [left, right]:
                return f"(_bool({left}) and _bool({right}))"
            case "_||_", [left, right]:
                return f"(_bool({left}) or _bool({right}))"
            case "!_", [part]:
                return f"(not _bool({part}))"
            case "_?_:_", [condition, yes, no]:
                return f"(({yes}) if _bool({condition}) else ({no}))"
            case ("_==_" | "_!=_") as operator, [left, right]:
                return f"({'not ' if operator == '_!=_' else ''}_eq({left}, {right}))"
            case operator, [left, right] if operator in _BINARY:
                return f"{_BINARY[operator]}({left}, {right})"
            case "-_", [part]:
                return f"_sub(0.0, {part})" if part != "0.0" else "0.0"
            case method, [part] if method in _METHODS and target is not None:
                return f"({_METHODS[method].format(f'_str({part})', f'_str({target})')})"
            case "size", [part] if target is None:
                return f"float(len(_str({part})))"
            case _:
                raise Unusual

    def _among(self, tree: Call, depth: int) -> str:
        value, container = tree.args
        if not isinstance(container, ListOf):
            raise Unusual
        items = [self.write(item, depth) for item in container.items]
        return f"_among({self.write(value, depth)}, ({''.join(f'{item}, ' for item in items)}))"


def _literal(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        if abs(value) > EXACT:
            raise Unusual
        return repr(float(value))
    if value is None or isinstance(value, _SCALARS):
        text = repr(value)
        if text in ("inf", "-inf", "nan"):
            raise Unusual
        return text
    raise Unusual


# -- what the functions call -----------------------------------------------------------------------------------------


def _leaf(value: Any) -> Any:
    kind = value.__class__
    if kind is str:
        if "\0" in value:
            raise Unusual
        return value
    if kind is float:
        return _finite(value)
    if kind is int:
        if not -EXACT <= value <= EXACT:
            raise Unusual
        return float(value)
    if value is None or kind is bool:
        return value
    raise Unusual


def _finite(value: float) -> float:
    if value - value != 0.0:
        raise Unusual
    return value


def _bool(value: Any) -> bool:
    if value is True or value is False:
        return value
    raise Unusual


def _str(value: Any) -> str:
    if value.__class__ is str:
        return value
    raise Unusual


def _eq(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is right
    if left.__class__ is right.__class__:
        return left == right
    raise Unusual


def _among(value: Any, items: tuple[Any, ...]) -> bool:
    return any([_eq(value, item) for item in items])  # noqa: C419  (all are compared: one that can't be is told)


def _comparable(left: Any, right: Any) -> None:
    kind = left.__class__
    if kind is not right.__class__ or (kind is not float and kind is not str):
        raise Unusual


def _lt(left: Any, right: Any) -> bool:
    _comparable(left, right)
    return left < right


def _le(left: Any, right: Any) -> bool:
    _comparable(left, right)
    return left <= right


def _gt(left: Any, right: Any) -> bool:
    _comparable(left, right)
    return left > right


def _ge(left: Any, right: Any) -> bool:
    _comparable(left, right)
    return left >= right


def _add(left: Any, right: Any) -> Any:
    if left.__class__ is float and right.__class__ is float:
        return _finite(left + right)
    return _str(left) + _str(right)


def _numbers(left: Any, right: Any) -> None:
    if left.__class__ is not float or right.__class__ is not float:
        raise Unusual


def _sub(left: Any, right: Any) -> float:
    _numbers(left, right)
    return _finite(left - right)


def _mul(left: Any, right: Any) -> float:
    _numbers(left, right)
    return _finite(left * right)


def _div(left: Any, right: Any) -> float:
    _numbers(left, right)
    return _finite(left / right)


def _result(value: Any) -> JsonValue:
    if value.__class__ is float and value.is_integer():
        if abs(value) > EXACT:
            raise Unusual
        return int(value)
    return value


_HELPERS: Final = {
    each.__name__: each
    for each in (_leaf, _bool, _str, _eq, _among, _lt, _le, _gt, _ge, _add, _sub, _mul, _div, _result)
}
