"""The explanation of a woven reward, told from its record and nothing else.

Its lead, the first three lines, answers "why this value": the value, what made it, and what contradicts or is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from agent_infra.rewards.report.content import (
    Block,
    Bullets,
    Code,
    Content,
    Line,
    Paragraph,
    Plain,
    Section,
    Shade,
    Strong,
    Table,
    Words,
    micro_text,
    span_text,
)

_SHOWN: Final = 3
Record = Mapping[str, Any]


def tell(record: Record, cid: str, language: str) -> Content:
    """A record as a report. Raises ReportUnknown for a language that there is none of."""
    words = Words(language)
    if record["micro"] is None:
        title = words.text("title_unscored")
    else:
        status = words.text(f"status_{record['status']}")
        title = words.text("title", value=micro_text(record["micro"], sign=False), status=status)
    sections = [
        section
        for section in (
            _contributions(record, words),
            _raises(record, words),
            _heatmap(record, words),
            _events(record, words),
            _signals(record, words),
            _rules(record, words),
            _near(record, words),
            _remarks(record, words),
            _identity(record, cid, words),
        )
        if section is not None
    ]
    return Content(title, [_why(record, words), _against(record, words)], sections, language)


# -- the first three lines -------------------------------------------------------------------------------------------


def _why(record: Record, words: Words) -> Line:
    return [Strong(words.text("why")), Plain(" "), *_reason(record, words)]


def _reason(record: Record, words: Words) -> Line:
    reason = record["reason"]
    if reason is not None:
        return words.line(f"reason_{reason['code']}", detail=Code(reason["detail"]))
    rows = sorted((row for row in record["contributions"] if row["micro"]), key=lambda row: -abs(row["micro"]))
    shown: list[Line] = [[*_who(row, words), Plain(f" {micro_text(row['micro'])}")] for row in rows[:_SHOWN]]
    if len(rows) > _SHOWN:
        shown.append(words.line("others", count=str(len(rows) - _SHOWN)))
    return words.join(shown) or words.line("all_zero")


def _who(row: Mapping[str, Any], words: Words) -> Line:
    return words.line("by_rule", rule=Code(row["rule"])) if row["rule"] is not None else [Code(row["source"])]


def _against(record: Record, words: Words) -> Line:
    against = [_conflict(conflict, words) for conflict in record["conflicts"]]
    missing = [_missing(name, record, words) for name in record["missing"]]
    return [
        Strong(words.text("conflicts")),
        Plain(" "),
        *(words.join(against, "semicolon") or words.line("none")),
        Plain(" "),
        Strong(words.text("missing")),
        Plain(" "),
        *(words.join(missing) or words.line("nothing")),
    ]


def _conflict(conflict: Mapping[str, Any], words: Words) -> Line:
    line = words.line(
        "conflict",
        high=Code(conflict["high"]),
        high_value=f"{conflict['high_value']:+.2f}",
        low=Code(conflict["low"]),
        low_value=f"{conflict['low_value']:+.2f}",
        kind=words.text(f"kind_{conflict['kind']}"),
    )
    resolved = conflict["resolved_by"]
    return [*line, *words.line("resolved", rule=Code(resolved))] if resolved is not None else line


def _missing(name: str, record: Record, words: Words) -> Line:
    """A source that is missing, and why, where it said so itself."""
    said = next((row["unscored"] for row in record["signals"] if row["source"] == name and row.get("unscored")), None)
    return [Code(name), *words.line("because", why=Code(said))] if said else [Code(name)]


# -- what made the value ---------------------------------------------------------------------------------------------


def _contributions(record: Record, words: Words) -> Section | None:
    rows = record["contributions"]
    if not rows:
        return None
    lines: list[list[Line]] = [[[Plain(words.text("base"))], [], [Plain(micro_text(0))]]]
    lines += [_contribution(row) for row in rows]
    total = micro_text(sum(row["micro"] for row in rows))
    lines.append([[Strong(words.text("sum"))], [], [Strong(total)]])
    blocks: list[Block] = [_table(words, ("source", "rule", "value"), lines, {2})]
    if record.get("base") is not None:
        blocks.append(Paragraph(words.line("sources_alone", value=micro_text(record["base"]))))
    confidence = record.get("confidence")
    if confidence is not None:
        blocks += _confidence(confidence, words)
    return Section(words.text("contributions"), blocks)


def _contribution(row: Mapping[str, Any]) -> list[Line]:
    return [
        [Code(row["source"])] if row["source"] else [],
        [Code(row["rule"])] if row["rule"] else [],
        [Plain(micro_text(row["micro"]))],
    ]


def _confidence(confidence: Mapping[str, Any], words: Words) -> list[Block]:
    lines = [words.line("sure", share=f"{confidence['share']:.0%}")]
    interval = confidence["interval"]
    if interval is not None:
        ends = f"{interval['low']:+.4f}", f"{interval['high']:+.4f}"
        level, method = f"{interval['level']:.0%}", words.text(f"method_{interval['method']}")
        lines.append(words.line("interval", low=ends[0], high=ends[1], level=level, method=method))
    return [Paragraph(line) for line in lines]


def _raises(record: Record, words: Words) -> Section | None:
    raises = record.get("raises")
    if not raises:
        return None
    lines = [
        words.line(
            f"raise_{row['how']}",
            name=Code(row["name"]),
            value=micro_text(row["micro"], sign=False),
            gain=micro_text(row["gain"]),
        )
        for row in raises
    ]
    return Section(words.text("raises"), [Bullets(lines)])


def _heatmap(record: Record, words: Words) -> Section | None:
    found = record.get("heatmap")
    if not found:
        return None
    largest = max((abs(each["share"]) for each in found["sentences"]), default=0) or 1
    text: Line = []
    for each in found["sentences"]:
        text += [Shade(each["text"], each["share"] / largest), Plain(" ")]
    note = words.line("heatmap_note", method=words.text(f"method_{found['method']}"), scorer=Code(found["scorer"]))
    failed = [words.line("heatmap_failed", why=Code(found["failed"]))] if found.get("failed") else []
    return Section(words.text("heatmap"), [Paragraph(text), Paragraph(note), *(Paragraph(line) for line in failed)])


# -- what it was drawn from ------------------------------------------------------------------------------------------


def _events(record: Record, words: Words) -> Section | None:
    lines: list[list[Line]] = [
        [
            [Code(part["event_id"])],
            [Plain(words.text(f"status_{part['status']}"))],
            [Plain(words.text("no_value") if part["micro"] is None else micro_text(part["micro"]))],
            [Code(part["cid"])],
        ]
        for part in record["parts"]
    ]
    if not lines:
        return None
    combined = Paragraph(words.line(f"episode_{record['episode']}"))
    return Section(words.text("events"), [_table(words, ("event", "status", "value", "record"), lines, {2}), combined])


def _signals(record: Record, words: Words) -> Section | None:
    signals = record["signals"]
    if not signals:
        return None
    columns = ("source", "raw", "normal", "weight", "confidence", "at", "used")
    blocks: list[Block] = [_table(words, columns, [_signal(row, words) for row in signals], {2, 3, 4})]
    quotes = [_evidence(row) for row in signals if row["evidence"] is not None]
    return Section(words.text("signals"), [*blocks, Bullets(quotes)] if quotes else blocks)


def _signal(row: Mapping[str, Any], words: Words) -> list[Line]:
    if row["value"] is None:
        raw: Line = words.line("gave_none", why=Code(row.get("unscored") or ""))
    else:
        within = "" if row["range"] is None else words.text("within", range=span_text(row["range"]))
        raw = [Plain(f"{row['value']:g}{within}")]
    used = words.text(f"left_{row['left_out']}") if row["left_out"] else words.text("counts")
    joined = row.get("joined")
    note = words.text(f"joined_{joined}") if joined not in (None, "event_id") else ""
    return [
        [Code(row["source"])],
        raw,
        [Plain("" if row["normal"] is None else f"{row['normal']:+.4f}")],
        [Plain("" if row["weight"] is None else f"{row['weight']:g}")],
        [Plain(f"{row['confidence']:g}")],
        [Plain(row["at"])],
        [Plain(f"{used}{note}")],
    ]


def _evidence(row: Mapping[str, Any]) -> Line:
    """What a signal's evidence says, and the CID of the original."""
    quoted: Line = [Code(row["quote"]), Plain(" ")] if row["quote"] else []
    return [Code(row["source"]), Plain(": "), *quoted, Plain("("), Code(row["evidence"]["$cid"]), Plain(")")]


