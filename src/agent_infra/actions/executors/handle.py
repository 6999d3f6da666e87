"""One worker process, seen from its parent: starting it, talking to it, ending it.

It belongs to the event loop that started it. Three things run beside a call: a task that reads the worker's
messages, one that waits for its end, and readers that empty its standard output and error, so that a tool that
prints a lot never blocks.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psutil

from agent_infra.actions.executors.tree import MARK, end_marked, end_tree
from agent_infra.actions.executors.wire import Address, Bounds, Done, Load, Loaded, Progress, Run, packed, receive
from agent_infra.config import SECRET

_LIBRARY = str(Path(__file__).resolve().parents[3])
_KEEP = 16 * 1024
_CHUNK = 64 * 1024
_LAST_WORDS = 0.2
_POLITE = 1.0
_LOOK = os.WEXITED | os.WNOHANG | os.WNOWAIT


class Gone(msgspec.Struct, frozen=True):
    """What is answered in place of a message when the worker has ended: its exit code, -N for signal N.

    `fault`: why its parent ended it by itself, if it did.
    """

    exit_code: int
    fault: str | None = None


class Worker:
    """A worker process. One call at a time.

    ready   done when it listens, or is gone
    loaded  the tools whose module it has imported
    gone    how it ended, once it has
    ended   how many processes besides it were ended with it
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        root: psutil.Process,
        link: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        mark: str,
        outputs: tuple[_Tail, _Tail],
    ) -> None:
        self.root = root
        self.mark = mark
        self.loaded: set[Address] = set()
        self.gone: Gone | None = None
        self.ended = 0
        self._process = process
        self._reader, self._writer = link
        self._outputs = outputs
        self._fault: str | None = None
        self._answer: asyncio.Future[Any]
        self._on_progress: Callable[[Any], None] | None = None
        self._number = 0
        self.ready = self._expect()
        self._listener = asyncio.create_task(self._listen())
        self._mourner = asyncio.create_task(self._mourn())

    @classmethod
    async def start(cls, bounds: Bounds) -> Worker:
        """Start a process with these limits. Raises OSError when it can't be started."""
        ours, theirs = socket.socketpair()
        pipes = os.pipe(), os.pipe()
        mark = secrets.token_hex(8)
        try:
            process = await _spawn(theirs, (pipes[0][1], pipes[1][1]), mark, bounds)
            root = psutil.Process(process.pid)
            link = await asyncio.open_unix_connection(sock=ours)
        except BaseException as error:
            ours.close()
            for pipe in pipes:
                os.close(pipe[0])
            if isinstance(error, psutil.NoSuchProcess):
                raise ChildProcessError(f"{sys.executable} exited at once") from error
            raise
        finally:
            theirs.close()
            for pipe in pipes:
                os.close(pipe[1])
        return cls(process, root, link, mark, (_Tail(pipes[0][0]), _Tail(pipes[1][0])))

    def load(self, address: Address) -> asyncio.Future[Loaded | Gone]:
        """Have it import a tool's module; it answers `Loaded`."""
        answer = self._expect()
        self._writer.write(packed(Load(address, list(sys.path))))
        return answer

    def run(
        self,
        address: Address,
        params: dict[str, Any],
        key: str,
        seconds: float | None,
        on_progress: Callable[[Any], None],
        settings: dict[str, Any],
    ) -> asyncio.Future[Done | Gone]:
        """Have it call a loaded tool; it answers `Done`. Raises ValueError for parameters too large to hand over."""
        self._number += 1
        message = packed(Run(self._number, address, params, key, seconds, settings))
        for output in self._outputs:
            output.take()
        self._on_progress = on_progress
        answer = self._expect()
        self._writer.write(message)
        return answer

    def printed(self) -> tuple[str, str]:
        """The tails of what was printed on standard output and error since the call began."""
        return self._outputs[0].take(), self._outputs[1].take()

    def kill(self) -> None:
        """End it at once, with everything that its tools started."""
        if self.gone is None:
            self.ended += end_tree(self.root, self.mark)

    def alive(self) -> bool:
        """Whether it runs, also if the news of its end isn't here yet."""
        try:
            return self.gone is None and os.waitid(os.P_PID, self.root.pid, _LOOK) is None
        except ChildProcessError:
            return False

    async def end(self) -> None:
        """`kill`, and wait until it is gone. A cancellation doesn't cut this short."""
        self.kill()
        await uncut(self._mourner)

    async def close(self) -> None:
        """Let an idle worker exit by itself, with its exit handlers; end it after a second."""
        self._writer.close()
        await asyncio.wait({self._mourner}, timeout=_POLITE)
        await self.end()

    def _expect(self) -> asyncio.Future[Any]:
        """The worker's next answer, or `Gone`."""
        self._answer = asyncio.get_running_loop().create_future()
        if self.gone is not None:
            self._answer.set_result(self.gone)
        return self._answer

    async def _listen(self) -> None:
        try:
            while True:
                message = await receive(self._reader)
                if isinstance(message, Progress):
                    if message.number == self._number and self._on_progress is not None:
                        self._on_progress(message.update)
                elif not self._answer.done():
                    self._answer.set_result(message)
        except (asyncio.IncompleteReadError, OSError):
            return
        except (ValueError, msgspec.MsgspecError) as error:
            self._fault = f"its socket carried what is no message: {error}"
            self.kill()

    async def _mourn(self) -> None:
        """Wait for its end; what it said last may still be in the socket then."""
        code = await self._process.wait()
        await asyncio.wait({self._listener}, timeout=_LAST_WORDS)
        self._listener.cancel()
        self.ended += end_marked(self.root.pid, self.mark)
        self.gone = Gone(code, self._fault)
        self._writer.close()
        if not self._answer.done():
            self._answer.set_result(self.gone)
        for output in self._outputs:
            output.close()


