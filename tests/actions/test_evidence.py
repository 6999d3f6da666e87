"""Evidence: what a bundle holds, and that a changed byte is found."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import dag_cbor
import pytest
from multiformats import CID

from agent_infra import Infra, StateGraph
from agent_infra.content import cid_of_block
from agent_infra.errors import EvidenceDamaged, EvidenceUnknown
from agent_infra.state.rows import keys

BUNDLE = {"kind": "agent_infra/evidence", "format": 1, "output": {"温度": 22.5}, "conditions": [], "error": None}


def stored(infra: Infra, cid: str) -> bytes:
    """A small block as it lies in the store."""
    block = infra.engine.store.get(keys.block(cid))
    assert block is not None
    return block


def tamper(infra: Infra, cid: str, position: int, mask: int = 1) -> None:
    """Change one byte of a stored block behind everyone's back."""
    block = bytearray(stored(infra, cid))
    block[position] ^= mask
    infra.engine.store.write([(keys.block(cid), bytes(block))])


TELL = "name: tell\ntool: tell\nparams: {about: 天气}\neffects: none\n"


def executed(infra: Infra, graph: StateGraph, output: Any, condition: str = "params.about == '天气'") -> str:
    """The evidence of a call that gives this output."""

    @infra.tools.tool(effects="none", version="3.1.4")
    def tell(about: str) -> Any:
        """Tell what there is."""
        return output

    infra.actions.load(f'{TELL}postconditions: ["{condition}"]\n')
    result = infra.actions.execute("tell", graph)
    assert result.ok
    return result.evidence_cid


# -- content ids -----------------------------------------------------------------------------------


def test_the_id_is_what_any_ipld_tool_computes(infra: Infra) -> None:
    cid = infra.evidence.write(dict(BUNDLE))["$cid"]
    block = dag_cbor.encode(BUNDLE)
    assert stored(infra, cid) == block
    parsed = CID.decode(cid)
    assert (parsed.version, parsed.codec.name, parsed.hashfun.name) == (1, "dag-cbor", "sha2-256")
    assert parsed.raw_digest == hashlib.sha256(block).digest()


def test_equal_bundles_have_one_id_in_whatever_order_they_were_written(infra: Infra) -> None:
    turned = dict(reversed(list(BUNDLE.items())))
    assert infra.evidence.write(dict(BUNDLE)) == infra.evidence.write(turned)
    assert infra.evidence.write(BUNDLE | {"format": 2}) != infra.evidence.write(dict(BUNDLE))


def test_a_bundle_comes_back_equal(infra: Infra) -> None:
    cid = infra.evidence.write(dict(BUNDLE))["$cid"]
    assert infra.evidence.get(cid) == BUNDLE
    check = infra.evidence.verify(cid)
    assert (check.ok, check.cid, check.blocks, check.problems) == (True, cid, 1, ())


# -- what an execution leaves ----------------------------------------------------------------------


def test_a_bundle_says_what_was_asked_what_came_back_and_where(infra: Infra, graph: StateGraph) -> None:
    cid = executed(infra, graph, {"答": "晴"})
    bundle = infra.evidence.get(cid)
    contract = infra.actions.get("tell")
    (call,) = graph.nodes(type="call")
    assert bundle["session"] == graph.session_id
    assert bundle["call"] == call.id
    assert bundle["status"] == "succeeded"
    assert bundle["output"] == {"答": "晴"}
    assert bundle["error"] is None
    assert bundle["executor"] == "local"
    assert bundle["seconds"] >= 0
    assert bundle["started_at"] <= bundle["finished_at"]
    assert [entry["source"] for entry in bundle["conditions"]] == ["params.about == '天气'"]
    assert {"python", "agent_infra", "machine", "host", "packages"} <= infra.evidence.environment(cid).keys()
    text = repr(bundle)
    for told in (contract.hash, "tell", "3.1.4", "天气", call.data["idempotency_key"]):
        assert told in text
    assert str(graph.at(bundle["version"]).version) == bundle["version"]


def test_what_was_not_measured_is_not_zero(infra: Infra, graph: StateGraph) -> None:
    bundle = infra.evidence.get(executed(infra, graph, 1))
    assert bundle["peak_memory_mb"] is None
    assert bundle["exit_code"] is None


# -- changed, lost, unknown ------------------------------------------------------------------------


def test_every_flipped_byte_is_found(infra: Infra, graph: StateGraph) -> None:
    cid = executed(infra, graph, {"答": "晴"})
    for position in range(len(stored(infra, cid))):
        tamper(infra, cid, position, mask=1 << position % 8)
        check = infra.evidence.verify(cid)
        assert not check.ok
        assert cid in check.problems[0]
        with pytest.raises(EvidenceDamaged):
            infra.evidence.get(cid)
        tamper(infra, cid, position, mask=1 << position % 8)
    assert infra.evidence.verify(cid).ok


