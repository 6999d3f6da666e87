"""Which GPUs there are: the record, the probe's interface, and a probe that repeats a recorded answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from agent_infra.errors import ConfigErrors, FileMissing, Problem


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device: its index and UUID as the driver gives them, the model's name, and its whole memory in MiB."""

    index: int
    uuid: str
    model: str
    memory_mb: int


@dataclass(frozen=True, slots=True)
class GpuInventory:
    """The devices found. `reason` says why there are none, or which one could not be read; else it is None.

    driver, cuda    the driver's version, and the newest version of CUDA that it serves; None where it doesn't tell
    """

    gpus: tuple[Gpu, ...] = ()
    reason: str | None = None
    driver: str | None = None
    cuda: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The inventory as JSON values, in the form that `RecordedProbe` reads."""
        said = {"gpus": [asdict(gpu) for gpu in self.gpus], "reason": self.reason}
        return said | {"driver": self.driver, "cuda": self.cuda}


class GpuProbe(Protocol):
    """Tells which GPUs this process could use. An empty inventory means none, never "unknown"."""

    def inventory(self) -> GpuInventory:
        """What is there now; never raises for a missing driver or device, that is the inventory's `reason`."""
        ...

    def held(self) -> Mapping[int, float] | None:
        """MiB of GPU memory that processes hold now, over all devices, by process id; None where that can't be told."""
        ...


class RecordedProbe:
    """Repeats an inventory that was recorded or written by hand: the form of `GpuInventory.as_dict()`, or a JSON file.
    What processes hold is not recorded.

    Raises FileMissing for a file that isn't there, ConfigErrors for another form.
    """

    def __init__(self, recorded: Mapping[str, Any] | str | Path) -> None:
        named = None if isinstance(recorded, Mapping) else str(recorded)
        try:
            if named is None:
                self._inventory = msgspec.convert(recorded, GpuInventory)
            else:
                self._inventory = msgspec.json.decode(Path(named).read_bytes(), type=GpuInventory)
        except FileNotFoundError as error:
            raise FileMissing(named or "", what="recorded GPU inventory") from error
        except msgspec.DecodeError as error:  # ValidationError is a kind of it
            raise ConfigErrors([_problem(str(error), named)]) from error
        if not self._inventory.gpus and self._inventory.reason is None:
            raise ConfigErrors([_problem("an empty list of GPUs comes with its reason", named)])

    def inventory(self) -> GpuInventory:
        """The recorded inventory."""
        return self._inventory

    def held(self) -> Mapping[int, float] | None:
        """Nothing is known of it."""
        return None


def _problem(message: str, file: str | None) -> Problem:
    hint = 'the form is {"gpus": [{"index": 0, "uuid": "GPU-…", "model": "…", "memory_mb": 81920}], "reason": null}'
    return Problem("GpuInventoryInvalid", message, file, hint=hint)
