"""Signals, and the door they come in by.

A signal is one observation about one event: who says it, the value, when it happened, how sure the source is, and the
raw evidence. What is malformed is refused by name and never repaired: a value that had to be guessed is not evidence.

Identity: a signal's idempotency key is the sender's own, or derived from (source, event, body), so that an identical
resend is a duplicate without the sender doing anything. The event time `at` is part of the body only where the source
states it: a source that repeats itself and means two observations states the time or a key.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NoReturn, TypeAlias, cast

from agent_infra.clock import to_micros
from agent_infra.content import JsonValue, cid_of_bytes, fingerprint, is_cid, json_bytes
from agent_infra.documents import did_you_mean
from agent_infra.errors import NotJson, SignalRefused
from agent_infra.rewards.rules.model import RuleSet, SourceTerms

EVIDENCE_LIMIT: Final = 1 << 20
"""The most bytes of raw evidence that a signal may carry; larger evidence is put into `infra.blobs` and referred to."""
QUOTE_LENGTH: Final = 240
"""Characters of the evidence that are quoted in explanations."""


Joined: TypeAlias = Literal["event_id", "refs", "window"]


@dataclass(frozen=True, slots=True)
class Event:
    """What can be rewarded: a call, a decision or a goal, by its node's id.

    created  when it happened, and `until`, when a signal about it will come too late: microseconds since 1970
    """

    id: str
    session_id: str
    created: int
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Signal:
    """One observation about an event.

    source      name of a source that the rule file declares
    value       raw value, in the source's declared range
    event_id    the event it is about (`logical_event_id`): a call, a decision, a goal
    session_id  the event's session; may be left out, and must be right if given
    at          when what it says happened (aware); left out: when it arrived
    confidence  how sure the source is, 0 to 1
    evidence    raw evidence: JSON, bytes, or a reference that `blobs.put` gave
    priority    the source's own word ("high"), for rules
    key         the source's idempotency key; left out: derived from the rest
    refs        business keys ({"ticket": "T-8841"}): rules read them, and without an event id they find it
    corrects    the key of an earlier signal of this source, in whose place this one stands
    unscored    why the source could give no value ("timeout 2s"); the value is then None
    """

    source: str
    value: float | None
    event_id: str | None = None
    session_id: str | None = None
    at: datetime | None = None
    confidence: float = 1.0
    evidence: JsonValue | bytes = None
    priority: str | None = None
    key: str | None = None
    refs: Mapping[str, str] | None = None
    corrects: str | None = None
    unscored: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a signal.

    accepted    in the ledger, and part of the event's next weaving
    duplicate   this very signal was there already; nothing was written
    late        in the ledger, but behind the source's lateness: kept and listed, not woven in
    waiting     kept until an event turns up that its business keys lead to
    """

    status: Literal["accepted", "duplicate", "late", "waiting"]
    reason: str | None = None
    signal_id: str | None = None


@dataclass(frozen=True, slots=True)
class CheckedSignal:
    """A signal that passed the door: every field present and of its type. `at` is in microseconds since 1970."""

    source: str
    value: float | None
    event_id: str | None
    session_id: str | None
    at: int | None
    confidence: float
    evidence: JsonValue | bytes
    priority: str | None
    key: str
    refs: dict[str, str]
    digest: str
    corrects: str | None = None
    unscored: str | None = None


