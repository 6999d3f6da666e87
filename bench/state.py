"""The state graph's speed, each figure beside a peer that does the same job in the same run.

    python bench/state.py            under 90 seconds on two busy cores
    python bench/state.py --full     a million nodes, more repetitions

One JSON object on stdout: the machine, the figures with their goals as numbers and whether they were met, and what
was skipped. Nothing is asserted: a figure depends on the machine, so look at the ratios first.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path

from _bench import FULL, QUICK, TINY, Bench, Counts
from _machine import machine, stalls
from _measure import Report, progress, rounded, show
from _reads import large, sessions, versions
from _threads import beside_a_writer, readers, writers
from _writes import growth, inserts, tuning, typical

FOLDER = Path(__file__).parent.parent / ".cache"


def main() -> None:
    """Measure, and print."""
    counts, where = _arguments()
    where.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-state-", dir=where))
    report = Report()
    bench = Bench(counts, folder, report)
    try:
        facts = machine(folder, counts.fsyncs, counts.seconds)
        _run(bench)
    finally:
        bench.close()
        shutil.rmtree(folder, ignore_errors=True)
    if bench.langgraph is not None:
        facts["libraries"] |= bench.langgraph.versions
    facts |= {"load_1m_after": rounded(os.getloadavg()[0]), "stalls_after": stalls(counts.seconds)}
    show(
        {
            "benchmark": "state",
            "mode": counts.mode,
            "counts": asdict(counts),
            "seconds": report.seconds,
            "machine": facts,
            "figures": report.figures,
            "skipped": report.skipped,
        }
    )
    missed = [figure["name"] for figure in report.figures if figure["met"] is False]
    progress(f"{report.seconds} s; missed: {', '.join(missed) or 'none'}")


def _arguments() -> tuple[Counts, Path]:
    parser = argparse.ArgumentParser(description="Measure the state graph beside its peers; JSON on stdout.")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="the default")
    size.add_argument("--full", action="store_true", help="a million nodes, more repetitions; some minutes")
    parser.add_argument("--tiny", action="store_true", help="a few of everything: shows that it runs, measures nothing")
    parser.add_argument(
        "--dir", type=Path, default=FOLDER, help="the disk that the homes lie on (default: %(default)s)"
    )
    given = parser.parse_args()
    return (TINY if given.tiny else FULL if given.full else QUICK), given.dir


def _run(bench: Bench) -> None:
    measuring = bench.report.measuring
    bench.start_langgraph()
    with measuring("large steps"):
        inserts(bench)
    with measuring("typical steps"):
        typical(bench)
    with measuring("bytes"):
        growth(bench)
    with measuring("caused_by and rollback in a large graph"):
        graph = large(bench)
    with measuring("opening versions"):
        versions(bench, graph)
    with measuring("all sessions"):
        sessions(bench)
    with measuring("writers"):
        writers(bench)
    with measuring("readers"):
        readers(bench, graph)
        beside_a_writer(bench, graph)
    with measuring("RocksDB's settings"):
        tuning(bench)


if __name__ == "__main__":
    main()
