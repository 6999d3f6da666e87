"""Which event a signal is about: the one that it names, the one that its business keys lead to, or one by time.

A ticket system knows its tickets, and none of our ids: steps refer to business keys (`step.refer("ticket", "T-8841")`, or
`refers:` in a contract), and a signal that carries such keys in its `refs` belongs to an event of a step that refers to
all of them. Time decides only for sources that declare `join: session`, which can't give anything better.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent_infra.clock import MICROS
from agent_infra.rewards.ledger import Ledger
from agent_infra.rewards.rules.model import SourceTerms
from agent_infra.rewards.signals import CheckedSignal, Event, Joined
from agent_infra.state import Referring, StateEngine, referring


@dataclass(frozen=True, slots=True)
class Match:
    """What was found: one event; or none, and why. `refused` is the word for what can't become better by waiting."""

    event: Event | None = None
    joined: Joined = "event_id"
    why: str = ""
    refused: str | None = None


def match_refs(engine: StateEngine, ledger: Ledger, refs: dict[str, str], terms: SourceTerms) -> Match:
    """The event that business keys lead to. Keys that nothing refers to yet are waited for, unless another one leads on."""
    found: list[set[str]] = []
    for kind, value in refs.items():
        events = {id for each in referring(engine, kind, value) for id in _events_of(ledger, each)}
        if events:
            found.append(events)
    shown = ", ".join(f"{kind} {value}" for kind, value in refs.items())
    if not found:
        return Match(why=f"nothing refers to {shown} yet")
    events = sorted(
        (ledger.event(id) for id in found[0].intersection(*found[1:])), key=lambda event: (event.created, event.id)
    )
    if len(events) == 1:
        return Match(events[0], "refs")
    if not events:
        return Match(why=f"no one event refers to all of {shown}")
    if terms.ambiguous == "newest":
        return Match(events[-1], "refs")
    if terms.ambiguous == "oldest":
        return Match(events[0], "refs")
    why = f"{len(events)} events refer to {shown}: {', '.join(event.id for event in events[:5])}"
    return Match(why=why, refused="ambiguous" if terms.ambiguous == "refuse" else None)


def match_window(ledger: Ledger, signal: CheckedSignal, at: int, window: float) -> Match:
    """The newest event of the signal's session that it may be about: begun before it, and at most `window` seconds."""
    session = signal.session_id or ""
    span = round(window * MICROS)
    events = [event for event in ledger.events_of(session) if event.created <= at <= event.created + span]
    if not events:
        why = f"session {session!r} has no event in the {window:g} s before it"
        return Match(why=why, refused="no_event_in_window")
    return Match(max(events, key=lambda event: (event.created, event.id)), "window")


def _events_of(ledger: Ledger, referring_step: Referring) -> Iterable[str]:
    """The events of a step that refers to a key; of one that holds none, all events of its session."""
    own = ledger.events_among(referring_step.nodes)
    return own or [event.id for event in ledger.events_of(referring_step.session)]
