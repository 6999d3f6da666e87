"""Layer 4, the goal scheduler: goals become plans, plans run, survive a crash, and end with a named outcome.

A goal comes in by `compile_gdep` (a file, a dict, an action file, a text that a method knows), leaves as a `Plan`,
is executed by `execute_gdep`, and leaves as a `RunResult`. All progress is in the state graph.

    goals       goals as users write them
    knowledge   methods: texts that become goals
    compiler    checks, order, devices
    plan, fill  the plan and what its subgoals fill in
    progress    a run's records in the graph
    run         the durable run itself
    scheduler   GDEPScheduler: the face
    resources/  inventory and placement
"""

from agent_infra.scheduler.knowledge import KnowledgeBase
from agent_infra.scheduler.plan import Plan, Subgoal
from agent_infra.scheduler.result import RunResult
from agent_infra.scheduler.scheduler import GDEPScheduler, SchedulerParts

__all__ = ["GDEPScheduler", "KnowledgeBase", "Plan", "RunResult", "SchedulerParts", "Subgoal"]
