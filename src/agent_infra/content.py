"""Content: what counts as JSON here, canonical bytes, and content ids (CIDs).

A CID names bytes by their hash: CIDv1, base 32, sha2-256 (https://github.com/multiformats/cid). A JSON value is
hashed in its DAG-CBOR form (https://ipld.io/specs/codecs/dag-cbor/spec/), which has one encoding a value; raw bytes
(a PDF, a page) under the raw codec. Any IPLD tool can check either.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias, cast

import libipld
import msgspec

from agent_infra.errors import NotJson

JsonValue: TypeAlias = "None | bool | int | float | str | list[JsonValue] | dict[str, JsonValue]"

_DAG_CBOR = bytes([0x01, 0x71, 0x12, 0x20])
_RAW = bytes([0x01, 0x55, 0x12, 0x20])


def _plain_text(value: Any) -> str:
    """A text of a subclass of str (a version id) as plain text; msgspec takes no subclasses by itself."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"a {type(value).__name__} is not a JSON value")


_encode = msgspec.json.Encoder(enc_hook=_plain_text).encode
DEEPEST: Final = 200
"""How deep a value may be nested."""
_LONG_NUMBER: Final = re.compile(rb"\d{19}")
_decode = msgspec.json.Decoder().decode


def json_bytes(value: Any, *, where: str = "data") -> bytes:
    """A value's JSON text, if reading that text gives the value back equal. Raises NotJson otherwise."""
    return json_copy(value, where=where)[0]


def json_copy(value: Any, *, where: str = "data") -> tuple[bytes, Any]:
    """A value's JSON text and a copy read back from it, if the copy is equal.

    Raises NotJson naming the JSON pointer of the first offender (NaN, infinity, set, tuple, object, a key that isn't
    text, an integer over 64 bits, a lone surrogate).
    """
    try:
        raw = _encode(value)
        copy = _decode(raw)
        if copy == value and (not _needs_a_look(raw) or _find_offender(value, "", 0) is None):
            return raw, copy
    except (TypeError, ValueError, RecursionError, OverflowError, msgspec.MsgspecError):
        pass
    pointer, reason = _first_offender(value, "", 0)
    raise NotJson(
        f"{where} is not plain JSON",
        where=pointer or "/",
        why=reason,
        mend="State holds JSON values only: None, bool, int, finite float, str, list, dict with text keys.",
        facts={"path": pointer or "/"},
    )


def json_value(raw: bytes) -> Any:
    """The value of JSON text."""
    return _decode(raw)


def _needs_a_look(raw: bytes) -> bool:
    """Whether JSON text may hold what only JSON can: integers over 64 bits, or nesting beyond what others read."""
    return raw.count(b"[") + raw.count(b"{") > DEEPEST or _LONG_NUMBER.search(raw) is not None


def _first_offender(value: Any, pointer: str, depth: int) -> tuple[str, str]:
    """(pointer, reason) of the first part of a value that JSON can't hold."""
    found = _find_offender(value, pointer, depth)
    return found or (pointer, f"a {type(value).__name__} does not come back equal")


def _find_offender(value: Any, pointer: str, depth: int) -> tuple[str, str] | None:
    if depth > DEEPEST:
        return pointer, f"it is nested more than {DEEPEST} deep"
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**63 else (pointer, f"the integer {value} is over 64 bits")
    if isinstance(value, float):
        return None if math.isfinite(value) else (pointer, f"{value} is not a JSON number")
    if isinstance(value, str):
        return None if _encodable(value) else (pointer, "the text holds a lone surrogate")
    if isinstance(value, list):
        items = cast("list[Any]", value)
        parts = ((str(index), item) for index, item in enumerate(items))
    elif isinstance(value, dict):
        mapping = cast("dict[Any, Any]", value)
        bad = [key for key in mapping if not isinstance(key, str) or not _encodable(key)]
        if bad:
            return pointer, f"the key {bad[0]!r} is not text that can be written down"
        parts = ((cast("str", key).replace("~", "~0").replace("/", "~1"), item) for key, item in mapping.items())
    else:
        return pointer, f"a {type(value).__name__} is not a JSON value"
    for name, item in parts:
        found = _find_offender(item, f"{pointer}/{name}", depth + 1)
        if found:
            return found
    return None


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def canonical(value: Any) -> bytes:
    """The one DAG-CBOR encoding of a JSON value; equal values give equal bytes, in whatever order their keys stood."""
    return libipld.encode_dag_cbor(value)


def from_canonical(block: bytes) -> Any:
    """The value of a DAG-CBOR block."""
    return libipld.decode_dag_cbor(block)


def cid_of_block(block: bytes) -> str:
    """The CID of a DAG-CBOR block."""
    return _cid(_DAG_CBOR, block)


def cid_of_bytes(data: bytes) -> str:
    """The CID of raw bytes."""
    return _cid(_RAW, data)


def cid_of(value: Any) -> str:
    """The CID of a JSON value's canonical block."""
    return _cid(_DAG_CBOR, canonical(value))


def cid_of_digest(digest: bytes, *, value: bool = False) -> str:
    """The CID of content whose sha2-256 is known: raw bytes, or a DAG-CBOR block."""
    return _named(_DAG_CBOR if value else _RAW, digest)


def _cid(prefix: bytes, data: bytes) -> str:
    return _named(prefix, hashlib.sha256(data).digest())


def _named(prefix: bytes, digest: bytes) -> str:
    return "b" + base64.b32encode(prefix + digest).decode().rstrip("=").lower()


def is_cid(text: str) -> bool:
    """Whether a text has the form of the CIDs made here (DAG-CBOR or raw, sha2-256)."""
    try:
        raw = base64.b32decode(text[1:].upper() + "=" * (-(len(text) - 1) % 8))
    except (ValueError, UnicodeEncodeError):
        return False
    return text[:1] == "b" and len(raw) == 36 and raw[:4] in (_DAG_CBOR, _RAW)


def matches_cid(cid: str, data: bytes) -> bool:
    """Whether bytes hash to a CID, under either codec."""
    return cid in (cid_of_block(data), cid_of_bytes(data))


def fingerprint(value: Any) -> str:
    """A short stable hash of a JSON value: 16 hexadecimal characters of the sha2-256 of its canonical block."""
    return hashlib.sha256(canonical(value)).hexdigest()[:16]


def reference(cid: str, size: int, media_type: str) -> dict[str, JsonValue]:
    """How node data refers to stored content."""
    return {"$cid": cid, "bytes": size, "media_type": media_type}


_LEAVES: Final = frozenset({str, int, float, bool, type(None)})


def referred_cids(value: Any) -> list[str]:
    """Every CID that a JSON value refers to by `{"$cid": …}`, in order of appearance."""
    found: list[str] = []
    _refer(value, found)
    return found


def _refer(item: Any, found: list[str]) -> None:
    if type(item) is dict or isinstance(item, Mapping):
        mapping = cast("Mapping[str, Any]", item)
        cid = mapping.get("$cid")
        if isinstance(cid, str):
            found.append(cid)
        parts: Iterable[Any] = mapping.values()
    elif isinstance(item, list):
        parts = cast("list[Any]", item)
    else:
        return
    for part in parts:
        if type(part) not in _LEAVES:
            _refer(part, found)
