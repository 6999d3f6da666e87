"""The tools that the executor suite runs. At the top level of a module, so that any process can find them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from agent_infra.actions import CallContext


@dataclass
class Spot:
    """A place on the map, in degrees."""

    latitude: float
    longitude: float = 0.0


def echo(value: Any) -> Any:
    """Give the value back."""
    return value


async def echo_later(value: Any, seconds: float = 0.0) -> Any:
    """Give the value back after a while."""
    await asyncio.sleep(seconds)
    return value


def turned(spot: Spot) -> Spot:
    """Swap the coordinates of a place."""
    return Spot(latitude=spot.longitude, longitude=spot.latitude)


def fail(message: str) -> None:
    """Raise ValueError."""
    raise ValueError(message)


def leave(code: int) -> None:
    """Raise SystemExit."""
    sys.exit(code)


def odd(kind: Literal["nan", "set", "tuple"]) -> Any:
    """Give what isn't JSON, two levels down."""
    return {"deep": [{"nan": float("nan"), "set": {1}, "tuple": (1, 2)}[kind]]}


def about_the_call(context: CallContext) -> dict[str, Any]:
    """What the call's context says."""
    context.progress("begun")
    context.progress(0.5)
    return {"key": context.idempotency_key, "deadline": context.deadline}


async def write_later(path: str, seconds: float, context: CallContext) -> None:
    """Write a file after a while, unless ended before. Says when it begins."""
    context.progress("begun")
    await asyncio.sleep(seconds)
    Path(path).write_text("written")


async def report_often(times: int, pause: float, context: CallContext) -> int:
    """Report progress again and again."""
    for turn in range(times):
        await asyncio.sleep(pause)
        context.progress((turn + 1) / times)
    return times


def block(seconds: float) -> None:
    """Sleep without ever giving way."""
    time.sleep(seconds)


def vanish(code: int) -> None:
    """End the process without a word."""
    os._exit(code)


def be_killed() -> None:
    """Send the process the signal that can't be caught."""
    os.kill(os.getpid(), signal.SIGKILL)


def chatter(text: str) -> str:
    """Print on both streams, the standard output also below Python, as a C library would."""
    print(text)  # noqa: T201
    sys.stdout.flush()
    os.write(1, b"\x00\xff raw noise\n")
    print(text, file=sys.stderr)  # noqa: T201
    return text


def start_and_wait(seconds: str) -> None:
    """Run a shell with sleepers before and behind it, one in a session of its own, and wait for it."""
    subprocess.run(["sh", "-c", f"sleep {seconds} & setsid sleep {seconds} & sleep {seconds}; true"], check=True)


def start_and_go(seconds: str) -> str:
    """Leave two sleepers behind, one in a session of its own."""
    subprocess.run(["sh", "-c", f"sleep {seconds} & setsid sleep {seconds} & true"], check=True)
    return "gone"


def start_and_vanish(seconds: str, code: int) -> None:
    """Leave two sleepers behind and end the process."""
    start_and_go(seconds)
    os._exit(code)
