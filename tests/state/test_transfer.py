"""A session goes out as JSON lines and comes in elsewhere as what it was: every version, every hash, every answer."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_infra.clock import ManualClock
from agent_infra.errors import (
    ExportDamaged,
    FileMissing,
    InvalidSessionId,
    NodesExist,
    NodeUnknown,
    SchemaMismatch,
    SessionExists,
    StoreDamaged,
    StoreFormat,
    StoreFull,
    VersionCollected,
    VersionUnknown,
)
from agent_infra.state import (
    Exported,
    Home,
    Imported,
    Node,
    StateGraph,
    export_session,
    import_session,
    open_home,
    open_memory,
)
from agent_infra.testing.strategies import AGENTS, EDGE_TYPES, KEYS, TOOLS, TYPES

FULL = os.environ.get("AGENT_INFRA_TEST_TIER") == "full"
SESSION = "weather_demo_001"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "导出 session.jsonl"


def export(home: Home, path: Path, session: str = SESSION) -> Exported:
    with path.open("wb") as out:
        return export_session(home.engine, session, out)


def bring(home: Home, path: Path, session: str | None = None, **options: Any) -> Imported:
    return import_session(home.engine, path, session, **options)


def open_graph(home: Home, session: str = SESSION) -> StateGraph:
    return StateGraph.of_system(home.engine, session)


# -- what a session answers ------------------------------------------------------------------------------------------------


def seen(nodes: Iterable[Node]) -> list[tuple[object, ...]]:
    return [
        (
            *(n.id, n.type, n.data, n.key, n.created, n.step, n.session, n.schema),
            *(n.ttl, n.owner, n.tool, n.permissions, n.labels, n.lifecycle),
        )
        for n in nodes
    ]


def versions_of(home: Home, session: str) -> list[str]:
    """The ids of all versions that can be opened of a session, abandoned ones too."""
    engine = home.engine
    found: list[str] = []
    for br in engine.branches_of(session):
        for step in range(engine.fork_step(br) + 1, engine.tip(br) + 1):
            if engine.keeping.readable(br, step):
                found.append(engine.version_of(session, engine.place_at(br, step)))
    return sorted(found)


def answers(graph: StateGraph) -> dict[str, object]:
    """Everything that a view of a session can be asked."""
    every = graph.nodes(lifecycle=None)
    told: dict[str, object] = {
        "nodes": seen(every),
        "edges": {node.id: graph.edges(node.id) for node in every},
        "history": graph.history(),
    }
    for lifecycle in ("active", "superseded", "expired", "tombstoned"):
        told[lifecycle] = seen(graph.nodes(lifecycle=lifecycle))
    for name in (*TYPES, *KEYS):
        latest = graph.latest(name)
        told[f"latest {name}"] = latest and seen([latest])
        told[f"key {name}"] = seen(graph.nodes(key=name, lifecycle=None))
        told[f"type {name}"] = seen(graph.nodes(type=name))
    for tool in TOOLS:
        told[f"tool {tool}"] = seen(graph.nodes(tool=tool, lifecycle=None))
        told[f"caused by {tool}"] = sorted(node.id for node in graph.caused_by(tool, 3600))
    for agent in AGENTS:
        told[f"owner {agent}"] = seen(graph.nodes(owner=agent))
    return told


def shape(home: Home, session: str) -> Counter[tuple[str, int]]:
    """How many rows of each kind a session's versions have, by the session's own branches, the oldest first."""
    own = {br: place for place, br in enumerate(sorted(home.engine.branches_of(session)))}
    rows: Counter[tuple[str, int]] = Counter()
    where = {b"V": 1, b"T": 1, b"X": 1, b"K": 1, b"D": 17, b"O": 17, b"P": 17, b"Z": 1}
    for kind, at in where.items():
        for key, _ in home.engine.store.scan(kind, bytes([kind[0] + 1])):
            br = int.from_bytes(key[at : at + 4], "big")
            if br in own:
                rows[kind.decode(), own[br]] += 1
    return rows


class Program:
    """A session with a past: steps, rollbacks, forks, retention, in an order that the seed decides."""

    def __init__(self, random: Random) -> None:
        self.clock = ManualClock()
        self.home = open_memory(clock=self.clock)
        for type in TYPES:
            self.home.engine.schemas.register(type, {"type": "object"})
        self.graphs = [StateGraph(SESSION, engine=self.home.engine)]
        self._random = random
        self.graphs[0].add_node(TYPES[0], {"n": "first"})
        for _ in range(random.randint(1, 25)):
            random.choice([self._step, self._step, self._step, self._back, self._fork, self._pass, self._collect])()

    @property
    def graph(self) -> StateGraph:
        return self._random.choice(self.graphs)

    def _step(self) -> None:
        random, graph = self._random, self.graph
        old = [node.id for node in graph.nodes(lifecycle=None)]
        alive = [node.id for node in graph.nodes()]
        with graph.step(agent=random.choice([None, *AGENTS])) as step:
            keys = random.sample(KEYS, random.randint(0, 2))
            new = [
                step.add_node(
                    random.choice(TYPES),
                    {"n": random.choice([1, 1.0, -0.0, 2**60, "北京", None, {"内": [True]}])},
                    key=key,
                    ttl=random.choice([None, None, 1, 60.0, 0.5]),
                    tool=random.choice([None, *TOOLS]),
                    labels=random.choice([(), ("tainted",)]),
                    permissions=random.choice([None, {"read": ["*"], "write": ["planner"]}]),
                ).id
                for key in [*keys, *[None] * random.randint(0, 2)]
            ]
            ends = [*old, *new]
            for _ in range(random.randint(0, 4) if ends else 0):
                step.add_edge(random.choice(ends), random.choice(ends), random.choice(["causes", *EDGE_TYPES]))
            for id in random.sample(alive, min(len(alive), random.randint(0, 1))):
                step.remove(id, "不再需要")
            if random.random() < 0.2:
                step.refer("ticket", f"T-{random.randint(1, 9)}")

    def _back(self) -> None:
        graph = self.graph
        with suppress(VersionCollected):
            graph.rollback(self._random.randint(0, min(3, len(graph.history()))))

    def _fork(self) -> None:
        if len(self.graphs) < 3:
            self.graphs.append(self.graph.fork(f"fork{len(self.graphs)}"))

    def _pass(self) -> None:
        self.clock.advance(self._random.choice([0.5, 30, 100]))

    def _collect(self) -> None:
        self.graph.gc(keep_last=self._random.randint(1, 4), abandoned_after=self._random.choice([None, 0, 50]))


@settings(max_examples=1500 if FULL else 60)
@given(st.integers(0, 2**32))
def test_what_comes_in_is_what_went_out(seed: int) -> None:
    """All versions of the session, abandoned ones and those before a fork among them, answer as they did at home."""
    random = Random(seed)
    program = Program(random)
    session = random.choice(program.graphs).session_id
    there = open_memory(clock=program.clock)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "session.jsonl"
        exported = export(program.home, path, session)
        imported = bring(there, path)
    old, new = program.home, there
    assert (imported.version, imported.versions, imported.nodes) == (
        exported.version,
        exported.versions,
        exported.nodes,
    )
    assert open_graph(new, session).version == open_graph(old, session).version
    assert versions_of(new, session) == versions_of(old, session)
    assert shape(new, session) == shape(old, session)
    line = [version.id for version in open_graph(old, session).history()]
    for version in {*versions_of(old, session), *line}:
        before, after = open_graph(old, session).at(version), open_graph(new, session).at(version)
        assert answers(after) == answers(before), version
        assert after.verify() == before.verify()
        assert after.verify().ok
    assert answers(open_graph(new, session)) == answers(open_graph(old, session))


@settings(max_examples=500 if FULL else 30)
@given(st.integers(0, 2**32), st.booleans())
def test_a_copy_lives_on_like_the_original(seed: int, redraw: bool) -> None:
    """Under another name, in the same home if its nodes get new ids: it verifies, can be written, rolled back, collected."""
    random = Random(seed)
    program = Program(random)
    session = program.graph.session_id
    home = program.home if redraw else open_memory(clock=program.clock)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "session.jsonl"
        export(program.home, path, session)
        bring(home, path, "副本", redraw=redraw)
    copy = StateGraph("副本", engine=home.engine)
    old = open_graph(program.home, session)
    assert copy.verify().ok
    assert [n.data for n in copy.nodes(lifecycle=None)] == [n.data for n in old.nodes(lifecycle=None)]
    assert Counter(map(str, shape(home, "副本"))) == Counter(map(str, shape(program.home, session)))
    ids = {node.id for node in copy.nodes(lifecycle=None)} & {node.id for node in old.nodes(lifecycle=None)}
    assert ids == (set() if redraw else {node.id for node in old.nodes(lifecycle=None)})
    before = copy.version
    with copy.step() as step:
        node = step.add_node(TYPES[0], {"n": "新"}, key=KEYS[0], tool=TOOLS[0])
        for other in copy.nodes()[:2]:
            step.add_edge(node.id, other.id, "causes")
    copy.rollback(to=before)
    copy.add_node(TYPES[1], {}, key=KEYS[0])
    assert copy.verify().ok
    copy.gc(keep_last=1, abandoned_after=0)
    assert copy.verify().ok
    assert old.verify().ok


# -- one thing at a time ---------------------------------------------------------------------------------------------------


def test_content_ledger_and_business_references_come_along(home: Home, graph: StateGraph, file: Path) -> None:
    page = home.blobs.put("<html>北京 晴</html>".encode() * 20_000, "text/html")
    inner = home.blobs.put(b"a picture", "image/png")
    bundle = home.blobs.put_value({"screenshot": inner, "n": 1})
    with graph.step(agent="planner") as step:
        call = step.add_node("document", {"title": "报告", "content": page, "evidence": bundle})
        step.refer("ticket", "T-8841")
    ledger = StateGraph.of_system(home.engine, f"{SESSION}/rewards")
    ledger.add_node("signal", {"source": "user", "value": 1, "event_id": call.id})
    exported = export(home, file)
    assert exported.blobs == 3
    there = open_memory()
    assert bring(there, file).blobs == 3
    for each in (page, inner, bundle):
        assert there.blobs.get(each["$cid"]) == home.blobs.get(each["$cid"])  # type: ignore[arg-type]
    assert [node.data["event_id"] for node in open_graph(there, f"{SESSION}/rewards").nodes()] == [call.id]
    assert there.engine.sessions() == [SESSION]
    again = file.with_name("again.jsonl")
    export(there, again)
    told = [json.loads(line) for line in again.read_text("utf-8").splitlines()]
    assert next(line for line in told if line["kind"] == "version")["private"]["references"] == [["ticket", "T-8841"]]
    open_graph(there).rollback()
    open_graph(there).gc(abandoned_after=0)
    assert not there.blobs.has(page["$cid"]), "nothing else refers to it"  # type: ignore[arg-type]


def test_content_that_is_gone_is_told_and_keeps_nothing_else_back(home: Home, graph: StateGraph, file: Path) -> None:
    lost = {
        "$cid": "bafkreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku",
        "bytes": 0,
        "media_type": "text/plain",
    }
    graph.add_node("document", {"content": lost})
    assert export(home, file).missing == (lost["$cid"],)
    assert bring(open_memory(), file).missing == (lost["$cid"],)
    there = open_memory()
    there.blobs.put(b"", "text/plain")
    assert bring(there, file).missing == ()


def test_a_move_of_the_head_and_a_note_tell_of_it(home: Home, graph: StateGraph, file: Path) -> None:
    graph.add_node("note", {"text": "一"})
    export(home, file)
    there = open_memory()
    imported = bring(there, file, "copy", agent="carrier")
    change = next(StateGraph("copy", engine=there.engine).watch(since=0, timeout=0))
    assert (change.kind, change.version) == ("import", imported.version)
    note = open_graph(there, "_control").nodes(type="move")[0]
    assert note.data == {"session": "copy", "from": graph.version, "to": imported.version, "why": "import"}
    assert note.owner == "carrier"


def test_redrawn_ids_are_new_wherever_data_names_the_old_ones(home: Home, graph: StateGraph, file: Path) -> None:
    first = graph.add_node("note", {"text": "一"})
    graph.add_node("note", {"of": [first.id, f"subgoal/{first.id}/查"], "text": "0" * 26}, key=f"subgoal/{first.id}/查")
    export(home, file)
    bring(home, file, "copy", redraw=True)
    second, copied = StateGraph("copy", engine=home.engine).nodes()
    assert copied.id != first.id
    assert copied.id[:10] == first.id[:10], "of the same moment"
    assert second.data == {"of": [copied.id, f"subgoal/{copied.id}/查"], "text": "0" * 26}
    assert second.key == f"subgoal/{copied.id}/查"


def test_a_fork_brings_what_came_before_it(home: Home, graph: StateGraph, file: Path) -> None:
    graph.add_node("note", {"text": "before"})
    begin = graph.version
    fork = graph.fork("another")
    graph.add_node("note", {"text": "the parent's own"})
    fork.add_node("note", {"text": "the fork's own"})
    export(home, file, "another")
    there = open_memory()
    bring(there, file)
    copy = StateGraph("another", engine=there.engine)
    assert [node.data["text"] for node in copy.nodes()] == ["the fork's own", "before"]
    assert copy.at(begin).nodes()[0].session == SESSION
    assert there.engine.sessions() == ["another"]
    assert "the parent's own" not in file.read_text("utf-8")
    graph.fork("fresh")
    export(home, file, "fresh")
    bring(open_memory(), file)


def test_collected_versions_stay_collected(home: Home, graph: StateGraph, file: Path) -> None:
    for text in ("一", "二", "三"):
        graph.add_node("note", {"text": text}, key="note")
    gone = graph.history()[0].id
    graph.gc(keep_last=1)
    export(home, file)
    assert "一" not in file.read_text("utf-8")
    there = open_memory()
    bring(there, file)
    copy = open_graph(there)
    assert copy.verify() == graph.verify()
    assert [version.id for version in copy.history()] == [graph.version]
    with pytest.raises(VersionCollected):
        copy.at(gone)


def test_nodes_are_read_under_the_schema_that_they_were_written_under(
    home: Home, graph: StateGraph, file: Path
) -> None:
    """Numbers of versions are a home's own: a node names its schema by hash, and the schema comes along."""
    there = open_memory()
    for version, schemas in (("c", home.engine.schemas), ("f", there.engine.schemas)):
        schemas.register("report", {"type": "object", "required": [version]}, tag=version)
    graph.add_node("report", {"c": 20})
    graph.add_node("not declared", {})
    export(home, file)
    assert bring(there, file).schemas == ("report 2",)
    schemas = there.engine.schemas
    assert schemas.get("report").tags == ("f",), "new nodes are as before"
    assert "weather_demo_001" in (schemas.get("report", 2).deprecated or "")
    schemas.migrate("report", 2, 1, {"rename": {"c": "f"}})
    copy = open_graph(there)
    assert copy.nodes(type="report")[0].schema[1] == 1, "the number that it had at home"
    assert copy.with_schemas({"report": "f"}).nodes(type="report")[0].data == {"f": 20}
    with pytest.raises(SchemaMismatch):
        copy.add_node("report", {"c": 20})
    elsewhere = open_memory()
    assert bring(elsewhere, file).schemas == ("report 1",)
    assert elsewhere.engine.schemas.get("report", "c").deprecated is None


