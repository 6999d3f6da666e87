"""Why an action did what it did: its newest executions in a session on one page, from the graph and the bundles alone.

Each says what it read, with which parameters, what every condition saw, what the tool gave and printed, why it ended as it
did, and what to look at next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from agent_infra.actions.evidence.why_words import WORDS
from agent_infra.errors import EvidenceDamaged, EvidenceUnknown, NodeUnknown, ReportUnknown
from agent_infra.state import Node, StateGraph

_LONG: Final = 240
"""Characters of a value that are shown."""
_STDERR_LINES: Final = 12
_LOOKED_THROUGH: Final = 500
"""Calls that are looked through for the names of other actions."""
_FROM_BUNDLE: Final = (
    "started_at",
    "seconds",
    "executor",
    "attempt",
    "agent",
    "version",
    "params",
    "references",
    "conditions",
    "error",
    "cpu_seconds",
    "peak_memory_mb",
    "gpu_memory_mb",
    "exit_code",
    "stderr_tail",
    "cost",
    "idempotency_key",
)


class Bundles(Protocol):
    """Where bundles are read."""

    def get(self, cid: str) -> dict[str, Any]:
        """A bundle by its CID."""
        ...

    def part(self, bundle: dict[str, Any], name: str) -> Any:
        """A field of a bundle, wherever it is stored."""
        ...


@dataclass(frozen=True, slots=True)
class Why:
    """What happened to an action in a session.

    executions  the newest calls, newest first, as JSON values; `next` in each says what to look at
    subgoals    the subgoals of plans that use the action, newest first
    """

    session: str
    action: str
    executions: tuple[dict[str, Any], ...]
    subgoals: tuple[dict[str, Any], ...]

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "session": self.session,
            "action": self.action,
            "executions": list(self.executions),
            "subgoals": list(self.subgoals),
        }

    def text(self, language: str = "en") -> str:
        """The page for people, in English ("en") or Chinese ("zh"). Raises ReportUnknown for another language."""
        words = WORDS.get(language)
        if words is None:
            raise ReportUnknown(f"there is no page in {language!r}", mend=f"Languages: {', '.join(WORDS)}.")
        return "\n".join(_page(self, words))


def explain(graph: StateGraph, bundles: Bundles, action: str, limit: int) -> Why:
    """What happened to an action. Raises NodeUnknown where the session neither called nor planned it."""
    asked = f"node.data.action == {json.dumps(action)}"
    calls = graph.nodes(type="call", where=asked, lifecycle=None, limit=limit)
    planned = graph.nodes(type="subgoal", where=asked, limit=limit)
    if not calls and not planned:
        others = sorted({str(call.data["action"]) for call in graph.nodes(type="call", limit=_LOOKED_THROUGH)})
        raise NodeUnknown(
            f"session {graph.session_id!r} has neither called nor planned an action {action!r}",
            mend=f"It has called: {', '.join(others) or 'nothing'}.",
            facts={"session": graph.session_id, "action": action, "called": others},
        )
    subgoals = [{name: node.data.get(name) for name in ("name", "status", "error", "call")} for node in planned]
    return Why(graph.session_id, action, tuple(_execution(graph, bundles, call) for call in calls), tuple(subgoals))


# -- what is known of one execution ----------------------------------------------------------------


def _execution(graph: StateGraph, bundles: Bundles, call: Node) -> dict[str, Any]:
    receipt = _receipt(graph, call)
    evidence = receipt.data.get("evidence") if receipt is not None else None
    cid = evidence["$cid"] if evidence else None
    bundle, damage = _bundle(bundles, cid)
    told: dict[str, Any] = {name: bundle.get(name) for name in _FROM_BUNDLE}
    told |= {
        "call": call.id,
        "status": receipt.data["status"] if receipt is not None else "open",
        "error": told["error"] or (receipt.data.get("error") if receipt is not None else None),
        "at": told["started_at"] or call.created_at.isoformat(),
        "params": told["params"] if told["params"] is not None else call.data["params"],
        "idempotency_key": call.data["idempotency_key"],
        "conditions": told["conditions"] or (receipt.data["conditions"] if receipt is not None else []),
        "read": list(_read(graph, bundle, call)),
        "output": bundle.get("output"),
        "apart": bundle.get("apart", []),
        "evidence": cid,
        "damaged": damage,
    }
    return told | {"next": [_hint(key, **facts) for key, facts in _next(graph, told)]}


def _receipt(graph: StateGraph, call: Node) -> Node | None:
    for edge in graph.edges(call.id):
        if edge.source == call.id and edge.type == "triggers":
            node = _node(graph, edge.target)
            if node is not None and node.type == "receipt":
                return node
    return None


def _bundle(bundles: Bundles, cid: str | None) -> tuple[dict[str, Any], str | None]:
    """A bundle, or {} and why it can't be read."""
    if cid is None:
        return {}, None
    try:
        return bundles.get(cid), None
    except (EvidenceUnknown, EvidenceDamaged) as error:
        return {}, str(error)


