"""A project's MCP servers: their tools in a home that is opened, called under contracts, and lost."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent_infra import ActionResult, ContractDrift, ContractUnknown, Infra, ToolUnknown

SERVER = Path(__file__).with_name("outside_server.py")
SRC = Path(__file__).parents[2] / "src"
PATIENCE = 60.0  # seconds until a wait gives up; only a failing test waits that long
FULL = pytest.mark.full
TEXT: dict[str, Any] = {"type": "string"}
CITY = {"city": TEXT}
CANARY = "金丝雀+Canary/4471=秘密"
ASCII_CANARY = "canary-4471-token"
FORECAST = """
name: forecast
tool: sky_weather
params: {city: 北京}
postconditions: ["result.temp > 0"]
effects: none
result: {type: api_response, key: "天气/${params.city}"}
"""


def until(found: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE
    while not (value := found()):
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)
    return value


class Project:
    """A project's folder, its server's folder beside it, and the home."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.server, self.home = folder / "项目", folder / "server", folder / "家"
        (self.folder / "actions").mkdir(parents=True)
        self.server.mkdir()
        self.offer(weather=CITY)
        self.declare()

    def offer(self, **tools: Any) -> None:
        """Let the server list these tools from now on."""
        (self.server / "tools.json").write_text(json.dumps(tools), "utf-8")

    def declare(self, more: str = "", env: str = "") -> None:
        """A server that is a program."""
        command = json.dumps([sys.executable, str(SERVER), str(self.server)])
        env = f'PYTHONPATH = "{SRC}"{env}'
        self.write("agent_infra.toml", f"[mcp.sky]\ncommand = {command}\nenv = {{{env}}}\n{more}\n")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, "utf-8")

    def open(self) -> Infra:
        plain: dict[str, Any] = {
            "rocksdb": {"compression": "none"}
        }  # so that a search of its files sees what they hold
        return Infra.open(self.home, project=self.folder, durability="os", state=plain)

    def log(self, did: str) -> list[dict[str, Any]]:
        """What the server did, of one kind."""
        file = self.server / "log"
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        return [entry for entry in map(json.loads, lines) if entry["did"] == did]

    def kill(self) -> None:
        """End the server that was started last, in the middle of what it does."""
        os.kill(self.log("start")[-1]["pid"], signal.SIGKILL)

    def holds(self, secret: str) -> list[str]:
        """The files of the home in which a text stands."""
        files = [file for file in self.home.rglob("*") if file.is_file()]
        assert files
        return [str(file) for file in files if secret.encode() in file.read_bytes()]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


