"""What a call cost: by the provider's word or by a dated table, and unknown where nobody said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_infra import CallContext, Infra, StateGraph
from agent_infra.actions import read_prices
from agent_infra.actions.evidence.cost import ModelPrice, PriceTable, Usage, cost_of
from agent_infra.actions.tools import make_tool
from agent_infra.config import Project
from agent_infra.errors import AgentInfraError, ConfigErrors, FileMissing

PRICES = """\
date: 2026-11-01
currency: CNY
per: 1000000
models:
  small: {in: 1.5, out: 6}
  模型-乙: {in: 0.1, out: 0.2}
"""


@pytest.fixture
def table(tmp_path: Path) -> PriceTable:
    path = tmp_path / "价格.yaml"
    path.write_text(PRICES, encoding="utf-8")
    return read_prices(path)


def asks(model: str, context: CallContext) -> str:
    """Ask a model twice, and say what that used."""
    context.used(model=model, tokens_in=1000, tokens_out=10)
    context.used(model=model, tokens_in=2000, tokens_out=30)
    return "答"


def cost(infra: Infra, name: str, **params: Any) -> dict[str, Any]:
    result = infra.actions.execute({"tool": name, "params": params}, infra.session("会话"))
    assert result.ok, result
    return infra.evidence.get(result.evidence_cid)["cost"]


@pytest.mark.parametrize("isolation", ["none", "process"])
def test_tokens_are_counted_and_money_comes_from_the_table(tmp_path: Path, isolation: Any) -> None:
    (tmp_path / "prices.yaml").write_text(PRICES, encoding="utf-8")
    project = Project(root=tmp_path)
    with Infra.open(tmp_path / "家", project=project, durability="os", evidence={"prices": "prices.yaml"}) as infra:
        infra.tools.register(make_tool(asks, effects="none", isolation=isolation))
        told = cost(infra, "asks", model="small")
        assert (told["tokens_in"], told["tokens_out"]) == (3000, 40)
        assert told["money"] == pytest.approx((3000 * 1.5 + 40 * 6) / 1e6)
        assert (told["currency"], told["source"]) == ("CNY", "price table")
        assert told["table"] == {"file": "prices.yaml", "date": "2026-11-01"}
        assert [each["tokens_in"] for each in told["requests"]] == [1000, 2000]
        unknown = cost(infra, "asks", model="another")
        assert (unknown["tokens_in"], unknown["money"], unknown["currency"], unknown["table"]) == (
            3000,
            None,
            None,
            None,
        )


def test_a_call_that_says_nothing_costs_an_unknown_amount_not_nothing(infra: Infra, graph: StateGraph) -> None:
    @infra.tools.tool(effects="none")
    def silent() -> dict[str, Any]:
        """Say nothing of use."""
        return {"usage": "much"}

    told = cost(infra, "silent")
    assert told == {
        "tokens_in": None,
        "tokens_out": None,
        "money": None,
        "currency": None,
        "source": None,
        "table": None,
        "requests": [],
    }


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"model": "small", "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}, (7, 3, None)),
        ({"usage": {"input_tokens": 5, "output_tokens": 0}}, (5, 0, None)),
        ({"usage": {"prompt_tokens": 5, "completion_tokens": 2, "cost": 0.25}}, (5, 2, 0.25)),
        ({"usage": {"prompt_tokens": 5}}, (5, None, None)),
        ({"usage": {"prompt_tokens": True, "completion_tokens": -1}}, (None, None, None)),
        ({"usage": {"seats": 3}}, (None, None, None)),
    ],
)
def test_a_providers_answer_says_what_it_used(infra: Infra, answer: dict[str, Any], expected: tuple[Any, ...]) -> None:
    @infra.tools.tool(effects="none")
    def chat() -> dict[str, Any]:
        """Give a provider's answer."""
        return answer

    told = cost(infra, "chat")
    assert (told["tokens_in"], told["tokens_out"], told["money"]) == expected
    if expected[2] is not None:
        assert (told["source"], told["currency"], told["table"]) == ("provider", "USD", None)


def test_a_failing_call_still_costs(infra: Infra, graph: StateGraph) -> None:
    @infra.tools.tool(effects="none")
    def fails(context: CallContext) -> None:
        """Pay, and fail."""
        context.used(tokens_in=9, tokens_out=1, money=0.5, currency="EUR")
        raise RuntimeError("付了钱也没用")

    told = infra.evidence.get(infra.actions.execute("fails", graph).evidence_cid)["cost"]
    assert (told["money"], told["currency"], told["tokens_in"]) == (0.5, "EUR", 9)


@pytest.mark.parametrize("amounts", [{"tokens_in": -1}, {"money": float("nan")}, {"tokens_out": float("inf")}])
def test_what_is_no_amount_is_refused(amounts: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        CallContext("k").used(**amounts)


def test_a_sum_with_an_unknown_part_is_unknown(table: PriceTable) -> None:
    known = Usage("small", 1000, 100)
    assert cost_of([known, Usage("small", 1000, None)], table)["money"] is None
    assert cost_of([known, Usage("small", 1000, None)], table)["tokens_in"] == 2000
    assert cost_of([known, Usage(None, 1, 1, 0.1, "USD")], table)["money"] is None, "yuan and dollars don't add up"
    assert cost_of([Usage(None, 1, 1, 0.0, "USD")], table)["money"] == 0.0, "free is not unknown"


@given(counts=st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=1, max_size=20))
def test_the_price_of_a_call_is_the_price_of_its_requests(counts: list[tuple[int, int]]) -> None:
    table = PriceTable("2026-11-01", "USD", 1000, {"m": ModelPrice(0.1, 0.7)})
    told = cost_of([Usage("m", *count) for count in counts], table)
    tokens = [sum(column) for column in zip(*counts, strict=True)]
    assert [told["tokens_in"], told["tokens_out"]] == tokens
    assert told["money"] == pytest.approx((tokens[0] * 0.1 + tokens[1] * 0.7) / 1000)
    assert told["money"] == pytest.approx(sum(each["money"] for each in told["requests"]))


# -- the table -------------------------------------------------------------------------------------


def test_a_table_may_be_toml(tmp_path: Path, table: PriceTable) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(
        'date = 2026-11-01\ncurrency = "CNY"\nper = 1000000\n[models]\nsmall = {in = 1.5, out = 6}\n'
        '"模型-乙" = {in = 0.1, out = 0.2}\n',
        encoding="utf-8",
    )
    toml = read_prices(path)
    assert (toml.date, toml.models) == (table.date, table.models)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("date: 2026-11-01\n", "", "date"),
        ("2026-11-01", "November", "November"),
        ("per: 1000000", "per: 0", "per"),
        ("in: 1.5", "in: -1", "small"),
        ("currency: CNY", "currency: [CNY]", "currency"),
        ("per: 1000000", "pre: 1000000", "pre"),
        (PRICES, "- 1\n", "prices.yaml"),
    ],
)
def test_a_wrong_table_is_told(tmp_path: Path, old: str, new: str, says: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(PRICES.replace(old, new), encoding="utf-8")
    with pytest.raises(AgentInfraError, match=says) as caught:
        read_prices(path)
    assert str(path) in str(caught.value)


def test_a_table_that_is_not_there_keeps_a_home_closed(tmp_path: Path) -> None:
    with pytest.raises(FileMissing, match=r"keine\.yaml"):
        Infra.open(tmp_path / "家", project=Project(root=tmp_path), evidence={"prices": "keine.yaml"})
    with pytest.raises(ConfigErrors):
        Infra.open(tmp_path / "家", project=Project(root=tmp_path), evidence={"price": "x"})
