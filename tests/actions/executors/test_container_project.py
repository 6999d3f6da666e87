"""Tools in containers through the whole product: declared by a project and by an image, called under a contract."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_infra import Infra
from agent_infra.actions.tools.container import LABEL
from agent_infra.config import read_project

from .podman import IMAGE, PYTHON, Podman

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("podman")]
CANARY = "kanari-密钥-4f1c77"
COUNT = """\
import json, os, pathlib, sys
text = json.load(sys.stdin)["text"]
token = os.environ["TOKEN"]
print("the token is", token, file=sys.stderr)
if "hoard" in text:
    kept = [bytearray(1 << 20) for _ in range(500)]
words = pathlib.Path("/words/stop.txt").read_text(encoding="utf-8").split()
print(json.dumps({"length": len(text), "stop": sum(text.count(word) for word in words), "said": token}))
"""
PROJECT = """\
actions = "actions"
[containers]
engine = "{engine}"
memory_mb = 256
images = ["{labelled}"]
[containers.tools.count]
image = "{image}"
command = ["{python}", "/tool/count.py"]
input_schema = {{type = "object", properties = {{text = {{type = "string"}}}}, required = ["text"]}}
output_schema = "schemas/counts.json"
effects = "none"
memory_mb = 64
env = {{TOKEN = "secret://COUNTER"}}
mounts = {{"tool" = "/tool", "words" = "/words"}}
"""
SCHEMA = {
    "type": "object",
    "properties": {"length": {"type": "integer"}, "stop": {"type": "integer"}, "said": {"type": "string"}},
    "required": ["length", "stop"],
}
ACTIONS = """\
name: count_characters
tool: count
params: {text: {open: {}}}
postconditions: ["result.length > 0"]
effects: none
timeout: 50s
result: {type: counts, key: newest}
---
name: shout
tool: shout
params: {text: {open: {}}}
effects: none
"""


@pytest.fixture
def labelled(engine: Podman) -> str:
    """An image that lists a tool of its own."""
    code = "import json, sys; print(json.dumps(json.load(sys.stdin)['text'].upper()))"
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    label = json.dumps([{"name": "shout", "command": [PYTHON, "-c", code], "input_schema": schema, "effects": "none"}])
    return engine.build("localhost/shouting:1", f"LABEL {LABEL}={json.dumps(label)}")


@pytest.fixture
def infra(engine: Podman, labelled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Infra]:
    monkeypatch.setenv("AGENT_INFRA_SECRET_COUNTER", CANARY)
    for folder in ("actions", "schemas", "tool", "words"):
        (tmp_path / folder).mkdir()
    (tmp_path / "actions" / "text.yaml").write_text(ACTIONS)
    (tmp_path / "schemas" / "counts.json").write_text(json.dumps(SCHEMA))
    (tmp_path / "tool" / "count.py").write_text(COUNT)
    (tmp_path / "words" / "stop.txt").write_text("的 了", encoding="utf-8")
    project = PROJECT.format(engine=engine.url, labelled=labelled, image=IMAGE, python=PYTHON)
    (tmp_path / "agent_infra.toml").write_text(project)
    uncompressed = {"rocksdb": {"compression": "none"}}
    read = read_project(tmp_path / "agent_infra.toml")
    with Infra.open(tmp_path / "家", project=read, durability="os", state=uncompressed) as opened:
        yield opened


def test_a_contract_runs_a_command_in_an_image_and_its_evidence_says_in_which(
    infra: Infra, engine: Podman, tmp_path: Path
) -> None:
    graph = infra.session("会话")
    result = infra.actions.execute({"tool": "count_characters", "params": {"text": "我的天了"}}, graph)
    assert result.ok, result
    assert result.output == {"length": 4, "stop": 2, "said": "secret://COUNTER"}
    assert [node.data["length"] for node in graph.nodes(type="counts")] == [4]
    known = json.loads(engine.run("image", "inspect", IMAGE))[0]
    bundle = infra.evidence.get(result.evidence_cid)
    assert bundle["executor"] == "container"
    assert bundle["image_digest"] == known["Digest"]
    assert bundle["facts"] == {"image": IMAGE, "image_digest": known["Digest"], "image_id": f"sha256:{known['Id']}"}
    assert bundle["stderr_tail"] == "the token is secret://COUNTER\n"
    environment = infra.evidence.environment(result.evidence_cid)
    assert environment["image"] == {"name": IMAGE, "digest": known["Digest"], "id": f"sha256:{known['Id']}"}
    assert environment["python"]
    again = infra.actions.execute({"tool": "count_characters", "params": {"text": "又"}}, graph)
    assert infra.evidence.get(again.evidence_cid)["environment"] == bundle["environment"], "one block an image"
    assert infra.evidence.verify(again.evidence_cid).ok
    infra.close()
    stored = b"\n".join(path.read_bytes() for path in (tmp_path / "家").rglob("*") if path.is_file())
    assert known["Digest"].encode() in stored, "the search sees what is stored"
    assert CANARY.encode() not in stored
    assert json.dumps(CANARY)[1:-1].encode() not in stored


def test_memory_over_the_limit_is_a_failed_result_with_its_figures(infra: Infra) -> None:
    graph = infra.session("会话")
    result = infra.actions.execute({"tool": "count_characters", "params": {"text": "hoard"}}, graph)
    assert result.status == "failed"
    bundle = infra.evidence.get(result.evidence_cid)
    for error in (result.error or {}, bundle["error"]):
        assert error["code"] == "ToolOutOfMemory"
        assert error["memory"] == "host"
        assert error["memory_limit_mb"] == 64
        assert 60 < error["peak_memory_mb"] < 90
        assert error["mend"]
    assert bundle["peak_memory_mb"] == bundle["error"]["peak_memory_mb"]
    assert bundle["exit_code"] == 137
    assert bundle["image_digest"].startswith("sha256:")
    page = infra.evidence.why(graph, result.action).text()
    assert "64 MiB of the 64 MiB" in page, page


def test_a_tool_of_an_images_label_is_called_and_is_known_without_asking_again(infra: Infra, tmp_path: Path) -> None:
    graph = infra.session("会话")
    result = infra.actions.execute({"tool": "shout", "params": {"text": "grüß dich, 世界"}}, graph)
    assert result.output == "GRÜSS DICH, 世界", result
    infra.close()
    silent = (tmp_path / "agent_infra.toml").read_text().replace("podman.sock", "nobody.sock")
    (tmp_path / "agent_infra.toml").write_text(silent)
    with Infra.open(tmp_path / "家", project=read_project(tmp_path / "agent_infra.toml"), durability="os") as reopened:
        assert "shout" in {tool.name for tool in reopened.tools}
