"""Leases: who leads a session for a while, with a token that grows with each new owner.

A step that carries a lease is committed only while that lease is the newest and still runs, so an owner that stalled (a
long pause, a dead network) can't write over its successor's work. Leases are renewed on a thread of their own.
"""

from __future__ import annotations

import math
import threading
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

import msgspec

from agent_infra.clock import MICROS
from agent_infra.errors import AgentInfraError, HomeClosed, InvalidNode, LeaseHeld, LeaseLost
from agent_infra.observability import get_logger
from agent_infra.state.model import StepDraft
from agent_infra.state.rows import keys, records

if TYPE_CHECKING:
    from agent_infra.state.backend import Backend
    from agent_infra.state.engine import StateEngine
    from agent_infra.state.stores import Write


_log = get_logger(__name__)


class LeaseRecord(msgspec.Struct, array_like=True, frozen=True):
    """A session's lease as stored: overwritten in place, its token only ever grows."""

    token: int
    owner: str
    expires: int


_decode = msgspec.msgpack.Decoder(LeaseRecord).decode


class Lease:
    """The right to lead a session until `release`, kept by renewing. Use it in a `with`; give it to
    `graph.step(lease=…)`.
    """

    def __init__(self, backend: Backend, session: str, owner: str, seconds: float, token: int) -> None:
        self.session = session
        self.owner = owner
        self.token = token
        self._backend = backend
        self._seconds = seconds
        self._ended = threading.Event()

    def __enter__(self) -> Lease:
        threading.Thread(target=self._keep, name=f"lease-{self.session}", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _keep(self) -> None:
        """Renew at a third of the time, until the lease is released or lost; a lost one shows at the next commit."""
        while not self._ended.wait(self._seconds / 3):
            try:
                self.renew()
            except (LeaseLost, HomeClosed):
                return
            except AgentInfraError as error:
                _log.warning("lease_not_renewed", session=self.session, owner=self.owner, error=error.as_dict())

    def renew(self) -> None:
        """Make it run for its full time again. Raises LeaseLost."""
        self._backend.renew_lease(self, self._seconds)

    def release(self) -> None:
        """Let others lead. Harmless for a lease that is lost."""
        self._ended.set()
        self._backend.release_lease(self, self._seconds)


def take_lease(engine: StateEngine, session: str, owner: str, seconds: float, timeout: float) -> int:
    """Take a session's lease for `seconds`; its token. Taking over one that ran out is noted in `_control`.

    It waits until nobody writes the session, as a step may be on its way under the lease that ran out. Raises
    LeaseHeld, LockTimeout, InvalidNode.
    """
    if not 0 < seconds < math.inf:
        raise InvalidNode(f"a lease is for some seconds, not {seconds!r}")
    with (
        engine.writing(session, agent=owner, expect=None, timeout=timeout),
        _alone(engine, session, owner, timeout),
    ):
        held = stored_lease(engine, session)
        now = engine.clock.micros()
        if held is not None and held.expires > now:
            raise LeaseHeld(
                f"session {session!r} is led by {held.owner!r}",
                why=f"its lease runs for another {(held.expires - now) / MICROS:.1f} s",
                mend="Wait until it is released or runs out.",
                facts={"session": session, "owner": held.owner, "token": held.token},
            )
        token = held.token + 1 if held is not None else 1
        row = _row(engine, session, token, owner, seconds)
        if held is not None and held.expires != 0:
            _note_expiry(engine, session, held, row)
        else:
            engine.store.write([row])
    engine.settle(engine.ticket())
    return token


def renew_lease(engine: StateEngine, lease: Lease, seconds: float) -> None:
    """Make a lease run for its full time again, whoever may be writing meanwhile. Raises LeaseLost."""
    with _alone(engine, lease.session, lease.owner, seconds):
        check_lease(engine, lease)
        engine.store.write([_row(engine, lease.session, lease.token, lease.owner, seconds)])
    engine.settle(engine.ticket())


def release_lease(engine: StateEngine, lease: Lease, seconds: float) -> None:
    """Let others lead, if the lease is still the newest."""
    with _alone(engine, lease.session, lease.owner, seconds):
        held = stored_lease(engine, lease.session)
        if held is not None and held.token == lease.token:
            engine.store.write([_row(engine, lease.session, lease.token, lease.owner, 0)])
    engine.settle(engine.ticket())


def _alone(engine: StateEngine, session: str, owner: str, timeout: float) -> AbstractContextManager[None]:
    """Change a session's lease with nobody else changing it. The session itself need not be locked for that."""
    return engine.locks.hold(f"{session}/lease", agent=owner, timeout=timeout)


def check_lease(engine: StateEngine, lease: Lease) -> None:
    """Raises LeaseLost unless a lease is its session's newest and still runs; nobody can take it over while the
    session's lock, or the lease's own, is held.
    """
    held = stored_lease(engine, lease.session)
    now = engine.clock.micros()
    if held is None or held.token != lease.token or held.expires <= now:
        newer = held is not None and held.token != lease.token
        raise LeaseLost(
            f"{lease.owner!r} no longer leads session {lease.session!r}",
            why=f"{held.owner!r} took over with token {held.token}"
            if held is not None and newer
            else "its lease ran out",
            mend="Stop this work; take the lease again and read the new head.",
            facts={"session": lease.session, "token": lease.token, "newest": held.token if held is not None else None},
        )


def stored_lease(engine: StateEngine, session: str) -> LeaseRecord | None:
    """A session's lease, run out or not."""
    row = engine.store.get(keys.lease(session))
    return _decode(row) if row else None


def _row(engine: StateEngine, session: str, token: int, owner: str, seconds: float) -> Write:
    expires = engine.clock.micros() + round(seconds * MICROS) if seconds else 0
    return keys.lease(session), records.pack(LeaseRecord(token, owner, expires))


def _note_expiry(engine: StateEngine, session: str, held: LeaseRecord, row: Write) -> None:
    """Write the new lease, and that the old one ran out, together."""
    data = {"kind": "lease_expired", "session": session, "owner": held.owner, "token": held.token}
    with engine.writing("_control", agent=None, expect=None, timeout=30.0):
        engine.commit("_control", StepDraft(nodes=[engine.schemas.draft("alarm", data)]), row)
