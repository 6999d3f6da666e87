"""Rule files into a rule set: all problems of all files at once, and either the whole set or nothing.

A rule set may be spread over the files of a folder. Sources and rules are gathered; `required` adds up; what a set has
only one of (window, wait, episode, clip) may be said in one file, or in several alike. Order and file names mean
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, cast

from agent_infra.documents import Document, Fields, did_you_mean, read_text, survey_documents
from agent_infra.errors import DocumentErrors, FileMissing, Problem, RuleErrors
from agent_infra.rewards.rules.checking import check_together
from agent_infra.rewards.rules.model import DEFAULT_LATENESS, MAIN, Credit, Rule, RuleSet, SourceTerms
from agent_infra.rewards.rules.reading import read_rule
from agent_infra.rewards.rules.trials import read_trials, run_trials

SUFFIXES: Final = (".yaml", ".yml", ".drl")
USER_RULES: Final = Path("~/.reward_weaver/rules")
"""Where a user keeps `.drl` files that belong to every rule set."""
_DRL: Final = ".drl"
_TESTS: Final = (".test.yaml", ".test.yml")
"""How files end that hold tests of rules, not rules."""
_READINGS: Final = 10
"""How often files that change while they are read are read again."""
_TOP: Final = ("version", "sources", "required", "window", "wait", "episode", "clip", "groups", "credit", "rules")
_SOURCE: Final = ("range", "better", "weight", "lateness", "normal", "decay", "noise", "join", "ambiguous")


def compile_rules(path: str | Path, *beside: Path) -> RuleSet:
    """The rule set of a rule file, or of all rule files of a folder, with the `.drl` files of folders beside it. The tests
    that stand beside the rules are run. Raises FileMissing, RuleErrors.
    """
    pages = _read_settled(path, beside)
    rules = _compile(pages.rules, list(pages.problems))
    failed: list[Problem] = []
    failed += run_trials(read_trials(pages.trials, failed), rules)
    if failed:
        raise RuleErrors(failed)
    return rules


@dataclass(frozen=True, slots=True)
class _Pages:
    """What the files of a set say: texts, each with its file; and which can't be read."""

    rules: tuple[tuple[str, str | None], ...]
    trials: tuple[tuple[str, str | None], ...]
    problems: tuple[Problem, ...]


def _read_settled(path: str | Path, beside: Sequence[Path]) -> _Pages:
    """The files as they were at one moment: read until two readings are the same, so that files which are exchanged
    meanwhile (a link to a folder that is set to another one) are never seen half old and half new.
    """
    last = _reading(path, beside)
    for _ in range(_READINGS):
        found = _reading(path, beside)
        if found == last or (not isinstance(found, _Pages) and str(found) == str(last)):
            if isinstance(found, _Pages):
                return found
            raise found
        last = found
    message = "the rule files changed whenever they were read"
    raise RuleErrors([Problem("StillChanging", message, str(path), hint="load them when they are written")])


def _reading(path: str | Path, beside: Sequence[Path]) -> _Pages | FileMissing | RuleErrors:
    """One reading of all files, or why there is none: a file may be gone by the time that it is opened."""
    problems: list[Problem] = []
    try:
        rules = _texts([*rule_files(path), *(file for folder in beside for file in drl_files(folder))], problems)
        return _Pages(tuple(rules), tuple(_texts(trial_files(path), problems)), tuple(problems))
    except (FileMissing, RuleErrors) as error:
        return error
    except OSError as error:
        message = f"this can't be read: {error.strerror or error}"
        return RuleErrors([Problem("Unreadable", message, str(error.filename or path), hint="see to its permissions")])


def _texts(files: Iterable[Path], problems: list[Problem]) -> list[tuple[str, str | None]]:
    texts: list[tuple[str, str | None]] = []
    for file in files:
        try:
            texts.append((read_text(file), str(file)))
        except DocumentErrors as error:
            problems += error.problems
    return texts


def drl_files(folder: Path) -> list[Path]:
    """The `.drl` files of a folder by name; none where there is no such folder."""
    return sorted(file for file in folder.iterdir() if file.suffix == _DRL) if folder.is_dir() else []


def trial_files(path: str | Path) -> list[Path]:
    """The files of tests beside the rules, by name: of a folder all, of `rules.yaml` only `rules.test.yaml`."""
    path = Path(path)
    if not path.is_dir():
        return [file for ending in _TESTS if (file := path.with_name(path.stem + ending)).is_file()]
    return sorted(file for file in path.iterdir() if file.name.endswith(_TESTS) and not file.name.startswith("."))


def compile_rule_text(text: str, file: str | None = None) -> RuleSet:
    """The rule set of a text. Raises RuleErrors."""
    return _compile([(text, file)], [])


def rule_files(path: str | Path) -> list[Path]:
    """The file itself, or a folder's rule files by name. Raises FileMissing, RuleErrors for another kind of file."""
    path = Path(path)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if _holds_rules(file))
        if not files:
            raise FileMissing(
                path / "*.yaml", what="rule file", mend="Put a rule file into the folder, or name another."
            )
        return files
    if not path.is_file():
        raise FileMissing(path, what="rule file")
    if path.suffix not in SUFFIXES:
        hint = f"rule files end in {' or '.join(SUFFIXES)}"
        raise RuleErrors([Problem("NotARuleFile", f"`{path.name}` is not read as rules", str(path), hint=hint)])
    return [path]


