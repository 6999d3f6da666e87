"""The client's end: requests to the process that owns a home, or to a server, one class for both.

An error that the other side tells of is raised here as what it was there. A side that doesn't answer raises
`OwnerUnreachable`, which says whether a write may have landed.
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from agent_infra.errors import ForkedHome, HomeClosed, NotOwner, OwnerUnreachable, StoreFormat
from agent_infra.server.codec import InfoBody, decode, encode
from agent_infra.server.events import HEARTBEAT, Event, EventReader
from agent_infra.server.problems import error_of
from agent_infra.server.socket import NAME, address
from agent_infra.version import __version__

if TYPE_CHECKING:
    from collections.abc import Generator

    import httpx

T = TypeVar("T")
Params = Mapping[str, Any]

ANSWER: Final = 300.0
"""Seconds to wait for an answer. A side that ends is noticed at once; this is for one that was stopped."""
GREETING: Final = 30.0
"""Seconds to wait for the first answer, for which the owner may have to import its server."""


class Lifeline:
    """An idle connection to a socket, which breaks as soon as the other side ends: so that is noticed before anything
    is sent, and a process that took over is found.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._line: socket.socket | None = None

    def check(self) -> None:
        """Raises OSError where nobody listens."""
        with self._lock:
            if self._line is None or _is_broken(self._line):
                self._cut()
                line = socket.socket(socket.AF_UNIX)
                try:
                    line.connect(self._address)
                except BaseException:
                    line.close()
                    raise
                self._line = line

    def close(self) -> None:
        """Let go."""
        with self._lock:
            self._cut()

    def _cut(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()


def _is_broken(line: socket.socket) -> bool:
    poll = select.poll()
    poll.register(line, select.POLLIN)
    return bool(poll.poll(0))


class Client:
    """A connection to one home, safe to use from many threads.

    target   the path of a home's socket, or an http(s) URL
    api_key  sent as a bearer token

    Raises OwnerUnreachable where nobody answers.
    """

    def __init__(self, target: Path | str, api_key: str | None = None) -> None:
        import httpx

        self.target = str(target)
        self._pid = os.getpid()
        self._closing = ExitStack()
        self._socket = self._closing.enter_context(address(target)) if isinstance(target, Path) else None
        self._lifeline = Lifeline(self._socket) if self._socket is not None else None
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._options: dict[str, Any] = {
            "base_url": "http://home" if isinstance(target, Path) else target,
            "headers": headers,
            "timeout": httpx.Timeout(ANSWER, connect=5.0),
            "trust_env": not isinstance(target, Path),
        }
        transport = httpx.HTTPTransport(uds=self._socket) if self._socket is not None else None
        self._http: httpx.Client | None = httpx.Client(transport=transport, **self._options)
        self._known = False
        self._reading = threading.local()
        self.owner = InfoBody("", 0, "", {})
        try:
            self.greet()
        except BaseException:
            self.close()
            raise

    @property
    def home(self) -> Path:
        """The home, as its owner names it."""
        return Path(self.owner.home)

    def greet(self) -> None:
        """Learn who owns the home now. Raises OwnerUnreachable, and StoreFormat where that runs another version."""
        self.owner = self.get("/api/info", InfoBody, timeout=GREETING)
        self._known = True
        if self.owner.version.split(".")[:2] != __version__.split(".")[:2]:
            raise StoreFormat(
                f"process {self.owner.pid}, which owns the home, runs version {self.owner.version}",
                where=self.target,
                why=f"this is version {__version__}, and they may not understand each other",
                mend="Run the same version in both.",
                facts={"pid": self.owner.pid, "owner": self.owner.version, "this": __version__},
            )

    def close(self) -> None:
        """Give the connection back."""
        http, self._http = self._http, None
        if http is not None:
            http.close()
            if self._lifeline is not None:
                self._lifeline.close()
            self._closing.close()

    def only_owner(self, what: str) -> NotOwner:
        """The error for what a client can't do."""
        pid = self.owner.pid
        return NotOwner(
            f"{what} can't be used here: process {pid} owns the home, and this one is its client",
            where=self.target,
            why="tools, policies and the engine live in the process that owns the home",
            mend="Do it in that process (it loads tools and actions from the project), or end it and open the home here.",
            facts={"pid": pid, "home": self.owner.home},
        )

    # -- requests ----------------------------------------------------------------------------------

    def get(self, path: str, type: Any, params: Params | None = None, *, timeout: float = ANSWER) -> Any:
        """Ask, once more if the connection broke."""
        told, self._reading.told = getattr(self._reading, "told", None), None
        try:
            if told is not None:
                told()
        finally:
            self._reading.told = told
        return decode(self._send("GET", path, params, None, timeout).content, type)

    @contextmanager
    def reads_told(self, told: Callable[[], None]) -> Generator[None]:
        """Have a function called before each question that this thread asks inside the `with`."""
        outer = getattr(self._reading, "told", None)
        self._reading.told = told
        try:
            yield
        finally:
            self._reading.told = outer

    def post(self, path: str, body: Any, type: Any, *, wait: float = 0.0) -> Any:
        """Do something, for which the other side may have to wait some seconds first. It is never sent twice."""
        return decode(self._send("POST", path, None, encode(body), ANSWER + wait).content, type)

    def upload(self, path: str, content: bytes | Iterable[bytes], type: Any, params: Params | None = None) -> Any:
        """Send bytes, or a stream of them."""
        return decode(self._send("POST", path, params, content, ANSWER).content, type)

    def exists(self, path: str, params: Params) -> bool:
        """Whether there is something at a path."""
        with self._spoken_to(write=False) as http:
            return http.head(path, params=_given(params)).status_code == 200

    def download(self, path: str, params: Params) -> Iterator[bytes]:
        """Bytes, as a stream."""
        with self._spoken_to(write=False) as http, http.stream("GET", path, params=_given(params)) as response:
            _raise_told(response)
            yield from response.iter_bytes(1 << 20)

    def _send(
        self, method: str, path: str, params: Params | None, content: bytes | Iterable[bytes] | None, timeout: float
    ) -> httpx.Response:
        import httpx

        limits = httpx.Timeout(timeout, connect=5.0)
        for attempt in (1, 2):
            try:
                with self._spoken_to(write=method != "GET") as http:
                    response = http.request(method, path, params=_given(params), content=content, timeout=limits)
                    _raise_told(response)
                    return response
            except OwnerUnreachable as error:
                broken = isinstance(error.__cause__, httpx.ReadError | httpx.RemoteProtocolError)
                if method != "GET" or attempt == 2 or not broken:
                    raise
        raise AssertionError("the second attempt returned or raised")

    # -- events ------------------------------------------------------------------------------------

    def events(self, path: str, params: Params) -> Iterator[Event]:
        """The events of a stream, until it ends or breaks. Raises OwnerUnreachable where it breaks."""
        reader = EventReader()
        options: dict[str, Any] = {"params": _given(params), "timeout": 3 * HEARTBEAT}
        with self._spoken_to(write=False) as http, http.stream("GET", path, **options) as response:
            _raise_told(response)
            for chunk in response.iter_bytes():
                yield from reader.feed(chunk)

    async def aevents(self, path: str, params: Params) -> AsyncIterator[Event]:
        """`events` for running loops."""
        import httpx

        reader = EventReader()
        transport = httpx.AsyncHTTPTransport(uds=self._socket) if self._socket is not None else None
        options: dict[str, Any] = {"params": _given(params), "timeout": 3 * HEARTBEAT}
        with self._spoken_to(write=False):
            async with (
                httpx.AsyncClient(transport=transport, **self._options) as http,
                http.stream("GET", path, **options) as response,
            ):
                if response.is_error:
                    await response.aread()
                    _raise_told(response)
                async for chunk in response.aiter_bytes():
                    for event in reader.feed(chunk):
                        yield event

    # -- what can go wrong -------------------------------------------------------------------------

    @contextmanager
    def _spoken_to(self, *, write: bool) -> Generator[httpx.Client]:
        """The HTTP client, its failures told in this library's words."""
        import httpx

        if os.getpid() != self._pid:
            raise ForkedHome(
                "a forked child used its parent's connection to a home",
                where=self.target,
                mend="Start the child with the spawn method, or let it open the home itself.",
            )
        if self._http is None:
            raise HomeClosed("the home was closed", where=self.target, mend="Open it again with Infra.open().")
        try:
            if self._lifeline is not None:
                self._lifeline.check()
        except OSError as error:
            raise self._unreachable(error, False) from None
        try:
            yield self._http
        except httpx.TransportError as error:
            raise self._unreachable(error, write and not isinstance(error, httpx.ConnectError)) from error

    def _unreachable(self, error: Exception, unsure: bool) -> OwnerUnreachable:
        pid = self.owner.pid if self._known else None
        who = f"process {pid}, which owns the home," if self._known else "whoever owns the home"
        doubt = " The write may have landed: read before you repeat it." if unsure else ""
        return OwnerUnreachable(
            f"{who} doesn't answer",
            where=self.target,
            why=str(error) or type(error).__name__,
            mend=f"If it has ended, open the home again: whoever opens it first owns it.{doubt}",
            facts={"pid": pid, "outcome": "unknown" if unsure else "not written"},
        )


def socket_of(home: Path) -> Path:
    """Where the owner of a home listens."""
    return home / NAME


def target_of(url: str | Path) -> Path | str:
    """What `Infra.connect` was given: a socket, a home that has one, or an http(s) URL."""
    text = str(url)
    if text.startswith(("http://", "https://")):
        return text.rstrip("/")
    path = Path(text.removeprefix("unix://")).expanduser().resolve()
    return socket_of(path) if path.is_dir() else path


def _given(params: Params | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def _raise_told(response: httpx.Response) -> None:
    """Raise the error that a response tells of."""
    if not response.is_error:
        return
    response.read()
    try:
        problem = msgspec.json.decode(response.content, type=dict[str, Any])
    except msgspec.MsgspecError:
        problem = {"code": "OwnerUnreachable", "what": f"{response.url} answered {response.status_code}, not as a home"}
    raise error_of(problem, response.status_code)
