"""The owner's ear: `<home>/agent-infra.sock`, by which other processes reach the one that owns the home.

The socket listens from the moment the home is owned, so whoever comes early waits in its queue. What serves it is
imported and started by the first connection: a home that nobody else opens pays for a file and a sleeping thread.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import stat
import threading
import weakref
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket, socketpair
from typing import TYPE_CHECKING, Final

from agent_infra.observability import get_logger

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from agent_infra.server.served import Served

NAME: Final = "agent-infra.sock"
LONGEST: Final = 107
"""Bytes that the address of a Unix socket may have (`sun_path`, less its closing zero)."""
_BACKLOG: Final = 128
_KEEP_ALIVE: Final = 600
_GRACE: Final = 2
_log = get_logger(__name__)
_open: weakref.WeakSet[HomeSocket] = weakref.WeakSet()


def can_listen() -> bool:
    """Whether what serves the socket is installed. Nothing is imported."""
    return find_spec("fastapi") is not None and find_spec("uvicorn") is not None


@contextmanager
def address(path: Path) -> Generator[str]:
    """A name short enough to bind or connect to, valid inside the `with`."""
    if len(os.fsencode(path)) <= LONGEST:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class HomeSocket:
    """The listening socket of a home that this process owns. Make it only while the home's lock is held."""

    def __init__(self, home: Path) -> None:
        self._path = home / NAME
        self._lock = threading.Lock()
        self._closing = False
        self._serving: tuple[uvicorn.Server, FastAPI] | None = None
        self._thread: threading.Thread | None = None
        self._socket = _listen(self._path)
        self._inode = self._path.stat().st_ino
        self._pid = os.getpid()
        self._alarm, self._wake = socketpair()
        _open.add(self)

    def serve(self, infra: Served) -> None:
        """Answer for an open home from now on."""
        self._thread = threading.Thread(target=self._wait, args=(infra,), name="agent-infra-socket", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take the socket away, let running requests end, close their connections. In a forked child it does nothing: the
        socket is its parent's.
        """
        if os.getpid() != self._pid:
            return
        self._remove()
        with self._lock:
            self._closing = True
            if self._serving is not None:
                server, app = self._serving
                app.state.ending.set()
                server.should_exit = True
        self._wake.send(b"!")
        if self._thread is not None:
            self._thread.join()
        self.forget()

    def _remove(self) -> None:
        """Take the file away, unless it is that of a later owner."""
        with suppress(FileNotFoundError):
            if self._path.stat().st_ino == self._inode:
                self._path.unlink()

    def forget(self) -> None:
        """Close what this process holds of it."""
        _open.discard(self)
        for each in (self._socket, self._alarm, self._wake):
            each.close()

    def _wait(self, infra: Served) -> None:
        """Sleep until somebody connects, then serve until `close`."""
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                selector.register(self._alarm, selectors.EVENT_READ)
                selector.select()
            if not self._closing:
                self._serve(infra)
        except Exception as error:  # noqa: BLE001 - a broken server must not keep clients waiting in its queue
            _log.error("socket_failed", path=str(self._path), error=f"{type(error).__name__}: {error}")
            self._remove()
            self._socket.close()

    def _serve(self, infra: Served) -> None:
        import uvicorn

        from agent_infra.server.app import create_app

        app = create_app(infra)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            http="h11",
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=_GRACE,
        )
        server = uvicorn.Server(config)
        with self._lock:
            if self._closing:
                return
            self._serving = server, app
        asyncio.run(server.serve(sockets=[self._socket]))


def open_socket(home: Path) -> HomeSocket | None:
    """Listen for a home whose lock is held, or say in the log why not. None where nothing is installed that serves."""
    if not can_listen():
        return None
    try:
        return HomeSocket(home)
    except OSError as error:
        _log.warning("no_socket", path=str(home / NAME), error=str(error), meaning="other processes can't use the home")
        return None


def _listen(path: Path) -> socket:
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):  # of an owner that was killed: its lock is ours now
            path.unlink()
    listening = socket(AF_UNIX, SOCK_STREAM)
    try:
        with address(path) as name:
            listening.bind(name)
            os.chmod(name, 0o600)  # before listening: until then nobody can connect, whatever the umask was
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _forget_in_child() -> None:
    """A forked child must not keep its parent's socket alive: connections would wait for it for ever."""
    for each in list(_open):
        each.forget()


os.register_at_fork(after_in_child=_forget_in_child)