def _holds_rules(file: Path) -> bool:
    return file.suffix in SUFFIXES and not file.name.startswith(".") and not file.name.endswith(_TESTS)


@dataclass(slots=True)
class _Said:
    """Something that a set has only one of, and where it was said."""

    value: Any
    place: str


@dataclass(slots=True)
class _Gathered:
    """What the files have said so far."""

    problems: list[Problem]
    sources: dict[str, tuple[SourceTerms, str]] = field(default_factory=dict[str, tuple[SourceTerms, str]])
    rules: dict[str, Rule] = field(default_factory=dict[str, Rule])
    single: dict[str, _Said] = field(default_factory=dict[str, _Said])
    named: list[tuple[Fields, tuple[str | int, ...], str]] = field(
        default_factory=list[tuple[Fields, tuple[str | int, ...], str]]
    )
    required: set[str] = field(default_factory=set[str])
    declared: set[str] = field(default_factory=set[str])
    warnings: list[Problem] = field(default_factory=list[Problem])


def _compile(texts: Sequence[tuple[str, str | None]], problems: list[Problem]) -> RuleSet:
    gathered = _Gathered(problems)
    drl = [(text, file) for text, file in texts if file is not None and file.endswith(_DRL)]
    if drl:
        _read_drl_files(drl, gathered)
    for text, file in texts:
        if (text, file) in drl:
            continue
        documents, unreadable = survey_documents(text, file)
        problems += unreadable
        if not documents and not unreadable:
            message = "the file is empty"
            problems.append(Problem("EmptyFile", message, file, 1, hint="a rule file begins with `version: 1`"))
        for document in documents:
            _read_document(document, gathered)
    if not gathered.declared and not problems:
        message = "no source is declared, so no signal could ever come in"
        problems.append(Problem("NoSources", message, texts[0][1], 1, hint="add `sources:`"))
    _check_names(gathered)
    groups = gathered.single["groups"].value if "groups" in gathered.single else (MAIN,)
    problems += check_together(list(gathered.rules.values()), groups)
    if problems:
        files = {file: place for place, (_, file) in enumerate(texts)}
        raise RuleErrors(
            sorted(problems, key=lambda each: (files.get(each.file, -1), each.line or 0, each.column or 0))
        )
    single: dict[str, Any] = {name: said.value for name, said in gathered.single.items()}
    return RuleSet(
        sources={name: terms for name, (terms, _) in gathered.sources.items()},
        required=tuple(gathered.required),
        rules=tuple(gathered.rules.values()),
        warnings=tuple(gathered.warnings),
        files=tuple(file for _, file in texts if file is not None),
        **single,
    )


def _read_drl_files(texts: Sequence[tuple[str, str | None]], gathered: _Gathered) -> None:
    from agent_infra.rewards.rules.drl import read_drl_files  # a parser generator: for those who have such files

    found = read_drl_files(texts)
    gathered.problems += found.problems
    gathered.warnings += found.warnings
    for rule in found.rules:
        first = gathered.rules.setdefault(rule.id, rule)
        if first is not rule and rule.spot is not None:
            message = f"rule `{rule.id}` is written at {first.place} already"
            hint = "rules have different ids"
            gathered.problems.append(replace(rule.spot, code="DuplicateRule", message=message, hint=hint))


def _read_document(document: Document, gathered: _Gathered) -> None:
    fields = Fields(document, gathered.problems)
    if fields.mapping(known=_TOP) is None:
        return
    if fields.get("version") != 1 or isinstance(fields.get("version"), bool):
        at = ("version",) if fields.has("version") else ()
        fields.report("WrongVersion", "this is not a rule file of version 1", *at, hint="begin it with `version: 1`")
    if fields.has("sources"):
        for name in fields.mapping("sources") or ():
            _read_source(fields, name, gathered)
    if fields.has("required"):
        names = fields.texts("required")
        gathered.required.update(names)
        listed = isinstance(fields.get("required"), list)
        gathered.named += [
            (fields, ("required", index) if listed else ("required",), name) for index, name in enumerate(names)
        ]
    for name in ("window", "wait"):
        if fields.has(name):
            _say(fields, gathered, name, fields.seconds(name))
    if fields.has("episode"):
        _say(fields, gathered, "episode", fields.choice(("mean", "sum", "last"), "episode"))
    if fields.has("clip"):
        _say(fields, gathered, "clip", fields.span("clip"))
    if fields.has("groups"):
        _say(fields, gathered, "groups", _groups(fields))
    if fields.has("credit"):
        _say(fields, gathered, "credit", _credit(fields))
    for index in range(len(fields.sequence("rules"))):
        _gather_rule(fields, index, gathered)


def _groups(fields: Fields) -> tuple[str, ...] | None:
    names = fields.texts("groups")
    if len(set(names)) < len(names):
        fields.report("DuplicateGroup", "an agenda group is named twice", "groups", hint="name each once")
        return None
    return names or None