class _Tail:
    """The end of a stream that is read as it comes. `take` reads what is there by then: nothing comes late."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._read)
        self._data = b""
        self._dropped = 0

    def take(self) -> str:
        self._read()
        text = self._data.decode("utf-8", "replace")
        if self._dropped:
            text = f"… {self._dropped} bytes before …\n{text}"
        self._data, self._dropped = b"", 0
        return text

    def close(self) -> None:
        self._read()
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> None:
        for _ in range(64):  # bounded: something may write for ever
            if self._descriptor is None:
                return
            try:
                data = os.read(self._descriptor, _CHUNK)
            except BlockingIOError:
                return
            if not data:
                self._loop.remove_reader(self._descriptor)
                os.close(self._descriptor)
                self._descriptor = None
            data = self._data + data
            self._dropped += max(0, len(data) - _KEEP)
            self._data = data[-_KEEP:]


async def _spawn(
    link: socket.socket, outputs: tuple[int, int], mark: str, bounds: Bounds
) -> asyncio.subprocess.Process:
    """Start the program in a session of its own, so that no Ctrl-C of a terminal reaches it but through its parent."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "agent_infra.actions.executors.worker"),
        *(str(link.fileno()), os.environ.get("PYTHONPATH", ""), bounds.text()),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=outputs[0],
        stderr=outputs[1],
        pass_fds=(link.fileno(),),
        start_new_session=True,
        env=_environment(mark) | bounds.environment(),
    )


def _environment(mark: str) -> dict[str, str]:
    """The parent's environment without secrets: a tool gets those that it names. PYTHONPATH leads to this library however
    the parent found it; the worker resets it.
    """
    path = os.pathsep.join(part for part in (_LIBRARY, os.environ.get("PYTHONPATH")) if part)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(SECRET)}
    return inherited | {MARK: mark, "PYTHONPATH": path}


async def uncut(work: asyncio.Task[Any]) -> None:
    """Wait for a task to its end; a cancellation that comes meanwhile is raised after it."""
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait({work})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
