"""Weaving: joins by event, waits for evidence, versions that are never overwritten, rules that change while it runs."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from agent_infra import background
from agent_infra.content import cid_of
from agent_infra.errors import EventUnknown, FileMissing, RuleErrors, SourceInvalid, WouldDeadlock
from agent_infra.rewards import FunctionSource, MetricSource, RewardWeaver, Signal, WeaverParts
from agent_infra.state import StateGraph, open_home

SIMPLE = """version: 1
sources:
  a: {range: [-1, 1], weight: 1, lateness: 1h}
  b: {range: [-1, 1], weight: 1, lateness: 2h}
"""


# -- one event ---------------------------------------------------------------------------------------------------------


def test_a_reward_is_one_record_stored_by_its_cid(ruled: Any) -> None:
    call = ruled.call(seconds=3)
    ruled.weaver.ingest(Signal("user_satisfaction", 0.5, call, evidence={"答案": "不错"}))
    ruled.weaver.ingest(Signal("response_latency", 3, call))
    reward = ruled.weaver.weave(call)
    assert (reward.value, reward.micro, reward.status) == (0.59, 590_000, "complete")
    assert [(row.source, row.rule, row.micro) for row in reward.contributions] == [
        ("response_latency", None, 240_000),
        ("user_satisfaction", None, 350_000),
    ]
    assert sum(row.micro for row in reward.contributions) == reward.micro
    assert (reward.event_id, reward.event_ids, reward.session) == (call, [call], ruled.session)
    assert reward.rule_set == ruled.weaver.rules.hash
    assert cid_of(reward.record) == reward.cid
    assert ruled.home.blobs.get_value(reward.cid) == reward.record
    assert ruled.home.blobs.get_value(reward.rule_set) == ruled.weaver.rules.meaning


def test_signals_join_their_event_and_no_other(ruled: Any) -> None:
    first, second = ruled.call(), ruled.call()
    ruled.weaver.ingest(Signal("user_satisfaction", 1, first))
    ruled.clock.advance(17)
    ruled.weaver.ingest(Signal("user_satisfaction", -1, second))
    assert [ruled.weaver.weave(call).value for call in (first, second)] == [1, -1]


def test_what_is_missing_is_named_and_never_invented(ruled: Any) -> None:
    call = ruled.call()
    nothing = ruled.weaver.weave(call)
    assert (nothing.value, nothing.micro, nothing.status, nothing.contributions) == (None, None, "unscored", [])
    assert nothing.reason.code == "no_signal"
    assert nothing.missing == ["response_latency", "user_satisfaction"]
    ruled.weaver.ingest(Signal("user_satisfaction", 0, call))
    reward = ruled.weaver.weave(call)
    assert (reward.value, reward.status, reward.missing) == (0, "waiting", ["response_latency"])


def test_an_unknown_event_is_refused(ruled: Any) -> None:
    for event in ("nothing", "01ARZ3NDEKTSV4RRFFQ69G5FAV", ""):
        with pytest.raises(EventUnknown):
            ruled.weaver.weave(event)


def test_without_rules_rewards_are_unscored_with_that_reason(world: Any) -> None:
    assert world.weaver.rules.is_empty
    call = world.call()
    assert world.weaver.weave(call).reason.code == "no_rules"
    world.rules(SIMPLE)
    assert world.weaver.weave(call).reason.code == "no_signal"


def test_abandoned_branches_keep_collecting_evidence(ruled: Any) -> None:
    joined = '{s: {session: \'s.tool == "weather" && s.agent == "planner" && s.action == "get_weather"\'}}'
    ruled.rules(SIMPLE + f"rules: [{{id: r, when: {joined}, then: {{add: 0.25}}}}]")
    call = ruled.call()
    ruled.weaver.ingest(Signal("a", 0.5, call))
    ruled.graph.rollback()
    ruled.weaver.ingest(Signal("b", 0.5, call))
    assert ruled.weaver.weave(call).value == 0.75


# -- versions ----------------------------------------------------------------------------------------------------------


def test_new_evidence_gives_a_new_version_and_nothing_else_does(world: Any) -> None:
    world.rules(SIMPLE)
    call = world.call()
    world.weaver.ingest(Signal("a", 0.5, call))
    first = world.weaver.weave(call)
    world.clock.advance(60)
    assert world.weaver.weave(call) == first
    world.rules(
        SIMPLE.replace("weight: 1", "weight: 3") + "rules: [{id: r, when: {r: {signal: 'true'}}, then: {add: 0.1}}]"
    )
    assert world.weaver.weave(call) == first

    world.weaver.ingest(Signal("b", -0.1, call))
    second = world.weaver.weave(call)
    assert second.version != first.version
    assert second.record["previous"] == first.cid
    assert second.rule_set == world.weaver.rules.hash != first.rule_set
    assert second.value == pytest.approx(0.2 + 0.2)
    assert world.home.blobs.get_value(first.cid) == first.record

    ledger = StateGraph.of_system(world.home.engine, f"{world.session}/rewards")
    newest, older = ledger.nodes(type="woven_reward", lifecycle=None)
    assert (newest.lifecycle, older.lifecycle) == ("active", "superseded")
    causes = {edge.source for edge in ledger.edges(newest.id) if edge.type == "causes"}
    assert causes == set(second.evidence)


def test_when_it_is_too_late_the_same_version_is_closed(world: Any) -> None:
    world.rules(SIMPLE)
    call = world.call()
    world.weaver.ingest(Signal("a", 0.5, call))
    waiting = world.weaver.weave(call)
    world.clock.advance(7199)
    assert world.weaver.weave(call) == waiting
    world.clock.advance(2)
    closed = world.weaver.weave(call)
    assert (waiting.status, closed.status) == ("waiting", "closed")
    assert (closed.version, closed.value, closed.missing) == (waiting.version, waiting.value, ["b"])
    assert closed.record["previous"] == waiting.cid
    assert world.weaver.ingest(Signal("b", 1, call)).status == "late"
    assert world.weaver.weave(call) == closed


def test_a_correction_counts_by_event_time(world: Any) -> None:
    world.rules(SIMPLE)
    call = world.call()
    world.weaver.ingest(Signal("a", -1, call))
    world.clock.advance(1)
    world.weaver.ingest(Signal("a", 1, call))
    assert world.weaver.weave(call).value == 1


def test_records_survive_reopening(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(SIMPLE)
    home = open_home(tmp_path / "home")
    weaver = RewardWeaver(WeaverParts(home.engine, home.blobs))
    weaver.load_rules(rules)
    call = StateGraph("s", engine=home.engine).add_node("note", {"text": "答复"}).id
    weaver.ingest(Signal("a", 0.5, call))
    first = weaver.weave(call)
    home.close()
    home = open_home(tmp_path / "home")
    weaver = RewardWeaver(WeaverParts(home.engine, home.blobs))
    assert weaver.weave(call) == first
    home.close()


def test_threads_that_weave_the_same_event_give_one_record(ruled: Any) -> None:
    call = ruled.call()
    ruled.weaver.ingest(Signal("user_satisfaction", 0.5, call))
    with ThreadPoolExecutor(8) as pool:
        rewards = list(pool.map(lambda _: ruled.weaver.weave(call), range(16)))
    assert len({reward.cid for reward in rewards}) == 1
    ledger = StateGraph.of_system(ruled.home.engine, f"{ruled.session}/rewards")
    assert len(ledger.nodes(type="woven_reward", lifecycle=None)) == 1


def test_threads_that_send_the_same_signal_leave_one(ruled: Any) -> None:
    call = ruled.call()
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda _: ruled.weaver.ingest(Signal("user_satisfaction", 0.5, call)), range(16)))
    assert sorted(receipt.status for receipt in receipts) == ["accepted"] + ["duplicate"] * 15
    assert len({receipt.signal_id for receipt in receipts}) == 1


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_waiting_ends_as_the_last_expected_signal_comes(world: Any) -> None:
    world.rules(SIMPLE)
    call = world.call()
    sent = threading.Event()

    def send() -> None:
        time.sleep(0.05)
        world.weaver.ingest(Signal("a", 0.5, call))
        time.sleep(0.05)
        sent.set()
        world.weaver.ingest(Signal("b", 0.5, call))

    thread = threading.Thread(target=send)
    thread.start()
    reward = world.weaver.weave(call, wait=60)
    assert sent.is_set()
    assert (reward.status, reward.value) == ("complete", 0.5)
    thread.join()


def test_waiting_ends_with_the_time_and_names_what_is_missing(world: Any) -> None:
    world.rules(SIMPLE)
    call = world.call()
    world.weaver.ingest(Signal("a", 0.5, call))
    reward = world.weaver.weave_reward(world.result(call), wait=0.05)
    assert (reward.status, reward.missing) == ("waiting", ["b"])


def test_nobody_waits_for_what_is_too_late_or_only_for_rules(world: Any) -> None:
    world.rules(SIMPLE + "  c: {range: [0, 1]}\n")
    call = world.call()
    world.weaver.ingest(Signal("a", 0.5, call))
    world.weaver.ingest(Signal("b", 0.5, call))
    assert world.weaver.weave(call, wait=3600).status == "complete"
    other = world.call()
    world.weaver.ingest(Signal("a", 0.5, other))
    world.clock.advance(7201)
    assert world.weaver.weave(other, wait=3600).status == "closed"


def test_sources_are_told_which_event_wants_them(world: Any) -> None:
    world.rules(SIMPLE + "  latency: {range: [0, 10], better: low, weight: 2}\n")
    world.weaver.add_source(FunctionSource("a", lambda _: Signal("a", 0.5)))
    world.weaver.add_source(MetricSource("latency", "seconds"))
    asked: list[str] = []

    async def later(event: Any) -> Signal | None:
        asked.append(event.id)
        return Signal("b", -0.5, event.id) if len(asked) > 2 else None

    world.weaver.add_source(FunctionSource("b", later, first_delay=0.01))
    call = world.call(seconds=2.5)
    reward = world.weaver.weave_reward(world.result(call), wait=60)
    assert (reward.status, reward.value) == ("complete", 0.25)
    assert asked == [call, call, call]
    assert world.weaver.weave(call, wait=60) == reward
    assert len(asked) == 3


def test_a_source_for_rules_only_is_asked_too(ruled: Any, until: Any) -> None:
    ruled.weaver.add_source(FunctionSource("compliance_api", lambda _: Signal("compliance_api", -1, priority="high")))
    call = ruled.call()
    for source, value in (("user_satisfaction", 1), ("response_latency", 0)):
        ruled.weaver.ingest(Signal(source, value, call))
    ruled.weaver.weave(call)
    until(lambda: ruled.weaver.parts.sources["compliance_api"].health.delivered)
    assert ruled.weaver.weave(call).value == -1


def test_a_source_that_fails_leaves_its_signal_missing(world: Any, until: Any) -> None:
    world.rules(SIMPLE)

    def broken(event: Any) -> Signal | None:
        raise RuntimeError("数据库断开")

    source = FunctionSource("a", broken, first_delay=0.01)
    world.weaver.add_source(source)
    world.weaver.add_source(FunctionSource("b", lambda _: Signal("b", 0.5)))
    call = world.call()
    world.weaver.weave(call)
    until(lambda: source.health.last_error and world.weaver.health()["b"].delivered)
    reward = world.weaver.weave(call)
    assert (reward.value, reward.missing) == (0.5, ["a"])
    assert world.weaver.health()["a"].last_error == "数据库断开"
    assert not source.health.ok


def test_two_sources_may_not_have_one_name(world: Any) -> None:
    world.weaver.add_source(MetricSource("latency", "seconds"))
    with pytest.raises(SourceInvalid, match="latency"):
        world.weaver.add_source(MetricSource("latency", "tokens"))


def test_the_async_twins_work_in_any_loop(world: Any) -> None:
    world.rules(SIMPLE)
    call = world.call()
    world.weaver.add_source(FunctionSource("a", lambda _: Signal("a", 0.5)))
    world.weaver.add_source(FunctionSource("b", lambda _: Signal("b", 0.5)))

    async def both() -> tuple[Any, Any]:
        return await world.weaver.aweave(call, wait=60), await world.weaver.aweave_reward(world.result(call))

    one, other = asyncio.run(both())
    assert one == other
    assert one.status == "complete"


def test_waiting_on_the_background_loop_itself_names_the_twin(world: Any) -> None:
    world.rules(SIMPLE)
    call = world.call()

    async def wrong() -> None:
        world.weaver.weave(call, wait=1)

    with pytest.raises(WouldDeadlock, match="aweave"):
        background.wait_for(wrong(), twin="")


# -- several events ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("episode", "micro"), [("mean", 233_333), ("sum", 700_000), ("last", -200_000)])
def test_events_combine_as_the_rules_say_and_the_unscored_are_masked(world: Any, episode: str, micro: int) -> None:
    world.rules(SIMPLE + f"episode: {episode}\n")
    calls = [world.call() for _ in range(4)]
    for call, values in zip(calls, [(1, 0), (0.9, -0.1), None, (-0.5, 0.1)], strict=True):
        if values is not None:
            world.weaver.ingest(Signal("a", values[0], call))
            world.weaver.ingest(Signal("b", values[1], call))
    reward = world.weaver.weave_reward(world.result(*calls), wait=0)
    assert reward.micro == micro
    assert sum(row.micro for row in reward.contributions) == micro
    assert reward.event_ids == calls
    assert [part["micro"] for part in reward.record["parts"]] == [500_000, 400_000, None, -200_000]
    assert (reward.status, reward.missing) == ("waiting", ["a", "b"])
    assert world.home.blobs.get_value(reward.cid) == reward.record


def test_an_episode_changes_only_with_its_events(world: Any) -> None:
    world.rules(SIMPLE)
    calls = [world.call(), world.call()]
    world.weaver.ingest(Signal("a", 0.5, calls[0]))
    first = world.weaver.weave_reward(world.result(*calls), wait=0)
    world.clock.advance(5)
    world.rules(SIMPLE + "episode: sum\n")
    assert world.weaver.weave_reward(world.result(*calls), wait=0) == first
    world.weaver.ingest(Signal("a", 0.25, calls[1]))
    second = world.weaver.weave_reward(world.result(*calls), wait=0)
    assert (first.value, second.value) == (0.5, 0.75)
    assert second.record["previous"] == first.cid


def test_the_reward_of_one_event_is_that_events_own_record(world: Any) -> None:
    world.rules(SIMPLE)
    call = world.call()
    world.weaver.ingest(Signal("a", 0.5, call))
    assert world.weaver.weave_reward(world.result(call), wait=0) == world.weaver.weave(call)
    assert world.weaver.weave_reward(world.result(call, call), wait=0) == world.weaver.weave(call)


def test_a_result_without_events_is_unscored(world: Any) -> None:
    world.rules(SIMPLE)
    reward = world.weaver.weave_reward(world.result())
    assert (reward.value, reward.status, reward.event_id) == (None, "unscored", None)
    assert reward.reason.code == "no_event"
    assert "no event" in reward.report()


def test_no_event_of_several_with_a_value_is_unscored(world: Any) -> None:
    world.rules(SIMPLE)
    reward = world.weaver.weave_reward(world.result(world.call(), world.call()), wait=0)
    assert (reward.value, reward.status, reward.contributions) == (None, "unscored", [])
    assert reward.reason.code == "no_signal"


# -- rules that change -------------------------------------------------------------------------------------------------


def test_loading_what_does_not_compile_leaves_the_set_in_force(ruled: Any) -> None:
    before = ruled.weaver.rules
    bad = ruled.folder / "bad.yaml"
    bad.write_text("version: 1\nsources: {s: {}}")
    with pytest.raises(RuleErrors):
        ruled.weaver.load_rules(bad)
    with pytest.raises(FileMissing):
        ruled.weaver.load_rules(ruled.folder / "none.yaml")
    assert ruled.weaver.rules is before
    assert ruled.weaver.reload_rules().hash == before.hash


def test_reload_takes_what_compiles_and_names_the_problems_of_what_does_not(world: Any) -> None:
    assert world.weaver.reload_rules().is_empty
    world.rules(SIMPLE)
    path = world.folder / "rules.yaml"
    first = world.weaver.rules
    assert world.weaver.reload_rules().hash == first.hash
    for text, code in (
        ("", "EmptyFile"),
        (SIMPLE[:36], "NotYaml"),
        (SIMPLE + "rules: [{id: a}]", "MissingWhen"),
        (SIMPLE.replace("weight", "wieght"), "UnknownKey"),
    ):
        path.write_text(text)
        rules = world.weaver.reload_rules()
        assert rules.hash == first.hash
        assert rules.problems[0].code == code
        assert rules.problems[0].file == str(path)
    path.unlink()
    assert world.weaver.reload_rules().problems[0].code == "FileMissing"
    call = world.call()
    world.weaver.ingest(Signal("a", 0.5, call))
    assert world.weaver.weave(call).rule_set == first.hash
    path.write_text(SIMPLE.replace("weight: 1", "weight: 2"))
    rules = world.weaver.reload_rules()
    assert (rules.problems, rules.sources["a"].weight) == ((), 2)


def test_reloading_while_weaving_never_mixes_two_sets(world: Any) -> None:
    """Each set gives every event the same value; a mix of sources and rules of two sets would give another."""
    values = {2: 0.2, 4: 0.4}

    def text(weight: int) -> str:
        return SIMPLE.replace("weight: 1", f"weight: {weight}") + (
            f"rules: [{{id: r, when: {{r: {{signal: 'r.source == \"a\"'}}}}, then: {{override: {values[weight]}}}}}]\n"
        )

    world.rules(text(2))
    path, stop = world.folder / "rules.yaml", threading.Event()

    def reload() -> None:
        for turn in range(30):
            path.write_text(text(2 if turn % 2 else 4) if turn % 5 else "version: 1\nsources: {")
            world.weaver.reload_rules()
        stop.set()

    hashes = {}
    thread = threading.Thread(target=reload)
    thread.start()
    while not stop.is_set():
        call = world.call()
        world.weaver.ingest(Signal("a", 0.1, call))
        reward = world.weaver.weave(call)
        hashes.setdefault(reward.rule_set, set()).add(reward.value)
    thread.join()
    assert all(len(found) == 1 for found in hashes.values())


def test_a_weaver_that_is_overtaken_concludes_again(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evidence that comes between reading and keeping is never replaced by the older conclusion."""
    world.rules(SIMPLE)
    call = world.call()
    world.weaver.ingest(Signal("a", 0.5, call))
    ledger = world.weaver._ledger
    facts, overtaken = ledger.session_facts, []

    def slow(event: Any) -> Any:
        if not overtaken:
            overtaken.append(True)
            world.weaver.ingest(Signal("b", -0.5, call))
            overtaken.append(world.weaver.weave(call))
        return facts(event)

    monkeypatch.setattr(ledger, "session_facts", slow)
    assert world.weaver.weave(call) == overtaken[1]
    assert overtaken[1].value == 0
