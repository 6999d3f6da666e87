"""Writes that come faster than RocksDB can write its buffers away: they wait, and where there is no room they say so."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from agent_infra.errors import StoreFull
from agent_infra.state.stores.rocksdb import RocksStore

MOST = 5000


def row(number: int) -> tuple[bytes, bytes]:
    return b"k%06d" % number, os.urandom(100_000)


def test_a_burst_of_writes_is_taken_in_and_a_full_disk_in_it_is_told(tmp_path: Path, monkeypatch: Any) -> None:
    store = RocksStore(tmp_path / "store", write_buffer_mb=1)
    written = 0
    usage = shutil.disk_usage(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1 << 20))
        with pytest.raises(StoreFull) as refused:
            while written < MOST:
                store.write([row(written)])
                written += 1
    assert "1 MiB wait to be written" in str(refused.value)
    for number in range(written, written + 200):
        store.write([row(number)])
    assert [key for key, _ in store.scan(b"k", b"l")] == [b"k%06d" % number for number in range(written + 200)]
    store.close()
