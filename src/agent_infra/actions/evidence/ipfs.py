"""Evidence on an IPFS node: a bundle and its blocks are sent as one CAR by the node's RPC API, and pinned there.

By hand (`push_car`), or by an `Outbox`, which sends every new bundle in the background. What it has still to send is a
folder of empty files named by CID, `<home>/ipfs/waiting/`, so a restart goes on where it was; how it stands is in
`<home>/ipfs/state.json`. A node that is away is asked again, after ever longer pauses.

The API is that of Kubo: https://docs.ipfs.tech/reference/kubo/rpc/#api-v0-dag-import
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlsplit, urlunsplit

import httpx
import msgspec

from agent_infra import background
from agent_infra.actions.evidence.car import write_car
from agent_infra.content import is_cid
from agent_infra.errors import EvidenceDamaged, EvidenceUnknown, IpfsFailed
from agent_infra.observability import get_logger

Blocks: TypeAlias = "Sequence[tuple[str, bytes]]"
LONGEST_WAIT: Final = 300.0
"""Seconds between two tries at most."""
_TIMEOUT: Final = httpx.Timeout(60.0, connect=5.0)
_log = get_logger(__name__)


async def push_car(url: str, blocks: Blocks, client: httpx.AsyncClient | None = None) -> list[str]:
    """Send blocks to a node and have each pinned; the CIDs that it pinned. Raises IpfsFailed."""
    if client is None:
        async with httpx.AsyncClient(timeout=_TIMEOUT) as own:
            return await push_car(url, blocks, own)
    car = BytesIO()
    # Bundles name other blocks as text, so that removing them here stays possible: each is a root, to be pinned itself.
    roots = [cid for cid, _ in blocks]
    write_car(car, roots, blocks)
    files = {"file": ("evidence.car", car.getvalue(), "application/vnd.ipld.car")}
    try:
        answer = await client.post(f"{url.rstrip('/')}/api/v0/dag/import", params={"pin-roots": "true"}, files=files)
    except httpx.HTTPError as error:
        raise _failed(url, f"{type(error).__name__}: {error}", again=True) from error
    if answer.status_code != 200:
        again = answer.status_code >= 500 or answer.status_code in (408, 429)
        raise _failed(url, f"it answered {answer.status_code}: {answer.text[:300]}", again=again)
    pinned = _pinned(url, answer.text)
    lacking = [cid for cid in roots if cid not in pinned]
    if lacking:
        raise _failed(url, f"it did not pin {', '.join(lacking)}", again=True)
    return roots


def _pinned(url: str, text: str) -> set[str]:
    """The roots that the answer, a line of JSON each, says are pinned."""
    pinned: set[str] = set()
    for line in filter(None, text.splitlines()):
        try:
            root: dict[str, Any] = json.loads(line).get("Root") or {}
            cid, problem = root.get("Cid", {}).get("/"), root.get("PinErrorMsg")
        except (ValueError, AttributeError) as error:
            raise _failed(url, f"it answered what is no JSON object: {line[:200]}", again=False) from error
        if problem:
            raise _failed(url, f"it did not pin {cid}: {problem}", again=True)
        if cid:
            pinned.add(cid)
    return pinned


def _failed(url: str, why: str, *, again: bool) -> IpfsFailed:
    return IpfsFailed(
        f"the IPFS node at {shown(url)} did not take the evidence",
        why=why,
        mend="Check that its RPC API listens there, and push again.",
        facts={"url": shown(url), "again": again},
    )


def shown(url: str) -> str:
    """An address without name and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


