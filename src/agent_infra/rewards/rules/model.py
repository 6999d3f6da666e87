"""Rule sets: the weaving policy in force, as compiled from rule files.

A rule set says which sources are let in, on what scale, and what the rules do with them. It is immutable and identified
by its content: `hash` is the CID of `meaning`, which knows nothing of files, order, comments or layout, so the same
policy has the same hash wherever it is written down. `contributions.py` says what a rule set makes of signals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from agent_infra.content import JsonValue, cid_of
from agent_infra.errors import Problem
from agent_infra.expressions import Expression

Fact: TypeAlias = Literal["signal", "session", "action", "condition", "evidence", "prompt_rule", "fact"]
"""What rules can be bound to.

signal       a signal about the event that counts
session      the session and the event
action       what was done: tool, params, who chose it, how it ended
condition    one entry of the call's condition log
evidence     the call's bundle: figures, output, error
prompt_rule  one numbered rule of the prompt that the agent worked under, and whether it fired
fact         what a rule of an earlier agenda group inserted
"""
Quantifier: TypeAlias = Literal["each", "exists", "not"]
Join: TypeAlias = Literal["refs", "session"]
Ambiguous: TypeAlias = Literal["wait", "newest", "oldest", "refuse"]
EffectKind: TypeAlias = Literal["add", "scale", "override", "veto", "require", "flag", "insert"]
Episode: TypeAlias = Literal["mean", "sum", "last"]

DEFAULT_LATENESS: Final = 86_400.0
DEFAULT_WINDOW: Final = 30.0
DEFAULT_WAIT: Final = 30.0
DEFAULT_CLIP: Final = (-1.0, 1.0)
MAIN: Final = "main"
"""The agenda group of rules that name none."""
CLIP_RULE: Final = "clip"
"""The rule that the row of clipping the base value is under. No rule may have this id."""

SIGNAL_FIELDS: Final = (
    "source", "value", "normal", "confidence", "priority", "event_id", "session_id", "at", "evidence", "key", "refs"
)  # fmt: skip
FIELDS: Final[Mapping[Fact, tuple[str, ...]]] = {
    "signal": SIGNAL_FIELDS,
    "session": ("id", "event_id", "agent", "tool", "action"),
    "action": (
        "name", "tool", "params", "agent", "status", "error", "seconds", "attempt", "confidence", "instead_of",
        "effects", "output",
    ),
    "condition": ("phase", "source", "holds", "values", "reason"),
    "evidence": (
        "cid", "status", "error", "output", "seconds", "cost", "cpu_seconds", "peak_memory_mb", "gpu_memory_mb", "exit_code",
        "stdout_tail", "stderr_tail", "executor", "image_digest", "attempt", "params",
    ),
    "prompt_rule": ("number", "text", "fired", "prompt"),
}  # fmt: skip
"""What conditions may read of each kind of fact; of facts that rules insert, what those rules say."""


@dataclass(frozen=True, slots=True)
class SourceTerms:
    """On what terms a source is let in.

    low, high  its range, in its own unit; mapped linearly onto [-1, 1], unless
    mean, deviation   of its values are given, frozen: then 3 deviations from the mean are the ends of [-1, 1]
    better     which end is good; `low` turns the scale round
    weight     its share in the base value; None: for rules only
    lateness   seconds after the event for which its signals are woven in
    half_life  seconds between event and observation after which a signal weighs half; None: it doesn't fade
    noise      standard deviation of its error on the common scale, where that is known; for intervals
    join       how a signal without event id finds its event: by business keys, or by session and window
    ambiguous  what becomes of one whose business keys fit several events
    """

    name: str
    low: float
    high: float
    better: Literal["high", "low"] = "high"
    weight: float | None = None
    lateness: float = DEFAULT_LATENESS
    mean: float | None = None
    deviation: float | None = None
    half_life: float | None = None
    noise: float | None = None
    join: Join = "refs"
    ambiguous: Ambiguous = "wait"

    def normal(self, value: float) -> float:
        """A raw value on the common scale, -1 (bad) to 1 (good)."""
        if self.mean is not None and self.deviation is not None:
            share = min(max((value - self.mean) / (3 * self.deviation), -1.0), 1.0)
        else:
            share = 2 * (value - self.low) / (self.high - self.low) - 1
        return -share if self.better == "low" else share

    @property
    def best(self) -> float:
        """The raw value that is best."""
        return self.low if self.better == "low" else self.high

    def fading(self, seconds: float) -> float:
        """The factor of its weight, so many seconds after the event."""
        return 1.0 if self.half_life is None else 0.5 ** (max(seconds, 0.0) / self.half_life)

    def meaning(self) -> dict[str, JsonValue]:
        """What the hash covers: what is left at its default is left out, so that a new term changes no hash."""
        terms = SourceTerms(self.name, self.low, self.high)
        further = ("mean", "deviation", "half_life", "noise", "join", "ambiguous")
        said: dict[str, JsonValue] = {
            "range": [self.low, self.high],
            "better": self.better,
            "weight": self.weight,
            "lateness": self.lateness,
        }
        return said | {name: getattr(self, name) for name in further if getattr(self, name) != getattr(terms, name)}


@dataclass(frozen=True, slots=True)
class Binding:
    """A name in a rule's `when:`, the kind of fact it is bound to, and the condition that such a fact must satisfy.

    quantifier  each: the name is bound to one such fact after the other; exists, not: whether there is one, once, and
                the name is known in this condition only
    kind        of facts that rules insert: which
    spot        where it is written, for problems that show when all rules are known
    source      of signals: the source that the condition asks for, where it asks for one
    """

    name: str
    fact: Fact
    condition: Expression
    quantifier: Quantifier = "each"
    kind: str | None = None
    source: str | None = None
    spot: Problem | None = field(default=None, compare=False, repr=False)

    def meaning(self) -> JsonValue:
        """What the hash covers."""
        said: list[JsonValue] = [
            self.fact if self.kind is None else f"fact {self.kind}",
            _tokens(self.condition.source),
        ]
        return said if self.quantifier == "each" else [self.quantifier, *said]


@dataclass(frozen=True, slots=True)
class Effect:
    """What a rule does: `amount` for add, scale, override and veto, `sources` for require, `text` for flag; for insert
    `text` is the fact's kind and `inserted` its fields.

    An amount is a number, an expression over the rule's names, or None (`veto: true`: the lower end of `clip`).
    """

    kind: EffectKind
    amount: Expression | float | None = None
    sources: tuple[str, ...] = ()
    text: str = ""
    inserted: Mapping[str, Expression | JsonValue] = field(default_factory=lambda: MappingProxyType({}))

    def meaning(self) -> JsonValue:
        """What the hash covers."""
        if self.kind == "require":
            return list[JsonValue](sorted(self.sources))
        if self.kind == "flag":
            return self.text
        if self.kind == "insert":
            return [self.text, {name: _meant(value) for name, value in self.inserted.items()}]
        return True if self.amount is None else _meant(self.amount)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: for every combination of facts that satisfies `when`, it fires and does what `then` says.

    group  its agenda group: the groups are judged one after the other, in the order that the rule set declares
    """

    id: str
    salience: float
    when: tuple[Binding, ...]
    then: tuple[Effect, ...]
    group: str = MAIN
    place: str = field(default="", compare=False)
    spot: Problem | None = field(default=None, compare=False, repr=False)

    def meaning(self) -> dict[str, JsonValue]:
        """What the hash covers: neither the file nor how an expression is spaced."""
        said: dict[str, JsonValue] = {
            "id": self.id,
            "salience": self.salience,
            "when": {binding.name: binding.meaning() for binding in self.when},
            "then": {effect.kind: effect.meaning() for effect in self.then},
        }
        return said if self.group == MAIN else said | {"group": self.group}

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Everything in it that is evaluated."""
        amounts = [effect.amount for effect in self.then if isinstance(effect.amount, Expression)]
        inserted = [
            value for effect in self.then for value in effect.inserted.values() if isinstance(value, Expression)
        ]
        return (*(binding.condition for binding in self.when), *amounts, *inserted)


@dataclass(frozen=True, slots=True)
class Credit:
    """How a value that is about a whole result is spread over its events.

    to     each: in equal parts; last: to the last one; discount: the last one most, each earlier one `gamma` of the next
    """

    to: Literal["each", "last", "discount"] = "each"
    gamma: float = 0.9


@dataclass(frozen=True, slots=True, eq=False)
class RuleSet:
    """A weaving policy. Without any rule file: no sources, no rules, and every reward unscored.

    required  sources without which an event is unscored
    window    seconds around an event in which a signal without event id may belong to it
    wait      seconds that `weave_reward` waits for expected sources unless told otherwise
    episode   how the events of one result combine
    clip      the ends of the scale of one event's value
    groups    the agenda groups, in the order in which they are judged
    rules     by group, then descending salience, then id
    credit    how a value that is about a whole result is spread over its events
    warnings  what may well be meant otherwise, but is no mistake
    by_group  the rules of each group, in that order; reads: the kinds of facts that any rule reads
    problems  what kept a newer set from coming into force; empty where this is the newest
    files     where it was read
    """

    sources: Mapping[str, SourceTerms] = field(default_factory=lambda: MappingProxyType({}))
    required: tuple[str, ...] = ()
    window: float = DEFAULT_WINDOW
    wait: float = DEFAULT_WAIT
    episode: Episode = "mean"
    clip: tuple[float, float] = DEFAULT_CLIP
    groups: tuple[str, ...] = (MAIN,)
    rules: tuple[Rule, ...] = ()
    credit: Credit = field(default_factory=lambda: Credit())
    problems: tuple[Problem, ...] = field(default=(), compare=False)
    warnings: tuple[Problem, ...] = field(default=(), compare=False)
    by_group: Mapping[str, tuple[Rule, ...]] = field(init=False, repr=False, compare=False)
    reads: frozenset[Fact] = field(init=False, repr=False, compare=False)
    files: tuple[str, ...] = field(default=(), compare=False)
    meaning: dict[str, JsonValue] = field(init=False, repr=False, compare=False)
    hash: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        rank = {group: place for place, group in enumerate(self.groups)}
        ordered = sorted(self.rules, key=lambda rule: (rank[rule.group], -rule.salience, rule.id))
        object.__setattr__(self, "rules", tuple(ordered))
        by_group = {group: tuple(rule for rule in ordered if rule.group == group) for group in self.groups}
        object.__setattr__(self, "by_group", by_group)
        object.__setattr__(self, "reads", frozenset(each.fact for rule in ordered for each in rule.when))
        object.__setattr__(self, "required", tuple(sorted(set(self.required))))
        object.__setattr__(self, "sources", MappingProxyType(dict(sorted(self.sources.items()))))
        object.__setattr__(self, "meaning", self._meaning())
        object.__setattr__(self, "hash", cid_of(self.meaning))

    def _meaning(self) -> dict[str, JsonValue]:
        said: dict[str, JsonValue] = {
            "version": 1,
            "sources": {name: terms.meaning() for name, terms in self.sources.items()},
            "required": list(self.required),
            "window": self.window,
            "wait": self.wait,
            "episode": self.episode,
            "clip": list(self.clip),
            "rules": {rule.id: rule.meaning() for rule in self.rules},
        }
        return said | self._further()

    def _further(self) -> dict[str, JsonValue]:
        """What a set says beyond the first version of its language; left out where it says nothing."""
        said: dict[str, JsonValue] = {}
        if self.groups != (MAIN,):
            said["groups"] = list(self.groups)
        if self.credit != Credit():
            said["credit"] = [self.credit.to, self.credit.gamma]
        return said

    @property
    def state_readings(self) -> tuple[Expression, ...]:
        """The expressions that read the graph as it was at the event."""
        found = [each for rule in self.rules for each in rule.expressions]
        return tuple(each for each in found if any(path[0] == "state" for path in each.reads))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is declared: no rule file is in force."""
        return not self.sources and not self.rules

    @property
    def expected(self) -> tuple[str, ...]:
        """Sources that a complete reward has: those with a weight, and the required ones."""
        weighted = {name for name, terms in self.sources.items() if terms.weight is not None}
        return tuple(sorted(weighted | set(self.required)))


_TOKEN = re.compile(r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\w+|[<>=!]=|&&|\|\||\S""")


def _meant(value: Expression | JsonValue) -> JsonValue:
    return _tokens(value.source) if isinstance(value, Expression) else value


def _tokens(source: str) -> str:
    """An expression with one space between its tokens, so that its spacing is no part of a rule's meaning."""
    return " ".join(_TOKEN.findall(source))
