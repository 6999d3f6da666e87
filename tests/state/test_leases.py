"""Leases: one leader a session, a token that grows, and no commit by an owner that stalled."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agent_infra.clock import ManualClock
from agent_infra.errors import InvalidNode, LeaseHeld, LeaseLost, LockTimeout, StoreFull
from agent_infra.state import Home, Lease, StateEngine, StateGraph, open_home
from agent_infra.state.stores import MemoryStore, Write

PATIENCE = 30.0


def alarms(home: Home) -> list[dict[str, object]]:
    return [node.data for node in StateGraph.of_system(home.engine, "_control").nodes(type="alarm")]


def commit(graph: StateGraph, lease: Lease | None) -> str | None:
    with graph.step(lease=lease) as step:
        step.add_node("note", {"text": "天气"})
    return step.version


# -- one leader ----------------------------------------------------------------------------------------------------------


def test_who_leads_is_named_to_whoever_would_like_to(graph: StateGraph) -> None:
    lease = graph.lease(10, owner="计划者")
    with pytest.raises(LeaseHeld) as caught:
        graph.lease(10, owner="other")
    assert caught.value.facts["owner"] == "计划者"
    assert "计划者" in str(caught.value)
    lease.release()
    assert graph.lease(10, owner="other").owner == "other"


def test_the_token_grows_with_each_owner_and_outlives_the_process(tmp_path: Path, clock: ManualClock) -> None:
    tokens: list[int] = []
    for _ in range(3):
        home = open_home(tmp_path / "leases", clock=clock)
        graph = StateGraph("s", engine=home.engine)
        with graph.lease(10) as lease:
            tokens.append(lease.token)
        tokens.append(graph.lease(10).token)
        clock.advance(11)
        home.close()
    assert tokens == [1, 2, 3, 4, 5, 6]


def test_sessions_have_leases_of_their_own(home: Home) -> None:
    one, other = StateGraph("a", engine=home.engine), StateGraph("a.b", engine=home.engine)
    assert (one.lease(10).token, other.lease(10).token) == (1, 1)


def test_the_agent_of_a_graph_is_the_owner(home: Home) -> None:
    assert StateGraph("s", engine=home.engine, agent="执行者").lease(1).owner == "执行者"


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf")])
def test_a_lease_for_no_length_of_time_is_refused(graph: StateGraph, seconds: float) -> None:
    with pytest.raises(InvalidNode):
        graph.lease(seconds)


def test_of_many_who_want_to_lead_one_does_at_a_time(home: Home) -> None:
    leading, tokens = threading.Lock(), list[int]()

    def lead(number: int) -> None:
        graph = StateGraph("s", engine=home.engine, agent=f"agent {number}")
        for _ in range(10):
            try:
                with graph.lease(60) as lease:
                    assert leading.acquire(blocking=False), "two lead"
                    tokens.append(lease.token)
                    commit(graph, lease)
                    leading.release()
            except LeaseHeld:
                pass

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lead, range(6)))
    assert tokens == list(range(1, len(tokens) + 1))
    assert len(StateGraph("s", engine=home.engine).history()) == len(tokens)


# -- fencing -------------------------------------------------------------------------------------------------------------


def test_an_owner_that_stalled_can_not_commit(graph: StateGraph, clock: ManualClock) -> None:
    stalled = graph.lease(10, owner="stalled")
    commit(graph, stalled)
    clock.advance(10)
    successor = graph.lease(10, owner="successor")
    assert successor.token == stalled.token + 1
    head = commit(graph, successor)
    with pytest.raises(LeaseLost) as caught:
        commit(graph, stalled)
    assert caught.value.facts["newest"] == successor.token
    assert "successor" in str(caught.value)
    assert graph.version == head
    commit(graph, successor)
    with pytest.raises(LeaseLost):
        stalled.renew()


def test_a_lease_that_ran_out_gives_no_right_even_if_nobody_took_over(graph: StateGraph, clock: ManualClock) -> None:
    lease = graph.lease(10)
    clock.advance(9.999999)
    head = commit(graph, lease)
    clock.advance(0.000001)
    with pytest.raises(LeaseLost):
        commit(graph, lease)
    with pytest.raises(LeaseLost):
        lease.renew()
    assert graph.version == head


def test_a_lease_that_runs_out_inside_a_step_stops_its_commit(graph: StateGraph, clock: ManualClock) -> None:
    lease = graph.lease(10)
    before = graph.version
    with pytest.raises(LeaseLost), graph.step(lease=lease) as step:
        step.add_node("note", {})
        clock.advance(20)
    assert graph.version == before
    assert graph.verify().ok


def test_nobody_takes_over_in_the_middle_of_a_step(graph: StateGraph, clock: ManualClock) -> None:
    """Between the check of a lease and the write under it, there is no room for another."""
    lease = graph.lease(10)
    with pytest.raises(LeaseLost), graph.step(lease=lease) as step:
        step.add_node("note", {})
        clock.advance(20)
        with ThreadPoolExecutor(1) as pool, pytest.raises(LockTimeout):
            pool.submit(graph.lease, 10, "successor", 0.05).result(PATIENCE)
    assert graph.lease(10, owner="successor").token == lease.token + 1


def test_a_lease_of_another_session_gives_no_right(home: Home) -> None:
    one, other = StateGraph("one", engine=home.engine), StateGraph("other", engine=home.engine)
    with pytest.raises(LeaseLost):
        commit(other, one.lease(10))
    assert other.history() == []


def test_releasing_a_lost_lease_harms_nobody(graph: StateGraph, clock: ManualClock) -> None:
    lost = graph.lease(10, owner="lost")
    clock.advance(11)
    successor = graph.lease(10, owner="successor")
    lost.release()
    with pytest.raises(LeaseHeld):
        graph.lease(10, owner="third")
    assert commit(graph, successor) == graph.version


def test_a_released_lease_gives_no_right(graph: StateGraph) -> None:
    with graph.lease(10) as lease:
        commit(graph, lease)
    with pytest.raises(LeaseLost):
        commit(graph, lease)
    with pytest.raises(ZeroDivisionError), graph.lease(10) as lease:
        raise ZeroDivisionError
    assert graph.lease(10).token == lease.token + 1


# -- what is noted -------------------------------------------------------------------------------------------------------


def test_a_lease_that_ran_out_is_noted_as_it_is_taken_over(home: Home, graph: StateGraph, clock: ManualClock) -> None:
    graph.lease(10, owner="停住的")
    clock.advance(11)
    assert alarms(home) == []
    graph.lease(10, owner="next").release()
    noted = [{"kind": "lease_expired", "session": graph.session_id, "owner": "停住的", "token": 1}]
    assert alarms(home) == noted
    with graph.lease(10):
        pass
    assert alarms(home) == noted, "a released lease did not run out"
    assert graph.history() == [], "a lease moves no head"


# -- renewal -------------------------------------------------------------------------------------------------------------


def test_a_lease_is_renewed_while_its_owner_is_busy(tmp_path: Path) -> None:
    """On the real clock, for several times its length, with the main thread blocked all the while."""
    home = open_home(tmp_path / "busy", durability="os")
    graph = StateGraph("s", engine=home.engine)
    with graph.lease(0.6) as lease:
        time.sleep(2.0)
        with pytest.raises(LeaseHeld):
            graph.lease(1, owner="other")
        assert commit(graph, lease) == graph.version
    home.close()


def test_a_lease_is_renewed_while_its_owner_is_busy_inside_a_step(tmp_path: Path) -> None:
    home = open_home(tmp_path / "busy", durability="os")
    graph = StateGraph("s", engine=home.engine)
    with graph.lease(0.6) as lease:
        with graph.step(lease=lease) as step:
            step.add_node("note", {})
            time.sleep(2.0)
        assert step.version == graph.version
    home.close()


def test_renewal_gives_the_full_time_again(graph: StateGraph, clock: ManualClock) -> None:
    lease = graph.lease(10)
    for _ in range(5):
        clock.advance(9)
        lease.renew()
    clock.advance(9)
    assert commit(graph, lease) == graph.version


def test_a_lost_lease_is_renewed_no_more(home: Home, graph: StateGraph, clock: ManualClock) -> None:
    with graph.lease(0.09, owner="lost") as lease:
        clock.advance(1)
        successor = graph.lease(10, owner="successor")
        time.sleep(0.15)
        assert not any(thread.name == f"lease-{graph.session_id}" for thread in threading.enumerate())
        with pytest.raises(LeaseLost):
            commit(graph, lease)
    assert commit(graph, successor) == graph.version


class _Failing(MemoryStore):
    """A disk that is full for a while."""

    full = False

    def write(self, batch: Sequence[Write], *, sync: bool = False) -> None:
        if self.full:
            raise StoreFull("the disk refused the write")
        super().write(batch, sync=sync)


def test_a_renewal_that_fails_is_tried_again() -> None:
    store = _Failing()
    graph = StateGraph("s", engine=StateEngine(store, durability="os"))
    with graph.lease(1.5) as lease:
        store.full = True
        time.sleep(0.7)
        store.full = False
        time.sleep(1.5)
        assert commit(graph, lease) == graph.version


def test_closing_the_home_ends_the_renewal_quietly(tmp_path: Path) -> None:
    home = open_home(tmp_path / "closed", durability="os")
    graph = StateGraph("s", engine=home.engine)
    lease = graph.lease(0.09)
    lease.__enter__()
    home.close()
    time.sleep(0.15)
    assert not any(thread.name == "lease-s" for thread in threading.enumerate())