def _read(graph: StateGraph, bundle: Mapping[str, Any], call: Node) -> Iterator[dict[str, Any]]:
    """The nodes that a call read, with what has become of them since."""
    inputs: Mapping[str, Any] = bundle.get("inputs") or {id: {"node": id} for id in call.data.get("inputs", [])}
    for name, told in inputs.items():
        now = _node(graph, told["node"])
        known: dict[str, Any] = {"type": now.type, "version": None} if now is not None else {}
        yield known | {"name": name} | dict(told) | {"now": now.lifecycle if now is not None else "gone"}


def _node(graph: StateGraph, id: str) -> Node | None:
    try:
        return graph.node(id)
    except NodeUnknown:
        return None


# -- what to look at next --------------------------------------------------------------------------


def _hint(key: str, **facts: Any) -> dict[str, Any]:
    return {"hint": key, **facts}


def _next(graph: StateGraph, told: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    error: Mapping[str, Any] = told["error"] or {}
    if told["damaged"]:
        yield "next_damaged", {}
    if told["status"] == "open":
        yield "next_open", {}
    if told["status"] == "unknown":
        yield "next_unknown", {"key": told["idempotency_key"]}
    yield from _by_code(error)
    if told["status"] != "succeeded":
        for read in told["read"]:
            yield _origin(graph, read)
    if told["evidence"] and not told["damaged"]:
        yield "next_evidence", {"cid": told["evidence"]}
    if told["version"]:
        yield "next_version", {"version": told["version"]}


def _by_code(error: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    code = error.get("code")
    if code in ("ParametersInvalid", "InputInvalid"):
        yield "next_params", {}
    elif code in ("PostconditionFailed", "OutputInvalid", "BadOutput"):
        yield "next_output", {}
    elif code == "ToolOutOfMemory":
        yield "next_memory", {}
    elif code == "TimedOut" and "seconds" in error:
        yield "next_time", {"seconds": error["seconds"], "limit": error.get("limit", "total")}
    elif code == "ToolFailed" and error.get("traceback"):
        places = [line.strip() for line in str(error["traceback"]).splitlines() if line.strip().startswith("File ")]
        yield "next_tool", {"last": places[-1] if places else str(error.get("type"))}
    if error.get("mend"):
        yield "next_mend", {"mend": error["mend"]}


def _origin(graph: StateGraph, read: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Where a node that was read came from: the action whose call wrote it, or whoever did."""
    for edge in graph.edges(read["node"]):
        call = _node(graph, edge.source) if edge.target == read["node"] and edge.type == "causes" else None
        if call is not None and call.type == "call":
            facts = {"name": read["name"], "action": call.data["action"], "session": graph.session_id}
            return "next_producer", facts
    node = _node(graph, read["node"])
    return "next_given", {"name": read["name"], "owner": (node.owner if node is not None else None) or "?"}


# -- the page --------------------------------------------------------------------------------------


def _page(why: Why, words: Mapping[str, str]) -> Iterator[str]:
    names = {"action": why.action, "session": why.session}
    if why.executions:
        count = len(why.executions)
        said = words["one"] if count == 1 else words["several"].format(count=count)
        yield words["title"].format(**names, count=said, status=_status(why.executions[0], words))
    else:
        yield words["title_never"].format(**names)
    for number, told in enumerate(why.executions, 1):
        yield ""
        yield from _told(number, told, words)
    if why.subgoals:
        yield ""
        yield words["subgoals"]
        for each in why.subgoals:
            line = words["subgoal"].format(name=each["name"], status=_status(each, words))
            yield f"  {line}{': ' + _reason(each['error']) if each['error'] else ''}"
        if not why.executions:
            yield f"  {words['next']} {words['next_plan'].format(session=why.session)}"


def _told(number: int, told: Mapping[str, Any], words: Mapping[str, str]) -> Iterator[str]:
    head = words["execution"].format(number=number, status=_status(told, words), at=told["at"], call=told["call"])
    if (told["attempt"] or 1) > 1:
        head += words["attempt"].format(attempt=told["attempt"])
    if told["seconds"] is not None:
        head += words["took"].format(seconds=told["seconds"], executor=told["executor"] or "?")
    yield head
    if told["error"]:
        yield f"   {words['why']} {_reason(told['error'])}"
    if told["damaged"]:
        yield f"   {words['damaged']} {told['damaged']}"
    yield f"   {words['read']}" if told["read"] else f"   {words['read']} {words['nothing']}"
    for read in told["read"]:
        line = words["node"].format(**{"type": "?", "version": "?"} | {k: v for k, v in read.items() if v is not None})
        yield f"     {line}{words['since'].format(lifecycle=read['now']) if read['now'] != 'active' else ''}"
    yield from _params(told, words)
    if told["conditions"]:
        yield f"   {words['conditions']}"
        yield from (f"     {line}" for entry in told["conditions"] for line in _condition(entry, words))
    if told["status"] not in ("refused", "open"):
        yield f"   {words['said']} {_value(told['output'], 'output' in told['apart'], words)}"
    if told["stderr_tail"]:
        yield f"   {words['stderr']}"
        yield from (f"     {line}" for line in str(told["stderr_tail"]).splitlines()[-_STDERR_LINES:])
    used = words["list"].join(_used(told, words))
    if used:
        yield f"   {words['used']} {used}"
    yield f"   {words['next']}"
    yield from (f"     - {words[hint['hint']].format(**hint)}" for hint in told["next"])


def _params(told: Mapping[str, Any], words: Mapping[str, str]) -> Iterator[str]:
    if "params" in told["apart"]:
        yield f"   {words['params']} {_value(told['params'], True, words)}"
        return
    references: Mapping[str, Any] = told["references"] or {}
    params: Mapping[str, Any] = told["params"] or {}
    yield f"   {words['params']}"
    for name, value in params.items():
        source = f"  ({words['from'].format(source=_short(references[name]))})" if name in references else ""
        yield f"     {name} = {_short(value)}{source}"


def _condition(entry: Mapping[str, Any], words: Mapping[str, str]) -> Iterator[str]:
    yield f"{words['holds' if entry['holds'] else 'fails']} ({words[entry['kind']]})  {entry['source']}"
    for path, value in entry["values"].items():
        yield f"    {path} = {_short(value)}"
    if entry.get("reason"):
        yield f"    {entry['reason']}"


def _used(told: Mapping[str, Any], words: Mapping[str, str]) -> Iterator[str]:
    names = {"cpu": "cpu_seconds", "memory": "peak_memory_mb", "gpu_memory": "gpu_memory_mb", "exit": "exit_code"}
    for word, name in names.items():
        if told[name] is not None:
            yield words[word].format(value=told[name])


def _status(told: Mapping[str, Any], words: Mapping[str, str]) -> str:
    return words.get(f"status_{told['status']}", str(told["status"]))


def _reason(error: Mapping[str, Any]) -> str:
    """An error in one line: its code, what happened, why."""
    why = f": {error['why']}" if error.get("why") else ""
    return f"[{error.get('code', '?')}] {error.get('what', '')}{why}"


def _value(value: Any, apart: bool, words: Mapping[str, str]) -> str:
    return words["apart"].format(bytes=value["bytes"], cid=value["$cid"]) if apart else _short(value)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) and value.startswith("${") else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONG else f"{text[:_LONG]}… ({len(text)})"
