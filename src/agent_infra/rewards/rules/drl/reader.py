"""The `.drl` files of a rule set into rules.

    Reward        a signal: source, value, priority, session_id, event_id, confidence, …; `provenance` is its evidence's CID
    Session       the session; `session_id` is its id
    Action, Condition, Evidence, PromptRule     as in YAML files
    a declared type                             a fact that another rule inserts

`insert(new WovenReward(value, "id", $r.provenance))` overrides the value; its second argument names the rule, its third
is always kept anyway. `insert(new Kind(…))` of a declared type puts a fact before the rules of later agenda groups. A type
that one file declares is known in all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import cast

from lark import Tree
from lark.lexer import Token

from agent_infra.errors import Problem
from agent_infra.rewards.rules.drl.grammar import parse
from agent_infra.rewards.rules.drl.rule import PATTERNS, REWARD, Page, read_one
from agent_infra.rewards.rules.model import Rule


@dataclass(slots=True)
class Drl:
    """What files hold."""

    rules: list[Rule] = field(default_factory=list[Rule])
    problems: list[Problem] = field(default_factory=list[Problem])
    warnings: list[Problem] = field(default_factory=list[Problem])


def read_drl(text: str, file: str | None = None) -> Drl:
    """The rules of a text, and every problem of it. Never raises."""
    return read_drl_files([(text, file)])


def read_drl_files(texts: Iterable[tuple[str, str | None]]) -> Drl:
    """The rules of some texts that belong together, and every problem of them. Never raises."""
    found = Drl()
    declared: dict[str, list[str]] = {}
    rules: list[tuple[Page, Tree[Token]]] = []
    for text, file in texts:
        lines, before, empty = text.split("\n"), len(found.problems), True
        for offset, tree in parse(text, file, found.problems):
            page = Page(file, lines, declared, offset)
            if tree.data == "declare":
                _declare(tree, page, found.problems)
            elif tree.data == "rule":
                rules.append((page, tree))
            empty = empty and tree.data not in ("declare", "rule")
        if empty and len(found.problems) == before:
            found.problems.append(Problem("EmptyFile", "the file holds no rule", file, 1))
    for page, tree in rules:
        rule = read_one(tree, page, found.problems, found.warnings)
        if rule is not None:
            found.rules.append(rule)
    return found


def _declare(tree: Tree[Token], page: Page, problems: list[Problem]) -> None:
    """Take in a type. What is built in may be declared, as Drools needs it, and stays what it is."""
    name = cast("Token", tree.children[0])
    fields = [cast("Token", cast("Tree[Token]", each).children[0]) for each in tree.children[1:]]
    names = [str(each) for each in fields]
    if name in PATTERNS or name == REWARD:
        return
    for place, each in enumerate(fields):
        if each == "kind":
            problems.append(page.problem(each, "ReservedName", "`kind` is the type itself: call the field otherwise"))
        elif names.index(str(each)) < place:
            problems.append(page.problem(each, "DuplicateName", f"`{name}` has a field `{each}` already"))
    known = page.declared.setdefault(str(name), names)
    if known != names:
        message = f"`{name}` is declared with other fields already: {', '.join(known) or 'none'}"
        problems.append(page.problem(name, "DuplicateType", message, "declare it once, in one of the files"))
