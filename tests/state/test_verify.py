"""`verify()` finds what was changed behind the graph's back, and names it; damage on the disk is never passed over.

Rows are changed here through the store itself, below everything that checks.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_infra.clock import ManualClock, ulid_text
from agent_infra.errors import AgentInfraError
from agent_infra.state import Home, StateGraph, open_home, open_memory
from agent_infra.state.stores import Store

FULL = os.environ.get("AGENT_INFRA_TEST_TIER") == "full"
Rows = list[tuple[bytes, bytes]]


def written() -> tuple[Home, StateGraph]:
    """Three steps with two nodes each, an edge, a superseded node, a removal, a reference and a rollback."""
    home = open_memory(clock=ManualClock())
    graph = StateGraph("weather_demo_001", engine=home.engine)
    for number in range(3):
        with graph.step(agent="planner") as step:
            intent = step.add_node("user_intent", {"query": "北京明天天气"}, key="intent", ttl=3600)
            answer = step.add_node("api_response", {"temp": number}, tool="天气_api", labels=["tainted"])
            step.add_edge(answer.id, intent.id, "causes")
            step.refer("ticket", f"T-{number}")
    graph.add_node("note", {"text": "abandoned"})
    graph.rollback()
    with graph.step() as step:
        step.remove(graph.nodes(type="api_response")[-1].id, "错误")
    return home, graph


def session_rows(home: Home, graph: StateGraph, kind: bytes) -> Rows:
    """The rows of one kind that the session wrote, by its branches in key or value."""
    store, own = home.engine.store, {node.id for node in graph.nodes(lifecycle=None)}
    rows = list(store.scan(kind, bytes([kind[0] + 1])))
    if kind == b"N":
        return [(key, value) for key, value in rows if ulid_text(key[1:]) in own]
    return [(key, value) for key, value in rows if graph.session_id.encode() in value]


def flips(rows: Rows) -> Iterator[tuple[bytes, bytes, int]]:
    """Each row with one byte of its value changed, at every place."""
    for key, value in rows:
        for place in range(len(value)):
            changed = bytearray(value)
            changed[place] ^= 1 << (place % 8)
            yield key, bytes(changed), place


def test_a_sound_history_is_sound(graph: StateGraph) -> None:
    for number in range(4):
        graph.add_node("note", {"n": number}, key="k")
    graph.rollback(2)
    graph.add_node("note", {})
    found = graph.verify()
    assert (found.ok, found.problems, found.steps, found.nodes) == (True, (), 3, 3)
    assert all(graph.at(version.id).verify().ok for version in graph.history())


def test_a_changed_byte_of_a_node_is_named_with_its_version() -> None:
    """Wherever it is: also in the place and time that stand before the content."""
    home, graph = written()
    store = home.engine.store
    versions = {id: version.id for version in graph.history() for id in version.nodes}
    for key, value in session_rows(home, graph, b"N"):
        id = ulid_text(key[1:])
        for _, changed, place in flips([(key, value)]):
            store.write([(key, changed)])
            found = graph.verify()
            assert not found.ok, f"byte {place} of node {id}"
            assert any(id in problem and versions[id] in problem for problem in found.problems), (place, found.problems)
        store.write([(key, value)])
    assert graph.verify().ok


def test_a_changed_byte_of_a_version_is_named() -> None:
    home, graph = written()
    store = home.engine.store
    rows = session_rows(home, graph, b"V")[-len(graph.history()) :]
    line = {key: value for key, value in rows if any(version.id.encode()[:-17] for version in graph.history())}
    steps = {version.step_count for version in graph.history()}
    caught = 0
    for key, changed, place in flips(list(line.items())):
        step = 0xFFFFFFFF - int.from_bytes(key[-4:], "big")
        if step not in steps or not _in_line(graph, store, key):
            continue
        original = line[key]
        store.write([(key, changed)])
        found = graph.verify()
        store.write([(key, original)])
        assert not found.ok, f"byte {place} of step {step}"
        assert any(f"{graph.session_id}.{step}" in problem for problem in found.problems), (place, found.problems)
        caught += 1
    assert caught > 500
    assert graph.verify().ok


def _in_line(graph: StateGraph, store: Store, key: bytes) -> bool:
    """Whether a version's row is of the head's line: its hash stands in an id of the history."""
    row = store.get(key) or b""
    return any(bytes.fromhex(version.id[-16:]) in row[:16] for version in graph.history())


@pytest.mark.parametrize("kind", [b"N", b"V"])
def test_a_missing_row_is_named(kind: bytes) -> None:
    home, graph = written()
    store = home.engine.store
    rows = session_rows(home, graph, kind)
    missed = 0
    for key, value in rows:
        if kind == b"V" and not _in_line(graph, store, key):
            continue
        store.write([(key, None)])
        found = graph.verify()
        store.write([(key, value)])
        assert not found.ok
        name = ulid_text(key[1:]) if kind == b"N" else str(0xFFFFFFFF - int.from_bytes(key[-4:], "big"))
        assert any(name in problem for problem in found.problems), found.problems
        missed += 1
    assert missed >= 4


@pytest.mark.parametrize("kind", [b"O", b"P", b"D", b"T", b"K", b"X"])
def test_rows_that_answers_rest_on_are_checked_too(kind: bytes) -> None:
    """Edges, deaths and indexes are in no node's digest; were one lost, a query would silently answer less."""
    home, graph = written()
    store = home.engine.store
    own = {bytes.fromhex(f"{_raw(node.id):032x}") for node in graph.nodes(lifecycle=None)}
    rows = [
        (key, value)
        for key, value in store.scan(kind, bytes([kind[0] + 1]))
        if any(ulid in key or ulid in value[:17] for ulid in own)
    ]
    assert rows
    for key, value in rows:
        store.write([(key, None)])
        found = graph.verify()
        store.write([(key, value)])
        assert not found.ok, key
    assert graph.verify().ok


