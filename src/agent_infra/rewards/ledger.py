"""The ledger: signals and woven rewards in the graph, apart from the session that they are about.

Each session has a ledger session `<session>/rewards`, so that evidence, which may come a day later, never moves an
agent's head.

    event         key event/<event id>       what the ledger knows of an event; its signals hang on it by `triggers`
    signal        key signal/<hash of source and idempotency key>
    withdrawal    key withdrawal/<the same>  that its source took the signal back
    woven_reward  key reward/<event id>      a newer record supersedes the older; its signals point at it by `causes`
                  key episode/<hash of events>
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from agent_infra.clock import to_datetime, to_micros, ulid_bytes
from agent_infra.content import JsonValue, fingerprint
from agent_infra.errors import DuplicateConflict, EventUnknown, NodeUnknown
from agent_infra.rewards.signals import CheckedSignal, Event, Joined, KeptSignal, Receipt, quote, referred_cid
from agent_infra.rewards.weaving.woven import Record, WovenReward
from agent_infra.state import LEDGER, BlobStore, Node, Records, StateEngine, StateGraph, references_with

WRITER: Final = "reward_weaver"
EVENT_TYPES: Final = ("call", "decision", "goal")
"""The types of nodes that can be rewarded."""
EVENT_SCHEMA: Final = {
    "type": "object",
    "required": ["event_id", "session_id"],
    "properties": {"event_id": {"type": "string"}, "session_id": {"type": "string"}},
}


class Ledger:
    """The ledgers of all sessions of a home."""

    def __init__(self, engine: StateEngine, blobs: BlobStore) -> None:
        self._engine = engine
        self._blobs = blobs
        self.keys = Records(engine, "signal_keys")
        if "event" not in engine.schemas.names():
            engine.schemas.register("event", EVENT_SCHEMA)

    def _graph(self, session: str) -> StateGraph:
        return StateGraph.of_system(self._engine, session + LEDGER, agent=WRITER)

    def session_graph(self, event: Event) -> StateGraph:
        """The graph that an event is in."""
        return StateGraph.of_system(self._engine, event.session_id)

    def version_with(self, node: Node) -> str:
        """The version of a session's line that a node of it came with."""
        return self._engine.version_of(node.session, self._engine.place_in_line(node.session, node.step))

    def event(self, event_id: str) -> Event:
        """An event by its id. Raises EventUnknown."""
        session = self._engine.locate(event_id)
        if session is None or session.startswith("_") or session.endswith(LEDGER):
            raise EventUnknown(
                f"there is no event {event_id!r} in this home",
                mend="An event is a call, a decision or a goal: give its node's id, as in a result's `event_ids`.",
                facts={"event": event_id},
            )
        return Event(event_id, session, int.from_bytes(ulid_bytes(event_id)[:6], "big") * 1000)

    def events_of(self, session: str) -> list[Event]:
        """The events of a session's line."""
        graph = StateGraph.of_system(self._engine, session)
        nodes = [node for type in EVENT_TYPES for node in graph.nodes(type=type, lifecycle=None)]
        return [self.event(node.id) for node in nodes]

    def events_among(self, ids: Iterable[str]) -> list[str]:
        """Those of some nodes that can be rewarded."""
        found: list[str] = []
        for id in ids:
            session = self._engine.locate(id)
            node = StateGraph.of_system(self._engine, session).node(id) if session is not None else None
            if node is not None and node.type in EVENT_TYPES:
                found.append(id)
        return found

    def references_of(self, event: Event) -> list[tuple[str, str]]:
        """The business keys that the step of an event refers to."""
        return references_with(self._engine, event.id)

    def session_facts(self, event: Event) -> dict[str, JsonValue]:
        """The session as rules read it: who acted, and what the event was, as far as that is known."""
        anchor = self._graph(event.session_id).latest(f"event/{event.id}")
        known = anchor.data if anchor is not None else self._describe(event)
        return {"id": event.session_id, "event_id": event.id} | {
            name: known[name] for name in ("agent", "tool", "action")
        }

    def _describe(self, event: Event) -> dict[str, Any]:
        """What the ledger notes of an event, which may be rolled back before its last signal comes."""
        try:
            node = self.session_graph(event).node(event.id)
        except NodeUnknown:
            return {"agent": None, "tool": None, "action": None}
        return {"agent": node.owner, "tool": node.tool, "action": node.data.get("action"), "type": node.type}

    def receipt(self, event: Event) -> Node | None:
        """The newest receipt of the call that an event is, if it has one."""
        graph = self.session_graph(event)
        ends = [edge.target for edge in graph.edges(event.id) if edge.source == event.id and edge.type == "triggers"]
        receipts = [node for id in ends if (node := graph.node(id)).type == "receipt"]
        return max(receipts, key=lambda node: (node.created, node.id), default=None)

    def bundle(self, event: Event) -> dict[str, Any] | None:
        """The evidence bundle of the call that an event is, if it has one."""
        receipt = self.receipt(event)
        cid = referred_cid(receipt.data.get("evidence")) if receipt is not None else None
        return None if cid is None else self._blobs.get_value(cid)

    # -- signals -----------------------------------------------------------------------------------------------------

    def append(
        self, signal: CheckedSignal, event: Event, *, arrived: int, late: bool, joined: Joined = "event_id"
    ) -> Receipt:
        """Keep a signal, once. Raises DuplicateConflict where its key is taken by another body, and NodeUnknown where
        what it corrects is not there.
        """
        graph = self._graph(event.session_id)
        name = fingerprint([signal.source, signal.key])
        self._check_elsewhere(signal, name, event)
        with graph.step() as step:
            earlier = graph.latest(f"signal/{name}")
            if earlier is not None:
                return _duplicate(signal, earlier)
            corrected = self._corrected(graph, signal, event)
            anchor = graph.latest(f"event/{event.id}") or step.add_node(
                "event",
                {"event_id": event.id, "session_id": event.session_id} | self._describe(event),
                key=f"event/{event.id}",
            )
            data = self._signal_data(signal, event, arrived, late) | {"joined": joined}
            node = step.add_node("signal", data, key=f"signal/{name}")
            step.add_edge(anchor.id, node.id, "triggers")
            if corrected is not None:
                step.add_edge(node.id, corrected.id, "references")
        if late:
            return Receipt("late", "it came after the source's lateness: kept, and not woven in", node.id)
        return Receipt("accepted", signal_id=node.id)

    def _check_elsewhere(self, signal: CheckedSignal, name: str, event: Event) -> None:
        """A key is taken in all ledgers at once. Raises DuplicateConflict."""
        session = self.keys.get(name)
        if isinstance(session, str) and session != event.session_id:
            earlier = self._graph(session).latest(f"signal/{name}")
            if earlier is not None:
                _duplicate(replace(signal, digest=""), earlier)
        if session is None:
            self._engine.store.write(self.keys.rows({name: event.session_id}))

    def _corrected(self, graph: StateGraph, signal: CheckedSignal, event: Event) -> Node | None:
        if signal.corrects is None:
            return None
        node = graph.latest(f"signal/{fingerprint([signal.source, signal.corrects])}")
        if node is None or node.data["event_id"] != event.id:
            raise NodeUnknown(
                f"source {signal.source!r} has no signal with the key {signal.corrects!r} about event {event.id!r}"
            )
        return node

    def withdraw(self, source: str, key: str, why: str) -> tuple[Receipt, Event] | None:
        """Note that a source takes a signal back, and the event that it is about; None where there is no such signal."""
        name = fingerprint([source, key])
        session = self.keys.get(name)
        graph = self._graph(session) if isinstance(session, str) else None
        signal = graph.latest(f"signal/{name}") if graph is not None else None
        if graph is None or signal is None:
            return None
        event = self.event(signal.data["event_id"])
        with graph.step() as step:
            if graph.latest(f"withdrawal/{name}") is not None:
                return Receipt("duplicate", "it was taken back already", signal.id), event
            data = {"signal": signal.id, "source": source, "why": why, "event_id": event.id}
            node = step.add_node("withdrawal", data, key=f"withdrawal/{name}")
            step.add_edge(node.id, signal.id, "references")
        return Receipt("accepted", signal_id=signal.id), event

    def _signal_data(self, signal: CheckedSignal, event: Event, arrived: int, late: bool) -> dict[str, Any]:
        at = arrived if signal.at is None else signal.at
        return {
            "event_id": event.id,
            "session_id": event.session_id,
            "source": signal.source,
            "value": signal.value,
            "confidence": signal.confidence,
            "at": to_datetime(at).isoformat(),
            "arrived": to_datetime(arrived).isoformat(),
            "priority": signal.priority,
            "refs": signal.refs,
            "evidence": self._keep_evidence(signal.evidence),
            "quote": quote(signal.evidence),
            "key": signal.key,
            "digest": signal.digest,
            "late": late,
            "corrects": signal.corrects,
            "unscored": signal.unscored,
        }

    def _keep_evidence(self, evidence: JsonValue | bytes) -> JsonValue:
        """A reference to the stored evidence."""
        if isinstance(evidence, bytes):
            return self._blobs.put(evidence, "application/octet-stream")
        if evidence is None or referred_cid(evidence) is not None:
            return evidence
        return self._blobs.put_value(evidence)

    def signals(self, event: Event) -> list[KeptSignal]:
        """Every signal of an event: late ones, and those that their source corrected or took back, too."""
        graph = self._graph(event.session_id)
        anchor = graph.latest(f"event/{event.id}")
        if anchor is None:
            return []
        ends = [edge.target for edge in graph.edges(anchor.id) if edge.type == "triggers" and edge.source == anchor.id]
        kept = [_kept(graph.node(id)) for id in ends]
        corrected = {fingerprint([each.source, key]): each.id for each in kept if (key := each.corrects) is not None}
        return [self._with_end(graph, each, corrected) for each in kept]

    def _with_end(self, graph: StateGraph, signal: KeptSignal, corrected: Mapping[str, str]) -> KeptSignal:
        name = fingerprint([signal.source, signal.key])
        withdrawal = graph.latest(f"withdrawal/{name}")
        if withdrawal is not None:
            return replace(signal, gone="withdrawn", ended=withdrawal.id)
        return replace(signal, gone="corrected", ended=corrected[name]) if name in corrected else signal

    # -- rewards -----------------------------------------------------------------------------------------------------

    def reward(self, session: str, key: str) -> WovenReward | None:
        """The newest record under a key."""
        node = self._graph(session).latest(key)
        return None if node is None else _reward(node)

    def keep(self, session: str, key: str, record: Record) -> WovenReward | None:
        """Store a record as the newest under its key; None where that is no longer the one that it replaces."""
        graph = self._graph(session)
        reward = self.seal(record)
        with graph.step() as step:
            newest = graph.latest(key)
            if record["previous"] != (newest.data["cid"] if newest is not None else None):
                return None
            node = step.add_node("woven_reward", record | {"cid": reward.cid}, key=key)
            for signal in record["evidence"] if record["kind"] == "event" else ():
                step.add_edge(signal, node.id, "causes")
        return reward

    def keep_all(self, session: str, records: Sequence[tuple[str, Record]]) -> None:
        """Store many records in one step; one that replaces what is no longer the newest is left out: it was woven anew
        meanwhile.
        """
        graph = self._graph(session)
        sealed = [(key, self.seal(record)) for key, record in records]
        with graph.step() as step:
            for key, reward in sealed:
                newest = graph.latest(key)
                if reward.record["previous"] == (newest.data["cid"] if newest is not None else None):
                    node = step.add_node("woven_reward", reward.record | {"cid": reward.cid}, key=key)
                    for signal in reward.evidence:
                        step.add_edge(signal, node.id, "causes")

    def sessions(self) -> list[str]:
        """The sessions that have a ledger."""
        return [name.removesuffix(LEDGER) for name in self._engine.all_sessions() if name.endswith(LEDGER)]

    def events_known(self, session: str) -> Iterator[Event]:
        """The events that a ledger has evidence of."""
        for node in self._graph(session).nodes(type="event"):
            yield self.event(node.data["event_id"])

    def rewards(self, session: str) -> Iterator[WovenReward]:
        """Every woven reward of a ledger, superseded ones too, the newest first."""
        for node in self._graph(session).nodes(type="woven_reward", lifecycle=None):
            yield _reward(node)

    def verify(self, session: str) -> Sequence[str]:
        """What is wrong with the chain of a ledger."""
        return self._graph(session).verify().problems

    # -- uses --------------------------------------------------------------------------------------------------------

    def note_use(self, session: str, cid: str, event_ids: Sequence[str], by: str, kind: str) -> None:
        """Note what was made of a reward."""
        graph = self._graph(session)
        with graph.step() as step:
            for event_id in event_ids:
                newest = graph.latest(reward_key(event_id))
                used = newest.data["cid"] if newest is not None and len(event_ids) > 1 else cid
                micro = newest.data["micro"] if newest is not None else None
                data = {"event_id": event_id, "used": used, "by": by, "kind": kind, "micro": micro}
                key = f"use/{fingerprint([event_id, used, by, kind])}"
                if graph.latest(key) is None:
                    step.add_node("reward_use", data, key=key)

    def uses(self, session: str) -> Iterator[dict[str, Any]]:
        """What was made of a ledger's rewards."""
        for node in self._graph(session).nodes(type="reward_use"):
            yield dict(node.data)

    def seal(self, record: Record) -> WovenReward:
        """A record with its CID, its block stored."""
        return WovenReward(record, str(self._blobs.put_value(record)["$cid"]))

    def keep_block(self, value: JsonValue) -> None:
        """Store a value under its CID."""
        self._blobs.put_value(value)