@dataclass(frozen=True, slots=True)
class PushState:
    """How the pushing of a home's evidence stands.

    url         the node, None where none is configured     pushed     bundles that it has taken
    waiting     bundles still to be sent                    left_out   bundles that found the queue full, or were damaged
    last_error  why the last try failed, None after a success; `last_error_at` when
    """

    url: str | None = None
    pushed: int = 0
    waiting: int = 0
    left_out: int = 0
    last_pushed: str | None = None
    last_error: str | None = None
    last_error_at: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The state as JSON values."""
        return asdict(self)


class Outbox:
    """Sends a home's new bundles to an IPFS node.

    folder   <home>/ipfs
    blocks   a bundle's blocks by its CID; raises EvidenceUnknown, EvidenceDamaged
    most     bundles that wait at the same time; further ones are left out, and counted
    retry    seconds before the second try; each further pause is twice as long, LONGEST_WAIT at most
    """

    def __init__(
        self, folder: Path, url: str, blocks: Callable[[str], Blocks], *, most: int = 10_000, retry: float = 1.0
    ) -> None:
        self._folder = folder
        self._url = url
        self._blocks = blocks
        self._most = most
        self._retry = retry
        self._lock = threading.Lock()
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        waiting = folder / "waiting"
        waiting.mkdir(parents=True, exist_ok=True)
        there = sorted((path for path in waiting.iterdir() if is_cid(path.name)), key=lambda path: path.stat().st_mtime)
        self._queue = deque(path.name for path in there)
        self._state = replace(read_state(folder), url=shown(url), waiting=len(self._queue))

    @property
    def state(self) -> PushState:
        """How it stands now."""
        return self._state

    def add(self, cid: str) -> None:
        """Have a bundle sent. From any thread; nothing is waited for. It is in the queue before its receipt is written."""
        with self._lock:
            if len(self._queue) >= self._most:
                if not self._state.left_out:
                    _log.warning(
                        "evidence.push_queue_full", most=self._most, mend="agent-infra evidence push CID --chain"
                    )
                self._state = replace(self._state, left_out=self._state.left_out + 1)
                return
            os.close(os.open(self._folder / "waiting" / cid, os.O_CREAT | os.O_WRONLY, 0o600))
            self._queue.append(cid)
            self._state = replace(self._state, waiting=len(self._queue))
        background.loop().call_soon_threadsafe(self._wake.set)

    def start(self) -> None:
        """Begin to send, on the background loop."""
        background.loop().call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop sending; what was not sent waits for the next start."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        self._save()

    async def _run(self) -> None:
        pause = self._retry
        async with httpx.AsyncClient(timeout=_TIMEOUT) as client:
            while True:
                self._wake.clear()
                if not self._queue:
                    await self._wake.wait()
                    continue
                if await self._send(self._queue[0], client):
                    pause = self._retry
                else:
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, LONGEST_WAIT)

    async def _send(self, cid: str, client: httpx.AsyncClient) -> bool:
        """Send the first of the queue; False where the node should be left alone for a while."""
        try:
            await push_car(self._url, await asyncio.to_thread(self._blocks, cid), client)
        except EvidenceUnknown as gone:  # collected or erased meanwhile, or its step was never committed
            self._done(cid, error=str(gone))
        except EvidenceDamaged as damaged:
            self._done(cid, error=str(damaged), left_out=1)
        except IpfsFailed as failed:
            _log.info("evidence.push_failed", cid=cid, why=failed.why)
            with self._lock:
                self._queue.rotate(-1)  # one that the node never takes must not keep the others
            self._say(str(failed))
            return False
        else:
            self._done(cid, pushed=1)
        return True

    def _done(self, cid: str, *, pushed: int = 0, left_out: int = 0, error: str | None = None) -> None:
        with self._lock:
            self._queue.remove(cid)
            (self._folder / "waiting" / cid).unlink(missing_ok=True)
            now = self._state
            self._state = replace(
                now,
                pushed=now.pushed + pushed,
                left_out=now.left_out + left_out,
                waiting=len(self._queue),
                last_pushed=cid if pushed else now.last_pushed,
            )
        self._say(error)

    def _say(self, error: str | None) -> None:
        at = datetime.now(UTC).isoformat(timespec="seconds") if error else None
        with self._lock:
            self._state = replace(self._state, last_error=error, last_error_at=at)
        self._save()

    def _save(self) -> None:
        aside = self._folder / ".state.json"
        aside.write_text(json.dumps(self._state.as_dict(), ensure_ascii=False, indent=2), encoding="utf-8")
        os.replace(aside, self._folder / "state.json")


def read_state(folder: Path) -> PushState:
    """How the pushing of a home stood when it was last written down."""
    try:
        told: Mapping[str, Any] = json.loads((folder / "state.json").read_text("utf-8"))
        return msgspec.convert(cast("dict[str, Any]", told), PushState)
    except FileNotFoundError:
        return PushState()
    except (ValueError, msgspec.ValidationError) as error:
        _log.warning("evidence.push_state_unreadable", file=str(folder / "state.json"), why=str(error))
        return PushState()
