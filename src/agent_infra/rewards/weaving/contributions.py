"""What a rule set makes of an event's signals: one pure function, and what it promises.

**Which signals count.** Of several signals of one source about one event, the newest by event time counts. A signal
that came in late, whose source the rules don't declare, or whose value is out of the range that they declare, doesn't
count, nor does one that its source corrected or took back, nor one by which it says that it could give no value. What
doesn't count is listed with the reason.

**Base value.** Over the counted signals of sources with a weight w, with confidence c and normal value x in [-1, 1]:
`base = sum(w c x) / sum(w c)`. A source that is missing is missing: its weight is in neither sum, and 0 is a value like
others. Where no source with a weight is there (or all are sure of nothing), there is no base value.

**Rules** then move the value, one agenda group after the other, each in three stages, and then all vetoes; within a stage
the order doesn't matter to the value:

    add       adds its amounts, one a match; begins at 0 where there is no base value
    scale     multiplies the value by its amounts, one a match; without a value there is nothing to multiply
    override  puts its amount in place of the value. The first by salience, then id, wins; of several matches, the one
              with the newest facts
    veto      caps: the value becomes its amount (`true`: the lower end of `clip`), unless it is lower already; nothing
              lifts it again. `veto: 0` is a gate: nothing good is earned where the rule fires

and three don't move it:

    insert    puts a fact before the rules of later groups
    require   these sources are required for this event: without their signals it is unscored
    flag      leaves its text in the record

**Rows.** Everything is counted in whole micro-units (value × 1,000,000) and every change has a row: one for each source
of the base value, one for each rule (new minus old value, with the clipping that became necessary), and one named
`clip` where the base value itself had to be clipped. The rows add up to the value exactly, always.

**Unscored.** Without signals, without a required source, without any value, or where a rule that fired gave no number,
there is no value and no row, but a reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from agent_infra.clock import MICROS
from agent_infra.rewards.rules.model import CLIP_RULE, Credit, RuleSet
from agent_infra.rewards.signals import Event, KeptSignal
from agent_infra.rewards.weaving.matching import FactRow, Facts, Fired, Firing, fire

MICRO: Final = 1_000_000
SURE: Final = 0.5
"""From this confidence on, a source's disagreement counts as a conflict."""
CLEAR: Final = 0.1
"""From this distance from 0 on, a normal value has a sign."""
SPREAD: Final = 1.0
"""Normal values further apart than this are a conflict, whatever their signs."""
LARGEST: Final = 1e100
"""Where repeated scaling stops, far beyond every clip, so that it can't overflow."""