def check_signal(signal: Signal, rules: RuleSet) -> CheckedSignal:
    """Let a signal in. Raises SignalRefused, whose `facts["reason"]` is one of

    unknown_source, empty_event, not_a_number, nan, infinite, out_of_range, bad_unscored, bad_confidence, bad_time,
    bad_priority, bad_key, bad_corrects, bad_refs, bad_session, bad_evidence, evidence_too_large. The weaver adds
    unknown_event, wrong_session, unknown_evidence, unknown_correction, ambiguous and no_event_in_window, which take a look
    into the home.
    """
    terms = _declared(signal, rules)
    unscored = _unscored(signal)
    value = None if unscored is not None else _number(signal, "value", signal.value)
    if value is not None and not terms.low <= value <= terms.high:
        _refuse(
            signal,
            "out_of_range",
            f"its value is {value:g}, and the source's range is [{terms.low:g}, {terms.high:g}]",
            "Send the raw value, or correct `range:` in the rule file.",
        )
    event, refs = signal.event_id, _refs(signal)
    by_session = terms.join == "session" and signal.session_id is not None
    if not _is_text(event) and (event is not None or not (refs or by_session)):
        mend = "Give `event_id`: a result's `event_id`, or its call's node id; or `refs`, by which the event is known."
        _refuse(signal, "empty_event", "it names no event, and nothing that leads to one", mend)
    if signal.session_id is not None and not isinstance(cast("object", signal.session_id), str):
        _refuse(signal, "bad_session", f"its session is {signal.session_id!r}", "A session id is a text.")
    at, confidence = _time(signal), _confidence(signal)
    priority = _text(signal, "priority", signal.priority)
    corrects = _text(signal, "corrects", signal.corrects)
    body = {
        "event": event,
        "value": value,
        "at": at,
        "confidence": confidence,
        "priority": priority,
        "refs": refs,
        "evidence": _evidence_identity(signal),
    }
    further = {"corrects": corrects, "unscored": unscored, "session": signal.session_id if event is None else None}
    digest = fingerprint(body | {name: each for name, each in further.items() if each is not None})
    key = _text(signal, "key", signal.key) or digest
    return CheckedSignal(
        terms.name,
        value,
        event,
        signal.session_id,
        at,
        confidence,
        signal.evidence,
        priority,
        key,
        refs,
        digest,
        corrects,
        unscored,
    )


def refusal(signal: Signal, reason: str, why: str, mend: str | None) -> SignalRefused:
    """The error by which a signal is refused; `reason` is one of the words that `check_signal` lists."""
    return SignalRefused(
        f"a signal of source {signal.source!r} was refused",
        where=f"event {signal.event_id!r}",
        why=why,
        mend=mend,
        facts={"reason": reason, "source": str(signal.source), "event": str(signal.event_id)},
    )


def _refuse(signal: Signal, reason: str, why: str, mend: str) -> NoReturn:
    raise refusal(signal, reason, why, mend)


def _declared(signal: Signal, rules: RuleSet) -> SourceTerms:
    name = cast("object", signal.source)
    if isinstance(name, str) and name in rules.sources:
        return rules.sources[name]
    if not rules.sources:
        _refuse(
            signal,
            "unknown_source",
            "no rule file is in force, so no source is declared",
            "Load one with load_rules().",
        )
    hint = did_you_mean(str(name), rules.sources)
    _refuse(
        signal,
        "unknown_source",
        "the rules in force don't declare it",
        f"Declare it under `sources:`, or name it: {hint}",
    )


