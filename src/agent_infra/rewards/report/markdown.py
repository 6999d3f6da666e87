"""The explanation of a woven reward, written from its record and nothing else.

Its first three lines answer "why this value": the value, what made it, and what contradicts or is missing. Text that
came from outside (names, quotes, flags) stands in code spans, so that nothing in it can pass for markup.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent_infra.errors import ReportUnknown
from agent_infra.rewards.report.words import WORDS

_SHOWN: Final = 3
_FENCES = re.compile(r"`+")
_SPACE = re.compile(r"[\s\x00-\x1f\x7f]+")


def render(record: Mapping[str, Any], cid: str, format: str, language: str) -> str:
    """A record as Markdown text in a language, or as JSON text. Raises ReportUnknown."""
    words = WORDS.get(language)
    if words is None:
        raise ReportUnknown(
            f"there is no report in the language {language!r}",
            mend=f"Languages are {', '.join(sorted(WORDS))}.",
            facts={"language": language},
        )
    if format == "json":
        return json.dumps({**record, "cid": cid}, ensure_ascii=False, indent=2)
    if format != "markdown":
        raise ReportUnknown(
            f"there is no report format {format!r}", mend="Formats are markdown, json.", facts={"format": format}
        )
    return _Report(record, cid, words).text()


def code(text: object) -> str:
    """Any text as a Markdown code span on one line, also inside a table."""
    plain = _SPACE.sub(" ", str(text)).strip().replace("|", "\\|") or " "
    longest = max((len(found) for found in _FENCES.findall(plain)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


def micro_text(micro: int, *, sign: bool = True) -> str:
    """Micro-units as an exact decimal."""
    whole, part = divmod(abs(micro), 1_000_000)
    mark = "-" if micro < 0 else "+" if sign and micro else ""
    return f"{mark}{whole}.{part:06d}"


def _span(ends: Sequence[float]) -> str:
    return f"[{ends[0]:g}, {ends[1]:g}]"


class _Report:
    """One report being written."""

    def __init__(self, record: Mapping[str, Any], cid: str, words: Mapping[str, str]) -> None:
        self._record = record
        self._cid = cid
        self._words = words

    def text(self) -> str:
        """The whole report."""
        parts = [
            self._head(),
            self._contributions(),
            self._events(),
            self._signals(),
            self._rules(),
            self._remarks(),
            self._identity(),
        ]
        return "\n\n".join("\n".join(part) for part in parts if part) + "\n"

    def _say(self, word: str, **values: object) -> str:
        return self._words[word].format(**values)

    # -- the first three lines ---------------------------------------------------------------------------------------

    def _head(self) -> list[str]:
        record = self._record
        status = self._say(f"status_{record['status']}")
        if record["micro"] is None:
            title = self._say("title_unscored")
        else:
            title = self._say("title", value=micro_text(record["micro"], sign=False), status=status)
        against = [self._conflict(conflict) for conflict in record["conflicts"]]
        return [
            f"# {title}",
            f"**{self._say('why')}** {self._why()}  ",
            f"**{self._say('conflicts')}** {self._words['semicolon'].join(against) or self._say('none')} "
            f"**{self._say('missing')}** {self._codes(record['missing']) or self._say('nothing')}",
        ]

    def _why(self) -> str:
        reason = self._record["reason"]
        if reason is not None:
            return self._say(f"reason_{reason['code']}", detail=code(reason["detail"]))
        rows = [row for row in self._record["contributions"] if row["micro"]]
        rows.sort(key=lambda row: -abs(row["micro"]))
        shown = [f"{self._who(row)} {micro_text(row['micro'])}" for row in rows[:_SHOWN]]
        if len(rows) > _SHOWN:
            shown.append(self._say("others", count=len(rows) - _SHOWN))
        return self._words["list"].join(shown) or self._say("all_zero")

    def _who(self, row: Mapping[str, Any]) -> str:
        return self._say("by_rule", rule=code(row["rule"])) if row["rule"] is not None else code(row["source"])

    def _conflict(self, conflict: Mapping[str, Any]) -> str:
        text = self._say(
            "conflict",
            high=code(conflict["high"]),
            high_value=f"{conflict['high_value']:+.2f}",
            low=code(conflict["low"]),
            low_value=f"{conflict['low_value']:+.2f}",
            kind=self._say(f"kind_{conflict['kind']}"),
        )
        resolved = conflict["resolved_by"]
        return text + self._say("resolved", rule=code(resolved)) if resolved is not None else text

    def _codes(self, names: Iterable[str]) -> str:
        return self._words["list"].join(code(name) for name in names)

    # -- tables ------------------------------------------------------------------------------------------------------

    def _contributions(self) -> list[str]:
        rows = self._record["contributions"]
        if not rows:
            return []
        lines = [
            [
                code(row["source"]) if row["source"] else "",
                code(row["rule"]) if row["rule"] else "",
                micro_text(row["micro"]),
            ]
            for row in rows
        ]
        total = micro_text(sum(row["micro"] for row in rows))
        lines.append([f"**{self._say('sum')}**", "", f"**{total}**"])
        return self._table("contributions", ("source", "rule", "value"), lines)

    def _events(self) -> list[str]:
        lines = [
            [
                code(part["event_id"]),
                self._say(f"status_{part['status']}"),
                self._say("no_value") if part["micro"] is None else micro_text(part["micro"]),
                code(part["cid"]),
            ]
            for part in self._record["parts"]
        ]
        if not lines:
            return []
        return [
            *self._table("events", ("event", "status", "value", "record"), lines),
            "",
            self._say(f"episode_{self._record['episode']}"),
        ]

    def _signals(self) -> list[str]:
        signals = self._record["signals"]
        if not signals:
            return []
        lines = [
            [
                code(row["source"]),
                f"{row['value']:g}" + ("" if row["range"] is None else self._say("within", range=_span(row["range"]))),
                "" if row["normal"] is None else f"{row['normal']:+.4f}",
                "" if row["weight"] is None else f"{row['weight']:g}",
                f"{row['confidence']:g}",
                row["at"],
                self._say(f"left_{row['left_out']}") if row["left_out"] else self._say("counts"),
            ]
            for row in signals
        ]
        columns = ("source", "raw", "normal", "weight", "confidence", "at", "used")
        quotes = [line for row in signals for line in self._evidence(row)]
        return [*self._table("signals", columns, lines), *(["", *quotes] if quotes else [])]

    def _evidence(self, row: Mapping[str, Any]) -> list[str]:
        """The line of a signal's evidence: what it says, and the CID of the original."""
        if row["evidence"] is None:
            return []
        quoted = f"{code(row['quote'])} " if row["quote"] else ""
        return [f"- {code(row['source'])}: {quoted}({code(row['evidence']['$cid'])})"]

    def _rules(self) -> list[str]:
        fired = self._record["rules"]
        if not fired:
            return [f"## {self._say('rules')}", "", self._say("no_rule_fired")]
        lines = [
            [
                code(row["rule"]),
                row["effect"],
                str(row["matches"]),
                ", ".join(f"{amount:g}" for amount in row["amounts"]) or self._codes(row["sources"]),
                code(row["place"]) if row["place"] else "",
            ]
            for row in fired
        ]
        return self._table("rules", ("rule", "effect", "matches", "amounts", "place"), lines)

    def _remarks(self) -> list[str]:
        lines = [f"- {self._say('flag')} {code(flag)}" for flag in self._record["flags"]]
        lines += [f"- {self._say('doubt')} {code(doubt)}" for doubt in self._record["doubts"]]
        return [f"## {self._say('remarks')}", "", *lines] if lines else []

    def _identity(self) -> list[str]:
        record = self._record
        closes = record["closes_at"] if record["status"] in ("waiting", "unscored") else None
        facts = {
            "session": record["session"],
            "event": self._words["list"].join(record["event_ids"]),
            "rule_set": record["rule_set"],
            "version": record["version"],
            "record": self._cid,
            "previous": record["previous"],
            "woven_at": record["woven_at"],
            "closes_at": closes,
        }
        lines = [f"- {self._say(name)}: {code(value)}" for name, value in facts.items() if value]
        return [f"## {self._say('identity')}", "", *lines]

    def _table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
        names = [self._say(column) for column in columns]
        lines = [names, ["---"] * len(names), *rows]
        return [f"## {self._say(title)}", "", *(f"| {' | '.join(line)} |" for line in lines)]
