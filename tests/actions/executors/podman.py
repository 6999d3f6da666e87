"""A container engine for tests: podman's Docker API on a socket of its own, with storage of its own.

Needs root on Linux. podman and runc are installed by apt where they are missing. The one image is made from this machine's
own Python and a few programs, so no registry is asked for anything.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from agent_infra.actions.executors.cgroups import groups_named

IMAGE = "localhost/agent-infra-test:1"
PYTHON = str(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))
PROGRAMS = ("sh", "sleep", "cat", "setsid", "kill", "touch", "ls")
# crun refuses some kernels; without the limits runc can't set those of podman's own defaults in a nested machine.
CONF = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


def unavailable(reason: str) -> None:
    """Skip by name; in continuous integration of the full tier that is a failure."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"no container engine for the full tier: {reason}")
    pytest.skip(f"no container engine: {reason}")


class Podman:
    """A running engine: `url` for DOCKER_HOST. Close it: nothing of it is left then."""

    def __init__(self) -> None:
        if sys.platform != "linux" or os.geteuid() != 0:
            unavailable("it needs root on Linux")
        _install()
        self.folder = Path(tempfile.mkdtemp(prefix="podman-"))
        (self.folder / "containers.conf").write_text(CONF)
        (self.folder / "context").mkdir()
        self._environment = {**os.environ, "CONTAINERS_CONF": str(self.folder / "containers.conf")}
        socket = self.folder / "podman.sock"
        self.url = f"unix://{socket}"
        with (self.folder / "log").open("wb") as log:
            self._service = subprocess.Popen(
                self.command("system", "service", "--time=0", self.url),
                env=self._environment,
                cwd=self.folder,  # the containers' monitor leaves a file `oom` where it was started
                stdout=log,
                stderr=log,
            )
        for _ in range(300):
            if socket.exists() or self._service.poll() is not None:
                break
            time.sleep(0.1)
        if not socket.exists():
            log_text = (self.folder / "log").read_text(errors="replace")[-500:]
            self.close()
            unavailable(f"podman's service didn't start: {log_text}")
        self._import_image()

    def command(self, *words: str) -> list[str]:
        """A podman command on this engine's storage."""
        return ["podman", "--root", f"{self.folder}/storage", "--runroot", f"{self.folder}/run", *words]

    def run(self, *words: str) -> str:
        """What a podman command prints."""
        done = subprocess.run(
            self.command(*words), env=self._environment, stdin=subprocess.DEVNULL, capture_output=True, check=True
        )
        return done.stdout.decode()

    def build(self, name: str, *lines: str) -> str:
        """An image made of the test's own by these lines; its name."""
        file = self.folder / "Containerfile"
        file.write_text("\n".join([f"FROM {IMAGE}", *lines]))
        self.run("build", "--network=none", "--tag", name, "--file", str(file), str(self.folder / "context"))
        return name

    def containers(self) -> list[str]:
        """The ids of all containers, running or not."""
        return self.run("ps", "--all", "--quiet", "--no-trunc").split()

    def volumes(self) -> list[str]:
        """The names of all volumes."""
        return self.run("volume", "ls", "--quiet").split()

    def assert_empty(self) -> None:
        """No container, no volume, no control group of the library's is there."""
        assert self.containers() == []
        assert self.volumes() == []
        assert not [name for name in groups_named("agent-infra-") if name.startswith(f"agent-infra-{os.getpid()}-")]

    def close(self) -> None:
        """End the service, every container and the storage."""
        if self._service.poll() is None:
            subprocess.run(self.command("rm", "--all", "--force", "--volumes"), env=self._environment, check=False)
        self._service.terminate()
        self._service.wait()
        for line in Path("/proc/mounts").read_text().splitlines()[::-1]:
            place = line.split()[1]
            if place.startswith(str(self.folder)):
                subprocess.run(["umount", "--lazy", place], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _import_image(self) -> None:
        archive = self.folder / "image.tar"
        _pack(archive)
        libraries = os.pathsep.join(sorted({str(Path(each).parent) for each in _libraries([PYTHON])}))
        change = [f"--change=ENV LD_LIBRARY_PATH={libraries}", "--change=ENV PATH=/usr/bin:/bin"]
        change.append("--change=VOLUME /data")
        self.run("import", *change, str(archive), IMAGE)
        archive.unlink()


def _install() -> None:
    if shutil.which("podman") and shutil.which("runc"):
        return
    if not shutil.which("apt-get"):
        unavailable("podman and runc are not installed, and there is no apt-get")
    command = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends", "podman", "runc"]
    done = subprocess.run(command, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, capture_output=True)
    if done.returncode != 0:
        unavailable(f"apt-get can't install podman: {done.stderr.decode(errors='replace')[-300:]}")


def _pack(archive: Path) -> None:
    """A root file system with this machine's Python, its standard library, and a few programs."""
    library = Path(sysconfig.get_path("stdlib"))
    programs = [found for name in PROGRAMS if (found := shutil.which(name))]
    binaries = [PYTHON, *programs, *map(str, (library / "lib-dynload").glob("*.so"))]
    with tarfile.open(archive, "w") as tar:
        for folder in ("tmp", "work", "data", "etc"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
            tar.addfile(entry)
        for path in sorted({*binaries, *_libraries(binaries)}):
            tar.add(os.path.realpath(path), arcname=path, recursive=False)
        tar.add(library, arcname=str(library), filter=_without_tests)


def _without_tests(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    left_out = (
        "/test",
        "/site-packages",
        "/lib-dynload",
        "/idlelib",
        "/tkinter",
        "/ensurepip",
        "/config-",
    )
    inside = entry.name.partition("/python3.")[2]
    return None if any(part in f"/{inside}" for part in left_out) or entry.name.endswith(".a") else entry


def _libraries(binaries: Iterable[str]) -> set[str]:
    """The shared libraries that programs need, by the paths at which they are looked for."""
    found: set[str] = set()
    listed = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    for line in listed.splitlines():
        words = line.replace("=>", " ").split()
        found.update(word for word in words if word.startswith("/") and not word.endswith(":"))
    return found
