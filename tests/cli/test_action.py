"""`agent-infra action`: what a user sees of contracts."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_infra import Infra

Command = Callable[..., subprocess.CompletedProcess[str]]
TOOLS = '''\
from typing import Literal

from agent_infra import tool


@tool(effects="none", version="2.1.0")
def parse(file_id: str, pages: list[int], style: Literal["markdown", "text"] = "markdown") -> dict[str, str]:
    """Parse a PDF.

    Args:
        file_id: which document
    """
    return {}


@tool
def pay(amount: float) -> dict[str, str]:
    """Pay."""
    return {}


@tool(effects="idempotent")
def refund(receipt: str) -> None:
    """Give it back."""
'''
PARSE = """\
template: careful
preconditions: ["state.nodes.report.status == 'ready'"]
timeout: {total: 2m}
---
name: parse_report
use: careful
tool: parse@>=2
params:
  file_id: ${state.nodes.report.id}
  pages: {open: {items: {maximum: "${state.nodes.report.data.pages}"}, default: [1, 1]}}
  style: markdown
retries: {times: 2, wait: 1s, on: [TimedOut]}
result: {type: parsed, key: "parsed/${params.file_id}"}
"""
PAY = """\
name: pay_bill
tool: pay
params: {amount: {open: {maximum: 100}}}
confidence: {min: 0.9, below: {fallback: parse_report}}
compensation: {action: refund, with: {receipt: "${result.receipt}"}}
"""
REPORT = {
    "type": "object",
    "properties": {"status": {"type": "string"}, "pages": {"type": "integer"}},
    "additionalProperties": False,
}


@pytest.fixture
def project(folder: Path) -> Path:
    """A project with tools, a node type, and actions in two folders."""
    (folder / "agent_infra.toml").write_text("")
    (folder / "tools.py").write_text(TOOLS, encoding="utf-8")
    (folder / "schemas").mkdir()
    (folder / "schemas" / "report.json").write_text(json.dumps(REPORT))
    (folder / "actions" / "钱").mkdir(parents=True)
    (folder / "actions" / "parse.yaml").write_text(PARSE, encoding="utf-8")
    (folder / "actions" / "钱" / "pay.yaml").write_text(PAY, encoding="utf-8")
    return folder


# -- check -----------------------------------------------------------------------------------------


def test_a_folder_is_checked_with_all_below_it(quick: Command, project: Path, home: Path) -> None:
    checked = quick("action", "check", "actions")
    assert checked.returncode == 0, checked.stderr
    assert [line.split(" (")[0] for line in checked.stdout.splitlines()] == ["ok: parse_report", "ok: pay_bill"]
    assert not home.exists(), "looking at a file makes no home"


def test_a_file_may_name_what_the_project_has(quick: Command, project: Path) -> None:
    (project / "new.yaml").write_text(PAY.replace("pay_bill", "new") + "use: careful\n", encoding="utf-8")
    checked = quick("action", "check", "new.yaml")
    assert (checked.returncode, checked.stdout.split(" (")[0]) == (0, "ok: new"), checked.stderr


def test_what_is_right_is_said_beside_what_is_wrong(quick: Command, project: Path) -> None:
    (project / "actions" / "bad.yaml").write_text(
        "name: a\ntool: parse@3\n---\nname: b\ntool: nothing\n---\n"
        'name: c\ntool: parse\nparams: {file_id: "${state.nodes.report.pages}", pages: "${state.nodes.report.pgaes}"}\n'
        "effects: sometimes\nuse: carefull\nconfidence: {min: 0.5, below: {fallback: pay_bil}}\n---\n"
        "name: pay_bill\ntool: pay\n",
        encoding="utf-8",
    )
    checked = quick("action", "check", "actions")
    assert checked.returncode == 1
    assert "ok: parse_report" in checked.stdout
    bad = f"{Path('actions') / 'bad.yaml'}"
    for place, said in (
        (f"{bad}:2:7: ToolVersion", "write `parse@2.1.0`"),
        (f"{bad}:5:7: ToolUnknown", "tools.py"),
        (f"{bad}:9:19: ParamType", "`state.nodes.report.pages` is integer"),
        (f"{bad}:9:79: FieldUnknown", "did you mean `pages`?"),
        (f"{bad}:10:10: UnknownWord", "none, idempotent, once"),
        (f"{bad}:11:6: TemplateUnknown", "did you mean `careful`?"),
        (f"{bad}:12:42: ActionUnknown", "did you mean `pay_bill`?"),
        (f"{Path('actions') / '钱' / 'pay.yaml'}:1:7: DuplicateAction", f"{bad}:14"),
    ):
        assert place in checked.stderr
        assert said in checked.stderr
    assert checked.stderr.count("^") == 9
    assert "Traceback" not in checked.stderr


def test_a_warning_is_told_and_counts_where_asked(quick: Command, project: Path) -> None:
    (project / "a.yaml").write_text(
        "name: a\ntool: refund\nparams: {receipt: x}\npreconditions: ['state.nodes.reprot.pages > 1']\n",
        encoding="utf-8",
    )
    for arguments, status in (((), 0), (("--strict",), 1)):
        checked = quick("action", "check", "a.yaml", *arguments)
        assert checked.returncode == status
        assert "warning: a.yaml:4:30: NameUnknown" in checked.stderr
        assert "did you mean `report`?" in checked.stderr


def test_for_programs(quick: Command, project: Path) -> None:
    (project / "a.yaml").write_text(
        "name: a\ntool: parse\n---\nname: b\ntool: pay\nparams: {amount: 1}\n", encoding="utf-8"
    )
    checked = quick("action", "check", "a.yaml", "--json")
    assert checked.returncode == 1
    told = json.loads(checked.stdout)
    assert [each["name"] for each in told["ok"]] == ["b"]
    assert [(each["code"], each["line"]) for each in told["problems"]] == [("ParamMissing", 2), ("ParamMissing", 2)]


def test_tools_that_cant_be_loaded_are_named(quick: Command, project: Path) -> None:
    (project / "tools.py").write_text("import nothing_of_that_name\n", encoding="utf-8")
    checked = quick("action", "check", "actions")
    assert checked.returncode == 1
    assert "tools.py" in checked.stderr
    assert "nothing_of_that_name" in checked.stderr
    (project / "tools.py").unlink()
    checked = quick("action", "check", "actions")
    assert checked.returncode == 1
    assert "no tool is called 'parse'" in checked.stderr


def test_while_another_process_has_the_home(command: Command, project: Path, home: Path) -> None:
    with Infra.open(home, project=project):
        for arguments in (("check", "actions"), ("show", "pay_bill")):
            assert command("action", *arguments).returncode == 0


def test_node_types_that_were_registered_in_the_home_count(quick: Command, project: Path, home: Path) -> None:
    with Infra.open(home, project=project) as infra:
        infra.schemas.register("invoice", {"type": "object", "properties": {"sum": {}}, "additionalProperties": False})
    (project / "a.yaml").write_text(
        "name: a\ntool: refund\nparams: {receipt: '${state.nodes.invoice.smu}'}\n", encoding="utf-8"
    )
    assert "FieldUnknown" in quick("action", "check", "a.yaml").stderr


# -- show ------------------------------------------------------------------------------------------


def test_a_contract_is_shown(quick: Command, project: Path) -> None:
    shown = quick("action", "show", "parse_report")
    assert shown.returncode == 0, shown.stderr
    for part in (
        "parse 2.1.0",
        f"{project / 'actions' / 'parse.yaml'}",
        "file_id: referenced, ${state.nodes.report.id}",
        'items {"maximum": "${state.nodes.report.data.pages}"}, default [1, 1]',
        "style: fixed, markdown",
        "state.nodes.report.status == 'ready'",
        "effects      none",
        "total 120",
        "times 2, wait 1.0",
        "key parsed/${params.file_id}",
    ):
        assert part in shown.stdout


def test_a_contract_is_shown_to_programs(quick: Command, project: Path) -> None:
    shown = json.loads(quick("action", "show", "pay_bill", "--json").stdout)
    assert shown["params"]["amount"]["kind"] == "open"
    assert shown["params"]["amount"]["domain"] == {"maximum": 100}
    assert shown["effects"] == "once"
    assert shown["compensation"] == {"action": "refund", "with": {"receipt": "${result.receipt}"}}
    assert len(shown["hash"]) == 16


def test_a_tool_without_a_file_is_shown_by_its_implied_contract(quick: Command, project: Path) -> None:
    shown = quick("action", "show", "refund")
    assert "implied" in shown.stdout
    assert "receipt: open, required, string" in shown.stdout


def test_an_unknown_action_is_status_4(quick: Command, project: Path) -> None:
    unknown = quick("action", "show", "pay_bil")
    assert unknown.returncode == 4
    assert "pay_bill" in unknown.stderr


# -- graph -----------------------------------------------------------------------------------------


def test_the_whole_project_is_drawn(quick: Command, project: Path) -> None:
    drawn = quick("action", "graph", "all")
    assert drawn.returncode == 0, drawn.stderr
    lines = drawn.stdout.splitlines()
    assert lines[0] == "flowchart LR"
    boxes = {
        line.split('"')[1]: re.split(r"[\[(]", line.strip())[0] for line in lines if '"' in line and "[[" not in line
    }
    assert boxes.keys() == {"parse_report", "pay_bill", "refund", "report", "parsed/${params.file_id}"}
    assert f"  {boxes['report']} --> {boxes['parse_report']}" in lines
    assert f"  {boxes['parse_report']} --> {boxes['parsed/${params.file_id}']}" in lines
    assert f"  {boxes['pay_bill']} -. undone by .-> {boxes['refund']}" in lines
    assert sum("[[" in line for line in lines) == 3, "each tool once"


def test_one_file_is_drawn_with_what_it_takes_from_the_project(quick: Command, project: Path) -> None:
    (project / "new.yaml").write_text(PAY.replace("pay_bill", "new") + "use: careful\n", encoding="utf-8")
    drawn = quick("action", "graph", "new.yaml")
    assert drawn.returncode == 0, drawn.stderr
    assert '"report"' in drawn.stdout
    assert "parse_report" not in drawn.stdout
    (project / "new.yaml").write_text("name: new\ntool: nothing\n", encoding="utf-8")
    wrong = quick("action", "graph", "new.yaml")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "new.yaml:2:7" in wrong.stderr


def test_one_file_is_drawn_and_its_labels_hold_nothing_but_text(quick: Command, project: Path) -> None:
    (project / "a.yaml").write_text(
        "name: a\ntool: refund\nparams: {receipt: x}\npreconditions: ['state.nodes[\"a<b>&`#\"].x == 1']\n",
        encoding="utf-8",
    )
    drawn = quick("action", "graph", "a.yaml")
    assert drawn.returncode == 0, drawn.stderr
    assert "a#60;b#62;#38;#96;#35;" in drawn.stdout
    assert "pay_bill" not in drawn.stdout


# -- scaffold --------------------------------------------------------------------------------------


def test_a_scaffold_is_an_action_file(quick: Command, project: Path) -> None:
    for tool in ("parse", "pay"):
        written = quick("action", "scaffold", tool)
        assert written.returncode == 0, written.stderr
        (project / f"{tool}.yaml").write_text(written.stdout, encoding="utf-8")
        checked = quick("action", "check", f"{tool}.yaml")
        assert checked.stdout.startswith(f"ok: {tool} "), checked.stderr
    assert "# which document" in (project / "parse.yaml").read_text("utf-8")
    assert "effects: once" in written.stdout


def test_a_scaffold_of_nothing_is_status_4(quick: Command, project: Path) -> None:
    assert quick("action", "scaffold", "prase").returncode == 4
