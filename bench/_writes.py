"""Figures of writing: large steps, typical steps, bytes, and RocksDB's settings."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from _bench import SESSION, Bench, fill, write
from _machine import bytes_below
from _measure import MILLI, Samples, at_most, interleave, rounded
from _sqlite import SYNCHRONOUS
from _work import NOTE, TOOL, WITHIN, Item, Work, agent_step, call, caused_step, plain_step

from agent_infra.clock import ManualClock, SystemClock
from agent_infra.state import Home, StateGraph, open_home

LETTERS = "abcdefghijklmnopqrstuvwxyz     ,.天气上海北京明后今雨晴风云温度报告计划回答问题"
"""What texts are drawn from, so that they pack about as well as prose does."""
DEFAULTS: dict[str, int] = {}
SERVER = {"write_buffer_mb": 512, "max_open_files": 100_000}
_now = SystemClock().micros


def inserts(bench: Bench) -> None:
    """A large step: schema check, ids, hashes, indexes, write-ahead log."""
    counts = bench.counts
    home = bench.home("inserts")
    graph = StateGraph(SESSION, engine=home.engine)
    normal, off = (bench.sqlite_of(home, f"inserts-{name}", name) for name in ("NORMAL", "OFF"))
    works = {"insert_1000": plain_step(counts.insert), "insert_1000_caused": caused_step(counts.insert)}
    goals = {"insert_1000": (12.0, 0.65), "insert_1000_caused": (25.0, None)}
    for name, work in works.items():
        samples, _ = interleave(
            counts.inserts,
            {
                "ours": lambda work=work: write(graph, work),
                "sqlite": lambda work=work: normal.write(SESSION, work, _now()),
                "sqlite_off": lambda work=work: off.write(SESSION, work, _now()),
                "drafts": lambda work=work: [
                    home.engine.schemas.draft(item.type, item.data, tool=item.tool) for item in work.items
                ],
            },
        )
        _add_insert(bench, name, samples, *goals[name])


def _add_insert(bench: Bench, name: str, samples: dict[str, Samples], limit: float, ratio: float | None) -> None:
    drafts = samples.pop("drafts").cpu_ms()
    ours, peer = samples["ours"].cpu_ms(), samples["sqlite"].cpu_ms()
    ratios = {
        "sqlite": ours / peer,
        "sqlite_off": ours / samples["sqlite_off"].cpu_ms(),
        "sqlite_less_drafts": (ours - drafts) / (peer - drafts),
    }
    goals = [at_most("ours.cpu_p50_ms", ours, limit)]
    if ratio is not None:
        goals.append(at_most("ratios.sqlite", ratios["sqlite"], ratio))
    what = f"one step of {bench.counts.insert} nodes: schema check, indexes, hashes, write-ahead log"
    bench.report.add(
        name,
        what + (", a causes edge each" if "caused" in name else "") + "; CPU time",
        durability="os; SQLite synchronous=NORMAL (and OFF, which promises less)",
        ours=samples.pop("ours").summary(),
        peers={peer: found.summary() for peer, found in samples.items()},
        ratios=ratios,
        goals=tuple(goals),
        facts={
            "drafts_cpu_p50_ms": rounded(drafts),
            "drafts": "check, JSON copy and id by the schema broker: the same code in ours and in the peer",
        },
    )


# -- typical steps -------------------------------------------------------------------------------------------------


def typical(bench: Bench) -> None:
    """The overhead of committing what an agent's step writes: 3 nodes, 4 edges."""
    limits = {"os": 0.2, "group": 1.0, "step": 1.0}
    for durability, limit in limits.items():
        home = bench.home(f"typical-{durability}", durability)
        graph = StateGraph(SESSION, engine=home.engine, agent="planner")
        peer = bench.sqlite(home, f"typical-{durability}", durability)
        start = Work([Item(NOTE, {"text": "明天北京天气如何?"})])
        intent, peers_intent = write(graph, start)[0].id, peer.write(SESSION, start, _now())[0]
        jobs: dict[str, Callable[[], object]] = {
            "ours": lambda g=graph, i=intent: write(g, agent_step(i)),
            "sqlite": lambda p=peer, i=peers_intent: p.write(SESSION, agent_step(i), _now()),
        }
        if durability == "os":
            jobs |= {
                "ours_keyed": lambda g=graph, i=intent: write(g, agent_step(i, "answer")),
                "sqlite_keyed": lambda p=peer, i=peers_intent: p.write(SESSION, agent_step(i, "answer"), _now()),
            }
        else:
            jobs["fsync_alone"] = bench.bare_fsync(durability)
        samples, _ = interleave(bench.counts.steps, jobs, warm_up=20)
        _add_typical(bench, durability, limit, samples)


