"""What a command in a container prints, and what it means.

standard input    the parameters: one JSON object, then the end of the stream
standard output   lines. The last line that isn't empty is the result, one JSON value. A line `::progress 0.5` or
                  `::progress some words` reports progress, and is never the result
standard error    for people; its tail is kept
exit code         0: succeeded; anything else: failed, with the last line of standard error as the reason, or with a
                  last line of standard output such as {"error": {"what": …, "type": …, "traceback": …}}
environment       AGENT_INFRA_IDEMPOTENCY_KEY, and AGENT_INFRA_SECONDS where there is a total limit
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, Final

import msgspec

from agent_infra.actions.executors.base import Failure
from agent_infra.content import json_bytes, json_value
from agent_infra.errors import NotJson

PROGRESS: Final = b"::progress "
MAX_LINE: Final = 64 * 2**20
"""Bytes that a result may have."""
_KEEP = 16 * 1024
_STREAMS = {1: "stdout", 2: "stderr"}


class Printed:
    """What was printed so far. `feed` takes the engine's frames; any thread, one at a time."""

    def __init__(self, on_progress: Callable[[str | float], None]) -> None:
        self._on_progress = on_progress
        self._buffer = bytearray()
        self._tails = {1: _Tail(), 2: _Tail()}
        self._line = bytearray()
        self._last = b""
        self._overflows = self._too_long = False

    @property
    def stdout(self) -> str:
        """The tail of its standard output."""
        return self._tails[1].text()

    @property
    def stderr(self) -> str:
        """The tail of its standard error."""
        return self._tails[2].text()

    def feed(self, data: bytes) -> None:
        """Take bytes of the engine's stream: frames of a byte for the stream, three of nothing, a length, the text."""
        self._buffer += data
        while len(self._buffer) >= 8:
            length = int.from_bytes(self._buffer[4:8], "big")
            if len(self._buffer) < 8 + length:
                return
            stream, text = self._buffer[0], bytes(self._buffer[8 : 8 + length])
            del self._buffer[: 8 + length]
            self.take(stream if stream in _STREAMS else 1, text)

    def lacks(self, exit_code: int) -> bool:
        """Whether nothing came of what has to be said: a result, or why there is none.

        podman's monitor may let us in only after a command that doesn't wait for its parameters has spoken; the log has it.
        """
        return not (self.stdout if exit_code == 0 else self.stderr)

    def result(self, exit_code: int) -> tuple[Any, Failure | None]:
        """(output, error) of a command that ended by itself."""
        self._end_line()
        if exit_code != 0:
            return None, self._failure(exit_code)
        if self._too_long:
            what = f"the last line of its standard output is over {MAX_LINE >> 20} MiB"
            return None, {"code": "BadOutput", "what": what, "path": "/"}
        if not self._last:
            what = "it printed no result: the last line of standard output is to be a JSON value"
            return None, {"code": "BadOutput", "what": what, "path": "/"}
        try:
            output = json_value(self._last)
            json_bytes(output, where="the output")
        except NotJson as error:
            return None, {"code": "BadOutput", "what": str(error), "path": error.facts.get("path", "/")}
        except (ValueError, RecursionError, msgspec.MsgspecError):
            shown = self._last[:200].decode("utf-8", "replace")
            what = f"the last line of its standard output is not a JSON value: {shown!r}"
            return None, {"code": "BadOutput", "what": what, "path": "/"}
        return output, None

    def take(self, stream: int, text: bytes) -> None:
        """Take text of standard output (1) or error (2)."""
        self._tails[stream].add(text)
        if stream == 1:
            *lines, rest = text.split(b"\n")
            for line in lines:
                self._extend(line)
                self._end_line()
            self._extend(rest)

    def _extend(self, part: bytes) -> None:
        self._overflows = self._overflows or len(self._line) + len(part) > MAX_LINE
        if self._overflows:
            self._line.clear()
        else:
            self._line += part

    def _end_line(self) -> None:
        line = bytes(self._line).strip()
        self._line.clear()
        if self._overflows:
            self._last, self._overflows, self._too_long = b"", False, True
        elif line.startswith(PROGRESS):
            said = line.removeprefix(PROGRESS).decode("utf-8", "replace").strip()
            self._on_progress(_fraction(said))
        elif line:
            self._last, self._too_long = line, False

    def _failure(self, exit_code: int) -> Failure:
        try:
            said = json_value(self._last)["error"]
            given = {key: said[key] for key in ("what", "type", "traceback") if isinstance(said.get(key), str)}
        except (ValueError, RecursionError, msgspec.MsgspecError, KeyError, TypeError, AttributeError):
            given = {}
        if not given and exit_code > 128 and exit_code - 128 in set(signal.Signals):
            name = signal.Signals(exit_code - 128).name
            what = f"it was ended by {name}, and not by this library"
            return {"code": "WorkerDied", "what": what, "exit_code": exit_code, "signal": name}
        lines = [line for line in self.stderr.splitlines() if line.strip()]
        what = f"it exited with code {exit_code}" + (f": {lines[-1].strip()}" if lines else "")
        return {"code": "ToolFailed", "what": what, "exit_code": exit_code} | given


class _Tail:
    """The end of a stream."""

    def __init__(self) -> None:
        self._data = b""
        self._dropped = 0

    def add(self, data: bytes) -> None:
        data = self._data + data
        self._dropped += max(0, len(data) - _KEEP)
        self._data = data[-_KEEP:]

    def text(self) -> str:
        text = self._data.decode("utf-8", "replace")
        return f"… {self._dropped} bytes before …\n{text}" if self._dropped else text


def _fraction(said: str) -> str | float:
    try:
        value = float(said)
    except ValueError:
        return said
    return value if 0.0 <= value <= 1.0 else said
