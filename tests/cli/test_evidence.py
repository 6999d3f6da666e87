"""`agent-infra evidence`: what an execution left is shown, verified, exported, pushed and explained."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import libipld
import pytest

from agent_infra import Infra
from agent_infra.config import Project
from agent_infra.state.rows import keys

Command = Callable[..., subprocess.CompletedProcess[str]]


def opened(home: Path) -> Infra:
    return Infra.open(home, project=Project(root=home.parent))


def test_evidence_is_shown_as_json(command: Command, evidence: str) -> None:
    shown = command("evidence", "show", evidence)
    assert shown.returncode == 0, shown.stderr
    bundle = json.loads(shown.stdout)
    assert bundle["session"] == "会话"
    assert set(bundle["output"]) == {"$cid", "bytes", "media_type"}


def test_evidence_verifies(command: Command, evidence: str) -> None:
    fine = command("evidence", "verify", evidence)
    assert fine.returncode == 0, fine.stderr
    assert "3 blocks" in fine.stdout, "bundle, output, environment"
    told = json.loads(command("evidence", "verify", evidence, "--json").stdout)
    assert told == {
        "ok": True,
        "cid": evidence,
        "blocks": 3,
        "problems": [],
        "records": 1,
        "broken": [],
        "ended": [],
    }


def test_a_changed_bundle_is_status_1(command: Command, evidence: str, home: Path) -> None:
    with opened(home) as infra:
        block = bytearray(infra.blobs.raw(evidence))
        block[len(block) // 2] ^= 1
        infra.engine.store.write([(keys.block(evidence), bytes(block))])
    changed = command("evidence", "verify", evidence)
    assert changed.returncode == 1
    assert evidence in changed.stdout
    told = json.loads(command("evidence", "verify", evidence, "--json").stdout)
    assert told["ok"] is False
    assert command("evidence", "show", evidence).returncode == 1


@pytest.mark.parametrize("what", ["changed", "lost"])
def test_a_changed_or_lost_output_is_status_1(quick: Command, evidence: str, home: Path, what: str) -> None:
    with opened(home) as infra:
        output = infra.evidence.get(evidence)["output"]["$cid"]
    (path,) = [path for path in home.rglob(output) if path.is_file()]
    if what == "lost":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes().replace("长".encode(), "短".encode(), 1))
    changed = quick("evidence", "verify", evidence)
    assert changed.returncode == 1
    assert output in changed.stdout


@pytest.mark.parametrize("cid", ["bafyreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy", "没有", "../../x"])
def test_unknown_evidence_is_status_4(quick: Command, evidence: str, cid: str) -> None:
    for verb in ("show", "verify", "export", "push"):
        unknown = quick("evidence", verb, cid)
        assert unknown.returncode == 4
        assert cid in unknown.stderr
        assert "Traceback" not in unknown.stderr


# -- out of the home -------------------------------------------------------------------------------


def test_evidence_is_exported_as_a_car_file(quick: Command, evidence: str, folder: Path) -> None:
    done = quick("evidence", "export", evidence)
    assert done.returncode == 0, done.stderr
    header, blocks = libipld.decode_car((folder / f"{evidence}.car").read_bytes())
    assert len(header["roots"]) == 1
    assert len(blocks) == 3
    named = quick("evidence", "export", evidence, "--chain", "--out", "全部.car")
    assert "全部.car: 3 blocks" in named.stdout


def test_how_pushing_stands_is_shown(quick: Command, evidence: str) -> None:
    told = json.loads(quick("evidence", "push", "--json").stdout)
    assert (told["url"], told["pushed"], told["waiting"], told["last_error"]) == (None, 0, 0, None)
    assert "waiting: 0" in quick("evidence", "push").stdout


def test_a_push_without_a_node_is_status_1(quick: Command, evidence: str, folder: Path) -> None:
    nowhere = quick("evidence", "push", evidence)
    assert nowhere.returncode == 1
    assert "[evidence]" in nowhere.stderr
    (folder / "agent_infra.toml").write_text('[evidence]\nipfs = "http://127.0.0.1:9"\n', encoding="utf-8")
    away = quick("evidence", "push", evidence)
    assert away.returncode == 1
    assert "http://127.0.0.1:9" in away.stderr
    other = quick("evidence", "push", evidence, "--to", "http://127.0.0.1:7")
    assert "http://127.0.0.1:7" in other.stderr


# -- why -------------------------------------------------------------------------------------------


def test_why_says_what_happened(command: Command, evidence: str) -> None:
    said = command("evidence", "why", "会话", "tell")
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("tell in session 会话: 1 execution, the newest succeeded\n")
    assert f"agent-infra evidence show {evidence}" in said.stdout
    chinese = command("evidence", "why", "会话", "tell", "--language", "zh")
    assert "最近一次成功" in chinese.stdout


def test_why_is_json_too(quick: Command, evidence: str) -> None:
    told = json.loads(quick("evidence", "why", "会话", "tell", "--json").stdout)
    assert told["action"] == "tell"
    assert [each["evidence"] for each in told["executions"]] == [evidence]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["会话", "没有"], "It has called: tell"),
        (["没有", "tell"], "没有"),
    ],
)
def test_why_of_nothing_is_status_4(quick: Command, evidence: str, arguments: list[str], says: str) -> None:
    nothing = quick("evidence", "why", *arguments)
    assert nothing.returncode == 4
    assert says in nothing.stderr


def test_why_in_another_language_is_refused(quick: Command, evidence: str) -> None:
    refused = quick("evidence", "why", "会话", "tell", "--language", "fr")
    assert refused.returncode == 1
    assert "en, zh" in refused.stderr
