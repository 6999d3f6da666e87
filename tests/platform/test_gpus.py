"""GPU inventories: recorded ones, the driver's through one session, and the reason for an empty one."""

# ruff: noqa: N802 - the driver's library names the functions
from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pynvml
import pytest

from agent_infra.errors import ConfigErrors, FileMissing
from agent_infra.platform import Gpu, GpuInventory, GpuProbe, NvmlProbe, NvmlSession, RecordedProbe

TWO = GpuInventory(
    (Gpu(0, "GPU-11111111", "NVIDIA A100-SXM4-80GB", 81920), Gpu(1, "GPU-22222222", "NVIDIA A100-SXM4-80GB", 81920))
)


@dataclass
class Driver:
    """The functions of pynvml that the probe calls, over two made-up devices; counts sessions."""

    devices: int = 2
    lost: int | None = None
    init_error: int | None = None
    calls: list[str] = field(default_factory=list[str])

    def nvmlInit(self) -> None:
        if self.init_error is not None:
            raise pynvml.NVMLError(self.init_error)
        self.calls.append("init")

    def nvmlShutdown(self) -> None:
        self.calls.append("shutdown")

    def nvmlDeviceGetCount(self) -> int:
        return self.devices

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == self.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return type("Memory", (), {"total": 81920 * 1024**2 + 5})

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return TWO.gpus[handle].uuid

    def nvmlDeviceGetName(self, handle: int) -> str:
        return TWO.gpus[handle].model


def test_many_polls_share_one_session() -> None:
    driver = Driver()
    session = NvmlSession(driver)
    probes = [NvmlProbe(session), NvmlProbe(session)]
    assert [probe.inventory() for probe in probes * 100] == [TWO] * 200
    assert driver.calls == ["init"]
    session.close()
    session.close()
    assert driver.calls == ["init", "shutdown"]


class NewerDriver(Driver):
    """A driver that tells its versions."""

    def nvmlSystemGetDriverVersion(self) -> str:
        return "570.86.15"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        return 12080


def test_the_versions_of_driver_and_cuda_are_told_where_the_driver_tells_them() -> None:
    newer = NvmlProbe(NvmlSession(NewerDriver())).inventory()
    assert (newer.driver, newer.cuda) == ("570.86.15", "12.8")
    older = NvmlProbe(NvmlSession(Driver())).inventory()
    assert (older.driver, older.cuda) == (None, None)
    assert RecordedProbe(newer.as_dict()).inventory() == newer


@dataclass
class BusyDriver(Driver):
    """A driver that tells which processes compute; one is on both devices."""

    silent: bool = False

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        found = {0: {71: 512, 72: 1024}, 1: {71: 256}}[handle]
        unknown = self.silent and handle == 1
        return [
            type("Process", (), {"pid": pid, "usedGpuMemory": None if unknown else mb * 1024**2})
            for pid, mb in found.items()
        ]


def test_what_processes_hold_is_added_up_over_the_devices() -> None:
    assert NvmlProbe(NvmlSession(BusyDriver())).held() == {71: 768.0, 72: 1024.0}


@pytest.mark.parametrize(
    "driver",
    [
        BusyDriver(silent=True),
        BusyDriver(devices=0),
        BusyDriver(lost=1),
        BusyDriver(init_error=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND),
    ],
)
def test_what_can_not_be_told_is_none_and_never_nothing(driver: Driver) -> None:
    assert NvmlProbe(NvmlSession(driver)).held() is None


def test_a_forked_child_opens_its_own_session() -> None:
    driver = Driver()
    session = NvmlSession(driver)
    session.library()
    session.forget()
    session.library()
    assert driver.calls == ["init", "init"]


def test_a_lost_device_is_named_and_the_others_stay() -> None:
    inventory = NvmlProbe(NvmlSession(Driver(lost=0))).inventory()
    assert inventory.gpus == TWO.gpus[1:]
    assert inventory.reason == "GPU 0 can't be read: GPU is lost"


@pytest.mark.parametrize(
    ("driver", "reason"),
    [
        (Driver(init_error=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND), "no NVIDIA driver library"),
        (Driver(init_error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED), "not loaded"),
        (Driver(init_error=pynvml.NVML_ERROR_NO_PERMISSION), "Insufficient Permissions"),
        (Driver(devices=0), "reports no device"),
    ],
)
def test_no_gpus_always_come_with_the_reason(driver: Driver, reason: str) -> None:
    inventory = NvmlProbe(NvmlSession(driver)).inventory()
    assert inventory.gpus == ()
    assert reason in (inventory.reason or "")


def test_a_driver_that_comes_later_is_found() -> None:
    driver = Driver(init_error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    probe = NvmlProbe(NvmlSession(driver))
    assert not probe.inventory().gpus
    driver.init_error = None
    assert probe.inventory() == TWO


def test_the_session_is_closed_at_exit() -> None:
    program = """
from agent_infra.platform import NvmlSession
class Driver:
    def nvmlInit(self): print("init")
    def nvmlShutdown(self): print("shutdown")
NvmlSession(Driver()).library()
print("end")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["init", "end", "shutdown"]


def test_polling_this_machine_leaves_no_file_open() -> None:
    probe: GpuProbe = NvmlProbe()
    first = probe.inventory()
    assert first.gpus or first.reason
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        probe.inventory()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_recording_repeats_what_was_probed(tmp_path: Path) -> None:
    path = tmp_path / "gpus.json"
    path.write_text(json.dumps(TWO.as_dict()))
    assert RecordedProbe(TWO.as_dict()).inventory() == RecordedProbe(path).inventory() == TWO
    none = {"gpus": [], "reason": "没有显卡"}
    assert RecordedProbe(none).inventory() == GpuInventory((), "没有显卡")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"gpus": []}',
        '{"gpus": [{"index": 0, "uuid": "GPU-1", "model": "A100"}]}',
        '{"gpus": [{"index": 0, "uuid": "GPU-1", "model": "A100", "memory_mb": "80 GB"}]}',
    ],
)
def test_a_recording_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gpus.json"
    path.write_text(text)
    with pytest.raises(ConfigErrors) as caught:
        RecordedProbe(path)
    assert caught.value.problems[0].file == str(path)


def test_a_missing_recording_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileMissing, match="recorded GPU inventory"):
        RecordedProbe(tmp_path / "none.json")
