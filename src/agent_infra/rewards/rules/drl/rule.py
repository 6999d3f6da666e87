"""One rule of a `.drl` file, from its tree."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from lark import Tree
from lark.lexer import Token

from agent_infra.content import JsonValue
from agent_infra.documents import did_you_mean
from agent_infra.errors import ExpressionError, Problem
from agent_infra.expressions import Expression, faults_of
from agent_infra.rewards.rules.compiled import compiled, source_of
from agent_infra.rewards.rules.drl.advice import INSTEAD
from agent_infra.rewards.rules.drl.expressions import Scope, always_zero, bare, in_brackets, operand, to_cel, zeroed
from agent_infra.rewards.rules.drl.texts import number_of, text_of
from agent_infra.rewards.rules.drl.unreadable import Part, Unreadable
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
_PROVENANCE: Final = "evidence"
_DRL_MAIN: Final = "MAIN"
"""What Drools calls the agenda group of rules that name none."""
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?([eE][-+]?\d+)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_NAMES: Final = re.compile(
    "as|break|const|continue|else|false|for|function|if|import|in|let|loop|namespace|now|null|package|return|state|true|"
    "var|void|while"
)
"""Names that mean something else in conditions."""
_ATTRIBUTES: Final = ("salience", "agenda-group", "no-loop", "lock-on-active", "dialect")
_QUANTIFIED: Final[Mapping[str, Quantifier]] = {"each": "each", "absent": "not", "present": "exists"}
_COMPARISONS: Final = (
    "compares", "among", "not_among", "member", "not_member", "matches", "not_matches", "contains", "not_contains",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Page:
    """The file that a rule stands in, and the types that the set declares: their fields in order.

    before  lines of the file before those that tokens count from
    """

    file: str | None
    lines: list[str]
    declared: dict[str, list[str]]
    before: int = 0

    def problem(self, part: Part, code: str, message: str, hint: str | None = None) -> Problem:
        """A problem at a part."""
        token = _first_token(part)
        line = (token.line if token is not None else cast("Tree[Token]", part).meta.line) or 1
        line += self.before
        column = token.column if token is not None else cast("Tree[Token]", part).meta.column
        return Problem(code, message, self.file, line, column, hint, self.lines[line - 1])


def read_one(tree: Tree[Token], page: Page, problems: list[Problem], warnings: list[Problem]) -> Rule | None:
    """The rule; None where it can't be read, which is a problem then."""
    try:
        return _Reader(page, warnings).read(tree)
    except Unreadable as error:
        problems.append(page.problem(error.part, error.code, error.message, error.hint))
        return None


