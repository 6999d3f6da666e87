"""Values that hold `${…}`: a reference that is a whole text keeps its value's type, embedded ones become text.

`$${` stands for a literal `${`. A template may be a list or an object; references are found in all its texts, not in
its keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, TypeAlias

from agent_infra.content import JsonValue, json_bytes
from agent_infra.errors import ExpressionError
from agent_infra.expressions.compile import Expression, compile_expression
from agent_infra.expressions.evaluation import Evaluation
from agent_infra.expressions.faults import Fault, expression_error, faults_of
from agent_infra.expressions.paths import Path, values_at

Place: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class _Text:
    """A text that holds references: literal texts and expressions in turn."""

    parts: tuple[str | Expression, ...]


_Shape: TypeAlias = "bool | int | float | str | _Text | list[_Shape] | dict[str, _Shape] | None"


class _Later:
    """Stands for a shape that isn't compiled yet."""


_LATER: Final = _Later()


class _Unresolved(Exception):
    """A reference has no value; the message says why."""


class Template:
    """A compiled value.

    is_reference  it holds at least one `${…}`
    is_text       it is a text whatever the references give
    reads         the paths that the references read
    paths         where in the value a text is nothing but a reference to a path, and which

    Get one from `compile_template`. `Template.known` takes what that has found out before, and compiles again only when
    it is first resolved.
    """

    __slots__ = ("_shape", "is_reference", "is_text", "paths", "reads", "source", "variables")

    def __init__(self, source: JsonValue, variables: tuple[str, ...], shape: _Shape) -> None:
        expressions = list(_expressions(shape))
        self.source = source
        self.variables = variables
        self.is_reference = bool(expressions)
        self.is_text = isinstance(shape, str) or (isinstance(shape, _Text) and len(shape.parts) > 1)
        self.reads: tuple[Path, ...] = tuple(dict.fromkeys(path for part in expressions for path in part.reads))
        self.paths: tuple[tuple[Place, Path], ...] = tuple(_paths(shape, ()))
        self._shape: _Shape | _Later = shape

    @staticmethod
    def known(
        source: JsonValue,
        variables: tuple[str, ...],
        *,
        is_reference: bool,
        is_text: bool,
        reads: tuple[Path, ...],
        paths: tuple[tuple[Place, Path], ...],
    ) -> Template:
        """A template of which all is known that compiling it would find out. Nothing is checked again."""
        template = Template.__new__(Template)
        template.source, template.variables, template._shape = source, variables, _LATER
        template.is_reference, template.is_text, template.reads, template.paths = is_reference, is_text, reads, paths
        return template

    def resolve(self, bindings: Mapping[str, Any]) -> Evaluation:
        """The value on these bindings, or why there is none. Never raises."""
        shape = self._shape
        if isinstance(shape, _Later):
            shape = self._shape = _compile(self.source, (), self.variables, [])
        try:
            return Evaluation(_resolve(shape, bindings))
        except _Unresolved as reason:
            return Evaluation(error=str(reason))

    def values(self, bindings: Mapping[str, Any]) -> dict[str, JsonValue]:
        """What it reads on these bindings, by path as written; absent paths are left out."""
        return values_at(bindings, self.reads)

    def __repr__(self) -> str:
        return f"Template({self.source!r})"


def compile_template(value: JsonValue, variables: Sequence[str]) -> Template:
    """Compile a text, or a list or object of texts, over some variables.

    Raises ExpressionError with every problem: what `compile_expression` refuses inside `${…}`, a `${` that isn't
    closed, a reference spelled `$state.x` or `{state.x}`. Offsets count in the whole text.
    """
    faults: list[Fault] = []
    shape = _compile(value, (), tuple(variables), faults)
    if faults:
        raise expression_error(faults)
    return Template(value, tuple(variables), shape)


# -- resolving ---------------------------------------------------------------------------------------------------------


def _resolve(shape: _Shape, bindings: Mapping[str, Any]) -> JsonValue:
    match shape:
        case _Text(parts=(Expression() as whole,)):
            return _value(whole, bindings)
        case _Text(parts):
            return "".join(part if isinstance(part, str) else _embedded(part, bindings) for part in parts)
        case list():
            return [_resolve(item, bindings) for item in shape]
        case dict():
            return {name: _resolve(item, bindings) for name, item in shape.items()}
        case _:
            return shape


