"""How figures are taken: interleaved repetitions, percentiles, and each goal as a number beside what was measured.

A figure is never asserted. Peers run in turn with the product, repetition by repetition, so that what else the
machine does meanwhile falls on both; ratios are of medians unless a goal is about a percentile.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

MILLI = 1000.0


@dataclass(slots=True)
class Samples:
    """Seconds that repetitions of one job took: on the wall's clock, and of this process's CPUs (all its threads)."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def extend(self, other: Samples) -> None:
        """Take in the samples of another round."""
        self.wall += other.wall
        self.cpu += other.cpu

    def run(self, job: Callable[[], Any]) -> Any:
        """Do a job once, timed; its answer."""
        wall, cpu = time.perf_counter(), time.process_time()
        answer = job()
        self.cpu.append(time.process_time() - cpu)
        self.wall.append(time.perf_counter() - wall)
        return answer

    def wall_ms(self, percent: float = 50) -> float:
        """A percentile of the wall's time, in milliseconds."""
        return percentile(self.wall, percent) * MILLI

    def cpu_ms(self) -> float:
        """The median of the CPU's time, in milliseconds."""
        return percentile(self.cpu, 50) * MILLI

    def summary(self) -> dict[str, float | int]:
        """What the report shows of them."""
        return {
            "p50_ms": rounded(self.wall_ms(50)),
            "p99_ms": rounded(self.wall_ms(99)),
            "cpu_p50_ms": rounded(self.cpu_ms()),
            "repetitions": len(self.wall),
        }


def percentile(values: list[float], percent: float) -> float:
    """The smallest value that so many percent of the values don't exceed; NaN where there are none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def rounded(value: float) -> float:
    """Four digits that say something."""
    return float(f"{value:.4g}")


def interleave(
    repetitions: int, jobs: Mapping[str, Callable[[], Any]], *, warm_up: int = 1
) -> tuple[dict[str, Samples], dict[str, Any]]:
    """Run each job in turn, so many times, beginning with another one each time: samples and last answer by name."""
    samples = {name: Samples() for name in jobs}
    answers = {name: job() for _ in range(warm_up) for name, job in jobs.items()}
    order = list(jobs)
    for _ in range(repetitions):
        for name in order:
            answers[name] = samples[name].run(jobs[name])
        order = order[1:] + order[:1]
    return samples, answers


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure should reach: the name of the number judged, what it came to, and the limit."""

    of: str
    value: float
    bound: Literal["at_most", "at_least"]
    limit: float

    @property
    def met(self) -> bool:
        """Whether it was reached in this run."""
        return self.value <= self.limit if self.bound == "at_most" else self.value >= self.limit

    def as_dict(self) -> dict[str, Any]:
        """The goal as the report shows it."""
        return {"of": self.of, self.bound: self.limit, "value": rounded(self.value), "met": self.met}


def at_most(of: str, value: float, limit: float) -> Goal:
    """A goal that smaller numbers reach."""
    return Goal(of, value, "at_most", limit)


def at_least(of: str, value: float, limit: float) -> Goal:
    """A goal that larger numbers reach."""
    return Goal(of, value, "at_least", limit)


class Report:
    """The figures of a run, and what was skipped."""

    def __init__(self) -> None:
        self.figures: list[dict[str, Any]] = []
        self.skipped: list[dict[str, str]] = []
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long this run has taken."""
        return round(time.perf_counter() - self._began, 1)

    def add(
        self,
        name: str,
        what: str,
        *,
        durability: str,
        ours: Mapping[str, Any],
        peers: Mapping[str, Mapping[str, Any]] | None = None,
        ratios: Mapping[str, float] | None = None,
        goals: tuple[Goal, ...] = (),
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Take a figure into the report. `met` is whether all its goals were, or None where it has none."""
        self.figures.append(
            {
                "name": name,
                "what": what,
                "durability": durability,
                "ours": dict(ours),
                "peers": {peer: dict(found) for peer, found in (peers or {}).items()},
                "ratios": {of: rounded(ratio) for of, ratio in (ratios or {}).items()},
                "goals": [goal.as_dict() for goal in goals],
                "met": all(goal.met for goal in goals) if goals else None,
                "facts": dict(facts or {}),
            }
        )

    def skip(self, name: str, why: str, mend: str) -> None:
        """Say by name what was not measured."""
        self.skipped.append({"name": name, "why": why, "mend": mend})
        progress(f"skipped {name}: {why}")

    @contextmanager
    def measuring(self, name: str):
        """Show on stderr what is being measured, and how long it took."""
        began = time.perf_counter()
        progress(f"{self.seconds:6.1f} s  {name} …")
        first = len(self.figures)
        yield
        for figure in self.figures[first:]:
            verdict = {True: "met", False: "missed", None: "no goal"}[figure["met"]]
            goals = ", ".join(f"{goal['of']} {goal['value']}" for goal in figure["goals"])
            progress(f"{'':10}{figure['name']}: {verdict} {goals}")
        progress(f"{'':10}{time.perf_counter() - began:.1f} s")


def progress(text: str) -> None:
    """A line for who waits."""
    print(text, file=sys.stderr, flush=True)


def show(result: Mapping[str, Any]) -> None:
    """The whole result, as one JSON object on stdout. A number that could not be taken is null."""
    print(json.dumps(_plain(result), indent=2, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
