"""The store's settings fit the machine, and what was brought down is said."""

from __future__ import annotations

import pytest

from agent_infra.config import RocksDBSettings
from agent_infra.state.stores import fit_store, fit_to

SERVER = RocksDBSettings(write_buffer_size=512, max_open_files=100_000)


def test_on_a_large_machine_one_gets_what_one_asks_for() -> None:
    fitted = fit_to(SERVER, memory_mb=64_000, open_files=1_048_576)
    assert fitted.settings == SERVER
    assert fitted.notes == ()


def test_where_nothing_is_known_nothing_is_changed() -> None:
    assert fit_to(SERVER, memory_mb=None, open_files=None).settings == SERVER


@pytest.mark.parametrize(
    ("memory_mb", "open_files", "buffer", "files"),
    [(1024, 1_048_576, 128, 100_000), (64_000, 1024, 512, 512), (100, 20, 12, 16), (1, 1, 1, 16)],
)
def test_a_small_machine_gets_less_and_is_told_why(memory_mb: int, open_files: int, buffer: int, files: int) -> None:
    fitted = fit_to(SERVER, memory_mb=memory_mb, open_files=open_files)
    assert (fitted.settings.write_buffer_size, fitted.settings.max_open_files) == (buffer, files)
    assert fitted.settings.compression == "lz4"
    told = " ".join(fitted.notes)
    assert ("write_buffer_size" in told) == (buffer != 512)
    assert ("max_open_files" in told) == (files != 100_000)
    assert str(memory_mb if buffer != 512 else open_files) in told


def test_the_defaults_fit_here() -> None:
    assert fit_store(RocksDBSettings()).notes == ()
