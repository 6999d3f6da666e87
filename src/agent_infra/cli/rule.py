"""`agent-infra rule`: rule files checked, shown, tested, compared, and tried on what has happened."""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from agent_infra.cli.common import HomeOption, JsonOption, print_json, reading
from agent_infra.config import find_project
from agent_infra.documents import seconds_of
from agent_infra.errors import FileMissing, RequestInvalid, RuleErrors
from agent_infra.rewards import (
    USER_RULES,
    RewardChange,
    RuleSet,
    compile_rules,
    micro_text,
    rule_differences,
    trial_files,
)

rule_commands = typer.Typer(help="Rules: how signals become rewards.", no_args_is_help=True)
PathArgument = Annotated[Path | None, typer.Argument(help="A rule file or a folder of them; the project's by default.")]
_AGO: Final = re.compile(r"last-(\d+)d")


@rule_commands.command("check")
def check_rules(path: PathArgument = None, as_json: JsonOption = False) -> None:
    """Read rule files and run the tests beside them; every problem with its place, and exit status 1 if there is one."""
    try:
        rules = _rules(path)
    except RuleErrors as error:
        if as_json:
            print_json({"ok": False, "problems": [problem.as_dict() for problem in error.problems]})
        else:
            print(error, file=sys.stderr)
        raise typer.Exit(1) from None
    if as_json:
        warnings = [warning.as_dict() for warning in rules.warnings]
        print_json({"ok": True, "hash": rules.hash, "files": list(rules.files), "warnings": warnings})
        return
    for warning in rules.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(f"ok: {len(rules.rules)} rules, {len(rules.sources)} sources, {rules.hash}")


@rule_commands.command("show")
def show_rules(path: PathArgument = None) -> None:
    """What a rule set means, as JSON: what its hash covers."""
    rules = _rules(path)
    print_json({"hash": rules.hash, "files": list(rules.files), **rules.meaning})


@rule_commands.command("test")
def run_rule_tests(path: PathArgument = None) -> None:
    """Run the tests beside the rules (`*.test.yaml`); exit status 1 if one fails."""
    where = _path(path)
    files = trial_files(where)
    _rules(where)
    print(f"ok: {len(files)} file{'s' if len(files) != 1 else ''} of tests")


@rule_commands.command("diff")
def diff_rules(before: Path, after: Path, as_json: JsonOption = False) -> None:
    """What is different between two rule sets: sources, rules, and the rest; exit status 1 if anything is."""
    found = rule_differences(compile_rules(before), compile_rules(after))
    if as_json:
        told = [{"what": each.what, "name": each.name, "how": each.how} for each in found]
        print_json({"same": not found, "differences": told})
    else:
        print("\n".join(str(each) for each in found) or "the same policy")
    if found:
        raise typer.Exit(1)


@rule_commands.command("try")
def try_rules(
    path: PathArgument = None,
    on: Annotated[str, typer.Option("--on", help="last-7d, 12h, 30m: events of that time.")] = "last-7d",
    limit: Annotated[int, typer.Option("--limit", help="Changes that are shown.")] = 20,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Which rewards would change under a rule set, and by how much, before it comes into force. Nothing is kept."""
    rules = _rules(path)
    with reading(home) as infra:
        changes = infra.weaver.reweave(rules=rules, since=datetime.now(UTC) - timedelta(seconds=_seconds(on)))
    changed = sorted((each for each in changes if each.changes), key=_size, reverse=True)
    if as_json:
        print_json(_told(rules, changes, changed, limit))
        return
    print(f"{len(changed)} of {len(changes)} rewards would change under {rules.hash}")
    for each in changed[:limit]:
        print(f"  {_shown(each.before)} -> {_shown(each.after)}  event {each.event_id} of session {each.session}")
    if len(changed) > limit:
        print(f"  … and {len(changed) - limit} more: --limit {len(changed)}")


def _told(rules: RuleSet, changes: list[RewardChange], changed: list[RewardChange], limit: int) -> dict[str, Any]:
    rows = [
        {"event": each.event_id, "session": each.session, "before": each.before, "after": each.after}
        for each in changed
    ]
    return {"rule_set": rules.hash, "events": len(changes), "changed": len(changed), "changes": rows[:limit]}


def _size(change: RewardChange) -> int:
    return abs((change.after or 0) - (change.before or 0))


def _shown(micro: int | None) -> str:
    return "unscored" if micro is None else micro_text(micro)


def _seconds(text: str) -> float:
    days = _AGO.fullmatch(text)
    found = float(days[1]) * 86_400 if days else seconds_of(text)
    if found is None:
        raise RequestInvalid(f"{text!r} is no stretch of time", mend="Write last-7d, 12h or 30m.")
    return found


def _rules(path: Path | None) -> RuleSet:
    """The set that would come into force: with the user's own `.drl` files. Raises FileMissing, RuleErrors."""
    return compile_rules(_path(path), USER_RULES.expanduser())


def _path(path: Path | None) -> Path:
    """The named path, or the project's rules. Raises FileMissing."""
    found = path or find_project().rules
    if found is None:
        raise FileMissing("rules/", what="rule folder", mend="Name a path, or set `rules` in agent_infra.toml.")
    return found