def test_an_export_can_be_imported_again_and_again(home: Home, graph: StateGraph, file: Path) -> None:
    """Through three homes: the file is the same but for its first line, which says when it was made, and the last."""
    with graph.step() as step:
        ids = [step.add_node("note", {"text": text}, tool="t").id for text in ("一", "二")]
        step.add_edge(*ids, "causes")
    graph.rollback()
    graph.add_node("note", {"text": "三"})
    texts: list[list[str]] = []
    source = home
    for _ in range(3):
        export(source, file)
        texts.append([_without_numbers(line) for line in file.read_text("utf-8").splitlines()[1:-1]])
        source = open_memory()
        bring(source, file)
    assert texts[0] == texts[1] == texts[2]


def test_an_export_is_whole_while_others_write_and_collect(home: Home, graph: StateGraph, file: Path) -> None:
    graph.add_node("note", {"text": "first"})

    def work() -> None:
        for number in range(1000 if FULL else 60):
            graph.add_node("note", {"text": f"第 {number} 个"}, key=f"k{number % 3}", tool="t")
            if number % 5 == 0:
                with suppress(VersionCollected):
                    graph.rollback(1)
            if number % 7 == 0:
                graph.gc(keep_last=3, abandoned_after=0)

    worker = threading.Thread(target=work)
    worker.start()
    for _ in range(30 if FULL else 5):
        exported = export(home, file)
        there = open_memory()
        assert bring(there, file).version == exported.version
        assert open_graph(there).verify().ok
    worker.join()
    assert list(home.engine.keeping.pins()) == []
    assert graph.verify().ok


