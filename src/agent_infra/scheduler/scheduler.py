"""GDEPScheduler, the face of layer 4: goals in, plans and run results out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent_infra import background, opening
from agent_infra.actions import ActionLibrary
from agent_infra.clock import new_ulid
from agent_infra.documents import read_documents
from agent_infra.errors import AgentInfraError, GoalErrors
from agent_infra.platform import GpuProbe
from agent_infra.scheduler.compiler import check_devices, compile_goal, plan_of_one
from agent_infra.scheduler.goals import Goal, goal_of, is_goal, read_goal
from agent_infra.scheduler.knowledge import KnowledgeBase
from agent_infra.scheduler.plan import Plan
from agent_infra.scheduler.progress import UNFINISHED, Progress
from agent_infra.scheduler.result import RunResult
from agent_infra.scheduler.run import Run
from agent_infra.state import Node, StateEngine, StateGraph


@dataclass(slots=True)
class SchedulerParts:
    """What a scheduler works with. `root` is the project's folder, `active` the goals that this process runs just
    now.
    """

    engine: StateEngine
    actions: ActionLibrary
    knowledge: KnowledgeBase
    gpus: GpuProbe
    root: Path
    active: set[str] = field(default_factory=set[str])


class GDEPScheduler:
    """Compiles goals to plans (GDEPs), executes them, and goes on with those that a crash interrupted.

    Without `parts` it is the default home's.
    """

    def __init__(self, parts: SchedulerParts | None = None) -> None:
        self.parts: SchedulerParts = parts or opening.default_infra().scheduler.parts

    # -- compiling ---------------------------------------------------------------------------------

    def compile_gdep(self, goal: str | Path | Mapping[str, Any], *, state_graph: StateGraph) -> Plan:
        """A plan for a goal: a text that a method knows, a dict, a goal file, or an action file (a plan of one).

        A text that ends in .yaml or .yml is a file, looked for from the working directory and then from the project's
        folder. Nothing is written. Raises FileMissing, DocumentErrors, GoalErrors, ContractErrors, GoalUnknown,
        GpuUnavailable.
        """
        if isinstance(goal, Mapping):
            return self._compiled(goal_of(goal), state_graph)
        if isinstance(goal, Path) or goal.endswith((".yaml", ".yml")):
            return self._compile_file(Path(goal), state_graph)
        return self._compiled(self.parts.knowledge.decompose(goal), state_graph)

    def _compiled(self, goal: Goal, graph: StateGraph) -> Plan:
        return compile_goal(goal, graph, self.parts.actions, self.parts.gpus, self.parts.engine.schemas)

    def _compile_file(self, path: Path, graph: StateGraph) -> Plan:
        if not path.is_absolute() and not path.exists() and (self.parts.root / path).exists():
            path = self.parts.root / path
        documents = read_documents(path)
        if any(is_goal(document) for document in documents):
            if len(documents) > 1:
                raise GoalErrors([documents[1].problem("GoalInvalid", "a goal file holds one goal")])
            return self._compiled(read_goal(documents[0]), graph)
        contracts = self.parts.actions.compile(documents)
        if len(contracts) != 1:
            hint = "Load the file with infra.actions.load(), and name one action in a goal."
            raise GoalErrors([documents[-1].problem("GoalInvalid", "this file holds several actions", hint=hint)])
        return plan_of_one(contracts[0], graph, self.parts.gpus)

    # -- running -----------------------------------------------------------------------------------

    def execute_gdep(self, plan: Plan) -> RunResult:
        """Execute a plan and wait for its end. Each call is a new request; only `resume` continues one.

        A failing subgoal is in the result, not an exception. Ctrl-C cancels the run and leaves it resumable.
        """
        return background.wait_for(self._execute(plan), twin="aexecute_gdep")

    async def aexecute_gdep(self, plan: Plan) -> RunResult:
        """`execute_gdep` for running loops."""
        return await background.on_loop(self._execute(plan))

    async def _execute(self, plan: Plan) -> RunResult:
        goal_id = new_ulid(self.parts.engine.clock.micros())
        self.parts.active.add(goal_id)
        try:
            return await Run(plan, Progress.begin(plan, goal_id), self.parts.actions).execute()
        finally:
            self.parts.active.discard(goal_id)

    # -- going on ----------------------------------------------------------------------------------

    def resume(self, session: str | None = None) -> list[RunResult]:
        """Go on with every run that began and didn't end, of one session or of all; give their results.

        Finished calls aren't repeated. Runs that this process has under way are left alone.
        """
        return background.wait_for(self._resume(session), twin="aresume")

    async def aresume(self, session: str | None = None) -> list[RunResult]:
        """`resume` for running loops."""
        return await background.on_loop(self._resume(session))

    async def _resume(self, session: str | None) -> list[RunResult]:
        names = [session] if session is not None else self.parts.engine.sessions()
        results: list[RunResult] = []
        for name in names:
            graph = StateGraph(name, engine=self.parts.engine)
            for goal in reversed(graph.nodes(type="goal")):
                if goal.data["status"] in UNFINISHED and goal.data["goal_id"] not in self.parts.active:
                    acting = StateGraph(name, engine=self.parts.engine, agent=goal.data.get("agent"))
                    results.append(await self._go_on(acting, goal))
        return results

    async def _go_on(self, graph: StateGraph, goal: Node) -> RunResult:
        goal_id = goal.data["goal_id"]
        self.parts.active.add(goal_id)
        try:
            progress = Progress.load(graph, goal)
            try:
                plan = self._recompiled(graph, goal, progress.plan_data())
                check_devices(plan, self.parts.gpus)
            except AgentInfraError as error:
                return _unresumable(graph, goal_id, error)
            return await Run(plan, progress, self.parts.actions).execute()
        finally:
            self.parts.active.discard(goal_id)

    def _recompiled(self, graph: StateGraph, goal: Node, written: Mapping[str, Any]) -> Plan:
        """The plan that a run began with, under the contracts that it began with. Raises ContractDrift."""
        contracts = {
            name: self.parts.actions.recompile(name, stored["source"], stored["hash"])
            for name, stored in written["contracts"].items()
        }
        return Plan.from_records(goal.data, written["subgoals"], contracts, graph)


def _unresumable(graph: StateGraph, goal_id: str, error: AgentInfraError) -> RunResult:
    said = error.as_dict()
    return RunResult(False, {}, (), graph.session_id, graph.version, goal_id, waiting=(str(error),), error=said)
