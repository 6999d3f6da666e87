"""Woven rewards: one record a conclusion, and `WovenReward`, the face that reads it.

The record is what is stored, shown, reported and trained on; the face holds no figure of its own. A record is a JSON
object; its CID is that of its DAG-CBOR block. `version` names the conclusion: a hash over the rule set and the evidence
that were used. A record that replaces another names that one's CID in `previous`, so an event's records form a chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Literal, TypeAlias, cast

import msgspec

from agent_infra.clock import MICROS, to_datetime, to_micros
from agent_infra.content import fingerprint
from agent_infra.rewards.report import render
from agent_infra.rewards.rules.model import Episode, RuleSet
from agent_infra.rewards.signals import Event, KeptSignal
from agent_infra.rewards.weaving.contributions import (
    MICRO,
    Conclusion,
    Conflict,
    Contribution,
    Reason,
    Weighed,
    largest_remainder,
)
from agent_infra.rewards.weaving.matching import Fired, near_misses
from agent_infra.rewards.weaving.sensitivity import confidence_of, what_would_raise

Status: TypeAlias = Literal["complete", "waiting", "closed", "unscored"]
Record: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WovenReward:
    """A versioned value, with what it was drawn from. Everything is read from `record`, whose CID is `cid`."""

    record: Record
    cid: str

    @property
    def micro(self) -> int | None:
        """The value in whole micro-units; None: unscored."""
        return self.record["micro"]

    @property
    def value(self) -> float | None:
        """The value; None: unscored."""
        return None if self.micro is None else self.micro / MICRO

    @property
    def status(self) -> Status:
        """complete  every expected source has spoken
        waiting   some have not, and still may: the value is provisional
        closed    some have not, and it is too late for them
        unscored  there is no value; `reason` says why
        """
        return self.record["status"]

    @property
    def reason(self) -> Reason | None:
        """Why there is no value."""
        return msgspec.convert(self.record["reason"], Reason | None)

    @property
    def base(self) -> int | None:
        """The value of the weighted sources alone, in micro-units; None: there is none."""
        return self.record.get("base")

    @property
    def confidence(self) -> dict[str, Any] | None:
        """How sure the value is: the `share` of the expected evidence, and an `interval` where a method gives one."""
        return self.record.get("confidence")

    @property
    def raises(self) -> list[dict[str, Any]]:
        """What would have raised the value most."""
        return list(self.record.get("raises", ()))

    @property
    def near(self) -> list[dict[str, Any]]:
        """Rules that lacked one condition only."""
        return list(self.record.get("near", ()))

    @property
    def contributions(self) -> list[Contribution]:
        """The rows that the value is made of; they add up to it exactly."""
        return msgspec.convert(self.record["contributions"], list[Contribution])

    @property
    def conflicts(self) -> list[Conflict]:
        """Sources that contradict each other."""
        return msgspec.convert(self.record["conflicts"], list[Conflict])

    @property
    def missing(self) -> list[str]:
        """Expected sources that have given no signal that counts."""
        return list(self.record["missing"])

    @property
    def awaiting(self) -> list[str]:
        """Those of the missing sources whose word may still come."""
        return list(self.record["awaiting"])

    @property
    def closes(self) -> int:
        """When it becomes too late for those, in microseconds since 1970; 0 where none is waited for."""
        return _closes(self.record) or 0

    @property
    def flags(self) -> list[str]:
        """What rules remarked."""
        return list(self.record["flags"])

    @property
    def provenance(self) -> list[dict[str, Any]]:
        """Every signal that was weighed: source, raw and normal value, times, evidence reference and quote, and
        whether it counts.
        """
        return list(self.record["signals"])

    @property
    def rule_set(self) -> str:
        """The hash of the rule set that it was woven under."""
        return self.record["rule_set"]

    @property
    def version(self) -> str:
        """Names the conclusion: a hash over the rule set and the evidence."""
        return self.record["version"]

    @property
    def event_id(self) -> str | None:
        """The event; of several, the first."""
        return self.record["event_id"]

    @property
    def event_ids(self) -> list[str]:
        """The events that it is about."""
        return list(self.record["event_ids"])

    @property
    def session(self) -> str | None:
        """The session of the events."""
        return self.record["session"]

    @property
    def evidence(self) -> list[str]:
        """The ids of the signals that were taken into account."""
        return list(self.record["evidence"])

    def report(self, format: str = "markdown", language: str = "en") -> str:
        """The explanation, as Markdown text in English ("en") or Chinese ("zh"), or the record as JSON text (format
        "json").

        Raises ReportUnknown for another format or language.
        """
        return render(self.record, self.cid, format, language)

    def __hash__(self) -> int:
        return hash(self.cid)

    def __str__(self) -> str:
        shown = "unscored" if self.micro is None else f"{self.value:.6f} ({self.status})"
        return f"reward {shown}, version {self.version}, {self.cid}"


# -- one event -------------------------------------------------------------------------------------------------------


def event_record(
    conclusion: Conclusion,
    rules: RuleSet,
    event: Event,
    signals: Sequence[KeptSignal],
    *,
    now: int,
    previous: str | None = None,
    awaiting: Sequence[str] = (),
) -> Record:
    """The record of what a rule set concludes about one event, and why; `awaiting`: whose word may still come."""
    confidence = confidence_of(conclusion, rules, event)
    used = evidence_ids(item.signal for item in conclusion.weighed)
    closes = [event.created + round(rules.sources[name].lateness * MICROS) for name in awaiting]
    return _record(
        kind="event",
        event_ids=[event.id],
        session=event.session_id,
        micro=conclusion.micro,
        reason=conclusion.reason,
        contributions=conclusion.contributions,
        conflicts=conclusion.conflicts,
        missing=conclusion.missing,
        awaiting=awaiting,
        closes=max(closes, default=None),
        flags=conclusion.flags,
        doubts=conclusion.doubts,
        base=conclusion.base,
        confidence=asdict(confidence) if confidence is not None else None,
        raises=[asdict(each) for each in what_would_raise(conclusion, signals, rules, event)],
        near=[
            asdict(each) | {"values": dict(each.values)}
            for each in near_misses(rules, conclusion.facts, conclusion.firing)
        ],
        rules=[_fired_row(fired) for fired in conclusion.fired],
        signals=[_signal_row(item, rules) for item in conclusion.weighed],
        evidence=used,
        parts=[],
        rule_set=rules.hash,
        version=fingerprint([rules.hash, used]),
        previous=previous,
        now=now,
    )


def _fired_row(fired: Fired) -> dict[str, Any]:
    lists = {"amounts": fired.amounts, "sources": fired.sources, "inserted": [dict(row) for row in fired.inserted]}
    return asdict(replace(fired, inserted=())) | {name: list(each) for name, each in lists.items()}


def evidence_ids(signals: Iterable[KeptSignal]) -> list[str]:
    """The evidence of an event, as its version covers it: the ids of its signals, without those that came in late, and of
    what ended some of them.
    """
    counted = [signal for signal in signals if not signal.late]
    return sorted({signal.id for signal in counted} | {signal.ended for signal in counted if signal.ended is not None})


def closed_record(reward: WovenReward, now: int) -> Record:
    """The same conclusion, closed."""
    return reward.record | {"status": "closed", "awaiting": [], "previous": reward.cid, "woven_at": _text(now)}


def _record(
    *,
    reason: Reason | None,
    contributions: Sequence[Contribution],
    conflicts: Sequence[Conflict],
    missing: Sequence[str],
    awaiting: Sequence[str],
    flags: Sequence[str],
    doubts: Sequence[str],
    closes: int | None,
    now: int,
    **fields: Any,
) -> Record:
    return {
        **fields,
        "event_id": fields["event_ids"][0] if fields["event_ids"] else None,
        "status": _status(fields["micro"], missing, awaiting),
        "reason": asdict(reason) if reason else None,
        "contributions": [asdict(row) for row in contributions],
        "conflicts": [asdict(conflict) for conflict in conflicts],
        "missing": list(missing),
        "awaiting": list(awaiting),
        "closes_at": None if closes is None else _text(closes),
        "flags": list(flags),
        "doubts": list(doubts),
        "woven_at": _text(now),
    }


def _status(micro: int | None, missing: Sequence[str], awaiting: Sequence[str]) -> Status:
    if micro is None:
        return "unscored"
    if not missing:
        return "complete"
    return "waiting" if awaiting else "closed"


def _closes(record: Mapping[str, Any]) -> int | None:
    text = record["closes_at"]
    return None if text is None else to_micros(datetime.fromisoformat(text))


def _signal_row(item: Weighed, rules: RuleSet) -> dict[str, Any]:
    signal = item.signal
    terms = rules.sources.get(signal.source)
    return {
        "signal": signal.id,
        "source": signal.source,
        "event_id": signal.event_id,
        "value": signal.value,
        "normal": item.normal,
        "range": [terms.low, terms.high] if terms else None,
        "better": terms.better if terms else None,
        "weight": terms.weight if terms else None,
        "confidence": signal.confidence,
        "priority": signal.priority,
        "at": _text(signal.at),
        "arrived": _text(signal.arrived),
        "evidence": signal.evidence,
        "quote": signal.quote,
        "left_out": item.left_out,
        "joined": signal.joined,
        "unscored": signal.unscored,
    }


def _text(micros: int) -> str:
    return to_datetime(micros).isoformat()


# -- several events --------------------------------------------------------------------------------------------------


def episode_record(
    parts: Sequence[WovenReward], rules: RuleSet, session: str | None, *, now: int, previous: str | None = None
) -> Record:
    """The record of the events of one result, combined by the rule set's `episode:`.

    mean, sum  over the events that have a value;  last  the last event that has one

    An event without a value is masked, never counted as 0. `clip` is for single events, so a sum may pass it.
    """
    scored = [part for part in parts if part.micro is not None]
    micro, rows = _combine(scored, rules.episode)
    missing = sorted({name for part in parts for name in part.missing})
    closes = [moment for part in parts if (moment := _closes(part.record)) is not None]
    conflicts = list(dict.fromkeys(conflict for part in parts for conflict in part.conflicts))
    return _record(
        kind="episode",
        event_ids=[event for part in parts for event in part.event_ids],
        session=session,
        micro=micro,
        reason=None if micro is not None else _episode_reason(parts),
        contributions=rows,
        conflicts=conflicts,
        missing=missing,
        awaiting=sorted({name for part in parts for name in part.awaiting}),
        closes=max(closes, default=None),
        flags=[flag for part in parts for flag in part.flags],
        doubts=_gathered(parts, "doubts"),
        near=[],
        raises=[],
        rules=_gathered(parts, "rules"),
        signals=_gathered(parts, "signals"),
        evidence=sorted(_gathered(parts, "evidence")),
        parts=part_rows(parts),
        rule_set=rules.hash,
        version=fingerprint([rules.hash, rules.episode, [part.version for part in parts]]),
        previous=previous,
        now=now,
        episode=rules.episode,
    )


def _combine(scored: Sequence[WovenReward], episode: Episode) -> tuple[int | None, list[Contribution]]:
    if not scored:
        return None, []
    if episode == "last":
        return scored[-1].micro, scored[-1].contributions
    sums: dict[tuple[str | None, str | None], int] = {}
    for part in scored:
        for row in part.contributions:
            sums[row.source, row.rule] = sums.get((row.source, row.rule), 0) + row.micro
    total = sum(cast("int", part.micro) for part in scored)
    count = len(scored) if episode == "mean" else 1
    micro = round(total / count)
    micros = largest_remainder([each / count / MICRO for each in sums.values()], micro)
    return micro, [Contribution(source, rule, each) for (source, rule), each in zip(sums, micros, strict=True)]


def _episode_reason(parts: Sequence[WovenReward]) -> Reason:
    reasons = [part.reason for part in parts if part.reason is not None]
    return reasons[0] if reasons else Reason("no_event")


def _gathered(parts: Sequence[WovenReward], field: str) -> list[Any]:
    return [item for part in parts for item in part.record[field]]


def part_rows(parts: Sequence[WovenReward]) -> list[dict[str, Any]]:
    """Which records an episode is made of: where these are the same, so is the episode."""
    return [
        {
            "event_id": part.event_id,
            "micro": part.micro,
            "status": part.status,
            "cid": part.cid,
            "version": part.version,
            "rule_set": part.rule_set,
        }
        for part in parts
    ]
