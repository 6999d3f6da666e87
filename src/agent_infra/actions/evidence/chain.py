"""The chain of bundles: which ones a new bundle follows, and following them back.

A bundle's `previous` names the newest bundles at the version that its call started from: those that no other bundle there
follows. So every bundle of that version can be reached, parallel calls are all named, and the chain forks and rolls back
with the graph. A name in `previous` holds nothing alive: retention and erasure may remove what came before, and the chain
then ends there.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from agent_infra.content import from_canonical, matches_cid, referred_cids
from agent_infra.errors import NodeUnknown
from agent_infra.state import BlobStore, Node, StateEngine, StateGraph

MANY: Final = 10_000
"""Bundles that are followed back unless another limit is given."""
_REMEMBERED: Final = 1024
_VALUE: Final = "bafyrei"


@dataclass(frozen=True, slots=True)
class Tip:
    """A bundle that none follows yet: its CID, its call, the step of its receipt, the step that its call started from."""

    cid: str
    call: str
    step: int
    start: int

    def as_dict(self) -> dict[str, str]:
        """As it stands in `previous`."""
        return {"cid": self.cid, "call": self.call}


class Chain:
    """Knows each session's tips. What other writers did to a session meanwhile is read from its graph."""

    def __init__(self, engine: StateEngine) -> None:
        self._engine = engine
        self._known: OrderedDict[str, tuple[str, tuple[Tip, ...]]] = OrderedDict()
        self._lock = threading.Lock()

    def previous(self, session: str, version: str) -> list[dict[str, str]]:
        """The tips at a session's head, which is that version; its lock is held. Newest first."""
        known = self._known.get(session)
        if known is None or known[0] != version:
            known = version, self._read(session)
            self._remember(session, known)
        return [tip.as_dict() for tip in known[1]]

    def moved(self, session: str, before: str, after: str, tip: Tip | None = None) -> None:
        """A step was written on that version, with the receipt of that bundle or without one."""
        with self._lock:
            known = self._known.get(session)
            if known is None or known[0] != before:
                return
            tips = known[1]
            if tip is not None:
                tips = (tip, *(each for each in tips if each.step > tip.start))
            self._known[session] = after, tips

    def _remember(self, session: str, known: tuple[str, tuple[Tip, ...]]) -> None:
        with self._lock:
            self._known[session] = known
            self._known.move_to_end(session)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)

    def _read(self, session: str) -> tuple[Tip, ...]:
        """The tips by the graph. A receipt that was there when a newer one's call started is followed by that one, and so
        is all that is older: the search ends there.
        """
        graph = StateGraph.of_system(self._engine, session)
        tips: list[Tip] = []
        covered = -1
        for receipt in _receipts(graph):
            if receipt.step <= covered:
                break
            tip = _tip(graph, receipt)
            if tip is not None:
                tips.append(tip)
                covered = max(covered, tip.start)
        return tuple(tips)


def _receipts(graph: StateGraph) -> Iterator[Node]:
    """Newest first, in pages: the first two are all that a session needs whose calls follow one another."""
    size, cursor = 2, None
    while True:
        page = graph.nodes(type="receipt", limit=size, cursor=cursor)
        yield from page
        if page.cursor is None:
            return
        size, cursor = min(size * 4, 512), page.cursor


def _tip(graph: StateGraph, receipt: Node) -> Tip | None:
    """The bundle of a receipt; None for one that was written without."""
    evidence = receipt.data.get("evidence")
    if not evidence:
        return None
    call = str(receipt.data["call"])
    try:
        start = graph.node(call).step - 1
    except NodeUnknown:  # collected: when it began is not known, so it covers nothing
        start = -1
    return Tip(evidence["$cid"], call, receipt.step, start)


# -- following it back -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EvidenceCheck:
    """What `verify` found.

    problems  each block that is missing or doesn't hash to its name, with the call whose bundle it belongs to
    blocks    blocks looked at      records  bundles among them
    broken    the calls whose bundles don't hold, the newest first; a bundle's CID where its call isn't known
    ended     where the chain was not followed further, and why: retention or erasure, or the limit
    """

    ok: bool
    cid: str
    blocks: int
    problems: tuple[str, ...] = ()
    records: int = 1
    broken: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()


