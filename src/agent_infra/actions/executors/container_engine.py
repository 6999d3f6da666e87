"""The Docker API, as far as it is needed here: a typed face over the `docker` library, blocking, for threads.

Whatever the engine refuses or can't do is ExecutorUnavailable, with a stable `facts["reason"]`: not_installed, no_engine,
image_missing, mount_missing, disk_full, engine_refused. A command that can't be started in its image is CommandUnknown.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import socket
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from agent_infra.actions.executors.owners import HOST_LABEL
from agent_infra.errors import ExecutorUnavailable

WORK: Final = "/work"
_WORK_OPTIONS = "rw,nosuid,nodev,mode=1777"
_FULL = re.compile(r"no space left|disk quota exceeded|ENOSPC", re.IGNORECASE)
_NO_COMMAND = re.compile(
    r"executable file not found|no such file or directory|exec format error|permission denied|not found in \$PATH"
    r"|no command (?:or entrypoint )?(?:provided|specified)",
    re.IGNORECASE,
)
_NO_MOUNT = re.compile(r"bind source path does not exist|error mounting|statfs [^:]*: no such file", re.IGNORECASE)
_BEGINNING = ("make a container", "attach to a container", "start a container")
_SOCKETS = ("/var/run/docker.sock", "/run/podman/podman.sock")


class CommandUnknown(Exception):
    """The engine can't start a container's command: it isn't in the image, or not executable."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image that is there: its id, the digest under which a registry has it if one does, its labels."""

    id: str
    digest: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Wish:
    """A container to be made."""

    image: str
    command: tuple[str, ...]
    name: str
    labels: Mapping[str, str]
    environment: Mapping[str, str]
    mounts: Mapping[str, str]
    memory_mb: int
    pids: int
    network: bool
    group: str | None


@dataclass(frozen=True, slots=True)
class State:
    """How a container stands: the first process's id on the engine's machine (0: not running), the engine's word on OOM."""

    pid: int
    oom_killed: bool


