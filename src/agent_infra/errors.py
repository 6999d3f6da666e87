"""The error model: what every failure says, and who raises what.

Every error of this library derives from `AgentInfraError` and answers four questions:

    what    what happened, in one sentence
    where   the file, node, version or session it happened at
    why     the cause, with the values that made it so
    mend    what to do about it

A *code* (`StaleDecision`, `ToolUnknown`, …) is stable: programs branch on `error.code`, people search for it. Facts
that a program may want (ids, versions, limits) are in `error.facts`, JSON values only, so that an error can be
stored as a node, sent over HTTP and pickled without losing anything.

Errors of a file that a user wrote come as one `ProblemsError` that carries *all* the file's problems, each a
`Problem` with file, line, column and the line itself. A failing *tool* is not an exception: it is a recorded outcome
(`ActionResult.error`). Exceptions are for callers that asked for something impossible.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar


class AgentInfraError(Exception):
    """Base of all errors. `str(error)` is `[code] what (at where): why. mend`."""

    code: ClassVar[str] = "AgentInfraError"

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.code = cls.__name__

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        why: str | None = None,
        mend: str | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.why = why
        self.mend = mend
        self.facts: dict[str, Any] = dict(facts or {})

    def __str__(self) -> str:
        text = f"[{self.code}] {self.what}"
        if self.where:
            text += f" (at {self.where})"
        if self.why:
            text += f": {self.why}"
        if not text.endswith((".", "!", "?")):
            text += "."
        return f"{text} {self.mend}" if self.mend else text

    def as_dict(self) -> dict[str, Any]:
        """The error as JSON values: what a node, an HTTP body and `--json` show."""
        said = {"code": self.code, "what": self.what, "where": self.where, "why": self.why, "mend": self.mend}
        return {name: value for name, value in said.items() if value is not None} | (
            {"facts": self.facts} if self.facts else {}
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.why, self.mend, self.facts))


def _rebuild(
    kind: type[AgentInfraError],
    what: str,
    where: str | None,
    why: str | None,
    mend: str | None,
    facts: Mapping[str, Any],
) -> AgentInfraError:
    return kind(what, where=where, why=why, mend=mend, facts=facts)


# -- problems in files that users write ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a user's file. Lines and columns count from 1; `source` is the line itself."""

    code: str
    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    hint: str | None = None
    source: str | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file or "<text>", self.line, self.column) if part is not None)
        text = f"{place}: {self.code}: {self.message}"
        if self.source is not None:
            text += f"\n    {self.source}"
            if self.column is not None:
                text += f"\n    {' ' * _width(self.source[: self.column - 1])}^"
        return f"{text}\n    hint: {self.hint}" if self.hint else text

    def as_dict(self) -> dict[str, Any]:
        """The problem as JSON values, absent fields left out."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in fields.items() if value is not None}


def _width(text: str) -> int:
    """Columns of a terminal that a text takes: wide characters, as Chinese ones, take two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


class ProblemsError(AgentInfraError):
    """All problems of one or several files at once; `error.problems` lists them in file order."""

    kind: ClassVar[str] = "file"

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        count = len(self.problems)
        super().__init__(
            f"{count} problem{'s' if count != 1 else ''} in the {self.kind}",
            facts={"problems": [problem.as_dict() for problem in self.problems]},
        )

    def __str__(self) -> str:
        return "\n".join([f"[{self.code}] {self.what}:", *(str(problem) for problem in self.problems)])

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.problems,))


class DocumentErrors(ProblemsError):
    """The text isn't readable YAML under the project's rules."""

    kind = "document"


class ContractErrors(ProblemsError):
    """An action file doesn't compile."""

    kind = "action file"


class RuleErrors(ProblemsError):
    """A rule file doesn't compile."""

    kind = "rule file"


class GoalErrors(ProblemsError):
    """A goal doesn't compile to a plan."""

    kind = "goal"


