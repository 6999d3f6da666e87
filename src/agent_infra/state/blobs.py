"""Content by its hash: documents, pages, evidence blocks. Stored once, referred to from node data by `{"$cid": …}`.

Small blocks lie in the store, so that they are durable with the step that refers to them; large ones are files of a
folder, written aside, synced and renamed into place, and read and written as streams. A byte budget, where one is set,
makes writers wait until retention has freed enough, and then refuses by name.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from agent_infra.content import (
    JsonValue,
    canonical,
    cid_of_block,
    cid_of_bytes,
    cid_of_digest,
    from_canonical,
    is_cid,
    matches_cid,
    reference,
    referred_cids,
)
from agent_infra.errors import EvidenceDamaged, EvidenceUnknown, FileMissing, StoreFull
from agent_infra.state.rows import keys
from agent_infra.state.stores import Store, Write

if TYPE_CHECKING:
    from collections.abc import Generator

VALUE_TYPE: Final = "application/vnd.ipld.dag-cbor"
SMALL: Final = 64 * 1024
CHUNK: Final = 1 << 20
VALUE_PREFIX: Final = "bafyrei"
"""How the CIDs of DAG-CBOR blocks begin."""
FRESH: Final = 3600.0
"""Seconds for which a block that was put is kept although no step refers to it yet."""


class BlobStore:
    """Blocks of one home.

    folder       where large ones go; without one (in memory) all lie in the store
    budget       bytes that all blocks may take together; None: as many as the disk holds
    budget_wait  seconds for which a writer waits for room
    """

    def __init__(
        self, store: Store, folder: Path | None = None, *, budget: int | None = None, budget_wait: float = 30.0
    ) -> None:
        self._store = store
        self._folder = folder
        self._budget = budget
        self._budget_wait = budget_wait
        self._room = threading.Condition()
        self._coming_and_going = threading.RLock()
        self._used = self._count() if budget is not None else 0
        self._fresh: dict[str, tuple[int, float]] = {}

    # -- in ----------------------------------------------------------------------------------------

    def put(self, content: bytes | Path, media_type: str) -> dict[str, JsonValue]:
        """Store bytes, or a file's bytes as a stream, and give the reference to put into a node's data.

        Raises FileMissing, and StoreFull where the disk or the budget has no room.
        """
        if isinstance(content, Path):
            return self._put_file(content, media_type)
        cid = cid_of_bytes(content)
        self._keep(cid, content)
        return reference(cid, len(content), media_type)

    def put_value(self, value: Any) -> dict[str, JsonValue]:
        """Store a JSON value as one DAG-CBOR block, and give its reference.

        Blocks that the value refers to stay as long as this one does.
        """
        block = canonical(value)
        cid = cid_of_block(block)
        inner = referred_cids(value)
        self._keep(cid, block, [(keys.user_prefix(each) + cid.encode(), b"") for each in inner])
        self.used(inner)
        return reference(cid, len(block), VALUE_TYPE)

    def rows_of(self, value: Any) -> tuple[dict[str, JsonValue], list[Write], list[str]]:
        """A JSON value's reference, for a step that brings its block along: the rows to write in that step's batch, and
        the blocks that they refer to, which are `used` then. No rows where it can't travel so, and is stored already.
        """
        block = canonical(value)
        if self._budget is not None or len(block) > SMALL:
            return self.put_value(value), [], []
        cid, inner = cid_of_block(block), referred_cids(value)
        self._await_use(cid)
        rows: list[Write] = [
            (keys.block(cid), block),
            *((keys.user_prefix(each) + cid.encode(), b"") for each in inner),
        ]
        return reference(cid, len(block), VALUE_TYPE), rows, inner

    def _put_file(self, source: Path, media_type: str) -> dict[str, JsonValue]:
        if not source.is_file():
            raise FileMissing(source)
        size = source.stat().st_size
        if self._folder is None or size <= SMALL:
            return self.put(source.read_bytes(), media_type)
        digest = hashlib.sha256()
        with self._reserved(size), source.open("rb") as file, _aside(self._folder) as target:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                target.write(chunk)
            cid = cid_of_digest(digest.digest())
            new = not self._expect_use(cid)
            self._store.write([(keys.loosened(cid), b"")])
            size = target.tell()
            _into_place(target, self._file(self._folder, cid))
            if not new:
                self._give_back(size)
        return reference(cid, size, media_type)

    def hold(self, cid: str) -> None:
        """Keep a block for good, whether or not anything refers to it."""
        self._store.write([(keys.user_prefix(cid) + cid.encode(), b"")])
        self.used([cid])

    def _keep(self, cid: str, content: bytes, users: Sequence[Write] = ()) -> None:
        """Store a block, and with it the rows that say what it refers to."""
        if self._expect_use(cid) and self.raw(cid) == content:
            if users:
                self._store.write(users)
            return
        with self._reserved(len(content)):
            unused: Write = (keys.loosened(cid), b"")
            if self._folder is None or len(content) <= SMALL:
                self._store.write([(keys.block(cid), content), unused, *users])
                return
            self._store.write([unused])
            with _aside(self._folder) as target:
                target.write(content)
                _into_place(target, self._file(self._folder, cid))
            if users:
                self._store.write(users)

    # -- out ---------------------------------------------------------------------------------------

    def get(self, cid: str) -> bytes:
        """The bytes of a CID, checked against it. Raises EvidenceUnknown, EvidenceDamaged."""
        content = self.raw(cid)
        if not matches_cid(cid, content):
            raise _damaged(cid)
        return content

    def stream(self, cid: str) -> Iterator[bytes]:
        """The bytes of a CID in chunks of at most 1 MiB; a large file is never whole in memory.

        Raises EvidenceUnknown at once, EvidenceDamaged behind the last chunk of bytes that don't hash to the CID.
        """
        path = self._path(cid)
        if path is None or not path.is_file():
            content = self.get(cid)
            yield from (content[start : start + CHUNK] for start in range(0, len(content), CHUNK))
            return
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                yield chunk
        if cid not in (cid_of_digest(digest.digest()), cid_of_digest(digest.digest(), value=True)):
            raise _damaged(cid)

    def raw(self, cid: str) -> bytes:
        """The stored bytes, unchecked. Raises EvidenceUnknown."""
        with self.open(cid) as content:
            return content.read()

    def open(self, cid: str) -> IO[bytes]:
        """The stored bytes, unchecked, as a file to read from. Raises EvidenceUnknown."""
        content = self._store.get(keys.block(cid)) if is_cid(cid) else None
        if content is not None:
            return BytesIO(content)
        path = self._path(cid)
        if path is None or not path.is_file():
            raise EvidenceUnknown(
                f"this home holds no content {cid}",
                mend="Check the id, and that this is the home that it was stored in.",
                facts={"cid": cid},
            )
        return path.open("rb")

    def get_value(self, cid: str) -> Any:
        """The JSON value of a DAG-CBOR block, checked against its CID. Raises EvidenceUnknown, EvidenceDamaged."""
        return from_canonical(self.get(cid))

    def has(self, cid: str) -> bool:
        """Whether this home holds that content."""
        return is_cid(cid) and self._holds(cid)

    def _holds(self, cid: str) -> bool:
        in_store = self._store.get(keys.block(cid)) is not None
        return in_store or (self._folder is not None and os.path.isfile(f"{self._folder}/{cid[-2:]}/{cid}"))

    def is_referred(self, cid: str) -> bool | None:
        """Whether a node or another block refers to a block, here or lost; None where that can't be told."""
        prefix = keys.user_prefix(cid)
        return next(iter(self._store.scan(prefix, keys.after(prefix))), None) is not None

    def referred_by(self, cid: str) -> list[str]:
        """The blocks that a stored value refers to; none for raw bytes."""
        return referred_cids(from_canonical(self.raw(cid))) if cid.startswith(VALUE_PREFIX) and self.has(cid) else []

    # -- away --------------------------------------------------------------------------------------

    def _expect_use(self, cid: str) -> bool:
        """Note that a block is being put for a step that will refer to it; whether it is here already, to stay."""
        with self._coming_and_going:
            self._await_use(cid)
            return self._holds(cid)

    def _await_use(self, cid: str) -> None:
        with self._coming_and_going:
            count, _ = self._fresh.get(cid, (0, 0.0))
            self._fresh[cid] = (count + 1, time.monotonic())

    @contextmanager
    def leaving(self, cid: str) -> Generator[bool]:
        """Whether a block that nothing refers to may go; nobody begins to put it until the `with` ends."""
        with self._coming_and_going:
            yield not self.is_awaited(cid)

    def used(self, cids: Iterable[str]) -> None:
        """Note that a committed step, or another block, refers to blocks that were put for it."""
        for cid in cids:
            count, put = self._fresh.pop(cid, (0, 0.0))
            if count > 1:
                self._fresh[cid] = (count - 1, put)

    def is_awaited(self, cid: str) -> bool:
        """Whether a block was put and the step that refers to it may still be on its way."""
        count, put = self._fresh.get(cid, (0, 0.0))
        return count > 0 and time.monotonic() - put < FRESH

    def size(self, cid: str) -> int:
        """The bytes of a block; 0 for one that is not here."""
        path = self._path(cid)
        if path is not None and path.is_file():
            return path.stat().st_size
        return len(self._store.get(keys.block(cid)) or b"") if is_cid(cid) else 0

    def drop(self, cid: str) -> int:
        """Remove a block that nothing refers to any more; the bytes freed."""
        path = self._path(cid)
        if path is not None and path.is_file():
            size = path.stat().st_size
            path.unlink()
            self._store.write([(keys.loosened(cid), None)])
        else:
            content = self._store.get(keys.block(cid)) if is_cid(cid) else None
            if content is None:
                return 0
            size = len(content)
            self._store.write([(keys.block(cid), None), (keys.loosened(cid), None)])
        self._give_back(size)
        return size

    def _path(self, cid: str) -> Path | None:
        return self._file(self._folder, cid) if self._folder is not None and is_cid(cid) else None

    @staticmethod
    def _file(folder: Path, cid: str) -> Path:
        return folder / cid[-2:] / cid

    # -- the budget --------------------------------------------------------------------------------

    def _count(self) -> int:
        inside = sum(len(value) for _, value in self._store.scan(b"Y", b"Z"))
        files = self._folder.glob("*/b*") if self._folder is not None else ()
        return inside + sum(file.stat().st_size for file in files)

    @contextmanager
    def _reserved(self, size: int) -> Generator[None]:
        """Take room for a block out of the budget, waiting for it; give it back where the block isn't written."""
        if self._budget is None:
            yield
            return
        budget = self._budget
        with self._room:
            if not self._room.wait_for(lambda: self._used + size <= budget, self._budget_wait):
                raise StoreFull(
                    f"there is no room for {size} bytes of content",
                    why=f"{self._used} of {budget} bytes are used, and nothing was freed for {self._budget_wait:g} s",
                    mend="Run gc(), or raise the setting state.blob_budget_mb; nothing was changed.",
                    facts={"bytes": size, "used": self._used, "budget": budget},
                )
            self._used += size
        try:
            yield
        except BaseException:
            self._give_back(size)
            raise

    def _give_back(self, size: int) -> None:
        if self._budget is not None:
            with self._room:
                self._used -= size
                self._room.notify_all()


def _damaged(cid: str) -> EvidenceDamaged:
    return EvidenceDamaged(
        f"the stored bytes of {cid} are not what that id names",
        why="they hash to another id, so they were changed after they were stored",
        mend="Restore the home from a copy; don't use this content.",
        facts={"cid": cid},
    )


@contextmanager
def _aside(folder: Path) -> Generator[IO[bytes]]:
    """A file beside its later place; it is gone again unless it was moved there. Raises StoreFull."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".")
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise StoreFull(
            "the disk refused the write",
            where=str(folder),
            why=str(error),
            mend="Free some space; nothing was changed.",
        ) from error


def _into_place(file: IO[bytes], path: Path) -> None:
    """Sync, rename, sync the folder: the name exists only with all of its bytes behind it."""
    file.flush()
    os.fsync(file.fileno())
    path.parent.mkdir(parents=True, exist_ok=True)
    os.replace(file.name if isinstance(file.name, str) else os.readlink(f"/proc/self/fd/{file.fileno()}"), path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
