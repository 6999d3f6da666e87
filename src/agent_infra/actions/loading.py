"""Action files: found in folders, compiled in one go, and taken from the cache where nothing has changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agent_infra.actions.language import (
    Compiled,
    Contract,
    Kept,
    NodeSchemas,
    NoSchemas,
    ProgramCache,
    Surroundings,
    compile_actions,
    log_warning,
)
from agent_infra.actions.tools import ToolRegistry
from agent_infra.content import fingerprint
from agent_infra.documents import Document, read_text, survey_documents
from agent_infra.errors import DocumentErrors, Problem
from agent_infra.observability import get_logger

_log = get_logger(__name__)
_ENDINGS: Final = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load gave. `postponed` are the documents, by name, whose tools may yet come."""

    contracts: list[Contract]
    templates: dict[str, Source]
    postponed: dict[str, Document] = field(default_factory=dict[str, Document])


@dataclass(frozen=True, slots=True)
class Source:
    """A text with action documents, and the file that it is from."""

    text: str
    file: str | None = None


class ActionFiles:
    """Compiles action files against a home's tools and node types."""

    def __init__(self, tools: ToolRegistry, schemas: NodeSchemas | None, cache: ProgramCache | None) -> None:
        self._tools = tools
        self._schemas = schemas or NoSchemas()
        self._cache = cache

    def load(
        self,
        path_or_text: str | Path,
        contracts: Mapping[str, Contract],
        templates: Mapping[str, Source],
        *,
        postpone: bool = False,
    ) -> Loaded:
        """The contracts and templates of a file, a folder or a text, beside those that are loaded already.

        With `postpone`, an action whose tool is of a server or an image that couldn't be asked is no error.

        Raises FileMissing, DocumentErrors, ContractErrors, ToolUnknown.
        """
        sources, problems = sources_of(path_or_text)
        key = None if problems or self._cache is None else self._key(sources, contracts, templates)
        kept = self._cache.get(key, self._tools) if key is not None and self._cache is not None else None
        postponed: dict[str, Document] = {}
        if kept is None:
            compiled = self._compile(sources, problems, contracts, templates)
            if postpone:
                postponed = self._postponed(compiled)
            found = compiled.contracts if postponed else compiled.checked()
            kept = Kept(found, compiled.warnings, _places(compiled, sources))
            if not postponed and key is not None and self._cache is not None:
                self._cache.put(key, kept, _used(kept.contracts), self._tools)
        for warning in kept.warnings:
            log_warning(warning)
        return Loaded(kept.contracts, {name: sources[index] for name, index in kept.templates.items()}, postponed)

    def _postponed(self, compiled: Compiled) -> dict[str, Document]:
        """The documents whose tools may yet come, by name, where that is all that is wrong."""
        if not compiled.lacks_only_tools:
            return {}
        if any(self._tools.awaited(error.facts["tool"]) is None for _, error in compiled.missing):
            return {}
        for document, error in compiled.missing:
            why = self._tools.awaited(error.facts["tool"])
            _log.warning("action_postponed", action=document.raw("name"), tool=error.facts["tool"], why=why)
        return {str(document.raw("name")): document for document, _ in compiled.missing}

    def check(self, path_or_text: str | Path, beside: str | Path | None = None) -> Compiled:
        """What compiling a file, a folder or a text comes to, without raising for what is wrong in it.

        `beside` holds actions and templates that may be named; of what is wrong there nothing is said. Raises
        FileMissing.
        """
        sources, problems = sources_of(path_or_text)
        own = {source.file for source in sources} | {problem.file for problem in problems}
        same = {Path(file).resolve() for file in own if file is not None}
        others = sources_of(beside)[0] if beside is not None else []
        others = [source for source in others if source.file and Path(source.file).resolve() not in same]
        found = self._compile([*others, *sources], problems, {}, {})
        return Compiled(
            [contract for contract in found.contracts if contract.file in own],
            [problem for problem in found.problems if problem.file in own],
            [warning for warning in found.warnings if warning.file in own],
        )

    def compile(
        self, documents: Sequence[Document], contracts: Mapping[str, Contract], templates: Mapping[str, Source]
    ) -> list[Contract]:
        """The contracts of some documents, beside those that are loaded. Raises ContractErrors, ToolUnknown."""
        compiled = compile_actions(documents, self._around(contracts, templates))
        found = compiled.checked()
        for warning in compiled.warnings:
            log_warning(warning)
        return found

    def _compile(
        self,
        sources: list[Source],
        problems: list[Problem],
        contracts: Mapping[str, Contract],
        templates: Mapping[str, Source],
    ) -> Compiled:
        surveyed = [survey_documents(source.text, source.file) for source in sources]
        documents = [document for found, _ in surveyed for document in found]
        wrong = [*problems, *(problem for _, found in surveyed for problem in found)]
        return compile_actions(documents, self._around(contracts, templates), wrong)

    def _around(self, contracts: Mapping[str, Contract], templates: Mapping[str, Source]) -> Surroundings:
        known = {name: document for name, source in templates.items() if (document := _template(name, source))}
        return Surroundings(self._tools, self._schemas, contracts, known)

    def _key(self, sources: list[Source], contracts: Mapping[str, Contract], templates: Mapping[str, Source]) -> str:
        return ProgramCache.key(
            [(source.file, source.text.encode()) for source in sources],
            self._schemas.digest(),
            " ".join(sorted(contract.hash for contract in contracts.values())),
            fingerprint({name: source.text for name, source in templates.items()}) if templates else "",
        )


def sources_of(path_or_text: str | Path) -> tuple[list[Source], list[Problem]]:
    """The texts of a file, of all YAML files below a folder, or the text itself; and which can't be read.

    Hidden files and folders are left out. Raises FileMissing.
    """
    if isinstance(path_or_text, str) and "\n" in path_or_text:
        return [Source(path_or_text)], []
    path = Path(path_or_text)
    sources: list[Source] = []
    problems: list[Problem] = []
    for file in _files(path) if path.is_dir() else [path]:
        try:
            sources.append(Source(read_text(file), str(file)))
        except DocumentErrors as error:
            problems += error.problems
    return sources, problems


def _files(folder: Path) -> list[Path]:
    found = (path for path in folder.rglob("*") if path.suffix in _ENDINGS and path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def _template(name: str, source: Source) -> Document | None:
    """A template in its file, so that what is wrong with its use can be shown there."""
    documents, _ = survey_documents(source.text, source.file)
    return next((each for each in documents if isinstance(each.data, dict) and each.data.get("template") == name), None)


def _places(compiled: Compiled, sources: list[Source]) -> dict[str, int]:
    """In which of the sources each template stands."""
    files = [source.file for source in sources]
    return {name: files.index(document.file) for name, document in compiled.templates.items()}


def _used(contracts: list[Contract]) -> set[str]:
    """The tools that some contracts depend on; a name of an action that is no tool is harmless here."""
    undone = {contract.compensation.action for contract in contracts if contract.compensation is not None}
    instead = {contract.confidence.fallback for contract in contracts if contract.confidence is not None}
    return {contract.tool for contract in contracts} | undone | {name for name in instead if name is not None}
