"""Checks of a user's own, registered at run time: what no contract's condition can say, said in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from agent_infra.errors import DuplicateConflict
from agent_infra.observability import get_logger
from agent_infra.state import StateGraph

Check: TypeAlias = Callable[[Mapping[str, Any], StateGraph], "str | Iterable[str] | None"]
"""From the complete parameters of a call, and the graph as it is seen, to what is wrong; nothing: all is well."""
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Validator:
    check: Check
    action: str | None


class Validators:
    """The checks of one home, by name."""

    def __init__(self) -> None:
        self._known: dict[str, _Validator] = {}

    def add(self, name: str, check: Check, action: str | None = None) -> None:
        """Have a check asked about every spec of an action, or of all actions, from now on.

        Raises DuplicateConflict for a name that is taken.
        """
        if name in self._known:
            raise DuplicateConflict(
                f"there is a validator {name!r} already", mend="Remove it first, or choose another name."
            )
        self._known[name] = _Validator(check, action)

    def remove(self, name: str) -> bool:
        """Ask a check no more; whether there was one of that name."""
        return self._known.pop(name, None) is not None

    def names(self, action: str) -> list[str]:
        """The checks that are asked about an action."""
        return sorted(name for name, each in self._known.items() if each.action in (None, action))

    def problems(self, action: str, params: Mapping[str, Any], graph: StateGraph) -> list[str]:
        """What the checks find wrong. One that fails refuses the spec: what can't be checked is not fine."""
        found: list[str] = []
        for name in self.names(action):
            try:
                said = self._known[name].check(params, graph)
                wrong = [said] if isinstance(said, str) else list(said or ())
            except Exception as error:  # noqa: BLE001 - a user's own code
                _log.warning("validator_failed", validator=name, action=action, error=repr(error))
                wrong = [f"it could not be checked: {type(error).__name__}: {error}"]
            found += [f"{name}: {each}" for each in wrong]
        return found
