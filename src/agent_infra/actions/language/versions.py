"""Which versions of a tool an action asks for: `1.2.0` for that one, or bounds, as `>=1.2, <2`."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import zip_longest
from operator import eq, ge, gt, le, lt, ne
from typing import Final

_BOUND = re.compile(r"(>=|<=|==|!=|>|<)?\s*([^\s<>=!,]+)")
_NUMBERS = re.compile(r"v?(\d+(?:\.\d+)*)")
_COMPARE: Final[dict[str, Callable[[int, int], bool]]] = {">=": ge, "<=": le, "==": eq, "!=": ne, ">": gt, "<": lt}


def bad_wish(wish: str) -> str | None:
    """What is wrong with a wish for versions; None where it can be read."""
    for part in wish.split(","):
        found = _BOUND.fullmatch(part.strip())
        if found is None:
            return f"`{part.strip()}` is no version"
        if found[1] not in (None, "==", "!=") and not _NUMBERS.fullmatch(found[2]):
            return f"`{found[2]}` has no order: only versions of numbers and dots are under or over another"
    return None


def fulfils(version: str, wish: str) -> bool:
    """Whether a version is among those wished for. `1.2` is `1.2.0`; a version that isn't numbers has no order."""
    return all(_holds(version, found) for part in wish.split(",") if (found := _BOUND.fullmatch(part.strip())))


def _holds(version: str, bound: re.Match[str]) -> bool:
    sign, wanted = bound[1] or "==", bound[2]
    mine, other = _NUMBERS.fullmatch(version), _NUMBERS.fullmatch(wanted)
    if mine is None or other is None:
        return (version == wanted) is (sign == "==") if sign in ("==", "!=") else False
    return _COMPARE[sign](_order(mine[1], other[1]), 0)


def _order(a: str, b: str) -> int:
    """Below 0, 0, or over 0: how two versions of numbers stand to each other."""
    pairs = zip_longest(map(int, a.split(".")), map(int, b.split(".")), fillvalue=0)
    return next((x - y for x, y in pairs if x != y), 0)
