"""One `.drl` file into rules.

    Reward        a signal: source, value, priority, session_id, event_id, confidence, …; `provenance` is its evidence's CID
    Session       the session; `session_id` is its id
    Action, Condition, Evidence, PromptRule     as in YAML files
    a declared type                             a fact that another rule inserts

`insert(new WovenReward(value, "id", $r.provenance))` overrides the value; its second argument names the rule, its third
is always kept anyway. `insert(new Kind(…))` of a declared type puts a fact before the rules of later agenda groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from lark import Tree
from lark.lexer import Token

from agent_infra.content import JsonValue
from agent_infra.documents import did_you_mean
from agent_infra.errors import ExpressionError, Problem
from agent_infra.expressions import Expression, compile_expression, faults_of
from agent_infra.rewards.rules.drl.expressions import Part, Scope, Unreadable, is_choice, text_of, to_cel, zero_times
from agent_infra.rewards.rules.drl.grammar import parse
from agent_infra.rewards.rules.model import CLIP_RULE, FIELDS, MAIN, Binding, Effect, Fact, Quantifier, Rule

PATTERNS: Final[Mapping[str, Fact]] = {
    "Reward": "signal",
    "Session": "session",
    "Action": "action",
    "Condition": "condition",
    "Evidence": "evidence",
    "PromptRule": "prompt_rule",
}
REWARD: Final = "WovenReward"
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")
_QUANTIFIED: Final[Mapping[str, Quantifier]] = {"each": "each", "absent": "not", "present": "exists"}


@dataclass(slots=True)
class Drl:
    """What a file holds."""

    rules: list[Rule] = field(default_factory=list[Rule])
    problems: list[Problem] = field(default_factory=list[Problem])
    warnings: list[Problem] = field(default_factory=list[Problem])


def read_drl(text: str, file: str | None = None) -> Drl:
    """The rules of a text, and every problem of it. Never raises."""
    found = Drl()
    trees = list(parse(text, file, found.problems))
    declared: dict[str, list[str]] = {}
    for tree in trees:
        if tree.data == "declare":
            name, *fields = tree.children
            declared[str(name)] = [str(cast("Tree[Token]", each).children[0]) for each in fields]
    for tree in trees:
        if tree.data == "rule":
            rule = _RuleReader(tree, file, text.split("\n"), declared, found).read()
            if rule is not None:
                found.rules.append(rule)
    if not found.rules and not found.problems and not declared:
        found.problems.append(Problem("EmptyFile", "the file holds no rule", file, 1))
    return found


class _RuleReader:
    """Reads one rule."""

    def __init__(
        self, tree: Tree[Token], file: str | None, lines: list[str], declared: Mapping[str, list[str]], found: Drl
    ) -> None:
        self._tree = tree
        self._file = file
        self._lines = lines
        self._declared = declared
        self._found = found
        self._scope = Scope()
        self._constraints: list[Part] = []

    def read(self) -> Rule | None:
        """The rule; None where a problem was reported."""
        head, *parts = self._tree.children
        before = len(self._found.problems)
        try:
            return self._read(cast("Token", head), [part for part in parts if isinstance(part, Tree)], before)
        except Unreadable as error:
            self._found.problems.append(self._problem(error.part, error.code, error.message, error.hint))
            return None

    def _read(self, head: Token, parts: list[Tree[Token]], before: int) -> Rule | None:
        salience, group = 0.0, MAIN
        when: list[Binding] = []
        then: list[Effect] = []
        name = text_of(head) if head.type == "STRING" else str(head)
        for part in parts:
            match part.data:
                case "salience":
                    salience = float("".join(str(each) for each in part.scan_values(lambda _: True)))
                case "group":
                    group = text_of(cast("Token", part.children[0]))
                case "each" | "absent" | "present":
                    when.append(self._binding(part, len(when)))
                case "insert":
                    effect, named = self._effect(part)
                    name = named or name
                    then.append(effect)
                case _:
                    pass
        self._check_whole(head, name, when, then)
        if len(self._found.problems) > before:
            return None
        spot = self._problem(head, "", "")
        return Rule(name, salience, tuple(when), tuple(then), group, f"{self._file or '<text>'}:{spot.line}", spot)

    def _check_whole(self, head: Token, name: str, when: list[Binding], then: list[Effect]) -> None:
        if not when:
            raise Unreadable(head, "MissingWhen", "the rule asks for nothing, so it could never fire", "add a pattern")
        if not then:
            raise Unreadable(head, "MissingThen", "the rule does nothing", "add insert(new WovenReward(…));")
        if name == CLIP_RULE:
            raise Unreadable(head, "ReservedId", f"a rule can't be called `{CLIP_RULE}`")
        kinds = [effect.kind for effect in then]
        if kinds.count("override") > 1 or kinds.count("insert") > 1:
            message = "the rule inserts two of a kind: which would count?"
            raise Unreadable(head, "TwoEffects", message, "make two rules of it")

    # -- when ----------------------------------------------------------------------------------------------------------

    def _binding(self, part: Tree[Token], place: int) -> Binding:
        quantifier = _QUANTIFIED[str(part.data)]
        body = part if quantifier == "each" else cast("Tree[Token]", part.children[0])
        tokens = [child for child in body.children if isinstance(child, Token)]
        variable, type = (tokens[0], tokens[1]) if len(tokens) == 2 else (None, tokens[0])
        fact, kind = self._kind(type)
        name = self._name(variable, place)
        known = dict(self._scope.facts)
        own = (name, fact)
        texts: list[str] = []
        constraints = next((child for child in body.children if isinstance(child, Tree)), None)
        for each in constraints.children if constraints is not None else []:
            texts += self._constraint(each, own)
        condition = self._compile(
            body, " && ".join(texts) or "true", [*(each for each, _ in known.values()), name], True
        )
        self._check_reads(body, condition, {**dict(known.values()), name: fact})
        if variable is not None and quantifier == "each":
            self._scope.facts[str(variable)] = own
        source = condition.demands((name, "source")) if fact == "signal" else None
        return Binding(name, fact, condition, quantifier, kind, source, self._problem(body, "", ""))

    def _constraint(self, each: Part, own: tuple[str, str]) -> list[str]:
        self._constraints.append(each)
        scope = Scope(self._scope.facts, own, self._scope.bound)
        if isinstance(each, Tree) and each.data == "binds":
            variable, value = each.children
            text = to_cel(value, scope)
            compares = isinstance(value, Tree) and value.data == "compares"
            bound = to_cel(value.children[0], scope) if compares and isinstance(value, Tree) else text
            self._scope.bound[str(variable)] = bound
            return [text] if compares else []
        text = to_cel(each, scope)
        return [f"({text})" if is_choice(each) else text]

    def _kind(self, type: Token) -> tuple[Fact, str | None]:
        if type in PATTERNS:
            return PATTERNS[type], None
        if type in self._declared:
            return "fact", str(type)
        known = [*PATTERNS, *self._declared]
        hint = did_you_mean(str(type), known) or "declare it: declare Kind field : double end"
        raise Unreadable(type, "UnknownType", f"there is no fact type `{type}`", hint)

    def _name(self, variable: Token | None, place: int) -> str:
        """The name of a fact in conditions: the rule's own where CEL can spell it."""
        name = str(variable)[1:] if variable is not None else f"fact{place + 1}"
        taken = {each for each, _ in self._scope.facts.values()}
        plain = name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else f"fact{place + 1}"
        if plain in taken and variable is not None:
            raise Unreadable(variable, "DuplicateName", f"`{variable}` is bound already", "give it another name")
        return plain

    # -- then ----------------------------------------------------------------------------------------------------------

    def _effect(self, part: Tree[Token]) -> tuple[Effect, str | None]:
        type, *values = part.children
        values = cast("list[Tree[Token]]", values)
        if type == REWARD:
            return self._reward(part, values)
        if type not in self._declared:
            hint = did_you_mean(str(type), [REWARD, *self._declared])
            raise Unreadable(cast("Token", type), "UnknownType", f"there is no type `{type}` to insert", hint)
        fields = self._declared[str(type)]
        if len(values) != len(fields):
            message = f"`{type}` has {len(fields)} fields, and {len(values)} are given"
            raise Unreadable(part, "WrongCount", message, f"give them in this order: {', '.join(fields)}")
        inserted: dict[str, Expression | JsonValue] = {
            name: self._amount(value) for name, value in zip(fields, values, strict=True)
        }
        return Effect("insert", text=str(type), inserted=inserted), None

    def _reward(self, part: Tree[Token], values: list[Tree[Token]]) -> tuple[Effect, str | None]:
        if not 1 <= len(values) <= 3:
            hint = 'write new WovenReward(value, "rule id", $r.provenance)'
            raise Unreadable(part, "WrongCount", f"a {REWARD} takes one to three arguments, not {len(values)}", hint)
        named = None
        if len(values) > 1:
            named = to_cel(values[1], self._scope)
            if not named.startswith('"'):
                raise Unreadable(
                    values[1], "WrongType", f"the second argument of {REWARD} is the rule's id, a text in quotes"
                )
            named = text_of(next(iter(values[1].scan_values(lambda _: True))))
        if any(zero_times(each, values[0]) for each in self._constraints):
            message = "a value that must be 0 is multiplied: the reward is always 0"
            self._found.warnings.append(self._problem(values[0], "ZeroTimes", message, "is `value < 0` meant?"))
        return Effect("override", self._amount(values[0])), named

    def _amount(self, value: Tree[Token]) -> Expression | float:
        text = to_cel(value, self._scope)
        if _NUMBER.fullmatch(text):
            return float(text)
        kinds = dict(self._scope.facts.values())
        found = self._compile(value, text, list(kinds), False)
        self._check_reads(value, found, kinds)
        return found

    # -- both ----------------------------------------------------------------------------------------------------------

    def _compile(self, part: Part, text: str, names: list[str], boolean: bool) -> Expression:
        try:
            return compile_expression(text, [*names, "state"], boolean=boolean)
        except ExpressionError as error:
            message = f"this is no condition or value: {'; '.join(fault.message for fault in faults_of(error))}"
            raise Unreadable(part, "ExpressionSyntax", message) from None

    def _check_reads(self, part: Part, expression: Expression, kinds: Mapping[str, str]) -> None:
        for read in expression.reads:
            known = FIELDS.get(cast("Fact", kinds.get(read[0], "fact")), ())
            if len(read) > 1 and known and read[1] not in known:
                at = next((each for each in _tokens(part) if each == read[1]), part)
                message = f"a {kinds[read[0]]} has no field `{read[1]}`"
                raise Unreadable(at, "UnknownField", message, did_you_mean(read[1], known))

    def _problem(self, part: Part, code: str, message: str, hint: str | None = None) -> Problem:
        first = part if isinstance(part, Token) else next(iter(_tokens(part)), None)
        line = first.line if first is not None else self._tree.meta.line
        column = first.column if first is not None else self._tree.meta.column
        return Problem(code, message, self._file, line, column, hint, self._lines[(line or 1) - 1])


def _tokens(part: Part) -> list[Token]:
    if isinstance(part, Token):
        return [part]
    return sorted(part.scan_values(lambda _: True), key=lambda each: each.start_pos or 0)
