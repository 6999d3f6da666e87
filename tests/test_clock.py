"""Time and ids: exact conversions, ULIDs by their specification."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_infra.clock import (
    ManualClock,
    SystemClock,
    new_ulid,
    new_ulid_bytes,
    random_bytes,
    to_datetime,
    to_micros,
    ulid_bytes,
    ulid_text,
)

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # https://github.com/ulid/spec
LATEST = to_micros(datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))


@given(st.integers(0, LATEST))
def test_instants_are_exact_to_the_microsecond(micros: int) -> None:
    assert to_micros(to_datetime(micros)) == micros
    assert to_datetime(micros).tzinfo is UTC


@given(st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=8)), timezone(-timedelta(hours=9.5))])))
def test_every_zone_gives_the_same_instant(moment: datetime) -> None:
    try:
        utc = moment.astimezone(UTC)
    except OverflowError:
        return
    assert to_micros(moment) == to_micros(utc)
    assert to_datetime(to_micros(moment)) == moment


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        to_micros(datetime(2026, 1, 1))


def test_the_system_clock_tells_the_time() -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    now = to_datetime(SystemClock().micros())
    assert before <= now <= datetime.now(UTC) + timedelta(seconds=1)


def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    start = clock.micros()
    assert clock.micros() == start == to_micros(datetime(2026, 3, 1, tzinfo=UTC))
    clock.advance(0.000001)
    assert clock.micros() == start + 1
    clock.advance(3600)
    clock.advance(-1800.5)
    assert clock.micros() == start + 1 + 1_799_500_000


@given(st.binary(min_size=16, max_size=16))
def test_ulids_go_between_bytes_and_text(raw: bytes) -> None:
    text = ulid_text(raw)
    number = 0
    for char in text:
        number = number * 32 + ALPHABET.index(char)
    assert number == int.from_bytes(raw, "big")
    assert len(text) == 26
    assert ulid_bytes(text) == raw


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16))
def test_text_and_bytes_sort_alike(left: bytes, right: bytes) -> None:
    assert (left < right) == (ulid_text(left) < ulid_text(right))


@given(st.integers(0, LATEST))
def test_a_ulid_begins_with_its_milliseconds(micros: int) -> None:
    assert int.from_bytes(new_ulid_bytes(micros)[:6], "big") == micros // 1000
    assert new_ulid(micros)[:10] == ulid_text((micros // 1000).to_bytes(6, "big") + bytes(10))[:10]


@given(st.text(max_size=30))
def test_a_text_that_is_no_ulid_is_refused(text: str) -> None:
    if len(text) == 26 and set(text) <= set(ALPHABET) and text[0] <= "7":
        return
    with pytest.raises(ValueError, match="not a ULID"):
        ulid_bytes(text)


@pytest.mark.parametrize("text", ["8" + "0" * 25, "Z" * 26, "0" * 25 + "I", "0" * 25 + "a", "0" * 25 + "天", "0" * 27])
def test_near_misses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a ULID"):
        ulid_bytes(text)


def test_ids_of_many_threads_are_all_different() -> None:
    found: list[list[str]] = [[] for _ in range(4)]

    def draw(mine: list[str]) -> None:
        mine.extend(new_ulid(0) for _ in range(2000))

    threads = [threading.Thread(target=draw, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id for mine in found for id in mine}) == 8000


def test_a_forked_child_draws_ids_of_its_own() -> None:
    script = """
import os
from agent_infra.clock import new_ulid
new_ulid(0)
read, write = os.pipe()
child = os.fork()
ids = [new_ulid(0) for _ in range(300)]
if child == 0:
    os.write(write, " ".join(ids).encode())
    os._exit(0)
os.waitpid(child, 0)
print(len(set(ids) & set(os.read(read, 100_000).decode().split())), len(ids))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True, env=os.environ
    )
    assert done.stdout.split() == ["0", "300"]


@pytest.mark.parametrize("count", [1, 10, 16, 4096])
def test_random_bytes_have_their_length(count: int) -> None:
    drawn = {random_bytes(count) for _ in range(3)}
    assert {len(each) for each in drawn} == {count}
    assert count == 1 or len(drawn) == 3