def test_a_bundle_put_in_anothers_place_is_found(infra: Infra) -> None:
    kept = infra.evidence.write(dict(BUNDLE))["$cid"]
    other = infra.evidence.write(BUNDLE | {"output": {"温度": 99}})["$cid"]
    infra.engine.store.write([(keys.block(kept), stored(infra, other))])
    assert not infra.evidence.verify(kept).ok
    assert infra.evidence.verify(other).ok


def test_another_home_holds_other_evidence(infra: Infra) -> None:
    cid = cid_of_block(b"\xa0")
    for asked in (infra.evidence.get, infra.evidence.verify, infra.evidence.output):
        with pytest.raises(EvidenceUnknown) as caught:
            asked(cid)
        assert cid in str(caught.value)


@pytest.mark.parametrize("name", ["", "bafy", "../../etc/passwd", "证据", "b" + "a" * 58])
def test_what_is_no_id_names_no_evidence(infra: Infra, name: str) -> None:
    with pytest.raises(EvidenceUnknown):
        infra.evidence.get(name)
    with pytest.raises(EvidenceUnknown):
        infra.evidence.verify(name)


def test_other_content_is_not_taken_for_evidence(infra: Infra) -> None:
    cid = infra.blobs.put_value({"不是": "证据"})["$cid"]
    with pytest.raises(EvidenceUnknown):
        infra.evidence.get(str(cid))


# -- large outputs ---------------------------------------------------------------------------------

PAGE = {"正文": "长" * 100_000}


def large(infra: Infra, cid: str) -> Path:
    """The file that a bundle's output lies in."""
    name = infra.evidence.get(cid)["output"]["$cid"]
    (path,) = [path for path in infra.home.rglob(name) if path.is_file()]
    return path


def test_a_large_output_is_a_block_of_its_own(infra: Infra, graph: StateGraph) -> None:
    cid = executed(infra, graph, PAGE)
    bundle = infra.evidence.get(cid)
    assert set(bundle["output"]) == {"$cid", "bytes", "media_type"}
    assert bundle["output"]["bytes"] == len(dag_cbor.encode(PAGE))
    assert len(stored(infra, cid)) < 10_000
    assert infra.evidence.output(cid) == PAGE
    assert infra.evidence.verify(cid).blocks == 3, "bundle, output, environment"
    assert cid_of_block(large(infra, cid).read_bytes()) == bundle["output"]["$cid"]


def test_a_condition_on_a_large_output_does_not_copy_it(infra: Infra, graph: StateGraph) -> None:
    cid = executed(infra, graph, PAGE, condition="result != null && result['正文'] != ''")
    (receipt,) = graph.nodes(type="receipt")
    assert len(dag_cbor.encode(receipt.data)) < 10_000
    assert len(stored(infra, cid)) < 10_000


def test_the_same_large_output_is_kept_once(infra: Infra, graph: StateGraph) -> None:
    first, second = executed(infra, graph, PAGE), executed(infra, graph, PAGE)
    assert first != second
    assert large(infra, first) == large(infra, second)


def test_a_flipped_byte_of_a_large_output_is_found_and_named(infra: Infra, graph: StateGraph) -> None:
    cid = executed(infra, graph, PAGE)
    path = large(infra, cid)
    whole = path.read_bytes()
    for position in (0, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        check = infra.evidence.verify(cid)
        assert not check.ok
        assert path.name in check.problems[0]
        with pytest.raises(EvidenceDamaged):
            infra.evidence.output(cid)
    path.write_bytes(whole[:-1])
    assert not infra.evidence.verify(cid).ok


def test_a_lost_large_output_is_missing_not_empty(infra: Infra, graph: StateGraph) -> None:
    cid = executed(infra, graph, PAGE)
    path = large(infra, cid)
    path.unlink()
    check = infra.evidence.verify(cid)
    assert check.problems == (f"{path.name} is missing",)
    with pytest.raises(EvidenceUnknown):
        infra.evidence.output(cid)


def test_files_that_an_output_refers_to_are_verified_with_it(infra: Infra, graph: StateGraph) -> None:
    page = infra.blobs.put("第一页".encode(), "text/plain")
    cid = executed(infra, graph, {"页": [page]})
    assert infra.evidence.verify(cid).blocks == 3, "bundle, page, environment"
    tamper(infra, str(page["$cid"]), 0)
    check = infra.evidence.verify(cid)
    assert not check.ok
    assert str(page["$cid"]) in check.problems[0]