class Web:
    """The server on a port of the loopback, which declares itself in the project."""

    def __init__(self, project: Project) -> None:
        self.project = project
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        project.write("agent_infra.toml", f'[mcp.sky]\nurl = "http://127.0.0.1:{self.port}/mcp"\n')
        self.start()

    def start(self) -> None:
        command = [sys.executable, str(SERVER), str(self.project.server), str(self.port)]
        self.process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(SRC)})
        until(self._listens)

    def _listens(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def web(project: Project) -> Iterator[Web]:
    made = Web(project)
    yield made
    made.kill()


# -- from the table to the result ------------------------------------------------------------------


def check_forecast(infra: Infra) -> None:
    graph = infra.session("会话")
    result = infra.actions.execute("forecast", graph)
    assert result.ok, result.error
    assert result.output == {"temp": 22, "text": "晴", "city": "北京"}
    (node,) = graph.nodes(type="api_response")
    assert (node.key, node.data) == ("天气/北京", result.output)
    assert infra.evidence.verify(result.evidence_cid).ok
    bundle = infra.evidence.get(result.evidence_cid)
    assert bundle["tool"]["name"] == "sky_weather"
    assert bundle["output"] == result.output


def test_a_declared_programs_tools_are_called_under_contracts_of_the_project(project: Project) -> None:
    project.write("actions/forecast.yaml", FORECAST)
    with project.open() as infra:
        assert infra.tools.names() == ["sky_weather"]
        assert infra.tools.get("sky_weather").effects is None
        check_forecast(infra)
    ((call),) = project.log("call")
    assert call["arguments"] == {"city": "北京"}
    assert len(project.log("start")) == 2, "one for the list, which rests again, and one for the call"


def test_a_declared_server_by_http_is_called_under_contracts_of_the_project(project: Project, web: Web) -> None:
    project.write("actions/forecast.yaml", FORECAST)
    with project.open() as infra:
        check_forecast(infra)
    assert len(project.log("call")) == 1


def test_a_tool_of_a_server_needs_no_action_file_and_its_effects_are_declared_in_the_table(project: Project) -> None:
    project.declare('effects = {weather = "idempotent"}')
    with project.open() as infra:
        assert infra.actions.get("sky_weather").effects == "idempotent"
        result = infra.actions.execute({"tool": "sky_weather", "params": {"city": "上海"}}, infra.session("会话"))
        assert result.output["city"] == "上海"


# -- the kept list ---------------------------------------------------------------------------------


def test_the_second_opening_starts_no_server(project: Project) -> None:
    project.write("actions/forecast.yaml", FORECAST)
    with project.open() as infra:
        told = infra.tools.get("sky_weather").definition()
    asked = len(project.log("start"))
    with project.open() as infra:
        assert infra.tools.get("sky_weather").definition() == told
        assert infra.actions.get("forecast").tool == "sky_weather"
        assert "the MCP server 'sky' (1 tool)" in infra.tools.searched
        assert len(project.log("start")) == asked == 1
        check_forecast(infra)


def test_a_changed_table_asks_anew(project: Project) -> None:
    with project.open():
        pass
    project.declare('effects = {weather = "none"}')
    with project.open() as infra:
        assert infra.tools.get("sky_weather").effects == "none"
    assert len(project.log("start")) == 2


@pytest.mark.parametrize(
    "damage",
    [pytest.param(b"", marks=FULL), pytest.param(b"{}", marks=FULL), b'{"declared": "x", "tools": [{"name": 1}]}'],
)
def test_a_damaged_list_is_as_good_as_none(project: Project, damage: bytes) -> None:
    with project.open():
        pass
    for file in (project.home / "cache" / "tools").iterdir():
        file.write_bytes(damage)
    with project.open() as infra:
        assert infra.tools.names() == ["sky_weather"]
    assert len(project.log("start")) == 2


# -- lists that change -----------------------------------------------------------------------------


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_refresh_sees_new_and_removed_tools(project: Project, warm: bool) -> None:
    project.offer(weather=CITY, gone={})
    with project.open() as infra:
        if warm:
            infra.actions.execute({"tool": "sky_weather", "params": {"city": "北京"}}, infra.session("会话"))
        project.offer(weather=CITY, wind=CITY)
        assert infra.refresh_tools() == []
        assert infra.tools.names() == infra.actions.names() == ["sky_weather", "sky_wind"]
        result = infra.actions.execute({"tool": "sky_wind", "params": {"city": "北京"}}, infra.session("会话"))
        assert result.ok
    started = len(project.log("start"))
    with project.open() as infra:
        assert infra.tools.names() == ["sky_weather", "sky_wind"], "what was seen last is kept"
    assert len(project.log("start")) == started


def test_refresh_ends_no_session_that_was_open(project: Project) -> None:
    with project.open() as infra:
        call = {"tool": "sky_weather", "params": {"city": "北京"}}
        assert infra.actions.execute(call, infra.session("会话")).ok
        infra.refresh_tools()
        assert infra.actions.execute(call, infra.session("会话")).ok
    assert len({entry["pid"] for entry in project.log("call")}) == 1


def test_a_list_that_the_server_says_has_changed_is_followed_unasked(project: Project) -> None:
    project.offer(weather=CITY, announce={})
    project.write("actions/forecast.yaml", FORECAST)
    with project.open() as infra:
        project.offer(weather={"city": {"type": "string", "minLength": 1}}, announce={}, wind=CITY)
        before = infra.actions.get("forecast").hash
        assert infra.actions.execute("sky_announce", infra.session("会话")).ok
        until(lambda: "sky_wind" in infra.tools)
        assert infra.actions.get("forecast").hash != before
        check_forecast(infra)


def test_contracts_follow_a_refresh_where_they_still_can(project: Project) -> None:
    project.offer(weather=CITY, wind=CITY)
    project.write("actions/a.yaml", FORECAST + "---\nname: 风\ntool: sky_wind\nparams: {city: 北京}\neffects: none\n")
    with project.open() as infra:
        graph = infra.session("会话")
        project.offer(weather={"city": TEXT, "unit": TEXT}, wind={"city": {"type": "string", "minLength": 1}})
        infra.refresh_tools()
        assert infra.actions.execute("风", graph).ok
        with pytest.raises(ContractDrift, match="forecast"):
            infra.actions.execute("forecast", graph)
        ((illegal, reason),) = [each for each in infra.actions.space(graph).illegal if each[0].name == "forecast"]
        assert illegal.tool == "sky_weather"
        assert "unit" in reason
    assert [entry["tool"] for entry in project.log("call")] == ["wind"]


@pytest.mark.parametrize("by", ["program", "http"])
def test_a_schema_that_changed_since_the_list_leads_to_no_wrong_call(
    project: Project, by: str, request: pytest.FixtureRequest
) -> None:
    if by == "http":
        request.getfixturevalue("web")
    with project.open() as infra:
        project.offer(weather={"city": {"type": "object"}})
        graph = infra.session("会话")
        spec = {"tool": "sky_weather", "params": {"city": "北京"}}
        result = infra.actions.execute(spec, graph)
        assert (result.status, (result.error or {})["code"]) == ("failed", "ContractDrift")
        assert "sky_weather" in str(result)
        assert project.log("call") == []
        assert infra.actions.execute(spec, graph).status == "refused", "it is judged by the new schema now"
        followed = infra.actions.execute({"tool": "sky_weather", "params": {"city": {"名": "北京"}}}, graph)
        assert followed.ok, followed.error
    assert [entry["arguments"] for entry in project.log("call")] == [{"city": {"名": "北京"}}]


def test_a_tool_that_the_server_no_longer_has_is_not_called(project: Project) -> None:
    project.offer(weather=CITY, wind=CITY)
    with project.open() as infra:
        project.offer(wind=CITY)
        result = infra.actions.execute({"tool": "sky_weather", "params": {"city": "北京"}}, infra.session("会话"))
        assert (result.error or {})["code"] == "ContractDrift"
        assert infra.tools.names() == ["sky_wind"]
    assert project.log("call") == []


# -- servers that can't be asked -------------------------------------------------------------------


def test_a_server_that_can_not_be_started_keeps_no_home_closed(project: Project) -> None:
    project.write("actions/forecast.yaml", FORECAST)
    project.write("tools.py", "from agent_infra import tool\n\n@tool(effects='none')\ndef here() -> str: return '在'\n")
    project.write("actions/here.yaml", "name: 这里\ntool: here\n")
    project.write("agent_infra.toml", '[mcp.sky]\ncommand = ["no-such-program-anywhere"]\n')
    with project.open() as infra:
        graph = infra.session("会话")
        assert infra.actions.execute("这里", graph).output == "在"
        with pytest.raises(ToolUnknown) as caught:
            infra.actions.execute("forecast", graph)
        for word in ("forecast", "sky_weather", "the MCP server 'sky'", "no-such-program-anywhere", "refresh_tools"):
            assert word in str(caught.value)
        with pytest.raises(ToolUnknown, match="no-such-program-anywhere"):
            infra.run({"goal": "看", "subgoals": {"a": {"action": "forecast"}}})
        with pytest.raises(ContractUnknown, match="no-such-program-anywhere"):
            infra.actions.execute({"tool": "sky_weather", "params": {}}, graph)
        with pytest.raises(ContractUnknown, match="Did you mean 'forecast'"):
            infra.actions.execute("forcast", graph)
        assert graph.nodes(type="call", limit=10)[0].data["action"] == "这里"
        assert len(graph.nodes(type="call")) == 1
        (said,) = infra.refresh_tools()
        assert "no-such-program-anywhere" in said


def test_an_action_is_there_once_its_server_can_be_asked(project: Project, web: Web) -> None:
    project.write("actions/forecast.yaml", FORECAST)
    web.kill()
    with project.open() as infra:
        with pytest.raises(ToolUnknown, match="not asked"):
            infra.actions.execute("forecast", infra.session("会话"))
        web.start()
        assert infra.refresh_tools() == []
        check_forecast(infra)


def test_what_is_wrong_in_an_action_file_is_still_told(project: Project) -> None:
    project.write("actions/forecast.yaml", FORECAST.replace("sky_weather", "ski_weather"))
    project.write("agent_infra.toml", '[mcp.sky]\ncommand = ["no-such-program-anywhere"]\n')
    with pytest.raises(ToolUnknown, match="ski_weather"):
        project.open()


def test_a_list_that_was_kept_serves_while_the_server_is_gone(project: Project, web: Web) -> None:
    project.write("actions/forecast.yaml", FORECAST)
    with project.open():
        pass
    web.kill()
    with project.open() as infra:
        (said,) = infra.refresh_tools()
        assert "sky" in said
        assert "TaskGroup" not in said, "the reason, not its wrapping"
        assert infra.tools.names() == ["sky_weather"]
        result = infra.actions.execute("forecast", infra.session("会话"))
        assert (result.status, (result.error or {})["code"]) == ("failed", "ExecutorUnavailable")


# -- a server that is killed in the middle of a call -----------------------------------------------


def killed_in_a_call(
    project: Project, kill: Callable[[], None], infra: Infra, before: Callable[[], Any] = bool
) -> ActionResult:
    results: list[ActionResult] = []

    def execute() -> None:
        results.append(infra.actions.execute({"tool": "sky_hold", "params": {}}, infra.session("会话")))

    thread = threading.Thread(target=execute)
    thread.start()
    until(lambda: project.log("call"))
    before()
    assert results == []
    kill()
    thread.join(PATIENCE)
    assert len([entry for entry in project.log("call") if entry["tool"] == "hold"]) == 1, "it is never repeated"
    return results[0]


@pytest.mark.parametrize(
    ("effects", "status"), [("none", "failed"), pytest.param("once", "unknown", marks=FULL), (None, "unknown")]
)
def test_a_program_killed_in_the_middle_of_a_call(project: Project, effects: str | None, status: str) -> None:
    project.offer(weather=CITY, hold={})
    project.declare(f'effects = {{hold = "{effects}"}}' if effects else "")
    with project.open() as infra:
        result = killed_in_a_call(project, project.kill, infra)
        assert (result.status, (result.error or {})["code"]) == (status, "WorkerDied")
        assert (result.error or {})["exit_code"] == -signal.SIGKILL
        assert infra.evidence.verify(result.evidence_cid).ok
        (receipt,) = infra.session("会话").nodes(type="receipt")
        assert receipt.data["status"] == status
        call = {"tool": "sky_weather", "params": {"city": "北京"}}
        assert infra.actions.execute(call, infra.session("会话")).ok


def test_refresh_leaves_a_call_that_is_under_way_alone(project: Project) -> None:
    project.offer(hold={})
    with project.open() as infra:
        result = killed_in_a_call(project, project.kill, infra, before=infra.refresh_tools)
        assert (result.error or {})["exit_code"] == -signal.SIGKILL, "it ran until it was killed"
    assert len(project.log("start")) == 2


def test_a_server_by_http_killed_in_the_middle_of_a_call(project: Project, web: Web) -> None:
    project.offer(weather=CITY, hold={})
    with project.open() as infra:
        result = killed_in_a_call(project, web.kill, infra)
        assert (result.status, (result.error or {})["code"]) == ("unknown", "WorkerDied")
        web.start()
        call = {"tool": "sky_weather", "params": {"city": "北京"}}
        assert infra.actions.execute(call, infra.session("会话")).ok


def test_no_server_is_left_behind_by_an_opening_that_fails(project: Project) -> None:
    project.write(
        "tools.py",
        "from agent_infra import tool\n\n@tool(effects='none', name='sky_weather')\ndef mine() -> str: return '我'\n",
    )
    with pytest.raises(Exception, match="two tools are called 'sky_weather'"):
        project.open()
    pid = project.log("start")[-1]["pid"]
    until(lambda: not Path(f"/proc/{pid}").exists())


# -- secrets ---------------------------------------------------------------------------------------


def check_hidden(project: Project, canary: str, city: str) -> None:
    with project.open() as infra:
        graph = infra.session("会话")
        result = infra.actions.execute({"tool": "sky_leak", "params": {"city": city}}, graph)
        assert canary not in str(result)
        assert "secret://SKY" in (str(result) if result.error else str(result.output))
        assert canary not in str(infra.tools.searched)
        assert canary not in infra.tools.get("sky_leak").description
    assert project.holds(canary) == []
    assert project.holds(city) != [], "a search finds what is there"


@pytest.mark.parametrize("city", ["北京", pytest.param("port", marks=FULL)], ids=["output", "error"])
def test_a_secret_in_env_reaches_the_program_and_is_written_nowhere(
    project: Project, monkeypatch: pytest.MonkeyPatch, city: str
) -> None:
    monkeypatch.setenv("AGENT_INFRA_SECRET_SKY", CANARY)
    project.offer(leak=CITY)
    project.declare(env=', API_KEY = "secret://SKY", BOAST = "1"')
    check_hidden(project, CANARY, city)


def test_a_secret_in_a_header_reaches_the_server_and_is_written_nowhere(
    project: Project, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_INFRA_SECRET_SKY", ASCII_CANARY)
    project.offer(leak=CITY)
    with (project.folder / "agent_infra.toml").open("a") as file:
        file.write('headers = {Authorization = "secret://SKY"}\n')
    check_hidden(project, ASCII_CANARY, "北京")


def test_a_missing_secret_is_told_by_name_and_keeps_no_home_closed(project: Project) -> None:
    project.declare(env=', API_KEY = "secret://SKY"')
    with project.open() as infra:
        assert "secret SKY" in str(infra.tools.searched)
    assert project.log("start") == []
