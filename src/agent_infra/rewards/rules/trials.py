"""Tests of rules, written beside them (`*.test.yaml`): facts of an event, and what the rules must make of them.

They run whenever the rules are loaded; a set that fails one doesn't come into force.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from agent_infra.clock import MICROS
from agent_infra.content import JsonValue, fingerprint
from agent_infra.documents import Fields, did_you_mean, survey_documents
from agent_infra.errors import Problem
from agent_infra.rewards.rules.model import FIELDS, Fact, RuleSet
from agent_infra.rewards.signals import Event, KeptSignal
from agent_infra.rewards.weaving.contributions import MICRO, Conclusion, conclude
from agent_infra.rewards.weaving.matching import Facts

_TEST: Final = ("name", "signals", "session", "action", "conditions", "evidence", "prompt_rules", "state", "expect")
_SIGNAL: Final = ("source", "value", "at", "confidence", "priority", "key", "refs", "unscored")
_EXPECT: Final = ("value", "micro", "unscored", "fired", "not_fired", "missing", "flags")
_LISTS: Final = ("fired", "not_fired", "missing", "flags")
_BEGINNING: Final = "it begins with `version: 1` and `tests:`"
_EVENT: Final = Event("event", "session", 0)


@dataclass(frozen=True, slots=True)
class Trial:
    """One test: what it is called, what is given, what is expected, and where it stands."""

    name: str
    signals: tuple[KeptSignal, ...]
    facts: Facts
    expect: Mapping[str, Any]
    spot: Problem

    def run(self, rules: RuleSet) -> Problem | None:
        """What is not as expected; None if all is."""
        amiss = self._amiss(rules)
        if amiss is not None:
            return self._failed(amiss)
        got = _got(conclude(self.signals, rules, self.facts, _EVENT))
        wrong = [name for name, wanted in self.expect.items() if not _fits(name, wanted, got)]
        told = [f"{name} is {got[name]!r}, expected {self.expect[name]!r}" for name in wrong]
        return self._failed("; ".join(told)) if told else None

    def _amiss(self, rules: RuleSet) -> str | None:
        """What keeps the test from saying anything: it would pass, or fail, for another reason than it means."""
        for signal in self.signals:
            terms = rules.sources.get(signal.source)
            if terms is None:
                return f"no source {signal.source} is declared"
            if signal.value is not None and not terms.low <= signal.value <= terms.high:
                return f"{signal.value:g} is out of the range of {signal.source}, {terms.low:g} to {terms.high:g}"
        known = {rule.id for rule in rules.rules}
        for name, names in (("fired", known), ("not_fired", known), ("missing", set(rules.sources))):
            unknown = sorted(set(self.expect.get(name, ())) - names)
            if unknown:
                told = ", ".join(f"`{each}`" for each in unknown)
                return f"`{name}` names {told}, which there is none of: {did_you_mean(unknown[0], sorted(names))}"
        return None

    def _failed(self, why: str) -> Problem:
        message = f"the rules fail the test `{self.name}`: {why}"
        spot = self.spot
        return Problem(
            "RuleTestFailed", message, spot.file, spot.line, spot.column, "mend the rule, or the test", spot.source
        )


def read_trials(texts: Iterable[tuple[str, str | None]], problems: list[Problem]) -> list[Trial]:
    """The tests of some files; what is wrong with the files goes to `problems`."""
    found: list[Trial] = []
    for text, file in texts:
        documents, unreadable = survey_documents(text, file)
        problems += unreadable
        if not documents and not unreadable:
            problems.append(Problem("EmptyFile", "the file is empty", file, 1, hint=_BEGINNING))
        for document in documents:
            read = Fields(document, problems)
            if read.mapping(known=("version", "tests")) is None:
                continue
            if read.get("version") != 1 or isinstance(read.get("version"), bool):
                read.report("WrongVersion", "this is not a file of tests of version 1", hint=_BEGINNING)
            if not read.sequence("tests") and (not read.has("tests") or read.get("tests") == []):
                read.report("EmptyFile", "the file holds no test", hint=_BEGINNING)
            for index in range(len(read.sequence("tests"))):
                trial = _read(read, index)
                if trial is not None:
                    found.append(trial)
    return found


def run_trials(trials: Iterable[Trial], rules: RuleSet) -> list[Problem]:
    """What the rules fail."""
    return [problem for trial in trials if (problem := trial.run(rules)) is not None]


def _read(read: Fields, index: int) -> Trial | None:
    path = ("tests", index)
    before = len(read.problems)
    if read.mapping(*path, known=_TEST) is None:
        return None
    if not read.has(*path, "expect"):
        read.report("MissingExpect", "a test says what it expects", *path, hint="add expect: {value: -0.5}")
        return None
    expect = _expect(read, *path, "expect")
    name = read.text(*path, "name") if read.has(*path, "name") else f"test {index + 1}"
    signals = [_signal(read, *path, "signals", place) for place in range(len(read.sequence(*path, "signals")))]
    facts = _facts(read, *path)
    if len(read.problems) > before or name is None:
        return None
    kept = tuple(signal for signal in signals if signal is not None)
    return Trial(name, kept, facts, expect, read.document.problem("", "", *path))


def _expect(read: Fields, *path: str | int) -> dict[str, Any]:
    said = read.mapping(*path, known=_EXPECT)
    if said is not None and not said:
        read.report("MissingExpect", "`expect` is empty", *path, hint=f"say one of {', '.join(_EXPECT)}")
    found: dict[str, Any] = {}
    for name, value in (said or {}).items():
        if name in _LISTS:
            found[name] = list(read.texts(*path, name)) if value != [] else []
        elif value is None or (name == "unscored" and value is True):
            found[name] = value
        else:
            found[name] = read.text(*path, name) if name == "unscored" else read.number(*path, name)
    return found


def _signal(read: Fields, *path: str | int) -> KeptSignal | None:
    said = read.mapping(*path, known=_SIGNAL)
    if said is None:
        return None
    source = read.text(*path, "source")
    unscored = read.text(*path, "unscored") if "unscored" in said else None
    value = None if unscored is not None else read.number(*path, "value")
    confidence = read.number(*path, "confidence", low=0, high=1) if "confidence" in said else 1.0
    at = read.seconds(*path, "at") if "at" in said else 0.0
    if source is None or confidence is None or at is None:
        return None
    moment = round(at * MICROS)
    priority, key = (read.text(*path, name) if said.get(name) is not None else None for name in ("priority", "key"))
    refs = None
    if said.get("refs") is not None:
        refs = {kind: read.text(*path, "refs", kind) or "" for kind in read.mapping(*path, "refs") or ()}
    return KeptSignal(
        fingerprint(list(path)), source, value, _EVENT.id, _EVENT.session_id, moment, moment, confidence,
        unscored=unscored, priority=priority, key=key or "", refs=refs,
    )  # fmt: skip


def _facts(read: Fields, *path: str | int) -> Facts:
    def row(kind: Fact, *at: str | int) -> dict[str, JsonValue]:
        said = read.mapping(*path, *at, known=FIELDS[kind]) or {}
        return {name: said.get(name) for name in FIELDS[kind]}

    def rows(kind: Fact, name: str) -> list[dict[str, JsonValue]]:
        return [row(kind, name, place) for place in range(len(read.sequence(*path, name)))]

    session = row("session", "session") if read.has(*path, "session") else dict.fromkeys(FIELDS["session"])
    state = read.mapping(*path, "state", known=("nodes",)) if read.has(*path, "state") else None
    return Facts(
        session=session | {"id": _EVENT.session_id, "event_id": _EVENT.id},
        action=row("action", "action") if read.has(*path, "action") else None,
        conditions=rows("condition", "conditions"),
        evidence=row("evidence", "evidence") if read.has(*path, "evidence") else None,
        prompt_rules=rows("prompt_rule", "prompt_rules"),
        state=state or {},
    )


def _got(conclusion: Conclusion) -> dict[str, Any]:
    fired = sorted({each.rule for each in conclusion.fired})
    return {
        "value": None if conclusion.micro is None else conclusion.micro / MICRO,
        "micro": conclusion.micro,
        "unscored": conclusion.reason.code if conclusion.reason is not None else None,
        "fired": fired,
        "not_fired": fired,
        "missing": list(conclusion.missing),
        "flags": list(conclusion.flags),
    }


def _fits(name: str, wanted: Any, got: Mapping[str, Any]) -> bool:
    found = got[name]
    match name:
        case "value":
            same = found is not None and wanted is not None and round(wanted * MICRO) == round(found * MICRO)
            return same or found is wanted is None
        case "fired":
            return set(wanted) <= set(found)
        case "not_fired":
            return not set(wanted) & set(found)
        case "unscored":
            return wanted == found or (wanted is True and found is not None)
        case "micro":
            return wanted == found
        case _:
            return sorted(wanted) == sorted(found)
