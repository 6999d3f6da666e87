"""Figures of reading and of time travel."""

from __future__ import annotations

import itertools
from typing import Any

from _bench import SESSION, Bench, alike, fill, write
from _measure import MILLI, Goal, Samples, at_least, at_most, interleave, rounded
from _work import CAUSED, NOTE, TOOL, WITHIN, Item, Work, caused_step, filling_step, reading

from agent_infra.clock import ManualClock
from agent_infra.state import StateGraph, caused_by_everywhere

SMALL_GRAPHS = (0.01, 0.1)
"""Shares of the large graph whose rollback is measured beside it."""


def large(bench: Bench) -> StateGraph:
    """`caused_by` and rollback in a large graph, beside SQLite and LangGraph; the graph, for other figures."""
    clock = ManualClock()
    home = bench.home("large", clock=clock)
    graph, peer = StateGraph(SESSION, engine=home.engine), bench.sqlite(home, "large")
    nodes = bench.counts.nodes
    fill(graph, clock, nodes, peer)
    jobs = {
        "ours": lambda: graph.caused_by(TOOL, WITHIN),
        "sqlite": lambda: peer.caused_by(SESSION, TOOL, clock.micros(), WITHIN),
    }
    lang = None if bench.langgraph is None else bench.langgraph.ask("fill", nodes=nodes)
    samples, asked = {name: Samples() for name in jobs}, Samples()
    answers: dict[str, Any] = {}
    for _ in range(bench.counts.slow):
        if bench.langgraph is not None:
            asked.wall.append(bench.langgraph.ask("caused_by")["query_ms"] / MILLI)
        found, answers = interleave(max(1, bench.counts.queries // bench.counts.slow), jobs)
        for name, each in found.items():
            samples[name].extend(each)
    _add_caused_by(bench, samples, asked, answers)
    _rollback(bench, graph, lang)
    _huge(bench, graph)
    return graph


def _add_caused_by(bench: Bench, samples: dict[str, Samples], asked: Samples, answers: dict[str, Any]) -> None:
    ours, sqlite = samples["ours"], samples["sqlite"]
    peers: dict[str, Any] = {"sqlite": sqlite.summary()}
    ratios = {"sqlite_p50": ours.wall_ms() / sqlite.wall_ms(), "sqlite_p99": ours.wall_ms(99) / sqlite.wall_ms(99)}
    if asked.wall:
        peers["langgraph"] = {"p50_ms": rounded(asked.wall_ms()), "repetitions": len(asked.wall)}
        ratios["langgraph_p50"] = ours.wall_ms() / asked.wall_ms()
    bench.report.add(
        "caused_by",
        f"caused_by(tool, within={WITHIN:g}) of {bench.counts.nodes} nodes, {len(answers['ours'])} results, decoded",
        durability="none: a read",
        ours=ours.summary(),
        peers=peers,
        ratios=ratios,
        goals=(at_most("ours.p50_ms", ours.wall_ms(), 1.0), at_most("ours.p99_ms", ours.wall_ms(99), 8.0)),
        facts={"same_answer": alike(*answers.values())},
    )


def _huge(bench: Bench, graph: StateGraph) -> None:
    if bench.counts.huge is None:
        bench.report.skip("caused_by_huge", "1,000,000 nodes are for --full", "python bench/state.py --full")
        return
    clock = ManualClock()
    home = bench.home("huge", clock=clock)
    huge, peer = StateGraph(SESSION, engine=home.engine), bench.sqlite(home, "huge")
    fill(huge, clock, bench.counts.huge, peer)
    samples, answers = interleave(
        bench.counts.queries,
        {
            "ours": lambda: huge.caused_by(TOOL, WITHIN),
            "large": lambda: graph.caused_by(TOOL, WITHIN),
            "sqlite": lambda: peer.caused_by(SESSION, TOOL, clock.micros(), WITHIN),
        },
    )
    growth = samples["ours"].wall_ms() / samples["large"].wall_ms()
    bench.report.add(
        "caused_by_huge",
        f"the same with {bench.counts.huge} nodes, by the time with {bench.counts.nodes}",
        durability="none: a read",
        ours=samples["ours"].summary(),
        peers={"sqlite": samples["sqlite"].summary()},
        ratios={"by_large": growth, "sqlite_p50": samples["ours"].wall_ms() / samples["sqlite"].wall_ms()},
        goals=(at_most("ratios.by_large", growth, 1.5),),
        facts={"same_answer": alike(answers["ours"], answers["sqlite"])},
    )


# -- rollback ----------------------------------------------------------------------------------------------------------


def _rollback(bench: Bench, graph: StateGraph, lang: dict[str, float] | None) -> None:
    """Take back a step of 1000 nodes, in graphs of three sizes, then ask the first question."""
    graphs = {"ours": graph}
    for share in SMALL_GRAPHS:
        nodes = max(1, round(bench.counts.nodes * share))
        its_clock = ManualClock()
        graphs[str(nodes)] = StateGraph(SESSION, engine=bench.home(f"rollback-{nodes}", clock=its_clock).engine)
        fill(graphs[str(nodes)], its_clock, nodes)
    samples = {name: Samples() for name in (*graphs, "asked", "group", "restore", "restore_and_query")}
    for repetition in range(bench.counts.inserts):
        for name, each in graphs.items():
            write(each, filling_step(bench.counts.insert, CAUSED))
            samples[name].run(each.rollback)
        write(graph, filling_step(bench.counts.insert, CAUSED))
        graph.rollback()
        samples["asked"].run(lambda: graph.caused_by(TOOL, WITHIN))
        write(graph, filling_step(bench.counts.insert, CAUSED))
        graph.engine.durability = "group"
        samples["group"].run(graph.rollback)
        graph.engine.durability = "os"
        if bench.langgraph is not None and repetition % max(1, bench.counts.inserts // bench.counts.slow) == 0:
            taken = bench.langgraph.ask("restore")
            for name in ("restore", "restore_and_query"):
                samples[name].wall.append(taken[f"{name}_ms"] / MILLI)
    _add_rollback(bench, samples, lang)


def _add_rollback(bench: Bench, samples: dict[str, Samples], lang: dict[str, float] | None) -> None:
    median = {name: found.wall_ms() for name, found in samples.items()}
    sizes = {name: rounded(taken) for name, taken in median.items() if name.isdigit()}
    both = median["ours"] + median["asked"]
    ratios = {"by_small_graph": median["ours"] / min(sizes.values())}
    goals: tuple[Goal, ...] = (at_most("ratios.by_small_graph", ratios["by_small_graph"], 1.5),)
    peers: dict[str, Any] = {}
    if lang is not None:
        peers["langgraph"] = {f"{name}_p50_ms": rounded(median[name]) for name in ("restore", "restore_and_query")}
        peers["langgraph"] |= {
            "repetitions": len(samples["restore"].wall),
            "checkpoint_ms": rounded(lang["checkpoint_ms"]),
        }
        ratios["langgraph_restore"] = median["restore"] / median["ours"]
        ratios["langgraph_restore_and_query"] = median["restore_and_query"] / both
        goals += (
            at_least("ratios.langgraph_restore", ratios["langgraph_restore"], 1000.0),
            at_least("ratios.langgraph_restore_and_query", ratios["langgraph_restore_and_query"], 50.0),
        )
    bench.report.add(
        "rollback",
        f"rollback of a step of {bench.counts.insert} nodes at {bench.counts.nodes} nodes",
        durability="os; under `group` in facts. LangGraph's restore is a read",
        ours=samples["ours"].summary() | {"and_first_query_p50_ms": rounded(both)},
        peers=peers,
        ratios=ratios,
        goals=goals,
        facts={"p50_ms_by_nodes": sizes, "group_p50_ms": rounded(median["group"])},
    )


# -- versions ----------------------------------------------------------------------------------------------------------


def versions(bench: Bench, big: StateGraph) -> None:
    """Opening a version, wherever it lies: deep, on a line of many short branches, after steps of 1000 nodes."""
    home = bench.home("versions", clock=ManualClock())
    deep, branched = (StateGraph(name, engine=home.engine) for name in ("deep", "branched"))
    for number in range(bench.counts.depth):
        write(deep, Work([Item(NOTE, {"text": str(number)}, key=f"note/{number % 100}")]))
    for number in range(max(2, bench.counts.depth // 20)):
        write(branched, Work([reading(number)]))
        if number % 2:
            branched.rollback()
    graphs = {"ours": deep, "branched": branched, "steps_of_1000": big}
    ids = {name: [version.id for version in graph.history()] for name, graph in graphs.items()}
    places = {name: itertools.cycle(_spread(each)) for name, each in ids.items()}
    jobs = {name: lambda g=graph, p=places[name]: g.at(next(p)) for name, graph in graphs.items()}
    jobs["and_node"] = lambda: deep.at(next(places["ours"])).latest("note/7")
    samples, _ = interleave(bench.counts.queries, jobs)
    ours = samples.pop("ours")
    bench.report.add(
        "at_version",
        f"at(version), anywhere in {bench.counts.depth} versions",
        durability="none: a read",
        ours=ours.summary() | {"and_one_node_p50_ms": rounded(samples.pop("and_node").wall_ms())},
        goals=(
            at_most("ours.p99_ms", ours.wall_ms(99), 1.0),
            at_most("facts.branched.p99_ms", samples["branched"].wall_ms(99), 1.0),
            at_most("facts.steps_of_1000.p99_ms", samples["steps_of_1000"].wall_ms(99), 1.0),
        ),
        facts={name: found.summary() | {"versions": len(ids[name])} for name, found in samples.items()},
    )


def _spread(ids: list[str]) -> list[str]:
    """All of them, neighbours far apart."""
    stride = next(step for step in (7919, 611, 1) if len(ids) % step or step == 1)
    return [ids[number * stride % len(ids)] for number in range(len(ids))]


# -- all sessions ------------------------------------------------------------------------------------------------------


def sessions(bench: Bench) -> None:
    """`caused_by` over all sessions: a result in every fifth; and, as the worst case, in every one."""
    clock = ManualClock()
    home = bench.home("sessions", clock=clock)
    peer = bench.sqlite(home, "sessions")
    count, size = bench.counts.sessions, bench.counts.session_nodes
    _fill_sessions(bench, peer, StateGraph("first", engine=home.engine), clock)
    wide = STRETCH + WITHIN
    jobs = {
        "ours": lambda: caused_by_everywhere(home.engine, TOOL, WITHIN),
        "sqlite": lambda: peer.caused_by_everywhere(TOOL, clock.micros(), WITHIN),
        "ours_each": lambda: caused_by_everywhere(home.engine, TOOL, wide),
        "sqlite_each": lambda: peer.caused_by_everywhere(TOOL, clock.micros(), wide),
    }
    samples, answers = interleave(max(3, bench.counts.queries // 10), jobs)
    ours, sqlite = samples["ours"], samples["sqlite"]
    bench.report.add(
        "caused_by_sessions",
        f"caused_by over {count} sessions of {size} nodes, {len(answers['ours'])} results",
        durability="none: a read",
        ours=ours.summary(),
        peers={"sqlite": sqlite.summary()},
        ratios={"sqlite_p50": ours.wall_ms() / sqlite.wall_ms()},
        goals=(at_most("ours.p50_ms", ours.wall_ms(), 50.0),),
        facts={
            "same_answer": alike(answers["ours"], answers["sqlite"]),
            "a_result_in_every_session": {
                "results": len(answers["ours_each"]),
                "ours": samples["ours_each"].summary(),
                "sqlite": samples["sqlite_each"].summary(),
            },
        },
    )


STRETCH = 3600.0
"""Seconds between the results of all sessions and those of every fifth."""


def _fill_sessions(bench: Bench, peer: Any, first: StateGraph, clock: ManualClock) -> None:
    names = [f"session {number}" for number in range(bench.counts.sessions)]
    graphs = {name: StateGraph(name, engine=first.engine) for name in names}
    work = caused_step(1)
    work.items += [reading(number) for number in range(max(0, bench.counts.session_nodes - 4))]
    for name, graph in graphs.items():
        write(graph, work)
        peer.write(name, work, clock.micros())
    clock.advance(STRETCH)
    for name in names[::5]:
        write(graphs[name], caused_step(1))
        peer.write(name, caused_step(1), clock.micros())
