"""`agent-infra action`: contracts checked, shown, drawn, and begun from a tool."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from agent_infra import Infra
from agent_infra.actions import Contract
from agent_infra.actions.language import scaffold
from agent_infra.cli.action_text import contract_data, contract_text, mermaid
from agent_infra.cli.common import HomeOption, JsonOption, print_json
from agent_infra.config import Project, default_home, find_project
from agent_infra.errors import ContractErrors, NotOwner, Problem, StoreLocked

action_commands = typer.Typer(help="Action contracts.", no_args_is_help=True)
PathArgument = Annotated[Path, typer.Argument(help="An action file, or a folder of them.")]


@contextmanager
def _workshop(home: Path | None, *, actions: bool) -> Generator[Infra]:
    """Tools and node types of the project, its actions too where asked: all that compiling needs, and no more.

    In the home where there is one that is free, so that node types registered there count. Else in a passing one:
    looking at a file makes no home, and waits for nobody who is at work in one.
    """
    project = find_project()
    trimmed = replace(project, actions=project.actions if actions else None, rules=None, knowledge=None, sources={})
    path = home or default_home(project)
    infra = _owned(path, trimmed) if path.is_dir() else None
    if infra is not None:
        with infra:
            yield infra
        return
    with tempfile.TemporaryDirectory(prefix="agent-infra-") as folder, Infra.open(folder, project=trimmed) as passing:
        yield passing


def _owned(home: Path, project: Project) -> Infra | None:
    """A home, opened; None where another process has it."""
    try:
        infra = Infra.open(home, project=project)
    except StoreLocked:
        return None
    try:
        _ = infra.actions
    except NotOwner:
        infra.close()
        return None
    return infra


@action_commands.command("check")
def check_actions(
    path: PathArgument,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as problems.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compile an action file or folder and print every problem with its place; exit status 1 if there is one."""
    with _workshop(home, actions=False) as infra:
        found = infra.actions.check(path, beside=find_project().actions)
    if as_json:
        print_json(
            {
                "ok": [{"name": each.name, "hash": each.hash, "file": each.file} for each in found.contracts],
                "problems": [problem.as_dict() for problem in found.problems],
                "warnings": [warning.as_dict() for warning in found.warnings],
            }
        )
    else:
        for each in found.contracts:
            print(f"ok: {each.name} ({each.tool} {each.tool_version}, contract {each.hash})")
        _print_warnings(found.warnings)
        if found.problems:
            print(ContractErrors(found.problems), file=sys.stderr)
    raise typer.Exit(1 if found.problems or (strict and found.warnings) else 0)


def _print_warnings(warnings: Iterable[Problem]) -> None:
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)


@action_commands.command("show")
def show_action(
    name: Annotated[str, typer.Argument(help="An action, or a tool that has no action file.")],
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """What a contract means, compiled: parameters and their domains, conditions, effects, result."""
    with _workshop(home, actions=True) as infra:
        contract = infra.actions.get(name)
    if as_json:
        print_json(contract_data(contract))
    else:
        print(contract_text(contract))


@action_commands.command("graph")
def draw_actions(
    path: Annotated[str, typer.Argument(help="An action file, a folder, or `all` for the project's actions.")],
    home: HomeOption = None,
) -> None:
    """A Mermaid diagram: tools, actions, and the nodes that they read and write."""
    with _workshop(home, actions=path == "all") as infra:
        if path == "all":
            contracts: list[Contract] = [infra.actions.get(name) for name in infra.actions.names()]
        else:
            found = infra.actions.check(Path(path), beside=find_project().actions)
            if found.problems:
                raise ContractErrors(found.problems)
            contracts = found.contracts
    print(mermaid(contracts))


@action_commands.command("scaffold")
def scaffold_action(
    tool: Annotated[str, typer.Argument(help="A tool's name.")],
    home: HomeOption = None,
) -> None:
    """An action file for a tool, to begin with: its implied contract, with what is known of each part."""
    with _workshop(home, actions=False) as infra:
        print(scaffold(infra.tools.get(tool)), end="")