def _raw(id: str) -> int:
    alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    number = 0
    for char in id:
        number = number * 32 + alphabet.index(char)
    return number


@pytest.mark.parametrize("kind", [b"N", b"V"])
def test_readers_of_a_damaged_row_get_an_error_of_this_library(kind: bytes) -> None:
    home, graph = written()
    store = home.engine.store
    readers: list[Callable[[], object]] = [
        lambda: graph.nodes(lifecycle=None),
        lambda: graph.nodes(type="user_intent"),
        lambda: graph.nodes(tool="天气_api"),
        lambda: graph.nodes(key="intent"),
        lambda: graph.latest("intent"),
        lambda: graph.history(),
        lambda: graph.verify(),
    ]
    for key, changed, _ in flips(session_rows(home, graph, kind)[:2]):
        original = store.get(key)
        store.write([(key, changed)])
        for read in readers:
            try:
                read()
            except AgentInfraError:
                continue
        store.write([(key, original)])


# -- on the disk -----------------------------------------------------------------------------------


def _fill(home: Home) -> list[object]:
    graph = StateGraph("s", engine=home.engine)
    for number in range(40):
        with graph.step() as step:
            note = step.add_node("note", {"text": f"天气 {number}" * 20}, key=f"k{number % 7}")
            answer = step.add_node("api_response", {"n": number}, tool="t")
            step.add_edge(answer.id, note.id, "causes")
    graph.rollback(5)
    return _everything(home)


def _everything(home: Home) -> list[object]:
    graph = StateGraph("s", engine=home.engine)
    nodes = graph.nodes(lifecycle=None)
    return [
        graph.version,
        list(nodes),
        list(graph.nodes(type="note")),
        list(graph.nodes(tool="t")),
        graph.caused_by("t", within=86400),
        [graph.edges(node.id) for node in nodes],
        graph.history(),
        graph.verify().ok,
    ]


@pytest.mark.parametrize("ended", ["closed", "killed"])
def test_a_changed_byte_of_a_file_is_reported_or_changes_nothing(tmp_path: Path, ended: str) -> None:
    """Opening, reading or verifying says so, or every answer is what it was: never fewer rows in silence.

    A home that was killed is the folder as it stands while the home is open: all is in the write-ahead log.
    """
    source = tmp_path / "source"
    home = open_home(source, clock=ManualClock())
    expected = _fill(home)
    if ended == "killed":
        shutil.copytree(source, tmp_path / "killed")
    home.close()
    source = source if ended == "closed" else tmp_path / "killed"
    seed = random.SystemRandom().getrandbits(32)
    chance = random.Random(seed)
    reported = 0
    for name, place in _places(source / "state", ended, chance):
        victim = tmp_path / "victim"
        shutil.rmtree(victim, ignore_errors=True)
        shutil.copytree(source, victim)
        file = victim / "state" / name
        sound = file.read_bytes()
        changed = bytearray(sound)
        changed[place] ^= 1 << chance.randrange(8)
        file.write_bytes(changed)
        outcome = _read_all(victim)
        at = f"byte {place} of {name} (seed {seed})"
        assert outcome in (None, expected), f"{at}: fewer rows in silence"
        if outcome is None:
            reported += 1
            file.write_bytes(sound)
            assert _read_all(victim) == expected, f"{at}: what was reported was destroyed by looking at it"
    assert reported > 5


def _places(folder: Path, ended: str, chance: random.Random) -> Iterator[tuple[str, int]]:
    """Where to change a byte: some places of each file, and of a manifest all those that hold a record's length.

    Of a log that was cut off by a crash, the last block of 32 KiB is left out: a record there may be the torn one.
    """
    for path in sorted(folder.iterdir()):
        size = path.stat().st_size
        if path.name.startswith(("LOG", "OPTIONS")):  # RocksDB's own notes: not read back
            continue
        if ended == "killed":
            size = max(0, size - 32 * 1024) if path.suffix == ".log" else 0
        places = set(chance.sample(range(size), min(size, 100 if FULL else 8)))
        if size and path.name.startswith("MANIFEST"):
            places |= set(_length_fields(path.read_bytes()))
        yield from ((path.name, place) for place in sorted(places))


def _length_fields(log: bytes) -> Iterator[int]:
    """A record of RocksDB's log format begins with 4 bytes of checksum, 2 of length, 1 of type."""
    at = 0
    while at + 7 <= len(log):
        yield from (at + 4, at + 5)
        at += 7 + int.from_bytes(log[at + 4 : at + 6], "little")


def _read_all(folder: Path) -> list[object] | None:
    """Everything, or None where damage was reported."""
    try:
        home = open_home(folder, clock=ManualClock())
    except AgentInfraError:
        return None
    try:
        found = _everything(home)
    except AgentInfraError:
        return None
    finally:
        home.close()
    return found if found[-1] else None
