"""`agent-infra reward`: why a reward is what it is, what waits, what could not come in, and whether all fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer

from agent_infra.cli.common import HomeOption, JsonOption, print_json, reading

reward_commands = typer.Typer(help="Rewards: values with their evidence.", no_args_is_help=True)
EventArgument = Annotated[str, typer.Argument(help="An event: a call's, decision's or goal's id.")]


@reward_commands.command("explain")
def explain_reward(
    event: EventArgument,
    language: Annotated[str, typer.Option("--language", help="en or zh.")] = "en",
    format: Annotated[str, typer.Option("--format", help="markdown, html or json.")] = "markdown",
    home: HomeOption = None,
) -> None:
    """The report of an event's newest reward. Nothing is woven for it."""
    with reading(home) as infra:
        reward = infra.weaver.newest(event)
    print(reward.report(format=format, language=language), end="")


@reward_commands.command("verify")
def verify_rewards(
    session: Annotated[str | None, typer.Argument(help="One session; all by default.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute rewards, their sums and their chains; exit status 1 where one doesn't fit."""
    with reading(home) as infra:
        checked = infra.weaver.verify(session)
    if as_json:
        print_json({"ok": checked.ok, "records": checked.records, "problems": list(checked.problems)})
    else:
        print("\n".join([*checked.problems, f"{'ok' if checked.ok else 'not ok'}: {checked.records} records"]))
    if not checked.ok:
        raise typer.Exit(1)


@reward_commands.command("waiting")
def waiting_signals(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """The signals that wait for their event."""
    with reading(home) as infra:
        rows = [asdict(each) for each in infra.weaver.intake.letters.waiting()]
    _show(
        rows,
        as_json,
        lambda row: f"{row['id']}  {row['source']} {row['value']}: {row['why']}, until {row['until']:%F %T}",
    )


@reward_commands.command("dead-letters")
def dead_letters(home: HomeOption = None, as_json: JsonOption = False) -> None:
    """What sources delivered and could not come in."""
    with reading(home) as infra:
        rows = [asdict(each) for each in infra.weaver.dead_letters()]
    _show(rows, as_json, lambda row: f"{row['id']}  {row['source']}: {row['reason']}: {row['why']}")


@reward_commands.command("retry")
def retry_letter(id: str, home: HomeOption = None) -> None:
    """Try a dead letter again, under the project's rules as they are now."""
    from agent_infra import Infra
    from agent_infra.cli.common import existing

    with Infra.open(existing(home)) as infra:
        receipt = infra.weaver.retry(id)
    print("it is no signal, and can't be tried again" if receipt is None else receipt.status)
    if receipt is None:
        raise typer.Exit(1)


def _show(rows: list[dict[str, Any]], as_json: bool, line: Callable[[dict[str, Any]], str]) -> None:
    if as_json:
        print_json([{name: _plain(value) for name, value in row.items()} for row in rows])
    else:
        print("\n".join(line(row) for row in rows) or "none")


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
