"""The messages between a worker process and its parent: length-prefixed MessagePack over a socket pair of their own.

    from the parent   Load      import a tool's module         Run     call a tool
    from the worker   Ready     once, when it has begun        Loaded  after a Load, with the error if there was one
                      Progress  any number during a Run        Done    once a Run

Standard output isn't part of it: what a tool prints is recorded as text and can't be taken for a message.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from typing import Any

import msgspec

MAX_BYTES = 256 * 2**20
_LENGTH = struct.Struct(">I")


class Address(msgspec.Struct, frozen=True, array_like=True):
    """Where a tool's function is defined, and the hash of that source; see `actions.tools.places.Place`."""

    module: str
    file: str | None
    qualname: str
    digest: str | None = None


class Bounds(msgspec.Struct, frozen=True, array_like=True):
    """What a worker may use, besides memory: CPU seconds a call, open files, MiB of one file; whether GPUs are hidden."""

    cpu_seconds: float | None = None
    open_files: int | None = None
    file_mb: float | None = None
    cpu_only: bool = False

    def text(self) -> str:
        """As an argument of the worker's command line."""
        return msgspec.json.encode(self).decode()

    @staticmethod
    def of(text: str) -> Bounds:
        """From such an argument."""
        return msgspec.json.decode(text, type=Bounds)

    def environment(self) -> dict[str, str]:
        """What a worker's environment has besides its parent's."""
        return {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""} if self.cpu_only else {}


class Load(msgspec.Struct, tag=True):
    """Import a function's module; `path` is the parent's `sys.path`."""

    address: Address
    path: list[str]


class Run(msgspec.Struct, tag=True):
    """Call a loaded function. `number` comes back with what belongs to this call."""

    number: int
    address: Address
    params: dict[str, Any]
    idempotency_key: str
    seconds: float | None
    settings: dict[str, Any] = {}


class Ready(msgspec.Struct, tag=True):
    """The worker listens. `adopts`: orphans of its tree become its children, so none can slip away."""

    adopts: bool


class Loaded(msgspec.Struct, tag=True):
    """The module is imported, or why not."""

    error: dict[str, Any] | None


class Progress(msgspec.Struct, tag=True):
    """The tool said how far it is."""

    number: int
    update: str | float | dict[str, Any]


class Done(msgspec.Struct, tag=True):
    """The call ended. CPU seconds count its ended children too; memory in MiB, None where it can't be measured."""

    number: int
    output: Any
    error: dict[str, Any] | None
    cpu_seconds: float
    peak_memory_mb: float | None
    leaked: int


_encode = msgspec.msgpack.Encoder().encode
_to_worker = msgspec.msgpack.Decoder(Load | Run).decode
_to_parent = msgspec.msgpack.Decoder(Ready | Loaded | Progress | Done).decode


def packed(message: msgspec.Struct) -> bytes:
    """A message with its length before it. Raises ValueError over MAX_BYTES."""
    body = _encode(message)
    if len(body) > MAX_BYTES:
        raise ValueError(f"{len(body) / 2**20:.0f} MiB, over the {MAX_BYTES // 2**20} MiB that a call may hand over")
    return _LENGTH.pack(len(body)) + body


async def receive(reader: asyncio.StreamReader) -> Ready | Loaded | Progress | Done:
    """The worker's next message. Raises IncompleteReadError at its end; ValueError or MsgspecError for nonsense."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > MAX_BYTES:
        raise ValueError(f"a message of {length} bytes")
    return _to_parent(await reader.readexactly(length))


class WorkerSide:
    """The worker's end: blocking, one reader, any number of writers."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._stream = link.makefile("rb")
        self._lock = threading.Lock()

    def receive(self) -> Load | Run | None:
        """The parent's next message; None once the parent is gone."""
        try:
            (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
            return _to_worker(self._exactly(length))
        except (OSError, EOFError):
            return None

    def send(self, message: msgspec.Struct) -> None:
        """Send a message. Raises ValueError when it is too large, OSError once the parent is gone."""
        data = packed(message)
        with self._lock:
            self._link.sendall(data)

    def _exactly(self, count: int) -> bytes:
        data = self._stream.read(count)
        if len(data) < count:
            raise EOFError
        return data
