"""Where calls run: Python and its packages, the machine, its GPUs, the image. Bundles refer to its block.

One snapshot a process, and one more for each image that its containers were made of.
"""

from __future__ import annotations

import platform
import sys
from functools import cache
from importlib.metadata import distributions
from typing import Any, Final

from agent_infra.actions.executors import Outcome
from agent_infra.platform import GpuInventory
from agent_infra.version import __version__

KIND: Final = "agent_infra/environment"


def snapshot(gpus: GpuInventory) -> dict[str, Any]:
    """The environment as JSON values. `gpu` is None where there is none; `gpu_reason` then says why."""
    return {
        "kind": KIND,
        "format": 1,
        "python": sys.version.split()[0],
        "implementation": platform.python_implementation(),
        "agent_infra": __version__,
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "host": platform.node(),
        "packages": _packages(),
        "gpu": _gpu(gpus),
        "gpu_reason": gpus.reason,
        "image": None,
    }


def image_of(outcome: Outcome | None) -> dict[str, Any] | None:
    """The image that a call ran in: its name, its digest, its id; None where it ran in none.

    Python and packages of the snapshot are then those of the process that made the container, not the image's.
    """
    facts = {} if outcome is None else getattr(outcome, "facts", {})
    if "image_digest" not in facts:
        return None
    return {"name": facts.get("image"), "digest": facts["image_digest"], "id": facts.get("image_id")}


def _gpu(found: GpuInventory) -> dict[str, Any] | None:
    if not found.gpus:
        return None
    told = found.as_dict()
    return {"driver": told["driver"], "cuda": told["cuda"], "devices": told["gpus"]}


@cache
def _packages() -> dict[str, str]:
    """The installed distributions and their versions, by name. The first of a name on the path is the one imported."""
    found: dict[str, str] = {}
    for each in distributions():
        name = str(each.metadata["Name"] or "")
        if name:
            found.setdefault(name.lower().replace("_", "-"), each.version)
    return dict(sorted(found.items()))
