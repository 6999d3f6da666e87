"""Programs kept in a folder, so that unchanged action files are neither read as YAML nor checked again.

An entry is named by a hash of all that its contracts depend on but their tools: the files' whole content, the declared
node types, the library's other contracts, this version of the package. The tools that were used stand in it, each with
a fingerprint of its definition; where one has changed, the entry isn't used. It begins with a checksum of the rest.
What is damaged, incomplete or of another origin is treated as not there, and written anew.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol

import msgspec

from agent_infra.actions.language.contract import Contract
from agent_infra.actions.language.program import FORMAT, read_program, write_program
from agent_infra.actions.language.reader import Tools
from agent_infra.actions.tools import Tool
from agent_infra.content import fingerprint
from agent_infra.errors import ContractDrift, Problem, ToolUnknown
from agent_infra.observability import get_logger
from agent_infra.version import __version__

IN_MEMORY: Final = 256
"""Entries that are held ready by the process that read them."""
MOST: Final = 512
"""Entries that a folder keeps; beyond that the oldest go."""
_SUM: Final = 32
_log = get_logger(__name__)


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    key: str
    tools: dict[str, str]
    programs: list[bytes]
    templates: dict[str, int]
    warnings: list[Problem]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Entry)


def cache_folder(home: Path) -> Path:
    """Where a home's programs are kept: `ACTION_DSL_CACHE_DIR` if that is set, else a folder of the home."""
    chosen = os.environ.get("ACTION_DSL_CACHE_DIR")
    return Path(chosen).expanduser() if chosen else home / "cache" / "actions"


@dataclass(frozen=True, slots=True)
class Kept:
    """What was kept of one load: contracts, warnings, and in which of the files each template stands."""

    contracts: list[Contract]
    warnings: list[Problem] = field(default_factory=list[Problem])
    templates: dict[str, int] = field(default_factory=dict[str, int])


class ProgramCache:
    """The programs in one folder. Made when the first is written; any number of processes may share it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._prints: dict[str, tuple[Tool, str]] = {}
        self._refused = False
        self._read: dict[str, tuple[dict[str, str], Kept]] = {}

    @staticmethod
    def key(files: Iterable[tuple[str | None, bytes]], *others: str) -> str:
        """The name of what compiling some files against something gives."""
        whole = sha256(f"{__version__} {FORMAT}".encode())
        for text in others:
            _take(whole, text.encode())
        for name, content in files:
            _take(whole, (name or "").encode())
            _take(whole, content)
        return whole.hexdigest()

    def get(self, key: str, tools: Tools) -> Kept | None:
        """What was kept under a key, if it is whole and the tools are still the same."""
        read = self._read.get(key)
        if read is not None and self._same_tools(read[0], tools):
            return read[1]
        try:
            raw = self._path(key).read_bytes()
        except OSError:
            return None
        body = memoryview(raw)[_SUM:]
        if sha256(body).digest() != raw[:_SUM]:
            return None
        try:
            entry = _decoder.decode(body)
            if entry.key != key or not self._same_tools(entry.tools, tools):
                return None
            contracts = [read_program(program) for program in entry.programs]
        except (msgspec.MsgspecError, ContractDrift):
            return None
        kept = Kept(contracts, entry.warnings, entry.templates)
        while len(self._read) >= IN_MEMORY:
            self._read.pop(next(iter(self._read)))
        self._read[key] = entry.tools, kept
        return kept

    def _same_tools(self, known: Mapping[str, str], tools: Tools) -> bool:
        return all(self._print(name, tools) == each for name, each in known.items())

    def put(self, key: str, kept: Kept, used: Iterable[str], tools: Tools) -> None:
        """Keep what a load gave; `used` are the tools that it depends on. A folder that can't be written is told once."""
        prints = {name: self._print(name, tools) for name in used}
        known = {name: found for name, found in prints.items() if found is not None}
        programs = [write_program(contract) for contract in kept.contracts]
        body = _encoder.encode(_Entry(key, known, programs, kept.templates, kept.warnings))
        try:
            self._write(self._path(key), sha256(body).digest() + body)
        except OSError as error:
            if not self._refused:
                mend = "set ACTION_DSL_CACHE_DIR to a folder that can be written, or nothing is lost but time"
                _log.warning("action_cache_unwritable", folder=str(self.folder), why=str(error), mend=mend)
            self._refused = True

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.program"

    def _write(self, path: Path, content: bytes) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=self.folder, prefix=".writing-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        self._prune()

    def _prune(self) -> None:
        """Take away the oldest entries of an overfull folder; another process may be doing the same."""
        entries = [Path(each.path) for each in os.scandir(self.folder) if each.name.endswith(".program")]
        if len(entries) <= MOST:
            return
        ages = sorted((each.stat().st_mtime, each) for each in entries if each.exists())
        for _, each in ages[: len(entries) - MOST]:
            each.unlink(missing_ok=True)

    def _print(self, name: str, tools: Tools) -> str | None:
        """A fingerprint of a tool's definition; None where there is no such tool."""
        try:
            tool = tools.get(name)
        except ToolUnknown:
            return None
        known = self._prints.get(name)
        if known is None or known[0] is not tool:
            known = self._prints[name] = (tool, fingerprint(tool.definition()))
        return known[1]


def _take(whole: _Hash, part: bytes) -> None:
    """Hash a part with its length, so that no two lists of parts give the same bytes."""
    whole.update(b"%d:" % len(part))
    whole.update(part)
