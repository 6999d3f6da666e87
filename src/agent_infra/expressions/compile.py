"""Compiling and evaluating CEL (https://github.com/google/cel-spec) on Google's C++ engine.

An expression is checked once, then evaluated on plain data in microseconds. It sees only what it reads: bindings may be
as large as they like, and need hold nothing but the read paths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from cel_expr_python import cel

from agent_infra.content import JsonValue
from agent_infra.expressions.closures import Closure, closure_of
from agent_infra.expressions.evaluation import NOW, Evaluation, engine_data, plain_value, shape_of, told
from agent_infra.expressions.faults import Fault, engine_faults, expression_error
from agent_infra.expressions.paths import Path, ReadsWholeGraph, describe, obstacle, path_of, reads_of, spell, values_at
from agent_infra.expressions.rewrite import rewrite
from agent_infra.expressions.tree import Call, Constant, ListOf, MapOf, Tree, read_tree, write_tree

_TRUE = Evaluation(True)
_FALSE = Evaluation(False)
_ARITHMETIC = frozenset({"_+_", "_-_", "_*_", "_/_", "_%_", "-_", "size"})


class Expression:
    """A compiled expression. `reads` are the paths that it reads from its variables; `path`, where it is nothing but
    a path, that one.

    `now` is a time: bind it to an aware datetime or ISO 8601 text. Bind every other variable to JSON values.

    Get one from `compile_expression`. The constructor takes what that has found out before, nothing is checked again;
    the engine then plans it when it is first evaluated.
    """

    __slots__ = ("_closed", "_closure", "_planned", "_shape", "boolean", "path", "reads", "source", "variables")

    def __init__(
        self,
        source: str,
        variables: tuple[str, ...],
        reads: tuple[Path, ...],
        *,
        boolean: bool,
        is_path: bool,
    ) -> None:
        self.source = source
        self.variables = variables
        self.reads = reads
        self.boolean = boolean
        self.path = reads[0] if is_path else None
        self._planned: cel.Expression | None = None
        self._closure: Closure | None = None
        self._closed = False
        self._shape = shape_of(reads)

    def evaluate(self, bindings: Mapping[str, Any]) -> Evaluation:
        """The value on these bindings, or why there is none: a field is absent, types don't fit, … Never raises."""
        if not self._closed:
            self._close(self.tree())
        if self._closure is not None:
            try:
                value = self._closure(bindings)
            except Exception:  # noqa: BLE001  (whatever is unusual is the engine's)
                pass
            else:
                if value is True:
                    return _TRUE
                if value is False:
                    return _FALSE
                if not self.boolean:
                    return Evaluation(value)
        return self.by_engine(bindings)

    def by_engine(self, bindings: Mapping[str, Any]) -> Evaluation:
        """The same without the shorter way that usual values take."""
        try:
            found = self._read(bindings) if self.path else self._calculate(bindings)
        except Exception as error:  # noqa: BLE001  (whatever the bindings hold, the answer is "no value, because")
            return Evaluation(error=str(error))
        if self.boolean and found.ok and not isinstance(found.value, bool):
            return Evaluation(error=f"it gives {describe(found.value)}, not true or false")
        return found

    def plan(self, tree: Tree | None = None) -> cel.Expression:
        """Have the engine plan it, from its source's tree unless that is at hand."""
        tree = tree or self.tree()
        self._close(tree)
        self._planned = _environment(self.variables).deserialize(write_tree(rewrite(tree)))
        return self._planned

    def tree(self) -> Tree:
        """Its syntax tree, as written."""
        return _parse(_environment(self.variables), self.source)

    def demands(self, path: Path) -> str | None:
        """The one text that a path must have for the condition to hold: `r.source == "x" && …` demands "x" of it."""

        def demanded(tree: Tree) -> str | None:
            match tree:
                case Call("_&&_", (left, right)):
                    return demanded(left) or demanded(right)
                case Call("_==_", (side, Constant(str() as text))) | Call("_==_", (Constant(str() as text), side)):
                    return text if path_of(side) == path else None
                case _:
                    return None

        return demanded(self.tree())

    def _close(self, tree: Tree) -> None:
        self._closure = None if self.path else closure_of(tree, self.reads)
        self._closed = True

    def values(self, bindings: Mapping[str, Any]) -> dict[str, JsonValue]:
        """What it reads on these bindings, by path as written; absent paths are left out."""
        return values_at(bindings, self.reads)

    def _read(self, bindings: Mapping[str, Any]) -> Evaluation:
        problem = obstacle(bindings, self.reads)
        if problem is not None:
            return Evaluation(error=problem)
        (value,) = self.values(bindings).values()
        return Evaluation(value.isoformat() if isinstance(value, datetime) else value)

    def _calculate(self, bindings: Mapping[str, Any]) -> Evaluation:
        planned = self._planned or self.plan()
        activation = _environment(self.variables).Activation(engine_data(bindings, self._shape))
        try:
            result = planned.eval(activation)
        except RuntimeError as error:
            return Evaluation(error=told(str(error), bindings, self.reads))
        if result.type() == cel.Type.ERROR:
            return Evaluation(error=told(str(result.value()), bindings, self.reads))
        return Evaluation(plain_value(result.plain_value()))

    def __repr__(self) -> str:
        return f"Expression({self.source!r})"


def compile_expression(source: str, variables: Sequence[str], *, boolean: bool = True) -> Expression:
    """Compile CEL over some variables; `boolean` asks for a condition.

    Raises ExpressionError with every problem: a syntax error, an unknown name, types that can't fit, a condition that
    is never true or false, `state.nodes` read by a computed name.
    """
    names = tuple(variables)
    environment = _environment(names)
    checked_type = _check(environment, source, names)
    tree = _parse(environment, source)
    try:
        reads = reads_of(tree)
    except ReadsWholeGraph as refused:
        message = f"`{spell(refused.path)}` is read as a whole or by a computed name"
        hint = 'name the node: state.nodes.<name> or state.nodes["<name>"]'
        raise expression_error([Fault("DynamicPath", message, source, refused.at, hint)]) from None
    if boolean and _never_boolean(tree, checked_type):
        hint = "compare it, as in `… > 0` or `… != null`"
        raise expression_error([Fault("NotBoolean", "the condition is never true or false", source, 0, hint)])
    expression = Expression(source, names, reads, boolean=boolean, is_path=path_of(tree) is not None)
    expression.plan(tree)
    return expression


def _parse(environment: cel.Env, source: str) -> Tree:
    return read_tree(environment.compile(source, disable_check=True).serialize())


@lru_cache(maxsize=256)
def _environment(variables: tuple[str, ...]) -> cel.Env:
    types = {name: cel.Type.TIMESTAMP if name == NOW else cel.Type.DYN for name in variables}
    return cel.NewEnv(variables=types)


def _check(environment: cel.Env, source: str, variables: tuple[str, ...]) -> cel.Type | None:
    """The type that the engine's checker finds; None where it stumbles over nothing but int beside double."""
    try:
        return environment.compile(source).return_type()
    except RuntimeError as error:
        faults = engine_faults(str(error), source, variables)
        if faults:
            raise expression_error(faults) from None
        return None


def _never_boolean(tree: Tree, checked_type: cel.Type | None) -> bool:
    if checked_type is not None:
        return checked_type not in (cel.Type.BOOL, cel.Type.DYN)
    match tree:
        case Constant() | ListOf() | MapOf():
            return True
        case Call(function):
            return function in _ARITHMETIC
        case _:
            return False
