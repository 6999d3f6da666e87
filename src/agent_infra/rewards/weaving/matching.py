"""Which rules fire on an event's facts, and with what amounts.

Rules are judged by agenda group, the groups in the order that the set declares. Within a group every rule is judged by
itself on the same facts; none sees what another did, so their order can't matter. What the rules of a group insert is seen
by the groups after it.

A rule's names are bound by nested loops over the facts of their kind, in the order in which `when:` lists them; a
condition may use the names bound so far. A condition that can't be evaluated doesn't hold, and is reported. An amount that
can't be evaluated is a failure of the whole weaving: leaving out a rule that fired would give a value that the policy
never meant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from agent_infra.content import JsonValue, json_bytes
from agent_infra.expressions import Expression
from agent_infra.rewards.rules.model import Binding, Effect, EffectKind, Fact, Rule, RuleSet

FactRow: TypeAlias = dict[str, JsonValue]
Match: TypeAlias = dict[str, JsonValue]
LARGEST_AMOUNT: Final = 1e12
MOST_MATCHES: Final = 10_000
"""The most combinations of facts that one rule may fire on."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What rules read of one event, by kind; see `Fact` for what they are. Signals that count, newest first.

    state  {"nodes": {name: fields}} of the graph as it was at the event, for the names that the rules read
    """

    signals: Sequence[FactRow] = ()
    session: FactRow = field(default_factory=dict[str, JsonValue])
    action: FactRow | None = None
    conditions: Sequence[FactRow] = ()
    evidence: FactRow | None = None
    prompt_rules: Sequence[FactRow] = ()
    state: FactRow = field(default_factory=dict[str, JsonValue])
    doubts: Sequence[str] = ()


@dataclass(slots=True)
class _Memory:
    """The facts that a group of rules sees."""

    by_kind: dict[Fact, Sequence[FactRow]]
    by_source: dict[str, list[FactRow]]
    inserted: dict[str, list[FactRow]]
    constant: Match

    @classmethod
    def of(cls, facts: Facts) -> _Memory:
        by_source: dict[str, list[FactRow]] = {}
        for row in facts.signals:
            by_source.setdefault(cast("str", row["source"]), []).append(row)
        by_kind: dict[Fact, Sequence[FactRow]] = {
            "signal": facts.signals,
            "session": (facts.session,),
            "action": () if facts.action is None else (facts.action,),
            "condition": facts.conditions,
            "evidence": () if facts.evidence is None else (facts.evidence,),
            "prompt_rule": facts.prompt_rules,
        }
        return cls(by_kind, by_source, {}, {"state": facts.state})

    def of_binding(self, binding: Binding) -> Sequence[FactRow]:
        """The facts that a binding may be bound to."""
        if binding.source is not None:
            return self.by_source.get(binding.source, ())
        if binding.fact == "fact":
            return self.inserted.get(binding.kind or "", ())
        return self.by_kind[binding.fact]


@dataclass(frozen=True, slots=True)
class Fired:
    """One effect of a rule that fired. `amounts` has one number a match; `source` is set where all are of one.

    inserted  the facts that it inserted
    """

    rule: str
    effect: EffectKind
    matches: int
    amounts: tuple[float, ...] = ()
    sources: tuple[str, ...] = ()
    text: str = ""
    source: str | None = None
    place: str = ""
    group: str = "main"
    inserted: tuple[Mapping[str, JsonValue], ...] = ()


@dataclass(slots=True)
class Firing:
    """What all rules did: effects, conditions that couldn't be evaluated, and what makes the whole weaving fail."""

    fired: list[Fired] = field(default_factory=list[Fired])
    doubts: list[str] = field(default_factory=list[str])
    failures: list[str] = field(default_factory=list[str])

    def of(self, kind: EffectKind, group: str | None = None) -> list[Fired]:
        """The effects of a kind, of one group or all: by group, descending salience, rule id."""
        return [fired for fired in self.fired if fired.effect == kind and group in (None, fired.group)]


def fire(rules: RuleSet, facts: Facts) -> Firing:
    """Judge every rule of a set."""
    firing = Firing(doubts=list(facts.doubts))
    memory = _Memory.of(facts)
    for group in rules.groups:
        inserted: list[FactRow] = []
        for rule in rules.by_group[group]:
            matches = _all_matches(rule, memory, firing)
            for effect in rule.then if matches else ():
                _apply(firing, rule, effect, matches, rules.clip[0])
        for fired in firing.of("insert", group):
            inserted += [dict(row) for row in fired.inserted]
        for row in inserted:
            memory.inserted.setdefault(cast("str", row["kind"]), []).append(row)
    return firing


def _all_matches(rule: Rule, memory: _Memory, firing: Firing) -> list[Match]:
    """Every match of a rule, in an order that depends on the facts only."""
    first = rule.when[0]
    if first.quantifier == "each" and not memory.of_binding(first):
        return []
    doubts: list[str] = []
    matches: list[Match] = []
    for match in _matches(rule, memory, doubts):
        if len(matches) == MOST_MATCHES:
            firing.failures.append(f"rule {rule.id} fires on more than {MOST_MATCHES} combinations of facts")
            break
        matches.append(match)
    if doubts:
        firing.doubts += list(dict.fromkeys(doubts))
    if len(matches) > 1:
        matches.sort(key=_match_order)
    return matches


