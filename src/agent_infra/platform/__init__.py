"""Probes: what this machine has, and what of it this process may use.

In come files of `/proc` and `/sys/fs/cgroup` and the NVIDIA driver's answers; out go frozen records. A probe reads and
reports, it changes and decides nothing. What can't be found out is said with its reason, never guessed.
"""

from agent_infra.platform.gpus import Gpu, GpuInventory, GpuProbe, RecordedProbe
from agent_infra.platform.limits import Limits, machine_limits, open_file_limit
from agent_infra.platform.nvml import NvmlProbe, NvmlSession

__all__ = [
    "Gpu",
    "GpuInventory",
    "GpuProbe",
    "Limits",
    "NvmlProbe",
    "NvmlSession",
    "RecordedProbe",
    "machine_limits",
    "open_file_limit",
]
