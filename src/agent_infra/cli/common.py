"""What commands share: options, the home that they look at, how results are printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from agent_infra import Infra, errors
from agent_infra.config import Project, default_home, find_project

HomeOption = Annotated[Path | None, typer.Option("--home", help="The home folder.", show_default="the project's")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def reading(home: Path | None) -> Infra:
    """The home for commands that only read records: the project's own code is not loaded for them."""
    return Infra.open(existing(home), project=Project(root=find_project().root))


def existing(home: Path | None) -> Path:
    """The home's folder. Raises FileMissing: a command that looks at a home must not make one in the wrong place."""
    path = home or default_home(find_project())
    if not path.is_dir():
        raise errors.FileMissing(path, what="home", mend="Name it with --home, or run something first.")
    return path


def check_session(infra: Infra, session: str) -> None:
    """Raises VersionUnknown for a session that is not there."""
    if session not in infra.sessions():
        raise errors.VersionUnknown(
            f"there is no session {session!r} in this home",
            where=str(infra.home),
            mend="`agent-infra session list` shows those that there are.",
        )


def print_json(value: Any) -> None:
    """A result for programs."""
    print(json.dumps(value, ensure_ascii=False, indent=2))
