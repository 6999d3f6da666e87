"""The hook by which `StateGraph(session_id=…)`, `GDEPScheduler()` and `RewardWeaver()` reach the default home.

The layers don't know who wires them. The package's root sets the opener; a layer that is built without its parts
asks here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_opener: Callable[[], Any] | None = None


def set_opener(opener: Callable[[], Any]) -> None:
    """Say what opens the default home. Its result has `engine`, `scheduler` and `weaver`."""
    global _opener
    _opener = opener


def default_infra() -> Any:
    """The Infra of the default home, opened at first use and shared from then on."""
    assert _opener is not None, "agent_infra/__init__.py sets the opener"
    return _opener()
