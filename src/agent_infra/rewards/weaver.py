"""RewardWeaver, the face of layer 3: signals in, woven rewards out.

Weaving an event means: take its signals from the ledger, let the rule set in force conclude, keep the conclusion.
Without new evidence there is nothing to conclude: the stored record is given, whatever rules are in force now. New
evidence gives a new version that supersedes the old one; when it becomes too late for what is missing, the same version
is kept once more, as closed.

Waiting is for the evidence only: the sources are told which event wants them, and the waiter is woken by what comes in.
When the time is over, what is missing is named; it is never filled in.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from agent_infra import opening
from agent_infra.background import on_loop, wait_for
from agent_infra.clock import to_micros
from agent_infra.errors import EventUnknown, FileMissing, Problem, RuleErrors, SourceInvalid
from agent_infra.observability import get_logger, metrics
from agent_infra.rewards.arrivals import Arrivals
from agent_infra.rewards.facts import known_facts
from agent_infra.rewards.history import Checked, Explained, History, RewardChange
from agent_infra.rewards.intake import Intake, deadline
from agent_infra.rewards.ledger import Ledger, episode_key, reward_key
from agent_infra.rewards.letters import DeadLetter, WaitingSignal
from agent_infra.rewards.rules.compiling import compile_rules
from agent_infra.rewards.rules.model import RuleSet
from agent_infra.rewards.signals import Event, KeptSignal, Receipt, Signal
from agent_infra.rewards.sources import Sink, Source, SourceHealth, WebhookSource
from agent_infra.rewards.weaving.contributions import conclude, spread, weigh
from agent_infra.rewards.weaving.woven import (
    Record,
    WovenReward,
    closed_record,
    episode_record,
    event_record,
    evidence_ids,
    part_rows,
)
from agent_infra.state import BlobStore, StateEngine

_log = get_logger(__name__)


class Rewardable(Protocol):
    """What `weave_reward` takes: the result of a run."""

    @property
    def event_ids(self) -> Sequence[str]:
        """The calls that were made."""
        ...

    @property
    def session(self) -> str:
        """The session that they were made in."""
        ...


@dataclass(slots=True)
class WeaverParts:
    """What a weaver works with. Weavers of one home share their parts.

    rules_path    where the rules in force were read; rules_beside: folders whose `.drl` files belong to every set
    """

    engine: StateEngine
    blobs: BlobStore
    rules: RuleSet = field(default_factory=RuleSet)
    rules_path: Path | None = None
    rules_beside: tuple[Path, ...] = ()
    sources: dict[str, Source] = field(default_factory=dict[str, Source])
    arrivals: Arrivals = field(default_factory=Arrivals)
    lock: threading.Lock = field(default_factory=threading.Lock)


class RewardWeaver:
    """Takes signals in and weaves them into rewards. Without `parts` it is the default home's."""

    def __init__(self, parts: WeaverParts | None = None) -> None:
        self.parts: WeaverParts = parts or opening.default_infra().weaver.parts
        self._ledger = Ledger(self.parts.engine, self.parts.blobs)
        parts = self.parts
        self.intake = Intake(parts.engine, parts.blobs, self._ledger, parts.arrivals, lambda: parts.rules)

    # -- rules -------------------------------------------------------------------------------------------------------

    @property
    def rules(self) -> RuleSet:
        """The rule set in force. Its `problems` say why a newer one is not."""
        return self.parts.rules

    def load_rules(self, path: str | Path) -> RuleSet:
        """Put the rule file, or the folder of rule files, at `path` into force.

        Raises FileMissing, RuleErrors with all problems; the set in force is then left as it is.
        """
        rules = compile_rules(path, *self.parts.rules_beside)
        with self.parts.lock:
            self.parts.rules_path = Path(path).absolute()
            self._enforce(rules)
        return rules

    def reload_rules(self) -> RuleSet:
        """Read the rules again from where they were loaded, and give the set that is in force after that.

        What doesn't compile (also half-written, empty, or gone) leaves the whole old set in force, with the problems in
        its `problems`. Weaving goes on meanwhile: an event is woven under the one set that was in force as it began.
        """
        with self.parts.lock:
            path = self.parts.rules_path
            if path is None:
                return self.parts.rules
            try:
                self._enforce(compile_rules(path, *self.parts.rules_beside))
            except (RuleErrors, FileMissing) as error:
                problems = _problems(error, path)
                _log.warning("rules_not_reloaded", path=str(path), problems=[str(problem) for problem in problems])
                self.parts.rules = replace(self.parts.rules, problems=problems)
            return self.parts.rules

    def rule_paths(self) -> tuple[Path, ...]:
        """Where the rules in force were read."""
        path = self.parts.rules_path
        return (path, *self.parts.rules_beside) if path is not None else ()

    def _enforce(self, rules: RuleSet) -> None:
        """Keep what the rules mean under their hash, and swap the set in force."""
        self._ledger.keep_block(rules.meaning)
        self.parts.rules = rules

    # -- signals -----------------------------------------------------------------------------------------------------

    def add_source(self, source: Source) -> None:
        """Start an adapter; its signals come in from now on. Raises SourceInvalid where its name is taken."""
        sources = self.parts.sources
        with self.parts.lock:
            if source.name in sources:
                raise SourceInvalid(
                    f"there is a source {source.name!r} already", mend="Give it another name, or stop the first."
                )
            sources[source.name] = source
        source.start(self._sink())

    def _sink(self) -> Sink:
        intake = self.intake
        return Sink(
            ingest=intake.deliver,
            withdraw=intake.withdraw,
            dead=intake.bury,
            receipt=self._ledger.receipt,
            evidence=self._ledger.bundle,
            load=intake.cursors.get,
            save=intake.cursors.put,
            advance=intake.advance,
            clock=self.parts.engine.clock,
        )

    def callback(self, source: str, headers: Mapping[str, str], body: bytes) -> Receipt:
        """Hand a callback to the source that it is for: its headers by their names in lower case, and its body.

        Raises SourceInvalid where there is no such source, and what `WebhookSource.receive` raises.
        """
        found = self.parts.sources.get(source)
        if not isinstance(found, WebhookSource):
            raise SourceInvalid(f"there is no source {source!r} that takes callbacks", facts={"source": source})
        return found.receive(headers, body)

    def health(self) -> dict[str, SourceHealth]:
        """How each source is doing, by name: why a signal is missing stands here."""
        return {name: source.health for name, source in sorted(self.parts.sources.items())}

    async def stop(self) -> None:
        """Stop and forget all sources."""
        with self.parts.lock:
            sources = list(self.parts.sources.values())
            self.parts.sources.clear()
        await asyncio.gather(*(on_loop(source.stop()) for source in sources))

    def ingest(self, signal: Signal) -> Receipt:
        """Take in a signal: check it, keep it in the ledger of its event's session, wake who waits for it.

        Raises SignalRefused, whose `facts["reason"]` is one of the words that `check_signal` lists, and
        DuplicateConflict where its key is taken by another body.
        """
        return self.intake.ingest(signal)

    def withdraw(self, source: str, key: str, why: str) -> Receipt:
        """Take a signal back, by its source and key: the next weaving goes without it. Raises SignalRefused where there
        is none.
        """
        return self.intake.withdraw(source, key, why)

    def waiting_signals(self) -> list[WaitingSignal]:
        """The signals that wait for an event that their business keys lead to."""
        return self.intake.waiting()

    def dead_letters(self) -> list[DeadLetter]:
        """What sources delivered and could not come in, the oldest first."""
        return self.intake.dead_letters()

    def retry(self, id: str) -> Receipt | None:
        """Try a dead letter again, as after a change of the rules; None where it is no signal. Raises as `ingest`."""
        return self.intake.retry(id)

    # -- weaving -----------------------------------------------------------------------------------------------------

    def weave(self, event_id: str, wait: float = 0) -> WovenReward:
        """The reward of an event, after waiting up to `wait` seconds for the sources that are expected and may still
        speak.

        With 0, what has arrived is woven; sources are told of the event in either case. Raises EventUnknown.
        """
        if wait <= 0:
            event = self._ledger.event(event_id)
            self._tell([event], self.rules)
            return self._weave(event)
        return wait_for(self._weave_later(event_id, wait), twin="weaver.aweave")

    async def aweave(self, event_id: str, wait: float = 0) -> WovenReward:
        """`weave` for running loops."""
        return await on_loop(self._weave_later(event_id, wait))

    def weave_reward(self, result: Rewardable, wait: float | None = None) -> WovenReward:
        """The reward of all events of a result, combined as the rule set's `episode:` says.

        wait  seconds to wait for expected sources, for all events together; None: the rule set's `wait:`

        The reward of one event is that event's own record. Raises EventUnknown.
        """
        return wait_for(self._weave_result(result, wait), twin="weaver.aweave_reward")

    async def aweave_reward(self, result: Rewardable, wait: float | None = None) -> WovenReward:
        """`weave_reward` for running loops."""
        return await on_loop(self._weave_result(result, wait))

    async def _weave_later(self, event_id: str, wait: float) -> WovenReward:
        event = self._ledger.event(event_id)
        await self._gather([event], wait)
        return await asyncio.to_thread(self._weave, event)

    async def _weave_result(self, result: Rewardable, wait: float | None) -> WovenReward:
        events = [self._ledger.event(id) for id in dict.fromkeys(result.event_ids)]
        await self._gather(events, self.rules.wait if wait is None else wait)
        return await asyncio.to_thread(self._weave_episode, events, result.session)

    def _weave_episode(self, events: Sequence[Event], session: str) -> WovenReward:
        parts = [self._weave(event) for event in events]
        if len(parts) == 1:
            return parts[0]
        rules, now = self.rules, self.parts.engine.clock.micros()
        if rules.is_empty or not parts:
            return self._ledger.seal(episode_record(parts, rules, session, now=now))
        key = episode_key([event.id for event in events])
        stored = self._ledger.reward(session, key)
        if stored is not None and stored.record["parts"] == part_rows(parts):
            return stored
        previous = stored.cid if stored is not None else None
        record = episode_record(parts, rules, session, now=now, previous=previous)
        return self._ledger.keep(session, key, record) or self._weave_episode(events, session)

    def _weave(self, event: Event) -> WovenReward:
        """Conclude about one event from what is in the ledger now."""
        rules, now = self.rules, self.parts.engine.clock.micros()
        key = reward_key(event.id)
        self.intake.join_waiting(event)
        signals = self._ledger.signals(event)
        stored = self._ledger.reward(event.session_id, key)
        if stored is not None and stored.evidence == evidence_ids(signals):
            if stored.status != "waiting" or self._is_open(stored, now):
                return stored
            record = closed_record(stored, now)
        else:
            record = self.conclude(event, signals, rules, stored)
            if rules.is_empty:
                return self._ledger.seal(record)
        kept = self._ledger.keep(event.session_id, key, record)
        if kept is None:
            return self._weave(event)
        metrics().wove(kept.status)
        return kept

    def conclude(
        self, event: Event, signals: Sequence[KeptSignal], rules: RuleSet, stored: WovenReward | None
    ) -> Record:
        """The record of what a rule set concludes about an event, in place of the one that is stored. Nothing is kept."""
        now = self.parts.engine.clock.micros()
        conclusion = conclude(signals, rules, known_facts(self._ledger, event, rules), event)
        failed = {each.signal.source for each in conclusion.weighed if each.left_out == "unscored"}
        awaiting = self._may_speak(event, set(conclusion.missing) - failed, rules, now)
        previous = stored.cid if stored is not None else None
        return event_record(conclusion, rules, event, signals, now=now, previous=previous, awaiting=awaiting)

    def _is_open(self, stored: WovenReward, now: int) -> bool:
        """Whether one that a stored reward waits for may still speak, by the terms that it was woven under."""
        return any(self.intake.horizon(name, now) <= stored.closes for name in stored.awaiting)

    def _may_speak(self, event: Event, sources: Iterable[str], rules: RuleSet, now: int) -> list[str]:
        """Those of some sources for which it is not too late yet."""
        known = [name for name in sources if name in rules.sources]
        return sorted(name for name in known if self.intake.horizon(name, now) <= deadline(event, name, rules))

    def credit(self, reward: WovenReward, event_ids: Sequence[str]) -> dict[str, int]:
        """The value of a reward that is about a whole result, spread over its events in their order, by the rule set's
        `credit:`; in micro-units that add up to it exactly. Nothing where there is no value, or no event.
        """
        return spread(reward.micro, list(dict.fromkeys(event_ids)), self.rules.credit)

    # -- history -----------------------------------------------------------------------------------------------------

    @property
    def history(self) -> History:
        """Versions, uses and verification of the home's rewards."""
        return History(self._ledger, self.parts.blobs, self.conclude)

    def newest(self, event_id: str) -> WovenReward:
        """The newest record of an event's reward, as it is stored; nothing is woven. Raises EventUnknown, also where none
        was woven yet.
        """
        event = self._ledger.event(event_id)
        stored = self._ledger.reward(event.session_id, reward_key(event.id))
        if stored is None:
            raise EventUnknown(
                f"event {event_id!r} has no reward yet",
                where=f"session {event.session_id}",
                mend="Weave one: weaver.weave(event_id).",
                facts={"event": event_id},
            )
        return stored

    def explain(self, event_id: str) -> Explained:
        """Why an event has its reward: the newest record, woven now if need be, and those that it came from. Prints as
        its report. Raises EventUnknown.
        """
        return self.history.explained(self.weave(event_id))

    def reweave(
        self, where: str | None = None, rules: RuleSet | str | Path | None = None, since: datetime | None = None
    ) -> list[RewardChange]:
        """Weave history anew, without running any agent, and say what became of every event's reward.

        where  a CEL condition over `event` (`id`, `session_id`, `agent`, `tool`, `action`)
        rules  None: the set in force, and the results are kept as new versions. Another set, or the path of one: what
               would change under it; nothing is kept
        since  events from then on

        Raises ExpressionError, FileMissing, RuleErrors.
        """
        under = self.rules if rules is None else rules
        if not isinstance(under, RuleSet):
            under = compile_rules(under, *self.parts.rules_beside)
        moment = to_micros(since) if since is not None else 0
        return list(self.history.reweave(under, where, keep=rules is None, since=moment))

    def used(self, reward: WovenReward, by: str, kind: str) -> None:
        """Note what was made of a reward (a training batch, a report, …), so that `outdated` can name it later."""
        self.history.use(reward, by, kind)

    def outdated(self) -> list[dict[str, Any]]:
        """What was made of rewards that have become others since: `by`, `kind`, `event_id`, `used`, `newest`."""
        return self.history.outdated()

    def verify(self, session: str | None = None) -> Checked:
        """Recompute the rewards of a session's ledger, or of all, and their chains."""
        return self.history.verify(None if session is None else [session])

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def _gather(self, events: Sequence[Event], wait: float) -> None:
        """Tell sources of the events, and wait until every expected one has spoken or the time is over."""
        rules = self.rules
        clock = asyncio.get_running_loop()
        deadline = clock.time() + wait
        with self.parts.arrivals.listen(event.id for event in events) as bell:
            await asyncio.to_thread(self._tell, events, rules)
            while (left := deadline - clock.time()) > 0:
                bell.still()
                if not await asyncio.to_thread(self._awaited, events, rules) or not await bell.heard(left):
                    return

    def _tell(self, events: Iterable[Event], rules: RuleSet) -> None:
        """Tell every adapter whose signal an event lacks, and that is not too late by now."""
        for event in events:
            for name in self._silent(event, rules):
                source = self.parts.sources.get(name)
                if source is not None:
                    source.watch(replace(event, until=deadline(event, name, rules)))

    def _awaited(self, events: Iterable[Event], rules: RuleSet) -> bool:
        """Whether an expected source may still speak about one of the events."""
        return any(name in rules.expected for event in events for name in self._silent(event, rules))

    def _silent(self, event: Event, rules: RuleSet) -> list[str]:
        """The declared sources that have given no signal that counts, and still may."""
        weighed = weigh(self._ledger.signals(event), rules)
        spoken = {item.signal.source for item in weighed if item.counts or item.left_out == "unscored"}
        silent = [name for name in rules.sources if name not in spoken]
        return self._may_speak(event, silent, rules, self.parts.engine.clock.micros())


def _problems(error: RuleErrors | FileMissing, path: Path) -> tuple[Problem, ...]:
    if isinstance(error, RuleErrors):
        return error.problems
    return (Problem("FileMissing", error.what, str(path), hint=error.mend),)
