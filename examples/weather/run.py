"""One request through all four layers, then the questions that come afterwards.

Run it in this folder or anywhere: `python examples/weather/run.py`. It keeps its home in `.agent_infra` beside it.
"""

import os
from pathlib import Path

from state_graph import QUERY, SESSION, note_intent

from agent_infra import Infra

HERE = Path(__file__).parent
HOME = Path(os.environ.get("AGENT_INFRA_HOME", HERE / ".agent_infra"))


def main() -> None:
    with Infra.open(HOME, project=HERE) as infra:
        graph = infra.session(SESSION, agent="weather_agent")
        print(f"user asks      {QUERY}")
        note_intent(graph, confidence=0.95)

        plan = infra.scheduler.compile_gdep(HERE / "weather_action.yaml", state_graph=graph)
        result = infra.scheduler.execute_gdep(plan)
        print(f"action result  {result}")

        reward = infra.weaver.weave_reward(result)
        print(f"woven reward   {reward.value}  ({reward.status})")
        print(f"reward CID     {reward.cid}")
        print(f"report         {infra.save_report(reward)}")

        answered = graph.version
        back = graph.rollback(steps=1, why="the demo shows a rollback")
        print(f"\nrolled back    {answered} -> {back}")
        kept = graph.at(answered).latest("weather")
        print(f"still readable {answered}: {kept.data if kept else None}")
        graph.rollback(to=answered, why="and forward again")

        print("\nthe same request, understood with confidence 0.5:")
        note_intent(graph, confidence=0.5)
        refused = infra.scheduler.execute_gdep(
            infra.scheduler.compile_gdep(HERE / "weather_action.yaml", state_graph=graph)
        )
        print(f"refused        {refused}")


if __name__ == "__main__":
    main()
