"""kill -9 in the middle of a run, then `agent-infra resume`: nothing that finished is repeated, nothing is lost."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

GOAL = """\
version: 1
goal: 月末结算
params: {month: 十一月}
subgoals:
  a: {action: look, with: {name: a}}
  b: {action: store, with: {name: b}}
  c: {action: look, with: {name: c}, after: a}
  pay: {action: pay, with: {name: pay}, after: [a, b]}
  d: {action: store, with: {name: d}, after: [b, c]}
  e: {action: look, with: {name: "${subgoals.d.result.name == 'd' ? 'e' : '?'}"}, after: pay}
  last: {action: hold, with: {name: last}, after: [c, e]}
"""
NAMES = ("a", "b", "c", "d", "e", "last", "pay")
ROUNDS = 30 if os.environ.get("AGENT_INFRA_TEST_TIER") == "full" else 3


@pytest.mark.parametrize("round", range(ROUNDS))
def test_killed_at_a_random_point_it_is_finished_by_resume(workshop: Any, round: int) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"round {round}: seed {seed}")
    dice = random.Random(seed)
    workshop.write("goal.yaml", GOAL)
    workshop.killed(effects=dice.randint(1, len(NAMES)), after=dice.uniform(0, 0.06), PAUSE="0.03")

    before = workshop.records()
    assert before is not None
    assert before.goal == "running"
    finished, interrupted = before.finished(), before.interrupted()
    assert "last" not in finished
    assert all(workshop.counts()[name] == 1 for name in finished)
    stuck = "pay" in interrupted

    workshop.let_go()
    resumed = workshop.command("resume", "--json")
    assert resumed.returncode == (1 if stuck else 0), resumed.stdout + resumed.stderr
    told = json.loads(resumed.stdout)
    after = workshop.records()
    assert after is not None

    for name, call in interrupted.items():
        if name == "pay":
            continue
        repeated = after.calls[name][-1]
        assert repeated.id != call.id
        assert repeated.data["attempt"] == call.data["attempt"] + 1
        assert repeated.data["params"] == call.data["params"]
        assert repeated.data["idempotency_key"] == call.data["idempotency_key"]
        assert workshop.keys(name) == {call.data["idempotency_key"]}
        assert after.receipts[call.id].data["status"] == "unknown"
    counts = workshop.counts()
    for name in NAMES:
        if name in finished:
            assert counts[name] == 1, f"{name} had finished, and ran again"
            assert len(after.calls[name]) == 1
        elif name not in interrupted and not stuck:
            assert counts[name] == 1
    assert counts["pay"] <= 1
    if stuck:
        assert "pay" in told["waiting"][0]
        assert after.goal == "waiting"
        assert after.status["pay"] == "waiting"
        assert after.status["e"] == after.status["last"] == "pending"
        assert after.finished() == {"a", "b", "c", "d"}
    else:
        assert after.status == dict.fromkeys(NAMES, "succeeded")
        assert after.goal == "succeeded"
        assert told["outputs"] == {name: {"name": name} for name in NAMES}
        again = workshop.command("resume")
        assert (again.returncode, again.stdout) == (0, "")
        assert "nothing to resume" in again.stderr
        assert workshop.counts() == counts


# -- each kind of effect ---------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["look", "store"])
def test_an_interrupted_call_that_may_be_repeated_is_repeated_with_its_key(workshop: Any, action: str) -> None:
    workshop.write("tools.py", workshop.folder.joinpath("tools.py").read_text("utf-8").replace("PAUSE", "NAP"))
    workshop.write("goal.yaml", f"goal: 一\nsubgoals:\n  x: {{action: {action}, with: {{name: 甲}}}}\n")
    workshop.killed(effects=1, NAP="60")
    assert workshop.command("resume").returncode == 0
    first, second = workshop.effects()
    assert first["key"] == second["key"]
    assert first["pid"] != second["pid"]


def test_an_interrupted_once_call_waits_with_a_reason_and_is_never_made_twice(workshop: Any) -> None:
    workshop.write(
        "goal.yaml",
        "goal: 付款\nsubgoals:\n"
        "  pay: {action: pay, with: {name: 付}}\n"
        "  then: {action: look, with: {name: 后}, after: pay}\n",
    )
    workshop.killed(effects=1, PAUSE="60")
    for _ in range(3):
        resumed = workshop.command("resume")
        assert resumed.returncode == 1
        assert "waiting" in resumed.stdout
        assert "pay" in resumed.stdout
        assert "unknown" in resumed.stdout
        assert workshop.counts() == {"付": 1}
    records = workshop.records()
    assert records is not None
    assert (records.goal, records.status) == ("waiting", {"pay": "waiting", "then": "pending"})
    shown = workshop.command("session", "show", "月末 1").stdout
    assert "waiting" in shown
    assert "OutcomeUnknown" in shown


def test_undeclared_effects_count_as_once(workshop: Any) -> None:
    tools = workshop.folder.joinpath("tools.py").read_text("utf-8")
    workshop.write("tools.py", tools.replace('@tool(effects="none")\ndef look', "@tool\ndef look"))
    workshop.write("goal.yaml", "goal: g\nsubgoals:\n  x: {action: look, with: {name: 甲}}\n")
    workshop.killed(effects=1, PAUSE="60")
    assert workshop.command("resume").returncode == 1
    assert workshop.counts() == {"甲": 1}


def test_parts_that_do_not_wait_for_the_unknown_one_are_finished(workshop: Any) -> None:
    workshop.write(
        "goal.yaml",
        "goal: g\nsubgoals:\n"
        "  pay: {action: pay, with: {name: 付}}\n"
        "  other: {action: hold, with: {name: 别}}\n"
        "  more: {action: look, with: {name: 多}, after: other}\n",
    )
    workshop.killed(effects=2, PAUSE="60")
    workshop.let_go()
    assert workshop.command("resume").returncode == 1
    records = workshop.records()
    assert records is not None
    assert records.status == {"pay": "waiting", "other": "succeeded", "more": "succeeded"}
    assert workshop.counts()["付"] == 1


# -- which runs ------------------------------------------------------------------------------------


def test_every_session_is_gone_on_with_or_only_the_one_named(workshop: Any) -> None:
    workshop.write("goal.yaml", "goal: g\nsubgoals:\n  x: {action: hold, with: {name: 甲}}\n")
    for count, session in enumerate(("会话一", "会话二", "会话三"), 1):
        workshop.killed(effects=count, session=session)
    workshop.let_go()
    named = workshop.command("resume", "--session", "会话二")
    assert named.returncode == 0
    assert named.stdout.startswith("会话二: ")
    assert len(named.stdout.splitlines()) == 1
    rest = workshop.command("resume")
    assert sorted(line.partition(":")[0] for line in rest.stdout.splitlines()) == ["会话一", "会话三"]
    assert len(workshop.effects()) == 6


def test_a_run_that_failed_is_over(workshop: Any) -> None:
    tools = workshop.folder.joinpath("tools.py").read_text("utf-8")
    workshop.write("tools.py", tools + '\n\n@tool(effects="none")\ndef fail() -> None:\n    raise ValueError("坏")\n')
    workshop.write("goal.yaml", "goal: g\nsubgoals:\n  x: {action: fail}\n  y: {action: fail, after: x}\n")
    assert workshop.run().returncode == 1
    assert "nothing to resume" in workshop.command("resume").stderr


# -- what changed meanwhile ------------------------------------------------------------------------

ACTION = """\
name: hold_it
tool: hold
params: {name: 甲}
effects: none
postconditions: ["result.name == '甲'"]
result: {type: api_response, key: held}
"""


def interrupted_action(workshop: Any) -> Path:
    file: Path = workshop.write("actions/hold.yaml", ACTION)
    workshop.write("agent_infra.toml", 'tools = ["tools.py"]\nactions = "actions/"\n')
    workshop.write("goal.yaml", "goal: g\nsubgoals:\n  x: {action: hold_it}\n  y: {action: hold_it, after: x}\n")
    workshop.killed(effects=1)
    workshop.let_go()
    return file


@pytest.mark.parametrize("change", ["edited", "gone"])
def test_a_run_goes_on_under_the_contracts_that_it_began_with(workshop: Any, change: str) -> None:
    file = interrupted_action(workshop)
    if change == "edited":
        file.write_text(ACTION.replace("result.name == '甲'", "false"), encoding="utf-8")
    else:
        file.unlink()
    resumed = workshop.command("resume", "--json")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    records = workshop.records()
    assert len({call.data["contract"] for calls in records.calls.values() for call in calls}) == 1


def test_a_run_whose_tool_changed_waits_and_runs_nothing(workshop: Any) -> None:
    interrupted_action(workshop)
    tools = workshop.folder.joinpath("tools.py").read_text("utf-8")
    marked = '@tool(effects="none")\ndef hold'
    workshop.write("tools.py", tools.replace(marked, '@tool(effects="none", version="2.0.0")\ndef hold'))
    resumed = workshop.command("resume", "--json")
    assert resumed.returncode == 1
    told = json.loads(resumed.stdout)
    assert told["error"]["code"] == "ContractDrift"
    assert "hold_it" in told["waiting"][0]
    assert len(workshop.effects()) == 1
    workshop.write("tools.py", tools)
    assert workshop.command("resume").returncode == 0


def test_a_run_whose_tool_is_gone_waits_and_names_it(workshop: Any) -> None:
    interrupted_action(workshop).unlink()
    tools = workshop.folder.joinpath("tools.py").read_text("utf-8")
    workshop.write("tools.py", tools.replace("def hold", "def hold_no_more"))
    resumed = workshop.command("resume")
    assert resumed.returncode == 1
    assert "waiting" in resumed.stdout
    assert "hold" in resumed.stdout
    assert len(workshop.effects()) == 1


# -- Ctrl-C ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [["python", "run.py", "月末 1"], ["agent-infra", "run", "goal.yaml", "--session", "月末 1"]],
    ids=lambda c: c[0],
)
def test_ctrl_c_leaves_a_run_that_can_be_gone_on_with(workshop: Any, command: list[str]) -> None:
    workshop.write(
        "goal.yaml",
        "goal: g\nsubgoals:\n  a: {action: look, with: {name: a}}\n  b: {action: hold, with: {name: b}, after: a}\n",
    )
    with workshop.running(*command) as child:
        workshop.wait_for_effects(2, child)
        child.send_signal(signal.SIGINT)
        child.wait(60)
    assert child.returncode in (130, -signal.SIGINT)
    workshop.let_go()
    assert workshop.command("resume").returncode == 0
    assert workshop.counts() == {"a": 1, "b": 2}
    assert len(workshop.keys("b")) == 1


# -- between every pair of commits -----------------------------------------------------------------

CHAIN = """\
goal: 链
subgoals:
  pay: {action: pay, with: {name: pay}}
  b: {action: store, with: {name: b}, after: pay}
