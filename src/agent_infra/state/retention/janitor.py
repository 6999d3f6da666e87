"""Retention in the background: a thread that takes one bounded pass over each session now and then.

A pass that can't have a session's lock at once lets that session be until the next round: writers hardly notice.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from agent_infra.errors import AgentInfraError, HomeClosed, LockTimeout
from agent_infra.observability import get_logger
from agent_infra.state.model import LEDGER
from agent_infra.state.retention.collect import Collected
from agent_infra.state.retention.keeping import Retention

if TYPE_CHECKING:
    from agent_infra.state.engine import StateEngine

LIMIT: Final = 200
"""Nodes and versions that one pass over one session looks at."""
SOON: Final = 0.2
"""Seconds until the next round where there is more to do."""
_log = get_logger(__name__)


def collect_all(engine: StateEngine, policy: Retention, *, limit: int, timeout: float) -> Collected:
    """One pass over every session and ledger. A session that stays locked for `timeout` seconds is left out, and so is one
    that is damaged or whose content can't be removed: that is told, and stops none of the others.
    """
    total = Collected()
    for session in engine.all_sessions():
        if session.startswith("_") and not session.endswith(LEDGER):
            continue
        try:
            with engine.writing(session, agent="retention", expect=None, timeout=timeout):
                total += engine.collect(session, policy, limit)
        except LockTimeout:
            total += Collected(more=True)
        except HomeClosed:
            raise
        except (AgentInfraError, OSError) as error:
            _log.error("retention_failed", session=session, error=f"{type(error).__name__}: {error}")
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
        while not self._ended.wait(min(SOON, self._seconds) if self.last.more else self._seconds):
            try:
                self.last = collect_all(self._engine, self._policy, limit=LIMIT, timeout=0.05)
            except Exception as error:  # noqa: BLE001  (the thread must live as long as the home does)
                _log.error("retention_failed", error=f"{type(error).__name__}: {error}")
                continue
            if self.last.versions or self.last.nodes:
                _log.info("retention", freed=str(self.last))
