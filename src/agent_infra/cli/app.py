"""The command tree. Each command opens the home, does one thing through public names, and prints it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from agent_infra import Infra, errors
from agent_infra.cli.action import action_commands
from agent_infra.cli.common import HomeOption, JsonOption, check_session, existing, print_json, reading
from agent_infra.cli.evidence import evidence_commands
from agent_infra.cli.project import run_demo, write_project
from agent_infra.cli.reward import reward_commands
from agent_infra.cli.rule import rule_commands
from agent_infra.cli.state import state_commands
from agent_infra.cli.story import story_data, story_text
from agent_infra.config import default_home, find_project
from agent_infra.errors import AgentInfraError
from agent_infra.observability import setup_logging

NOT_FOUND: Final = (
    errors.FileMissing,
    errors.NodeUnknown,
    errors.VersionUnknown,
    errors.VersionCollected,
    errors.EvidenceUnknown,
    errors.ToolUnknown,
    errors.ContractUnknown,
    errors.GoalUnknown,
    errors.EventUnknown,
)
CONFLICT: Final = (
    errors.StoreLocked,
    errors.NotOwner,
    errors.LockTimeout,
    errors.VersionConflict,
    errors.DuplicateConflict,
    errors.SessionExists,
    errors.NodesExist,
)

app = typer.Typer(
    name="agent-infra",
    help="One verifiable record of what an agent saw, was allowed to do, did, and was later rewarded for.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
session_commands = typer.Typer(help="Sessions: what happened in them.", no_args_is_help=True)
config_commands = typer.Typer(help="Settings and folders.", no_args_is_help=True)
app.add_typer(session_commands, name="session")
app.add_typer(evidence_commands, name="evidence")
app.add_typer(action_commands, name="action")
app.add_typer(state_commands, name="state")
app.add_typer(rule_commands, name="rule")
app.add_typer(reward_commands, name="reward")
app.add_typer(config_commands, name="config")


def main() -> None:
    """Run the command line; end with its exit status."""
    setup_logging()
    try:
        app()
    except AgentInfraError as error:
        print(error, file=sys.stderr)
        sys.exit(4 if isinstance(error, NOT_FOUND) else 5 if isinstance(error, CONFLICT) else 1)
    except OSError as error:
        print(
            f"{type(error).__name__}: {error}. Check the path, its rights and the disk's free space.", file=sys.stderr
        )
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


# -- the whole -------------------------------------------------------------------------------------


@app.command()
def health(as_json: JsonOption = False) -> None:
    """Exercise every layer in a temporary home, and say what was measured."""
    from agent_infra.health_check import main as check

    raise typer.Exit(check(["--json"] if as_json else []))


@app.command()
def demo(folder: Annotated[Path, typer.Argument(help="Where to write the demo.")] = Path("agent-infra-demo")) -> None:
    """Write a small project, run it, and show where to look."""
    raise typer.Exit(run_demo(folder))


@app.command()
def init(folder: Annotated[Path, typer.Argument(help="The new project's folder.")]) -> None:
    """Write a new project: tools, an action, a goal, rules, and a script that runs them."""
    for path in write_project(folder):
        print(path)
    print(f"\nNow: cd {folder} && python run.py", file=sys.stderr)


@app.command()
def run(
    goal: Annotated[str, typer.Argument(help="A goal file, an action file, or a text that a method knows.")],
    session: Annotated[str | None, typer.Option(help="The session; a new one unless named.")] = None,
    agent: Annotated[str | None, typer.Option(help="The agent in whose name it runs.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compile a goal and execute it."""
    with Infra.open(home) as infra:
        result = infra.run(goal, session=session, agent=agent)
    _show_run(result, as_json)
    raise typer.Exit(0 if result.ok else 1)


@app.command()
def resume(
    session: Annotated[str | None, typer.Option(help="Only this session.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Go on with every run that a crash or Ctrl-C interrupted; finished calls are not repeated."""
    with Infra.open(existing(home)) as infra:
        if session is not None:
            check_session(infra, session)
        results = infra.resume(session)
    if not results:
        print("nothing to resume", file=sys.stderr)
    for result in results:
        _show_run(result, as_json)
    raise typer.Exit(0 if all(result.ok for result in results) else 1)


def _show_run(result: Any, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "ok": result.ok,
                "session": result.session,
                "version": result.version,
                "goal_id": result.goal_id,
                "outputs": result.outputs,
                "event_ids": list(result.event_ids),
                "waiting": list(result.waiting),
                "error": result.error,
            }
        )
    else:
        print(f"{result.session}: {result}")


# -- sessions --------------------------------------------------------------------------------------


@session_commands.command("list")
def list_sessions(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """The sessions of the home, with their heads."""
    with reading(home) as infra:
        found = [{"id": name, "version": infra.session(name).version} for name in infra.sessions()]
    if as_json:
        print_json(found)
    else:
        for each in found:
            print(each["version"])


@session_commands.command("show")
def show_session(session: str, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """What happened in a session, as a tree: goals, plans, calls, evidence, signals, rewards."""
    with reading(home) as infra:
        check_session(infra, session)
        if as_json:
            print_json(story_data(infra, session))
        else:
            print(story_text(infra, session))


# -- config ----------------------------------------------------------------------------------------


@config_commands.command("show")
def show_config(home: HomeOption = None) -> None:
    """The settings, what of them this machine can keep, the home, and the project's folders, as JSON."""
    from agent_infra.config import FOLDERS, load_settings
    from agent_infra.rewards import USER_RULES
    from agent_infra.state import fit_store

    project = find_project()
    settings = load_settings(project)
    store = fit_store(settings.state.rocksdb)
    folders = {name: getattr(project, name) for name in FOLDERS}
    print_json(
        {
            "home": str(home or default_home(project)),
            "project": str(project.root),
            "project_file": str(project.file.path) if project.file else None,
            "tools": [str(path) for path in project.tools],
            "folders": {name: str(path) if path else None for name, path in folders.items()},
            "rules": [str(folder) for folder in (project.rules, USER_RULES.expanduser()) if folder and folder.exists()],
            "sources": sorted(project.sources),
            "settings": settings.model_dump(),
            "in_force": {"rocksdb": store.settings.model_dump(), "reasons": list(store.notes)},
        }
    )
