"""What is different between two rule sets: for people who are about to put one in place of the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, cast

from agent_infra.rewards.rules.model import RuleSet

How: TypeAlias = Literal["added", "removed", "changed"]
_LISTED: Final = ("sources", "rules")


@dataclass(frozen=True, slots=True)
class RuleDifference:
    """One difference: of what kind of thing, which, how, and the two meanings."""

    what: str
    name: str
    how: How
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        shown = f": {self.before} -> {self.after}" if self.how == "changed" else ""
        return f"{self.how} {self.what} {self.name}{shown}" if self.name else f"{self.how} {self.what}{shown}"


def rule_differences(before: RuleSet, after: RuleSet) -> list[RuleDifference]:
    """Every difference in meaning; none where only files, order, comments or layout differ."""
    found: list[RuleDifference] = []
    for what in _LISTED:
        old, new = (cast("Mapping[str, Any]", each.meaning[what]) for each in (before, after))
        found += _between(what.removesuffix("s"), old, new)
    rest = [{name: each for name, each in one.meaning.items() if name not in _LISTED} for one in (before, after)]
    found += [RuleDifference(each.name, "", each.how, each.before, each.after) for each in _between("", *rest)]
    return found


def _between(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[RuleDifference]:
    found: list[RuleDifference] = []
    for name in sorted({*old, *new}):
        if name not in old:
            found.append(RuleDifference(what, name, "added", None, new[name]))
        elif name not in new:
            found.append(RuleDifference(what, name, "removed", old[name]))
        elif old[name] != new[name]:
            found.append(RuleDifference(what, name, "changed", old[name], new[name]))
    return found
