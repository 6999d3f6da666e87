"""How a signal comes in: by the door, to its event, into the ledger; or to those that wait, or to the dead letters.

What comes by `ingest` is refused by an exception. What a source delivers is kept as a dead letter then, and may be tried
again once the rules know better.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from agent_infra.clock import MICROS
from agent_infra.content import JsonValue
from agent_infra.errors import DuplicateConflict, EventUnknown, NodeUnknown, SignalRefused
from agent_infra.observability import metrics
from agent_infra.rewards.arrivals import Arrivals
from agent_infra.rewards.joining import Match, match_refs, match_window
from agent_infra.rewards.ledger import Ledger
from agent_infra.rewards.letters import DeadLetter, Letters, WaitingSignal
from agent_infra.rewards.rules.model import RuleSet
from agent_infra.rewards.signals import (
    CheckedSignal,
    Event,
    Joined,
    Receipt,
    Signal,
    check_signal,
    referred_cid,
    refusal,
)
from agent_infra.state import BlobStore, Records, StateEngine


class Intake:
    """Takes signals in. `rules` gives the rule set in force."""

    def __init__(
        self, engine: StateEngine, blobs: BlobStore, ledger: Ledger, arrivals: Arrivals, rules: Callable[[], RuleSet]
    ) -> None:
        self._engine = engine
        self._blobs = blobs
        self._ledger = ledger
        self._arrivals = arrivals
        self._rules = rules
        self.letters = Letters(engine, blobs)
        self.cursors = Records(engine, "source_cursors")
        self._watermarks = Records(engine, "watermarks")

    # -- in ------------------------------------------------------------------------------------------------------------

    def ingest(self, signal: Signal) -> Receipt:
        """Take in a signal: check it, find its event, keep it in that session's ledger, wake who waits for it.

        Raises SignalRefused, DuplicateConflict.
        """
        try:
            receipt = self._take(signal, self._engine.clock.micros())
        except SignalRefused:
            metrics().signalled(signal.source if signal.source in self._rules().sources else "undeclared", "refused")
            raise
        metrics().signalled(signal.source, receipt.status)
        return receipt

    def deliver(self, signal: Signal) -> Receipt:
        """`ingest` for sources: what is refused is a dead letter, too."""
        try:
            return self.ingest(signal)
        except SignalRefused as error:
            self.letters.bury(signal.source, str(error.facts["reason"]), signal, error.why or error.what)
            raise
        except DuplicateConflict as error:
            self.letters.bury(signal.source, "duplicate_conflict", signal, error.why or error.what)
            raise

    def _take(self, signal: Signal, arrived: int) -> Receipt:
        rules = self._rules()
        checked = check_signal(signal, rules)
        cid = referred_cid(checked.evidence)
        if cid is not None and not self._blobs.has(cid):
            why = f"its evidence refers to {cid}, which this home doesn't hold"
            raise refusal(signal, "unknown_evidence", why, "Put the content into infra.blobs first.")
        match = self._match(signal, checked, rules, arrived)
        if match.event is None:
            return self._hold(signal, checked, match, rules, arrived)
        return self._keep(signal, checked, match.event, match.joined, rules, arrived)

    def _match(self, signal: Signal, checked: CheckedSignal, rules: RuleSet, arrived: int) -> Match:
        if checked.event_id is not None:
            return Match(self._named_event(signal, checked.event_id))
        terms = rules.sources[checked.source]
        if checked.refs:
            match = match_refs(self._engine, self._ledger, checked.refs, terms)
        else:
            at = arrived if checked.at is None else checked.at
            match = match_window(self._ledger, checked, at, rules.window)
        if match.event is not None and signal.session_id not in (None, match.event.session_id):
            self._wrong_session(signal, match.event)
        return match

    def _hold(self, signal: Signal, checked: CheckedSignal, match: Match, rules: RuleSet, arrived: int) -> Receipt:
        """Let a signal wait for its event."""
        if match.refused is not None:
            raise refusal(signal, match.refused, match.why, "Send an event id, or business keys that one event has.")
        until = arrived + round(rules.sources[checked.source].lateness * MICROS)
        id, digest = self.letters.hold(signal, checked, match.why, arrived, until)
        if digest != checked.digest:
            raise DuplicateConflict(
                f"a signal of source {signal.source!r} has a key that is taken by another body",
                where=f"key {checked.key!r}",
                why="one with that key waits for its event",
                mend="Give every signal a key of its own; a resend repeats the whole body.",
                facts={"source": signal.source, "key": checked.key, "waiting": id},
            )
        return Receipt("waiting", match.why, id)

    def _keep(
        self, signal: Signal, checked: CheckedSignal, event: Event, joined: Joined, rules: RuleSet, arrived: int
    ) -> Receipt:
        late = self.horizon(checked.source, arrived) > deadline(event, checked.source, rules)
        try:
            receipt = self._ledger.append(checked, event, arrived=arrived, late=late, joined=joined)
        except NodeUnknown as error:
            raise refusal(
                signal, "unknown_correction", error.what, "Correct a signal by the key that it came with."
            ) from None
        self._arrivals.ring(event.id)
        return receipt

    def _named_event(self, signal: Signal, event_id: str) -> Event:
        try:
            event = self._ledger.event(event_id)
        except EventUnknown as error:
            raise refusal(signal, "unknown_event", error.what, error.mend) from None
        if signal.session_id not in (None, event.session_id):
            self._wrong_session(signal, event)
        return event

    def _wrong_session(self, signal: Signal, event: Event) -> NoReturn:
        why = f"its session is {signal.session_id!r}, and the event's is {event.session_id!r}"
        raise refusal(signal, "wrong_session", why, "Leave session_id out, or send the event's own.")

    def withdraw(self, source: str, key: str, why: str) -> Receipt:
        """Take a signal back by its source and key. Raises SignalRefused where there is none."""
        found = self._ledger.withdraw(source, key, why)
        if found is None:
            raise refusal(
                Signal(source, None, key=key), "unknown_signal", f"there is no signal with the key {key!r}", None
            )
        receipt, event = found
        self._arrivals.ring(event.id)
        return receipt

    # -- time ----------------------------------------------------------------------------------------------------------

    def advance(self, source: str, moment: int) -> None:
        """Note that a source has told all that it has of before a moment, in microseconds since 1970."""
        earlier = self._watermarks.get(source)
        if not isinstance(earlier, int) or moment > earlier:
            self._watermarks.put(source, moment)

    def watermark(self, source: str) -> int | None:
        """Up to when a source has told everything; None for one that doesn't say."""
        moment = self._watermarks.get(source)
        return moment if isinstance(moment, int) else None

    def horizon(self, source: str, now: int) -> int:
        """Up to when nothing more is to come: a source's watermark, or the clock for one that tells none."""
        moment = self.watermark(source)
        return now if moment is None else min(moment, now)

    # -- those that wait -----------------------------------------------------------------------------------------------

    def waiting(self) -> list[WaitingSignal]:
        """The signals that wait for their event, after those were joined whose event has turned up."""
        for each in self.letters.waiting():
            self._try_waiting(each.id)
        return self.letters.waiting()

    def join_waiting(self, event: Event) -> None:
        """Join what waits for the business keys that an event's step refers to."""
        for kind, value in self._ledger.references_of(event):
            for id in list(self.letters.waiting_for(kind, value)):
                self._try_waiting(id)

    def _try_waiting(self, id: str) -> None:
        found = self.letters.waiting_signal(id)
        if found is None:
            return
        signal, arrived, until = found
        try:
            if self._take(signal, arrived).status == "waiting" and self._engine.clock.micros() <= until:
                return
            if self.letters.waiting_signal(id) is not None and self._unmatched(signal, arrived):
                self.letters.bury(signal.source, "unmatched", signal, "its event did not turn up in time")
        except SignalRefused as error:
            self.letters.bury(signal.source, str(error.facts["reason"]), signal, error.why or error.what)
        except DuplicateConflict as error:
            self.letters.bury(signal.source, "duplicate_conflict", signal, error.why or error.what)
        self.letters.release(id)

    def _unmatched(self, signal: Signal, arrived: int) -> bool:
        rules = self._rules()
        return self._match(signal, check_signal(signal, rules), rules, arrived).event is None

    # -- dead letters --------------------------------------------------------------------------------------------------

    def retry(self, id: str) -> Receipt | None:
        """Try a dead letter again; None where it can't be tried. It is forgotten once it came in. Raises as `ingest`."""
        signal = self.letters.dead_signal(id)
        if signal is None:
            return None
        receipt = self.ingest(signal)
        self.letters.forget(id)
        return receipt

    def bury(self, source: str, reason: str, raw: JsonValue | bytes) -> None:
        """Put what could not become a signal onto the dead-letter list, as it came."""
        self.letters.bury(source, reason, raw)

    def dead_letters(self) -> list[DeadLetter]:
        """Every dead letter, the oldest first."""
        return self.letters.dead()


def deadline(event: Event, source: str, rules: RuleSet) -> int:
    """The moment from which on a signal of a source about an event is too late, in microseconds since 1970."""
    return event.created + round(rules.sources[source].lateness * MICROS)