"""


def test_killed_between_any_two_commits_what_is_done_is_done_once(workshop: Any, tmp_path: Path) -> None:
    kinds: set[str] = set()
    for at in range(1, 100):
        place = type(workshop)(tmp_path / f"{at}", tmp_path / f"home {at}")
        for name in ("tools.py", "run.py", "agent_infra.toml"):
            place.write(name, (workshop.folder / name).read_text("utf-8"))
        place.write("goal.yaml", CHAIN)
        run = place.run(KILL_AT=str(at))
        if run.returncode == 0:
            break
        assert run.returncode == -signal.SIGKILL, run.stderr
        kinds.add(check_resumed(place))
    assert at > 8, "the beginning, the end, and intent, evidence and receipt of two calls"
    assert kinds == {"not begun", "finished", "waiting"}


def check_resumed(place: Any) -> str:
    """Resume after a kill, and check what has to hold wherever it was."""
    before = place.records()
    resumed = place.command("resume")
    if before is None:
        assert "nothing to resume" in resumed.stderr
        assert place.effects() == []
        return "not begun"
    counts = place.counts()
    assert all(counts[name] == 1 for name in before.finished())
    assert counts["pay"] <= 1
    if "pay" in before.interrupted():
        assert resumed.returncode == 1
        assert counts["b"] == 0
        return "waiting"
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert counts["b"] in ((1, 2) if "b" in before.interrupted() else (1,))
    assert len(place.keys("b")) == 1
    assert counts["pay"] == 1
    after = place.records()
    assert after.finished() == {"pay", "b"}
    return "finished"
