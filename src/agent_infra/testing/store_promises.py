"""What every store must keep, one check each; `stores.py` says how to run them.

A check raises AssertionError where the store in its hands breaks the promise that its docstring makes.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from agent_infra.errors import HomeClosed, StoreLocked
from agent_infra.state.stores import Store

StoreOpener: TypeAlias = Callable[[Path], Store]
OPTIONAL_STORE_CAPABILITIES: Final = frozenset({"persistence", "exclusive"})
_LAST: Final = b"\xff" * 9
# The stores here scan in chunks of a few hundred rows: these lengths lie on, before and behind their edges.
_LENGTHS: Final = (0, 1, 2, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025)


@dataclass(frozen=True, slots=True)
class StorePromise:
    """One thing that a store must keep. `str(promise)` is its readable id."""

    capability: str
    name: str
    text: str
    attempt: Callable[[StoreOpener, Path], None]

    def __str__(self) -> str:
        return f"{self.capability}: {self.name.replace('_', ' ')}"

    def check(self, open_store: StoreOpener, folder: Path) -> None:
        """Try it on the store in `folder`, which must be new. Raises AssertionError where the promise is broken."""
        folder.mkdir(parents=True, exist_ok=True)
        self.attempt(open_store, folder / "store")


_promises: list[StorePromise] = []


def _opening(capability: str) -> Callable[[Callable[[StoreOpener, Path], None]], Callable[[StoreOpener, Path], None]]:
    """Enter a check that opens the store itself."""

    def enter(check: Callable[[StoreOpener, Path], None]) -> Callable[[StoreOpener, Path], None]:
        _promises.append(StorePromise(capability, check.__name__, (check.__doc__ or "").strip(), check))
        return check

    return enter


def _promise(capability: str) -> Callable[[Callable[[Store], None]], Callable[[Store], None]]:
    """Enter a check of an open, empty store."""

    def enter(check: Callable[[Store], None]) -> Callable[[Store], None]:
        def attempt(open_store: StoreOpener, folder: Path) -> None:
            with closing(open_store(folder)) as store:
                check(store)

        _promises.append(StorePromise(capability, check.__name__, (check.__doc__ or "").strip(), attempt))
        return check

    return enter


def _number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _everything(store: Store) -> list[tuple[bytes, bytes]]:
    return list(store.scan(b"\0", _LAST))


@contextmanager
def _beside(work: Callable[[], None]) -> Generator[None]:
    """Run `work` in a thread beside the body; what it raises is raised here, after the body."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed over to the caller's thread
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if failures:
        raise failures[0]


# -- reads -----------------------------------------------------------------------------------------


@_promise("reads")
def an_absent_key_is_none(store: Store) -> None:
    """A key that was never written has no value, and neither have its prefixes and extensions."""
    store.write([(b"ab", b"1")])
    assert store.get(b"a") is None
    assert store.get(b"abc") is None
    assert store.get(b"ab\0") is None


@_promise("reads")
def values_come_back_as_they_were(store: Store) -> None:
    """Values are any bytes: empty, binary, large."""
    values = [b"", b"\0", bytes(range(256)), "你好，世界".encode(), b"x" * (1 << 20)]
    store.write([(b"k" + _number(i), value) for i, value in enumerate(values)])
    assert [store.get(b"k" + _number(i)) for i in range(len(values))] == values


@_promise("reads")
def the_last_write_wins(store: Store) -> None:
    """A key has the value that was written last."""
    for value in (b"1", b"2", b"", b"3"):
        store.write([(b"k", value)])
        assert store.get(b"k") == value


@_promise("reads")
def get_many_keeps_the_order_asked_for(store: Store) -> None:
    """`get_many` gives one answer for each key, in their order, absent and repeated ones too."""
    store.write([(_number(i), b"v%d" % i) for i in range(600)])
    wanted = [5, 3, 700, 3, 599, 0, *range(598, -1, -2)]
    assert store.get_many([_number(i) for i in wanted]) == [b"v%d" % i if i < 600 else None for i in wanted]
    assert store.get_many([]) == []


# -- scans -----------------------------------------------------------------------------------------


@_promise("scans")
def rows_come_in_byte_order(store: Store) -> None:
    """Keys are compared as unsigned bytes, a prefix before what it begins."""
    parts = [b"\0", b"\x01", b"a", b"b", b"\x7f", b"\x80", b"\xfe", b"\xff", "天".encode()]
    keys = sorted({left + right for left in parts for right in [b"", *parts]})
    store.write([(key, key[::-1]) for key in sorted(keys, key=lambda key: key[::-1])])
    assert _everything(store) == [(key, key[::-1]) for key in keys]


