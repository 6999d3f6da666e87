"""A report as Markdown. Text from outside stands in code spans, so that nothing in it can pass for markup."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agent_infra.rewards.report.content import (
    Block,
    Bullets,
    Code,
    Content,
    Line,
    Paragraph,
    Piece,
    Plain,
    Strong,
    Table,
)

_FENCES = re.compile(r"`+")
_SPACE = re.compile(r"[\s\x00-\x1f\x7f]+")


def to_markdown(content: Content) -> str:
    """The whole report."""
    parts = [f"# {content.title}\n" + "  \n".join(_line(line) for line in content.lead)]
    parts += [
        "\n\n".join([f"## {section.title}", *(_block(block) for block in section.blocks)])
        for section in content.sections
    ]
    return "\n\n".join(parts) + "\n"


def code(text: object) -> str:
    """Any text as a Markdown code span on one line, also inside a table."""
    plain = _SPACE.sub(" ", str(text)).strip().replace("|", "\\|") or " "
    longest = max((len(found) for found in _FENCES.findall(plain)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


def _block(block: Block) -> str:
    match block:
        case Paragraph(line):
            return _line(line)
        case Bullets(lines):
            return "\n".join(f"- {_line(line)}" for line in lines)
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    rule = ["---:" if place in table.numbers else "---" for place in range(len(table.columns))]
    rows: list[Sequence[str]] = [table.columns, rule, *([_line(cell) for cell in row] for row in table.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _line(line: Line) -> str:
    return "".join(_piece(piece) for piece in line)


def _piece(piece: Piece) -> str:
    match piece:
        case Plain(text):
            return text
        case Strong(text):
            return f"**{text}**"
        case Code(text):
            return code(text)
        case _:
            return f"{code(piece.text)} {piece.share:+.0%}"
