"""CAR files of evidence, read back by libraries that this project doesn't write them with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dag_cbor
import libipld
import multiformats
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_infra import Infra, StateGraph
from agent_infra.actions.evidence.car import cid_bytes, varint
from agent_infra.errors import EvidenceDamaged, EvidenceUnknown
from agent_infra.state.rows import keys

from .kubo import read_car

PAGE = "长" * 100_000


@pytest.fixture
def cids(infra: Infra, graph: StateGraph) -> list[str]:
    """The evidence of three calls; the second has a large output."""

    @infra.tools.tool(effects="none")
    def tell(much: bool) -> str:
        """Tell."""
        return PAGE if much else "短"

    specs = [{"tool": "tell", "params": {"much": much}} for much in (False, True, False)]
    return [infra.actions.execute(spec, graph).evidence_cid for spec in specs]


def test_a_car_holds_a_bundle_and_all_that_it_refers_to(infra: Infra, cids: list[str], tmp_path: Path) -> None:
    written = infra.evidence.export(cids[1], tmp_path / "证据.car")
    car = written.path.read_bytes()
    roots, blocks = read_car(car)
    bundle = infra.evidence.get(cids[1])
    assert roots == [cids[1]] == [written.root]
    assert {cid for cid, _ in blocks} == {cids[1], bundle["output"]["$cid"], bundle["environment"]["$cid"]}
    assert (written.blocks, written.bytes) == (3, len(car))
    by_cid = dict(blocks)
    assert dag_cbor.decode(by_cid[cids[1]]) == bundle
    assert dag_cbor.decode(by_cid[bundle["output"]["$cid"]]) == PAGE


def test_another_reader_agrees(infra: Infra, cids: list[str], tmp_path: Path) -> None:
    car = infra.evidence.export(cids[1], tmp_path / "a.car").path.read_bytes()
    header, blocks = libipld.decode_car(car)
    assert header["version"] == 1
    assert [multiformats.CID.decode(root).encode("base32") for root in header["roots"]] == [cids[1]]
    decoded: list[Any] = list(blocks.values())
    assert infra.evidence.get(cids[1]) in decoded
    assert PAGE in decoded


def test_a_chain_is_exported_with_it_each_block_once(infra: Infra, cids: list[str], tmp_path: Path) -> None:
    written = infra.evidence.export(cids[2], tmp_path / "chain.car", chain=True)
    roots, blocks = read_car(written.path.read_bytes())
    names = [cid for cid, _ in blocks]
    assert roots == [cids[2]]
    assert len(names) == len(set(names)) == 5, "three bundles, one output, one environment"
    assert set(cids) < set(names)
    alone = infra.evidence.export(cids[2], tmp_path / "alone.car")
    assert alone.blocks == 2


def test_what_does_not_hold_is_not_exported(infra: Infra, cids: list[str], tmp_path: Path) -> None:
    block = infra.blobs.raw(cids[0])
    infra.engine.store.write([(keys.block(cids[0]), block[:-1] + bytes([block[-1] ^ 1]))])
    with pytest.raises(EvidenceDamaged, match=cids[0]):
        infra.evidence.export(cids[2], tmp_path / "chain.car", chain=True)
    with pytest.raises(EvidenceUnknown):
        infra.evidence.export("bafyreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy", tmp_path / "none.car")
    assert list(tmp_path.glob("*.car*")) == list(tmp_path.glob(".*.part")) == []
    assert infra.evidence.export(cids[2], tmp_path / "alone.car").blocks == 2


@given(number=st.one_of(st.integers(0, 300), st.integers(0, 2**62)))
@example(number=127)
@example(number=128)
@example(number=255)
@example(number=2**14 - 1)
def test_a_varint_is_what_multiformats_reads(number: int) -> None:
    assert multiformats.varint.decode(varint(number)) == number


def test_a_cid_is_the_bytes_of_its_text(cids: list[str]) -> None:
    assert cid_bytes(cids[0]) == bytes(multiformats.CID.decode(cids[0]))