@_promise("scans")
def the_lower_bound_is_in_and_the_upper_is_not(store: Store) -> None:
    """`scan(lower, upper)` gives lower <= key < upper; bounds need not be keys, and crossed ones give nothing."""
    keys = [b"b", b"b\0", b"bb", b"c", b"d\xff", b"e"]
    store.write([(key, b"") for key in keys])
    bounds = sorted({b"a", b"bz", b"f", *keys, *(key + b"\0" for key in keys), *(key[:-1] for key in keys if key[:-1])})
    for lower, upper in itertools.product(bounds, bounds):
        assert [key for key, _ in store.scan(lower, upper)] == [key for key in keys if lower <= key < upper]


@_promise("scans")
def no_row_is_lost_or_doubled_at_any_length(store: Store) -> None:
    """However many rows lie between the bounds, each comes once: also where a chunk of the store ends."""
    store.write([(_number(i), b"%d" % i) for i in range(1100)])
    for length in _LENGTHS:
        for start in (0, 1, 70):
            rows = list(store.scan(_number(start), _number(start + length)))
            assert rows == [(_number(i), b"%d" % i) for i in range(start, start + length)], (start, length)


@_promise("scans")
def a_scan_may_be_left_early(store: Store) -> None:
    """A scan that is not read to its end holds nothing up."""
    store.write([(_number(i), b"") for i in range(600)])
    scan = store.scan(_number(0), _number(600))
    assert [key for key, _ in itertools.islice(scan, 3)] == [_number(i) for i in range(3)]
    store.write([(_number(i), None) for i in range(600)])
    assert _everything(store) == []


@_promise("scans")
def a_scan_goes_on_while_rows_change(store: Store) -> None:
    """Rows that were there all the time come once and in order, whatever is written or deleted meanwhile."""
    store.write([(_number(i), b"") for i in range(1500)])
    seen: list[int] = []
    for count, (key, _) in enumerate(store.scan(_number(0), _number(3000))):
        seen.append(int.from_bytes(key, "big"))
        if count % 2 == 0:
            store.write([(key, None), (_number(2000 + count), b"new")])
    assert seen == sorted(set(seen))
    assert [number for number in seen if number < 1500] == list(range(1500))


@_promise("scans")
def deleted_rows_are_not_seen(store: Store) -> None:
    """Deleted rows are passed over, however many of them lie together."""
    store.write([(_number(i), b"") for i in range(1300)])
    store.write([(_number(i), None) for i in range(100, 1200)])
    assert [key for key, _ in _everything(store)] == [_number(i) for i in (*range(100), *range(1200, 1300))]


# -- batches ---------------------------------------------------------------------------------------


@_promise("batches")
def a_batch_is_applied_in_its_order(store: Store) -> None:
    """Where a batch names a key several times, the last word holds."""
    store.write([(b"a", b"1"), (b"a", None), (b"b", None), (b"b", b"2"), (b"c", b"3"), (b"c", b"4"), (b"c", None)])
    assert _everything(store) == [(b"b", b"2")]


@_promise("batches")
def deleting_what_is_absent_does_nothing(store: Store) -> None:
    """Deleting an absent key is no error, and an empty batch changes nothing."""
    store.write([(b"a", None)])
    store.write([])
    store.write([(b"a", b"1"), (b"z", None)], sync=True)
    assert _everything(store) == [(b"a", b"1")]


@_promise("batches")
def a_refused_batch_leaves_nothing(store: Store) -> None:
    """A batch that can't be written raises, and none of it is to be seen."""
    store.write([(b"a", b"old"), (b"b", b"old")])
    for row in ((7, b"1"), (None, b"1"), ("text", b"1")):
        batch = cast("Sequence[Any]", [(b"a", b"new"), (b"b", None), (b"d", b"new"), row])
        try:
            store.write(batch)
        except Exception:  # noqa: BLE001 - any error will do; that there is one matters
            pass
        else:
            raise AssertionError(f"a batch with the row {row!r} was accepted")
        assert _everything(store) == [(b"a", b"old"), (b"b", b"old")]


@_promise("batches")
def large_batches_are_whole(store: Store) -> None:
    """A batch of thousands of rows is one batch."""
    store.write([(_number(i), _number(i) * 10) for i in range(5000)])
    store.write([(_number(i), None if i % 2 else b"even") for i in range(5000)])
    assert _everything(store) == [(_number(i), b"even") for i in range(0, 5000, 2)]


# -- threads ---------------------------------------------------------------------------------------