LeftOut: TypeAlias = Literal["undeclared", "out_of_range", "superseded", "late", "unscored", "withdrawn", "corrected"]
ReasonCode: TypeAlias = Literal["no_rules", "required_missing", "no_signal", "rule_failed", "no_value", "no_event"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why there is no value; `detail` names what is concerned."""

    code: ReasonCode
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Contribution:
    """One row of a value: what a source, or a rule, put in. A rule that fired on one source only names it too."""

    source: str | None
    rule: str | None
    micro: int

    @property
    def value(self) -> float:
        """The row on the scale of the value."""
        return self.micro / MICRO


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two sources that contradict each other, on the common scale, and the rule that decided, if one did."""

    high: str
    high_value: float
    low: str
    low_value: float
    kind: Literal["opposite", "far_apart"]
    resolved_by: str | None = None


@dataclass(frozen=True, slots=True)
class Weighed:
    """A signal as it was weighed. `left_out` says why it doesn't count, if it doesn't."""

    signal: KeptSignal
    normal: float | None = None
    left_out: LeftOut | None = None

    @property
    def counts(self) -> bool:
        """Whether it is part of the value."""
        return self.left_out is None


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a rule set concludes about one event. `micro` None: unscored, for the `reason`.

    base           the value of the weighted sources alone; None where there is none
    facts, firing  what the rules read and did
    """

    micro: int | None
    reason: Reason | None
    contributions: tuple[Contribution, ...]
    conflicts: tuple[Conflict, ...]
    missing: tuple[str, ...]
    fired: tuple[Fired, ...]
    flags: tuple[str, ...]
    doubts: tuple[str, ...]
    weighed: tuple[Weighed, ...]
    base: int | None
    facts: Facts = field(compare=False, repr=False)
    firing: Firing = field(compare=False, repr=False)


def conclude(
    signals: Iterable[KeptSignal], rules: RuleSet, known: Facts | None = None, event: Event | None = None
) -> Conclusion:
    """Weigh one event's signals under a rule set. The same signals in any order give the same conclusion.

    known  what rules may read beside the signals
    event  whose signals they are: for the time since it, where sources fade
    """
    weighed = weigh(signals, rules)
    counted = {item.signal.source: item for item in weighed if item.counts}
    facts = replace(known or Facts(), signals=_facts(counted.values(), rules))
    firing = fire(rules, facts)
    required = set(rules.required).union(*(fired.sources for fired in firing.of("require")))
    missing = tuple(sorted((required | set(rules.expected)) - set(counted)))
    value = _Value(rules.clip)
    present = [item for item in counted.values() if rules.sources[item.signal.source].weight is not None]
    _base(value, present, rules, event)
    base = value.micro
    winner = _move(value, firing, rules)
    reason = _why_unscored(rules, counted, required, firing, value)
    return Conclusion(
        micro=value.micro if reason is None else None,
        reason=reason,
        contributions=tuple(value.rows) if reason is None else (),
        conflicts=_conflicts(list(counted.values()), winner),
        missing=missing,
        fired=tuple(firing.fired),
        flags=tuple(fired.text for fired in firing.of("flag")),
        doubts=tuple(firing.doubts),
        weighed=weighed,
        base=base if reason is None else None,
        facts=facts,
        firing=firing,
    )


def _facts(items: Iterable[Weighed], rules: RuleSet) -> list[FactRow]:
    """The counted signals as rules read them, newest first; none where no rule does."""
    if "signal" not in rules.reads:
        return []
    return [_fact(item) for item in sorted(items, key=lambda item: item.signal.recency, reverse=True)]


def _why_unscored(
    rules: RuleSet, counted: Mapping[str, Weighed], required: set[str], firing: Firing, value: _Value
) -> Reason | None:
    if rules.is_empty:
        return Reason("no_rules")
    absent = sorted(required - set(counted))
    if absent:
        return Reason("required_missing", ", ".join(absent))
    if not counted:
        return Reason("no_signal")
    if firing.failures:
        return Reason("rule_failed", firing.failures[0])
    if value.micro is None:
        return Reason("no_value")
    return None


# -- signals ---------------------------------------------------------------------------------------------------------


def weigh(signals: Iterable[KeptSignal], rules: RuleSet) -> tuple[Weighed, ...]:
    """Every signal with its normal value, or why it doesn't count; by source, newest first."""
    ordered = sorted(signals, key=lambda signal: signal.recency, reverse=True)
    ordered.sort(key=lambda signal: signal.source)
    weighed: list[Weighed] = []
    settled: set[str] = set()
    for signal in ordered:
        terms = rules.sources.get(signal.source)
        if terms is None:
            weighed.append(Weighed(signal, None, "undeclared"))
        elif signal.gone is not None:
            weighed.append(Weighed(signal, None, signal.gone))
        elif signal.value is None:
            weighed.append(Weighed(signal, None, "unscored"))
        elif not terms.low <= signal.value <= terms.high:
            weighed.append(Weighed(signal, None, "out_of_range"))
        elif signal.late:
            weighed.append(Weighed(signal, terms.normal(signal.value), "late"))
        elif signal.source in settled:
            weighed.append(Weighed(signal, terms.normal(signal.value), "superseded"))
        else:
            settled.add(signal.source)
            weighed.append(Weighed(signal, terms.normal(signal.value)))
    return tuple(weighed)


def _fact(item: Weighed) -> FactRow:
    """A signal as rules read it. Times are seconds since 1970."""
    signal = item.signal
    return {
        "source": signal.source,
        "value": signal.value,
        "normal": item.normal,
        "confidence": signal.confidence,
        "priority": signal.priority,
        "event_id": signal.event_id,
        "session_id": signal.session_id,
        "at": signal.at / MICROS,
        "evidence": signal.evidence["$cid"] if signal.evidence else None,
        "key": signal.key,
        "refs": dict(signal.refs or {}),
    }


# -- the value -------------------------------------------------------------------------------------------------------


def to_micro(value: float) -> int:
    """A value in whole micro-units, halves to even."""
    return round(value * MICRO)


class _Value:
    """The value so far, unclipped and as shown, with the rows that made it. Nothing has moved it: `micro` is None."""

    def __init__(self, clip: tuple[float, float]) -> None:
        self.raw: float | None = None
        self.micro: int | None = None
        self.rows: list[Contribution] = []
        self._clip = clip

    def move(self, raw: float, source: str | None, rule: str) -> None:
        """Set the unclipped value; the row is the change of the clipped one."""
        low, high = self._clip
        micro = to_micro(min(max(raw, low), high))
        self.rows.append(Contribution(source, rule, micro - (self.micro or 0)))
        self.raw, self.micro = raw, micro

    def begin(self, raw: float, rows: Sequence[Contribution]) -> None:
        """Set the base value and its rows, and clip it in a row of its own where that is needed."""
        self.raw, self.micro = raw, sum(row.micro for row in rows)
        self.rows.extend(rows)
        low, high = self._clip
        if not to_micro(low) <= self.micro <= to_micro(high):
            self.move(raw, None, CLIP_RULE)


def weight_of(item: Weighed, rules: RuleSet, event: Event | None) -> float:
    """The weight of a signal: its source's, times its confidence, faded by the time since its event."""
    terms = rules.sources[item.signal.source]
    weight = (terms.weight or 0.0) * item.signal.confidence
    if terms.half_life is None or event is None:
        return weight
    return weight * terms.fading((item.signal.at - event.created) / MICROS)


def _base(value: _Value, items: Sequence[Weighed], rules: RuleSet, event: Event | None) -> None:
    """The linear base value over present sources with a weight."""
    ordered = sorted(items, key=lambda item: item.signal.source)
    weights = [weight_of(item, rules, event) for item in ordered]
    total = math.fsum(weights)
    if total <= 0:
        return
    shares = [weight * (item.normal or 0.0) / total for weight, item in zip(weights, ordered, strict=True)]
    base = math.fsum(shares)
    micros = largest_remainder(shares, to_micro(base))
    rows = [Contribution(item.signal.source, None, micro) for item, micro in zip(ordered, micros, strict=True)]
    value.begin(base, rows)


def largest_remainder(shares: Sequence[float], total: int) -> list[int]:
    """Shares (on the scale of the value) in whole micro-units that add up to `total`.

    Each is rounded down, and what is left goes to those that lost most by that; of equal losses, to the first.
    """
    exact = [share * MICRO for share in shares]
    micros = [math.floor(share) for share in exact]
    by_loss = sorted(range(len(shares)), key=lambda index: (micros[index] - exact[index], index))
    every, some = divmod(total - sum(micros), len(shares))
    for place, index in enumerate(by_loss):
        micros[index] += every + (1 if place < some else 0)
    return micros


def spread(micro: int | None, event_ids: Sequence[str], credit: Credit) -> dict[str, int]:
    """A value over events, the earliest first, in micro-units that add up to it."""
    if micro is None or not event_ids:
        return {}
    count = len(event_ids)
    if credit.to == "last":
        weights = [0.0] * (count - 1) + [1.0]
    elif credit.to == "discount":
        weights = [credit.gamma ** (count - 1 - place) for place in range(count)]
    else:
        weights = [1.0] * count
    total = math.fsum(weights)
    micros = largest_remainder([weight / total * micro / MICRO for weight in weights], micro)
    return dict(zip(event_ids, micros, strict=True))


def _move(value: _Value, firing: Firing, rules: RuleSet) -> str | None:
    """Apply the rules that fired, group by group. The one that decided in the end (override or veto), if one did."""
    decided: str | None = None
    if not firing.fired:
        return None
    for group in rules.groups:
        for fired in firing.of("add", group):
            value.move((value.raw or 0.0) + math.fsum(fired.amounts), fired.source, fired.rule)
        for fired in firing.of("scale", group):
            if value.raw is not None:
                value.move(_scaled(value.raw, fired.amounts), fired.source, fired.rule)
        for fired in firing.of("override", group)[:1]:
            value.move(fired.amounts[0], fired.source, fired.rule)
            decided = fired.rule
    for fired in firing.of("veto"):
        cap = min(fired.amounts)
        if value.raw is None or cap < value.raw:
            value.move(cap, fired.source, fired.rule)
            decided = fired.rule
    return decided


def _scaled(raw: float, amounts: Sequence[float]) -> float:
    for amount in amounts:
        raw = min(max(raw * amount, -LARGEST), LARGEST)
    return raw


# -- conflicts -------------------------------------------------------------------------------------------------------


def _conflicts(items: Sequence[Weighed], winner: str | None) -> tuple[Conflict, ...]:
    """Pairs of sources that contradict each other: sure of clearly opposite signs, or too far apart."""
    ordered = sorted(items, key=lambda item: (-(item.normal or 0.0), item.signal.source))
    found: list[Conflict] = []
    for index, high in enumerate(ordered):
        for low in ordered[index + 1 :]:
            kind = _conflict_kind(high, low)
            if kind is not None:
                found.append(
                    Conflict(high.signal.source, high.normal or 0.0, low.signal.source, low.normal or 0.0, kind, winner)
                )
    return tuple(found)


def _conflict_kind(high: Weighed, low: Weighed) -> Literal["opposite", "far_apart"] | None:
    top, bottom = high.normal or 0.0, low.normal or 0.0
    if min(high.signal.confidence, low.signal.confidence) < SURE:
        return None
    if top >= CLEAR and bottom <= -CLEAR:
        return "opposite"
    return "far_apart" if top - bottom > SPREAD else None
