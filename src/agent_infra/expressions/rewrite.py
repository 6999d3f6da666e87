"""What an expression means here beyond plain CEL, put into its tree before the engine plans it.

- All numbers are doubles, so `r.value * 5` and `size(xs) / 2` mean what they say: CEL refuses to mix int and double.
- `x != null` is false and `x == null` true where `x`, or a field on the way to it, is absent; likewise `has(x.y.z)`.
- Dividing by zero is an error, not infinity.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from agent_infra.expressions.tree import Call, Constant, Fold, ListOf, MapOf, Name, Select, Tree

EXACT: Final = 2**53 - 1  # the last integer that no other one becomes as a double
_NULL: Final = Constant(None)
_ZERO: Final = Constant(0.0)
_DATE_PARTS: Final = ("Date", "DayOfMonth", "DayOfWeek", "DayOfYear", "FullYear", "Month")
_TIME_PARTS: Final = ("Hours", "Milliseconds", "Minutes", "Seconds")
_INTEGER_FUNCTIONS: Final = {"size", "int", "uint"} | {f"get{part}" for part in _DATE_PARTS + _TIME_PARTS}


def rewrite(tree: Tree) -> Tree:
    """The tree that is evaluated for an expression's own tree."""
    match tree:
        case Constant(int() as value) if not isinstance(value, bool) and abs(value) <= EXACT:
            return Constant(float(value))
        case Constant() | Name():
            return tree
        case Select(operand, field, test):
            read = Select(rewrite(operand), field, test)
            return _present(read) if test else read
        case Call():
            return _rewrite_call(tree)
        case ListOf(items):
            return ListOf(tuple(rewrite(item) for item in items))
        case MapOf(entries):
            return MapOf(tuple((rewrite(key), rewrite(value)) for key, value in entries))
        case Fold():
            return replace(
                tree,
                over=rewrite(tree.over),
                initial=rewrite(tree.initial),
                condition=rewrite(tree.condition),
                step=rewrite(tree.step),
                result=rewrite(tree.result),
            )


def _rewrite_call(tree: Call) -> Tree:
    match tree:
        case Call("_!=_", (value, Constant(None))) | Call("_!=_", (Constant(None), value)) if _is_field(value):
            read = rewrite(value)
            return _and(_present(read), _differs(read, _NULL))
        case Call("_==_", (value, Constant(None))) | Call("_==_", (Constant(None), value)) if _is_field(value):
            read = rewrite(value)
            return Call("_||_", (_not(_present(read)), Call("_==_", (read, _NULL))))
        case Call("_/_", (dividend, divisor)):
            return _divide(rewrite(dividend), rewrite(divisor))
        case Call("_%_", (dividend, divisor)):
            a, b = rewrite(dividend), rewrite(divisor)
            whole = Call("double", (Call("int", (_divide(a, b),)),))
            return Call("_-_", (a, Call("_*_", (b, whole))))
        case Call(function, args, target) if function.isidentifier():
            plain = Call(function, tuple(_argument(arg) for arg in args), None if target is None else rewrite(target))
            return Call("double", (plain,)) if function in _INTEGER_FUNCTIONS else plain
        case Call(function, args, target):
            return Call(function, tuple(rewrite(arg) for arg in args), None if target is None else rewrite(target))


def _argument(tree: Tree) -> Tree:
    """A named function's argument: whole numbers stay whole there, as in `timestamp(0)`."""
    if isinstance(tree, Constant):
        return tree
    changed = rewrite(tree)
    is_whole = isinstance(tree, Call) and tree.function in _INTEGER_FUNCTIONS
    return changed.args[0] if is_whole and isinstance(changed, Call) else changed


def _divide(dividend: Tree, divisor: Tree) -> Tree:
    quotient = Call("_/_", (dividend, divisor))
    if isinstance(divisor, Constant) and divisor.value != 0:
        return quotient
    failure = Call("_/_", (Constant(1), Constant(0)))  # in whole numbers CEL reports this as an error
    return Call("_?_:_", (Call("_==_", (divisor, _ZERO)), failure, quotient))


def _is_field(tree: Tree) -> bool:
    match tree:
        case Select(test=False) | Call("_[_]", (_, Constant(str()))):
            return True
        case _:
            return False


def _present(tree: Tree) -> Tree:
    """That a field is there, and every field on the way to it is there and not null."""
    match tree:
        case Select(operand, field):
            test: Tree = Select(operand, field, test=True)
        case Call("_[_]", (operand, Constant(str()) as key)):
            test = Call("@in", (key, operand))
        case _:
            return Constant(True)
    here = _and(_differs(operand, _NULL), test)
    return _and(_present(operand), here) if _is_field(operand) else here


def _and(left: Tree, right: Tree) -> Tree:
    return Call("_&&_", (left, right))


def _not(tree: Tree) -> Tree:
    return Call("!_", (tree,))


def _differs(left: Tree, right: Tree) -> Tree:
    return Call("_!=_", (left, right))
