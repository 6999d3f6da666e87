"""Death between any two commits of a run, and again between any two of its resumption.

The process doesn't really die here: from the k-th write on the store takes nothing more, what was under way is
dropped, and the home is opened anew. So every pair of deaths can be tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent_infra import CallContext, Infra
from agent_infra.config import Project
from agent_infra.state.stores import RocksStore

GOAL: dict[str, Any] = {
    "goal": "三步",
    "subgoals": {
        "读": {"action": "look", "with": {"name": "读"}},
        "付": {"action": "pay", "with": {"name": "付"}, "after": "读"},
        "写": {"action": "store", "with": {"name": "写"}, "after": "付"},
    },
}


class Killed(BaseException):
    """What a process that was killed doesn't live to see."""


class Life:
    """How many more writes this process gets done; None for no end."""

    def __init__(self) -> None:
        self.writes: int | None = None

    def allows(self) -> bool:
        if self.writes is not None:
            self.writes -= 1
        return self.writes is None or self.writes >= 0


@pytest.fixture
def life(monkeypatch: pytest.MonkeyPatch) -> Life:
    found = Life()
    write = RocksStore.write

    def mortal(self: RocksStore, batch: Any, **options: Any) -> None:
        if not found.allows():
            raise Killed
        write(self, batch, **options)

    monkeypatch.setattr(RocksStore, "write", mortal)
    return found


class Trial:
    """One home through several lives. `effects`: (subgoal, idempotency key) of all that tools did."""

    def __init__(self, folder: Path, life: Life) -> None:
        self.folder = folder
        self.life = life
        self.effects: list[tuple[str, str]] = []

    def live(self, work: Callable[[Infra], Any], writes: int | None) -> tuple[Any, bool]:
        """What came of the work, and whether it was killed."""
        with Infra.open(self.folder, project=Project(root=self.folder.parent), durability="os") as infra:
            for name, effects in (("look", "none"), ("store", "idempotent"), ("pay", "once")):
                infra.tools.tool(name=name, effects=effects)(self._tool)
            self.life.writes = writes
            try:
                return work(infra), False
            except Killed:
                return None, True
            finally:
                self.life.writes = None

    def _tool(self, name: str, context: CallContext) -> str:
        self.effects.append((name, context.idempotency_key))
        return name

    def check(self, infra: Infra) -> None:
        """What has to hold at any moment, in any life."""
        counts = Counter(name for name, _ in self.effects)
        graph = infra.session("会话")
        assert graph.verify().ok
        assert counts["付"] <= 1
        assert len(set(self.effects)) == len(counts), "all attempts of one call have one key"
        calls: dict[str, list[Any]] = {}
        for call in reversed(graph.nodes(type="call")):
            calls.setdefault(call.data["subgoal"], []).append(call)
        receipts = Counter(node.data["call"] for node in graph.nodes(type="receipt"))
        assert set(receipts.values()) <= {1}
        for name, attempts in calls.items():
            assert [call.data["attempt"] for call in attempts] == list(range(1, len(attempts) + 1))
            assert all(call.id in receipts for call in attempts[:-1]), "only the last attempt may be open"
            assert counts[name] <= len(attempts), "no effect without its intent"
        for node in graph.nodes(type="subgoal"):
            if node.data["status"] == "succeeded":
                assert counts[node.data["name"]] >= 1


def test_no_death_repeats_a_finished_call_or_loses_one(tmp_path: Path, life: Life) -> None:
    first, deaths, ends = 0, 0, Counter[str]()
    while True:
        second, killed = -1, True
        while killed:
            second += 1
            trial = Trial(tmp_path / f"{first}.{second}", life)
            _, dead = trial.live(lambda infra: infra.run(GOAL, session="会话"), first)
            if not dead:
                assert [name for name, _ in trial.effects] == ["读", "付", "写"]
                break
            deaths += 1
            finished = set(trial.live(succeeded, None)[0])
            done = Counter(name for name, _ in trial.effects)
            _, killed = trial.live(lambda infra: infra.resume(), second)
            deaths += killed
            trial.live(trial.check, None)
            results, _ = trial.live(lambda infra: infra.resume(), None)
            trial.live(trial.check, None)
            now = Counter(name for name, _ in trial.effects)
            assert all(now[name] == done[name] for name in finished)
            ends[how(trial, results, killed)] += 1
        if not dead:
            break
        first += 1
    assert first >= 8, "the beginning, the end, and intent and receipt of three calls"
    assert deaths > 50
    assert ends["waiting"]
    assert ends["succeeded"]


def succeeded(infra: Infra) -> list[str]:
    """The subgoals whose success is on the disk."""
    return [
        node.data["name"] for node in infra.session("会话").nodes(type="subgoal") if node.data["status"] == "succeeded"
    ]


def how(trial: Trial, results: list[Any], killed: bool) -> str:
    """How it all ended, after checking that it is a way to end."""
    if not results:
        return "nothing left" if trial.effects else "not begun"
    (result,) = results
    if result.waiting:
        assert "付" in result.waiting[0]
        assert "写" not in {name for name, _ in trial.effects}
        return "waiting"
    assert result.ok
    assert result.outputs == {"读": "读", "付": "付", "写": "写"}
    return "succeeded"
