"""EvidenceStore, the face of evidence: bundles of one home in and out.

A bundle refers to large values and to its environment by CID. What hashes differently from its name was changed, and
`verify` says so, down the whole chain of bundles.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

from agent_infra import background
from agent_infra.actions.evidence.bundle import Kept, Told, make_bundle
from agent_infra.actions.evidence.car import CarFile, write_car
from agent_infra.actions.evidence.chain import MANY, EvidenceCheck, Walk, check
from agent_infra.actions.evidence.cost import PriceTable, Usage, cost_of, usage_in
from agent_infra.actions.evidence.environment import image_of, snapshot
from agent_infra.actions.evidence.ipfs import Outbox, PushState, push_car, read_state
from agent_infra.actions.evidence.why import Why, explain
from agent_infra.actions.executors import Outcome
from agent_infra.content import canonical
from agent_infra.errors import EvidenceDamaged, EvidenceUnknown, IpfsFailed
from agent_infra.platform import GpuInventory, GpuProbe
from agent_infra.state import BlobStore, StateGraph, Step

LARGE: Final = 64 * 1024
"""Bytes of its canonical form from which a value is a block of its own."""


class EvidenceStore:
    """The bundles of one home.

    gpus    tells what stands in the environment's snapshot         prices  the table that costs are taken from
    folder  where the state of pushing lies                         ipfs    the node that `push` goes to
    """

    def __init__(
        self,
        blobs: BlobStore,
        *,
        gpus: GpuProbe | None = None,
        prices: PriceTable | None = None,
        folder: Path | None = None,
        ipfs: str | None = None,
    ) -> None:
        self._blobs = blobs
        self._gpus = gpus
        self._prices = prices
        self._folder = folder
        self._ipfs = ipfs
        self._snapshot: dict[str, Any] | None = None
        self._environment: dict[str, Any] | None = None
        self._images: dict[str, dict[str, Any]] = {}  # by the image's description
        self._preparing = threading.Lock()
        self.outbox: Outbox | None = None

    # -- in ----------------------------------------------------------------------------------------

    @property
    def is_prepared(self) -> bool:
        """Whether the environment's snapshot is stored."""
        return self._environment is not None

    def prepare(self) -> dict[str, Any]:
        """Take and store the snapshot of the environment, once a process; the reference to it. May take a second."""
        with self._preparing:
            if self._environment is None:
                none = GpuInventory(reason="GPUs were not looked for")
                self._snapshot = snapshot(self._gpus.inventory() if self._gpus is not None else none)
                self._environment = self._held(self._snapshot)
            return self._environment

    def _place(self, outcome: Outcome | None) -> dict[str, Any]:
        """The reference to the environment of a call: this process's, with the image where it ran in one."""
        plain, image = self._environment or self.prepare(), image_of(outcome)
        if image is None or self._snapshot is None:
            return plain
        known = repr(image)
        if known not in self._images:
            self._images[known] = self._held(self._snapshot | {"image": image})
        return self._images[known]

    def _held(self, value: dict[str, Any]) -> dict[str, Any]:
        """Store a snapshot for good, so that bundles need not store it anew each time."""
        reference = self._blobs.put_value(value)
        self._blobs.hold(cast("str", reference["$cid"]))
        return reference

    def is_small(self, value: Any) -> bool:
        """Whether a bundle holds a value itself."""
        return value is None or len(canonical(value)) <= LARGE

    def keep(self, value: Any) -> Kept:
        """A value as a bundle holds it; a large one is stored as a block of its own, before any lock is taken."""
        return Kept(value) if self.is_small(value) else Kept(self._blobs.put_value(value), apart=True)

    def cost(self, usages: Sequence[Usage], output: Any = None) -> dict[str, Any]:
        """What a call cost by what it reported, or else by what its output says."""
        said = None if usages else usage_in(output)
        return cost_of(usages if said is None else [said], self._prices)

    def record(self, told: Told, step: Step) -> dict[str, Any]:
        """Store the bundle of an execution with the step of its receipt; give the reference that the receipt carries."""
        return step.put_value(make_bundle(told, self._place(told.outcome)))

    def recorded(self, cid: str) -> None:
        """Send a bundle on, where that is set up, after the step that brought it was committed."""
        if self.outbox is not None:
            self.outbox.add(cid)

    def write(self, bundle: dict[str, Any]) -> dict[str, Any]:
        """Store a bundle as it is; give its reference (`$cid`, bytes, media type)."""
        return self._blobs.put_value(bundle)

    # -- out ---------------------------------------------------------------------------------------

    def get(self, cid: str) -> dict[str, Any]:
        """A bundle as stored; the fields named in its `apart` are references. Raises EvidenceUnknown, EvidenceDamaged."""
        bundle = self._blobs.get_value(cid)
        if not isinstance(bundle, dict) or "kind" not in bundle:
            raise EvidenceUnknown(f"{cid} is stored here, and is not an evidence bundle", facts={"cid": cid})
        return cast("dict[str, Any]", bundle)

    def output(self, cid: str) -> Any:
        """What a bundle's call gave back, wherever it is stored."""
        return self.part(self.get(cid), "output")

    def part(self, bundle: dict[str, Any], name: str) -> Any:
        """A field of a bundle, its value read from its own block where it is apart."""
        value: Any = bundle.get(name)
        first_format = ("output",) if bundle.get("output_apart") else ()
        return self._blobs.get_value(value["$cid"]) if name in bundle.get("apart", first_format) else value

    def environment(self, cid: str) -> dict[str, Any]:
        """The snapshot of where a bundle's call ran: Python, packages, machine, GPUs, driver, image."""
        told = self.get(cid)["environment"]
        return (
            self._blobs.get_value(told["$cid"]) if "$cid" in told else told
        )  # the first format held it in each bundle

    def verify(self, cid: str, *, chain: bool = True, limit: int = MANY) -> EvidenceCheck:
        """Recompute the hashes of a bundle, of all that it refers to, and of the bundles that it follows.

        chain  False: this bundle only         limit  bundles to follow back

        The check names the call of each bundle that doesn't hold. Raises EvidenceUnknown for an unknown CID.
        """
        return check(self._blobs, cid, chain=chain, limit=limit)

    def blocks(self, cid: str, *, chain: bool = False, limit: int = MANY) -> list[tuple[str, bytes]]:
        """A bundle's blocks, itself first, each checked. Raises EvidenceUnknown, EvidenceDamaged."""
        self.get(cid)
        walk = Walk.of(self._blobs, chain, limit)
        return _whole(walk, cid)

    def export(self, cid: str, path: str | Path, *, chain: bool = False, limit: int = MANY) -> CarFile:
        """Write a bundle and all that it refers to as a CAR file, with `chain` also the bundles that it follows.

        The file appears whole or not at all. Raises EvidenceUnknown, EvidenceDamaged.
        """
        self.get(cid)
        target = Path(path)
        walk = Walk.of(self._blobs, chain, limit)
        aside = target.with_name(f".{target.name}.part")
        try:
            with aside.open("wb") as file:
                count, size = write_car(file, [cid], walk.blocks(cid))
            _refuse_problems(walk, cid)
            os.replace(aside, target)
        finally:
            aside.unlink(missing_ok=True)
        return CarFile(target, cid, count, size, tuple(walk.ended))

    def why(self, graph: StateGraph, action: str, limit: int = 3) -> Why:
        """What happened to an action in a session, newest execution first. Raises NodeUnknown where nothing did."""
        return explain(graph, self, action, limit)

    # -- to an IPFS node ---------------------------------------------------------------------------

    def push(self, cid: str, url: str | None = None, *, chain: bool = False) -> list[str]:
        """Send a bundle to an IPFS node and have its blocks pinned; their CIDs.

        `url` is the node's RPC API, that of the setting `evidence.ipfs` unless given. Raises IpfsFailed, EvidenceUnknown.
        """
        return background.wait_for(self.apush(cid, url, chain=chain), twin="apush")

    async def apush(self, cid: str, url: str | None = None, *, chain: bool = False) -> list[str]:
        """`push` for running loops."""
        blocks = await asyncio.to_thread(self.blocks, cid, chain=chain)
        node = url or self._ipfs
        if not node:
            raise IpfsFailed(
                "there is no IPFS node to push to",
                mend='Name one, or set ipfs = "http://127.0.0.1:5001" under [evidence].',
                facts={"again": False},
            )
        return await push_car(node, blocks)

    def pushing(self) -> PushState:
        """How the pushing in the background stands: pushed, waiting, the last error."""
        if self.outbox is not None:
            return self.outbox.state
        found = read_state(self._folder) if self._folder is not None else PushState()
        return replace(found, url=None)


def _whole(walk: Walk, cid: str) -> list[tuple[str, bytes]]:
    found = list(walk.blocks(cid))
    _refuse_problems(walk, cid)
    return found


def _refuse_problems(walk: Walk, cid: str) -> None:
    if walk.problems:
        raise EvidenceDamaged(
            f"the evidence {cid} is not whole",
            why="; ".join(walk.problems),
            mend="`agent-infra evidence verify` names what was changed or lost; restore the home from a copy.",
            facts={"cid": cid, "problems": walk.problems},
        )