class ConfigErrors(ProblemsError):
    """`agent_infra.toml` or a setting is wrong."""

    kind = "configuration"


class ExpressionError(AgentInfraError):
    """A condition or a `${…}` reference doesn't compile.

    `facts["problems"]` lists all of it: code, message, hint, and line, column and offset within the expression.
    """


class FileMissing(AgentInfraError):
    """A named file isn't there."""

    def __init__(self, path: str | Path, *, what: str = "file", mend: str | None = None) -> None:
        self.path = str(path)
        super().__init__(
            f"{what} {self.path} is not there",
            mend=mend or "Check the spelling and the working directory.",
            facts={"path": self.path},
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_as, (type(self), self.__dict__.copy(), self.args))


def _rebuild_as(kind: type[AgentInfraError], state: dict[str, Any], args: tuple[Any, ...]) -> AgentInfraError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    error.args = args
    return error


# -- opening, waiting ------------------------------------------------------------------------------


class StoreLocked(AgentInfraError):
    """Another process owns the home. `facts["pid"]` is the owner's."""


class StoreDamaged(AgentInfraError):
    """The store reports a damaged block or an unreadable record; it is never read past in silence."""


class StoreFormat(AgentInfraError):
    """The home was written in another format than this version reads."""


class StoreFull(AgentInfraError):
    """The disk refused a write. The head has not moved."""


class NotOwner(AgentInfraError):
    """This process is a client of the home's owner, and only the owner can do this. `facts["pid"]` is the owner's."""


class OwnerUnreachable(AgentInfraError):
    """The process that owns the home, or the server, doesn't answer. `facts["outcome"]` is "unknown" where a write was
    on its way.
    """


class RequestInvalid(AgentInfraError):
    """A request to the server is malformed."""


class HomeClosed(AgentInfraError):
    """The Infra was closed before this call."""


class ForkedHome(AgentInfraError):
    """A forked child touched a home that its parent opened."""


class SettingsConflict(AgentInfraError):
    """One process opened one home twice with different settings."""


class WouldDeadlock(AgentInfraError):
    """A waiting call was made on the background loop's own thread; its async twin is named."""


# -- layer 1: state --------------------------------------------------------------------------------


class InvalidSessionId(AgentInfraError):
    """A session id is 1 to 200 characters, without `/`, not starting with `_`."""


class SessionExists(AgentInfraError):
    """A fork or an import would begin a session that is there already."""


class InvalidNode(AgentInfraError):
    """A node, edge or argument is malformed (empty type, negative ttl, unknown edge end, …)."""


class NotJson(AgentInfraError):
    """Data that would not come back equal: NaN, set, tuple, object. `facts["path"]` is a JSON pointer."""


class SchemaMismatch(AgentInfraError):
    """Data isn't valid under its schema. `facts["path"]` is a JSON pointer."""


class SchemaInvalid(AgentInfraError):
    """A schema isn't JSON Schema, or refers to something remote."""


class SchemaIncompatible(AgentInfraError):
    """A new schema version breaks the compatibility that its name promises."""


class SchemaUnknown(AgentInfraError):
    """No schema of that name or version, or a type that none declares where settings refuse that."""


class MigrationInvalid(AgentInfraError):
    """A migration's declaration can't be used."""


class MigrationMissing(SchemaMismatch):
    """Data of one schema version is asked for in another, and no chain of migrations leads there.

    `facts["missing"]` is the step that is not there, as [from, to].
    """


class MigrationFailed(SchemaMismatch):
    """A migration raised, or gave data that its target version refuses. `facts["step"]` is [from, to]."""


class VersionUnknown(AgentInfraError):
    """No version of that id in this store."""


class VersionCollected(AgentInfraError):
    """Retention removed this version. Pinned versions and live lines are never removed."""


class VersionConflict(AgentInfraError):
    """`expect=` names another version than the head."""


class LockTimeout(AgentInfraError):
    """Another writer held the session for longer than `lock_wait_timeout`."""


