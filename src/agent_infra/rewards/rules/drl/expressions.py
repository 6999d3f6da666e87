"""Constraints and values of a `.drl` file as CEL.

Inside `Reward(…)` a plain name is that fact's field; `$r.value` is a field of another fact that is bound, `$v` one that was
bound by `$v: value`. What names and fields become is nearly all that is translated: operators mean the same in both
languages, but for `matches`, which in DRL is about the whole text, and `contains`, which is about texts and lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from lark import Tree
from lark.lexer import Token

from agent_infra.rewards.rules.drl.texts import number_of, text_of
from agent_infra.rewards.rules.drl.unreadable import Part, Unreadable

FIELD_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "signal": {"provenance": "evidence"},
    "session": {"session_id": "id"},
}
"""Fields that have another name in DRL, by kind of fact."""
_MAY_BE_LISTS: Final = ("output", "values", "refs")
"""Fields of facts that hold whatever was given, as does anything inside of a field."""
_LAYERS: Final = ("any", "all", "sums", "multiplies", "group_of", "value")
"""What the grammar puts around a single part."""


@dataclass(slots=True)
class Scope:
    """The names that an expression may use.

    facts  by DRL name, the CEL name of a bound fact and its kind
    own    the CEL name of the fact whose constraints are read, and its kind; None behind `then`
    bound  fields that were given a name of their own, as CEL
    zeros  fields that must be 0, as CEL
    """

    facts: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    own: tuple[str, str] | None = None
    bound: dict[str, str] = field(default_factory=dict[str, str])
    zeros: set[str] = field(default_factory=set[str])

    def within(self, own: tuple[str, str]) -> Scope:
        """The same names inside the constraints of a fact. What is bound there is known in both."""
        return Scope(self.facts, own, self.bound, self.zeros)

    def apart(self) -> Scope:
        """The same names, for a fact whose own names nobody else knows."""
        return Scope(dict(self.facts), self.own, dict(self.bound), set(self.zeros))


def to_cel(part: Part, scope: Scope) -> str:
    """A part as CEL. Raises Unreadable."""
    if isinstance(part, Token):
        return _token(part)
    children = part.children
    match part.data:
        case "any":
            return " || ".join(to_cel(child, scope) for child in children)
        case "all":
            return " && ".join(in_brackets(child, scope) for child in children)
        case "negated":
            return f"!({to_cel(bare(children[0]), scope)})"
        case "compares" | "sums" | "multiplies":
            return " ".join(to_cel(child, scope) for child in children)
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
            return _worded(str(part.data), children[0], children[1], scope)


def in_brackets(part: Part, scope: Scope) -> str:
    """A part of a conjunction, in brackets where it is a disjunction."""
    text = to_cel(part, scope)
    choice = isinstance(part, Tree) and part.data == "any" and len(part.children) > 1
    return f"({text})" if choice else text


def bare(part: Part) -> Part:
    """A part without the layers, brackets too, that are around it alone."""
    while isinstance(part, Tree) and part.data in _LAYERS and len(part.children) == 1:
        part = part.children[0]
    return part


def operand(part: Part, scope: Scope) -> str:
    """A part on which something can be called, or that stands for a name: in brackets unless it is a single thing."""
    part = bare(part)
    text = to_cel(part, scope)
    return text if isinstance(part, Token) or part.data == "reference" else f"({text})"


def _worded(word: str, left: Part, right: Part, scope: Scope) -> str:
    """The operators that are words."""
    match word.removeprefix("not_"):
        case "among" | "member":
            said = f"{to_cel(left, scope)} in {to_cel(right, scope)}"
        case "matches":
            pattern = f"^(?:{text_of(cast('Token', right))})$"
            said = f"{operand(left, scope)}.matches({_quoted(pattern)})"
        case _:
            said = _contains(left, right, scope)
    return f"!({said})" if word.startswith("not_") else said


def _contains(left: Part, right: Part, scope: Scope) -> str:
    holder, held = operand(left, scope), to_cel(right, scope)
    text = f"{holder}.contains({held})"
    return f"(type({holder}) == list ? {held} in {holder} : {text})" if _may_be_list(bare(left)) else text


def _may_be_list(part: Part) -> bool:
    """Whether a part may be something else than a text."""
    if not isinstance(part, Tree) or part.data != "reference":
        return False
    first, *rest = (str(child) for child in part.children)
    fields = rest if first.startswith("$") else [first, *rest]
    return len(fields) != 1 or fields[0] in _MAY_BE_LISTS


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _token(token: Token) -> str:
    if token.type == "STRING":
        return _quoted(text_of(token))
    return number_of(token) if token.type == "NUMBER" else str(token)


def _reference(part: Tree[Token], scope: Scope) -> str:
    first, *others = (cast("Token", child) for child in part.children)
    rest = [str(name) for name in others]
    if not first.startswith("$"):
        if scope.own is None:
            hint = "name the fact that it is a field of, as in $r.value"
            raise Unreadable(first, "UnknownName", f"`{first}` is no name here", hint)
        return path(scope.own, rest if first == "this" else [str(first), *rest])
    if first in scope.bound:
        return scope.bound[first] + _steps(rest)
    if first not in scope.facts:
        known = ", ".join([*scope.facts, *scope.bound]) or "none"
        raise Unreadable(first, "UnknownName", f"`{first}` is not bound to anything", f"names that are bound: {known}")
    return path(scope.facts[first], rest)


def path(fact: tuple[str, str], names: list[str]) -> str:
    """A field of a fact as CEL."""
    name, kind = fact
    own = FIELD_NAMES.get(kind, {})
    return name + _steps([own.get(names[0], names[0]), *names[1:]] if names else [])


def _steps(names: list[str]) -> str:
    return "".join(f".{each}" if each.isascii() else f"[{_quoted(each)}]" for each in names)


# -- products that are always 0 ----------------------------------------------------------------------------------------


def zeroed(part: Part, scope: Scope) -> Iterator[str]:
    """The fields, as CEL, that a constraint asks to be 0."""
    part = bare(part)
    if not isinstance(part, Tree):
        return
    if part.data == "all":
        for child in part.children:
            yield from zeroed(child, scope)
    elif part.data == "compares" and str(part.children[1]) == "==":
        left, right = bare(part.children[0]), bare(part.children[2])
        for one, other in ((left, right), (right, left)):
            if _is_zero(one) and isinstance(other, Tree) and other.data == "reference":
                yield to_cel(other, scope)


def always_zero(value: Tree[Token], scope: Scope) -> bool:
    """Whether a product in a value has a factor that is 0."""
    for product in value.find_data("multiplies"):
        factors = [product.children[0], *(product.children[at + 1] for at in _places(product, "*"))]
        if len(product.children) > 1 and any(to_cel(bare(factor), scope) in scope.zeros for factor in factors):
            return True
    return False


def _places(product: Tree[Token], operator: str) -> list[int]:
    return [at for at, child in enumerate(product.children) if isinstance(child, Token) and child == operator]


def _is_zero(part: Part) -> bool:
    return isinstance(part, Token) and part.type == "NUMBER" and float(number_of(part)) == 0
