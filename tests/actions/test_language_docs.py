"""The page about the language is true: its tools load, and its examples compile."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from agent_infra import Infra
from agent_infra.actions.language.contract import RETRIABLE, RETRIED
from agent_infra.actions.language.domains import KEYWORDS
from agent_infra.actions.language.reader import ACTION_KEYS

TEXT = (Path(__file__).parents[2] / "docs" / "actions.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)


def test_its_examples_compile(infra: Infra, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tools, space = blocks("python")
    (tmp_path / "page_tools.py").write_text(tools, encoding="utf-8")
    infra.tools.load_module(tmp_path / "page_tools.py")
    folder = tmp_path / "examples"
    folder.mkdir()
    for number, text in enumerate(blocks("yaml")):
        (folder / f"{number}.yaml").write_text(text, encoding="utf-8")
    names = [contract.name for contract in infra.actions.load(folder)]
    assert names == ["parse_report", "pay_invoice", "first_page", "last_page"]
    assert not [each for each in caplog.records if "action_file" in each.getMessage()]
    graph = infra.session("页")
    graph.add_node("report", {"pages": 12, "status": "ready"}, key="pdf_report")
    names_of_it: dict[str, Any] = {"infra": infra, "graph": graph}
    exec(space, names_of_it)
    assert "50 is greater than the maximum of 12" in names_of_it["verdict"].reason
    assert names_of_it["result"].ok, names_of_it["result"]


def test_it_names_every_word_of_the_language() -> None:
    for word in (*ACTION_KEYS, *KEYWORDS, *RETRIABLE):
        assert re.search(rf"\b{word}\b", TEXT), word
    assert f"`on` {', '.join(RETRIED)}" in TEXT
