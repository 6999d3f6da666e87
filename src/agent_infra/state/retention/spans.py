"""Sets of step numbers as few spans: what retention removed of a branch, and what a line still asks for."""

from __future__ import annotations

from typing import TypeAlias

Spans: TypeAlias = tuple[tuple[int, int], ...]
"""(first, last) of each span, both included, ascending, never touching."""


def covers(spans: Spans, step: int) -> bool:
    """Whether a step is in one of the spans."""
    return any(first <= step <= last for first, last in spans)


def joined(spans: Spans, others: Spans) -> Spans:
    """All steps of both."""
    found: list[tuple[int, int]] = []
    for first, last in sorted((*spans, *others)):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def without(spans: Spans, first: int, last: int) -> Spans:
    """The steps that are not in first..last."""
    left = [(start, min(end, first - 1)) for start, end in spans if start < first]
    right = [(max(start, last + 1), end) for start, end in spans if end > last]
    return tuple(sorted(left + right))


def count(spans: Spans) -> int:
    """How many steps there are."""
    return sum(last - first + 1 for first, last in spans)