def _value(expression: Expression, bindings: Mapping[str, Any]) -> JsonValue:
    found = expression.evaluate(bindings)
    if found.error is not None:
        raise _Unresolved(found.error)
    return found.value


def _embedded(expression: Expression, bindings: Mapping[str, Any]) -> str:
    value = _value(expression, bindings)
    if value is None:
        raise _Unresolved(f"`{expression.source}` is null, which can't stand inside a text")
    return value if isinstance(value, str) else json_bytes(value).decode()


def _expressions(shape: _Shape) -> Iterator[Expression]:
    match shape:
        case _Text(parts):
            yield from (part for part in parts if isinstance(part, Expression))
        case list():
            for item in shape:
                yield from _expressions(item)
        case dict():
            for item in shape.values():
                yield from _expressions(item)
        case _:
            return


def _paths(shape: _Shape, place: Place) -> Iterator[tuple[Place, Path]]:
    match shape:
        case _Text(parts=(Expression(path=tuple() as path),)):
            yield place, path
        case list():
            for index, item in enumerate(shape):
                yield from _paths(item, (*place, index))
        case dict():
            for name, item in shape.items():
                yield from _paths(item, (*place, name))
        case _:
            return


# -- compiling ---------------------------------------------------------------------------------------------------------


def _compile(value: JsonValue, path: tuple[str | int, ...], variables: tuple[str, ...], faults: list[Fault]) -> _Shape:
    match value:
        case str():
            found: list[Fault] = []
            shape = _compile_text(value, variables, found)
            faults += [replace(fault, path=path) for fault in sorted(found, key=lambda fault: fault.offset)]
            return shape
        case list():
            return [_compile(item, (*path, index), variables, faults) for index, item in enumerate(value)]
        case dict():
            return {name: _compile(item, (*path, name), variables, faults) for name, item in value.items()}
        case _:
            return value


def _compile_text(text: str, variables: tuple[str, ...], faults: list[Fault]) -> _Shape:
    parts: list[str | Expression] = []
    literal, at = "", 0
    for start, end in _references(text):
        literal += _literal(text, at, start, variables, faults)
        if end is None:
            faults.append(
                Fault("ExpressionSyntax", "`${` is not closed", text, start, "write `}` after the expression")
            )
            return text
        try:
            expression = compile_expression(text[start + 2 : end - 1], variables, boolean=False)
        except ExpressionError as error:
            faults += [replace(fault, source=text, offset=fault.offset + start + 2) for fault in faults_of(error)]
        else:
            parts += [literal, expression] if literal else [expression]
            literal = ""
        at = end
    literal += _literal(text, at, len(text), variables, faults)
    if not parts:
        return literal
    return _Text(tuple([*parts, literal] if literal else parts))


def _references(text: str) -> Iterator[tuple[int, int | None]]:
    """Where each `${…}` begins and ends; the end is None for one that isn't closed."""
    at = 0
    while (start := text.find("${", at)) >= 0:
        if start > at and text[start - 1] == "$":
            at = start + 2
            continue
        end = _closing(text, start + 2)
        yield start, end
        if end is None:
            return
        at = end


_CEL_TOKEN = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[{}]""", re.DOTALL)


def _closing(text: str, at: int) -> int | None:
    """Just past the `}` that closes an expression, braces inside its texts and its own `{}` left aside."""
    depth = 1
    for token in _CEL_TOKEN.finditer(text, at):
        depth += (token[0] == "{") - (token[0] == "}")
        if depth == 0:
            return token.end()
    return None


def _literal(text: str, start: int, end: int, variables: tuple[str, ...], faults: list[Fault]) -> str:
    """A piece between references, its escapes undone; references that are spelled wrongly in it are reported."""
    for found in _misspelling(variables).finditer(text, start, end):
        right = "${" + (found[1] or found[2]) + "}"
        message = f"`{found[0]}` is not how a reference is written"
        faults.append(Fault("ReferenceSpelling", message, text, found.start(), f"write `{right}`"))
    return text[start:end].replace("$${", "${")


@lru_cache(maxsize=256)
def _misspelling(variables: tuple[str, ...]) -> re.Pattern[str]:
    """`$state.x` or `{state.x}`, of the variables that there are."""
    names = "|".join(re.escape(name) for name in variables) or r"(?!)"
    path = rf"""(?:{names})(?:\.\w+|\[["'][^\]]*["']\])+"""
    return re.compile(rf"(?<!\$)\$({path})|(?<!\$)\{{\s*({path})\s*\}}")
