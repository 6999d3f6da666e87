"""Content by its hash: documents, pages, evidence blocks. Stored once, referred to from node data by `{"$cid": …}`.

Small blocks lie in the store, so that they are durable with the step that refers to them; large ones are files of a
folder, written aside, synced and renamed into place.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Final

from agent_infra.content import (
    JsonValue,
    canonical,
    cid_of_block,
    cid_of_bytes,
    from_canonical,
    is_cid,
    matches_cid,
    reference,
    referred_cids,
)
from agent_infra.errors import EvidenceDamaged, EvidenceUnknown, FileMissing, StoreFull
from agent_infra.state import keys
from agent_infra.state.stores import Store

SMALL: Final = 64 * 1024
VALUE_PREFIX: Final = "bafyrei"
"""How the CIDs of DAG-CBOR blocks begin."""


class BlobStore:
    """Blocks of one home. `folder` is where large ones go; without one (in memory) all lie in the store."""

    def __init__(self, store: Store, folder: Path | None = None) -> None:
        self._store = store
        self._folder = folder

    def put(self, content: bytes | Path, media_type: str) -> dict[str, JsonValue]:
        """Store bytes, or a file's bytes, and give the reference to put into a node's data.

        Raises FileMissing, StoreFull.
        """
        if isinstance(content, Path):
            if not content.is_file():
                raise FileMissing(content)
            content = content.read_bytes()
        cid = cid_of_bytes(content)
        self._keep(cid, content)
        return reference(cid, len(content), media_type)

    def put_value(self, value: Any) -> dict[str, JsonValue]:
        """Store a JSON value as one DAG-CBOR block, and give its reference.

        Blocks that the value refers to stay as long as this one does.
        """
        block = canonical(value)
        cid = cid_of_block(block)
        self._keep(cid, block)
        inner = referred_cids(value)
        if inner:
            self._store.write([(keys.user_prefix(each) + cid.encode(), b"") for each in inner])
        return reference(cid, len(block), "application/vnd.ipld.dag-cbor")

    def get(self, cid: str) -> bytes:
        """The bytes of a CID, checked against it. Raises EvidenceUnknown, EvidenceDamaged."""
        content = self.raw(cid)
        if not matches_cid(cid, content):
            raise EvidenceDamaged(
                f"the stored bytes of {cid} are not what that id names",
                why="they hash to another id, so they were changed after they were stored",
                mend="Restore the home from a copy; don't use this content.",
                facts={"cid": cid},
            )
        return content

    def raw(self, cid: str) -> bytes:
        """The stored bytes, unchecked. Raises EvidenceUnknown."""
        content = self._store.get(keys.block(cid)) if is_cid(cid) else None
        if content is not None:
            return content
        path = self._path(cid)
        if path is None or not is_cid(cid) or not path.is_file():
            raise EvidenceUnknown(
                f"this home holds no content {cid}",
                mend="Check the id, and that this is the home that it was stored in.",
                facts={"cid": cid},
            )
        return path.read_bytes()

    def get_value(self, cid: str) -> Any:
        """The JSON value of a DAG-CBOR block, checked against its CID. Raises EvidenceUnknown, EvidenceDamaged."""
        return from_canonical(self.get(cid))

    def has(self, cid: str) -> bool:
        """Whether this home holds that content."""
        path = self._path(cid)
        return is_cid(cid) and (self._store.get(keys.block(cid)) is not None or (path is not None and path.is_file()))

    def referred_by(self, cid: str) -> list[str]:
        """The blocks that a stored value refers to; none for raw bytes."""
        return referred_cids(from_canonical(self.raw(cid))) if cid.startswith(VALUE_PREFIX) and self.has(cid) else []

    def drop(self, cid: str) -> int:
        """Remove a block that nothing refers to any more; the bytes freed."""
        if not self.has(cid):
            return 0
        size = len(self.raw(cid))
        self._store.write([(keys.block(cid), None)])
        path = self._path(cid)
        if path is not None:
            path.unlink(missing_ok=True)
        return size

    def _path(self, cid: str) -> Path | None:
        return self._folder / cid[-2:] / cid if self._folder else None

    def _keep(self, cid: str, content: bytes) -> None:
        path = self._path(cid)
        if path is None or len(content) <= SMALL:
            self._store.write([(keys.block(cid), content)])
        elif not path.is_file():
            _write_file(path, content)


def _write_file(path: Path, content: bytes) -> None:
    """Write aside, sync, rename, sync the folder: the name exists only with all of its bytes behind it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
        except BaseException:
            os.unlink(aside)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise StoreFull(
            "the disk refused the write", where=str(path), why=str(error), mend="Free some space; nothing was changed."
        ) from error
