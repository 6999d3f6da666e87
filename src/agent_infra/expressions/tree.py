"""CEL's syntax tree as Python records, read from and written to the protobuf that the engine serialises.

The engine has no API for its tree, but `serialize()` gives a `cel.expr.ParsedExpr`
(https://github.com/google/cel-spec/blob/master/proto/cel/expr/syntax.proto) and `deserialize()` takes one back.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from agent_infra.expressions.wire import Fixed64, WireValue, read_message, signed, write_message

_TYPE: Final = b"type.googleapis.com/cel.expr.ParsedExpr"
_Fields: TypeAlias = dict[int, list[WireValue]]


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal. Durations and timestamps are calls, not literals, in CEL."""

    value: bool | int | float | str | bytes | None
    at: int = 0


@dataclass(frozen=True, slots=True)
class Name:
    """A variable: a declared one, or one that a macro like `exists` binds."""

    name: str
    at: int = 0


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`; with `test`, `has(operand.field)`."""

    operand: Tree
    field: str
    test: bool = False
    at: int = 0


@dataclass(frozen=True, slots=True)
class Call:
    """A function, method or operator; operators have names like `_+_`, `_[_]`, `@in`."""

    function: str
    args: tuple[Tree, ...]
    target: Tree | None = None
    at: int = 0


@dataclass(frozen=True, slots=True)
class ListOf:
    """`[a, b]`."""

    items: tuple[Tree, ...]
    at: int = 0


@dataclass(frozen=True, slots=True)
class MapOf:
    """`{key: value}`."""

    entries: tuple[tuple[Tree, Tree], ...]
    at: int = 0


@dataclass(frozen=True, slots=True)
class Fold:
    """What the macros `all`, `exists`, `exists_one`, `map` and `filter` become."""

    variable: str
    second_variable: str
    over: Tree
    accumulator: str
    initial: Tree
    condition: Tree
    step: Tree
    result: Tree
    at: int = 0


Tree: TypeAlias = Constant | Name | Select | Call | ListOf | MapOf | Fold


def read_tree(serialized: bytes) -> Tree:
    """The tree of a serialised ParsedExpr; `at` is each part's offset in the source, in characters."""
    parsed = _fields(_bytes(_fields(serialized), 2))
    positions: dict[int, int] = {}
    for raw in _fields(_bytes(parsed, 3)).get(4, []):
        entry = dict(read_message(raw)) if isinstance(raw, bytes) else {}
        positions[_int(entry.get(1, 0))] = _int(entry.get(2, 0))
    return _read(_bytes(parsed, 2), positions)


def write_tree(tree: Tree) -> bytes:
    """A serialised ParsedExpr of a tree, for `Env.deserialize`."""
    parsed = write_message((2, _write(tree, itertools.count(1))))
    return write_message((1, _TYPE), (2, parsed))


# -- reading -----------------------------------------------------------------------------------------------------------


def _read(raw: bytes, positions: dict[int, int]) -> Tree:
    expression = _fields(raw)
    at = positions.get(_int(expression.get(2, [0])[0]), 0)
    kind = next((number for number in expression if number != 2), 0)
    body = _fields(_bytes(expression, kind))

    def part(number: int) -> Tree:
        return _read(_bytes(body, number), positions)

    def parts(number: int) -> tuple[Tree, ...]:
        return tuple(_read(item, positions) for item in body.get(number, []) if isinstance(item, bytes))

    match kind:
        case 3:
            return Constant(_read_constant(body), at)
        case 4:
            return Name(_text(body, 1), at)
        case 5:
            return Select(part(1), _text(body, 2), 3 in body, at)
        case 6:
            return Call(_text(body, 2), parts(3), part(1) if 1 in body else None, at)
        case 7:
            return ListOf(parts(1), at)
        case 8:
            entries = [_fields(entry) for entry in body.get(2, []) if isinstance(entry, bytes)]
            pairs = [(_read(_bytes(entry, 3), positions), _read(_bytes(entry, 4), positions)) for entry in entries]
            return MapOf(tuple(pairs), at)
        case 9:
            return Fold(_text(body, 1), _text(body, 8), part(2), _text(body, 3), part(4), part(5), part(6), part(7), at)
        case _:
            raise ValueError(f"field {kind} is no kind of CEL expression")


def _read_constant(body: _Fields) -> bool | int | float | str | bytes | None:
    number, values = next(iter(body.items()))
    value = values[-1]
    match number, value:
        case 1, _:
            return None
        case 2, int():
            return bool(value)
        case ((3 | 4), int()):
            return signed(value) if number == 3 else value
        case 5, bytes():
            return struct.unpack("<d", value)[0]
        case 6, bytes():
            return value.decode()
        case 7, bytes():
            return value
        case _:
            raise ValueError(f"field {number} is no kind of CEL constant")


def _fields(raw: bytes) -> _Fields:
    fields: _Fields = {}
    for number, value in read_message(raw):
        fields.setdefault(number, []).append(value)
    return fields


def _bytes(fields: _Fields, number: int) -> bytes:
    value = fields.get(number, [b""])[-1]
    return value if isinstance(value, bytes) else b""


def _text(fields: _Fields, number: int) -> str:
    return _bytes(fields, number).decode()


def _int(value: WireValue) -> int:
    return value if isinstance(value, int) else 0


# -- writing -----------------------------------------------------------------------------------------------------------


def _write(tree: Tree, ids: Iterator[int]) -> bytes:
    own = next(ids)

    def part(number: int, child: Tree) -> tuple[int, bytes]:
        return number, _write(child, ids)

    match tree:
        case Constant(value):
            kind, body = 3, write_message(_constant_field(value))
        case Name(name):
            kind, body = 4, write_message((1, name.encode()))
        case Select(operand, field, test):
            tested = [(3, 1)] if test else []
            kind, body = 5, write_message(part(1, operand), (2, field.encode()), *tested)
        case Call(function, args, target):
            receiver = [] if target is None else [part(1, target)]
            kind, body = 6, write_message(*receiver, (2, function.encode()), *(part(3, arg) for arg in args))
        case ListOf(items):
            kind, body = 7, write_message(*(part(1, item) for item in items))
        case MapOf(entries):
            pairs = [write_message((1, next(ids)), part(3, key), part(4, value)) for key, value in entries]
            kind, body = 8, write_message(*((2, pair) for pair in pairs))
        case Fold():
            second = [(8, tree.second_variable.encode())] if tree.second_variable else []
            children = (tree.initial, tree.condition, tree.step, tree.result)
            names = (1, tree.variable.encode()), part(2, tree.over), (3, tree.accumulator.encode())
            kind, body = 9, write_message(*names, *(part(4 + n, child) for n, child in enumerate(children)), *second)
    return write_message((2, own), (kind, body))


def _constant_field(value: bool | int | float | str | bytes | None) -> tuple[int, WireValue]:
    match value:
        case None:
            return 1, 0
        case bool():
            return 2, int(value)
        case int():
            return 3, value
        case float():
            return 5, Fixed64(struct.pack("<d", value))
        case str():
            return 6, value.encode()
        case bytes():
            return 7, value
