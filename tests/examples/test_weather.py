"""The weather example, run as a user runs it: what it prints has to be true."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent_infra import Infra, StateGraph
from agent_infra.config import Project

WEATHER = Path(__file__).parents[2] / "examples" / "weather"
SESSION = "weather_demo_001"
CONDITION = "state.nodes.user_intent.data.confidence > 0.8"
CID = r"bafyrei[a-z2-7]{52}"
SNIPPET = """\
from agent_infra import StateGraph, GDEPScheduler, RewardWeaver
graph = StateGraph(session_id="weather_demo_001")
user_intent = graph.add_node(type="user_intent", data={"query": "北京明天天气", "city": "Beijing", "confidence": 0.95}, ttl=3600)
weather = graph.add_node(type="api_response", data={"city": "Beijing", "temp": 22, "condition": "sunny"}, ttl=1800)
graph.add_edge(user_intent.id, weather.id, type="triggers")
scheduler = GDEPScheduler(); weaver = RewardWeaver()
gdep = scheduler.compile_gdep("weather_action.yaml", state_graph=graph)
result = scheduler.execute_gdep(gdep)
reward = weaver.weave_reward(result)
print(result, reward.value, reward.cid, reward.report())
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "家"


def python(*arguments: str, folder: Path, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, on a home, without any account at the provider."""
    variables = {name: value for name, value in os.environ.items() if name != "OPENWEATHERMAP_API_KEY"}
    own = {
        "AGENT_INFRA_HOME": str(home),
        "SATISFACTION_DELAY": "0.2",
        "PYTHONUTF8": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=variables | own | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def printed(output: str) -> dict[str, str]:
    """What stands behind each label that `run.py` prints."""
    rows = [re.match(r"(\S+(?: \S+)*?)(?:  +| (?=weather_demo|failed))(.*)", line) for line in output.splitlines()]
    return {row[1]: row[2] for row in rows if row}


def check_report(report: str, value: float) -> None:
    """A report is Markdown whose contributions add up to the value, exactly."""
    assert report.startswith("# ")
    table = re.search(r"## Contributions\n\n((?:\|.*\n)+)", report)
    assert table is not None
    rows = [[cell.strip(" *`") for cell in line.strip("|").split("|")] for line in table[1].splitlines()[2:]]
    micro = {source: round(float(number) * 1_000_000) for source, _, number in rows}
    total = micro.pop("sum")
    assert sum(micro.values()) == total == round(value * 1_000_000)
    assert micro.pop("base value, before any evidence") == 0
    assert set(micro) == {"user_satisfaction", "response_latency"}


# -- run.py ----------------------------------------------------------------------------------------


def test_run_keeps_its_promises_and_works_twice(home: Path, tmp_path: Path) -> None:
    for _ in range(2):
        run = python("run.py", folder=WEATHER, home=home)
        assert run.returncode == 0, run.stderr
        check_run(run.stdout, home, tmp_path)
        assert run.stderr == ""


def check_run(output: str, home: Path, root: Path) -> None:
    told = printed(output)
    assert told["user asks"] == "北京明天天气"
    result = json.loads(told["action result"])
    assert result["temp"] is not None
    assert "loopback" in result["served_by"], "it says that it serves the weather itself"
    assert "loopback" in output or "127.0.0.1" in output
    value = float(told["woven reward"].split()[0])
    assert told["woven reward"].endswith("(complete)")
    report = Path(told["report"])
    assert report.suffix == ".md"
    check_report(report.read_text("utf-8"), value)
    cid = told["reward CID"]
    assert re.fullmatch(CID, cid)
    answered, back = told["rolled back"].split(" -> ")
    assert answered in output.split("still readable", 1)[1].splitlines()[0]
    for shown in (CONDITION, "0.5", "PreconditionFailed"):
        assert shown in told["refused"]

    with Infra.open(home, project=Project(root=root)) as infra:
        assert infra.evidence.verify(cid).ok
        check_graph(infra.session(SESSION), answered, back)


def check_graph(graph: StateGraph, answered: str, back: str) -> None:
    assert graph.verify().ok
    forecast = graph.at(answered).latest("weather")
    assert forecast is not None
    assert forecast.data["temp"] is not None
    assert graph.at(back).version == back
    intents = [node.data["confidence"] for node in graph.nodes(type="user_intent")]
    assert intents[:2] == [0.5, 0.95]
    refusal = graph.nodes(type="receipt")[0]
    assert refusal.data["status"] == "refused"
    assert refusal.data["conditions"][0]["values"] == {"state.nodes.user_intent.data.confidence": 0.5}
    assert graph.caused_by("openweathermap_api", within=3600)


def test_the_story_of_the_session_can_be_shown(home: Path) -> None:
    assert python("run.py", folder=WEATHER, home=home).returncode == 0
    shown = python("-m", "agent_infra", "session", "show", SESSION, folder=WEATHER, home=home)
    assert shown.returncode == 0, shown.stderr
    for told in (
        "user_intent",
        "北京明天天气",
        "goal",
        "plan",
        "openweathermap_api",
        "receipt",
        "signal",
        "woven_reward",
    ):
        assert told in shown.stdout
    as_json = python("-m", "agent_infra", "session", "show", SESSION, "--json", folder=WEATHER, home=home)
    types = {node["type"] for node in json.loads(as_json.stdout)["nodes"].values()}
    assert types >= {
        "user_intent",
        "goal",
        "plan",
        "subgoal",
        "call",
        "receipt",
        "api_response",
        "signal",
        "woven_reward",
    }


def test_run_works_from_anywhere(home: Path, tmp_path: Path) -> None:
    run = python(str(WEATHER / "run.py"), folder=tmp_path, home=home)
    assert run.returncode == 0, run.stderr
    assert "refused" in run.stdout


# -- the snippet -----------------------------------------------------------------------------------


def meaning(program: str) -> list[str]:
    """A program's statements without its docstring, whatever their layout and the order of imported names."""
    statements = ast.parse(program).body
    if ast.get_docstring(ast.parse(program)) is not None:
        statements = statements[1:]
    for statement in statements:
        if isinstance(statement, ast.ImportFrom):
            statement.names.sort(key=lambda name: name.name)
    return [ast.dump(statement) for statement in statements]


def test_the_snippet_is_the_promised_one() -> None:
    assert meaning((WEATHER / "snippet.py").read_text("utf-8")) == meaning(SNIPPET)


def test_the_snippet_works_twice(home: Path, tmp_path: Path) -> None:
    for _ in range(2):
        check_snippet(python("snippet.py", folder=WEATHER, home=home))
    with Infra.open(home, project=Project(root=tmp_path)) as infra:
        assert len(infra.session(SESSION).nodes(type="goal")) == 2


def test_these_lines_work_as_they_stand_beside_a_tools_file(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "weather"
    shutil.copytree(
        WEATHER, folder, ignore=shutil.ignore_patterns(".agent_infra", "snippet.py", "run.py", "__pycache__")
    )
    (folder / "pasted.py").write_text(SNIPPET, encoding="utf-8")
    check_snippet(python("pasted.py", folder=folder, home=home))


def check_snippet(run: subprocess.CompletedProcess[str]) -> None:
    assert run.returncode == 0, run.stderr
    found = re.search(rf"(\{{.*\}}) (-?[\d.]+) ({CID}) (# .*)", run.stdout, re.DOTALL)
    assert found is not None, run.stdout
    assert json.loads(found[1])["city"] == "Beijing"
    check_report(found[4], float(found[2]))
    assert found[3] in found[4]


def test_with_only_the_script_and_the_action_the_tool_is_unknown(home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "只有两个文件"
    folder.mkdir()
    (folder / "snippet.py").write_text(SNIPPET, encoding="utf-8")
    shutil.copy(WEATHER / "weather_action.yaml", folder)
    run = python("snippet.py", folder=folder, home=home)
    assert run.returncode != 0
    error = run.stderr[run.stderr.rindex("[ToolUnknown]") :]
    assert "openweathermap_api" in error
    assert str(folder / "tools.py") in error
    assert "entry points" in error
    assert "weather_action.yaml:2" in error


# -- late, never, not there ------------------------------------------------------------------------

ASK = """\
import sys
from agent_infra import Infra
from pathlib import Path
sys.path.insert(0, str(Path.cwd()))
from state_graph import SESSION, note_intent

with Infra.open() as infra:
    graph = infra.session(SESSION)
    note_intent(graph, confidence=0.95)
    result = infra.run("weather_action.yaml", session=SESSION)
    assert result.ok, result
    reward = infra.weaver.weave_reward(result, wait=0.5)
    shown = [[row.source, row.micro] for row in reward.contributions]
    signals = [row["source"] for row in reward.provenance]
    print()
    import json
    print(json.dumps([reward.value, reward.status, reward.missing, shown, signals, reward.report()]))
"""


def test_a_satisfaction_that_never_comes_is_named_and_not_invented(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "ask.py"
    script.write_text(ASK, encoding="utf-8")
    run = python(str(script), folder=WEATHER, home=home, SATISFACTION_DELAY="100000")
    assert run.returncode == 0, run.stderr
    value, status, missing, shown, signals, report = json.loads(run.stdout.splitlines()[-1])
    assert missing == ["user_satisfaction"]
    assert status == "waiting"
    assert signals == ["response_latency"]
    assert [source for source, _ in shown] == ["response_latency"]
    assert sum(micro for _, micro in shown) == round(value * 1_000_000)
    assert "user_satisfaction" in report.split("Missing:", 1)[1].splitlines()[0]


def test_a_city_that_the_service_does_not_know_is_a_failure_not_a_forecast(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "elsewhere.py"
    script.write_text(SNIPPET.replace('"Beijing", "confidence"', '"亚特兰蒂斯", "confidence"'), encoding="utf-8")
    run = python(str(script), folder=WEATHER, home=home)
    assert run.returncode == 0, run.stderr
    assert "ToolFailed" in run.stdout
    assert "404" in run.stdout
