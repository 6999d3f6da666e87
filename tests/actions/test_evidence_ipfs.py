"""Evidence is pushed to an IPFS node: by hand, or in the background until the node has it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dag_cbor
import pytest

from agent_infra import Infra, background
from agent_infra.actions.evidence import Outbox, PushState
from agent_infra.config import Project
from agent_infra.content import cid_of_bytes
from agent_infra.errors import EvidenceUnknown, IpfsFailed

from .kubo import Node, fake_node

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def node() -> Iterator[Node]:
    with fake_node() as found:
        yield found


def opened(tmp_path: Path, **evidence: Any) -> Infra:
    return Infra.open(tmp_path / "家", project=Project(root=tmp_path), durability="os", evidence=evidence)


def tell(infra: Infra, count: int = 1) -> list[str]:
    if "tell" not in infra.tools:

        @infra.tools.tool(effects="none")
        def tell(number: int) -> dict[str, Any]:
            """Tell."""
            return {"第": number, "页": "长" * 40_000}

    graph = infra.session("会话")
    specs = [{"tool": "tell", "params": {"number": number}} for number in range(count)]
    return [infra.actions.execute(spec, graph).evidence_cid for spec in specs]


def wait_for_error(infra: Infra) -> None:
    """Return once a push has failed; a guard ends a test in which none ever does."""
    give_up = time.monotonic() + 30
    while infra.evidence.pushing().last_error is None:
        assert time.monotonic() < give_up, "no push was tried"
        time.sleep(0.005)


# -- by hand ---------------------------------------------------------------------------------------


def test_a_bundle_is_pushed_with_its_blocks_and_each_is_pinned(tmp_path: Path, node: Node) -> None:
    with opened(tmp_path) as infra:
        first, last = tell(infra, 2)
        pinned = infra.evidence.push(last, node.url)
        assert pinned == node.pins
        assert set(node.blocks) == {cid for cid, _ in infra.evidence.blocks(last)}
        assert dag_cbor.decode(node.blocks[last]) == infra.evidence.get(last)
        assert first not in node.blocks
        infra.evidence.push(last, node.url + "/", chain=True)
        assert first in node.blocks


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"fail": 9}, "answered 500: busy 忙"),
        ({"pin_error": "no space left"}, "no space left"),
        ({"answer": ""}, "did not pin"),
        ({"answer": "<html>"}, "no JSON object"),
        ({"answer": '{"Root": {"Cid": {"/": "bafyother"}}}'}, "did not pin bafyrei"),
    ],
)
def test_a_push_that_was_not_taken_is_told(tmp_path: Path, node: Node, fault: dict[str, Any], says: str) -> None:
    vars(node).update(fault)
    with opened(tmp_path) as infra:
        (cid,) = tell(infra)
        with pytest.raises(IpfsFailed, match=says) as caught:
            infra.evidence.push(cid, node.url)
        assert node.url in str(caught.value)


def test_a_node_that_is_not_there_or_not_named_is_told(tmp_path: Path) -> None:
    with opened(tmp_path) as infra:
        (cid,) = tell(infra)
        with pytest.raises(IpfsFailed, match=NOBODY):
            infra.evidence.push(cid, "http://name:passwort@127.0.0.1:9")
        with pytest.raises(IpfsFailed, match="no IPFS node"):
            infra.evidence.push(cid)
        with pytest.raises(EvidenceUnknown):
            infra.evidence.push(cid_of_bytes(b"x"), NOBODY)
        assert infra.evidence.pushing() == PushState()


# -- in the background -----------------------------------------------------------------------------


def test_every_new_bundle_reaches_a_node_that_fails_at_first(tmp_path: Path, node: Node) -> None:
    node.fail, node.status = 3, 503
    with opened(tmp_path, ipfs=node.url, ipfs_retry=0.01) as infra:
        cids = tell(infra, 5)
        assert node.wait_for(5 * 3), infra.evidence.pushing()
        assert set(cids) <= set(node.pins)
        assert node.requests == 5 + 3
        first = infra.evidence.blocks(cids[0])
        deadline = time.monotonic() + 30
        while infra.evidence.pushing().pushed < 5 and time.monotonic() < deadline:  # it has to hear the last answer
            time.sleep(0.01)
    state = json.loads((tmp_path / "家" / "ipfs" / "state.json").read_text("utf-8"))
    assert (state["pushed"], state["waiting"], state["left_out"], state["last_error"]) == (5, 0, 0, None)
    assert state["url"] == node.url
    assert all(node.blocks[cid] == content for cid, content in first)
    assert list((tmp_path / "家" / "ipfs" / "waiting").iterdir()) == []


def test_what_could_not_be_sent_is_sent_after_a_restart(tmp_path: Path, node: Node) -> None:
    with opened(tmp_path, ipfs=NOBODY, ipfs_retry=0.01) as infra:
        cids = tell(infra, 3)
        wait_for_error(infra)
        state = infra.evidence.pushing()
        assert (state.pushed, state.waiting) == (0, 3)
        assert NOBODY in (state.last_error or "")
        assert state.last_error_at is not None
    with opened(tmp_path) as infra:
        assert infra.evidence.pushing().waiting == 3, "without a node nothing is lost"
    with opened(tmp_path, ipfs=node.url) as infra:
        assert node.wait_for(3 * 3)
        assert set(cids) <= set(node.pins)


def test_a_full_queue_leaves_out_and_counts(tmp_path: Path) -> None:
    with opened(tmp_path, ipfs=NOBODY, ipfs_queue=2, ipfs_retry=60.0) as infra:
        tell(infra, 5)
        state = infra.evidence.pushing()
        assert (state.waiting, state.left_out) == (2, 3)


def test_a_bundle_that_is_gone_does_not_hold_up_the_others(tmp_path: Path, node: Node) -> None:
    with opened(tmp_path, ipfs=NOBODY, ipfs_retry=60.0) as infra:
        gone, kept = tell(infra, 2)
        (receipt,) = [
            each for each in infra.session("会话").nodes(type="receipt") if each.data["evidence"]["$cid"] == gone
        ]
        infra.session("会话").erase(receipt.id, "忘记")
    with opened(tmp_path, ipfs=node.url) as infra:
        assert node.wait_for(3)
        assert kept in node.pins
        assert gone not in node.pins


def test_a_bundle_that_the_node_never_takes_does_not_hold_up_the_others(tmp_path: Path, node: Node) -> None:
    with opened(tmp_path, ipfs=NOBODY, ipfs_retry=60.0) as infra:
        bad, *good = tell(infra, 4)
    node.never = bad
    with opened(tmp_path, ipfs=node.url, ipfs_retry=0.01) as infra:
        assert node.wait_for(3 * 3)
        wait_for_error(infra)
        assert set(good) <= set(node.pins)
        assert bad not in node.pins


def test_calls_do_not_wait_for_the_node(tmp_path: Path) -> None:
    """Each call ends although no push ever does."""
    asked: list[str] = []
    outbox = Outbox(tmp_path / "ipfs", NOBODY, lambda cid: asked.append(cid) or [], retry=60.0)
    outbox.start()
    try:
        for number in range(3):
            outbox.add(cid_of_bytes(bytes([number])))
        assert outbox.state.waiting == 3
    finally:
        background.wait_for(outbox.stop(), twin="stop")
    assert sorted(path.name for path in (tmp_path / "ipfs" / "waiting").iterdir()) == sorted(
        cid_of_bytes(bytes([number])) for number in range(3)
    )
