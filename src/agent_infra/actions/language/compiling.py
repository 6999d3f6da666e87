"""From documents to contracts, with every problem of all of them reported at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from agent_infra.actions.language.checking import NodeSchemas, NoSchemas, check_names, check_references
from agent_infra.actions.language.contract import Contract
from agent_infra.actions.language.reader import ActionReader, Tools
from agent_infra.actions.language.templates import Templates, is_template
from agent_infra.documents import Document
from agent_infra.errors import ContractErrors, Problem, ToolUnknown
from agent_infra.observability import get_logger

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What documents are compiled against.

    tools      where they find their tools
    schemas    the declared node types; none unless given
    contracts  the library's other contracts by name; None: one document by itself, whose names of other actions can't
               be looked up
    templates  the library's other templates by name
    """

    tools: Tools
    schemas: NodeSchemas = field(default_factory=NoSchemas)
    contracts: Mapping[str, Contract] | None = None
    templates: Mapping[str, Document] = field(default_factory=dict[str, Document])


@dataclass(slots=True)
class Compiled:
    """What became of some documents.

    contracts  those that are right
    problems   all that is wrong, in the order of the files
    warnings   what may well be meant otherwise
    templates  the templates among the documents
    missing    the documents whose tool isn't there, each with that as an error of its own
    """

    contracts: list[Contract] = field(default_factory=list[Contract])
    problems: list[Problem] = field(default_factory=list[Problem])
    warnings: list[Problem] = field(default_factory=list[Problem])
    templates: dict[str, Document] = field(default_factory=dict[str, Document])
    missing: list[tuple[Document, ToolUnknown]] = field(default_factory=list[tuple[Document, ToolUnknown]])

    @property
    def lacks_only_tools(self) -> bool:
        """Whether nothing is wrong but that tools aren't there."""
        return bool(self.missing) and all(problem.code == "ToolUnknown" for problem in self.problems)

    def checked(self) -> list[Contract]:
        """The contracts, if nothing is wrong.

        Raises ContractErrors with all problems; ToolUnknown if nothing but tools is missing.
        """
        if self.lacks_only_tools:
            raise self.missing[0][1]
        if self.problems:
            raise ContractErrors(self.problems)
        return self.contracts


def compile_contracts(documents: Iterable[Document], tools: Tools, problems: Sequence[Problem] = ()) -> list[Contract]:
    """The contracts of some documents by themselves. `problems` are those that reading the documents has found already.

    Raises ContractErrors with all problems of all documents; ToolUnknown if nothing but tools is missing.
    """
    compiled = compile_actions(documents, Surroundings(tools), problems)
    contracts = compiled.checked()
    for warning in compiled.warnings:
        log_warning(warning)
    return contracts


def compile_actions(documents: Iterable[Document], around: Surroundings, problems: Sequence[Problem] = ()) -> Compiled:
    """The contracts of some documents, and what is wrong with them; `problems` were found while reading them."""
    every = list(documents)
    templates = Templates(around.templates)
    templates.add(document for document in every if is_template(document))
    found = [*problems, *templates.problems]
    readers: list[ActionReader] = []
    read: list[tuple[ActionReader, Contract]] = []
    places: dict[str, str] = {}
    for document in every:
        if is_template(document):
            continue
        wrong: list[Problem] = []
        reader = ActionReader(templates.over(document, wrong), around.tools)
        reader.fields.problems += wrong
        contract = reader.read()
        readers.append(reader)
        _check_once(reader, places)
        if contract is not None:
            read.append((reader, contract))
    check_references(readers, [contract for _, contract in read], around)
    if around.contracts is not None:
        check_names(readers, [contract for _, contract in read], around, places)
    for reader in readers:
        found += [problem for problem in reader.fields.problems if not _is_echo(problem, problems)]
    return Compiled(
        [contract for reader, contract in read if not reader.fields.problems],
        _in_file_order(found, every),
        _in_file_order([warning for reader in readers for warning in reader.warnings], every),
        templates.own,
        [(reader.fields.document, reader.missing) for reader in readers if reader.missing is not None],
    )


def log_warning(warning: Problem) -> None:
    """Say a warning in the log."""
    place = ":".join(str(part) for part in (warning.file or "<text>", warning.line, warning.column))
    _log.warning("action_file", code=warning.code, place=place, what=warning.message, mend=warning.hint)


def _check_once(reader: ActionReader, places: dict[str, str]) -> None:
    """That no document before had the same action name."""
    fields = reader.fields
    name = fields.document.raw("name")
    if not name:
        return
    if name in places:
        hint = "give one of them another name"
        fields.report("DuplicateAction", f"the action {name!r} stands at {places[name]} too", "name", hint=hint)
    places.setdefault(name, fields.place("name"))


def _is_echo(problem: Problem, earlier: Iterable[Problem]) -> bool:
    """Whether a problem comes from the stand-in value of one that reading the YAML has found."""
    return any(
        (each.file, each.line) == (problem.file, problem.line)
        and (each.column == problem.column or each.code == "FlowComma")
        for each in earlier
    )


def _in_file_order(problems: Sequence[Problem], documents: Sequence[Document]) -> list[Problem]:
    """Each once: what is wrong in a template is found again in every action that uses it."""
    named = [*(document.file for document in documents), *(problem.file for problem in problems)]
    files = list(dict.fromkeys(named))
    every = dict.fromkeys(problems)
    return sorted(every, key=lambda each: (files.index(each.file), each.line or 0, each.column or 0))
