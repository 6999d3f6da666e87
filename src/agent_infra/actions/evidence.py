"""Evidence: the bundle that one execution leaves, stored as a DAG-CBOR block under the CID of its own bytes.

A bundle says what was asked, under which contract, what every condition saw, what came back, how long it took, and
where. It refers to large outputs by their own CIDs. Anything that hashes differently from its name was changed, and
`verify` says so.
"""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

from agent_infra.content import canonical, matches_cid, referred_cids
from agent_infra.errors import EvidenceUnknown
from agent_infra.state import BlobStore
from agent_infra.version import __version__

LARGE: Final = 64 * 1024
"""Bytes from which an output is a block of its own."""


@dataclass(frozen=True, slots=True)
class EvidenceCheck:
    """What `verify` found: each block that is missing or doesn't hash to its name."""

    ok: bool
    cid: str
    blocks: int
    problems: tuple[str, ...] = ()


class EvidenceStore:
    """The bundles of one home."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    def keep(self, output: Any) -> dict[str, Any]:
        """An output as its bundle holds it; a large one is stored as a block of its own, before any lock is taken."""
        if output is not None and len(canonical(output)) > LARGE:
            return {"output": self._blobs.put_value(output), "output_apart": True}
        return {"output": output}

    def write(self, bundle: dict[str, Any]) -> dict[str, Any]:
        """Store a bundle; give the reference (`$cid`, bytes, media type) that a receipt carries."""
        return self._blobs.put_value(bundle)

    def get(self, cid: str) -> dict[str, Any]:
        """A bundle as stored; a large output in it is a reference. Raises EvidenceUnknown, EvidenceDamaged."""
        bundle = self._blobs.get_value(cid)
        if not isinstance(bundle, dict) or "kind" not in bundle:
            raise EvidenceUnknown(f"{cid} is stored here, and is not an evidence bundle", facts={"cid": cid})
        return cast("dict[str, Any]", bundle)

    def output(self, cid: str) -> Any:
        """What a bundle's call gave back, wherever it is stored."""
        bundle = self.get(cid)
        output: Any = bundle.get("output")
        return self._blobs.get_value(output["$cid"]) if bundle.get("output_apart") else output

    def verify(self, cid: str) -> EvidenceCheck:
        """Recompute the hashes of a bundle and of all that it refers to. Raises EvidenceUnknown for an unknown CID."""
        self._blobs.raw(cid)
        problems: list[str] = []
        seen: set[str] = set()
        waiting = [cid]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            if not self._blobs.has(name):
                problems.append(f"{name} is missing")
            elif not matches_cid(name, self._blobs.raw(name)):
                problems.append(f"{name} was changed: its bytes hash to another id")
            elif name == cid or name.startswith("bafyrei"):
                waiting += referred_cids(self._blobs.get_value(name))
        return EvidenceCheck(not problems, cid, len(seen), tuple(problems))


@cache
def environment() -> dict[str, Any]:
    """Where calls run: Python, this library, the machine. One snapshot a process."""
    return {
        "python": sys.version.split()[0],
        "agent_infra": __version__,
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "host": platform.node(),
    }
