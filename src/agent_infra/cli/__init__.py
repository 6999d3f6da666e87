"""The `agent-infra` command: words in, `Infra` calls, text or JSON out.

Results go to stdout (`--json` for programs), everything else to stderr. Exit status: 0 done, 1 failed, 2 wrong
usage, 4 not found, 5 conflict or locked, 130 interrupted.

    app        the command tree and how errors end it; common: what commands share
    action     contracts checked, shown, drawn and begun; action_text: as text and as a diagram
    evidence   what executions left: shown, verified, exported, pushed, explained
    state      versions, sessions out and in, upgrades
    story      a session as a tree
    project    `init` and `demo`, from template/
"""

from agent_infra.cli.app import main

__all__ = ["main"]
