"""What the server asks of the Infra that it serves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from agent_infra.rewards import Receipt
from agent_infra.state import Backend, BlobStore, Collected, Node, SchemaBroker


class ServedSettings(Protocol):
    """The settings in force."""

    def model_dump(self) -> dict[str, Any]:
        """All of them as JSON values."""
        ...


class Callbacks(Protocol):
    """What takes callbacks: the reward weaver."""

    def callback(self, source: str, headers: Mapping[str, str], body: bytes) -> Receipt:
        """Hand a callback to its source. Raises SourceInvalid, SignalRefused, DuplicateConflict."""
        ...


class Served(Protocol):
    """An open home. `agent_infra.infra.Infra` is one."""

    @property
    def home(self) -> Path: ...

    @property
    def settings(self) -> ServedSettings: ...

    @property
    def backend(self) -> Backend: ...

    @property
    def blobs(self) -> BlobStore: ...

    @property
    def schemas(self) -> SchemaBroker: ...

    @property
    def weaver(self) -> Callbacks: ...

    def sessions(self, where: str | None = None) -> list[str]:
        """The ids of the sessions; `where` is a CEL condition over `session`."""
        ...

    def gc(self, limit: int = 1000) -> Collected:
        """Apply the settings' retention to every session."""
        ...

    def caused_by(self, tool: str, within: float) -> list[Node]:
        """Over all sessions: live nodes that calls of a tool caused in the last `within` seconds."""
        ...
