"""What is known of a call's outcome isn't lost because somebody else writes its session just then."""

from __future__ import annotations

import threading
from pathlib import Path

from agent_infra import Infra, Tool
from agent_infra.config import Project


def test_a_call_that_ends_while_another_writes_gets_its_receipt(tmp_path: Path) -> None:
    called, written = threading.Event(), threading.Event()

    def answer() -> str:
        called.set()
        assert written.wait(60)
        return "好"

    with Infra.open(tmp_path / "home", project=Project(root=tmp_path)) as infra:
        schema = {"type": "object", "properties": {}, "additionalProperties": False}
        infra.tools.register(Tool("answer", schema, {"type": "string"}, answer, effects="once"))
        graph = infra.session("s")
        results = []
        caller = threading.Thread(target=lambda: results.append(infra.actions.execute("answer", graph)))
        caller.start()
        assert called.wait(60)
        with infra.session("s").step(agent="another") as step:
            written.set()
            caller.join(0.5)  # the call has ended by now, and waits for this step
            step.add_node("note", {"text": "written meanwhile"})
        caller.join(60)
        assert [result.ok for result in results] == [True]
        assert len(graph.nodes(type="receipt")) == 1
        assert graph.latest("note") is not None