@dataclass(slots=True)
class Walk:
    """Follows a bundle's chain back, each bundle once and the newest first."""

    blobs: BlobStore
    chain: bool
    limit: int
    problems: list[str]
    broken: list[str]
    ended: list[str]
    seen: dict[str, bool]
    records: int = 0

    @classmethod
    def of(cls, blobs: BlobStore, chain: bool, limit: int) -> Walk:
        """A walk that has not begun."""
        return cls(blobs, chain, limit, [], [], [], {})

    def blocks(self, cid: str) -> Iterator[tuple[str, bytes]]:
        """Every block that holds, once: a bundle, what it refers to, and so on for those that it follows."""
        waiting: deque[tuple[str, str | None]] = deque([(cid, None)])
        queued = {cid}
        while waiting:
            name, call = waiting.popleft()
            if self.records >= self.limit:
                self.ended.append(f"{name}: not followed beyond {self.limit} bundles")
                return
            if call is not None and self._is_gone(name):
                self.ended.append(f"call {call}: its bundle {name} is gone, by retention or erasure")
                continue
            self.records += 1
            before = len(self.problems)
            bundle = yield from self._bundle(name, call)
            if len(self.problems) > before:
                self.broken.append(call or _call_of(bundle) or name)
            for each in _followed(bundle) if self.chain else ():
                if each.cid not in queued:
                    queued.add(each.cid)
                    waiting.append((each.cid, each.call))

    def _is_gone(self, cid: str) -> bool:
        """Whether a block was removed by those who may: nothing refers to it any more."""
        return not self.blobs.has(cid) and not self.blobs.is_referred(cid)

    def _bundle(self, cid: str, call: str | None) -> Generator[tuple[str, bytes], None, dict[str, Any]]:
        """A bundle's own blocks; its value is the bundle itself, {} where that doesn't hold."""
        bundle: dict[str, Any] = {}
        waiting = [cid]
        while waiting:
            name = waiting.pop()
            if name in self.seen:
                if not self.seen[name]:
                    self.problems.append(f"{_whose(call)}{name} doesn't hold")
                continue
            content = self._checked(name, call)
            self.seen[name] = content is not None
            if content is None:
                continue
            yield name, content
            if name == cid or name.startswith(_VALUE):
                value = from_canonical(content) if name.startswith(_VALUE) else None
                waiting += referred_cids(value)
                bundle = cast("dict[str, Any]", value) if name == cid and isinstance(value, dict) else bundle
        return bundle

    def _checked(self, cid: str, call: str | None) -> bytes | None:
        """A block's bytes, if it is here and hashes to its name."""
        if not self.blobs.has(cid):
            self.problems.append(f"{_whose(call)}{cid} is missing")
            return None
        content = self.blobs.raw(cid)
        if not matches_cid(cid, content):
            self.problems.append(f"{_whose(call)}{cid} was changed: its bytes hash to another id")
            return None
        return content


def _whose(call: str | None) -> str:
    return f"call {call}: " if call else ""


class _Followed(msgspec.Struct):
    cid: str
    call: str


def _followed(bundle: dict[str, Any]) -> list[_Followed]:
    """The bundles that a bundle says it follows; none for a block of another kind."""
    try:
        return msgspec.convert(bundle.get("previous", []), list[_Followed])
    except msgspec.ValidationError:
        return []


def _call_of(bundle: dict[str, Any]) -> str | None:
    call = bundle.get("call")
    return call if isinstance(call, str) else None


def check(blobs: BlobStore, cid: str, *, chain: bool, limit: int) -> EvidenceCheck:
    """Recompute the hashes of a bundle, of all that it refers to and of those that it follows."""
    blobs.raw(cid)
    walk = Walk.of(blobs, chain, limit)
    for _ in walk.blocks(cid):
        pass
    return EvidenceCheck(
        not walk.problems,
        cid,
        len(walk.seen),
        tuple(walk.problems),
        walk.records,
        tuple(walk.broken),
        tuple(walk.ended),
    )
