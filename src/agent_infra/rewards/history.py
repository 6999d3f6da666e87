"""Rewards over time: an event's versions, all events woven anew, what used a version that is no longer the newest, and
whether anything was changed behind the weaver's back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from agent_infra.content import cid_of
from agent_infra.errors import EvidenceUnknown
from agent_infra.expressions import compile_expression
from agent_infra.rewards.ledger import Ledger, reward_key
from agent_infra.rewards.rules.model import RuleSet
from agent_infra.rewards.signals import Event, KeptSignal
from agent_infra.rewards.weaving.woven import Record, WovenReward
from agent_infra.state import BlobStore

AT_ONCE: Final = 200
"""Records that reweaving writes in one step."""


@dataclass(frozen=True, slots=True)
class Explained:
    """Why an event has the reward that it has: the newest record, and those that it came from, the oldest first."""

    reward: WovenReward
    versions: tuple[WovenReward, ...]

    def __str__(self) -> str:
        lines = [self.reward.report()]
        if len(self.versions) > 1:
            lines += ["## Versions", ""]
            lines += [f"- {each.record['woven_at']}: {each}" for each in self.versions]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class RewardChange:
    """How an event's reward changes, or would, in micro-units; None: unscored."""

    event_id: str
    session: str
    before: int | None
    after: int | None
    rule_set_before: str | None
    rule_set_after: str

    @property
    def changes(self) -> bool:
        """Whether the value is another one."""
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class Checked:
    """What verifying found. `records`: how many woven rewards were recomputed."""

    records: int
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


class Concluding(Protocol):
    """How a record is made: what the weaver does."""

    def __call__(
        self, event: Event, signals: Sequence[KeptSignal], rules: RuleSet, stored: WovenReward | None
    ) -> Record:
        """The record of what a rule set concludes; nothing is kept."""
        ...


class History:
    """The rewards of a home's ledgers."""

    def __init__(self, ledger: Ledger, blobs: BlobStore, conclude: Concluding) -> None:
        self._ledger = ledger
        self._blobs = blobs
        self._conclude = conclude

    # -- versions ------------------------------------------------------------------------------------------------------

    def explained(self, reward: WovenReward) -> Explained:
        """A reward with the versions that led to it, as far as they are kept."""
        chain = [reward]
        while (cid := chain[-1].record["previous"]) is not None:
            try:
                chain.append(WovenReward(self._blobs.get_value(cid), cid))
            except EvidenceUnknown:
                break
        return Explained(reward, tuple(reversed(chain)))

    # -- weaving anew --------------------------------------------------------------------------------------------------

    def reweave(self, rules: RuleSet, where: str | None, *, keep: bool, since: int = 0) -> Iterator[RewardChange]:
        """What all events' rewards become under a rule set, session by session; with `keep` as new versions.

        where  a CEL condition over `event` (`id`, `session_id`, `agent`, `tool`, `action`)
        since  microseconds since 1970: events from then on
        """
        condition = compile_expression(where, ["event"]) if where is not None else None
        for session in self._ledger.sessions():
            batch: list[tuple[str, Record]] = []
            for event in self._ledger.events_known(session):
                facts = self._ledger.session_facts(event) | {"id": event.id, "session_id": session}
                if event.created < since or (condition is not None and not condition.evaluate({"event": facts}).holds):
                    continue
                stored = self._ledger.reward(session, reward_key(event.id))
                record = self._conclude(event, self._ledger.signals(event), rules, stored)
                before, under = (stored.micro, stored.rule_set) if stored is not None else (None, None)
                yield RewardChange(event.id, session, before, record["micro"], under, rules.hash)
                if keep and not (stored is not None and stored.version == record["version"]):
                    batch.append((reward_key(event.id), record))
                if len(batch) == AT_ONCE:
                    self._ledger.keep_all(session, batch)
                    batch.clear()
            if batch:
                self._ledger.keep_all(session, batch)

    # -- uses ----------------------------------------------------------------------------------------------------------

    def use(self, reward: WovenReward, by: str, kind: str) -> None:
        """Note that something was made of a reward: a batch, a report, a trajectory."""
        if reward.session is not None:
            self._ledger.note_use(reward.session, reward.cid, reward.event_ids, by, kind)

    def outdated(self, sessions: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """What was made of rewards that have a newer version by now: `by`, `kind`, `used` and `newest`."""
        found: list[dict[str, Any]] = []
        for session in self._ledger.sessions() if sessions is None else sessions:
            for use in self._ledger.uses(session):
                newest = self._ledger.reward(session, reward_key(use["event_id"]))
                if newest is not None and newest.cid != use["used"] and not _same_value(newest, use):
                    found.append({**use, "session": session, "newest": newest.cid, "micro": newest.micro})
        return found

    # -- verification --------------------------------------------------------------------------------------------------

    def verify(self, sessions: Iterable[str] | None = None) -> Checked:
        """Recompute every record's CID, sum and place in its event's chain, and the chains of the ledgers themselves."""
        problems: list[str] = []
        count = 0
        for session in self._ledger.sessions() if sessions is None else sessions:
            problems += [f"ledger of {session!r}: {each}" for each in self._ledger.verify(session)]
            known: set[str] = set()
            links: list[tuple[str, str]] = []
            for reward in self._ledger.rewards(session):
                count += 1
                known.add(reward.cid)
                links += [(reward.cid, cid)] if (cid := reward.record["previous"]) is not None else []
                problems += [f"reward {reward.cid} of {session!r}: {each}" for each in self._wrong(reward)]
            problems += [
                f"reward {cid} of {session!r}: what it replaces, {previous}, is not there"
                for cid, previous in links
                if previous not in known
            ]
        return Checked(count, tuple(problems))

    def _wrong(self, reward: WovenReward) -> list[str]:
        found: list[str] = []
        if cid_of(reward.record) != reward.cid:
            found.append("its record was changed")
        if reward.micro is not None and sum(row.micro for row in reward.contributions) != reward.micro:
            found.append("its contributions don't add up to its value")
        return found


def _same_value(newest: WovenReward, use: Mapping[str, Any]) -> bool:
    return newest.record["previous"] == use["used"] and newest.micro == use["micro"]
