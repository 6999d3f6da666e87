"""Evidence on real IPFS nodes (Helia): pushed to one, fetched from another over bitswap. Needs Node.js and npm."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dag_cbor
import httpx
import pytest

from agent_infra import Infra, StateGraph
from agent_infra.config import Project

pytestmark = pytest.mark.full
SOURCE = Path(__file__).with_name("ipfs_node")
CACHE = Path(__file__).parents[2] / ".cache" / "helia"


@pytest.fixture(scope="module")
def installed() -> Path:
    """The folder with the node program and its libraries, installed once and kept."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("there is no Node.js here")
    wanted = (SOURCE / "package.json").read_text("utf-8")
    mark = CACHE / "installed.json"
    CACHE.mkdir(parents=True, exist_ok=True)
    for file in SOURCE.iterdir():
        shutil.copy(file, CACHE / file.name)
    if not mark.is_file() or mark.read_text("utf-8") != wanted:
        install = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
        subprocess.run(install, cwd=CACHE, check=True, capture_output=True, timeout=600)
        mark.write_text(wanted, "utf-8")
    return CACHE


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The RPC address of a new node. It ends with its standard input, so it never outlives the test."""
    command = ["node", "--import", "./polyfill.mjs", "node.mjs"]
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@pytest.fixture
def nodes(installed: Path) -> Iterator[tuple[str, str]]:
    """Two nodes that know each other."""
    with ExitStack() as stack:
        first, second = stack.enter_context(running(installed)), stack.enter_context(running(installed))
        (address, *_) = call(first, "id").json()["Addresses"]
        call(second, "swarm/connect", arg=address)
        yield first, second


def call(node: str, name: str, **params: str) -> httpx.Response:
    answer = httpx.post(f"{node}/api/v0/{name}", params=params, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer


def told(infra: Infra, graph: StateGraph) -> str:
    @infra.tools.tool(effects="none")
    def tell() -> str:
        """Tell much."""
        return "长" * 100_000

    return [infra.actions.execute("tell", graph) for _ in range(3)][-1].evidence_cid


def test_a_pushed_chain_is_pinned_and_comes_from_another_node(
    infra: Infra, graph: StateGraph, nodes: tuple[str, str]
) -> None:
    first, second = nodes
    cid = told(infra, graph)
    pushed = infra.evidence.push(cid, first, chain=True)
    assert set(pushed) == set(call(first, "pin/ls").json()["Keys"])
    assert len(pushed) == 3 + 2
    assert call(second, "pin/ls").json()["Keys"] == {}
    for each, content in infra.evidence.blocks(cid, chain=True):
        assert call(second, "block/get", arg=each).content == content
    assert dag_cbor.decode(call(second, "block/get", arg=cid).content) == infra.evidence.get(cid)


def test_new_bundles_reach_a_node_by_themselves(tmp_path: Path, nodes: tuple[str, str]) -> None:
    first, second = nodes
    project = Project(root=tmp_path)
    with Infra.open(tmp_path / "家", project=project, durability="os", evidence={"ipfs": first}) as infra:
        cid = told(infra, infra.session("会话"))
        content = dict(infra.evidence.blocks(cid))
    with Infra.open(tmp_path / "家", project=project, durability="os", evidence={"ipfs": first}) as infra:
        give_up = time.monotonic() + 60
        while infra.evidence.pushing().waiting:
            assert time.monotonic() < give_up, infra.evidence.pushing()
            time.sleep(0.02)
        assert infra.evidence.pushing().left_out == 0
        assert set(content) <= set(call(first, "pin/ls").json()["Keys"])
        assert call(second, "block/get", arg=cid).content == content[cid]