def _matches(rule: Rule, memory: _Memory, doubts: list[str], lenient: int | None = None) -> Iterator[Match]:
    """Every combination of facts that satisfies a rule's conditions; that at the place `lenient` counts as satisfied."""

    def holds(binding: Binding, candidate: Match) -> bool:
        judged = binding.condition.evaluate(candidate)
        if not judged.ok:
            doubts.append(f"rule {rule.id}, `{binding.name}`: {judged.error}")
        return judged.holds

    def bind(position: int, bound: Match) -> Iterator[Match]:
        if position == len(rule.when):
            yield bound
            return
        binding = rule.when[position]
        facts = memory.of_binding(binding)
        if binding.quantifier != "each":
            found = any([holds(binding, bound | {binding.name: cast("JsonValue", fact)}) for fact in facts])  # noqa: C419
            if found == (binding.quantifier == "exists") or position == lenient:
                yield from bind(position + 1, bound)
            return
        for fact in facts:
            candidate = bound | {binding.name: cast("JsonValue", fact)}
            if position == lenient or holds(binding, candidate):
                yield from bind(position + 1, candidate)

    return bind(0, memory.constant)


def _match_order(match: Match) -> list[tuple[str, float, str, bytes]]:
    """An order of matches that depends on the facts only: by name, newest fact first."""
    facts = sorted((name, cast("FactRow", fact)) for name, fact in match.items() if name != "state")
    return [(name, -_as_float(fact.get("at")), str(fact.get("source")), json_bytes(fact)) for name, fact in facts]


def _as_float(value: JsonValue) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _apply(firing: Firing, rule: Rule, effect: Effect, matches: list[Match], floor: float) -> None:
    amounts: list[float] = []
    inserted: list[FactRow] = []
    for match in matches:
        if effect.kind in ("add", "scale", "override", "veto"):
            amount = _amount(effect.amount, match, floor)
            if isinstance(amount, str):
                firing.failures.append(f"rule {rule.id} fired, and its {effect.kind} {amount}")
                return
            amounts.append(amount)
        elif effect.kind == "insert":
            row = _inserted(effect, match)
            if isinstance(row, str):
                firing.failures.append(f"rule {rule.id} fired, and of the {effect.text} that it inserts {row}")
                return
            inserted.append(row)
    firing.fired.append(
        Fired(
            rule.id,
            effect.kind,
            len(matches),
            tuple(amounts),
            effect.sources,
            effect.text,
            _only_source(matches),
            rule.place,
            rule.group,
            tuple(inserted),
        )
    )


def _amount(amount: Expression | float | None, match: Mapping[str, JsonValue], floor: float) -> float | str:
    """A number, or why there is none."""
    if amount is None:
        return floor
    if not isinstance(amount, Expression):
        return amount
    result = amount.evaluate(match)
    if not result.ok:
        return f"could not be evaluated: {result.error}"
    value = result.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"gave {value!r}, which is no number"
    if not math.isfinite(value) or abs(value) > LARGEST_AMOUNT:
        return f"gave {value}, which is no usable number"
    return float(value)


def _inserted(effect: Effect, match: Mapping[str, JsonValue]) -> FactRow | str:
    """The fact that a match inserts, or which of its fields has no value, and why."""
    row: FactRow = {"kind": effect.text}
    for name, value in effect.inserted.items():
        if isinstance(value, Expression):
            found = value.evaluate(match)
            if not found.ok:
                return f"`{name}` could not be evaluated: {found.error}"
            row[name] = found.value
        else:
            row[name] = value
    return row


def _only_source(matches: list[Match]) -> str | None:
    sources = {
        str(fact["source"])
        for match in matches
        for name, fact in cast("dict[str, FactRow]", match).items()
        if name != "state" and "source" in fact
    }
    return next(iter(sources)) if len(sources) == 1 else None


# -- rules that nearly fired -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Near:
    """A rule that lacked one condition only: which, and what it read where it failed."""

    rule: str
    name: str
    condition: str
    values: Mapping[str, Any]
    place: str = ""


def near_misses(rules: RuleSet, facts: Facts, firing: Firing, most: int = 5) -> list[Near]:
    """The rules that would have fired had one of their conditions held, by group, salience and id."""
    memory = _Memory.of(facts)
    for fired in firing.of("insert"):
        for row in fired.inserted:
            memory.inserted.setdefault(cast("str", row["kind"]), []).append(dict(row))
    done = {fired.rule for fired in firing.fired}
    found: list[Near] = []
    for rule in rules.rules:
        if len(found) == most:
            break
        near = None if rule.id in done else _near(rule, memory)
        if near is not None:
            found.append(near)
    return found


def _near(rule: Rule, memory: _Memory) -> Near | None:
    for place, binding in enumerate(rule.when):
        match = next(_matches(rule, memory, [], lenient=place), None)
        if match is not None:
            said = binding.condition.source
            condition = said if binding.quantifier == "each" else f"{binding.quantifier} {binding.fact}: {said}"
            values = binding.condition.values(match) if binding.quantifier == "each" else {}
            return Near(rule.id, binding.name, condition, values, rule.place)
    return None
