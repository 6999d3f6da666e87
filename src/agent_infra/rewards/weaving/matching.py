"""Which rules fire on an event's facts, and with what amounts.

Every rule is judged by itself on the same facts; none sees what another did, so their order can't matter. A rule's
names are bound by nested loops over the facts of their kind, in the order in which `when:` lists them; a condition may
use the names bound so far. A condition that can't be evaluated doesn't hold, and is reported. An amount that can't be
evaluated is a failure of the whole weaving: leaving out a rule that fired would give a value that the policy never
meant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

from agent_infra.content import JsonValue
from agent_infra.expressions import Expression
from agent_infra.rewards.rules.model import Effect, EffectKind, Fact, Rule, RuleSet

FactRow: TypeAlias = dict[str, JsonValue]
Match: TypeAlias = dict[str, JsonValue]
LARGEST_AMOUNT: Final = 1e12


@dataclass(frozen=True, slots=True)
class Facts:
    """What rules read: the signals that count, newest first, and the event's session."""

    signals: Sequence[FactRow]
    session: FactRow

    def of(self, kind: Fact) -> Sequence[FactRow]:
        """The facts of a kind."""
        return self.signals if kind == "signal" else (self.session,)


@dataclass(frozen=True, slots=True)
class Fired:
    """One effect of a rule that fired. `amounts` has one number a match; `source` is set where all are of one."""

    rule: str
    effect: EffectKind
    matches: int
    amounts: tuple[float, ...] = ()
    sources: tuple[str, ...] = ()
    text: str = ""
    source: str | None = None
    place: str = ""


@dataclass(slots=True)
class Firing:
    """What all rules did: effects, conditions that couldn't be evaluated, and what makes the whole weaving fail."""

    fired: list[Fired] = field(default_factory=list[Fired])
    doubts: list[str] = field(default_factory=list[str])
    failures: list[str] = field(default_factory=list[str])

    def of(self, kind: EffectKind) -> list[Fired]:
        """The effects of a kind, by descending salience, then rule id."""
        return [fired for fired in self.fired if fired.effect == kind]


def fire(rules: RuleSet, facts: Facts) -> Firing:
    """Judge every rule of a set."""
    firing = Firing()
    for rule in rules.rules:
        doubts: list[str] = []
        matches = sorted(_matches(rule, facts, doubts), key=_match_order)
        firing.doubts += list(dict.fromkeys(doubts))
        if matches:
            for effect in rule.then:
                _apply(firing, rule, effect, matches, rules.clip[0])
    return firing


def _matches(rule: Rule, facts: Facts, doubts: list[str]) -> Iterator[Match]:
    """Every combination of facts that satisfies a rule's conditions."""

    def bind(position: int, bound: Match) -> Iterator[Match]:
        if position == len(rule.when):
            yield bound
            return
        binding = rule.when[position]
        for fact in facts.of(binding.fact):
            candidate = bound | {binding.name: cast("JsonValue", fact)}
            judged = binding.condition.evaluate(candidate)
            if judged.holds:
                yield from bind(position + 1, candidate)
            elif not judged.ok:
                doubts.append(f"rule {rule.id}, `{binding.name}`: {judged.error}")

    return bind(0, {})


def _match_order(match: Match) -> list[tuple[str, float, str]]:
    """An order of matches that depends on the facts only: by name, newest fact first."""
    return [
        (name, -_as_float(fact.get("at")), str(fact.get("source")))
        for name, fact in sorted(cast("dict[str, FactRow]", match).items())
    ]


def _as_float(value: JsonValue) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _apply(firing: Firing, rule: Rule, effect: Effect, matches: list[Match], floor: float) -> None:
    amounts: list[float] = []
    if effect.kind in ("add", "scale", "override", "veto"):
        for match in matches:
            amount = _amount(effect.amount, match, floor)
            if isinstance(amount, str):
                firing.failures.append(f"rule {rule.id} fired, and its {effect.kind} {amount}")
                return
            amounts.append(amount)
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


def _only_source(matches: list[Match]) -> str | None:
    sources = {
        str(fact["source"])
        for match in matches
        for fact in cast("dict[str, FactRow]", match).values()
        if "source" in fact
    }
    return next(iter(sources)) if len(sources) == 1 else None