@_promise("threads")
def who_sees_one_row_of_a_batch_sees_all(store: Store) -> None:
    """A reader in another thread that has seen one row of a batch finds every other, in whatever order it reads."""
    rounds, width = 200, 50
    keys = [b"row" + _number(i) for i in range(width)]
    store.write([(key, _number(0)) for key in keys])

    def write() -> None:
        for turn in range(1, rounds + 1):
            store.write([(key, _number(turn)) for key in keys])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns often, so that a reader lands inside a write if it can
    try:
        with _beside(write):
            for first, second in itertools.islice(itertools.cycle([(keys[0], keys[-1]), (keys[-1], keys[0])]), 2000):
                before = store.get(first) or b""
                after = store.get(second) or b""
                assert after >= before, f"half of batch {before!r} was seen"
    finally:
        sys.setswitchinterval(interval)
    assert store.get_many(keys) == [_number(rounds)] * width


@_promise("threads")
def scans_beside_a_writer_are_in_order(store: Store) -> None:
    """While another thread writes, a scan gives rows in order, each once, and all that was there before."""
    store.write([(_number(i * 2), b"") for i in range(700)])
    there = {_number(i * 2) for i in range(700)}

    def write() -> None:
        for i in range(700):
            store.write([(_number(i * 2 + 1), b"new")])

    with _beside(write):
        for _ in range(10):
            keys = [key for key, _ in store.scan(_number(0), _number(2000))]
            assert keys == sorted(set(keys))
            assert there <= set(keys)
    assert len(_everything(store)) == 1400


@_promise("threads")
def parallel_writers_lose_nothing(store: Store) -> None:
    """Four threads that write at once all find their rows afterwards, and after each write their own."""
    barrier = threading.Barrier(4)

    def write(name: bytes) -> None:
        barrier.wait()
        for i in range(100):
            store.write([(name + _number(i), name), (name + b"last", _number(i))], sync=i % 50 == 0)
            assert store.get(name + b"last") == _number(i)

    with _beside(lambda: write(b"a")), _beside(lambda: write(b"b")), _beside(lambda: write(b"c")):
        write(b"d")
    for name in (b"a", b"b", b"c", b"d"):
        assert len(list(store.scan(name, name + _LAST))) == 101


# -- closing ---------------------------------------------------------------------------------------


@_opening("closing")
def a_closed_store_refuses(open_store: StoreOpener, folder: Path) -> None:
    """After `close()` every call raises HomeClosed: an empty answer would be taken for an empty store."""
    store = open_store(folder)
    store.write([(b"a", b"1")])
    store.close()
    calls: list[Callable[[], object]] = [
        lambda: store.get(b"a"),
        lambda: store.get_many([b"a"]),
        lambda: list(store.scan(b"a", b"b")),
        lambda: store.write([(b"b", b"2")]),
        store.sync,
    ]
    for number, call in enumerate(calls):
        try:
            call()
        except HomeClosed:
            continue
        raise AssertionError(f"call {number} of get, get_many, scan, write, sync went through")


@_opening("closing")
def closing_twice_is_harmless(open_store: StoreOpener, folder: Path) -> None:
    """`close()` may be called again."""
    store = open_store(folder)
    store.close()
    store.close()


# -- optional --------------------------------------------------------------------------------------


@_opening("persistence")
def rows_are_there_after_reopening(open_store: StoreOpener, folder: Path) -> None:
    """Everything written is there when the store is opened again, synced or not, and what was deleted is not."""
    expected: dict[bytes, bytes] = {}
    for turn in range(4):
        with closing(open_store(folder)) as store:
            assert _everything(store) == sorted(expected.items())
            rows = {_number(turn * 1000 + i): b"%d" % turn for i in range(300)}
            store.write(list(rows.items()), sync=turn % 2 == 0)
            gone = list(expected)[:100]
            store.write([(key, None) for key in gone])
            expected = {key: value for key, value in (expected | rows).items() if key not in gone}
            if turn == 3:
                store.sync()
    with closing(open_store(folder)) as store:
        assert _everything(store) == sorted(expected.items())


@_opening("exclusive")
def a_second_opener_is_told_that_it_is_locked(open_store: StoreOpener, folder: Path) -> None:
    """Opening an open store raises StoreLocked, not a word of damage; the first one goes on, then lets others in."""
    with closing(open_store(folder)) as store:
        store.write([(b"a", b"1")])
        refusal: Exception | None = None
        try:
            open_store(folder).close()
        except StoreLocked as error:
            refusal = error
        assert refusal is not None, "the store was opened twice"
        assert "corrupt" not in str(refusal).lower()
        assert store.get(b"a") == b"1"
    open_store(folder).close()


@_opening("exclusive")
def a_scan_left_open_does_not_keep_it_locked(open_store: StoreOpener, folder: Path) -> None:
    """An unfinished scan doesn't hold the store after `close()`."""
    store = open_store(folder)
    store.write([(_number(i), b"") for i in range(2000)])
    scan = store.scan(_number(0), _number(2000))
    next(scan)
    store.close()
    open_store(folder).close()


STORE_PROMISES: Final = tuple(_promises)
