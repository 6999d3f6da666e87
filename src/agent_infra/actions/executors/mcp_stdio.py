"""The process of an MCP server that speaks on its standard streams: a transport for the `mcp` library's session.

The library's own transport hides what matters here, so this one is ours: the exit code of a server that dies, the
lines on its standard output that are no messages, the tail of its standard error, and that everything it started ends
with it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import anyio
import mcp_types
import psutil
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from agent_infra.actions.executors.handle import uncut
from agent_infra.actions.executors.tree import MARK, end_marked, end_tree

Streams: TypeAlias = (
    "tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]"
)
_LINE = 64 * 2**20
_KEPT_LINES = 50
_KEPT_CHARS = 2000
_LAST_WORDS = 0.2
_POLITE = 1.0
_LOOK = os.WEXITED | os.WNOHANG | os.WNOWAIT


class ServerProcess:
    """A running server.

    ended  done when it is gone: its exit code, -N for signal N
    fault  the code and the reason for which this library ended it, where it did for what the server had done
    """

    def __init__(self, process: asyncio.subprocess.Process, mark: str, noise_limit: int) -> None:
        self.root = psutil.Process(process.pid)
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.fault: tuple[str, str] | None = None
        self._process = process
        self._mark = mark
        self._noise_limit = noise_limit
        self._noise: deque[str] = deque(maxlen=_KEPT_LINES)
        self._errors: deque[str] = deque(maxlen=_KEPT_LINES)
        self._lines = 0
        self._killed = False
        self._to_session, self._session_reads = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self._session_writes, self._from_session = anyio.create_memory_object_stream[SessionMessage](0)
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def start(
        cls, command: tuple[str, ...], env: dict[str, str], cwd: Path | None, noise_limit: int
    ) -> ServerProcess:
        """Start the program, in a session of its own. Raises OSError."""
        pipes = [os.pipe() for _ in range(3)]  # ours: the process's end is told apart from the end of its output
        theirs, ours = (pipes[0][0], pipes[1][1], pipes[2][1]), (pipes[0][1], pipes[1][0], pipes[2][0])
        mark = secrets.token_hex(8)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=theirs[0],
                stdout=theirs[1],
                stderr=theirs[2],
                cwd=cwd,
                env=get_default_environment() | env | {MARK: mark},
                start_new_session=True,
            )
            server = cls(process, mark, noise_limit)
        except BaseException as error:
            for end in ours:
                os.close(end)
            if isinstance(error, psutil.NoSuchProcess):
                raise ChildProcessError(f"{command[0]} exited at once") from error
            raise
        finally:
            for end in theirs:
                os.close(end)
        await server._listen(*ours)
        return server

    @property
    def streams(self) -> Streams:
        """What a session reads from and writes to."""
        return self._session_reads, self._session_writes

    def take_noise(self) -> tuple[int, str]:
        """How many lines on standard output were no messages since the last time, and the last of them."""
        taken = self._lines, "\n".join(self._noise)
        self._lines = 0
        self._noise.clear()
        return taken

    def take_errors(self) -> str:
        """The tail of its standard error since the last time."""
        text = "\n".join(self._errors)
        self._errors.clear()
        return text

    def kill(self, code: str | None = None, why: str = "") -> None:
        """End it at once, with everything that it started."""
        if not self.ended.done() and not self._killed:
            self._killed = True
            self.fault = (code, why) if code else None
            end_tree(self.root, self._mark)

    def alive(self) -> bool:
        """Whether it runs, also if the news of its end isn't here yet."""
        try:
            return not self.ended.done() and os.waitid(os.P_PID, self.root.pid, _LOOK) is None
        except ChildProcessError:
            return False

    async def close(self) -> None:
        """Close its input, give it a second to leave, and end what is left. A cancellation doesn't cut this short."""
        await uncut(asyncio.create_task(self._close()))

    async def _close(self) -> None:
        self._stdin.close()
        await asyncio.wait({self.ended}, timeout=_POLITE)
        self.kill()
        await asyncio.wait({self.ended})
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for stream in (self._to_session, self._session_reads, self._session_writes, self._from_session):
            stream.close()

    async def _listen(self, stdin: int, stdout: int, stderr: int) -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, os.fdopen(stdin, "wb"))
        self._stdin = asyncio.StreamWriter(transport, protocol, None, loop)
        out, err = [await _reader(each) for each in (stdout, stderr)]
        reading = asyncio.create_task(self._read(*out))
        self._tasks = [reading, asyncio.create_task(self._read_errors(*err)), asyncio.create_task(self._write())]
        self._tasks.append(asyncio.create_task(self._mourn(reading)))

    async def _read(self, stream: asyncio.StreamReader, transport: asyncio.BaseTransport) -> None:
        """Hand messages to the session; anything else is noted."""
        try:
            while line := await stream.readline():
                try:
                    message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    self._note(line)
                    continue
                await self._to_session.send(SessionMessage(message))
            self._tasks.append(asyncio.create_task(self._see_off()))
        except ValueError:
            self.kill("ServerNoise", f"a line on its standard output was over {_LINE >> 20} MiB")
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            with suppress(ValueError):  # the session is over: what comes now is drained, so that the server can leave
                while await stream.read(2**16):
                    pass
        finally:
            transport.close()

    async def _see_off(self) -> None:
        """End a server that has closed its output and stays: it is of no more use."""
        await asyncio.wait({self.ended}, timeout=_POLITE)
        self.kill("WorkerDied", "it closed its standard output")

    def _note(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if not text.strip():
            return
        self._lines += 1
        self._noise.append(text[:_KEPT_CHARS])
        if self._lines > self._noise_limit:
            why = f"it printed more than {self._noise_limit} lines on its standard output that are no messages"
            self.kill("ServerNoise", why)

    async def _read_errors(self, stream: asyncio.StreamReader, transport: asyncio.BaseTransport) -> None:
        try:
            rest = b""
            while data := await stream.read(2**16):
                *lines, rest = (rest + data).split(b"\n")
                rest = rest[-_KEPT_CHARS:]
                self._errors.extend(line.decode("utf-8", "replace")[:_KEPT_CHARS] for line in lines[-_KEPT_LINES:])
            if rest:
                self._errors.append(rest.decode("utf-8", "replace"))
        finally:
            transport.close()

    async def _write(self) -> None:
        with suppress(OSError, anyio.ClosedResourceError):  # its end is noticed by `_mourn`
            async for each in self._from_session:
                self._stdin.write(each.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await self._stdin.drain()

    async def _mourn(self, reading: asyncio.Task[None]) -> None:
        """Wait for its end; what it said last may still be in the pipe then, which a child of it may hold open."""
        code = await self._process.wait()
        await asyncio.wait({reading}, timeout=_LAST_WORDS)
        end_marked(self.root.pid, self._mark)
        if not self.ended.done():
            self.ended.set_result(code)
        self._stdin.close()
        self._to_session.close()


async def _reader(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    reader = asyncio.StreamReader(limit=_LINE)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
    )
    return reader, transport


@asynccontextmanager
async def running(process: ServerProcess) -> AsyncGenerator[Streams]:
    """A server's streams; it is closed at the end."""
    try:
        yield process.streams
    finally:
        await process.close()
