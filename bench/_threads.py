"""Figures of many threads: nothing global is held while a session is written, and readers wait for nobody.

Python's interpreter lock is the one thing that all threads share: it is handed on every 5 ms at the latest, or where
its holder waits for the disk. What it does to readers is measured here too, and said.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from _bench import Bench, write
from _measure import MILLI, Samples, at_least, at_most, percentile, rounded
from _sqlite import SYNCHRONOUS
from _work import TOOL, WITHIN, agent_step, plain_step

from agent_infra.clock import SystemClock
from agent_infra.state import StateGraph

WRITERS = 16
READERS = 12
BESIDE = 4
EVERY = 0.02
"""Seconds from one question of a reader beside a writer to its next."""
_now = SystemClock().micros


def writers(bench: Bench) -> None:
    """16 writers on 16 sessions, beside the same with one lock around every write, and beside SQLite."""
    for durability, limit in (("group", 0.25), ("os", None)):
        home = bench.home(f"writers-{durability}", durability)
        names = [f"session {number}" for number in range(WRITERS)]
        graphs = [StateGraph(name, engine=home.engine) for name in names]
        intents = [write(graph, plain_step(1))[0].id for graph in graphs]
        peers = [bench.sqlite(home, f"writers-{durability}", durability) for _ in names]
        peers_intents = [peer.write(name, plain_step(1), _now())[0] for peer, name in zip(peers, names, strict=True)]
        ways: dict[str, list[Callable[[], Any]]] = {
            "ours": [_ours(*each, nullcontext()) for each in zip(graphs, intents, strict=True)],
            "global_lock": _locked(graphs, intents),
            "sqlite": [
                lambda p=peer, n=name, i=intent: p.write(n, agent_step(i), _now())
                for peer, name, intent in zip(peers, names, peers_intents, strict=True)
            ],
        }
        samples = {way: Samples() for way in ways}
        rates: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(3):
            for way, jobs in ways.items():
                began = time.perf_counter()
                _together([lambda j=job, s=samples[way]: _repeat(j, s, bench.counts.thread_writes) for job in jobs])
                rates[way].append(WRITERS * bench.counts.thread_writes / (time.perf_counter() - began))
        _add_writers(bench, durability, limit, samples, rates)


def _locked(graphs: list[StateGraph], intents: list[str]) -> list[Callable[[], Any]]:
    lock = threading.Lock()
    return [_ours(*each, lock) for each in zip(graphs, intents, strict=True)]


def _ours(graph: StateGraph, intent: str, lock: AbstractContextManager[Any]) -> Callable[[], None]:
    def job() -> None:
        with lock:
            write(graph, agent_step(intent))

    return job


def _add_writers(
    bench: Bench, durability: str, limit: float | None, samples: dict[str, Samples], rates: dict[str, list[float]]
) -> None:
    found = {
        way: {
            "p50_ms": rounded(each.wall_ms()),
            "p99_ms": rounded(each.wall_ms(99)),
            "steps_per_second": rounded(percentile(rates[way], 50)),
            "repetitions": len(each.wall),
        }
        for way, each in samples.items()
    }
    ratio = samples["ours"].wall_ms(99) / samples["global_lock"].wall_ms(99)
    bench.report.add(
        f"writers_{durability}",
        f"{WRITERS} threads writing typical steps to {WRITERS} sessions: p99 of a write",
        durability=f"{durability}; SQLite synchronous={SYNCHRONOUS[durability]}, a connection a thread",
        ours=found.pop("ours"),
        peers=found,
        ratios={
            "global_lock_p99": ratio,
            "sqlite_p99": samples["ours"].wall_ms(99) / samples["sqlite"].wall_ms(99),
        },
        goals=(at_most("ratios.global_lock_p99", ratio, limit),) if limit is not None else (),
        facts={} if limit is not None else {"why_no_goal": "without an fsync only the interpreter lock is waited for"},
    )


# -- readers -----------------------------------------------------------------------------------------------------------


def readers(bench: Bench, graph: StateGraph) -> None:
    """12 threads asking one session, by what a single one gets done."""
    single, many, taken = [], [], Samples()
    for _ in range(3):
        single.append(_rate(graph, 1, bench.counts.seconds, Samples()))
        many.append(_rate(graph, READERS, bench.counts.seconds, taken))
    one, all_of_them = percentile(single, 50), percentile(many, 50)
    bench.report.add(
        "readers",
        f"caused_by by {READERS} threads on one session: queries a second of all, by those of a single reader",
        durability="none: a read",
        ours={"queries_per_second": rounded(all_of_them), "p50_ms": rounded(taken.wall_ms())}
        | {"p99_ms": rounded(taken.wall_ms(99)), "single_queries_per_second": rounded(one)},
        ratios={"single_reader": all_of_them / one},
        goals=(at_least("ratios.single_reader", all_of_them / one, 0.8),),
        facts={"p99": "is the interpreter lock's doing: a thread keeps it for up to 5 ms"},
    )


def _rate(graph: StateGraph, threads: int, seconds: float, samples: Samples) -> float:
    done = [0] * threads
    until = time.perf_counter() + seconds

    def ask(number: int) -> None:
        while time.perf_counter() < until:
            _timed(lambda: graph.caused_by(TOOL, WITHIN), samples)
            done[number] += 1

    began = time.perf_counter()
    _together([lambda n=number: ask(n) for number in range(threads)])
    return sum(done) / (time.perf_counter() - began)


def beside_a_writer(bench: Bench, graph: StateGraph) -> None:
    """Readers that ask at fixed times beside a writer that never stops, under `group` and under `os`, and alone."""
    engine, seconds = graph.engine, bench.counts.seconds
    writer = StateGraph("writer", engine=engine)
    intent = write(writer, plain_step(1))[0].id
    samples = {"nobody": Samples(), "group": Samples(), "os": Samples()}
    written = dict.fromkeys(samples, 0)
    for _ in range(3):
        for durability, found in samples.items():
            engine.durability = "os" if durability == "nobody" else durability
            step = None if durability == "nobody" else lambda: write(writer, agent_step(intent))
            written[durability] += _read_beside(graph, step, found, seconds)
    engine.durability = "os"
    summaries = {
        name: {"p50_ms": rounded(found.wall_ms()), "p99_ms": rounded(found.wall_ms(99))}
        | {"repetitions": len(found.wall), "steps_per_second": rounded(written[name] / seconds / 3)}
        for name, found in samples.items()
    }
    bench.report.add(
        "readers_beside_writer",
        f"caused_by by {BESIDE} threads every {EVERY * MILLI:g} ms, from when it is due, beside a non-stop writer",
        durability="group; os and no writer in facts",
        ours=summaries["group"],
        goals=(at_most("ours.p99_ms", samples["group"].wall_ms(99), 8.0),),
        facts={"beside_os_writer": summaries["os"], "beside_nobody": summaries["nobody"]}
        | {
            "os": "this writer waits for no disk, so that readers wait up to 5 ms for each turn at the interpreter lock"
        },
    )


def _read_beside(graph: StateGraph, step: Callable[[], Any] | None, samples: Samples, seconds: float) -> int:
    """How many steps were written meanwhile."""
    until = time.perf_counter() + seconds
    steps = 0

    def ask(number: int) -> None:
        """Times run from the moment a question is due, so that waiting for a turn to ask it counts."""
        due = time.perf_counter() + EVERY * number / BESIDE
        while due < until:
            time.sleep(max(0.0, due - time.perf_counter()))
            graph.caused_by(TOOL, WITHIN)
            samples.wall.append(time.perf_counter() - due)
            due += EVERY

    def go_on_writing() -> None:
        nonlocal steps
        while step is not None and time.perf_counter() < until:
            step()
            steps += 1

    _together([*(lambda n=number: ask(n) for number in range(BESIDE)), go_on_writing])
    return steps


def _repeat(job: Callable[[], Any], samples: Samples, times: int) -> None:
    for _ in range(times):
        _timed(job, samples)


def _timed(job: Callable[[], Any], samples: Samples) -> None:
    """On the wall's clock only: the CPU's is the whole process's, and so of all threads."""
    began = time.perf_counter()
    job()
    samples.wall.append(time.perf_counter() - began)


def _together(jobs: list[Callable[[], Any]]) -> None:
    """Run jobs on threads that begin at one moment, to their end. An exception of one is raised here."""
    barrier = threading.Barrier(len(jobs))
    failed: list[BaseException] = []

    def run(job: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            failed.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
