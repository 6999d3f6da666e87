"""Homes of every format that was ever released open and say what they said; others are refused, or brought up to date."""

from __future__ import annotations

import json
import runpy
import tarfile
from pathlib import Path
from typing import Any

import pytest

from agent_infra.clock import ManualClock
from agent_infra.errors import FileMissing, StoreFormat, StoreLocked
from agent_infra.state import Home, StateGraph, open_home, upgrade_home
from agent_infra.state.format import UPGRADES, upgrade_store
from agent_infra.state.rows.records import FORMAT_NUMBER
from agent_infra.state.stores import MemoryStore, RocksStore, Store

GOLDEN = Path(__file__).parent / "golden"
FORMATS = sorted(
    int(path.name.removeprefix("format-").removesuffix(".tar.gz")) for path in GOLDEN.glob("format-*.tar.gz")
)


@pytest.fixture(params=FORMATS)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A copy of a golden home, and what it must say."""
    home = tmp_path / "golden home"
    with tarfile.open(GOLDEN / f"format-{request.param}.tar.gz") as archive:
        archive.extractall(home, filter="data")
    return home, json.loads((GOLDEN / f"format-{request.param}.json").read_text("utf-8"))


def test_every_format_has_its_golden_home() -> None:
    assert list(range(1, FORMAT_NUMBER + 1)) == FORMATS
    assert sorted(UPGRADES) == FORMATS[:-1]


def test_a_golden_home_says_what_it_said(golden: tuple[Path, dict[str, Any]]) -> None:
    """Every version of every session, with every field of every node; its hashes fit; and work goes on in it."""
    folder, expected = golden
    said = runpy.run_path(str(GOLDEN / "make_golden.py"))["said"]
    upgrade_home(folder)
    home = open_home(folder, clock=ManualClock())
    try:
        found = said(home)
        written = len(expected["_registry"]["history"])  # this release may have declared more types as it opened
        assert found["_registry"]["history"][:written] == expected["_registry"]["history"]
        assert {**found, "_registry": None} == {**expected, "_registry": None}
        for session in home.engine.all_sessions():
            verification = StateGraph.of_system(home.engine, session).verify()
            assert verification.ok, verification.problems
        for value in [node.data for node in StateGraph("weather_demo_001", engine=home.engine).nodes(type="forecast")]:
            assert home.blobs.get_value(value["evidence"]["$cid"])["answer"] == [22, 1.5, None, "晴"]
            assert len(home.blobs.get(value["page"]["$cid"])) == value["page"]["bytes"]
        graph = StateGraph("weather_demo_001", engine=home.engine)
        assert graph.with_schemas({"forecast": "2.1"}).nodes(type="forecast")[0].data["温度"] == 22
        graph.add_node("note", {"text": "继续"}, key="counter")
        assert graph.verify().ok
    finally:
        home.close()


# -- upgrading -----------------------------------------------------------------------------------------------------------


def test_a_present_home_needs_no_upgrade(disk_home: Home) -> None:
    assert disk_home.path is not None
    disk_home.close()
    done = upgrade_home(disk_home.path)
    assert not done.is_done
    assert "nothing to do" in str(done)


def test_what_is_no_home_is_not_upgraded(tmp_path: Path) -> None:
    with pytest.raises(FileMissing):
        upgrade_home(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_open_home_is_not_upgraded(disk_home: Home) -> None:
    assert disk_home.path is not None
    with pytest.raises(StoreLocked):
        upgrade_home(disk_home.path)


def store_of(format: bytes | None) -> MemoryStore:
    store = MemoryStore()
    store.write([(b"Hs", b"1")] if format is None else [(b"F", format), (b"Hs", b"1")])
    return store


def test_upgrades_are_applied_in_turn_and_the_number_last() -> None:
    done: list[tuple[int, bytes | None]] = []

    def note(number: int) -> Any:
        return lambda store: done.append((number, store.get(b"F")))

    store = store_of(b"1")
    upgrades = {number: note(number) for number in (1, 2, 3)}
    upgrade = upgrade_store(store, Path("home"), upgrades, 4)
    assert (upgrade.found, upgrade.now, upgrade.is_done) == (1, 4, True)
    assert done == [(1, b"1"), (2, b"2"), (3, b"3")]
    assert store.get(b"F") == b"4"
    assert not upgrade_store(store, Path("home"), upgrades, 4).is_done


def test_an_upgrade_that_fails_can_be_done_again() -> None:
    store, tries = store_of(b"1"), iter([False, True])

    def second(store: Store) -> None:
        if not next(tries):
            raise OSError("the power went")

    upgrades = {1: lambda store: store.write([(b"new", b"")]), 2: second}
    with pytest.raises(OSError, match="power"):
        upgrade_store(store, Path("home"), upgrades, 3)
    assert store.get(b"F") == b"2", "the first upgrade is done and stays so"
    assert upgrade_store(store, Path("home"), upgrades, 3).found == 2
    assert store.get(b"F") == b"3"


@pytest.mark.parametrize("found", [b"9", b"0", b"x", b"", None])
def test_an_unknown_format_is_refused_before_anything_is_changed(found: bytes | None) -> None:
    store = store_of(found)
    before = list(store.scan(b"", b"\xff"))
    with pytest.raises(StoreFormat) as caught:
        upgrade_store(store, Path("home"), {1: lambda store: store.write([(b"x", b"")])}, 2)
    assert caught.value.where == "home"
    assert list(store.scan(b"", b"\xff")) == before


@pytest.mark.parametrize("found", [b"9", b"0", b"x", None])
def test_opening_refuses_what_it_can_not_read_and_says_what_to_do(disk_home: Home, found: bytes | None) -> None:
    assert disk_home.path is not None
    disk_home.close()
    store = RocksStore(disk_home.path / "state")
    store.write([(b"F", found)], sync=True)
    store.close()
    with pytest.raises(StoreFormat) as caught:
        open_home(disk_home.path)
    mend = caught.value.mend or ""
    assert ("state upgrade" in mend) == (found == b"0")
    assert ("newer" in mend) == (found == b"9")
