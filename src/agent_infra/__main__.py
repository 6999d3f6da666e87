"""`python -m agent_infra` is the `agent-infra` command."""

from agent_infra.cli import main

main()
