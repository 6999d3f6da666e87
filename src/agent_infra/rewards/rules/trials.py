"""Tests of rules, written beside them (`*.test.yaml`): facts of an event, and what the rules must make of them.

They run whenever the rules are loaded; a set that fails one doesn't come into force.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from agent_infra.clock import MICROS
from agent_infra.content import JsonValue, fingerprint
from agent_infra.documents import Fields, survey_documents
from agent_infra.errors import Problem
from agent_infra.rewards.rules.model import FIELDS, Fact, RuleSet
from agent_infra.rewards.signals import Event, KeptSignal
from agent_infra.rewards.weaving.contributions import MICRO, Conclusion, conclude
from agent_infra.rewards.weaving.matching import Facts

_TEST: Final = ("name", "signals", "session", "action", "conditions", "evidence", "prompt_rules", "state", "expect")
_SIGNAL: Final = ("source", "value", "at", "confidence", "priority", "key", "refs", "unscored")
_EXPECT: Final = ("value", "unscored", "fired", "not_fired", "missing", "flags")
_EVENT: Final = Event("event", "session", 0)


@dataclass(frozen=True, slots=True)
class Trial:
    """One test: what it is called, what is given, what is expected, and where it stands."""

    name: str
    signals: tuple[KeptSignal, ...]
    facts: Facts
    expect: Mapping[str, JsonValue]
    spot: Problem

    def run(self, rules: RuleSet) -> Problem | None:
        """What is not as expected; None if all is."""
        undeclared = sorted({signal.source for signal in self.signals} - set(rules.sources))
        if undeclared:
            return self._failed(f"no source {', '.join(undeclared)} is declared")
        got = _got(conclude(self.signals, rules, self.facts, _EVENT))
        wrong = [name for name, wanted in self.expect.items() if not _fits(name, wanted, got)]
        told = [f"{name} is {got[name]!r}, expected {self.expect[name]!r}" for name in wrong]
        return self._failed("; ".join(told)) if told else None

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
        for document in documents:
            read = Fields(document, problems)
            if read.mapping(known=("version", "tests")) is None:
                continue
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
    expect = read.mapping(*path, "expect", known=_EXPECT) or {}
    name = read.text(*path, "name") if read.has(*path, "name") else f"test {index + 1}"
    signals = [_signal(read, *path, "signals", place) for place in range(len(read.sequence(*path, "signals")))]
    facts = _facts(read, *path)
    if len(read.problems) > before or name is None:
        return None
    kept = tuple(signal for signal in signals if signal is not None)
    return Trial(name, kept, facts, expect, read.document.problem("", "", *path))


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
    further: dict[str, Any] = {name: said.get(name) for name in ("priority", "refs")}
    key = str(said.get("key", ""))
    return KeptSignal(
        fingerprint(list(path)), source, value, _EVENT.id, _EVENT.session_id, moment, moment, confidence,
        unscored=unscored, key=key, **further,
    )  # fmt: skip


def _facts(read: Fields, *path: str | int) -> Facts:
    def row(kind: Fact, *at: str | int) -> dict[str, JsonValue]:
        said = read.mapping(*path, *at, known=FIELDS[kind]) or {}
        return {name: said.get(name) for name in FIELDS[kind]}

    def rows(kind: Fact, name: str) -> list[dict[str, JsonValue]]:
        return [row(kind, name, place) for place in range(len(read.sequence(*path, name)))]

    session = row("session", "session") if read.has(*path, "session") else dict.fromkeys(FIELDS["session"])
    return Facts(
        session=session | {"id": _EVENT.session_id, "event_id": _EVENT.id},
        action=row("action", "action") if read.has(*path, "action") else None,
        conditions=rows("condition", "conditions"),
        evidence=row("evidence", "evidence") if read.has(*path, "evidence") else None,
        prompt_rules=rows("prompt_rule", "prompt_rules"),
        state=cast("dict[str, JsonValue]", read.get(*path, "state") or {}),
    )


def _got(conclusion: Conclusion) -> dict[str, Any]:
    fired = sorted({each.rule for each in conclusion.fired})
    return {
        "value": None if conclusion.micro is None else conclusion.micro / MICRO,
        "unscored": conclusion.reason.code if conclusion.reason is not None else None,
        "fired": fired,
        "not_fired": fired,
        "missing": list(conclusion.missing),
        "flags": list(conclusion.flags),
    }


def _fits(name: str, wanted: JsonValue, got: Mapping[str, Any]) -> bool:
    found = got[name]
    if name == "value":
        return found is not None and isinstance(wanted, int | float) and round(wanted * MICRO) == round(found * MICRO)
    listed = wanted if isinstance(wanted, list) else [wanted]
    if name == "fired":
        return set(listed) <= set(found)
    if name == "not_fired":
        return not set(listed) & set(found)
    if name == "unscored":
        return wanted == found or (wanted is True and found is not None)
    return sorted(map(str, listed)) == sorted(map(str, found))
