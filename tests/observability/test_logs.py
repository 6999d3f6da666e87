"""Logs: silent until a program sets them up, then on stderr in the form that fits."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agent_infra
from agent_infra.observability import get_logger, setup_logging


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Each test leaves the process's logging as it found it."""
    logger = logging.getLogger("agent_infra")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.propagate = before[0], before[2]
    logger.setLevel(before[1])


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    shown = capsys.readouterr()
    assert shown.out == ""
    return [json.loads(line) for line in shown.err.splitlines()]


def test_importing_configures_nothing() -> None:
    program = """
import logging, sys
before = logging.root.handlers[:], logging.root.level, logging.getLogger("agent_infra").handlers[:]
import agent_infra.observability
from agent_infra.observability import get_logger
get_logger("agent_infra.x").info("quiet")
assert before == (logging.root.handlers, logging.root.level, logging.getLogger("agent_infra").handlers)
assert not {"structlog", "prometheus_client", "opentelemetry"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_without_set_up_a_warning_still_reaches_stderr() -> None:
    program = """
from agent_infra.observability import get_logger
get_logger('agent_infra.x').warning('tool_slow', tool='天气')
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "tool_slow tool='天气'\n")


def test_an_event_is_one_json_object_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("info")
    log = get_logger("agent_infra.state").bind(session="会话")
    log.debug("unseen")
    log.warning("undeclared_type", type="api_response", seen={1})
    (line,) = lines(capsys)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "undeclared_type",
        "level": "warning",
        "logger": "agent_infra.state",
        "session": "会话",
        "type": "api_response",
        "seen": "{1}",
    }


def test_an_error_in_an_except_block_brings_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging()
    try:
        raise ValueError("broken")
    except ValueError:
        get_logger("agent_infra.x").error("source_failed", source="tickets")
    (line,) = lines(capsys)
    assert "ValueError: broken" in line["exception"]


def test_set_up_twice_writes_once_at_the_new_level(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging("error")
    setup_logging("debug")
    get_logger("agent_infra.x").debug("detail")
    assert [line["event"] for line in lines(capsys)] == ["detail"]


def test_people_at_a_terminal_get_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    setup_logging()
    get_logger("agent_infra.x").warning("tool_slow", seconds=12)
    shown = capsys.readouterr().err
    assert "tool_slow" in shown
    assert "seconds" in shown
    assert not shown.startswith("{")


def test_a_host_program_gets_the_events_through_its_own_logging(caplog: pytest.LogCaptureFixture) -> None:
    get_logger("agent_infra.x").warning("undeclared_type", type="x")
    assert caplog.messages == ["undeclared_type type='x'"]
    assert caplog.records[0].funcName == "test_a_host_program_gets_the_events_through_its_own_logging"


def test_only_this_room_imports_what_reports() -> None:
    """Unconfigured, structlog's own loggers print to standard output, where results belong."""
    package = Path(agent_infra.__file__).parent
    outside = [path for path in package.rglob("*.py") if path.parent.name != "observability"]
    found = [
        f"{path}: {line}"
        for path in outside
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.match(r"\s*(from|import) (structlog|prometheus_client|opentelemetry)", line)
    ]
    assert found == []
