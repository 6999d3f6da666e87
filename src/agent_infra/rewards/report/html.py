"""A report as one HTML page: nothing is loaded from elsewhere, and text from outside is escaped."""

from __future__ import annotations

from html import escape
from typing import Final

from agent_infra.rewards.report.content import (
    Block,
    Bullets,
    Code,
    Content,
    Line,
    Paragraph,
    Piece,
    Plain,
    Section,
    Strong,
    Table,
)

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c1f24; --paper: #ffffff; --faint: #5b6470; --rule: #d7dce2; --mark: #f2f4f7;
  --good: 22, 130, 93; --bad: 190, 60, 48; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaee; --paper: #15181d; --faint: #9aa4b1; --rule: #333b45;
  --mark: #20252c; --good: 70, 190, 140; --bad: 240, 120, 105; } }
body { margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: var(--ink); background: var(--paper);
  font: 16px/1.55 system-ui, "Noto Sans CJK SC", "WenQuanYi Zen Hei", sans-serif; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
code { background: var(--mark); padding: 0.1em 0.3em; border-radius: 3px; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; min-width: 60%; } caption { text-align: left; color: var(--faint); }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.8rem 0.3rem 0; border-bottom: 1px solid var(--rule); }
.number { text-align: right; font-variant-numeric: tabular-nums; }
mark { color: inherit; padding: 0.1em 0; } mark small { color: var(--faint); }
@media print { body { margin: 0; max-width: none; } }
"""


def to_html(content: Content) -> str:
    """The whole report."""
    lead = "<br>\n".join(_line(line) for line in content.lead)
    sections = "\n".join(_section(section) for section in content.sections)
    return (
        f'<!doctype html>\n<html lang="{escape(content.language)}">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(content.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(content.title)}</h1>\n<p>{lead}</p>\n{sections}\n</main>\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    blocks = "\n".join(_block(block, section.title) for block in section.blocks)
    return f"<section>\n<h2>{escape(section.title)}</h2>\n{blocks}\n</section>"


def _block(block: Block, title: str) -> str:
    match block:
        case Paragraph(line):
            return f"<p>{_line(line)}</p>"
        case Bullets(lines):
            return "<ul>\n" + "\n".join(f"<li>{_line(line)}</li>" for line in lines) + "\n</ul>"
        case Table():
            return _table(block, title)


def _table(table: Table, title: str) -> str:
    def kind(place: int) -> str:
        return ' class="number"' if place in table.numbers else ""

    head = "".join(f'<th scope="col"{kind(place)}>{escape(name)}</th>' for place, name in enumerate(table.columns))
    rows = [
        "<tr>" + "".join(f"<td{kind(place)}>{_line(cell)}</td>" for place, cell in enumerate(row)) + "</tr>"
        for row in table.rows
    ]
    body = "\n".join(rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}">\n<table>\n'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>"
    )


def _line(line: Line) -> str:
    return "".join(_piece(piece) for piece in line)


def _piece(piece: Piece) -> str:
    match piece:
        case Plain(text):
            return escape(text)
        case Strong(text):
            return f"<strong>{escape(text)}</strong>"
        case Code(text):
            return f"<code>{escape(text)}</code>"
        case _:
            tone = "good" if piece.share >= 0 else "bad"
            shade = f"background: rgba(var(--{tone}), {min(abs(piece.share), 1) * 0.6:.2f})"
            return f'<mark style="{shade}">{escape(piece.text)}<small> {piece.share:+.0%}</small></mark>'
