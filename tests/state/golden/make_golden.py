"""Make the golden home of the present format: `format-N.tar.gz`, and beside it `format-N.json`, what it must say for ever.

    python tests/state/golden/make_golden.py

A golden home of a format that was released is never made again. That of the present one is, until its first release.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from agent_infra.clock import ManualClock
from agent_infra.state import Home, StateGraph, open_home
from agent_infra.state.rows.records import FORMAT_NUMBER

HERE = Path(__file__).parent
SESSIONS = ("weather_demo_001", "weather_demo_001/rewards", "另一条路", "_control", "_registry")


def write(home: Home, clock: ManualClock) -> None:
    """Something of everything that a store can hold."""
    schemas, blobs = home.engine.schemas, home.blobs
    schemas.register("forecast", {"type": "object", "required": ["城市"], "x-ttl": 1800}, tag="1.8")
    graph = StateGraph("weather_demo_001", engine=home.engine, agent="planner")
    with graph.step() as step:
        intent = step.add_node("user_intent", {"query": "北京明天天气", "confidence": 0.95}, ttl=3600)
        call = step.add_node("tool_call", {"params": {"city": "Beijing", "days": 1, "exact": 1.0}}, tool="weather_api")
        step.add_edge(intent.id, call.id, "triggers")
        step.refer("ticket", "T-8841")
    clock.advance(1)
    with graph.step(agent="执行者") as step:
        page = blobs.put("<p>晴，22 度</p>".encode() * 8_000, "text/html")
        bundle = blobs.put_value({"answer": [22, 1.5, None, "晴"], "page": blobs.put(b"small", "text/plain")})
        found = step.add_node(
            "forecast", {"城市": "北京", "page": page, "evidence": bundle}, key="weather", labels=("tainted",)
        )
        step.add_edge(call.id, found.id, "causes")
        step.add_node("note", {"text": "to be removed"}, key="draft", permissions={"read": ["*"], "write": ["planner"]})
    schemas.register("forecast", {"type": "object", "required": ["城市", "温度"]}, "NONE", tag="2.1")
    schemas.migrate("forecast", "1.8", "2.1", {"default": {"温度": 22}})
    clock.advance(1)
    with graph.step() as step:
        step.add_node("forecast", {"城市": "上海", "温度": -0.5}, key="weather")
        step.remove(graph.latest("draft").id, "不再需要")  # type: ignore[union-attr]
    graph.pin(graph.version, owner="report", why="it was printed")
    abandoned = graph.version
    graph.rollback(steps=1, why="the wrong city")
    graph.add_node("note", {"text": "another way"})
    graph.fork("另一条路", at=abandoned).add_node("note", {"text": "on the fork"}, key="note")
    StateGraph.of_system(home.engine, "weather_demo_001/rewards").add_node(
        "signal", {"source": "user", "value": 1, "event_id": call.id}
    )
    person = graph.add_node("note", {"text": "身份证 110105"}, key="person")
    graph.erase(person.id, "她的请求")
    for number in range(3):
        clock.advance(60)
        graph.add_node("note", {"text": f"{number}"}, key="counter")
    graph.gc(keep_last=2)
    graph.lease(seconds=30, owner="executor").release()


def said(home: Home) -> dict[str, Any]:
    """What a home says of its sessions, at their heads and at every version that can be opened."""
    told: dict[str, Any] = {}
    for session in SESSIONS:
        graph = StateGraph.of_system(home.engine, session)
        engine = home.engine
        places = [
            (br, step)
            for br in engine.branches_of(session)
            for step in range(engine.fork_step(br) + 1, engine.tip(br) + 1)
        ]
        versions = [
            engine.version_of(session, engine.place_at(*place)) for place in places if engine.keeping.readable(*place)
        ]
        told[session] = {
            "head": graph.version,
            "history": [version.id for version in graph.history()],
            "versions": {version: nodes(graph.at(version)) for version in sorted(versions)}
            if session[0] != "_"
            else {},
        }
    told["schemas"] = [
        [schema.version, schema.tags, schema.deprecated] for schema in home.engine.schemas.list("forecast")
    ]
    told["migrations"] = [migration.as_dict() for migration in home.engine.schemas.migrations()]
    told["pins"] = [[br, step, owner, pin.why] for br, step, owner, pin in home.engine.keeping.pins()]
    return json.loads(json.dumps(told))


def nodes(graph: StateGraph) -> dict[str, Any]:
    """The nodes of a view and their edges, by id."""
    return {
        node.id: node.as_dict() | {"edges": [[edge.source, edge.target, edge.type] for edge in graph.edges(node.id)]}
        for node in graph.nodes(lifecycle=None)
    }


def pack(home: Path, target: Path) -> None:
    """The home's files without what tells of the machine, in an archive that depends on nothing but them."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for path in sorted(
            path for folder in ("state", "blobs") for path in (home / folder).rglob("*") if path.is_file()
        ):
            if path.name.startswith("LOG") or path.name == "LOCK":
                continue
            entry = tarfile.TarInfo(str(path.relative_to(home)))
            entry.size = path.stat().st_size
            with path.open("rb") as file:
                archive.addfile(entry, file)
    target.write_bytes(gzip.compress(raw.getvalue(), mtime=0))


def main() -> None:
    """Make both files."""
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as folder:
        home = open_home(Path(folder), clock=clock)
        write(home, clock)
        told = said(home)
        home.close()
        pack(Path(folder), HERE / f"format-{FORMAT_NUMBER}.tar.gz")
    text = json.dumps(told, ensure_ascii=False, indent=1, sort_keys=True)
    (HERE / f"format-{FORMAT_NUMBER}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
