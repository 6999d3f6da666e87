"""Permissions: what an agent sees, may change and is refused, by rules of nodes and of types, for names, roles and owners."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_infra.clock import ManualClock
from agent_infra.errors import InvalidNode, NodeUnknown, PermissionRefused, SchemaInvalid
from agent_infra.expressions import compile_expression
from agent_infra.state import Home, Node, StateGraph, activation, open_memory

READERS = {"read": ["planner", "role:auditor"]}
WRITERS = {"write": ["planner", "role:auditor"]}


def ids(nodes: list[Node]) -> set[str]:
    return {node.id for node in nodes}


@pytest.fixture
def secret(graph: StateGraph) -> Node:
    """A node that only the planner, auditors and its owner may read, caused by a call that everybody may read."""
    with graph.step(agent="owner") as step:
        call = step.add_node("api_call", {"n": 1}, tool="search")
        kept = step.add_node("api_response", {"密码": 1}, key="secret", tool="search", permissions=READERS)
        after = step.add_node("note", {"text": "public"}, key="public")
        step.add_edge(call.id, kept.id, "causes")
        step.add_edge(kept.id, after.id, "causes")
        step.add_edge(call.id, after.id, "triggers")
    return kept


# -- reading -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "roles", "sees"),
    [
        ("planner", (), True),
        ("owner", (), True),
        ("anybody", ("auditor",), True),
        ("anybody", ("other", "auditor"), True),
        ("anybody", (), False),
        ("auditor", (), False),
        ("role:auditor", (), False),
        ("plan", (), False),
        ("planner2", (), False),
        ("*", (), False),
        ("anybody", ("planner",), False),
        ("anybody", ("*",), False),
    ],
)
def test_names_roles_and_owners(
    graph: StateGraph, secret: Node, agent: str, roles: tuple[str, ...], sees: bool
) -> None:
    seen = graph.as_agent(agent, roles=roles)
    assert (secret.id in ids(seen.nodes())) is sees
    assert (seen.latest("secret") is not None) is sees
    if sees:
        assert seen.node(secret.id) == graph.node(secret.id)
    else:
        with pytest.raises(PermissionRefused):
            seen.node(secret.id)


def test_no_way_of_reading_shows_what_an_agent_may_not_read(
    graph: StateGraph, clock: ManualClock, secret: Node
) -> None:
    (call,), (after,) = graph.nodes(type="api_call"), graph.nodes(type="note")
    before = graph.history()[0].parent or ""
    since = secret.created_at - timedelta(seconds=1)
    seen = graph.as_agent("executor")
    past = seen.at(graph.version)
    for view in (seen, past, graph.at(graph.version).as_agent("executor")):
        asked: list[Callable[[], list[Node]]] = [
            lambda view=view: view.nodes(),
            lambda view=view: view.nodes(lifecycle=None),
            lambda view=view: view.nodes(type="api_response"),
            lambda view=view: view.nodes(tool="search"),
            lambda view=view: view.nodes(key="secret"),
            lambda view=view: view.nodes(owner="owner"),
            lambda view=view: view.nodes(since=since),
            lambda view=view: view.nodes(where="has(node.data) && node.type == 'api_response'"),
            lambda view=view: view.caused_by("search", 60),
            lambda view=view: view.ancestors(after.id),
            lambda view=view: view.descendants(call.id),
            lambda view=view: view.path(call.id, after.id),
        ]
        for ask in asked:
            assert secret.id not in ids(ask())
        pages, cursor = list[Node](), None
        while True:
            page = view.nodes(limit=1, cursor=cursor)
            pages, cursor = pages + page, page.cursor
            if cursor is None:
                break
        assert ids(pages) == {call.id, after.id}
        assert view.edges(secret.id) == []
        assert [(edge.source, edge.target) for edge in view.edges(call.id)] == [(call.id, after.id)]
        assert view.latest("secret") is None
        assert view.latest("api_response") is None
        assert view.caused_by("search", 60) == []
        difference = view.diff(before, graph.version)
        assert ids(list(difference.added)) == {call.id, after.id}
        for refused in (view.node, view.ancestors, view.descendants, lambda end, view=view: view.path(call.id, end)):
            with pytest.raises(PermissionRefused):
                refused(secret.id)
    assert secret.id in ids(graph.as_agent("planner").descendants(call.id))
    assert secret.id in ids(list(graph.as_agent("planner").diff(before, graph.version).added))


def test_conditions_see_what_their_agent_sees(graph: StateGraph, secret: Node) -> None:
    condition = compile_expression('state.nodes.secret.data["密码"] == 1', ["state"])
    for agent, holds in (("planner", True), ("executor", False)):
        bindings, used = activation(graph.as_agent(agent), [condition])
        assert condition.evaluate(bindings).holds is holds
        assert ("secret" in used) is holds


def test_a_name_falls_to_the_newest_node_that_the_agent_may_read(graph: StateGraph) -> None:
    public = graph.add_node("report", {"n": 1})
    graph.add_node("report", {"n": 2}, permissions={"read": ["planner"]})
    assert graph.as_agent("executor").latest("report") == graph.node(public.id)
    assert graph.as_agent("planner").latest("report") == graph.nodes(type="report")[0]


def test_a_page_is_full_of_what_can_be_seen(graph: StateGraph) -> None:
    for number in range(20):
        graph.add_node("note", {"n": number}, permissions={"read": ["planner"] if number % 3 else ["*"]})
    page = graph.as_agent("executor").nodes(limit=4)
    assert [node.data["n"] for node in page] == [18, 15, 12, 9]
    rest = graph.as_agent("executor").nodes(limit=4, cursor=page.cursor)
    assert [node.data["n"] for node in rest] == [6, 3, 0]
    assert rest.cursor is None


def test_empty_lists_let_nobody_but_the_owner(graph: StateGraph) -> None:
    with graph.step(agent="owner") as step:
        node = step.add_node("note", {}, key="k", permissions={"read": [], "write": []})
    assert graph.as_agent("owner").node(node.id).id == node.id
    with pytest.raises(PermissionRefused, match="nobody"):
        graph.as_agent("planner").node(node.id)
    with pytest.raises(PermissionRefused, match="nobody"):
        graph.as_agent("planner").add_node("note", {}, key="k")


# -- types ---------------------------------------------------------------------------------------------------------------


def test_rules_of_a_type_hold_for_all_its_nodes(home: Home, graph: StateGraph) -> None:
    old = graph.add_node("plan_step", {"n": 0})
    rule = {"read": ["planner", "role:auditor"], "write": ["planner"]}
    home.engine.schemas.register("plan_step", {"x-permissions": rule}, compatibility="NONE")
    own = graph.as_agent("planner").add_node("plan_step", {"n": 1}, key="plan")
    executor, auditor = graph.as_agent("executor"), graph.as_agent("someone", roles=["auditor"])
    assert executor.nodes(type="plan_step") == []
    assert ids(auditor.nodes(type="plan_step")) == {old.id, own.id}
    with pytest.raises(PermissionRefused, match="type 'plan_step' lets only planner, role:auditor read"):
        executor.node(old.id)
    for view in (executor, auditor):
        with pytest.raises(PermissionRefused, match="type 'plan_step' lets only planner write"):
            view.add_node("plan_step", {"n": 2})
        with pytest.raises(PermissionRefused, match="type 'plan_step'"), view.step() as step:
            step.remove(own.id, "why not")
        with pytest.raises(PermissionRefused):
            view.add_node("note", {}, key="plan")
    assert graph.latest("plan") == graph.node(own.id)


def test_a_node_may_be_closer_than_its_type_and_not_wider(home: Home, graph: StateGraph) -> None:
    home.engine.schemas.register(
        "plan_step", {"x-permissions": {"read": ["planner", "executor"]}}, compatibility="NONE"
    )
    closer = graph.add_node("plan_step", {}, permissions={"read": ["planner"]})
    wider = graph.add_node("plan_step", {}, permissions={"read": ["*"]})
    assert ids(graph.as_agent("executor").nodes()) == {wider.id}
    assert ids(graph.as_agent("planner").nodes()) == {closer.id, wider.id}
    assert graph.as_agent("stranger").nodes() == []


@pytest.mark.parametrize(
    "rule", [{"read": "planner"}, {"reads": ["planner"]}, ["planner"], {"write": [1]}, "planner", None]
)
def test_a_rule_of_another_form_is_refused_with_its_schema(home: Home, rule: Any) -> None:
    with pytest.raises(SchemaInvalid) as caught:
        home.engine.schemas.register("plan_step", {"x-permissions": rule}, compatibility="NONE")
    assert caught.value.where == "/x-permissions"


@pytest.mark.parametrize("rule", [{"read": "planner"}, {"reads": ["planner"]}, {"write": [1]}])
def test_a_rule_of_another_form_is_refused_with_its_node(graph: StateGraph, rule: Mapping[str, Any]) -> None:
    with pytest.raises(InvalidNode):
        graph.add_node("note", {}, permissions=rule)


def test_nodes_of_a_type_that_is_declared_no_more_can_be_read(homes: Callable[..., Home], clock: ManualClock) -> None:
    home = homes(undeclared="refuse")
    graph = StateGraph("s", engine=home.engine)
    home.engine.schemas.register("once_declared", {})
    node = graph.add_node("once_declared", {})
    guard_view = graph.as_agent("executor")
    assert guard_view.node(node.id).id == node.id


# -- writing -------------------------------------------------------------------------------------------------------------


def _unmoved(graph: StateGraph, change: Callable[[], object]) -> PermissionRefused:
    before = graph.version
    with pytest.raises(PermissionRefused) as caught:
        change()
    assert graph.version == before
    assert graph.verify().ok
    return caught.value


def test_a_refusal_names_agent_right_and_rule_and_writes_nothing(graph: StateGraph) -> None:
    node = graph.add_node("note", {"text": "原"}, key="报告", permissions=WRITERS)
    executor = graph.as_agent("executor")

    def supersede() -> None:
        with executor.step() as step:
            step.add_node("note", {"text": "harmless"})
            step.add_node("note", {"text": "改"}, key="报告")

    error = _unmoved(graph, supersede)
    assert error.facts == {
        "agent": "executor",
        "right": "write",
        "rule": "node 报告 lets only planner, role:auditor write",
    }
    assert "'executor'" in str(error)
    assert "报告" in str(error)

    def remove() -> None:
        with executor.step() as step:
            step.remove(node.id, "不要了")

    assert _unmoved(graph, remove).facts["right"] == "write"
    assert graph.latest("报告") == graph.node(node.id)

    graph.as_agent("planner").add_node("note", {"text": "改"}, key="报告")
    assert graph.latest("报告") != graph.node(node.id)


def test_reading_is_not_writing(graph: StateGraph) -> None:
    node = graph.add_node("note", {}, key="k", permissions={"read": ["*"], "write": ["planner"]})
    assert graph.as_agent("executor").node(node.id).id == node.id
    with pytest.raises(PermissionRefused):
        graph.as_agent("executor").add_node("note", {}, key="k")
    graph.add_node("note", {}, key="hidden", permissions={"read": ["planner"], "write": ["*"]})
    graph.as_agent("executor").add_node("note", {}, key="hidden")


def test_a_key_is_free_again_once_its_node_is_gone(graph: StateGraph) -> None:
    node = graph.add_node("note", {}, key="k", permissions=WRITERS)
    with graph.as_agent("planner").step() as step:
        step.remove(node.id, "free")
    graph.as_agent("executor").add_node("note", {}, key="k")


def test_an_agent_writes_in_its_own_name(graph: StateGraph) -> None:
    executor = graph.as_agent("executor")
    assert executor.add_node("note", {}).owner == "executor"
    with executor.step(agent="executor") as step:
        assert step.add_node("note", {}).owner == "executor"

    def as_another() -> None:
        with executor.step(agent="planner") as step:
            step.add_node("note", {})

    _unmoved(graph, as_another)


def test_an_edge_needs_ends_that_the_agent_may_read(graph: StateGraph, secret: Node) -> None:
    (after,) = graph.nodes(type="note")
    executor = graph.as_agent("executor")
    for source, target in ((secret.id, after.id), (after.id, secret.id)):
        _unmoved(graph, lambda source=source, target=target: executor.add_edge(source, target, "references"))
    with executor.step() as step:
        new = step.add_node("note", {"text": "新"})
        step.add_edge(after.id, new.id, "causes")
        step.add_edge(new.id, after.id, "references")
    with pytest.raises(NodeUnknown):
        executor.add_edge(after.id, "0" * 26, "causes")


def test_an_agents_fork_is_by_the_same_rights(graph: StateGraph, secret: Node) -> None:
    fork = graph.as_agent("executor").fork("fork")
    assert secret.id not in ids(fork.nodes())
    assert fork.add_node("note", {}).owner == "executor"
    assert secret.id in ids(StateGraph("fork", engine=graph.engine).nodes())


# -- ledgers -------------------------------------------------------------------------------------------------------------


def test_no_agent_reads_or_writes_a_reward_ledger(home: Home, graph: StateGraph) -> None:
    ledger = StateGraph.of_system(home.engine, f"{graph.session_id}/rewards")
    ledger.add_node("signal", {"source": "评分", "value": 1.0, "event_id": "e"})
    graph.add_node("note", {})
    for roles in ((), ("auditor", "*")):
        with pytest.raises(PermissionRefused, match="reward ledger") as caught:
            ledger.as_agent("executor", roles=roles)
        assert caught.value.facts["agent"] == "executor"
        agent = graph.as_agent("executor", roles=roles)
        for old, new in (
            (ledger.version, ledger.version),
            (graph.version, ledger.version),
            (ledger.version, graph.version),
        ):
            with pytest.raises(PermissionRefused, match="reward ledger"):
                agent.diff(old, new)
    assert len(ledger.nodes()) == 1


# -- any rules -----------------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "甲")
ROLES = ("x", "y")
RULES = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {},
        optional={
            right: st.lists(st.sampled_from([*NAMES, *(f"role:{role}" for role in ROLES), "*"]), max_size=2)
            for right in ("read", "write")
        },
    ),
)


def _lets(rule: Mapping[str, list[str]] | None, right: str, agent: str, roles: list[str]) -> bool:
    if rule is None or right not in rule:
        return True
    return bool({agent, "*", *(f"role:{role}" for role in roles)} & set(rule[right]))


@given(
    of_node=RULES, of_type=RULES, owner=st.sampled_from(NAMES), agent=st.sampled_from(NAMES),
    roles=st.lists(st.sampled_from(ROLES), max_size=2),
)  # fmt: skip
def test_a_right_is_given_by_node_and_type_or_by_owning(
    of_node: dict[str, list[str]] | None, of_type: dict[str, list[str]] | None, owner: str, agent: str, roles: list[str]
) -> None:
    home = open_memory()
    home.engine.schemas.register("thing", {"x-permissions": of_type} if of_type is not None else {})
    graph = StateGraph("s", engine=home.engine)
    with graph.step(agent=owner) as step:
        node = step.add_node("thing", {}, key="k", permissions=of_node)
    view = graph.as_agent(agent, roles=roles)
    may = {
        right: owner == agent or (_lets(of_node, right, agent, roles) and _lets(of_type, right, agent, roles))
        for right in ("read", "write")
    }
    assert ids(view.nodes()) == ({node.id} if may["read"] else set())
    assert (view.latest("k") is not None) is may["read"]
    try:
        with view.step() as step:
            step.remove(node.id, "why")
    except PermissionRefused:
        assert not may["write"]
    else:
        assert may["write"]


def test_what_is_kept_is_not_for_an_agents_view_to_say() -> None:
    home = open_memory()
    graph = StateGraph("客服", engine=home.engine)
    versions = []
    for n in range(3):
        graph.add_node("note", {"n": n}, key="k")
        versions.append(graph.version)
    graph.pin(versions[0], owner="审计")
    view = graph.as_agent("执行者")
    with pytest.raises(PermissionRefused, match="collect"):
        view.gc(keep_last=1)
    with pytest.raises(PermissionRefused, match="审计"):
        view.unpin(versions[0], owner="审计")
    assert graph.at(versions[1]).latest("k").data == {"n": 1}
    view.pin(versions[1])
    assert view.unpin(versions[1])
    assert graph.unpin(versions[0], owner="审计")
