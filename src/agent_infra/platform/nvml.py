"""The GPUs of this machine, as the NVIDIA driver's management library (NVML) tells them."""

from __future__ import annotations

import atexit
import importlib
import os
import threading
from typing import Any

from agent_infra.platform.gpus import Gpu, GpuInventory

MIB = 1024 * 1024


class NvmlSession:
    """One session with the driver: opened at first use, closed at exit.

    Opening costs file handles and time, so probes share one session; a forked child starts its own. `library` is the
    `pynvml` module unless another with its functions is given.
    """

    def __init__(self, library: Any = None) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._open = False

    def library(self) -> Any:
        """The library, with the session open. Raises the library's own `NVMLError` if the driver can't be reached."""
        with self._lock:
            library = self._library = self._library or importlib.import_module("pynvml")
            if not self._open:
                library.nvmlInit()
                self._open = True
                atexit.register(self.close)
            return library

    def close(self) -> None:
        """End the session; closing it twice is no error, and a later use opens it again."""
        with self._lock:
            if self._open:
                self._open = False
                atexit.unregister(self.close)
                self._library.nvmlShutdown()

    def forget(self) -> None:
        """In a forked child: the open session is the parent's."""
        self._lock, self._open = threading.Lock(), False


_of_this_process = NvmlSession()
os.register_at_fork(after_in_child=_of_this_process.forget)


class NvmlProbe:
    """Asks the driver. All probes of a process share its one session unless another is given."""

    def __init__(self, session: NvmlSession = _of_this_process) -> None:
        self._session = session

    def inventory(self) -> GpuInventory:
        """Every device of the machine that can be read, in the driver's order."""
        from pynvml import NVMLError

        try:
            library = self._session.library()
            count = int(library.nvmlDeviceGetCount())
        except NVMLError as error:
            return GpuInventory(reason=_reason(error))
        gpus: list[Gpu] = []
        problems: list[str] = [] if count else ["the NVIDIA driver reports no device"]
        for index in range(count):
            try:
                gpus.append(_device(library, index))
            except NVMLError as error:
                problems.append(f"GPU {index} can't be read: {error}")
        return GpuInventory(tuple(gpus), "; ".join(problems) or None, *_versions(library))

    def held(self) -> dict[int, float] | None:
        """What the driver tells of each process that computes; None where a device doesn't tell it."""
        from pynvml import NVMLError

        held: dict[int, float] = {}
        try:
            library = self._session.library()
            count = int(library.nvmlDeviceGetCount())
            for index in range(count):
                handle = library.nvmlDeviceGetHandleByIndex(index)
                for each in library.nvmlDeviceGetComputeRunningProcesses(handle):
                    if each.usedGpuMemory is None:
                        return None
                    held[int(each.pid)] = held.get(int(each.pid), 0.0) + int(each.usedGpuMemory) / MIB
        except NVMLError:
            return None
        return held if count else None


def _versions(library: Any) -> tuple[str | None, str | None]:
    """The versions of driver and CUDA. What an old driver or library doesn't tell is None."""
    from pynvml import NVMLError

    try:
        driver = str(library.nvmlSystemGetDriverVersion())
        number = int(library.nvmlSystemGetCudaDriverVersion_v2())
    except (NVMLError, AttributeError):
        return None, None
    return driver, f"{number // 1000}.{number % 1000 // 10}"


def _device(library: Any, index: int) -> Gpu:
    handle = library.nvmlDeviceGetHandleByIndex(index)
    memory = library.nvmlDeviceGetMemoryInfo(handle)
    uuid, model = library.nvmlDeviceGetUUID(handle), library.nvmlDeviceGetName(handle)
    return Gpu(index, str(uuid), str(model), int(memory.total) // MIB)


def _reason(error: Exception) -> str:
    return {
        "NVMLError_LibraryNotFound": "no NVIDIA driver library (libnvidia-ml.so) on this machine",
        "NVMLError_DriverNotLoaded": "the NVIDIA driver is not loaded",
    }.get(type(error).__name__, f"the NVIDIA driver can't be asked: {error}")
