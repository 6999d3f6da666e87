"""Who owns what this library makes outside its own process: so that what a dead owner left can be told from the rest.

An owner is a process: its host (this boot of this machine, in this process's view of process ids), its id and the time
at which it started. An id that was given to another process meanwhile has another start time.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import psutil

_LABELS: Final = "agent_infra."


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that made something. `home` is the home that it worked for."""

    home: str
    host: str
    pid: int
    started: int

    def labels(self, call_id: str, until: float | None) -> dict[str, str]:
        """Labels for what it makes; `until`: seconds since 1970 after which nobody needs it, if that is known."""
        named = {"home": self.home, "host": self.host, "pid": str(self.pid), "started": str(self.started)}
        named |= {"call": call_id} | ({} if until is None else {"until": str(int(until))})
        return {_LABELS + name: value for name, value in named.items()}

    @property
    def tag(self) -> str:
        """A short text that begins the names of what it makes."""
        return f"agent-infra-{self.pid}-{self.started}"

    def is_gone(self) -> bool:
        """Whether it is a process of this host, and no longer there."""
        return self.host == _host() and _started(self.pid) != self.started


def this_process(home: str) -> Owner:
    """This process as an owner."""
    return Owner(home, _host(), os.getpid(), _started(os.getpid()) or 0)


def abandoned(labels: Mapping[str, str], now: float) -> bool:
    """Whether what has these labels belongs to a process that is gone, or is past its time."""
    try:
        read = {name: labels[_LABELS + name] for name in ("home", "host", "pid", "started")}
        owner = Owner(read["home"], read["host"], int(read["pid"]), int(read["started"]))
        until = labels.get(_LABELS + "until")
        return owner.is_gone() or (until is not None and now > int(until))
    except (KeyError, ValueError):
        return False  # not ours, or not ours to judge


def tag_is_gone(name: str) -> bool:
    """Whether a name was begun by an owner (`Owner.tag`) of this host that is gone."""
    try:
        pid, started = (int(part) for part in name.removeprefix("agent-infra-").split("-")[:2])
    except ValueError:
        return False
    return name.startswith("agent-infra-") and _started(pid) != started


HOST_LABEL: Final = f"{_LABELS}host"


@cache
def _host() -> str:
    """This boot of this machine, as this process sees it; process ids mean nothing elsewhere."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{socket.gethostname()}/{psutil.boot_time():.0f}"


def _started(pid: int) -> int | None:
    """When a living process started, in hundredths of a second; None where there is none."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else round(process.create_time() * 100)
    except psutil.Error:
        return None
