"""A run that is gone on with acts for the agent that it began for."""

from __future__ import annotations

from pathlib import Path

from agent_infra import Infra, Tool
from agent_infra.config import Project
from agent_infra.scheduler.progress import Progress

GOAL = {"goal": "greet", "subgoals": {"hello": {"action": "only_for_the_desk"}}}
ACTION = """\
name: only_for_the_desk
tool: say
preconditions: ['agent.name == "desk"']
effects: none
"""


def test_a_resumed_run_acts_for_the_agent_that_it_began_for(tmp_path: Path) -> None:
    with Infra.open(tmp_path / "home", project=Project(root=tmp_path)) as infra:
        schema = {"type": "object", "properties": {}, "additionalProperties": False}
        infra.tools.register(Tool("say", schema, {"type": "string"}, lambda: "你好", effects="none"))
        infra.actions.load(ACTION)
        graph = infra.session("s", agent="desk")
        plan = infra.scheduler.compile_gdep(GOAL, state_graph=graph)
        Progress.begin(plan, "01M8QBT42BAXF98SB1CGW2AMEW")  # and the process ends here
        (result,) = infra.resume("s")
        assert result.ok, result
        assert {node.owner for node in graph.nodes(lifecycle=None)} == {"desk"}
