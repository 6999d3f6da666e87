"""Peers that keep a no-op step durable: a LangGraph node with its SqliteSaver, a DBOS step on its SQLite.

They live in the environment of `_langgraph.py`, so that the product never depends on them. `StepsPeer` starts this very
file there and asks it by lines of JSON; times are taken inside.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ENVIRONMENT = Path(__file__).parent.parent / ".cache" / "bench"
LIBRARIES = {"langgraph": "langgraph langgraph-checkpoint-sqlite", "dbos": "dbos"}
CHECKS = {"langgraph": "import langgraph.checkpoint.sqlite, langgraph.graph", "dbos": "import dbos"}


class StepsPeer:
    """One peer in a process of its own. `folder` is where its files go."""

    def __init__(self, name: str, folder: Path) -> None:
        command = [str(ENVIRONMENT / "bin" / "python"), __file__, name, str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @staticmethod
    def missing(name: str) -> str | None:
        """None where the peer is installed, else how to install it."""
        python = ENVIRONMENT / "bin" / "python"
        found = python.exists() and (
            subprocess.run([python, "-c", CHECKS[name]], capture_output=True, check=False).returncode == 0
        )
        install = f"python -m venv {ENVIRONMENT} && {ENVIRONMENT}/bin/pip install {LIBRARIES[name]}"
        return None if found else install

    def steps(self, count: int) -> float:
        """Seconds a step, over so many steps of one run."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the peer's process ended; its message is above")
        return float(json.loads(answer))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _langgraph(folder: Path) -> Any:
    import sqlite3
    from typing import TypedDict

    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import END, START, StateGraph

    class State(TypedDict):
        left: int
        answer: dict[str, int]

    def noop(state: State) -> dict[str, Any]:
        return {"left": state["left"] - 1, "answer": {"x": 3}}

    graph = StateGraph(State)
    graph.add_node("noop", noop)
    graph.add_edge(START, "noop")
    graph.add_conditional_edges("noop", lambda state: "noop" if state["left"] else END)
    saver = SqliteSaver(sqlite3.connect(folder / "steps.db", check_same_thread=False))
    compiled = graph.compile(checkpointer=saver)
    runs = iter(range(1_000_000))

    def run(count: int) -> float:
        config: Any = {"configurable": {"thread_id": f"run-{next(runs)}"}, "recursion_limit": count + 10}
        began = time.perf_counter()
        compiled.invoke({"left": count, "answer": {}}, config, durability="sync")
        return (time.perf_counter() - began) / count

    return run


def _dbos(folder: Path) -> Any:
    from dbos import DBOS

    os.chdir(folder)
    DBOS(
        config={
            "name": "bench",
            "system_database_url": "sqlite:///dbos.sqlite",
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )

    @DBOS.step()
    def noop(x: int) -> dict[str, int]:
        return {"x": x}

    @DBOS.workflow()
    def run(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            noop(3)
        return (time.perf_counter() - began) / count

    DBOS.launch()
    return run


def _serve(name: str, folder: Path) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    with contextlib.redirect_stdout(sys.stderr):
        run = {"langgraph": _langgraph, "dbos": _dbos}[name](folder)
        for line in sys.stdin:
            print(json.dumps(run(int(line))), file=answers, flush=True)
    os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]))