def _without_numbers(line: str) -> str:
    told = json.loads(line)
    for field in ("branch", "parent"):
        told.pop(field, None)
    return json.dumps(told, ensure_ascii=False)


# -- what is refused ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def exported(home: Home, graph: StateGraph, file: Path) -> Path:
    with graph.step() as step:
        page = home.blobs.put(b"some content", "text/plain")
        first = step.add_node("document", {"title": "报告", "content": page}, key="a", ttl=60)
        second = step.add_node("note", {"text": "二"})
        step.add_edge(first.id, second.id, "causes")
    graph.add_node("note", {"text": "三"}, key="a")
    export(home, file)
    return file


def everything(home: Home) -> dict[bytes, bytes]:
    return dict(home.engine.store.scan(b"\0", b"\xff"))


@pytest.fixture
def refusing(exported: Path) -> Iterator[Callable[..., Exception]]:
    """Import into a home that must be afterwards as it was."""

    def refuse(kind: type[Exception], home: Home | None = None, session: str | None = None) -> Exception:
        there = home or open_memory()
        before = everything(there)
        with pytest.raises(kind) as caught:
            bring(there, exported, session)
        assert everything(there) == before
        return caught.value

    return refuse


def test_a_session_of_that_name_is_not_overwritten(refusing: Callable[..., Exception], home: Home) -> None:
    there = open_memory()
    StateGraph(SESSION, engine=there.engine).add_node("note", {})
    error = refusing(SessionExists, there)
    assert "--as" in str(error)
    refusing(SessionExists, home)


