"""Every store keeps every promise of the public suite, and the suite notices a store that doesn't."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agent_infra.state.stores import MemoryStore, RocksStore, Row, Store, Write
from agent_infra.testing import (
    OPTIONAL_STORE_CAPABILITIES,
    STORE_PROMISES,
    StoreOpener,
    StorePromise,
    check_store,
    store_capabilities,
)


def in_memory(_: Path) -> Store:
    return MemoryStore()


STORES: dict[str, StoreOpener] = {"rocksdb": RocksStore, "memory": in_memory}
OFFERED = {"rocksdb": frozenset({"persistence", "exclusive"}), "memory": frozenset[str]()}


@pytest.mark.parametrize("name", STORES)
def test_what_a_store_offers_is_found_by_trying(name: str, tmp_path: Path) -> None:
    assert store_capabilities(STORES[name], tmp_path) == OFFERED[name]


MADE = [
    pytest.param(name, promise, id=f"{name}-{promise}")
    for name in STORES
    for promise in STORE_PROMISES
    if promise.capability not in OPTIONAL_STORE_CAPABILITIES - OFFERED[name]
]


@pytest.mark.parametrize(("name", "promise"), MADE)
def test_a_store_keeps_its_promises(name: str, promise: StorePromise, tmp_path: Path) -> None:
    promise.check(STORES[name], tmp_path)


def test_every_promise_says_what_it_is_about() -> None:
    assert all(promise.text for promise in STORE_PROMISES)
    assert len({str(promise) for promise in STORE_PROMISES}) == len(STORE_PROMISES)
    assert {promise.capability for promise in STORE_PROMISES} >= OPTIONAL_STORE_CAPABILITIES


class _ShortScans(MemoryStore):
    """Forgets the row behind each chunk of 256."""

    def scan(self, lower: bytes, upper: bytes) -> Iterator[Row]:
        for number, row in enumerate(super().scan(lower, upper)):
            if number != 256:
                yield row


class _ReversedBatches(MemoryStore):
    def write(self, batch: Sequence[Write], *, sync: bool = False) -> None:
        super().write(list(reversed(batch)), sync=sync)


class _ClosedUpperBound(MemoryStore):
    def scan(self, lower: bytes, upper: bytes) -> Iterator[Row]:
        return super().scan(lower, upper + b"\0")


@pytest.mark.parametrize(
    ("store", "broken"),
    [
        (_ShortScans, "no_row_is_lost_or_doubled_at_any_length"),
        (_ReversedBatches, "a_batch_is_applied_in_its_order"),
        (_ClosedUpperBound, "the_lower_bound_is_in_and_the_upper_is_not"),
    ],
)
def test_a_broken_store_is_told_which_promise_it_breaks(store: type[MemoryStore], broken: str, tmp_path: Path) -> None:
    findings = check_store(lambda _: store(), tmp_path)
    assert broken in {finding.promise.name for finding in findings if finding.outcome == "broken"}
    assert {finding.outcome for finding in findings if finding.promise.capability == "persistence"} == {"not offered"}
