"""The peer that people have: LangGraph's SqliteSaver, which writes the whole state as one checkpoint each step.

It lives in an environment of its own, so that the product never depends on it:

    python -m venv .cache/bench && .cache/bench/bin/pip install langgraph langgraph-checkpoint-sqlite

`LangGraphPeer` starts this very file there and asks it by lines of JSON; times are taken inside.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _work import STEP_APART, STEP_NODES, TOOL, WITHIN, filled

ENVIRONMENT = Path(__file__).parent.parent / ".cache" / "bench"
INSTALL = f"python -m venv {ENVIRONMENT} && {ENVIRONMENT}/bin/pip install langgraph langgraph-checkpoint-sqlite"


class LangGraphPeer:
    """A process of the environment where LangGraph is. `folder` is where its files go."""

    def __init__(self, folder: Path) -> None:
        command = [str(ENVIRONMENT / "bin" / "python"), __file__, str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.versions: dict[str, str] = self.ask("versions")

    @staticmethod
    def installed() -> bool:
        """Whether that environment is there, with what the peer needs."""
        python = ENVIRONMENT / "bin" / "python"
        check = "import langgraph.checkpoint.sqlite, langgraph.checkpoint.base"
        return (
            python.exists() and subprocess.run([python, "-c", check], capture_output=True, check=False).returncode == 0
        )

    def ask(self, what: str, **arguments: Any) -> Any:
        """Let it do something; its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"what": what, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"LangGraph's process ended at {what!r}; its message is above")
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class _Saver:
    """What runs in the other environment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._saver: Any = self._open("graph.db")
        self._before: Any = None
        self._now = 0.0

    def _open(self, name: str) -> Any:
        from langgraph.checkpoint.sqlite import SqliteSaver

        return SqliteSaver(sqlite3.connect(self._folder / name, check_same_thread=False))

    def versions(self) -> dict[str, str]:
        from importlib.metadata import version

        return {name: version(name) for name in ("langgraph", "langgraph-checkpoint-sqlite")}

    def _put(self, saver: Any, config: Any, state: dict[str, Any]) -> Any:
        from langgraph.checkpoint.base import empty_checkpoint

        checkpoint = empty_checkpoint() | {"channel_values": state}
        return saver.put(config, checkpoint, {"source": "loop", "step": 1, "writes": {}}, {})

    def fill(self, nodes: int) -> dict[str, Any]:
        """The state that the product's large graph holds, checkpointed before its last step and after it."""
        state: dict[str, Any] = {"nodes": {}, "edges": []}
        config: Any = {"configurable": {"thread_id": "bench", "checkpoint_ns": ""}}
        for count, work in enumerate(filled(nodes), 1):
            if count * STEP_NODES >= nodes:
                self._before = self._put(self._saver, config, state)
            self._now += STEP_APART
            ids = [uuid.uuid4().hex for _ in work.items]
            for id, item in zip(ids, work.items, strict=True):
                node = {"id": id, "type": item.type, "data": item.data, "tool": item.tool, "created": self._now}
                state["nodes"][id] = node | {"key": None, "ttl": None, "owner": None, "schema": [item.type, 1]}
            state["edges"] += [[ids[int(a)], ids[int(b)], type] for a, b, type in work.edges]
        began = time.perf_counter()
        self._put(self._saver, self._before, state)
        return {"checkpoint_ms": (time.perf_counter() - began) * 1000}

    def restore(self) -> dict[str, float]:
        """Go back by one checkpoint, then ask the first question."""
        began = time.perf_counter()
        state = self._saver.get_tuple(self._before).checkpoint["channel_values"]
        restored = time.perf_counter()
        found = _caused(state, self._now - STEP_APART)
        return _times(restore=restored - began, restore_and_query=time.perf_counter() - began) | {"found": found}

    def caused_by(self) -> dict[str, float]:
        """The question at the newest checkpoint."""
        began = time.perf_counter()
        config = {"configurable": {"thread_id": "bench", "checkpoint_ns": ""}}
        found = _caused(self._saver.get_tuple(config).checkpoint["channel_values"], self._now)
        return _times(query=time.perf_counter() - began) | {"found": found}

    def turns(self, texts: list[str]) -> dict[str, int]:
        """A conversation that grows by a text each turn; the bytes that it takes on disk."""
        saver = self._open("turns.db")
        config: Any = {"configurable": {"thread_id": "turns", "checkpoint_ns": ""}}
        messages: list[dict[str, str]] = []
        for text in texts:
            messages.append({"role": "user", "content": text})
            config = self._put(saver, config, {"messages": messages})
        saver.conn.close()
        return {"bytes": (self._folder / "turns.db").stat().st_size}


def _caused(state: dict[str, Any], now: float) -> int:
    nodes = state["nodes"]
    found = [
        nodes[target]
        for source, target, type in state["edges"]
        if type == "causes" and nodes[source]["tool"] == TOOL and nodes[target]["created"] >= now - WITHIN
    ]
    found.sort(key=lambda node: -node["created"])
    return len(found)


def _times(**seconds: float) -> dict[str, float]:
    return {f"{name}_ms": value * 1000 for name, value in seconds.items()}


def _serve(folder: Path) -> None:
    saver = _Saver(folder)
    for line in sys.stdin:
        question = json.loads(line)
        method: Callable[..., Any] = getattr(saver, question.pop("what"))
        print(json.dumps(method(**question)), flush=True)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