def test_nodes_that_the_home_holds_are_named(refusing: Callable[..., Exception], home: Home, graph: StateGraph) -> None:
    error = refusing(NodesExist, home, "copy")
    assert set(error.facts["nodes"]) == {node.id for node in graph.nodes(lifecycle=None)}  # type: ignore[attr-defined]
    assert "--redraw" in str(error)


@pytest.mark.parametrize("name", ["", "_control", "a/b", "x/rewards"])
def test_a_name_is_checked(exported: Path, name: str) -> None:
    with pytest.raises(InvalidSessionId):
        bring(open_memory(), exported, name)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileMissing):
        bring(open_memory(), tmp_path / "absent.jsonl")


def test_another_format_is_refused(exported: Path, refusing: Callable[..., Exception]) -> None:
    exported.write_bytes(exported.read_bytes().replace(b'"format":1', b'"format":2'))
    assert refusing(StoreFormat).facts == {"found": 2, "reads": 1}  # type: ignore[attr-defined]


def test_any_lost_line_and_any_cut_is_noticed(exported: Path, refusing: Callable[..., Exception]) -> None:
    lines = exported.read_bytes().splitlines(keepends=True)
    for left in range(len(lines)):
        exported.write_bytes(b"".join(lines[:left]))
        refusing(ExportDamaged)
        exported.write_bytes(b"".join(lines[:left] + lines[left + 1 :]))
        refusing(ExportDamaged)
    exported.write_bytes(b"".join(lines)[:-20])
    refusing(ExportDamaged)
    exported.write_bytes(b"".join(lines) + lines[1])
    refusing(ExportDamaged)


