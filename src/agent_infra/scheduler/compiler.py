"""From a goal to a plan, with every check that needs nothing to run: missing actions, cycles, inputs that nobody gives,
two writers of one key, and a GPU that isn't there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent_infra.actions import ActionLibrary, Contract
from agent_infra.documents import Fields, did_you_mean
from agent_infra.errors import ContractUnknown, ExpressionError, GpuUnavailable
from agent_infra.expressions import problems_at
from agent_infra.platform import GpuInventory, GpuProbe
from agent_infra.scheduler.goals import Goal, Part, goal_of
from agent_infra.scheduler.plan import Plan, Subgoal, compile_fill
from agent_infra.scheduler.writers import check_writers
from agent_infra.state import MergeRules, StateGraph


def compile_goal(goal: Goal, graph: StateGraph, library: ActionLibrary, gpus: GpuProbe, merging: MergeRules) -> Plan:
    """A plan for a goal. Raises GoalErrors with all problems, GpuUnavailable."""
    if not goal.parts and not goal.fields.problems:
        goal.fields.report("GoalEmpty", f"goal {goal.name!r} has no subgoals")
    contracts: dict[str, Contract] = {}
    subgoals = [_subgoal(goal, part, library, contracts) for part in goal.parts]
    goal.check()
    ordered = _ordered(goal, [each for each in subgoals if each is not None])
    goal.check()
    check_writers(goal.fields, ordered, contracts, merging)
    goal.check()
    plan = Plan(goal.name, goal.definition, goal.params, tuple(ordered), contracts, graph, goal.text)
    check_devices(plan, gpus)
    return plan


def plan_of_one(contract: Contract, graph: StateGraph, gpus: GpuProbe) -> Plan:
    """The plan that executes one contract. Raises GoalErrors where it leaves a parameter open, GpuUnavailable."""
    goal = goal_of({"goal": contract.name, "subgoals": {contract.name: {"action": contract.name}}})
    _check_filled(goal.fields, contract, {}, ("subgoals", contract.name))
    goal.check()
    subgoal = Subgoal(contract.name, contract.name, compile_fill({}))
    plan = Plan(contract.name, goal.definition, {}, (subgoal,), {contract.name: contract}, graph)
    check_devices(plan, gpus)
    return plan


def check_devices(plan: Plan, gpus: GpuProbe) -> None:
    """Refuse a plan that needs a GPU where there is none; it would wait for ever, or run on the CPU in silence."""
    for subgoal in plan.subgoals:
        resources = plan.contract_of(subgoal).resources
        devices, memory = resources.get("gpu", 0), resources.get("gpu_memory_mb", 0)
        if not devices and not memory:
            continue
        inventory = gpus.inventory()
        fitting = [gpu for gpu in inventory.gpus if gpu.memory_mb >= memory]
        if len(fitting) < max(devices, 1):
            needs = f"{max(devices, 1):g} GPU" + (f" with {memory:g} MiB" if memory else "")
            raise GpuUnavailable(
                f"subgoal {subgoal.name!r} needs {needs}, and this machine has {len(fitting)} such",
                where=f"action {subgoal.action!r}",
                why=inventory.reason or _sizes(inventory),
                mend="Run it where there is one, or use a variant of the tool that needs none.",
                facts={"subgoal": subgoal.name, "needed": devices, "memory_mb": memory, "found": len(fitting)},
            )


def _sizes(inventory: GpuInventory) -> str:
    return ", ".join(f"{gpu.model} has {gpu.memory_mb} MiB" for gpu in inventory.gpus)


def _subgoal(goal: Goal, part: Part, library: ActionLibrary, contracts: dict[str, Contract]) -> Subgoal | None:
    fields = goal.fields
    try:
        contract = contracts[part.action] = library.get(part.action)
    except ContractUnknown as error:
        fields.report("ContractUnknown", error.what, *part.path, "action", hint=error.mend)
        return None
    _check_filled(fields, contract, part.fill, part.path)
    try:
        fill = compile_fill(part.fill)
    except ExpressionError as error:
        fields.problems += problems_at(error, fields.document, *part.path, "with")
        return None
    implied = [path[1] for path in fill.reads if path[0] == "subgoals" and len(path) > 1]
    names = [each.name for each in goal.parts]
    after = tuple(dict.fromkeys([*part.after, *implied]))
    for before in after:
        if before not in names:
            message = f"{part.name!r} waits for {before!r}, and there is no such subgoal"
            fields.report("SubgoalUnknown", message, *part.path, hint=did_you_mean(before, names))
    return Subgoal(part.name, part.action, fill, after, goal.inserted_by)


def _check_filled(fields: Fields, contract: Contract, fill: Mapping[str, Any], path: tuple[str, ...]) -> None:
    """Every open parameter that the tool requires gets a value, and only open ones do."""
    for name in contract.required_open:
        if name not in fill:
            message = f"action {contract.name!r} leaves {name!r} open, and nothing fills it"
            fields.report("InputMissing", message, *path, hint=f"add `with: {{{name}: …}}`")
    for name in fill:
        if name not in contract.open:
            message = f"{name!r} is not an open parameter of action {contract.name!r}"
            hint = did_you_mean(name, contract.open)
            fields.report("InputNotOpen", message, *path, "with", name, key=True, hint=hint)


def _ordered(goal: Goal, subgoals: list[Subgoal]) -> list[Subgoal]:
    """Each after those that it waits for; equals in the order written."""
    done: dict[str, Subgoal] = {}
    left = list(subgoals)
    while left:
        ready = next((each for each in left if all(before in done for before in each.after)), None)
        if ready is None:
            ring = ", ".join(sorted(each.name for each in left))
            goal.fields.report("PlanCycle", f"these subgoals wait for each other: {ring}", "subgoals")
            break
        done[ready.name] = ready
        left.remove(ready)
    return list(done.values())
