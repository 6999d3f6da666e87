"""`watch` delivers each move of a head once, in order, whoever moved it and however often the watcher reconnects."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent_infra.clock import ManualClock
from agent_infra.state import Change, Home, StateEngine, StateGraph, open_home
from agent_infra.state.stores import MemoryStore

PATIENCE = 30.0
BASE = 40


def all_behind(graph: StateGraph, since: int = 0) -> list[Change]:
    return list(graph.watch(since=since, timeout=0))


@contextmanager
def in_parallel(*work: Callable[[], object]) -> Iterator[None]:
    with ThreadPoolExecutor(len(work)) as pool:
        running = [pool.submit(each) for each in work]
        yield
        for each in running:
            each.result(PATIENCE)


def move_about(graph: StateGraph, seed: int, moves: int) -> list[str]:
    """So many steps and rollbacks of a head that has BASE steps to go back by; the versions that the steps made."""
    draw = random.Random(seed)
    made: list[str] = []
    for number in range(moves):
        if draw.random() < 0.2:
            graph.rollback(draw.randrange(2))
        else:
            with graph.step() as step:
                step.add_node("note", {"text": f"第 {number}"}, key=str(seed))
            made.append(step.version or "")
    return made


def check_feed(graph: StateGraph, changes: Sequence[Change]) -> None:
    """Numbered without a gap, each version one that can be opened, the last one the head."""
    assert [change.seq for change in changes] == list(range(1, len(changes) + 1))
    assert changes[-1].version == graph.version
    for change in changes:
        assert graph.at(change.version).version == change.version


# -- what is told --------------------------------------------------------------------------------------------------------


def test_steps_rollbacks_and_forks_are_told_in_order(graph: StateGraph) -> None:
    graph.add_node("note", {})
    first = graph.version
    graph.add_node("note", {})
    second = graph.version
    graph.rollback(why="错")
    fork = graph.fork("fork")
    fork.add_node("note", {})
    assert [(change.kind, change.version) for change in all_behind(graph)] == [
        ("step", first),
        ("step", second),
        ("rollback", first),
    ]
    assert [(change.kind, change.version) for change in all_behind(fork)] == [("fork", first), ("step", fork.version)]
    check_feed(graph, all_behind(graph))


def test_what_makes_no_version_is_not_told(graph: StateGraph) -> None:
    with graph.step():
        pass
    with pytest.raises(ZeroDivisionError), graph.step() as step:
        step.add_node("note", {})
        raise ZeroDivisionError
    graph.add_node("note", {})
    assert [change.version for change in all_behind(graph)] == [graph.version]


def test_one_goes_on_behind_any_change(graph: StateGraph) -> None:
    for _ in range(10):
        graph.add_node("note", {})
    whole = all_behind(graph)
    for change in whole:
        assert all_behind(graph, change.seq) == whole[change.seq :]
    assert all_behind(graph, 10_000) == []


def test_from_now_on_means_from_the_call_on(graph: StateGraph) -> None:
    """Not from when the first change is asked for: what happens in between would be lost."""
    graph.add_node("note", {})
    changes = graph.watch(timeout=0)
    graph.add_node("note", {})
    assert [change.version for change in changes] == [graph.version]


def test_other_sessions_are_not_told_of(home: Home) -> None:
    one, other = StateGraph("a", engine=home.engine), StateGraph("a.b", engine=home.engine)
    one.add_node("note", {})
    other.add_node("note", {})
    StateGraph("ab", engine=home.engine).add_node("note", {})
    assert [change.version for change in all_behind(one)] == [one.version]
    assert [change.version for change in all_behind(other)] == [other.version]


def test_a_session_that_is_not_there_yet_can_be_watched(graph: StateGraph) -> None:
    assert all_behind(graph) == []
    graph.add_node("note", {})
    assert len(all_behind(graph)) == 1


def test_the_feed_outlives_the_process_and_collection(tmp_path: Path, clock: ManualClock) -> None:
    home = open_home(tmp_path / "feed", clock=clock)
    graph = StateGraph("s", engine=home.engine)
    for _ in range(5):
        graph.add_node("note", {}, key="k")
    graph.rollback(2)
    graph.gc(keep_last=1, abandoned_after=0)
    whole = all_behind(graph)
    home.close()
    home = open_home(tmp_path / "feed", clock=clock)
    graph = StateGraph("s", engine=home.engine)
    assert all_behind(graph) == whole
    graph.add_node("note", {})
    assert [change.seq for change in all_behind(graph, whole[-1].seq)] == [whole[-1].seq + 1]
    home.close()


def test_a_change_is_told_once_it_is_on_the_disk() -> None:
    store = _Unsynced()
    engine = StateEngine(store, durability="group")
    graph = StateGraph("s", engine=engine)
    with graph.step(durable=False) as step:
        step.add_node("note", {})
    assert store.pending > 0
    (change,) = all_behind(graph)
    assert store.pending == 0
    assert change.version == step.version


class _Unsynced(MemoryStore):
    """Counts writes that no sync has followed yet."""

    pending = 0

    def write(self, batch: Sequence[tuple[bytes, bytes | None]], *, sync: bool = False) -> None:
        super().write(batch, sync=sync)
        self.pending += 1

    def sync(self) -> None:
        self.pending = 0


# -- beside writers ------------------------------------------------------------------------------------------------------


def test_every_watcher_is_told_every_move_of_concurrent_writers(home: Home, request: pytest.FixtureRequest) -> None:
    """Several writers of one session; watchers that stay, that come late, and that reconnect again and again."""
    seed = int(request.config.getoption("--hypothesis-seed"))
    print("seed", seed)
    graph = StateGraph("s", engine=home.engine)
    writers, moves = 3, 60
    total = BASE + writers * moves
    base = [graph.version for _ in range(BASE) if graph.add_node("note", {})]
    told: dict[str, list[Change]] = {"stays": [], "late": [], "reconnects": []}

    def stay(name: str, since: int) -> None:
        for change in graph.watch(since=since, timeout=PATIENCE):
            told[name].append(change)
            if change.seq == total:
                return

    def reconnect() -> None:
        draw, since = random.Random(seed), 0
        while since < total:
            for change in StateGraph("s", engine=home.engine).watch(since=since, timeout=0.01):
                told["reconnects"].append(change)
                since = change.seq
                if draw.random() < 0.3:
                    break

    def come_late() -> None:
        time.sleep(0.05)
        stay("late", 0)

    written: list[list[str]] = []
    write = [lambda each=each: written.append(move_about(graph, seed + each, moves)) for each in range(writers)]
    with in_parallel(lambda: stay("stays", 0), reconnect, come_late, *write):
        pass
    check_feed(graph, told["stays"])
    assert len(told["stays"]) == total
    assert told["late"] == told["reconnects"] == told["stays"]
    steps = [change.version for change in told["stays"] if change.kind == "step"]
    for own in written:
        assert [version for version in steps if version in set(own)] == own
    assert sorted(steps) == sorted(version for own in [base, *written] for version in own)


def test_a_watcher_sees_what_it_is_told_of(home: Home) -> None:
    """Whoever is told of a version can open it at once, and its head is no older."""
    graph = StateGraph("s", engine=home.engine)

    def watch() -> None:
        for change in graph.watch(since=0, timeout=PATIENCE):
            assert graph.at(change.version).nodes(key="k")[0].data == {"n": change.seq}
            assert graph.nodes(key="k")[0].data["n"] >= change.seq
            if change.seq == 100:
                return

    def write() -> None:
        for number in range(1, 101):
            graph.add_node("note", {"n": number}, key="k")

    with in_parallel(watch, watch, write):
        pass


def test_agents_stay_in_step_by_watching(home: Home) -> None:
    """A planner asks, an executor answers each question once, in order; neither ever polls."""
    questions = 30

    def plan() -> None:
        graph = StateGraph("s", engine=home.engine, agent="planner")
        for number in range(questions):
            graph.add_node("question", {"n": number}, key="question")
            for _ in graph.watch(since=0, timeout=PATIENCE):
                answer = graph.latest("answer")
                if answer is not None and answer.data["n"] == number:
                    break

    def execute() -> None:
        graph = StateGraph("s", engine=home.engine, agent="执行者")
        done = -1
        for _ in graph.watch(since=0, timeout=PATIENCE):
            question = graph.latest("question")
            if question is not None and question.data["n"] > done:
                done = question.data["n"]
                graph.add_node("answer", {"n": done}, key="answer")
            if done == questions - 1:
                return

    with in_parallel(plan, execute):
        pass
    graph = StateGraph("s", engine=home.engine)
    answers = graph.nodes(type="answer", lifecycle=None)
    assert [node.data["n"] for node in answers] == list(range(questions))[::-1]


def test_a_watch_ends_when_nothing_came_for_its_time(graph: StateGraph) -> None:
    graph.add_node("note", {})
    began = time.monotonic()
    assert len(list(graph.watch(since=0, timeout=0.1))) == 1
    assert time.monotonic() - began >= 0.1


def test_a_waiting_watch_is_woken(graph: StateGraph) -> None:
    waiting = threading.Event()

    def watch() -> str:
        changes = graph.watch(timeout=PATIENCE)
        waiting.set()
        return next(changes).version

    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(watch)
        assert waiting.wait(PATIENCE)
        graph.add_node("note", {})
        assert told.result(PATIENCE) == graph.version


# -- the async twin ------------------------------------------------------------------------------------------------------


def test_the_async_twin_tells_the_same(graph: StateGraph) -> None:
    graph.add_node("note", {})
    graph.add_node("note", {})
    graph.rollback()

    async def told() -> list[Change]:
        return [change async for change in graph.awatch(since=0, timeout=0.05)]

    assert asyncio.run(told()) == all_behind(graph)


def test_from_now_on_means_from_the_call_on_in_a_loop_too(graph: StateGraph) -> None:
    async def told() -> list[Change]:
        changes = graph.awatch(timeout=0.05)
        await asyncio.to_thread(graph.add_node, "note", {})
        return [change async for change in changes]

    assert [change.version for change in asyncio.run(told())] == [graph.version]


def test_many_async_watchers_beside_threads_that_write(home: Home, request: pytest.FixtureRequest) -> None:
    seed = int(request.config.getoption("--hypothesis-seed"))
    print("seed", seed)
    graph = StateGraph("s", engine=home.engine)
    writers, moves = 2, 40
    total = BASE + writers * moves
    for _ in range(BASE):
        graph.add_node("note", {})

    async def watch(number: int) -> list[Change]:
        draw, told, since = random.Random(seed + number), list[Change](), 0
        while since < total:
            async for change in graph.awatch(since=since, timeout=0.2):
                told.append(change)
                since = change.seq
                if since == total or draw.random() < 0.1:
                    break
        return told

    async def everybody() -> list[list[Change]]:
        work = [asyncio.to_thread(move_about, graph, seed + each, moves) for each in range(writers)]
        watchers = [watch(number) for number in range(8)]
        return (await asyncio.gather(*watchers, *work))[: len(watchers)]  # pyright: ignore[reportReturnType]

    told = asyncio.run(asyncio.wait_for(everybody(), PATIENCE))
    check_feed(graph, told[0])
    assert len(told[0]) == total
    assert all(each == told[0] for each in told)


def test_a_cancelled_watcher_leaves_nothing_behind(graph: StateGraph) -> None:
    async def begin_and_cancel() -> None:
        async def watch() -> None:
            async for _ in graph.awatch(timeout=None):
                pass

        task = asyncio.create_task(watch())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(begin_and_cancel())
    graph.add_node("note", {})
    assert len(all_behind(graph)) == 1