def resealed(lines: list[bytes]) -> bytes:
    """The file with the checksum that its lines have now, as a forger would make it."""
    body = b"".join(lines[:-1])
    end = json.loads(lines[-1])
    end["sha256"] = hashlib.sha256(body).hexdigest()
    return body + json.dumps(end).encode() + b"\n"


FORGERIES: dict[str, tuple[str, Callable[[dict[str, Any]], object], str]] = {
    # name: (kind of line, what is done to it, what is told)
    "data": ("node", lambda line: line["data"].update(text="forged"), "was changed"),
    "type": ("node", lambda line: line.update(type="call"), "was changed"),
    "ttl": ("node", lambda line: line.update(ttl=61), "was changed"),
    "salt": ("node", lambda line: line.update(salt="00" * 16), "was changed"),
    "node id": ("node", lambda line: line.update(id="0" * 26), "was changed"),
    "no ulid": ("node", lambda line: line.update(id="x"), "not a ULID"),
    "digest": ("node", lambda line: line.update(digest="ab"), "not 32 bytes"),
    "edge": ("version", lambda line: line["edges"][0].update(type="triggers"), "doesn't hash"),
    "agent": ("version", lambda line: line.update(agent="someone else"), "doesn't hash"),
    "time": ("version", lambda line: line.update(created=1), "doesn't hash"),
    "step": ("version", lambda line: line.update(step=9), "doesn't stand before"),
    "version id": ("version", lambda line: line.update(id="weather_demo_001.1.0000000000000000"), "doesn't hash"),
    "hash": ("version", lambda line: line.update(hash="00" * 32), "doesn't hash"),
    "reference": ("version", lambda line: line["private"].update(references=[["ticket", "T-1"]]), "doesn't hash"),
    "branch": ("version", lambda line: line.update(branch=99), "99"),
    "session": ("branch", lambda line: line.update(session="other"), "doesn't hash"),
    "system session": ("branch", lambda line: line.update(session="_control"), "can't be a session id"),
    "beginning": ("branch", lambda line: line.update(parent=7, fork_step=1), "can't begin"),
    "head": ("session", lambda line: line.update(step=1), "at its place is"),
    "head that is not": ("session", lambda line: line.update(step=9), "9"),
    "other session": ("session", lambda line: line.update(session="other"), "not the next"),
    "schema": ("schema", lambda line: line["schema"].update(schema={"type": "string"}), "doesn't hash"),
    "no schema": ("schema", lambda line: line["schema"].update(schema={"type": "strin"}), "strin"),
    "content": ("blob", lambda line: line.update(data=base64.b64encode(b"forged").decode()), "doesn't hash"),
    "no base64": ("blob", lambda line: line.update(data="*"), "base64"),
    "part": ("blob", lambda line: line.update(part=1), "not what comes next"),
    "content cut off": ("blob", lambda line: line.update(last=False), "cut off"),
    "counts": ("end", lambda line: line.update(nodes=7), "it tells of"),
    "header": ("header", lambda line: line.update(sessions=["a", "b"]), "not the ledger"),
    "no kind": ("version", lambda line: line.update(kind="verzion"), "verzion"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_line_is_found_by_its_hash(exported: Path, refusing: Callable[..., Exception], name: str) -> None:
    """Also with a fresh checksum of the file: it keeps from accidents, the hashes keep from forgery."""
    kind, forge, told = FORGERIES[name]
    lines = exported.read_bytes().splitlines(keepends=True)
    index = next(index for index, line in enumerate(lines) if json.loads(line)["kind"] == kind)
    line = json.loads(lines[index])
    forge(line)
    lines[index] = json.dumps(line, ensure_ascii=False).encode() + b"\n"
    exported.write_bytes(resealed(lines) if kind != "end" else b"".join(lines))
    error = refusing(ExportDamaged)
    assert told in str(error)
    assert error.facts["file"] == str(exported)  # type: ignore[attr-defined]


def test_a_failed_write_takes_its_content_back(exported: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = open_memory()
    before = everything(there)
    write = there.engine.store.write

    def full(batch: Any, *, sync: bool = False) -> None:
        if len(batch) > 5:
            raise StoreFull("the disk refused the write")
        write(batch, sync=sync)

    monkeypatch.setattr(there.engine.store, "write", full)
    with pytest.raises(StoreFull):
        bring(there, exported)
    monkeypatch.undo()
    assert everything(there) == before
    with pytest.raises(NodeUnknown):
        open_graph(there).node("0" * 26)
    assert bring(there, exported).versions == 2


def test_of_two_imports_at_once_one_brings_the_nodes(exported: Path) -> None:
    there = open_memory()
    barrier = threading.Barrier(2)
    outcomes: list[object] = []

    def work(name: str) -> None:
        barrier.wait()
        try:
            outcomes.append(bring(there, exported, name))
        except NodesExist as error:
            outcomes.append(error)

    workers = [threading.Thread(target=work, args=(name,)) for name in ("one", "two")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Imported", "NodesExist"]
    assert len(there.engine.sessions()) == 1
    assert open_graph(there, there.engine.sessions()[0]).verify().ok


def test_a_damaged_session_is_not_exported_as_if_it_were_whole(home: Home, graph: StateGraph, file: Path) -> None:
    node = graph.add_node("note", {"text": "原文"})
    rows = [(key, value) for key, value in everything(home).items() if key[:1] == b"N" and "原文".encode() in value]
    home.engine.store.write([(key, value.replace("原文".encode(), "伪造".encode())) for key, value in rows])
    with pytest.raises(StoreDamaged, match=node.id):
        export(home, file)


@pytest.mark.parametrize("session", ["absent", "_control", "weather_demo_001/rewards"])
def test_only_a_users_session_is_exported(home: Home, graph: StateGraph, file: Path, session: str) -> None:
    graph.add_node("note", {})
    with pytest.raises((VersionUnknown, InvalidSessionId)):
        export(home, file, session)


def test_an_import_survives_reopening(disk_home: Home, exported: Path, clock: ManualClock, graph: StateGraph) -> None:
    assert disk_home.path is not None
    imported = bring(disk_home, exported)
    disk_home.close()
    again = open_home(disk_home.path, clock=clock)
    try:
        copy = StateGraph(SESSION, engine=again.engine)
        assert copy.version == imported.version == graph.version
        assert copy.verify().ok
        copy.add_node("note", {"text": "四"})
        assert copy.verify().ok
        assert (
            again.blobs.get(copy.at(copy.history()[0].id).nodes(type="document")[0].data["content"]["$cid"])
            == b"some content"
        )
    finally:
        again.close()
