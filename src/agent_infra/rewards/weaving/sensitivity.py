"""What would have raised a reward most, and how sure it is: asked of the same rule set, with one thing changed at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from agent_infra.rewards.rules.model import RuleSet
from agent_infra.rewards.signals import Event, KeptSignal
from agent_infra.rewards.weaving.contributions import MICRO, Conclusion, conclude, weight_of

How: TypeAlias = Literal["source_best", "source_arrives", "rule_off"]
SHOWN: Final = 3
LEVEL: Final = 0.95
_QUANTILE: Final = 1.959963984540054
"""Of the standard normal distribution, at (1 + LEVEL) / 2."""


@dataclass(frozen=True, slots=True)
class Raise:
    """One change, and the value with it: a source at its best, a missing one arriving so, or a rule not firing."""

    how: How
    name: str
    micro: int
    gain: int


def what_would_raise(
    conclusion: Conclusion, signals: Sequence[KeptSignal], rules: RuleSet, event: Event | None, most: int = SHOWN
) -> list[Raise]:
    """The changes that would have raised a value, the largest first. An unscored reward counts from 0."""
    now = conclusion.micro or 0
    found: list[Raise] = []

    def try_with(how: How, name: str, changed: Sequence[KeptSignal], under: RuleSet) -> None:
        micro = conclude(changed, under, conclusion.facts, event).micro
        if micro is not None and micro > now:
            found.append(Raise(how, name, micro, micro - now))

    counted = {item.signal.source: item.signal for item in conclusion.weighed if item.counts}
    for source, signal in counted.items():
        best = replace(signal, value=rules.sources[source].best)
        try_with("source_best", source, [best if each.id == signal.id else each for each in signals], rules)
    for source in conclusion.missing:
        if event is not None and source in rules.sources:
            terms = rules.sources[source]
            arrived = KeptSignal("?", source, terms.best, event.id, event.session_id, event.created, event.created)
            try_with("source_arrives", source, [*signals, arrived], rules)
    for rule in dict.fromkeys(row.rule for row in conclusion.contributions if row.rule and row.micro < 0):
        without = tuple(each for each in rules.rules if each.id != rule)
        if len(without) < len(rules.rules):
            try_with("rule_off", rule, signals, replace(rules, rules=without))
    return sorted(found, key=lambda each: (-each.gain, each.how, each.name))[:most]


@dataclass(frozen=True, slots=True)
class Interval:
    """Where the value lies with a probability of `level`, by a method that is named."""

    low: float
    high: float
    level: float
    method: Literal["declared_deviation"]


@dataclass(frozen=True, slots=True)
class Confidence:
    """How sure a value is.

    share     of the weight of the expected sources: what has come in, each times its confidence
    interval  None where no method applies: a weighted source declares no `noise`, or a rule replaced the base value
    """

    share: float
    interval: Interval | None = None


def confidence_of(conclusion: Conclusion, rules: RuleSet, event: Event | None) -> Confidence | None:
    """How sure a value is; None for none, or for a set without weighted sources."""
    weighted = [terms for terms in rules.sources.values() if terms.weight is not None]
    if conclusion.micro is None or not weighted:
        return None
    total = math.fsum(terms.weight or 0.0 for terms in weighted)
    items = [
        item for item in conclusion.weighed if item.counts and rules.sources[item.signal.source].weight is not None
    ]
    there = math.fsum((rules.sources[item.signal.source].weight or 0.0) * item.signal.confidence for item in items)
    interval = None
    if not any(fired.effect in ("scale", "override", "veto") for fired in conclusion.fired):
        weights = [weight_of(item, rules, event) for item in items]
        interval = _interval(
            conclusion.micro, weights, [rules.sources[item.signal.source].noise for item in items], rules
        )
    return Confidence(there / total, interval)


def _interval(micro: int, weights: Sequence[float], noises: Sequence[float | None], rules: RuleSet) -> Interval | None:
    """The interval of a weighted mean whose parts err independently, with the standard deviations that are declared:
    the variance of sum(p x) is sum(p^2 s^2).
    """
    known = [noise for noise in noises if noise is not None]
    total = math.fsum(weights)
    if len(known) < len(noises) or total <= 0:
        return None
    spread = math.sqrt(math.fsum((weight / total * noise) ** 2 for weight, noise in zip(weights, known, strict=True)))
    value, (low, high) = micro / MICRO, rules.clip
    ends = max(value - _QUANTILE * spread, low), min(value + _QUANTILE * spread, high)
    return Interval(*ends, LEVEL, "declared_deviation")