def reward_key(event_id: str) -> str:
    """The key of an event's woven reward."""
    return f"reward/{event_id}"


def episode_key(event_ids: Sequence[str]) -> str:
    """The key of the woven reward of several events."""
    return f"episode/{fingerprint(list(event_ids))}"


def _reward(node: Node) -> WovenReward:
    record = dict(node.data)
    return WovenReward(record, record.pop("cid"))


def _kept(node: Node) -> KeptSignal:
    data = node.data
    times = {name: to_micros(datetime.fromisoformat(data[name])) for name in ("at", "arrived")}
    names = ("source", "value", "event_id", "session_id", "confidence", "evidence", "quote", "priority", "key", "refs")
    further = {name: data[name] for name in ("joined", "unscored", "corrects") if name in data}
    return KeptSignal(
        node.id, **times, **{name: data[name] for name in names}, digest=data["digest"], late=data["late"], **further
    )


def _duplicate(signal: CheckedSignal, node: Node) -> Receipt:
    """The receipt of a signal that is there already. Raises DuplicateConflict where it is another."""
    if node.data["digest"] == signal.digest:
        return Receipt("duplicate", "this signal was there already", node.id)
    raise DuplicateConflict(
        f"a signal of source {signal.source!r} has a key that is taken by another body",
        where=f"event {signal.event_id!r}, key {signal.key!r}",
        why=f"signal {node.id} came with that key, value {node.data['value']}, about event {node.data['event_id']!r}",
        mend="Give every signal a key of its own; a resend repeats the whole body.",
        facts={"source": signal.source, "event": signal.event_id, "key": signal.key, "signal": node.id},
    )
