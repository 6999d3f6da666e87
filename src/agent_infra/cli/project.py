"""`agent-infra init` and `agent-infra demo`: a new project from the template that the package carries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from agent_infra.errors import AgentInfraError

TEMPLATE: Final = Path(__file__).with_name("template")


class FolderInUse(AgentInfraError):
    """A new project would overwrite files."""


def write_project(folder: Path) -> list[Path]:
    """Copy the template into a new or empty folder; give the files written. Raises FolderInUse, nothing written
    then.
    """
    sources = sorted(path for path in TEMPLATE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    targets = {source: folder / source.relative_to(TEMPLATE) for source in sources}
    there = [str(target) for target in targets.values() if target.exists()]
    if there:
        raise FolderInUse(
            f"{folder} already holds {', '.join(there)}",
            mend="Name another folder; nothing was written.",
            facts={"folder": str(folder), "files": there},
        )
    for source, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    return list(targets.values())


def run_demo(folder: Path) -> int:
    """Write the template where it isn't yet, run its script, and say where to look; the script's exit status."""
    if not (folder / "run.py").exists():
        write_project(folder)
    print(f"$ cd {folder} && python run.py\n", flush=True)
    environment = {name: value for name, value in os.environ.items() if name != "AGENT_INFRA_HOME"}
    status = subprocess.run([sys.executable, "run.py"], cwd=folder, env=environment, check=False).returncode
    print(
        f"\nWhere to look next (in {folder}):\n"
        "  agent-infra session show parcel_demo_001   everything that happened, as a tree\n"
        "  actions/, rules/, goal.yaml, tools.py      what you write\n"
        "  run.py                                     what runs it"
    )
    return status
