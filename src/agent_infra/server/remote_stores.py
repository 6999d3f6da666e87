"""The content and the schemas of a home that another process owns, behind the faces that one's own have."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Final

from agent_infra.content import JsonValue, canonical, cid_of_block, cid_of_digest, fingerprint, json_copy
from agent_infra.errors import EvidenceDamaged, FileMissing
from agent_infra.server.client import Client
from agent_infra.server.codec import DeprecationBody, MappingBody, SchemaBody, encode
from agent_infra.state import BlobStore
from agent_infra.state.schemas import Compatibility, Schema, SchemaDiff, compile_schema

CHUNK: Final = 1 << 20


class RemoteBlobs(BlobStore):
    """Content that lies at the owner's. What comes back is checked against its id here."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def put(self, content: bytes | Path, media_type: str) -> dict[str, JsonValue]:
        """Store bytes, or a file's bytes as a stream. Raises FileMissing, StoreFull."""
        if isinstance(content, Path) and not content.is_file():
            raise FileMissing(content)
        digest = hashlib.sha256()
        sent = _hashed(content, digest.update)
        told = self._client.upload("/api/blobs", sent, dict[str, Any], {"media_type": media_type})
        return _same(told, cid_of_digest(digest.digest()))

    def put_value(self, value: Any) -> dict[str, JsonValue]:
        """Store a JSON value as one DAG-CBOR block."""
        block = canonical(value)
        return _same(self._client.upload("/api/blobs/values", block, dict[str, Any]), cid_of_block(block))

    def open(self, cid: str) -> IO[bytes]:
        """The stored bytes, unchecked. Raises EvidenceUnknown."""
        return BytesIO(b"".join(self._client.download("/api/blobs", {"cid": cid})))

    def stream(self, cid: str) -> Iterator[bytes]:
        """The bytes of a CID in chunks. Raises EvidenceUnknown, EvidenceDamaged behind the last chunk."""
        digest = hashlib.sha256()
        for chunk in self._client.download("/api/blobs", {"cid": cid}):
            digest.update(chunk)
            yield chunk
        if cid not in (cid_of_digest(digest.digest()), cid_of_digest(digest.digest(), value=True)):
            raise _differs(cid)

    def has(self, cid: str) -> bool:
        """Whether the home holds that content."""
        return self._client.exists("/api/blobs", {"cid": cid})

    def is_referred(self, cid: str) -> bool | None:  # noqa: ARG002
        """Only the owner can tell."""
        return None

    def hold(self, cid: str) -> None:
        """Only the owner keeps account. Raises NotOwner."""
        raise self._client.only_owner(f"holding content {cid}")

    def used(self, cids: Iterable[str]) -> None:
        """The owner keeps account."""

    def is_awaited(self, cid: str) -> bool:
        """Only the owner knows. Raises NotOwner."""
        raise self._client.only_owner(f"the account of new content, as {cid},")

    def drop(self, cid: str) -> int:
        """Only the owner removes content. Raises NotOwner."""
        raise self._client.only_owner(f"removing content {cid}")


def _hashed(content: bytes | Path, update: Any) -> Iterator[bytes]:
    with BytesIO(content) if isinstance(content, bytes) else content.open("rb") as file:
        while chunk := file.read(CHUNK):
            update(chunk)
            yield chunk


def _same(told: dict[str, Any], cid: str) -> dict[str, JsonValue]:
    if told.get("$cid") != cid:
        raise _differs(cid)
    return told


def _differs(cid: str) -> EvidenceDamaged:
    return EvidenceDamaged(
        f"the bytes of {cid} are not the same at the owner",
        why="they hash to another id",
        mend="Send or read them again; if that doesn't help, the home is damaged.",
        facts={"cid": cid},
    )


class RemoteSchemas:
    """The schema broker of a home that another process owns. Migrations that are Python functions stay its own."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._client.only_owner(f"schemas.{name}")

    def register(
        self,
        name: str,
        schema: Mapping[str, Any] | bool,
        compatibility: Compatibility = "BACKWARD",
        tag: str | None = None,
    ) -> Schema:
        """Declare a type's schema. Raises SchemaInvalid, SchemaIncompatible, NotJson."""
        plain = json_copy(dict(schema) if isinstance(schema, Mapping) else schema, where=f"schema {name}")[1]
        body = SchemaBody(name, plain, compatibility, tags=() if tag is None else (tag,))
        return _schema(self._client.post("/api/schemas", body, SchemaBody))

    def get(self, name: str, version: int | str | None = None) -> Schema:
        """A schema by name. Raises SchemaUnknown."""
        return _schema(self._client.get("/api/schemas", SchemaBody, {"name": name, "version": _said(version)}))

    def list(self, name: str | None = None) -> tuple[Schema, ...]:
        """All versions of a schema, or of all schemas, by name and from the oldest on."""
        found: list[SchemaBody] = self._client.get("/api/schemas/list", list[SchemaBody], {"name": name})
        return tuple(_schema(each) for each in found)

    def names(self) -> Sequence[str]:
        """The declared types."""
        return self._client.get("/api/schemas/names", list[str])

    def digest(self) -> str:
        """A hash over the schemas that new nodes have."""
        return fingerprint({name: self.get(name).hash for name in self.names()})

    def diff(self, name: str, old: int | str, new: int | str | None = None) -> SchemaDiff:
        """What changed from one version to another. Raises SchemaUnknown."""
        asked = {"name": name, "old": _said(old), "new": _said(new)}
        return self._client.get("/api/schemas/diff", SchemaDiff, asked)

    def deprecate(self, name: str, version: int | str, why: str = "deprecated") -> Schema:
        """Take a version out of use. Raises SchemaUnknown, SchemaInvalid."""
        return _schema(self._client.post("/api/schemas/deprecate", DeprecationBody(name, version, why), SchemaBody))

    def migrate(self, name: str, from_version: int | str, to_version: int | str, function: Any) -> None:
        """Say by a mapping how data of one version becomes data of another.

        Raises NotOwner for a Python function, SchemaUnknown, MigrationInvalid.
        """
        if not isinstance(function, Mapping):
            raise self._client.only_owner("a migration that is a Python function")
        mapping: dict[str, Any] = json_copy(function, where="the mapping")[1]
        self._client.post("/api/schemas/migrate", MappingBody(name, from_version, to_version, mapping), None)


def _said(version: int | str | None) -> str | None:
    """A version as JSON: a number, or one of its tags, which may look like one."""
    return None if version is None else encode(version).decode()


def _schema(body: SchemaBody) -> Schema:
    return compile_schema(
        body.name,
        body.version,
        body.schema,
        body.compatibility,
        tags=body.tags,
        compatible_with=body.compatible_with,
        deprecated=body.deprecated,
    )