class _Reader:
    """Reads one rule. Its methods raise Unreadable."""

    def __init__(self, page: Page, warnings: list[Problem]) -> None:
        self._page = page
        self._warnings = warnings
        self._scope = Scope()
        self._kinds: dict[str, Fact] = {}
        self._names: set[str] = set()
        self._variables: set[str] = set()

    def read(self, tree: Tree[Token]) -> Rule:
        head = cast("Token", tree.children[0])
        parts = [part for part in tree.children[1:] if isinstance(part, Tree)]
        salience, group = self._attributes(head, parts)
        when = [
            self._binding(part, place) for place, part in enumerate(each for each in parts if each.data in _QUANTIFIED)
        ]
        effects = [self._effect(part) for part in parts if part.data == "insert"]
        then = tuple(effect for effect, _ in effects)
        name = next((named for _, named in effects if named is not None), head)
        self._check_whole(head, when, then)
        spot = self._page.problem(head, "", "")
        place = f"{self._page.file or '<text>'}:{spot.line}"
        return Rule(self._id(name), salience, tuple(when), then, group, place, spot)

    def _attributes(self, head: Token, parts: Iterable[Tree[Token]]) -> tuple[float, str]:
        """Its salience and agenda group. The other attributes are about chains of rules, which there are none of."""
        salience, group = 0.0, MAIN
        seen: set[str] = set()
        for part in parts:
            kind = str(part.data).replace("_", "-")
            if kind in _ATTRIBUTES and kind in seen:
                at = part if part.children else head
                raise Unreadable(at, "SaidTwice", f"`{kind}` is said twice", "keep one of the two")
            seen.add(kind)
            if kind == "salience":
                salience = self._number(part, _signed(part))
            elif kind == "agenda-group":
                group = text_of(cast("Token", part.children[0]))
        return salience, MAIN if group == _DRL_MAIN else group

    def _id(self, token: Token) -> str:
        id = text_of(token) if token.type == "STRING" else str(token)
        if not id.strip():
            raise Unreadable(token, "MissingId", "a rule has no name", "explanations name rules: give it one")
        if id == CLIP_RULE:
            message = f"a rule can't be called `{CLIP_RULE}`: the row of clipping the base value has that name"
            raise Unreadable(token, "ReservedId", message)
        return id

    def _check_whole(self, head: Token, when: list[Binding], then: tuple[Effect, ...]) -> None:
        if not when:
            raise Unreadable(head, "MissingWhen", "the rule asks for nothing, so it could never fire", "add a pattern")
        if not then:
            raise Unreadable(head, "MissingThen", "the rule does nothing", "add insert(new WovenReward(…));")
        kinds = [effect.kind for effect in then]
        if len(set(kinds)) < len(kinds):
            message = "the rule inserts two of a kind: which would count?"
            raise Unreadable(head, "TwoEffects", message, "make two rules of it")

    # -- when ----------------------------------------------------------------------------------------------------------

    def _binding(self, part: Tree[Token], place: int) -> Binding:
        quantifier = _QUANTIFIED[str(part.data)]
        body = part if quantifier == "each" else cast("Tree[Token]", part.children[0])
        tokens = [child for child in body.children if isinstance(child, Token)]
        variable, type = (tokens[0], tokens[1]) if len(tokens) == 2 else (None, tokens[0])
        kinds: dict[str, Fact] = dict(self._kinds)
        fact, kind = self._kind(type)
        if variable is not None:
            self._claim(variable)
        own = (self._name(variable, place), fact)
        scope = self._scope if quantifier == "each" else self._scope.apart()
        texts: list[str] = []
        for child in body.children:
            if isinstance(child, Tree):
                texts += [text for each in child.children for text in self._constraint(each, scope.within(own))]
        kinds[own[0]] = fact
        condition = self._compile(body, " && ".join(texts) or "true", kinds, True)
        if quantifier == "each":
            self._kinds = kinds
            if variable is not None:
                self._scope.facts[str(variable)] = own
        source = source_of(condition, own[0]) if fact == "signal" else None
        return Binding(own[0], fact, condition, quantifier, kind, source, self._page.problem(body, "", ""))

    def _constraint(self, each: Part, scope: Scope) -> list[str]:
        """What a constraint demands, as CEL; nothing where it only gives a field a name."""
        if not (isinstance(each, Tree) and each.data == "binds"):
            scope.zeros.update(zeroed(each, scope))
            return [in_brackets(each, scope)]
        variable, value = cast("Token", each.children[0]), bare(each.children[1])
        self._claim(variable)
        compares = isinstance(value, Tree) and value.data in _COMPARISONS
        named = cast("Tree[Token]", value).children[0] if compares else value
        scope.zeros.update(zeroed(value, scope))
        text = to_cel(value, scope)
        scope.bound[str(variable)] = operand(named, scope)
        return [text] if compares else []

    def _kind(self, type: Token) -> tuple[Fact, str | None]:
        if type in PATTERNS:
            return PATTERNS[type], None
        if type in self._page.declared:
            return "fact", str(type)
        if type in INSTEAD:
            raise Unreadable(type, "UnknownType", f"`{type}` is not read", INSTEAD[type])
        known = [*PATTERNS, *self._page.declared]
        hint = f"{did_you_mean(str(type), known)}; a type of your own is declared: declare {type} field : double end"
        raise Unreadable(type, "UnknownType", f"there is no fact type `{type}`", hint)

    def _claim(self, variable: Token) -> None:
        if variable in self._variables:
            raise Unreadable(variable, "DuplicateName", f"`{variable}` is bound already", "give it another name")
        self._variables.add(str(variable))

    def _name(self, variable: Token | None, place: int) -> str:
        """The name of a fact in conditions: the rule's own where CEL can spell it."""
        name = str(variable)[1:] if variable is not None else ""
        if not _NAME.fullmatch(name) or _NO_NAMES.fullmatch(name):
            name = f"fact{place + 1}"
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name

    # -- then ----------------------------------------------------------------------------------------------------------

    def _effect(self, part: Tree[Token]) -> tuple[Effect, Token | None]:
        """An effect, and the rule's id where it says one."""
        type, values = cast("Token", part.children[0]), cast("list[Tree[Token]]", part.children[1:])
        if type == REWARD:
            return self._reward(part, values)
        if type in PATTERNS:
            message = f"rules can't insert a {type}: it is what they are asked about"
            raise Unreadable(type, "UnknownType", message, f"insert a {REWARD}, or a fact of a declared type")
        if type not in self._page.declared:
            hint = did_you_mean(str(type), [REWARD, *self._page.declared])
            raise Unreadable(type, "UnknownType", f"there is no type `{type}` to insert", hint)
        fields = self._page.declared[str(type)]
        if len(values) != len(fields):
            message = f"`{type}` has {len(fields)} fields, and {len(values)} are given"
            raise Unreadable(part, "WrongCount", message, f"give them in this order: {', '.join(fields) or 'none'}")
        inserted: dict[str, Expression | JsonValue] = {
            name: self._amount(value) for name, value in zip(fields, values, strict=True)
        }
        return Effect("insert", text=str(type), inserted=inserted), None

    def _reward(self, part: Tree[Token], values: list[Tree[Token]]) -> tuple[Effect, Token | None]:
        hint = 'write new WovenReward(value, "rule id", $r.provenance)'
        if not 1 <= len(values) <= 3:
            raise Unreadable(part, "WrongCount", f"a {REWARD} takes one to three arguments, not {len(values)}", hint)
        named = None
        if len(values) > 1:
            named = bare(values[1])
            if not (isinstance(named, Token) and named.type == "STRING"):
                message = f"the second argument of {REWARD} is the rule's id, a text in quotes"
                raise Unreadable(values[1], "WrongType", message, hint)
        if len(values) > 2:
            self._check_provenance(values[2], hint)
        if always_zero(values[0], self._scope):
            message = "what must be 0 is multiplied: the product is always 0"
            self._warnings.append(self._page.problem(values[0], "ZeroTimes", message, "is `value < 0` meant?"))
        return Effect("override", self._amount(values[0])), named

    def _check_provenance(self, value: Tree[Token], hint: str) -> None:
        kept = {f"{name}.{_PROVENANCE}" for name, fact in self._scope.facts.values() if fact == "signal"}
        if to_cel(bare(value), self._scope) not in kept:
            message = f"the third argument of {REWARD} is the provenance of a Reward that the rule is about"
            raise Unreadable(value, "WrongType", message, hint)

    def _amount(self, value: Tree[Token]) -> Expression | float:
        text = to_cel(value, self._scope)
        if _NUMBER.fullmatch(text):
            return self._number(value, text)
        return self._compile(value, text, self._kinds, False)

    # -- both ----------------------------------------------------------------------------------------------------------

    def _number(self, part: Part, text: str) -> float:
        number = float(text)
        if not math.isfinite(number):
            raise Unreadable(part, "BadNumber", "the number is too large")
        return number

    def _compile(self, part: Part, text: str, kinds: Mapping[str, Fact], boolean: bool) -> Expression:
        """A compiled expression that reads only what its facts have."""
        try:
            expression = compiled(text, tuple(kinds), boolean)
        except ExpressionError as error:
            message = f"this is no condition or value: {'; '.join(fault.message for fault in faults_of(error))}"
            raise Unreadable(part, "ExpressionSyntax", message) from None
        for read in expression.reads:
            known = FIELDS.get(kinds.get(read[0], "fact"), ())
            if len(read) > 1 and known and read[1] not in known:
                at = next((each for each in _tokens(part) if each == read[1]), part)
                message = f"a {kinds[read[0]]} has no field `{read[1]}`"
                raise Unreadable(at, "UnknownField", message, did_you_mean(read[1], known))
        return expression


def _signed(part: Tree[Token]) -> str:
    """A number with its sign."""
    return "".join(number_of(each) for each in _tokens(part))


def _first_token(part: Part) -> Token | None:
    """The first token of a part; None for one without."""
    return next(iter(_tokens(part)), None)


def _tokens(part: Part) -> list[Token]:
    if isinstance(part, Token):
        return [part]
    return sorted(part.scan_values(lambda _: True), key=lambda each: each.start_pos or 0)
