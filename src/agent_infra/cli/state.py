"""`agent-infra state`: versions looked at and compared, sessions verified, taken out and brought in, homes upgraded."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from agent_infra import Infra
from agent_infra.cli.common import HomeOption, JsonOption, check_session, existing, print_json, reading
from agent_infra.cli.story import describe
from agent_infra.config import Project, find_project
from agent_infra.state import Diff, Node, StateGraph, session_of, upgrade_home

state_commands = typer.Typer(help="The state graph.", no_args_is_help=True)
SessionArgument = Annotated[str | None, typer.Argument(help="Only this session.")]
VersionArgument = Annotated[str, typer.Argument(help="A version id, as session.3.0123456789abcdef.")]


@state_commands.command("verify")
def verify_state(session: SessionArgument = None, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Recompute the chain of hashes of every session; exit status 1 where something was changed or damaged."""
    with reading(home) as infra:
        if session is not None:
            check_session(infra, session)
        found = {name: infra.session(name).verify() for name in ([session] if session else infra.sessions())}
    if as_json:
        print_json({name: {"ok": v.ok, "steps": v.steps, "problems": list(v.problems)} for name, v in found.items()})
    else:
        for name, each in found.items():
            print(f"{name}: {'ok' if each.ok else 'NOT ok'}, {each.steps} steps, {each.nodes} nodes")
            for problem in each.problems:
                print(f"  {problem}")
    raise typer.Exit(0 if all(each.ok for each in found.values()) else 1)


# -- versions --------------------------------------------------------------------------------------


@state_commands.command("show")
def show_version(version: VersionArgument, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """What a session was at a version, also at one that was rolled back: its live nodes, as of its commit."""
    with reading(home) as infra:
        graph = _graph_of(infra, version).at(version)
        written = next((each for each in reversed(graph.history()) if each.id == graph.version), None)
        nodes = list(reversed(graph.nodes()))
        told: dict[str, Any] = {
            "version": graph.version,
            "parent": written.parent if written else None,
            "agent": written.agent if written else None,
            "created_at": written.created_at.isoformat() if written else None,
            "wrote": list(written.nodes) if written else [],
        }
    if as_json:
        print_json(told | {"nodes": [node.as_dict() for node in nodes]})
        return
    print(f"{told['version']}  {told['created_at'] or 'before the first step'}")
    print(f"  follows {told['parent'] or 'nothing'}, written by {told['agent'] or 'an unnamed agent'}")
    for node in nodes:
        print(f"  {'*' if node.id in told['wrote'] else ' '} {node.id} {describe(node)}")
    print(f"{len(nodes)} live nodes; * was written by this version", file=sys.stderr)


@state_commands.command("diff")
def diff_versions(
    old: VersionArgument, new: VersionArgument, home: HomeOption = None, as_json: JsonOption = False
) -> None:
    """What differs between two versions of a session, on whatever branches: nodes added, gone and changed by key."""
    with reading(home) as infra:
        found = _graph_of(infra, new).diff(old, new)
    if as_json:
        print_json(_diff_data(found))
        return
    print(f"{found.old} -> {found.new}")
    for sign, nodes in (("+", found.added), ("-", found.gone)):
        for node in nodes:
            print(f"  {sign} {node.id} {describe(node)}")
    for before, after in found.changed:
        print(f"  ~ {after.key}: {_without_key(before)} -> {_without_key(after)}")
    if found.is_empty:
        print("  no difference")


def _graph_of(infra: Infra, version: str) -> StateGraph:
    """The session that a version belongs to, a system session or a ledger too."""
    return StateGraph.of_system(infra.backend, session_of(version))


def _diff_data(found: Diff) -> dict[str, Any]:
    return {
        "old": found.old,
        "new": found.new,
        "added": [node.as_dict() for node in found.added],
        "gone": [node.as_dict() for node in found.gone],
        "changed": [
            {"key": after.key, "old": before.as_dict(), "new": after.as_dict()} for before, after in found.changed
        ],
    }


def _without_key(node: Node) -> str:
    return describe(node).replace(f"{node.key} ", "", 1)


@state_commands.command("erase")
def erase_node(
    session: Annotated[str, typer.Argument(help="The session that wrote the node.")],
    node: Annotated[str, typer.Argument(help="The node's id.")],
    why: Annotated[str, typer.Option("--why", help="Kept in `_control`, with the node's id and type.")],
    home: HomeOption = None,
) -> None:
    """Erase a node's data for good, from every version that shows it; the chain of hashes stays whole."""
    with reading(home) as infra:
        check_session(infra, session)
        freed = infra.session(session).erase(node, why)
    print(freed if freed.nodes else "its data was gone already")


# -- in and out ------------------------------------------------------------------------------------


@state_commands.command("export")
def export_session(
    session: Annotated[str, typer.Argument(help="The session.")],
    out: Annotated[Path | None, typer.Option("--out", help="The file to write.", show_default="stdout")] = None,
    home: HomeOption = None,
) -> None:
    """Write a session as JSON lines: all its versions, its ledger, what its nodes refer to, and what verifies them."""
    with reading(home) as infra:
        check_session(infra, session)
        if out is None:
            exported = infra.backend.export_session(session, sys.stdout.buffer)
            sys.stdout.flush()
            print(exported, file=sys.stderr)
            return
        aside = out.with_name(f".{out.name}.part")
        try:
            with aside.open("wb") as file:
                exported = infra.backend.export_session(session, file)
            os.replace(aside, out)
        finally:
            aside.unlink(missing_ok=True)
    print(exported)


@state_commands.command("import")
def import_session(
    file: Annotated[Path, typer.Argument(help="What `state export` wrote.")],
    name: Annotated[str | None, typer.Option("--as", help="Another name for the session.")] = None,
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Give its nodes new ids, for what the home holds already.")
    ] = False,
    home: HomeOption = None,
) -> None:
    """Bring an exported session into the home, after every hash in it was checked: all of it, or nothing."""
    with Infra.open(home, project=Project(root=find_project().root)) as infra:
        print(infra.backend.import_session(file, name, redraw=redraw))


@state_commands.command("upgrade")
def upgrade(home: HomeOption = None) -> None:
    """Bring a home that an older version wrote to the present format. Make a copy of it first."""
    print(upgrade_home(existing(home)))
