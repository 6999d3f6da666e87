"""CAR files: blocks in one file, each behind its CID, that any IPLD tool reads (CAR v1, https://ipld.io/specs/transport/car/carv1/).

varint(length) header         the header is DAG-CBOR: {"roots": [CID, …], "version": 1}
varint(length) CID bytes      once a block
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from agent_infra.content import canonical


@dataclass(frozen=True, slots=True)
class CarFile:
    """A written CAR file. `ended`: where the chain of bundles was not followed further, and why."""

    path: Path
    root: str
    blocks: int
    bytes: int
    ended: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.path}: {self.blocks} blocks, {self.bytes} bytes, root {self.root}"


def write_car(out: IO[bytes], roots: Sequence[str], blocks: Iterable[tuple[str, bytes]]) -> tuple[int, int]:
    """Write blocks behind the header that names the roots; how many blocks, and how many bytes in all."""
    header = canonical({"roots": [cid_bytes(root) for root in roots], "version": 1})
    size = out.write(varint(len(header)) + header)
    count = 0
    for cid, content in blocks:
        name = cid_bytes(cid)
        size += out.write(varint(len(name) + len(content)) + name)
        size += out.write(content)
        count += 1
    return count, size


def cid_bytes(cid: str) -> bytes:
    """A CID's bytes, from its text in base 32."""
    text = cid[1:].upper()
    return base64.b32decode(text + "=" * (-len(text) % 8))


def varint(number: int) -> bytes:
    """A number of 0 or more as an unsigned LEB128, as multiformats has it."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)
