"""Sources as agent_infra.toml declares them."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from agent_infra.errors import SourceInvalid
from agent_infra.rewards import MetricSource, PollingSource, sources_from_config


def test_the_tables_of_a_project() -> None:
    tables = tomllib.loads(
        '["用户满意度"]\npoll = "http://127.0.0.1:1/s?event=${event.id}"\nvalue = "answer.score"\n'
        '[response_latency]\nmetric = "seconds"\n'
    )
    polling, metric = sources_from_config(tables)
    assert isinstance(polling, PollingSource)
    assert isinstance(metric, MetricSource)
    assert (polling.name, metric.name) == ("用户满意度", "response_latency")
    assert sources_from_config({}) == []


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"database": "secret://X"}, "poll, metric"),
        ({}, "poll, metric"),
        ({"poll": "http://x", "metric": "seconds", "value": "a"}, "poll and metric"),
        ({"poll": "http://x"}, "needs value"),
        ({"poll": "http://x", "valeu": "a"}, "did you mean `value`?"),
        ({"poll": 5, "value": "a"}, "needs poll"),
        ({"metric": "seconds", "value": "a"}, "unknown key value"),
        ({"poll": "http://x/${oops}", "value": "a"}, "oops"),
        ({"poll": "http://x", "value": "a..b"}, "a..b"),
        ("http://x", "no table"),
    ],
)
def test_anything_else_is_refused_with_what_is_known(table: Any, told: str) -> None:
    with pytest.raises(SourceInvalid) as caught:
        sources_from_config({"good": {"metric": "seconds"}, "bad": table})
    assert told in str(caught.value)
    assert "bad" in str(caught.value)


def test_all_wrong_tables_at_once() -> None:
    with pytest.raises(SourceInvalid) as caught:
        sources_from_config({"one": {}, "two": {"metric": ""}, "three": {"poll": "x", "value": "", "every": "1s"}})
    assert len(caught.value.facts["problems"]) == 4
