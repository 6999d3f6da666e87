"""A stand-in for an IPFS node's RPC API on 127.0.0.1: reads the CAR with an independent library and checks every block."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import dag_cbor
from multiformats import CID, varint


def cid_bytes(cid: str) -> bytes:
    """A CID's bytes, as a CAR holds them."""
    return bytes(CID.decode(cid))


class Node:
    """What the stand-in was sent, and how it is to behave.

    blocks, pins  what it holds by CID              fail      requests that it refuses before it works
    status        of a refusal                      pin_error what it says of a root that it doesn't pin
    never         a CID that it refuses each time
    """

    def __init__(self) -> None:
        self.url = ""
        self.blocks: dict[str, bytes] = {}
        self.pins: list[str] = []
        self.fail = 0
        self.status = 500
        self.pin_error = ""
        self.never = ""
        self.answer: str | None = None
        self.requests = 0
        self.pinned = threading.Condition()

    def wait_for(self, count: int, seconds: float = 30.0) -> bool:
        """Whether so many pins are there in time."""
        with self.pinned:
            return self.pinned.wait_for(lambda: len(self.pins) >= count, seconds)

    def take(self, car: bytes) -> list[str]:
        roots, blocks = read_car(car)
        for cid, block in blocks:
            self.blocks[cid] = block
        with self.pinned:
            self.pins += roots
            self.pinned.notify_all()
        return roots


def read_car(car: bytes) -> tuple[list[str], list[tuple[str, bytes]]]:
    """Roots and blocks of a CAR file, by `dag_cbor` and `multiformats`; each block is hashed. Raises ValueError."""
    length, header, rest = _section(memoryview(car))
    decoded: Any = dag_cbor.decode(bytes(header))
    assert decoded["version"] == 1
    roots = [root.encode("base32") for root in decoded["roots"]]
    blocks: list[tuple[str, bytes]] = []
    while rest:
        length, section, rest = _section(rest)
        cid = CID.decode(bytes(section[:36]))
        block = bytes(section[36:])
        if cid.raw_digest != hashlib.sha256(block).digest():
            raise ValueError(f"{cid} is not the hash of its block")
        if cid.codec.name == "dag-cbor":
            dag_cbor.decode(block)
        blocks.append((cid.encode("base32"), block))
    missing = set(roots) - {cid for cid, _ in blocks}
    if missing:
        raise ValueError(f"roots without a block: {missing}")
    return roots, blocks


def _section(data: memoryview) -> tuple[int, memoryview, memoryview]:
    length, read, rest = varint.decode_raw(data)
    return length, rest[:length], rest[length:]


@contextmanager
def fake_node() -> Iterator[Node]:
    """A node that is there until the `with` ends."""
    node = Node()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            node.requests += 1
            if node.fail > 0:
                node.fail -= 1
                self._reply(node.status, "busy 忙")
                return
            assert self.path.startswith("/api/v0/dag/import?")
            assert "pin-roots=true" in self.path
            boundary = re.search("boundary=(.+)", self.headers["Content-Type"])
            assert boundary is not None
            part = body.split(b"--" + boundary[1].encode())[1]
            if node.answer is not None:
                self._reply(200, node.answer)
                return
            if node.never and cid_bytes(node.never) in body:
                self._reply(400, "never")
                return
            roots = node.take(part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n"))
            lines = [{"Root": {"Cid": {"/": root}, "PinErrorMsg": node.pin_error}} for root in roots]
            self._reply(200, "\n".join(map(json.dumps, lines)))

        def _reply(self, status: int, text: str) -> None:
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    node.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield node
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
