"""The conformance suite of the Store protocol: what the state layer asks of every store, as things that can be tried.

    @pytest.mark.parametrize("promise", STORE_PROMISES, ids=str)
    def test_my_store(promise, tmp_path):
        if promise.capability in OPTIONAL_STORE_CAPABILITIES - store_capabilities(MyStore, tmp_path / "probe"):
            pytest.skip(f"{promise.capability} is not offered")
        promise.check(MyStore, tmp_path / "store")

In: an opener, called with a folder of its own for each promise; the same folder means the same store, opened again.
A store that keeps nothing on disk may ignore it. Out: each promise kept, or an AssertionError. `check_store` runs all
and reports.

Required of every store: reads, scans, batches, threads, closing. Optional, and found by trying rather than declared:

    persistence    rows are there after the store was closed and opened again
    exclusive      a second opener gets StoreLocked while the first one works
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from agent_infra.testing.store_promises import (
    OPTIONAL_STORE_CAPABILITIES,
    STORE_PROMISES,
    StoreOpener,
    StorePromise,
)


@dataclass(frozen=True, slots=True)
class StoreFinding:
    """What came of one promise: "kept", "broken" (with the reason), or "not offered"."""

    promise: StorePromise
    outcome: str
    reason: str | None = None


def store_capabilities(open_store: StoreOpener, folder: Path) -> frozenset[str]:
    """The optional capabilities that a store shows when they are tried in `folder`, which must be new."""
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / "capabilities"
    found: set[str] = set()
    with closing(open_store(place)) as first:
        first.write([(b"probe", b"1")], sync=True)
        try:
            open_store(place).close()
        except Exception:  # noqa: BLE001 - which error it is, is the promise itself
            found.add("exclusive")
    with closing(open_store(place)) as again:
        if again.get(b"probe") == b"1":
            found.add("persistence")
    return frozenset(found)


def check_store(open_store: StoreOpener, folder: Path) -> list[StoreFinding]:
    """Try every promise, each in a folder of its own under `folder`, and say what came of it."""
    offered = store_capabilities(open_store, folder / "probe")
    findings: list[StoreFinding] = []
    for promise in STORE_PROMISES:
        if promise.capability in OPTIONAL_STORE_CAPABILITIES - offered:
            findings.append(StoreFinding(promise, "not offered"))
            continue
        try:
            promise.check(open_store, folder / promise.name)
        except Exception as error:  # noqa: BLE001 - a store's own error breaks the promise as an assertion does
            findings.append(StoreFinding(promise, "broken", f"{type(error).__name__}: {error}"))
        else:
            findings.append(StoreFinding(promise, "kept"))
    return findings
