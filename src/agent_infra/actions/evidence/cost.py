"""What a call cost: tokens, and money by the provider's answer or a dated table of prices. What is unknown is None.

A tool reports what it used by `CallContext.used(…)`, once a request; or its result is a provider's answer that says so
itself (`usage` with the token counts of OpenAI's or Anthropic's form, and `model`). Money that the provider names is taken;
else the table is asked, if it has the model.

    date: 2026-11-01          # the day that the prices are of: it stands in every bundle that used them
    currency: USD
    per: 1000000              # tokens
    models:
      small-model: {in: 0.15, out: 0.60}
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, cast

import msgspec

from agent_infra.documents import read_documents
from agent_infra.errors import ConfigErrors, FileMissing, Problem

Amount = Annotated[float, msgspec.Meta(ge=0)]
_IN: Final = ("prompt_tokens", "input_tokens", "tokens_in")
_OUT: Final = ("completion_tokens", "output_tokens", "tokens_out")
_MONEY: Final = ("cost", "total_cost")
UNKNOWN: Final[dict[str, Any]] = {
    "tokens_in": None,
    "tokens_out": None,
    "money": None,
    "currency": None,
    "source": None,
    "table": None,
    "requests": [],
}


@dataclass(frozen=True, slots=True)
class Usage:
    """What one request to a paid service used. None: not told."""

    model: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    money: float | None = None
    currency: str | None = None


class ModelPrice(msgspec.Struct, frozen=True, rename={"into": "in"}, forbid_unknown_fields=True):
    """What a model's tokens cost, in the table's currency, for `per` tokens."""

    into: Amount
    out: Amount


class PriceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prices as of a day."""

    date: str
    currency: str
    per: Annotated[int, msgspec.Meta(gt=0)]
    models: dict[str, ModelPrice]
    file: str | None = None

    def price(self, usage: Usage) -> float | None:
        """What a request costs by this table; None where the model or a count is unknown."""
        of = self.models.get(usage.model or "")
        if of is None or usage.tokens_in is None or usage.tokens_out is None:
            return None
        exact = Decimal(str(of.into)) * usage.tokens_in + Decimal(str(of.out)) * usage.tokens_out
        return float(exact / self.per)


def read_prices(path: Path) -> PriceTable:
    """Read a table of prices, YAML or TOML. Raises FileMissing, DocumentErrors, ConfigErrors."""
    if not path.is_file():
        raise FileMissing(path, what="table of prices")
    try:
        if path.suffix == ".toml":
            data: Any = tomllib.loads(path.read_text("utf-8"))
        else:
            data = read_documents(path)[0].data
        plain = cast("dict[str, Any]", msgspec.to_builtins(data))
        table = msgspec.convert(plain | {"file": path.name, "models": {}}, PriceTable)
        date.fromisoformat(table.date)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise ConfigErrors([_wrong(path, str(error))]) from error
    models = plain.get("models")
    if not isinstance(models, dict):
        raise ConfigErrors([_wrong(path, "`models` is not there, or not a table")])
    prices: dict[str, ModelPrice] = {}
    problems: list[Problem] = []
    for name, price in cast("dict[str, Any]", models).items():
        try:
            prices[name] = msgspec.convert(price, ModelPrice)
        except msgspec.ValidationError as error:
            problems.append(_wrong(path, f"model {name!r}: {error}"))
    if problems:
        raise ConfigErrors(problems)
    return msgspec.structs.replace(table, models=prices)


def _wrong(path: Path, message: str) -> Problem:
    hint = "it holds date (as 2026-11-01), currency, per (tokens), and models with the prices `in` and `out`"
    return Problem("PricesInvalid", message, str(path), hint=hint)


def usage_in(output: Any) -> Usage | None:
    """What a provider's answer says that it used, if the output is one."""
    answer = cast("dict[str, Any]", output) if isinstance(output, dict) else {}
    told = answer.get("usage")
    if not isinstance(told, Mapping):
        return None
    usage = cast("Mapping[str, Any]", told)
    tokens_in, tokens_out = _number(usage, _IN), _number(usage, _OUT)
    if tokens_in is None and tokens_out is None:
        return None
    money = _number(usage, _MONEY)
    model = answer.get("model")
    return Usage(
        model if isinstance(model, str) else None,
        None if tokens_in is None else int(tokens_in),
        None if tokens_out is None else int(tokens_out),
        money,
        None if money is None else "USD",
    )


def _number(usage: Mapping[str, Any], names: Sequence[str]) -> float | None:
    for name in names:
        value = usage.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def cost_of(usages: Sequence[Usage], prices: PriceTable | None) -> dict[str, Any]:
    """A call's cost as its bundle tells it. A sum with an unknown part is unknown; `requests` has the parts."""
    if not usages:
        return UNKNOWN
    requests = [_priced(usage, prices) for usage in usages]
    currencies = {each["currency"] for each in requests}
    money = _sum([each["money"] for each in requests]) if len(currencies) == 1 else None
    sources = {each["source"] for each in requests}
    by_table = prices is not None and "price table" in sources
    return {
        "tokens_in": _sum([usage.tokens_in for usage in usages]),
        "tokens_out": _sum([usage.tokens_out for usage in usages]),
        "money": money,
        "currency": None if money is None else currencies.pop(),
        "source": None if money is None else " and ".join(sorted(sources)),
        "table": {"file": prices.file, "date": prices.date} if prices is not None and by_table else None,
        "requests": requests,
    }


def _priced(usage: Usage, prices: PriceTable | None) -> dict[str, Any]:
    told = asdict(usage)
    if usage.money is not None:
        return told | {"source": "provider"}
    money = prices.price(usage) if prices is not None else None
    if prices is None or money is None:
        return told | {"currency": None, "source": None}
    return told | {"money": money, "currency": prices.currency, "source": "price table"}


def _sum(parts: Sequence[Any]) -> Any:
    """A sum of decimal numbers, None where a part is unknown."""
    if any(part is None for part in parts):
        return None
    if all(isinstance(part, int) for part in parts):
        return sum(parts)
    return float(sum(Decimal(str(part)) for part in parts))
