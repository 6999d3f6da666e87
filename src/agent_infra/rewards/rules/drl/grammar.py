"""The grammar (for lark's LALR parser), and parsing a file unit by unit, so that each bad rule is a problem of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, cast

from lark import Lark, Tree
from lark.exceptions import UnexpectedInput, UnexpectedToken
from lark.lexer import Token

from agent_infra.errors import Problem
from agent_infra.rewards.rules.drl.advice import advice

_GRAMMAR: Final = r"""
start: (package | import | dialect | declare | rule)*

package: "package" qualified ";"?
import: "import" qualified ".*"? ";"?
dialect: "dialect" STRING ";"?
qualified: NAME ("." NAME)*

declare: "declare" NAME field* "end"
field: NAME ":" qualified ";"?

rule: "rule" (STRING | NAME) (attribute ","?)* "when" pattern* "then" insert* "end"
?attribute: "salience" number -> salience
    | "agenda-group" STRING -> agenda_group
    | "no-loop" BOOLEAN? -> no_loop
    | "lock-on-active" BOOLEAN? -> lock_on_active
    | "dialect" STRING -> dialect

?pattern: each ";"? | "not" plain ";"? -> absent | "exists" plain ";"? -> present
each: (VARIABLE ":")? NAME "(" constraints? ")"
?plain: each | "(" each ")"

constraints: constraint ("," constraint)*
?constraint: or_ | VARIABLE ":" comparison -> binds
?or_: and_ ("||" and_)* -> any
?and_: unary ("&&" unary)* -> all
?unary: "!" atom -> negated | comparison
?comparison: sum
    | sum OPERATOR sum -> compares
    | sum "in" list -> among
    | sum "not" "in" list -> not_among
    | sum "memberOf" sum -> member
    | sum "not" "memberOf" sum -> not_member
    | sum "matches" STRING -> matches
    | sum "not" "matches" STRING -> not_matches
    | sum "contains" sum -> contains
    | sum "not" "contains" sum -> not_contains
list: "(" sum ("," sum)* ")"
?sum: product (PLUS product)* -> sums
?product: signed (TIMES signed)* -> multiplies
?signed: PLUS atom -> signs | atom
?atom: NUMBER | STRING | BOOLEAN | NULL | reference | "(" or_ ")" -> group_of
reference: (VARIABLE | NAME) ("." NAME)*

insert: "insert" "(" "new" NAME "(" (value ("," value)*)? ")" ")" ";"
value: sum
number: PLUS? NUMBER

BOOLEAN.2: /(true|false)\b/
NULL.2: /null\b/
OPERATOR: "==" | "!=" | "<=" | ">=" | "<" | ">"
PLUS: "+" | "-"
TIMES: "*" | "/"
NUMBER: /\d+(\.\d+)?([eE][-+]?\d+)?([fFdDlLB]\b)?/
STRING: /"(\\.|[^"\\\n])*"/ | /'(\\.|[^'\\\n])*'/
VARIABLE: /\$\w+/
NAME: /[^\W\d]\w*/
COMMENT: /\/\/[^\n]*/ | /\/\*(.|\n)*?\*\// | /#[^\n]*/
%import common.WS
%ignore WS
%ignore COMMENT
"""
DEEPEST: Final = 30
"""The most brackets inside each other."""
_TOKENS = re.compile(
    r""""(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|//[^\n]*|/\*.*?\*/|#[^\n]*|[()]|\b(?:rule|declare|end)\b""", re.DOTALL
)


@lru_cache(maxsize=1)
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", propagate_positions=True, maybe_placeholders=False)


@lru_cache(maxsize=1024)
def _tree(unit: str) -> Tree[Token]:
    """The tree of a unit; of one that was parsed before, the same. Raises UnexpectedInput."""
    return _parser().parse(unit)  # pyright: ignore[reportUnknownMemberType]


def parse(text: str, file: str | None, problems: list[Problem]) -> Iterator[tuple[int, Tree[Token]]]:
    """The trees of a file's rules and declarations, in their order, each with the number of lines before those that its
    tokens count from; what can't be read is a problem.
    """
    lines = text.split("\n")
    for start, unit in _units(text):
        offset = text.count("\n", 0, start)
        deep = _too_deep(unit)
        if deep is not None:
            message, hint = f"more than {DEEPEST} brackets are inside each other", "make several rules of it"
            line, column = offset + unit.count("\n", 0, deep) + 1, deep - unit.rfind("\n", 0, deep)
            problems.append(Problem("TooDeep", message, file, line, column, hint, lines[line - 1]))
            continue
        try:
            tree = _tree(unit)
        except UnexpectedInput as error:
            problems.append(_problem(error, file, lines, offset))
            continue
        yield from ((offset, child) for child in tree.children if isinstance(child, Tree))


def _too_deep(text: str) -> int | None:
    """Where brackets are nested too deeply for what walks the tree."""
    depth = 0
    for token in _TOKENS.finditer(text):
        depth = max(depth + {"(": 1, ")": -1}.get(token[0], 0), 0)
        if depth > DEEPEST:
            return token.start()
    return None


def _units(text: str) -> Iterator[tuple[int, str]]:
    """Stretches of a text that can be parsed by themselves: each begins at a line with a rule or declaration."""
    starts = [0]
    open_since: int | None = None
    for token in _TOKENS.finditer(text):
        word = token[0]
        if word == "end":
            open_since = None
        elif word in ("rule", "declare") and (open_since is None or _begins_line(text, token.start())):
            open_since = text.rfind("\n", 0, token.start()) + 1
            if open_since > starts[-1]:
                starts.append(open_since)
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        yield start, text[start:end]


def _begins_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip()


def _problem(error: UnexpectedInput, file: str | None, lines: list[str], offset: int) -> Problem:
    line, column = max(error.line, 1) + offset, max(error.column, 1)
    if isinstance(error, UnexpectedToken):
        token = cast("Token", error.token)  # pyright: ignore[reportUnknownMemberType]
        if token.type == "$END":
            message, hint = "the rule doesn't end", "close it with `end`"
            return Problem("DrlSyntax", message, file, len(lines), len(lines[-1]) + 1, hint, lines[-1])
        said, consequence = str(token), "INSERT" in error.accepts
    else:
        said, consequence = lines[line - 1][column - 1 : column], False
    hint = advice(lines[line - 1], column, consequence)
    return Problem("DrlSyntax", f"`{said}` can't stand here", file, line, column, hint, lines[line - 1])
