"""The ledger: signals and woven rewards in the graph, apart from the session that they are about.

Each session has a ledger session `<session>/rewards`, so that evidence, which may come a day later, never moves an
agent's head.

    event         key event/<event id>       what the ledger knows of an event; its signals hang on it by `triggers`
    signal        key signal/<hash of source and idempotency key>
    woven_reward  key reward/<event id>      a newer record supersedes the older; its signals point at it by `causes`
                  key episode/<hash of events>
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from agent_infra.clock import to_datetime, to_micros, ulid_bytes
from agent_infra.content import JsonValue, fingerprint
from agent_infra.errors import DuplicateConflict, EventUnknown, NodeUnknown
from agent_infra.rewards.signals import CheckedSignal, Event, KeptSignal, Receipt, quote, referred_cid
from agent_infra.rewards.weaving.woven import Record, WovenReward
from agent_infra.state import LEDGER, BlobStore, Node, StateEngine, StateGraph

WRITER: Final = "reward_weaver"
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

    def bury(self, source: str, reason: str, raw: JsonValue | bytes) -> None:
        """Put what could not become a signal onto the dead-letter list."""
        raise NotImplementedError(source, reason, raw)

    # -- signals -----------------------------------------------------------------------------------------------------

    def append(self, signal: CheckedSignal, event: Event, *, arrived: int, late: bool) -> Receipt:
        """Keep a signal, once. Raises DuplicateConflict where its key is taken by another body."""
        graph = self._graph(event.session_id)
        key = f"signal/{fingerprint([signal.source, signal.key])}"
        with graph.step() as step:
            earlier = graph.latest(key)
            if earlier is not None:
                return _duplicate(signal, earlier)
            anchor = graph.latest(f"event/{event.id}") or step.add_node(
                "event",
                {"event_id": event.id, "session_id": event.session_id} | self._describe(event),
                key=f"event/{event.id}",
            )
            node = step.add_node("signal", self._signal_data(signal, event, arrived, late), key=key)
            step.add_edge(anchor.id, node.id, "triggers")
        if late:
            return Receipt("late", "it came after the source's lateness: kept, and not woven in", node.id)
        return Receipt("accepted", signal_id=node.id)

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
        }

    def _keep_evidence(self, evidence: JsonValue | bytes) -> JsonValue:
        """A reference to the stored evidence."""
        if isinstance(evidence, bytes):
            return self._blobs.put(evidence, "application/octet-stream")
        if evidence is None or referred_cid(evidence) is not None:
            return evidence
        return self._blobs.put_value(evidence)

    def signals(self, event: Event) -> list[KeptSignal]:
        """Every signal of an event, late ones too."""
        graph = self._graph(event.session_id)
        anchor = graph.latest(f"event/{event.id}")
        if anchor is None:
            return []
        ends = [edge.target for edge in graph.edges(anchor.id) if edge.type == "triggers" and edge.source == anchor.id]
        return [_kept(graph.node(id)) for id in ends]

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
    return KeptSignal(
        node.id, **times, **{name: data[name] for name in names}, digest=data["digest"], late=data["late"]
    )


def _duplicate(signal: CheckedSignal, node: Node) -> Receipt:
    """The receipt of a signal that is there already. Raises DuplicateConflict where it is another."""
    if node.data["digest"] == signal.digest:
        return Receipt("duplicate", "this signal was there already", node.id)
    raise DuplicateConflict(
        f"a signal of source {signal.source!r} has a key that is taken by another body",
        where=f"event {signal.event_id!r}, key {signal.key!r}",
        why=f"signal {node.id} came with that key, value {node.data['value']:g}, about event {node.data['event_id']!r}",
        mend="Give every signal a key of its own; a resend repeats the whole body.",
        facts={"source": signal.source, "event": signal.event_id, "key": signal.key, "signal": node.id},
    )
