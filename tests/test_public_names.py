"""The public names: listed once, there, and each says what it is."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys

import pytest

import agent_infra

ROOMS = [module.name for module in pkgutil.iter_modules(agent_infra.__path__, "agent_infra.") if module.ispkg]


def test_the_list_is_sorted_and_names_nothing_twice() -> None:
    assert list(agent_infra.__all__) == sorted(set(agent_infra.__all__))


@pytest.mark.parametrize("name", sorted(agent_infra.__all__))
def test_a_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(agent_infra, name)
    if inspect.isclass(value) or inspect.isroutine(value):
        assert inspect.getdoc(value), f"{name} has no docstring"


def test_nothing_public_is_left_out_of_the_list() -> None:
    missing = [name for name in dir(agent_infra) if not name.startswith("_") and name not in agent_infra.__all__]
    own = [name for name in missing if getattr(getattr(agent_infra, name), "__module__", "").startswith("agent_infra")]
    assert own == []


def test_importing_the_package_stays_light() -> None:
    heavy = ["rocksdict", "pydantic", "httpx", "structlog", "prometheus_client", "opentelemetry", "typer", "rich"]
    program = f"import sys, agent_infra; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_tells_what_lives_there_and_keeps_its_list(room: str) -> None:
    module = importlib.import_module(room)
    assert module.__doc__, f"{room} has no docstring"
    names = getattr(module, "__all__", [])
    assert [name for name in names if not hasattr(module, name)] == []
