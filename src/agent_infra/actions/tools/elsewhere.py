"""Tools that no Python function of ours runs: what stands in a Tool's `run` then.

Such a `run` is a small frozen record that says where the tool is: an MCP server's tool (`OnMcpServer`), a command in an
image (`InContainer`). The executor of that kind reads the record; nothing else ever calls it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from agent_infra.errors import ToolInvalid


class Elsewhere:
    """Base of the records. `str(record)` names the place; `isolation` is the tool's, and names its executor."""

    __slots__ = ()
    isolation: ClassVar[Literal["container", "mcp"]]

    def __call__(self, **params: Any) -> Any:  # noqa: ARG002 - any call is refused
        """Refuse: the tool is not in this process. Raises ToolInvalid."""
        raise ToolInvalid(
            f"{self} can't be called as a function",
            why="it is not in this process",
            mend=f"Call the tool through infra.actions.execute; the {self.isolation} executor runs it.",
        )


@dataclass(frozen=True, slots=True)
class OnMcpServer(Elsewhere):
    """A tool of an MCP server.

    server   the server's name in the configuration
    tool     what the server calls the tool
    wrapped  the server puts its result into `{"result": …}` and says so in the output schema; it is taken out again
    """

    isolation: ClassVar[Literal["container", "mcp"]] = "mcp"
    server: str
    tool: str
    wrapped: bool = False

    def __str__(self) -> str:
        return f"the tool {self.tool!r} of the MCP server {self.server!r}"


@dataclass(frozen=True, slots=True)
class InContainer(Elsewhere):
    """A command in an image. It reads its parameters, one JSON object, from standard input, and prints its result, one
    JSON value, as the last line of standard output.

    image        as the container engine names it; `name@sha256:…` for one that can't change
    command      the program and its arguments; empty: what the image starts by itself
    environment  variables besides the image's own; a value may be `secret://NAME`
    mounts       {path on this machine: path in the container}, all read-only
    memory_mb    MiB that it may hold, its work folders included; None: the executor's limit
    pids         processes and threads that it may have; None: the executor's limit
    network      whether it may use the network
    pull         fetch the image where it is missing
    """

    isolation: ClassVar[Literal["container", "mcp"]] = "container"
    image: str
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    mounts: Mapping[str, str] = field(default_factory=dict[str, str])
    memory_mb: int | None = None
    pids: int | None = None
    network: bool = False
    pull: bool = False

    def __str__(self) -> str:
        return f"the command {' '.join(self.command)!r} in the image {self.image!r}"
