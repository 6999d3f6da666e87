"""Homes to test on: each test that takes `home`, `graph` or `homes` runs on every store.

A home is closed after its test, so that no test keeps a lock, and its clock stands still until a test moves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_infra.clock import ManualClock
from agent_infra.state import Home, StateGraph, open_home, open_memory

STORES = ("rocksdb", "memory")
OpenHome = Callable[..., Home]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=STORES)
def homes(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[OpenHome]:
    """Opens homes of one store; a folder's name tells them apart."""
    opened: list[Home] = []

    def open_one(name: str = "state home", **settings: object) -> Home:
        if request.param == "memory":
            settings.pop("durability", None)
            home = open_memory(clock=clock, **settings)
        else:
            home = open_home(tmp_path / name, **({"clock": clock} | settings))
        opened.append(home)
        return home

    yield open_one
    for home in opened:
        home.close()


@pytest.fixture
def home(homes: OpenHome) -> Home:
    return homes()


@pytest.fixture
def graph(home: Home) -> StateGraph:
    return StateGraph("weather_demo_001", engine=home.engine)


@pytest.fixture
def disk_home(tmp_path: Path, clock: ManualClock) -> Iterator[Home]:
    """A home on disk, for what only a disk has."""
    home = open_home(tmp_path / "disk home", clock=clock)
    yield home
    home.close()
