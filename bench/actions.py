"""The action layer's speed: each section by itself, or all of them.

    python bench/actions.py                    every section
    python bench/actions.py compile            some of them
    python bench/actions.py --full             more repetitions

One JSON object on stdout, as `bench/state.py` prints: the machine, the figures with their goals as numbers and whether
they were met, and what was skipped. Nothing is asserted: a figure depends on the machine, so look at the ratios first.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from _actions_compile import compiling
from _actions_run import calls, spaces, validating, workers
from _machine import machine, stalls
from _measure import Report, progress, rounded, show

FOLDER = Path(__file__).parent.parent / ".cache"
MODES = {"tiny": 5, "quick": 300, "full": 2000}
"""Repetitions of what takes about a millisecond."""
SECTIONS: dict[str, Callable[[Report, Path, int], None]] = {
    "compile": compiling,
    "validate": validating,
    "space": spaces,
    "call": calls,
    "process": workers,
}


def main() -> None:
    """Measure, and print."""
    given = _arguments()
    mode = "tiny" if given.tiny else "full" if given.full else "quick"
    given.dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-actions-", dir=given.dir))
    report = Report()
    seconds = 0.05 if mode == "tiny" else 1.0
    try:
        facts = machine(folder, 3 if mode == "tiny" else 100, seconds)
        for name in given.sections or SECTIONS:
            inside = folder / name
            inside.mkdir()
            with report.measuring(name):
                SECTIONS[name](report, inside, MODES[mode])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    facts |= {"load_1m_after": rounded(os.getloadavg()[0]), "stalls_after": stalls(seconds)}
    show(
        {
            "benchmark": "actions",
            "mode": mode,
            "counts": {"repetitions": MODES[mode]},
            "seconds": report.seconds,
            "machine": facts,
            "figures": report.figures,
            "skipped": report.skipped,
        }
    )
    missed = [figure["name"] for figure in report.figures if figure["met"] is False]
    progress(f"{report.seconds} s; missed: {', '.join(missed) or 'none'}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the action layer; JSON on stdout.")
    parser.add_argument("sections", nargs="*", metavar="section", help=f"of {', '.join(SECTIONS)}; all unless named")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="the default")
    size.add_argument("--full", action="store_true", help="more repetitions")
    parser.add_argument("--tiny", action="store_true", help="a few of everything: shows that it runs, measures nothing")
    parser.add_argument("--dir", type=Path, default=FOLDER, help="the disk that files lie on (default: %(default)s)")
    given = parser.parse_args()
    unknown = sorted(set(given.sections) - SECTIONS.keys())
    if unknown:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    return given


if __name__ == "__main__":
    main()
