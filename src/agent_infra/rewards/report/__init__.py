"""Explanations: a record in, text out. Nothing is looked up or computed anew, so that what is shown is what was trained on.

telling    what a woven reward's record says, as pieces
content    the pieces; words: the languages
markdown, html   how they look
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent_infra.errors import ReportUnknown
from agent_infra.rewards.report.content import Content, Words
from agent_infra.rewards.report.html import to_html
from agent_infra.rewards.report.markdown import to_markdown
from agent_infra.rewards.report.telling import tell

__all__ = ["FORMATS", "Content", "render", "render_content"]

FORMATS = ("markdown", "html", "json")


def render(record: Mapping[str, Any], cid: str, format: str, language: str) -> str:
    """A record as a Markdown or HTML text in a language, or as JSON text. Raises ReportUnknown."""
    if format == "json":
        Words(language)
        return json.dumps({**record, "cid": cid}, ensure_ascii=False, indent=2)
    return render_content(tell(record, cid, language), format)


def render_content(content: Content, format: str) -> str:
    """A report as Markdown or HTML text. Raises ReportUnknown for another format."""
    if format == "markdown":
        return to_markdown(content)
    if format == "html":
        return to_html(content)
    raise ReportUnknown(
        f"there is no report format {format!r}", mend=f"Formats are {', '.join(FORMATS)}.", facts={"format": format}
    )