def _rules(record: Record, words: Words) -> Section:
    fired = record["rules"]
    if not fired:
        return Section(words.text("rules"), [Paragraph(words.line("no_rule_fired"))])
    lines: list[list[Line]] = [
        [
            [Code(row["rule"])],
            [Plain(row["effect"])],
            [Plain(str(row["matches"]))],
            [Plain(", ".join(f"{amount:g}" for amount in row["amounts"]))] if row["amounts"] else _what(row, words),
            [Code(row["place"])] if row["place"] else [],
        ]
        for row in fired
    ]
    columns = ("rule", "effect", "matches", "amounts", "place")
    return Section(words.text("rules"), [_table(words, columns, lines, {2, 3})])


def _what(row: Mapping[str, Any], words: Words) -> Line:
    return words.codes(row["sources"]) or ([Code(row["text"])] if row["text"] else [])


def _near(record: Record, words: Words) -> Section | None:
    near = record.get("near")
    if not near:
        return None
    lines: list[Line] = []
    for row in near:
        values = words.join([[Code(f"{name} = {value}")] for name, value in row["values"].items()])
        shown = words.line("near_values", values=values) if values else []
        lines.append([*words.line("near_rule", rule=Code(row["rule"]), condition=Code(row["condition"])), *shown])
    return Section(words.text("near"), [Bullets(lines)])


def _remarks(record: Record, words: Words) -> Section | None:
    lines: list[Line] = [_remark("flag", flag, words) for flag in record["flags"]]
    lines += [_remark("doubt", doubt, words) for doubt in record["doubts"]]
    return Section(words.text("remarks"), [Bullets(lines)]) if lines else None


def _remark(kind: str, text: str, words: Words) -> Line:
    return [Plain(f"{words.text(kind)} "), Code(text)]


def _identity(record: Record, cid: str, words: Words) -> Section:
    closes = record["closes_at"] if record["status"] in ("waiting", "unscored") else None
    facts: dict[str, Line | str | None] = {
        "session": record["session"],
        "event": words.codes(record["event_ids"]),
        "rule_set": record["rule_set"],
        "version": record["version"],
        "record": cid,
        "previous": record["previous"],
        "woven_at": record["woven_at"],
        "closes_at": closes,
    }
    lines: list[Line] = []
    for name, value in facts.items():
        if value:
            line: Line = [Plain(f"{words.text(name)}: ")]
            line += [Code(value)] if isinstance(value, str) else value
            lines.append(line)
    return Section(words.text("identity"), [Bullets(lines)])


def _table(words: Words, columns: Sequence[str], rows: Sequence[Sequence[Line]], numbers: set[int]) -> Table:
    return Table([words.text(column) for column in columns], rows, frozenset(numbers))
