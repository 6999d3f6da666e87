"""Two subgoals that may write one key in either order: whose node is the newer would be chance.

Found when the plan is made, not when it runs. A type for which the order doesn't matter says so in its schema:
`x-merge: newest`, the later commit supersedes the earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from agent_infra.actions import Contract
from agent_infra.documents import Fields
from agent_infra.scheduler.plan import Subgoal
from agent_infra.state import MergeRules


def check_writers(
    fields: Fields, subgoals: Sequence[Subgoal], contracts: Mapping[str, Contract], merging: MergeRules
) -> None:
    """Report each pair of subgoals, neither of which waits for the other, that write the same key."""
    before = _all_before(subgoals)
    for one, other in combinations(subgoals, 2):
        if one.name in before[other.name] or other.name in before[one.name]:
            continue
        for key, type in set(_written(contracts[one.action])) & set(_written(contracts[other.action])):
            if merging.merge_rule(type) is None:
                fields.report(
                    "TwoWriters",
                    f"{one.name!r} and {other.name!r} both write the key {key!r}, and neither waits for the other",
                    *("subgoals", other.name),
                    hint=f"add `after: {one.name}`, give one another key, or put `x-merge: newest` into the schema of "
                    f"{type!r}",
                )


def _written(contract: Contract) -> Iterator[tuple[str, str]]:
    """The key that a success writes, as far as it is known before the run, and the node's type."""
    result = contract.result
    if result is not None and result.key is not None and not result.key.is_reference:
        yield str(result.key.source), result.type


def _all_before(subgoals: Sequence[Subgoal]) -> dict[str, set[str]]:
    """By subgoal, those that end before it begins. They come in order, each behind those that it waits for."""
    before: dict[str, set[str]] = {}
    for each in subgoals:
        before[each.name] = set(each.after).union(*(before[name] for name in each.after))
    return before
