"""Typed functions become schemas, and are called with what their hints promise."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, NotRequired, Optional, Required, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_infra.actions import CallContext, make_tool
from agent_infra.content import JsonValue
from agent_infra.errors import NotJson, ToolInvalid

if TYPE_CHECKING:
    from fractions import Fraction

    from agent_infra.actions import CallContext as Context


class Unit(enum.Enum):
    """Of temperatures."""

    METRIC = "metric"
    IMPERIAL = "imperial"


class Count(enum.Enum):
    """Not text."""

    ONE = 1


@dataclass
class Spot:
    """Degrees."""

    latitude: float
    longitude: float = 0.0
    tags: list[str] = field(default_factory=list)
    hash: int = field(init=False, default=0)


@dataclass
class Route:
    """Two spots and a unit."""

    start: Spot
    unit: Unit
    end: Spot | None = None


@dataclass
class Loop:
    """Contains itself."""

    next: Loop | None = None


class Chain(TypedDict):
    """Contains itself."""

    next: Chain | None


class Base(TypedDict):
    """One field."""

    city: str


class Report(Base, total=False):
    """Optional and required fields."""

    note: str
    temp: Required[float]


class Partly(TypedDict):
    """A field that may be absent."""

    city: str
    note: NotRequired[str]


CityName = NewType("CityName", str)


def tool_of(hint: Any, default: Any = dataclasses.MISSING) -> Any:
    """A tool with one parameter `x` of that hint, which gives it back."""

    def same(x):  # type: ignore[no-untyped-def]
        return x

    def optional(x=default):  # type: ignore[no-untyped-def]
        return x

    function: Callable[..., Any] = same if default is dataclasses.MISSING else optional
    function.__annotations__ = {"x": hint, "return": hint}
    return make_tool(function, effects="none")


SPOT = {
    "type": "object",
    "properties": {
        "latitude": {"type": "number"},
        "longitude": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["latitude"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (object, {}),
        (JsonValue, {}),
        (dict[str, JsonValue], {"type": "object"}),
        (Optional[int], {"anyOf": [{"type": "integer"}, {"type": "null"}]}),  # noqa: UP045
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Literal["metric", "imperial"], {"type": "string", "enum": ["metric", "imperial"]}),
        (Literal[1, "one", None], {"enum": [1, "one", None]}),
        (Unit, {"type": "string", "enum": ["metric", "imperial"]}),
        (list, {"type": "array"}),
        (list[list[int]], {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}),
        (Sequence[str], {"type": "array", "items": {"type": "string"}}),
        (dict, {"type": "object"}),
        (dict[str, Any], {"type": "object"}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Annotated[str, "城市"], {"type": "string", "description": "城市"}),
        (Annotated[str, {"unhashable": []}, "城市"], {"type": "string", "description": "城市"}),
        (CityName, {"type": "string"}),
        (Spot, SPOT),
        (
            Report,
            {
                "type": "object",
                "properties": {"city": {"type": "string"}, "note": {"type": "string"}, "temp": {"type": "number"}},
                "required": ["city", "temp"],
                "additionalProperties": False,
            },
        ),
        (
            Partly,
            {
                "type": "object",
                "properties": {"city": {"type": "string"}, "note": {"type": "string"}},
                "required": ["city"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_a_hint_is_a_schema(hint: Any, schema: dict[str, Any]) -> None:
    made = tool_of(hint)
    assert made.input_schema == {
        "type": "object",
        "properties": {"x": schema},
        "required": ["x"],
        "additionalProperties": False,
    }
    assert made.output_schema == schema


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        (datetime.datetime, "datetime"),
        (set[int], "set"),
        (tuple[int, int], "tuple"),
        (bytes, "bytes"),
        (Callable[[], int], "Callable"),
        (dict[int, str], "keys of type int"),
        (Count, "Use Literal"),
        (Literal[b"x"], "JSON scalars"),
        (Loop, "contains itself"),
        (Chain, "contains itself"),
        (list[datetime.date], "date"),
        (Spot | Route, "can't be built from JSON"),
    ],
)
def test_a_hint_without_a_json_form_is_refused(hint: Any, said: str) -> None:
    with pytest.raises(ToolInvalid) as refused:
        tool_of(hint)
    assert said in str(refused.value)
    assert "same" in str(refused.value)


@pytest.mark.parametrize(
    ("hint", "default", "shown"),
    [
        (int, 3, 3),
        (int | None, None, None),
        (Unit, Unit.METRIC, "metric"),
        (Spot, Spot(1.0), {"latitude": 1.0, "longitude": 0.0, "tags": []}),
    ],
)
def test_a_default_makes_a_parameter_optional_and_is_shown(hint: Any, default: Any, shown: Any) -> None:
    schema = tool_of(hint, default).input_schema
    assert schema["required"] == []
    assert schema["properties"]["x"]["default"] == shown


def test_a_default_without_a_json_form_is_not_shown() -> None:
    assert "default" not in tool_of(Any, object()).input_schema["properties"]["x"]
    assert "default" not in tool_of(float, float("nan")).input_schema["properties"]["x"]


def test_a_docstring_describes_the_tool_and_its_parameters() -> None:
    def forecast(city: str, days: int = 1, units: Annotated[str, "hint"] = "metric", *, bare: bool = False) -> None:
        """The forecast.

        Over several days.

        Args:
            city: 城市,
                in any language: 任何语言
            days (int): how many
            units: not this
            other: nobody's

        Returns:
            Nothing.
        """

    made = make_tool(forecast, effects="none")
    properties = made.input_schema["properties"]
    assert made.description == "The forecast.\n\nOver several days."
    assert properties["city"]["description"] == "城市, in any language: 任何语言"
    assert properties["days"]["description"] == "how many"
    assert properties["units"]["description"] == "hint"
    assert "description" not in properties["bare"]
    assert set(properties) == {"city", "days", "units", "bare"}


def test_a_docstring_may_be_chinese() -> None:
    def forecast(city: str) -> None:
        """天气预报.

        参数：
            city：城市名
        返回：
            无
        """

    made = make_tool(forecast, effects="none")
    assert made.description == "天气预报."
    assert made.input_schema["properties"]["city"]["description"] == "城市名"


def test_further_names_have_the_type_of_the_double_star() -> None:
    def totals(**amounts: int) -> int:
        return sum(amounts.values())

    made = make_tool(totals, effects="none")
    assert made.check_input({"a": 1, "b": 2}) == []
    assert made.check_input({"a": "1"}) == ['/a: "1" is not of type "integer"']
    assert made.binding.call({"a": 1, "b": 2}, CallContext("k")) == 3


def test_a_hint_for_type_checkers_only_is_named() -> None:
    def share(of: Fraction) -> float:
        return float(of)

    with pytest.raises(ToolInvalid, match="'Fraction', which names nothing at run time"):
        make_tool(share, effects="none")


@pytest.mark.parametrize("place", ["first", "last", "checkers only", "optional"])
def test_the_context_stays_out_of_the_schema(place: str) -> None:
    def first(context: CallContext, city: str) -> str:
        return f"{city} {context.idempotency_key}"

    def last(city: str, context: CallContext) -> str:
        return f"{city} {context.idempotency_key}"

    def hidden(city: str, context: Context) -> str:
        return f"{city} {context.idempotency_key}"

    hidden.__annotations__["context"] = "agent_infra.CallContext"  # not importable under that name here

    def optional(city: str, context: CallContext | None = None) -> str:
        return f"{city} {context.idempotency_key if context else None}"

    function = {"first": first, "last": last, "checkers only": hidden, "optional": optional}[place]
    made = make_tool(function, effects="none")
    assert list(made.input_schema["properties"]) == ["city"]
    assert made.binding.call({"city": "北京"}, CallContext("钥匙")) == "北京 钥匙"
    assert made.check_input({"city": "北京", "context": 1}) != []


def test_callables_of_any_kind_are_read() -> None:
    class Greeter:
        async def __call__(self, name: str) -> str:
            return name

        def method(self, name: str) -> str:
            return name

    async def greet(greeting: str, name: str) -> str:
        return greeting + name

    assert make_tool(Greeter(), effects="none").binding.is_async
    assert not make_tool(Greeter().method, effects="none").binding.is_async
    partial = make_tool(functools.partial(greet, "你好"), name="greet", effects="none")
    assert partial.binding.is_async
    assert list(partial.input_schema["properties"]) == ["name"]
    assert (
        make_tool(functools.lru_cache(Greeter().method), name="cached", effects="none").check_input({"name": "x"}) == []
    )


def test_a_result_that_is_not_json_is_refused_unless_the_hint_says_what_it_is() -> None:
    made = tool_of(Any)
    with pytest.raises(NotJson):
        made.binding.plain({"spot": Spot(1.0)})
    assert tool_of(Spot).binding.plain(Spot(1.0))["latitude"] == 1.0
    with pytest.raises(NotJson):
        tool_of(Spot).binding.plain(Spot(float("nan")))


# A hint, and values of its JSON form.
LEAVES = [
    (str, st.text()),
    (int, st.integers(-(2**53), 2**53)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bool, st.booleans()),
    (type(None), st.none()),
    (Literal["a", "城"], st.sampled_from(["a", "城"])),
    (Unit, st.sampled_from(["metric", "imperial"])),
    (
        Route,
        st.fixed_dictionaries({"start": st.fixed_dictionaries({"latitude": st.just(1.5)}), "unit": st.just("metric")}),
    ),
]


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda pair: (list[pair[0]], st.lists(pair[1], max_size=3))),  # type: ignore[name-defined]
        inner.map(lambda pair: (dict[str, pair[0]], st.dictionaries(st.text(), pair[1], max_size=3))),  # type: ignore[name-defined]
        inner.map(lambda pair: (Optional[pair[0]], st.one_of(st.none(), pair[1]))),  # type: ignore[name-defined]  # noqa: UP045
    )


@given(st.recursive(st.sampled_from(LEAVES), nested, max_leaves=4), st.data())
def test_what_a_schema_lets_in_arrives_as_its_hint_and_leaves_as_json(pair: Any, data: st.DataObject) -> None:
    hint, values = pair
    value = data.draw(values)
    made = tool_of(hint)
    assert made.check_input({"x": value}) == []
    result = made.binding.plain(made.binding.call({"x": value}, CallContext("k")))
    again = made.binding.plain(made.binding.call({"x": result}, CallContext("k")))
    assert result == again