def _add_typical(bench: Bench, durability: str, limit: float, samples: dict[str, Samples]) -> None:
    bare = samples["fsync_alone"].wall_ms() if "fsync_alone" in samples else 0.0
    for suffix, what in (("", ""), ("_keyed", ", its result superseding the one before under one key")):
        if "ours" + suffix not in samples:
            continue
        ours, peer = samples["ours" + suffix], samples["sqlite" + suffix]
        peers = {"sqlite": peer.summary()} | ({"fsync_alone": samples["fsync_alone"].summary()} if bare else {})
        no_goal = suffix or bare >= limit
        bench.report.add(
            f"typical_step_{durability}{suffix}",
            "a step of 3 nodes and 4 edges, from opening it to its return" + what,
            durability=f"{durability}; SQLite synchronous={SYNCHRONOUS[durability]}",
            ours=ours.summary(),
            peers=peers,
            ratios={"sqlite": ours.wall_ms() / peer.wall_ms()}
            | ({"fsync_alone": ours.wall_ms() / bare} if bare else {}),
            goals=() if no_goal else (at_most("ours.p50_ms", ours.wall_ms(), limit),),
            facts={"why_no_goal": f"an fsync alone takes {rounded(bare)} ms, the goal is {limit} ms"}
            if bare >= limit
            else {},
        )


# -- bytes -----------------------------------------------------------------------------------------------------------


def growth(bench: Bench) -> None:
    """What a conversation costs on disk that grows by 1,000 characters a turn."""
    draw = random.Random(1)
    texts = ["".join(draw.choices(LETTERS, k=1000)) for _ in range(bench.counts.turns)]
    appended = sum(len(text.encode()) for text in texts)
    empty = _conversation(bench, "empty", [])
    taken = {
        "plain": _conversation(bench, "plain", [Work([Item("note", {"text": text})]) for text in texts]) - empty,
        "caused": _conversation(
            bench, "caused", [Work([call(), Item("note", {"text": text})], [(0, 1, "causes")]) for text in texts]
        )
        - empty,
    }
    peers = {}
    if bench.langgraph is not None:
        found = bench.langgraph.ask("turns", texts=texts)["bytes"]
        peers = {"langgraph": {"bytes": found, "times_appended": rounded(found / appended)}}
    times = {name: size / appended for name, size in taken.items()}
    bench.report.add(
        "append_turns",
        f"bytes on disk for {len(texts)} turns that append 1000 characters each, by bytes appended",
        durability="os; LangGraph's default (synchronous=FULL)",
        ours={"bytes": taken["plain"], "times_appended": rounded(times["plain"])}
        | {"times_appended_caused_by_a_tool": rounded(times["caused"])},
        peers=peers,
        ratios={"langgraph": taken["plain"] / peers["langgraph"]["bytes"]} if peers else {},
        goals=(
            at_most("ours.times_appended", times["plain"], 10.0),
            at_most("ours.times_appended_caused_by_a_tool", times["caused"], 10.0),
        ),
        facts={"appended_bytes": appended, "counted": "all files of the closed home's store, less an empty one's"},
    )


def _conversation(bench: Bench, name: str, works: list[Work]) -> int:
    """The bytes of a home's store after it was closed."""
    folder = bench.folder / f"growth-{name}"
    home = open_home(folder, durability="os")
    graph = StateGraph(SESSION, engine=home.engine)
    for work in works:
        write(graph, work)
    home.close()
    return bytes_below(folder / "state")


# -- RocksDB's settings ------------------------------------------------------------------------------------------------


def tuning(bench: Bench) -> None:
    """`[state.rocksdb]`: the defaults, which suit a laptop, beside what suits a server; both with lz4."""
    clocks = {"defaults": ManualClock(), "server": ManualClock()}
    homes = {
        "defaults": bench.home("tuning-defaults", clock=clocks["defaults"], **DEFAULTS),
        "server": bench.home("tuning-server", clock=clocks["server"], **SERVER),
    }
    graphs = {name: StateGraph(SESSION, engine=home.engine) for name, home in homes.items()}
    filling: dict[str, Samples] = {name: Samples() for name in homes}
    parts = max(1, bench.counts.nodes // 10_000)
    for _ in range(parts):
        for name, graph in graphs.items():
            filling[name].run(lambda graph=graph, name=name: fill(graph, clocks[name], bench.counts.nodes // parts))
    asking, _ = interleave(
        bench.counts.queries, {name: lambda g=graph: g.caused_by(TOOL, WITHIN) for name, graph in graphs.items()}
    )
    found = {
        name: {
            "fill_p50_ms": rounded(filling[name].wall_ms()),
            "fill_cpu_p50_ms": rounded(filling[name].cpu_ms()),
            "caused_by_p50_ms": rounded(asking[name].wall_ms()),
            "caused_by_p99_ms": rounded(asking[name].wall_ms(99)),
        }
        | _reopened(bench, name, homes[name])
        for name in homes
    }
    bench.report.add(
        "rocksdb_settings",
        f"{bench.counts.nodes} nodes filled in {parts} parts, asked, closed and opened again",
        durability="os",
        ours=found["defaults"],
        peers={"server_settings": found["server"]},
        ratios={what: found["server"][what] / found["defaults"][what] for what in found["defaults"]},
        facts={
            "defaults": {"write_buffer_mb": 16, "max_open_files": 256, "compression": "lz4"},
            "server_settings": SERVER | {"compression": "lz4"},
        },
    )


def _reopened(bench: Bench, name: str, home: Home) -> dict[str, float]:
    folder: Path = bench.folder / f"tuning-{name}"
    home.close()
    size = bytes_below(folder / "state")
    began = time.perf_counter()
    bench.home(f"tuning-{name}", **(SERVER if name == "server" else DEFAULTS))
    return {"reopen_ms": rounded((time.perf_counter() - began) * MILLI), "mb_on_disk": rounded(size / 2**20)}