def _number(signal: Signal, field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        _refuse(
            signal, "not_a_number", f"its {field} is {value!r}", "Send a number; texts and booleans are not converted."
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isnan(number):
        _refuse(signal, "nan", f"its {field} is NaN", "What could not be scored is not sent at all.")
    if math.isinf(number):
        _refuse(signal, "infinite", f"its {field} is infinite", "What could not be scored is not sent at all.")
    return number


def _unscored(signal: Signal) -> str | None:
    """Why there is no value, where the source says so."""
    said = cast("object", signal.unscored)
    if said is None:
        return None
    if not isinstance(said, str) or not said.strip():
        _refuse(signal, "bad_unscored", f"its reason is {said!r}", "Say in words why there is no value.")
    if signal.value is not None:
        why = f"it has the value {signal.value!r}, and says that there is none: {said}"
        _refuse(signal, "bad_unscored", why, "Leave out one of the two.")
    return said[:500]


def _confidence(signal: Signal) -> float:
    value = cast("object", signal.confidence)
    if not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value <= 1:
        return float(value)
    _refuse(signal, "bad_confidence", f"its confidence is {value!r}", "Confidence is a number from 0 to 1.")


def _time(signal: Signal) -> int | None:
    moment = cast("object", signal.at)
    if moment is None:
        return None
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        return to_micros(moment)
    _refuse(signal, "bad_time", f"its time is {moment!r}", "Give an aware datetime: a time without a zone is a guess.")


def _text(signal: Signal, field: str, value: object) -> str | None:
    if value is None or _is_text(value):
        return cast("str | None", value)
    _refuse(signal, f"bad_{field}", f"its {field} is {value!r}", f"A {field} is a text of 1 to 500 characters.")


def _is_text(value: object) -> bool:
    """Whether something is a text of 1 to 500 characters that can be written down."""
    if not isinstance(value, str) or not 0 < len(value) <= 500:
        return False
    return value.encode(errors="replace").decode() == value


def _refs(signal: Signal) -> dict[str, str]:
    refs = cast("object", signal.refs)
    if refs is None:
        return {}
    if isinstance(refs, Mapping):
        texts = cast("Mapping[object, object]", refs)
        if all(_is_text(part) for pair in texts.items() for part in pair):
            return dict(cast("Mapping[str, str]", refs))
    _refuse(signal, "bad_refs", f"its refs are {refs!r}", "References are texts by name.")


# -- evidence --------------------------------------------------------------------------------------------------------


def referred_cid(evidence: JsonValue | bytes) -> str | None:
    """The CID that evidence refers to (`{"$cid": …}`, as `blobs.put` gives it); None where it is the content itself."""
    cid = evidence.get("$cid") if isinstance(evidence, dict) else None
    return cid if isinstance(cid, str) and is_cid(cid) else None


def _evidence_identity(signal: Signal) -> str | None:
    """What stands for the evidence in a signal's body. Refuses evidence that can't be kept as it is."""
    evidence = signal.evidence
    if evidence is None:
        return None
    try:
        raw = evidence if isinstance(evidence, bytes) else json_bytes(evidence, where="evidence")
    except NotJson as error:
        _refuse(signal, "bad_evidence", f"{error.what}: {error.why} (at {error.where})", "Evidence is JSON or bytes.")
    if len(raw) > EVIDENCE_LIMIT:
        _refuse(
            signal,
            "evidence_too_large",
            f"its evidence has {len(raw)} bytes, and {EVIDENCE_LIMIT} are the most",
            "Put it into infra.blobs and send the reference.",
        )
    return cid_of_bytes(raw) if isinstance(evidence, bytes) else fingerprint(evidence)


def quote(evidence: JsonValue | bytes) -> str | None:
    """The beginning of some evidence, as explanations quote it; None for none and for references."""
    if evidence is None or referred_cid(evidence) is not None:
        return None
    if isinstance(evidence, bytes):
        text = evidence[: QUOTE_LENGTH * 4].decode(errors="replace")
    else:
        text = evidence if isinstance(evidence, str) else json.dumps(evidence, ensure_ascii=False)
    return text if len(text) <= QUOTE_LENGTH else text[: QUOTE_LENGTH - 1] + "…"


# -- as kept ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KeptSignal:
    """A signal as the ledger keeps it. Times are in microseconds since 1970, `evidence` refers to stored content.

    joined    how it found its event: it names it, by business keys, or by session and time window
    unscored  why the source could give no value
    gone      whether the source has corrected it or taken it back; `ended`: the id of what says so
    """

    id: str
    source: str
    value: float | None
    event_id: str
    session_id: str
    at: int
    arrived: int
    confidence: float = 1.0
    evidence: dict[str, Any] | None = None
    quote: str | None = None
    priority: str | None = None
    key: str = ""
    refs: Mapping[str, str] | None = None
    digest: str = ""
    late: bool = False
    joined: Joined = "event_id"
    unscored: str | None = None
    gone: Literal["corrected", "withdrawn"] | None = None
    ended: str | None = None
    corrects: str | None = None

    @property
    def recency(self) -> tuple[int, int, str]:
        """The order of one source's signals about one event: by event time, then arrival."""
        return (self.at, self.arrived, self.id)
