"""A planner of version 2.1 and an executor of version 1.8 on one graph. See README.md."""

import json
import tempfile

from schemas import declare_migrations, declare_versions

from agent_infra import Infra, StateGraph
from agent_infra.errors import MigrationMissing


def plan(graph: StateGraph) -> None:
    """The planner, version 2.1: says how sure it is of each step."""
    mine = graph.with_schemas({"plan_step": "2.1"})
    with mine.step(agent="planner") as step:
        for key, text, score in (("1", "查北京明天天气", 0.95), ("2", "提醒带伞", 0.4)):
            data = {"step": text, "status": "todo", "confidence_score": score}
            step.add_node("plan_step", data, key=f"step/{key}")
            show("planner 2.1 writes", data)


def execute(graph: StateGraph) -> None:
    """The executor, version 1.8: does the first step."""
    mine = graph.with_schemas({"plan_step": "1.8"})
    todo = [node for node in mine.nodes(type="plan_step") if node.data["status"] == "todo"]
    for node in reversed(todo):
        show("executor 1.8 reads", node.data)
    first = todo[-1]
    done = first.data | {"status": "done", "result": "晴，22 度"}
    with mine.step(agent="executor") as step:
        step.add_node("plan_step", done, key=first.key)
    show("executor 1.8 writes", done)


def review(graph: StateGraph) -> None:
    """The planner again: every step has the score that it requires, whoever wrote it."""
    for node in reversed(graph.with_schemas({"plan_step": "2.1"}).nodes(type="plan_step")):
        show("planner 2.1 reads", node.data)


def show(what: str, data: object) -> None:
    print(f"{what:<20} {json.dumps(data, ensure_ascii=False)}")


def main() -> None:
    with tempfile.TemporaryDirectory() as home, Infra.open(home) as infra:
        graph = infra.session("trip_to_beijing")
        declare_versions(infra.schemas)
        try:
            graph.add_node("plan_step", {"step": "查天气", "status": "todo"}, schema_version="1.8")
        except MigrationMissing as refused:
            print(f"without migrations   {refused}\n")

        declare_migrations(infra.schemas)
        plan(graph)
        execute(graph)
        review(graph)

        print(f"\n{infra.schemas.diff('plan_step', '1.8', '2.1')}")
        versions = [node.schema[1] for node in graph.nodes(type="plan_step", lifecycle=None)]
        print(f"\nstored under version {versions}; verified: {graph.verify().ok}; head {graph.version}")


if __name__ == "__main__":
    main()