def _credit(fields: Fields) -> Credit | None:
    if isinstance(fields.get("credit"), str):
        to = fields.choice(("each", "last", "discount"), "credit")
        return Credit(cast("Any", to)) if to is not None else None
    if fields.mapping("credit", known=("discount",)) is None:
        return None
    gamma = fields.number("credit", "discount")
    if gamma is not None and not 0 < gamma <= 1:
        fields.report("BadDiscount", f"a discount is over 0 and at most 1, not {gamma:g}", "credit", "discount")
        return None
    return Credit("discount", gamma) if gamma is not None else None


def _say(fields: Fields, gathered: _Gathered, name: str, value: object) -> None:
    """Set what a set has only one of; two files may not differ about it."""
    if value is None:
        return
    said = gathered.single.setdefault(name, _Said(value, fields.place(name)))
    if said.value != value:
        fields.report("Contradiction", f"`{name}` is said otherwise at {said.place}", name, hint="keep one of the two")


def _read_source(fields: Fields, name: str, gathered: _Gathered) -> None:
    path = ("sources", name)
    gathered.declared.add(name)
    if fields.mapping(*path, known=_SOURCE) is None:
        return
    if not name.strip() or len(name) > 200:
        fields.report("BadName", "a source's name has 1 to 200 characters", *path, key=True)
    if not fields.has(*path, "range"):
        message = f"source `{name}` has no range"
        fields.report("MissingRange", message, *path, key=True, hint="write the ends of its raw values: range: [0, 5]")
        return
    span = fields.span(*path, "range")
    better = fields.choice(("high", "low"), *path, "better") if fields.has(*path, "better") else "high"
    lateness = fields.seconds(*path, "lateness") if fields.has(*path, "lateness") else DEFAULT_LATENESS
    weight = fields.number(*path, "weight") if fields.has(*path, "weight") else None
    if weight is not None and weight <= 0:
        hint = "leave `weight` out for a source that is for rules only; `better: low` turns a scale round"
        fields.report(
            "BadWeight", f"the weight of `{name}` is {weight:g}, and must be over 0", *path, "weight", hint=hint
        )
    further = _further_terms(fields, *path)
    if name in gathered.sources:
        message = f"source `{name}` is declared at {gathered.sources[name][1]} already"
        fields.report("DuplicateSource", message, *path, key=True, hint="keep one of the two")
    elif span is not None and better is not None and lateness is not None and further is not None:
        terms = SourceTerms(name, *span, cast("Literal['high', 'low']", better), weight, lateness, **further)
        gathered.sources[name] = terms, fields.place(*path)


def _further_terms(fields: Fields, *path: str | int) -> dict[str, Any] | None:
    """The terms that few sources need; None where a problem was reported."""
    before = len(fields.problems)
    found: dict[str, Any] = {}
    if fields.has(*path, "normal") and fields.mapping(*path, "normal", known=("mean", "deviation")) is not None:
        found["mean"] = fields.number(*path, "normal", "mean")
        found["deviation"] = _over_zero(fields, *path, "normal", "deviation")
    if fields.has(*path, "decay") and fields.mapping(*path, "decay", known=("half_life",)) is not None:
        half_life = fields.seconds(*path, "decay", "half_life")
        if half_life is not None and half_life <= 0:
            fields.report("BadHalfLife", "a half-life is over 0 seconds", *path, "decay", "half_life")
        found["half_life"] = half_life
    if fields.has(*path, "noise"):
        found["noise"] = _over_zero(fields, *path, "noise")
    for name, words in (("join", ("refs", "session")), ("ambiguous", ("wait", "newest", "oldest", "refuse"))):
        if fields.has(*path, name):
            found[name] = fields.choice(words, *path, name)
    return found if len(fields.problems) == before else None


def _over_zero(fields: Fields, *path: str | int) -> float | None:
    number = fields.number(*path)
    if number is not None and number <= 0:
        fields.report("NotOverZero", f"`{path[-1]}` is {number:g}, and must be over 0", *path)
        return None
    return number


def _gather_rule(fields: Fields, index: int, gathered: _Gathered) -> None:
    rule = read_rule(fields, index)
    if rule is None:
        return
    first = gathered.rules.setdefault(rule.id, rule)
    if first is not rule:
        message = f"rule `{rule.id}` is written at {first.place} already"
        fields.report("DuplicateRule", message, "rules", index, "id", hint="rules have different ids")
    for effect in rule.then:
        listed = isinstance(fields.get("rules", index, "then", "require"), list)
        for position, name in enumerate(effect.sources):
            path = ("rules", index, "then", "require")
            gathered.named.append((fields, (*path, position) if listed else path, name))


def _check_names(gathered: _Gathered) -> None:
    """Sources that are required must be declared, in whatever file."""
    for fields, path, name in gathered.named:
        if name not in gathered.declared:
            hint = did_you_mean(name, sorted(gathered.declared)) if gathered.declared else None
            fields.report("UnknownSource", f"no source `{name}` is declared", *path, hint=hint)
