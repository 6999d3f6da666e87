"""What rules may read of an event beside its signals: gathered from the graph, and only as far as a rule set reads it.

The graph is read as it was when the event began. A prompt is a node of type `prompt_template`; its numbered rules
(`{"rules": [{"number": 7, "text": "offer compensation", "check": "action.output.text.contains('补偿')"}]}`) are each
checked: a rule fired where its `check`, a condition over `action`, `evidence` and `state`, holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

from agent_infra.errors import ExpressionError, NodeUnknown
from agent_infra.expressions import Expression, compile_expression
from agent_infra.rewards.ledger import Ledger
from agent_infra.rewards.rules.model import FIELDS, Fact, RuleSet
from agent_infra.rewards.signals import Event, referred_cid
from agent_infra.rewards.weaving.matching import FactRow, Facts
from agent_infra.state import Node, StateGraph, activation

PROMPT: Final = "prompt_template"
_OF_CALL: Final = frozenset[Fact]({"action", "condition", "evidence", "prompt_rule"})


def known_facts(ledger: Ledger, event: Event, rules: RuleSet) -> Facts:
    """The facts that a set's rules read of an event, without its signals."""
    session = ledger.session_facts(event)
    if not (rules.reads & _OF_CALL or rules.state_readings):
        return Facts(session=session)
    graph = ledger.session_graph(event)
    try:
        node = graph.node(event.id)
    except NodeUnknown:
        return Facts(
            session=session, doubts=[f"event {event.id} is not in its session any more: nothing is known of it"]
        )
    receipt, bundle = ledger.receipt(event), ledger.bundle(event)
    evidence = _row("evidence", bundle | {"cid": _cid(receipt)}) if bundle is not None else None
    action = _action(node, receipt, bundle)
    then = _as_it_was(ledger, graph, node, bundle)
    state: FactRow = activation(then, rules.state_readings)[0]["state"] if rules.state_readings else {}
    doubts: list[str] = []
    prompt_rules = _prompt_rules(then, action, evidence, doubts) if "prompt_rule" in rules.reads else []
    logged = cast("Sequence[FactRow]", receipt.data["conditions"] if receipt is not None else [])
    conditions = [_row("condition", entry) for entry in logged]
    return Facts((), session, action, conditions, evidence, prompt_rules, state, doubts)


def _as_it_was(ledger: Ledger, graph: StateGraph, node: Node, bundle: Mapping[str, Any] | None) -> StateGraph:
    """The graph when the event began: the version that its call started from, else the one that it came with."""
    version = bundle["version"] if bundle is not None else None
    return graph.at(version if isinstance(version, str) else ledger.version_with(node))


def _action(node: Node, receipt: Node | None, bundle: Mapping[str, Any] | None) -> FactRow | None:
    """What was done, and how it ended; None for an event that is no call."""
    if node.type != "call":
        return None
    ended = receipt.data if receipt is not None else {}
    output = bundle["output"] if bundle is not None else None
    return _row("action", {**node.data, **ended, "name": node.data["action"], "agent": node.owner, "output": output})


def _row(kind: Fact, found: Mapping[str, Any]) -> FactRow:
    """The fields that conditions may read of a kind of fact, each there, if only as null."""
    return {name: found.get(name) for name in FIELDS[kind]}


def _cid(receipt: Node | None) -> str | None:
    return referred_cid(receipt.data.get("evidence")) if receipt is not None else None


# -- prompts ---------------------------------------------------------------------------------------------------------


def _prompt_rules(
    graph: StateGraph, action: FactRow | None, evidence: FactRow | None, doubts: list[str]
) -> list[FactRow]:
    """The numbered rules of the prompt that the agent worked under, each with whether it fired: null where that can't be
    told.
    """
    prompt = graph.latest(PROMPT)
    if prompt is None:
        return []
    rows: list[FactRow] = []
    for rule in prompt.data.get("rules", []):
        fired = _fired(rule, graph, action, evidence, doubts)
        rows.append({"number": rule.get("number"), "text": rule.get("text"), "fired": fired, "prompt": prompt.id})
    return rows


def _fired(
    rule: Mapping[str, Any], graph: StateGraph, action: FactRow | None, evidence: FactRow | None, doubts: list[str]
) -> bool | None:
    check = rule.get("check")
    if not isinstance(check, str):
        return None
    try:
        condition = _compiled(check)
    except ExpressionError as error:
        doubts.append(f"the prompt's rule {rule.get('number')}: {error}")
        return None
    state, _ = activation(graph, [condition])
    judged = condition.evaluate({**state, "action": action, "evidence": evidence})
    if not judged.ok:
        doubts.append(f"the prompt's rule {rule.get('number')}: {judged.error}")
        return None
    return judged.holds


@lru_cache(maxsize=1024)
def _compiled(source: str) -> Expression:
    return compile_expression(source, ["action", "evidence", "state"])
