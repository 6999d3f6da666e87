"""Homes with an owner: in this process, or in one of its own that can be killed.

A graph that takes the `infra` or `graph` of the tests for both sides is the owner's own, or goes through the socket.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_infra import Infra, StateGraph

RunPython = Callable[..., subprocess.Popen[str]]

OWNER = """
import sys
from agent_infra import Infra
with Infra.open(sys.argv[1], durability="os") as infra:
    print("open", flush=True)
    for line in sys.stdin:
        exec(line.replace("\\x00", "\\n"))
        print("done", flush=True)
"""


class Owner:
    """Another process that owns a home and runs what it is told, statement by statement."""

    def __init__(self, process: subprocess.Popen[str], home: Path) -> None:
        self.process = process
        self.home = home
        assert self._answer() == "open"

    @property
    def pid(self) -> int:
        return self.process.pid

    def _answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def begin(self, program: str) -> None:
        """Run statements there, `infra` being the open home, and don't wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(program.replace("\n", "\x00") + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """Wait for what was begun."""
        assert self._answer() == "done"

    def run(self, program: str) -> None:
        """Run statements there and wait."""
        self.begin(program)
        self.end()

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Let it close the home and end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(30) == 0


@pytest.fixture
def start_python(own_environment: None) -> Iterator[RunPython]:
    """Start Python programs; whatever still runs after the test is killed."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str, *args: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ.copy(),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def start_owner(start_python: RunPython, tmp_path: Path) -> Callable[..., Owner]:
    """Start an owner of a home, in a process that lacks some modules."""

    def start(home: Path | None = None, without: tuple[str, ...] = ()) -> Owner:
        folder = home or tmp_path / "home"
        missing = "".join(f"sys.modules[{name!r}] = None\n" for name in without)
        return Owner(start_python(f"import sys\n{missing}{OWNER}", folder), folder)

    return start


@pytest.fixture
def owner(start_owner: Callable[..., Owner]) -> Owner:
    """A process that owns a home."""
    return start_owner()


@pytest.fixture
def owned(tmp_path: Path) -> Iterator[Infra]:
    """A home that this process owns."""
    with Infra.open(tmp_path / "home", durability="os") as infra:
        yield infra


@pytest.fixture
def client(owned: Infra) -> Iterator[Infra]:
    """The same home through its socket."""
    with Infra.connect(owned.home) as infra:
        yield infra


@pytest.fixture(params=["local", "remote"])
def infra(request: pytest.FixtureRequest, owned: Infra) -> Iterator[Infra]:
    """A home, as its owner has it and as a client has it."""
    if request.param == "local":
        yield owned
    else:
        with Infra.connect(owned.home) as client:
            yield client


@pytest.fixture
def graph(infra: Infra) -> StateGraph:
    return infra.session("天气_001", agent="planner")
