"""Tools are checked when they are made, and check what goes in and comes out."""

from __future__ import annotations

import math
from typing import Any

import pytest

from agent_infra.actions import CallContext, Tool, make_tool
from agent_infra.errors import ToolInvalid

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def weather(city: str, days: int = 1) -> dict[str, Any]:
    """The weather of a city."""
    return {"city": city, "days": days}


def open_weather(**anything: Any) -> dict[str, Any]:
    return anything


def tool_with(**changes: Any) -> Tool:
    fields: dict[str, Any] = {"name": "weather", "input_schema": CITY, "output_schema": {}, "run": weather}
    return Tool(**fields | {"effects": "none"} | changes)


# -- definitions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "two words"}, "'two words' can't be a tool's name"),
        ({"name": "天气"}, "'天气' can't be a tool's name"),
        ({"name": ""}, "can't be a tool's name"),
        ({"version": ""}, "empty version"),
        ({"run": 5}, "can't be called"),
        ({"effects": "onse"}, "Did you mean 'once'?"),
        ({"isolation": "proces"}, "Did you mean 'process'?"),
        ({"resources": {"memory": 512}}, "Did you mean 'memory_mb'?"),
        ({"resources": {"cpu": -1}}, "cpu: -1"),
        ({"resources": {"cpu": True}}, "cpu: True"),
        ({"resources": {"gpu": math.nan}}, "gpu: nan"),
        ({"run": lambda city, /: city}, "by position"),
        ({"run": lambda *city: city}, "by position"),
        ({"run": lambda town: town}, "declares city, which its function doesn't take"),
        ({"run": lambda city, land: city + land}, "needs 'land', which its input schema doesn't require"),
    ],
)
def test_a_definition_that_can_not_be_used_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ToolInvalid) as refused:
        tool_with(**changes)
    assert said in str(refused.value)


@pytest.mark.parametrize("side", ["input_schema", "output_schema"])
@pytest.mark.parametrize(
    ("schema", "path", "said"),
    [
        ({"properties": {"city": {"type": "integr"}}}, "/properties/city/type", "did you mean 'integer'?"),
        ({"properties": {"a/b": {"minimum": "1"}}}, "/properties/a~1b/minimum", "number"),
        ({"properties": {"city": {"$ref": "https://a.example/s.json"}}}, "/properties/city/$ref", "nothing is fetched"),
        ({"properties": {"city": {"$ref": "file:///etc/passwd"}}}, "/properties/city/$ref", "nothing is fetched"),
        ({"items": [{"$ref": "#/$defs/none"}]}, "/items", ""),
        ({"properties": {"city": {"$ref": "#/$defs/none"}}}, "/properties/city/$ref", "does not exist"),
        ({"properties": {"city": {"minimum": math.nan}}}, "/properties/city/minimum", "nan"),
        ({"pattern": "("}, "/pattern", "regex"),
        ([], "/", "a list"),
    ],
)
def test_a_schema_that_can_not_be_used_is_refused_at_its_place(side: str, schema: Any, path: str, said: str) -> None:
    with pytest.raises(ToolInvalid) as refused:
        tool_with(**{side: schema})
    assert refused.value.facts["path"] == path
    assert said in str(refused.value)
    assert side.replace("_", " ") in str(refused.value)


def test_a_local_reference_and_a_property_of_that_name_are_allowed() -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/name"}, "$ref": {"type": "string"}},
        "required": ["city"],
        "$defs": {"name": {"type": "string", "minLength": 2}},
    }
    made = tool_with(input_schema=schema, run=open_weather)
    assert made.check_input({"city": "北京", "$ref": "x"}) == []
    assert made.check_input({"city": "x"}) == ['/city: "x" is shorter than 2 characters']


def test_parameters_are_one_object() -> None:
    with pytest.raises(ToolInvalid, match="given by name"):
        tool_with(input_schema={"type": "array"}, run=open_weather)


def test_effects_that_nobody_declared_count_as_once() -> None:
    assert tool_with(effects=None).effects_in_force == "once"
    assert tool_with(effects="idempotent").effects_in_force == "idempotent"


def test_a_definition_is_json_and_says_everything() -> None:
    made = tool_with(resources={"cpu": 1}, description="天气", output_schema=None)
    assert made.definition() == {
        "name": "weather",
        "version": "1.0.0",
        "description": "天气",
        "input_schema": CITY,
        "output_schema": {},
        "resources": {"cpu": 1},
        "effects": "none",
        "isolation": "none",
    }


# -- checking values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "problems"),
    [
        ({"city": "北京"}, []),
        ({"city": "北京", "days": 3}, []),
        ({}, ['/: "city" is a required property']),
        ({"city": 5}, ['/city: 5 is not of type "string"']),
        ({"city": "北京", "dyas": 3}, ["/dyas: weather takes no parameter of that name"]),
        ({"city": "北京", "days": math.nan}, ["/days: nan is not a JSON number"]),
        ({"city": "北京", "days": {"deep": [(1, 2)]}}, ["/days/deep/0: a tuple is not a JSON value"]),
    ],
)
def test_parameters_are_checked(params: dict[str, Any], problems: list[str]) -> None:
    assert tool_with().check_input(params) == problems


def test_all_problems_come_at_once() -> None:
    made = make_tool(weather, effects="none")
    assert [problem.split(":")[0] for problem in made.check_input({"city": 1, "days": "x"})] == ["/city", "/days"]


def test_results_are_checked() -> None:
    made = tool_with(output_schema={"type": "object", "properties": {"temp": {"maximum": 60}}})
    assert made.check_output({"temp": 22}) == []
    assert made.check_output({"temp": 99}) == ["/temp: 99 is greater than the maximum of 60"]
    assert made.check_output({"temp": math.nan}) == ["/temp: nan is not a JSON number"]
    assert made.check_output({"temp": {1}}) == ["/temp: a set is not a JSON value"]


# -- the context -------------------------------------------------------------------------------------------------------


def test_a_context_counts_down_and_reports() -> None:
    heard: list[str | float] = []
    context = CallContext("key", seconds=30.0, report=heard.append)
    assert 0 < (context.deadline or 0) <= 30.0
    context.progress("开始")
    context.progress(1)
    assert heard == ["开始", 1.0]
    assert CallContext("key", seconds=-1.0).deadline == 0.0
    assert CallContext("key").deadline is None
    CallContext("key").progress(0.5)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, math.nan])
def test_progress_is_a_fraction(fraction: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        CallContext("key").progress(fraction)
