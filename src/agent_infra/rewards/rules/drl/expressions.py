"""Constraints and values of a `.drl` file as CEL.

Inside `Reward(…)` a plain name is that fact's field; `$r.value` is a field of another fact that is bound, `$v` one that was
bound by `$v: value`. What names and fields become is all that is translated: operators mean the same in both languages,
but for `matches`, which in DRL is about the whole text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

from lark import Tree
from lark.lexer import Token

Part: TypeAlias = "Tree[Token] | Token"
FIELD_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "signal": {"provenance": "evidence"},
    "session": {"session_id": "id"},
}
"""Fields that have another name in DRL, by kind of fact."""


class Unreadable(Exception):
    """A part that means nothing here: where, and why."""

    def __init__(self, part: Part, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.part = part
        self.code = code
        self.message = message
        self.hint = hint


@dataclass(slots=True)
class Scope:
    """The names that an expression may use.

    facts  by DRL name, the CEL name of a bound fact and its kind
    own    the CEL name of the fact whose constraints are read, and its kind; None behind `then`
    bound  fields that were given a name of their own, as CEL
    """

    facts: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    own: tuple[str, str] | None = None
    bound: dict[str, str] = field(default_factory=dict[str, str])


def to_cel(part: Part, scope: Scope) -> str:
    """A part as CEL. Raises Unreadable."""
    if isinstance(part, Token):
        return _token(part)
    children = part.children
    match part.data:
        case "any":
            return _joined([to_cel(child, scope) for child in children], " || ")
        case "all":
            return _joined([_guarded(child, scope) for child in children], " && ")
        case "negated":
            return f"!({to_cel(children[0], scope)})"
        case "compares" | "sums" | "multiplies":
            return " ".join(_operand(child, scope) for child in children)
        case "signs":
            return "".join(to_cel(child, scope) for child in children)
        case "group_of":
            return f"({to_cel(children[0], scope)})"
        case "list":
            return f"[{', '.join(to_cel(child, scope) for child in children)}]"
        case "reference":
            return _reference(part, scope)
        case "value":
            return to_cel(children[0], scope)
        case _:
            return _worded(str(part.data), [to_cel(child, scope) for child in children])


def _worded(word: str, sides: list[str]) -> str:
    """The operators that are words."""
    left, right = sides
    match word.removeprefix("not_"):
        case "among":
            said = f"{left} in {right}"
        case "matches":
            said = f"{left}.matches({json.dumps('^(?:' + json.loads(right) + ')$', ensure_ascii=False)})"
        case _:
            said = f"{left}.contains({right})"
    return f"!({said})" if word.startswith("not_") else said


def _joined(parts: list[str], operator: str) -> str:
    return operator.join(parts)


def _guarded(part: Part, scope: Scope) -> str:
    """A part of a conjunction, in brackets where it is a disjunction."""
    text = to_cel(part, scope)
    return f"({text})" if is_choice(part) else text


def is_choice(part: Part) -> bool:
    """Whether a part is an `||` of several."""
    return isinstance(part, Tree) and part.data == "any" and len(part.children) > 1


def _operand(part: Part, scope: Scope) -> str:
    return str(part) if isinstance(part, Token) and part.type in ("OPERATOR", "PLUS", "TIMES") else to_cel(part, scope)


def _token(token: Token) -> str:
    if token.type == "STRING":
        return json.dumps(text_of(token), ensure_ascii=False)
    return str(token)


def text_of(token: Token) -> str:
    """What a text in quotes says. Raises Unreadable for an escape that there is none of."""
    inner = str(token)[1:-1]
    if token.startswith("'"):
        inner = inner.replace("\\'", "'").replace('"', '\\"')
    try:
        return json.loads(f'"{inner}"')
    except ValueError:
        raise Unreadable(
            token, "BadText", f"{token} has an escape that is not known", "escapes are those of JSON"
        ) from None


def _reference(part: Tree[Token], scope: Scope) -> str:
    names = [cast("Token", child) for child in part.children]
    first, rest = names[0], [str(name) for name in names[1:]]
    if not first.startswith("$"):
        if scope.own is None:
            hint = "name the fact that it is a field of, as in $r.value"
            raise Unreadable(first, "UnknownName", f"`{first}` is no name here", hint)
        return path(scope.own, [str(first), *rest])
    if first in scope.bound:
        return ".".join([scope.bound[first], *rest])
    if first not in scope.facts:
        known = ", ".join([*scope.facts, *scope.bound]) or "none"
        raise Unreadable(first, "UnknownName", f"`{first}` is not bound to anything", f"names that are bound: {known}")
    return path(scope.facts[first], rest)


def path(fact: tuple[str, str], names: list[str]) -> str:
    """A field of a fact as CEL."""
    name, kind = fact
    own = FIELD_NAMES.get(kind, {})
    renamed = [own.get(names[0], names[0]), *names[1:]] if names else []
    return name + "".join(
        f".{each}" if each.isascii() else f"[{json.dumps(each, ensure_ascii=False)}]" for each in renamed
    )


def zero_times(constraint: Part, value: Part) -> bool:
    """Whether a field is asked to be 0 and then multiplied, which can only give 0."""
    if not isinstance(constraint, Tree) or not isinstance(value, Tree):
        return False
    zeroed: set[str] = set()
    for node in constraint.find_data("compares"):
        if _is_zero(node):
            zeroed |= {str(each.children[-1]) for each in node.find_data("reference")}
    times = [node for node in value.find_data("multiplies") if len(node.children) > 1]
    return any(str(each.children[-1]) in zeroed for node in times for each in node.find_data("reference"))


def _is_zero(comparison: Tree[Token]) -> bool:
    parts = [str(token) for token in comparison.scan_values(lambda each: isinstance(each, Token))]
    return "==" in parts and any(part in ("0", "0.0") for part in parts)