class LeaseHeld(AgentInfraError):
    """Another owner leads the session; `facts["owner"]` names it."""


class LeaseLost(AgentInfraError):
    """A lease ran out or was taken over; nothing was written under it."""


class PermissionRefused(AgentInfraError):
    """An agent may not read or write this; the error names the rule."""


class NodeUnknown(AgentInfraError):
    """No such node in this view."""


class ReadOnlyView(AgentInfraError):
    """A view of a past version can't be written to."""


class ExportDamaged(AgentInfraError):
    """A file is no whole, unchanged export of a session; nothing of it was imported."""


class NodesExist(AgentInfraError):
    """An import would bring nodes that the home holds already; `facts["nodes"]` names them."""


# -- layer 2: actions ------------------------------------------------------------------------------


class ToolUnknown(AgentInfraError):
    """No tool of that name; the error says where it was looked for."""


class ToolInvalid(AgentInfraError):
    """A tool's definition can't be used: schema, callable, name or place of definition."""


class ContractUnknown(AgentInfraError):
    """No action of that name is loaded."""


class ContractDrift(AgentInfraError):
    """A contract no longer means what a recorded party holds it to mean."""


class NotEnumerable(AgentInfraError):
    """The legal specs can't be listed: a parameter's domain isn't finite, or there are too many."""


class SpecInvalid(AgentInfraError):
    """What was given to execute isn't an action spec."""


class ActionFailed(AgentInfraError):
    """An execution did not succeed: raised by `ActionResult.checked()`, never by the execution itself.

    `facts` holds the result's status, its evidence's CID, and what the recorded error says beside its text; where the
    recorded code has no class of its own, `facts["code"]` is that code.
    """


class ToolOutOfMemory(ActionFailed):
    """The tool wanted more memory than it may have. `facts` holds peak and limit, and which memory: host or gpu."""


class ApprovalNeeded(ActionFailed):
    """A person has to approve the call; it was not made."""


class StaleDecision(AgentInfraError):
    """The graph moved after the decision, and the action is no longer legal."""


class ExecutorUnavailable(AgentInfraError):
    """What runs tools isn't there: no container engine, no image, no MCP server, a full disk. No tool was called.

    `facts["reason"]` is a stable word.
    """


class GpuUnavailable(AgentInfraError):
    """A tool needs a GPU and there is none that fits."""


class EvidenceUnknown(AgentInfraError):
    """No evidence of that CID in this home."""


class EvidenceDamaged(AgentInfraError):
    """Stored evidence doesn't hash to its CID."""


class SecretMissing(AgentInfraError):
    """A `secret://NAME` is neither in the environment nor in the home's secrets."""


class SecretUnusable(AgentInfraError):
    """A secret's name, file mode or value is one that can't be used; the error never holds the value."""


class IpfsFailed(AgentInfraError):
    """An IPFS node did not take what was pushed. `facts["again"]` says whether another try may help."""


# -- layer 3: rewards ------------------------------------------------------------------------------


class SignalRefused(AgentInfraError):
    """A signal was not let in; `facts["reason"]` is a stable word (`nan`, `out_of_range`, `unknown_source`, …)."""


class DuplicateConflict(AgentInfraError):
    """Same idempotency key, another body."""


class SourceInvalid(AgentInfraError):
    """A reward source is declared wrongly."""


class SourceFailed(AgentInfraError):
    """A reward source could not be asked, or its answer can't be used. Told in the source's health."""


class EventUnknown(AgentInfraError):
    """No event of that id in this home."""


class ReportUnknown(AgentInfraError):
    """A reward's report was asked for in a format or language that there is none of."""


# -- layer 4: scheduling ---------------------------------------------------------------------------


class GoalUnknown(AgentInfraError):
    """No method decomposes that goal."""


class RunFailed(AgentInfraError):
    """A run ended without its result; the error names the subgoal and the cause."""
