"""A project whose tools leave a trace outside of the graph, and processes that run it and are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent_infra import Infra, Node
from agent_infra.config import Project

SESSION = "月末 1"
BIN = Path(sys.executable).parent
PATIENCE = 60.0  # seconds until a wait gives up; only a failing test waits that long

TOOLS = '''\
"""Tools that write down in effects.jsonl that they took effect. `hold` waits until there is a file `go`."""

import json
import os
import time
from pathlib import Path

from agent_infra import CallContext, tool

HERE = Path(__file__).parent


def effect(name: str, context: CallContext) -> dict[str, str]:
    line = json.dumps({"name": name, "key": context.idempotency_key, "pid": os.getpid()}, ensure_ascii=False) + "\\n"
    file = os.open(HERE / "effects.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line.encode())
    os.close(file)
    time.sleep(float(os.environ.get("PAUSE", "0")))
    return {"name": name}


@tool(effects="none")
def look(name: str, context: CallContext) -> dict[str, str]:
    """Read something."""
    return effect(name, context)


@tool(effects="idempotent")
def store(name: str, context: CallContext) -> dict[str, str]:
    """Write something under its key."""
    return effect(name, context)


@tool(effects="once")
def pay(name: str, context: CallContext) -> dict[str, str]:
    """Pay."""
    return effect(name, context)


@tool(effects="none")
def hold(name: str, context: CallContext) -> dict[str, str]:
    """Wait."""
    found = effect(name, context)
    while not (HERE / "go").exists():
        time.sleep(0.01)
    return found
'''

RUN = '''\
"""Run the goal; with KILL_AT=k this process kills itself instead of writing to the store for the k-th time."""

import os
import signal
import sys

from agent_infra import Infra
from agent_infra.state.stores import RocksStore

left = int(os.environ.get("KILL_AT", "0"))
write = RocksStore.write


def deadly_write(self, batch, **options):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, batch, **options)


with Infra.open() as infra:
    if left:
        RocksStore.write = deadly_write
    if sys.argv[1:] == ["resume"]:
        results = infra.resume()
    else:
        results = [infra.run("goal.yaml", session=sys.argv[1])]
sys.exit(0 if all(result.ok for result in results) else 1)
'''


@dataclass
class Records:
    """What a home says of a session's only run. `calls`: every call by its subgoal, oldest first."""

    goal: str
    status: dict[str, str] = field(default_factory=dict)
    calls: dict[str, list[Node]] = field(default_factory=dict)
    receipts: dict[str, Node] = field(default_factory=dict)

    def finished(self) -> set[str]:
        """The subgoals whose success is on the disk."""
        return {name for name, status in self.status.items() if status == "succeeded"}

    def interrupted(self) -> dict[str, Node]:
        """Calls whose intent is there and whose receipt is not, by subgoal."""
        return {name: calls[-1] for name, calls in self.calls.items() if calls and calls[-1].id not in self.receipts}


@dataclass
class Workshop:
    """The project's folder, and what is done in it."""

    folder: Path
    home: Path

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def environment(self, **more: str) -> dict[str, str]:
        return os.environ | {"AGENT_INFRA_HOME": str(self.home), "PYTHONUTF8": "1"} | more

    # -- processes ---------------------------------------------------------------------------------

    @contextmanager
    def running(self, *command: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
        """A child process: a command of this Python's folder; `run.py` unless given."""
        program, *arguments = command or ("python", "run.py", SESSION)
        child = subprocess.Popen(
            [str(BIN / program), *arguments],
            cwd=self.folder,
            env=self.environment(**environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield child
        finally:
            child.kill()
            child.communicate()

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run `run.py` to its end."""
        return self._finished(["python", "run.py", *(arguments or (SESSION,))], environment)

    def command(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run `agent-infra` to its end."""
        return self._finished(["agent-infra", *arguments], environment)

    def _finished(self, command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(BIN / command[0]), *command[1:]],
            cwd=self.folder,
            env=self.environment(**environment),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def killed(self, effects: int, after: float = 0.0, session: str = SESSION, **environment: str) -> None:
        """Run the goal, and kill -9 the process `after` seconds after that many effects were seen."""
        with self.running("python", "run.py", session, **environment) as child:
            self.wait_for_effects(effects, child)
            time.sleep(after)
            child.send_signal(signal.SIGKILL)
            child.wait(PATIENCE)
            assert child.returncode == -signal.SIGKILL, "it ended by itself before it was killed"

    def wait_for_effects(self, count: int, child: subprocess.Popen[str]) -> None:
        end = time.monotonic() + PATIENCE
        while len(self.effects()) < count:
            assert child.poll() is None, child.communicate()
            assert time.monotonic() < end, f"{len(self.effects())} effects of {count}"
            time.sleep(0.002)

    def let_go(self) -> None:
        """Let tools that hold go on."""
        (self.folder / "go").touch()

    # -- what can be seen from outside -------------------------------------------------------------

    def effects(self) -> list[dict[str, Any]]:
        """What tools did, in order."""
        file = self.folder / "effects.jsonl"
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []

    def counts(self) -> Counter[str]:
        """How often each subgoal's tool took effect."""
        return Counter(effect["name"] for effect in self.effects())

    def keys(self, name: str) -> set[str]:
        """The idempotency keys that a subgoal's tool was given."""
        return {effect["key"] for effect in self.effects() if effect["name"] == name}

    def records(self, session: str = SESSION) -> Records | None:
        """What the home says of the session's run; None where it says nothing."""
        with Infra.open(self.home, project=Project(root=self.folder)) as infra:
            graph = infra.session(session)
            assert graph.verify().ok
            goals = graph.nodes(type="goal")
            if not goals:
                return None
            (goal,) = goals
            found = Records(goal.data["status"])
            for node in graph.nodes(type="subgoal"):
                found.status[node.data["name"]] = node.data["status"]
            for node in reversed(graph.nodes(type="call")):
                found.calls.setdefault(node.data["subgoal"], []).append(node)
            for node in graph.nodes(type="receipt"):
                assert node.data["call"] not in found.receipts, "a call has one receipt"
                found.receipts[node.data["call"]] = node
                evidence = node.data.get("evidence")
                assert evidence is None or infra.evidence.verify(evidence["$cid"]).ok
            return found


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    made = Workshop(tmp_path / "工坊", tmp_path / "家")
    made.write("tools.py", TOOLS)
    made.write("run.py", RUN)
    made.write("agent_infra.toml", 'tools = ["tools.py"]\n')
    return made
