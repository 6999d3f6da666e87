"""Tools that change while contracts of theirs are loaded: the contracts follow, or are refused by name."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from agent_infra import ContractDrift, Infra, StateGraph, Tool

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
LOOK = "name: 看天气\ntool: look\nparams: {city: 北京}\nEFFECTS\n"


class Sky:
    """The tool `look`, in one state after another."""

    def __init__(self, infra: Infra) -> None:
        self.infra = infra
        self.asked: list[dict[str, Any]] = []
        self.register()

    def look(self, **params: Any) -> dict[str, Any]:
        self.asked.append(params)
        return {"temp": 22}

    def register(self, version: str = "1.0.0", effects: Any = "none", **changes: Any) -> None:
        """Another state of the tool; `changes` of its schema."""
        schema = SCHEMA | changes
        self.infra.tools.register(Tool("look", schema, {}, self.look, version=version, effects=effects))


@pytest.fixture
def sky(infra: Infra) -> Sky:
    return Sky(infra)


def load(infra: Infra, effects: str = "") -> Any:
    (contract,) = infra.actions.load(LOOK.replace("EFFECTS", effects))
    return contract


STRICTER: dict[str, Any] = {"required": ["city", "unit"]}


def test_a_contract_follows_a_new_version_under_which_it_still_compiles(
    infra: Infra, graph: StateGraph, sky: Sky
) -> None:
    before = load(infra)
    sky.register("2.0.0", description="新的")
    result = infra.actions.execute("看天气", graph)
    assert result.ok
    assert graph.node(result.event_id).data["tool_version"] == "2.0.0"
    after = infra.actions.get("看天气")
    assert after.tool_version == "2.0.0"
    assert after.hash != before.hash
    assert (after.source, after.file) == (before.source, before.file)
    assert [contract.name for contract in infra.actions.space(graph).legal] == ["看天气"]


def test_the_space_follows_too(infra: Infra, graph: StateGraph, sky: Sky) -> None:
    load(infra)
    before = infra.actions.space(graph).hash
    sky.register("2.0.0")
    (contract,) = infra.actions.space(graph).legal
    assert contract.tool_version == "2.0.0"
    assert infra.actions.space(graph).hash != before


def test_an_action_without_a_file_follows_its_tool(infra: Infra, graph: StateGraph, sky: Sky) -> None:
    spec = {"tool": "look", "params": {"city": "北京"}}
    assert infra.actions.execute(spec, graph).ok
    sky.register("2.0.0", **STRICTER)
    assert infra.actions.execute(spec, graph).status == "refused"
    assert infra.actions.execute({"tool": "look", "params": {"city": "北京", "unit": "C"}}, graph).ok


@pytest.mark.parametrize("version", ["2.0.0", "1.0.0"])
def test_where_it_no_longer_compiles_it_is_illegal_and_not_executed(
    infra: Infra, graph: StateGraph, sky: Sky, version: str
) -> None:
    load(infra)
    sky.register(version, **STRICTER)
    space = infra.actions.space(graph)
    ((contract, reason),) = space.illegal
    assert (contract.name, space.legal) == ("看天气", [])
    assert "'look' is no longer the one that it was compiled for" in reason
    assert "unit" in reason
    verdict = space.validate({"tool": "看天气", "params": {}})
    assert not verdict.ok
    assert "unit" in str(verdict.reason)
    for asked in ("看天气", {"tool": "看天气", "params": {}}, "look", contract):
        with pytest.raises(ContractDrift, match=r"看天气.*") as caught:
            infra.actions.execute(asked, graph)
        assert "unit" in str(caught.value) or "version" in str(caught.value)
    assert sky.asked == []
    assert graph.nodes(type="call") == []


def test_the_way_back_is_open(infra: Infra, graph: StateGraph, sky: Sky) -> None:
    first = load(infra)
    sky.register("2.0.0", **STRICTER)
    with pytest.raises(ContractDrift):
        infra.actions.execute("看天气", graph)
    sky.register("1.0.0")
    assert infra.actions.execute("看天气", graph).ok
    assert infra.actions.get("看天气").hash == first.hash
    assert infra.actions.execute(first, graph).ok
    assert infra.actions.space(graph).illegal == []


def test_a_mended_action_takes_the_place_of_one_that_drifted(infra: Infra, graph: StateGraph, sky: Sky) -> None:
    load(infra)
    sky.register("2.0.0", **STRICTER)
    assert infra.actions.space(graph).illegal != []
    infra.actions.load(LOOK.replace("{city: 北京}", "{city: 北京, unit: C}").replace("EFFECTS", ""))
    assert infra.actions.space(graph).illegal == []
    assert infra.actions.execute("看天气", graph).ok


def test_a_tool_that_is_gone_leaves_its_action_illegal(infra: Infra, graph: StateGraph, sky: Sky) -> None:
    load(infra)
    infra.tools.remove("look")
    ((_, reason),) = infra.actions.space(graph).illegal
    assert "it is gone" in reason
    with pytest.raises(ContractDrift, match="it is gone"):
        infra.actions.execute("看天气", graph)
    sky.register()
    assert infra.actions.execute("看天气", graph).ok


def test_a_contract_compiled_before_is_refused_by_name(infra: Infra, graph: StateGraph, sky: Sky) -> None:
    contract = load(infra)
    sky.register("2.0.0")
    with pytest.raises(ContractDrift) as caught:
        infra.actions.execute(contract, graph)
    for word in ("看天气", "look", "1.0.0", "2.0.0"):
        assert word in str(caught.value)
    assert caught.value.facts == {"action": "看天气", "tool": "look", "compiled": "1.0.0", "now": "2.0.0"}
    assert sky.asked == []
    assert infra.actions.execute("看天气", graph).ok, "by its name it is compiled anew"


# -- effects ---------------------------------------------------------------------------------------


def test_effects_that_the_tool_declares_later_are_in_force(infra: Infra, graph: StateGraph, sky: Sky) -> None:
    before = load(infra)
    sky.register(effects="once")
    assert infra.actions.get("看天气").effects == "once"
    result = infra.actions.execute("看天气", graph)
    assert graph.node(result.event_id).data["effects"] == "once"
    with pytest.raises(ContractDrift, match="declares `once` now"):
        infra.actions.execute(before, graph)


def test_effects_worse_than_the_action_says_are_a_drift(infra: Infra, graph: StateGraph, sky: Sky) -> None:
    load(infra, "effects: none")
    sky.register(effects="once")
    with pytest.raises(ContractDrift, match="does more harm"):
        infra.actions.execute("看天气", graph)
    assert sky.asked == []


def test_effects_milder_than_the_action_says_change_nothing(infra: Infra, graph: StateGraph, sky: Sky) -> None:
    sky.register(effects="idempotent")
    contract = load(infra, "effects: once")
    sky.register(effects="none")
    assert infra.actions.execute(contract, graph).ok
    assert infra.actions.get("看天气").effects == "once"


# -- while others work -----------------------------------------------------------------------------


def test_nobody_sees_a_contract_that_is_just_being_followed(infra: Infra, graph: StateGraph, sky: Sky) -> None:
    names = [f"天气{number}" for number in range(20)]
    infra.actions.load("---\n".join(LOOK.replace("看天气", name).replace("EFFECTS", "") for name in names))
    wrong: list[str] = []

    def watch() -> None:
        for _ in range(200):
            for name in names[::-5]:
                seen = infra.tools.get("look").version
                found = infra.actions.get(name).tool_version
                if float(found) < float(seen):
                    wrong.append(f"{found} after {seen}")

    sky.register("0.01")
    threads = [threading.Thread(target=watch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(2, 40):
        sky.register(f"0.{number:02}")
    for thread in threads:
        thread.join()
    assert wrong == []
    assert infra.actions.execute(names[0], graph).ok
