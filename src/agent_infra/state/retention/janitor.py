"""Retention in the background: a thread that takes one bounded pass over each session now and then.

A pass that can't have a session's lock at once lets that session be until the next round: writers hardly notice.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from agent_infra.errors import AgentInfraError, LockTimeout
from agent_infra.observability import get_logger
from agent_infra.state.model import LEDGER
from agent_infra.state.retention.collect import Collected
from agent_infra.state.retention.keeping import Retention

if TYPE_CHECKING:
    from agent_infra.state.engine import StateEngine

LIMIT: Final = 200
"""Nodes and versions that one pass over one session looks at."""
_log = get_logger(__name__)


def collect_all(engine: StateEngine, policy: Retention, *, limit: int, timeout: float) -> Collected:
    """One pass over every session and ledger; a session that stays locked for `timeout` seconds is left out."""
    total = Collected()
    for session in engine.all_sessions():
        if session.startswith("_") and not session.endswith(LEDGER):
            continue
        try:
            with engine.writing(session, agent="retention", expect=None, timeout=timeout):
                total += engine.collect(session, policy, limit)
        except LockTimeout:
            total += Collected(more=True)
    return total


class Janitor:
    """Applies a policy every `seconds`, from `start` to `stop`. `last` is what the last round freed."""

    def __init__(self, engine: StateEngine, policy: Retention, seconds: float) -> None:
        self.last = Collected()
        self._engine = engine
        self._policy = policy
        self._seconds = seconds
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="agent-infra-retention", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, once the pass that is under way is over."""
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._ended.wait(self._seconds):
            try:
                self.last = collect_all(self._engine, self._policy, limit=LIMIT, timeout=0.05)
            except AgentInfraError as error:
                _log.error("retention_failed", error=error.as_dict())
                continue
            if self.last.versions or self.last.nodes:
                _log.info("retention", freed=str(self.last))
