"""One rule of a rule file: its conditions and effects, compiled and checked for what they read."""

from __future__ import annotations

import re
from typing import Final, cast

from agent_infra.documents import Fields, did_you_mean
from agent_infra.errors import ExpressionError
from agent_infra.expressions import Expression, compile_expression, problems_at
from agent_infra.rewards.rules.model import CLIP_RULE, FIELDS, Binding, Effect, EffectKind, Fact, Rule

_RULE: Final = ("id", "salience", "when", "then")
_EFFECTS: Final = ("override", "add", "scale", "veto", "require", "flag")
_FACTS: Final = ("signal", "session")
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_rule(fields: Fields, index: int) -> Rule | None:
    """The rule at a place of the file's list; None where a problem was reported."""
    before = len(fields.problems)
    path = ("rules", index)
    if fields.mapping(*path, known=_RULE) is None:
        return None
    id = fields.text(*path, "id") if fields.has(*path, "id") else None
    if id is None:
        fields.report("MissingId", "a rule has no id", *path, hint="explanations name rules by their ids: add `id:`")
    elif id == CLIP_RULE:
        message = f"a rule can't be called `{CLIP_RULE}`: the row of clipping the base value has that name"
        fields.report("ReservedId", message, *path, "id")
    salience = fields.number(*path, "salience") if fields.has(*path, "salience") else 0.0
    when = _read_when(fields, index)
    then = _read_then(fields, index, {binding.name: binding.fact for binding in when})
    if len(fields.problems) > before or id is None or salience is None:
        return None
    return Rule(id, salience, when, then, place=fields.place(*path))


def _read_when(fields: Fields, index: int) -> tuple[Binding, ...]:
    path = ("rules", index, "when")
    if not fields.has(*path):
        hint = "bind a name to a fact: when: {r: {signal: 'r.value < 0'}}"
        fields.report("MissingWhen", "a rule has no `when`", "rules", index, hint=hint)
        return ()
    names = fields.mapping(*path)
    if names is not None and not names:
        fields.report("MissingWhen", "`when` binds no name, so the rule could never fire", *path)
    bound: list[Binding] = []
    for name in names or ():
        binding = _read_binding(fields, index, name, {each.name: each.fact for each in bound})
        if binding is not None:
            bound.append(binding)
    return tuple(bound)


def _read_binding(fields: Fields, index: int, name: str, bound: dict[str, Fact]) -> Binding | None:
    path = ("rules", index, "when", name)
    if not _NAME.fullmatch(name) or name == "now":
        fields.report("BadName", f"`{name}` can't be a name in conditions", *path, key=True, hint="use a word like `r`")
        return None
    said = fields.mapping(*path, known=_FACTS)
    if said is None:
        return None
    if len(said) != 1 or next(iter(said)) not in _FACTS:
        if len(said) != 1:
            message = f"`{name}` is bound to one fact"
            fields.report("WrongType", message, *path, hint="write {signal: '…'} or {session: '…'}")
        return None
    fact = cast("Fact", next(iter(said)))
    condition = _expression(fields, {**bound, name: fact}, True, *path, fact)
    return Binding(name, fact, condition) if condition else None


def _read_then(fields: Fields, index: int, bound: dict[str, Fact]) -> tuple[Effect, ...]:
    path = ("rules", index, "then")
    if not fields.has(*path):
        hint = f"say what it does: one of {', '.join(_EFFECTS)}"
        fields.report("MissingThen", "a rule has no `then`", "rules", index, hint=hint)
        return ()
    said = fields.mapping(*path, known=_EFFECTS)
    if said is not None and not said:
        fields.report("MissingThen", "`then` is empty", *path, hint=f"say one of {', '.join(_EFFECTS)}")
    effects = [_read_effect(fields, index, kind, bound) for kind in said or () if kind in _EFFECTS]
    return tuple(effect for effect in effects if effect is not None)


def _read_effect(fields: Fields, index: int, name: str, bound: dict[str, Fact]) -> Effect | None:
    path = ("rules", index, "then", name)
    kind = cast("EffectKind", name)
    if kind == "require":
        return Effect(kind, sources=fields.texts(*path))
    if kind == "flag":
        text = fields.text(*path)
        return Effect(kind, text=text) if text else None
    value = fields.get(*path)
    if kind == "veto" and value is True:
        return Effect(kind)
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        amount = _expression(fields, bound, False, *path)
        return Effect(kind, amount) if amount else None
    number = float(value) if isinstance(value, str) else fields.number(*path)
    return Effect(kind, number) if number is not None else None


def _expression(fields: Fields, bound: dict[str, Fact], boolean: bool, *path: str | int) -> Expression | None:
    """A compiled expression that reads only what its facts have."""
    source = fields.get(*path)
    if not isinstance(source, str) or not source.strip():
        message = f"`{path[-1]}` must be an expression, not {source!r}"
        fields.report("WrongType", message, *path, hint="write it as a text in quotes")
        return None
    try:
        expression = compile_expression(source, list(bound), boolean=boolean)
    except ExpressionError as error:
        fields.problems += problems_at(error, fields.document, *path)
        return None
    for read in expression.reads:
        known = FIELDS[bound[read[0]]] if read and read[0] in bound else ()
        if len(read) > 1 and known and read[1] not in known:
            hint = did_you_mean(read[1], known)
            message = f"a {bound[read[0]]} has no field `{read[1]}`"
            fields.report("UnknownField", message, *path, hint=hint, offset=max(source.find(read[1]), 0))
            return None
    return expression