class Engine:
    """An engine that answers. Raises ExecutorUnavailable, here and from every method."""

    def __init__(self, url: str | None = None, *, timeout: float = 60.0) -> None:
        if importlib.util.find_spec("docker") is None:
            raise unavailable(
                "not_installed", "the library `docker` is not installed", "Install agent-infra-rl[containers]."
            )
        docker: Any = importlib.import_module("docker")
        self._errors: Any = docker.errors
        self._mount: Any = docker.types.Mount
        self._network: Any = importlib.import_module("requests").exceptions
        self.url = url or os.environ.get("DOCKER_HOST") or _usual_socket()
        self.is_local = self.url.startswith("unix:")
        with self._told("reach the container engine"):
            if self.is_local:  # the library leaves its socket open where nobody answers
                with socket.socket(socket.AF_UNIX) as probe:
                    probe.settimeout(timeout)
                    probe.connect("/" + self.url.removeprefix("unix:").lstrip("/"))
            self._client: Any = docker.DockerClient(base_url=self.url, version="auto", timeout=timeout)
            told: Any = self._client.info()
        self._api: Any = self._client.api
        self.uses_cgroupfs = str(told.get("CgroupDriver")) == "cgroupfs"

    def image(self, reference: str, *, pull: bool) -> Image:
        """An image by its name, fetched where it is missing and `pull` says so."""
        with self._told(f"look for the image {reference!r}", image=reference):
            try:
                found: Any = self._client.images.get(reference)
            except self._errors.ImageNotFound:
                if not pull:
                    raise
                found = self._client.images.pull(reference)
        attrs = cast("dict[str, Any]", found.attrs)
        digests = cast("list[str]", attrs.get("RepoDigests") or [])
        by_name = next((each for each in digests if each.rpartition("@")[0] == reference.partition("@")[0].rpartition(":")[0]), None)  # fmt: skip  # noqa: E501
        digest = str(by_name or attrs.get("Digest") or (digests[0] if digests else found.id))
        return Image(str(found.id), digest.rpartition("@")[2], dict(found.labels or {}))

    def create(self, wish: Wish) -> str:
        """Make a container; its id. Raises CommandUnknown.

        What is mounted has to be there: given as `binds`, Docker would make a missing folder, empty.
        """
        host: Any = self._api.create_host_config(
            network_mode=None if wish.network else "none",
            mem_limit=wish.memory_mb << 20,
            memswap_limit=wish.memory_mb << 20,
            pids_limit=wish.pids,
            read_only=True,
            tmpfs={WORK: _WORK_OPTIONS, "/tmp": _WORK_OPTIONS},
            mounts=[self._mount(inside, outside, "bind", read_only=True) for outside, inside in wish.mounts.items()],
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            cgroup_parent=wish.group,
        )
        with self._told("make a container", image=wish.image):
            made: Any = self._api.create_container(
                wish.image,
                command=list(wish.command) or None,
                name=wish.name,
                labels=dict(wish.labels),
                environment=dict(wish.environment),
                host_config=host,
                working_dir=WORK,
                stdin_open=True,
            )
        return str(made["Id"])

    def attach(self, container: str) -> Any:
        """The socket of a container's three streams; it never times out. Raises CommandUnknown."""
        with self._told("attach to a container"):
            stream: Any = self._api.attach_socket(container, {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        link = getattr(stream, "_sock", stream)
        link.settimeout(None)
        return _Link(link, stream)

    def start(self, container: str) -> None:
        """Start a container. Raises CommandUnknown."""
        with self._told("start a container"):
            self._api.start(container)

    def wait(self, container: str) -> int:
        """The exit code of a container, once it has ended. The code that waiting gives isn't used: for a container that is
        removed meanwhile podman gives 0 there, as if it had succeeded.
        """
        with self._told("wait for a container"):
            self._api.wait(container, timeout=None)
            return int(self._api.inspect_container(container)["State"]["ExitCode"])

    def logs(self, container: str) -> tuple[bytes, bytes]:
        """What the engine itself kept of a container's standard output and error."""
        with self._told("read a container's log"):
            kept: Any = [self._api.logs(container, stdout=each == 1, stderr=each == 2, stream=False) for each in (1, 2)]
        return bytes(kept[0]), bytes(kept[1])

    def state(self, container: str) -> State:
        """How a container stands."""
        with self._told("inspect a container"):
            state: Any = self._api.inspect_container(container)["State"]
        return State(int(state.get("Pid") or 0), bool(state.get("OOMKilled")))

    def remove(self, container: str) -> None:
        """End a container if it runs, and remove it with its volumes. Harmless when it is gone."""
        with self._told("remove a container"), contextlib.suppress(self._errors.NotFound):
            self._api.remove_container(container, v=True, force=True)

    def ours(self) -> dict[str, dict[str, str]]:
        """The labels of every container that this library made, running or not, by id."""
        with self._told("list containers"):
            found: Any = self._api.containers(all=True, filters={"label": [HOST_LABEL]})
        return {str(each["Id"]): dict(each.get("Labels") or {}) for each in found}

    def close(self) -> None:
        """Let go of its connections."""
        self._client.close()

    @contextlib.contextmanager
    def _told(self, what: str, image: str | None = None) -> Generator[None]:
        """Turn the library's errors into ours."""
        try:
            yield
        except (ExecutorUnavailable, CommandUnknown):
            raise
        except self._errors.ImageNotFound as error:
            mend = f"Fetch it (`docker pull {image}`), or say pull = true."
            raise unavailable("image_missing", f"the image {image!r} is not there", mend) from error
        except self._errors.APIError as error:
            said = _words(error)
            if error.response is not None:
                error.response.close()
            if _FULL.search(said):
                raise unavailable("disk_full", f"the engine can't {what}: {said}", "Make room on its disk.") from error
            if _NO_MOUNT.search(said):
                mend = "Mount what is there, by its path on the engine's machine."
                raise unavailable("mount_missing", f"the engine can't {what}: {said}", mend) from error
            if _NO_COMMAND.search(said) and what in _BEGINNING:  # podman tells it as it attaches, Docker at the start
                raise CommandUnknown(said) from error
            raise unavailable("engine_refused", f"the engine can't {what}: {said}", None) from error
        except (self._errors.DockerException, self._network.RequestException, OSError) as error:
            mend = "Start it, or name its address in DOCKER_HOST or under [containers] in agent_infra.toml."
            raise unavailable("no_engine", f"can't {what} at {self.url}: {error}", mend) from error


class _Link:
    """A container's streams. Keeps the response alive: when that is collected, the socket closes."""

    def __init__(self, link: Any, response: Any) -> None:
        self._link, self._response = link, response

    def receive(self) -> bytes:
        """Some bytes, none at the end."""
        try:
            return bytes(self._link.recv(64 * 1024))
        except OSError:
            return b""

    def send(self, data: bytes) -> None:
        """Send standard input, and its end. What isn't read any more is nobody's loss."""
        with contextlib.suppress(OSError):
            self._link.sendall(data)
            self._link.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close both ends' use of it."""
        with contextlib.suppress(OSError):
            self._link.close()
            self._response.close()


def unavailable(reason: str, why: str, mend: str | None) -> ExecutorUnavailable:
    """The error of a container engine that can't do what is asked."""
    return ExecutorUnavailable("no container could be run", why=why, mend=mend, facts={"reason": reason})


def _words(error: Any) -> str:
    return str(getattr(error, "explanation", None) or error)[:1000]


def _usual_socket() -> str:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    places = [*_SOCKETS, *([f"{runtime}/podman/podman.sock", f"{runtime}/docker.sock"] if runtime else [])]
    return f"unix://{next((each for each in places if Path(each).exists()), _SOCKETS[0])}"
