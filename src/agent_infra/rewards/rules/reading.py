"""One rule of a rule file: its conditions and effects, compiled and checked for what they read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast

from agent_infra.content import JsonValue
from agent_infra.documents import Fields, did_you_mean
from agent_infra.errors import ExpressionError, Problem
from agent_infra.expressions import Expression, compile_expression, problems_at
from agent_infra.rewards.rules.compiled import compiled, source_of
from agent_infra.rewards.rules.model import (
    CLIP_RULE,
    FIELDS,
    MAIN,
    Binding,
    Effect,
    EffectKind,
    Fact,
    Quantifier,
    Rule,
)

_RULE: Final = ("id", "group", "salience", "when", "then")
_EFFECTS: Final = ("override", "add", "scale", "veto", "require", "flag", "insert")
_FACTS: Final = ("signal", "session", "action", "condition", "evidence", "prompt_rule", "fact")
_QUANTIFIERS: Final = ("not", "exists")
_NUMBER = re.compile(r"[-+]?\d+(\.\d+)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED: Final = ("now", "state")
_ARTICLE: Final = {"action": "an", "evidence": "an"}
_ALWAYS: Final = compile_expression("true", [])
_EXAMPLE: Final = "write {signal: '…'}, {session: '…'}, {not: {signal: '…'}} …"


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
    group = fields.text(*path, "group") if fields.has(*path, "group") else MAIN
    when = _read_when(fields, index)
    then = _read_then(fields, index, {each.name: each for each in when if each.quantifier == "each"})
    if len(fields.problems) > before or id is None or salience is None or group is None:
        return None
    return Rule(id, salience, when, then, group, fields.place(*path), spot_of(fields, *path))


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
        known = {each.name: each for each in bound if each.quantifier == "each"}
        binding = _read_binding(fields, index, name, known)
        if binding is not None:
            bound.append(binding)
    return tuple(bound)


def _read_binding(fields: Fields, index: int, name: str, bound: Mapping[str, Binding]) -> Binding | None:
    path: tuple[str | int, ...] = ("rules", index, "when", name)
    if not _NAME.fullmatch(name) or name in _RESERVED:
        fields.report("BadName", f"`{name}` can't be a name in conditions", *path, key=True, hint="use a word like `r`")
        return None
    quantifier: Quantifier = "each"
    said = fields.mapping(*path, known=(*_FACTS, *_QUANTIFIERS))
    if said is not None and len(said) == 1 and next(iter(said)) in _QUANTIFIERS:
        quantifier = cast("Quantifier", next(iter(said)))
        path = (*path, quantifier)
        said = fields.mapping(*path, known=_FACTS)
    if said is None:
        return None
    if len(said) != 1 or next(iter(said)) not in _FACTS:
        if len(said) != 1:
            fields.report("WrongType", f"`{name}` is bound to one fact", *path, hint=_EXAMPLE)
        return None
    fact, kind = cast("Fact", next(iter(said))), None
    path = (*path, fact)
    if fact == "fact":
        kinds = fields.mapping(*path)
        if kinds is None or len(kinds) != 1:
            fields.report(
                "WrongType", f"`{name}` is bound to one kind of fact", *path, hint="write {fact: {kind: '…'}}"
            )
            return None
        kind = next(iter(kinds))
        path = (*path, kind)
    return make_binding(fields, name, fact, bound, *path, quantifier=quantifier, kind=kind)


def make_binding(
    fields: Fields,
    name: str,
    fact: Fact,
    bound: Mapping[str, Binding],
    *path: str | int,
    quantifier: Quantifier = "each",
    kind: str | None = None,
) -> Binding | None:
    """A binding whose condition stands at a path of the document; None where a problem was reported."""
    plain = Binding(name, fact, _ALWAYS, quantifier, kind)
    condition = _expression(fields, {**bound, name: plain}, True, *path)
    if condition is None:
        return None
    source = source_of(condition, name) if fact == "signal" else None
    return Binding(name, fact, condition, quantifier, kind, source, spot_of(fields, *path))


def spot_of(fields: Fields, *path: str | int) -> Problem:
    """A place of a document, for problems that show later."""
    return fields.document.problem("", "", *path)


def _read_then(fields: Fields, index: int, bound: Mapping[str, Binding]) -> tuple[Effect, ...]:
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


def _read_effect(fields: Fields, index: int, name: str, bound: Mapping[str, Binding]) -> Effect | None:
    path = ("rules", index, "then", name)
    kind = cast("EffectKind", name)
    if kind == "insert":
        return _read_insert(fields, bound, *path)
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


def _read_insert(fields: Fields, bound: Mapping[str, Binding], *path: str | int) -> Effect | None:
    """`{kind: escalation, level: 'r.value * 2'}`: texts are expressions, all else stands for itself."""
    said = fields.mapping(*path)
    kind = fields.text(*path, "kind") if fields.has(*path, "kind") else None
    if said is None or kind is None or not _NAME.fullmatch(kind):
        fields.report("MissingKind", "what is inserted has no kind", *path, hint="write insert: {kind: escalation, …}")
        return None
    inserted: dict[str, Expression | JsonValue] = {}
    for name in said:
        if name == "kind":
            continue
        value = fields.get(*path, name)
        if isinstance(value, str):
            found = _expression(fields, bound, False, *path, name)
            if found is None:
                return None
            inserted[name] = found
        else:
            inserted[name] = value
    return Effect("insert", text=kind, inserted=inserted)


def _expression(fields: Fields, bound: Mapping[str, Binding], boolean: bool, *path: str | int) -> Expression | None:
    """A compiled expression that reads only what its facts have. What a fact of a rule's own kind has is checked when all
    rules are known.
    """
    source = fields.get(*path)
    if not isinstance(source, str) or not source.strip():
        message = f"`{path[-1]}` must be an expression, not {source!r}"
        fields.report("WrongType", message, *path, hint="write it as a text in quotes")
        return None
    try:
        expression = compiled(source, tuple(bound), boolean)
    except ExpressionError as error:
        fields.problems += problems_at(error, fields.document, *path)
        return None
    for read in expression.reads:
        binding = bound.get(read[0])
        known = FIELDS.get(binding.fact, ()) if binding is not None else ()
        if binding is not None and len(read) > 1 and known and read[1] not in known:
            hint = did_you_mean(read[1], known)
            message = f"{_ARTICLE.get(binding.fact, 'a')} {binding.fact} has no field `{read[1]}`"
            fields.report("UnknownField", message, *path, hint=hint, offset=max(source.find(read[1]), 0))
            return None
    return expression
