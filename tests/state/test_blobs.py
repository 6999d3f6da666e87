"""Content by its hash: put and got back, damaged content noticed, ids that any IPLD tool finds too."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dag_cbor
import pytest
from hypothesis import given
from hypothesis import strategies as st
from multiformats import CID

from agent_infra.content import referred_cids
from agent_infra.errors import EvidenceDamaged, EvidenceUnknown, FileMissing
from agent_infra.state import Home, open_memory
from agent_infra.testing.strategies import json_values

SIZES = (0, 1, 1000, 64 * 1024, 64 * 1024 + 1, 3_000_000)


def cid_by_others(codec: str, content: bytes) -> str:
    return str(CID("base32", 1, codec, ("sha2-256", hashlib.sha256(content).digest())))


@pytest.mark.parametrize("size", SIZES)
def test_content_comes_back(home: Home, size: int) -> None:
    content = os.urandom(size)
    reference = home.blobs.put(content, "application/pdf")
    assert reference == {"$cid": cid_by_others("raw", content), "bytes": size, "media_type": "application/pdf"}
    assert home.blobs.get(str(reference["$cid"])) == content
    assert home.blobs.has(str(reference["$cid"]))
    assert home.blobs.put(content, "application/pdf") == reference


@pytest.mark.parametrize("size", SIZES)
def test_content_survives_reopening(homes: Callable[..., Home], size: int) -> None:
    home = homes()
    cid = str(home.blobs.put(b"x" * size, "text/plain")["$cid"])
    if home.path is not None:
        home.close()
        home = homes()
    assert home.blobs.get(cid) == b"x" * size


def test_a_file_is_stored_by_its_content(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "报告.pdf"
    file.write_bytes(b"%PDF" * 50_000)
    reference = home.blobs.put(file, "application/pdf")
    file.unlink()
    assert home.blobs.get(str(reference["$cid"])) == b"%PDF" * 50_000
    with pytest.raises(FileMissing):
        home.blobs.put(file, "application/pdf")
    with pytest.raises(FileMissing):
        home.blobs.put(tmp_path, "application/pdf")


@given(json_values())
def test_values_are_blocks_that_others_read(value: Any) -> None:
    blobs = open_memory().blobs
    reference = blobs.put_value(value)
    block = blobs.get(str(reference["$cid"]))
    assert reference["$cid"] == cid_by_others("dag-cbor", block)
    assert dag_cbor.decode(block) == value
    assert blobs.get_value(str(reference["$cid"])) == value


def test_a_value_that_refers_to_content_keeps_the_reference(home: Home) -> None:
    page = home.blobs.put("北京".encode(), "text/html")
    outer = home.blobs.put_value({"page": page, "list": [page]})
    found = home.blobs.get_value(str(outer["$cid"]))
    assert referred_cids(found) == [page["$cid"], page["$cid"]]


@given(st.text(max_size=80))
def test_a_text_that_names_nothing_is_unknown(text: str) -> None:
    blobs = open_memory().blobs
    assert not blobs.has(text)
    with pytest.raises(EvidenceUnknown):
        blobs.get(text)


@pytest.mark.parametrize("cid", ["", "b", "../../lock", "bafy", "B" + "A" * 58, cid_by_others("raw", b"never stored")])
def test_names_of_nothing_are_unknown_on_disk_too(disk_home: Home, cid: str) -> None:
    assert not disk_home.blobs.has(cid)
    with pytest.raises(EvidenceUnknown):
        disk_home.blobs.get(cid)


def test_damaged_content_is_noticed(tmp_path: Path, disk_home: Home) -> None:
    small, large = b"small", os.urandom(100_000)
    small_cid, large_cid = (str(disk_home.blobs.put(content, "x/y")["$cid"]) for content in (small, large))
    store = disk_home.engine.store
    (row,) = [key for key, _ in store.scan(b"Y", b"Z") if small_cid.encode() in key]
    store.write([(row, b"smalL")])
    (file,) = [path for path in (tmp_path / "disk home" / "blobs").rglob("*") if path.is_file()]
    content = bytearray(file.read_bytes())
    content[50_000] ^= 1
    file.write_bytes(content)
    for cid in (small_cid, large_cid):
        with pytest.raises(EvidenceDamaged) as caught:
            disk_home.blobs.get(cid)
        assert caught.value.facts["cid"] == cid


def test_storing_damaged_content_again_mends_it(tmp_path: Path, disk_home: Home) -> None:
    content = os.urandom(100_000)
    cid = str(disk_home.blobs.put(content, "x/y")["$cid"])
    (file,) = [path for path in (tmp_path / "disk home" / "blobs").rglob("*") if path.is_file()]
    file.write_bytes(content[:50_000])
    disk_home.blobs.put(content, "x/y")
    assert disk_home.blobs.get(cid) == content


def test_no_half_written_file_is_left(tmp_path: Path, disk_home: Home) -> None:
    for number in range(3):
        disk_home.blobs.put(bytes([number]) * 100_000, "x/y")
    names = [path.name for path in (tmp_path / "disk home" / "blobs").rglob("*") if path.is_file()]
    assert len(names) == 3
    assert all(disk_home.blobs.has(name) for name in names)
