"""A tool that needs a GPU where there is none is refused before anything runs, with the probe's own reason."""

from __future__ import annotations

from typing import Any

import pytest
from pynvml import NVML_ERROR_LIBRARY_NOT_FOUND, NVMLError

from agent_infra import GpuUnavailable, Infra, StateGraph
from agent_infra.platform import NvmlProbe, NvmlSession, RecordedProbe

GOAL: dict[str, Any] = {
    "goal": "推理",
    "subgoals": {"prepare": {"action": "cpu_work"}, "算": {"action": "gpu_work", "after": "prepare"}},
}
ONE_GPU = {"gpus": [{"index": 0, "uuid": "GPU-1", "model": "H100", "memory_mb": 81920}], "reason": None}


class NoDriver:
    """NVML as it answers where there is no driver."""

    def nvmlInit(self) -> None:  # noqa: N802
        raise NVMLError(NVML_ERROR_LIBRARY_NOT_FOUND)


def tools(infra: Infra, **wanted: float) -> list[str]:
    ran: list[str] = []

    @infra.tools.tool(effects="none")
    def cpu_work() -> None:
        """Needs no device."""
        ran.append("cpu")

    @infra.tools.tool(effects="none", resources=wanted)
    def gpu_work() -> None:
        """Needs a device."""
        ran.append("gpu")

    return ran


def test_the_refusal_has_the_probes_reason_and_nothing_ran(infra: Infra, graph: StateGraph) -> None:
    ran = tools(infra, gpu=1)
    with pytest.raises(GpuUnavailable) as caught:
        infra.scheduler.compile_gdep(GOAL, state_graph=graph)
    for told in ("算", "gpu_work", "录制：这台机器没有 GPU"):
        assert told in str(caught.value)
    assert caught.value.mend
    with pytest.raises(GpuUnavailable):
        infra.run(GOAL, session="会话")
    assert ran == []
    assert infra.sessions() == []


def test_without_a_driver_that_is_the_reason(open_infra: Any) -> None:
    infra = open_infra(gpus=NvmlProbe(NvmlSession(NoDriver())))
    tools(infra, gpu=1)
    with pytest.raises(GpuUnavailable) as caught:
        infra.scheduler.compile_gdep(GOAL, state_graph=infra.session("会话"))
    assert "libnvidia-ml.so" in str(caught.value)


def test_an_action_may_ask_for_the_device_itself(infra: Infra, graph: StateGraph) -> None:
    tools(infra)
    infra.actions.load("name: on_gpu\ntool: gpu_work\neffects: none\nresources: {gpu: 1}\n")
    with pytest.raises(GpuUnavailable) as caught:
        infra.scheduler.compile_gdep({"goal": "g", "subgoals": {"x": {"action": "on_gpu"}}}, state_graph=graph)
    assert "on_gpu" in str(caught.value)


def test_a_share_of_no_device_is_no_share(infra: Infra, graph: StateGraph) -> None:
    tools(infra, gpu=0.5)
    with pytest.raises(GpuUnavailable):
        infra.scheduler.compile_gdep(GOAL, state_graph=graph)


def test_device_memory_needs_a_device(infra: Infra, graph: StateGraph) -> None:
    tools(infra, gpu_memory_mb=20_000)
    with pytest.raises(GpuUnavailable):
        infra.scheduler.compile_gdep(GOAL, state_graph=graph)


def test_where_there_is_a_device_it_runs(open_infra: Any) -> None:
    infra = open_infra(gpus=RecordedProbe(ONE_GPU))
    ran = tools(infra, gpu=1, gpu_memory_mb=20_000)
    assert infra.run(GOAL, session="会话").ok
    assert ran == ["cpu", "gpu"]


def test_more_devices_than_there_are_is_said_with_both_numbers(open_infra: Any) -> None:
    infra = open_infra(gpus=RecordedProbe(ONE_GPU))
    tools(infra, gpu=2)
    with pytest.raises(GpuUnavailable) as caught:
        infra.scheduler.compile_gdep(GOAL, state_graph=infra.session("会话"))
    assert "2" in caught.value.what
    assert "1" in caught.value.what


def test_a_plan_without_devices_asks_no_driver(open_infra: Any) -> None:
    infra = open_infra(gpus=NvmlProbe(NvmlSession(NoDriver())))
    tools(infra, gpu=1)
    assert infra.run({"goal": "g", "subgoals": {"x": {"action": "cpu_work"}}}).ok
