"""`agent-infra evidence`: what executions left: shown, verified, taken out, pushed to an IPFS node, and explained."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from agent_infra.cli.common import HomeOption, JsonOption, check_session, print_json, reading
from agent_infra.config import find_project, load_settings

evidence_commands = typer.Typer(help="Evidence: what one execution left.", no_args_is_help=True)
CidArgument = Annotated[str, typer.Argument(help="A bundle's id: `evidence` in a receipt, `evidence_cid` of a result.")]
ChainOption = Annotated[bool, typer.Option("--chain", help="Also the bundles that it follows.")]


@evidence_commands.command("show")
def show_evidence(cid: CidArgument, home: HomeOption = None) -> None:
    """Print an evidence bundle as JSON."""
    with reading(home) as infra:
        print_json(infra.evidence.get(cid))


@evidence_commands.command("verify")
def verify_evidence(
    cid: CidArgument,
    alone: Annotated[bool, typer.Option("--alone", help="This bundle only, not those that it follows.")] = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Recompute the hashes of a bundle, of all that it refers to and of those that it follows; exit status 1 where one
    doesn't fit.
    """
    with reading(home) as infra:
        check = infra.evidence.verify(cid, chain=not alone)
    if as_json:
        told = {"ok": check.ok, "cid": cid, "blocks": check.blocks, "problems": list(check.problems)}
        print_json(told | {"records": check.records, "broken": list(check.broken), "ended": list(check.ended)})
    elif check.ok:
        blocks = "1 block hashes to its name" if check.blocks == 1 else f"{check.blocks} blocks hash to their names"
        print(f"ok: {blocks}, of {check.records} bundle{'' if check.records == 1 else 's'}")
    else:
        print("\n".join(check.problems))
        print(f"broken: the evidence of {', '.join(check.broken)}")
    if not as_json:
        for each in check.ended:
            print(each, file=sys.stderr)
    raise typer.Exit(0 if check.ok else 1)


@evidence_commands.command("export")
def export_evidence(
    cid: CidArgument,
    out: Annotated[Path, typer.Option("--out", help="The file to write.", show_default="<cid>.car")] = Path(),
    chain: ChainOption = False,
    home: HomeOption = None,
) -> None:
    """Write a bundle and all that it refers to as a CAR file, which any IPLD tool reads."""
    with reading(home) as infra:
        written = infra.evidence.export(cid, out if out != Path() else Path(f"{cid}.car"), chain=chain)
    print(written)
    for each in written.ended:
        print(each, file=sys.stderr)


@evidence_commands.command("push")
def push_evidence(
    cid: Annotated[str | None, typer.Argument(help="A bundle's id; without one, how pushing stands.")] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="The node's RPC API.", show_default="the setting evidence.ipfs")
    ] = None,
    chain: ChainOption = False,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a bundle to an IPFS node, and have it pinned there; without an id, say how pushing in the background stands."""
    url = to or load_settings(find_project()).evidence.ipfs or None
    with reading(home) as infra:
        if cid is None:
            state = infra.evidence.pushing().as_dict() | {"url": url}
            if as_json:
                print_json(state)
            else:
                print("\n".join(f"{name}: {'-' if value is None else value}" for name, value in state.items()))
            return
        pinned = infra.evidence.push(cid, url, chain=chain)
    if as_json:
        print_json({"url": url, "pinned": pinned})
    else:
        print("\n".join(pinned))
        print(f"{len(pinned)} blocks pinned", file=sys.stderr)


@evidence_commands.command("why")
def explain_action(
    session: Annotated[str, typer.Argument(help="The session.")],
    action: Annotated[str, typer.Argument(help="The action's name.")],
    limit: Annotated[int, typer.Option("--limit", min=1, help="The newest executions to tell of.")] = 3,
    language: Annotated[str, typer.Option("--language", help="en or zh.")] = "en",
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Why an action did what it did: its newest executions in a session, also refused ones, and what to look at next."""
    with reading(home) as infra:
        check_session(infra, session)
        why = infra.evidence.why(infra.session(session), action, limit)
    if as_json:
        print_json(why.as_dict())
    else:
        print(why.text(language))
