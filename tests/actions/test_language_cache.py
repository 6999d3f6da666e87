"""The cache of programs: what is taken from it, what makes it stale, and that nothing damaged is ever used."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_infra import Infra
from agent_infra.actions import language
from agent_infra.actions.language import Contract, PlainSchemas, ProgramCache, cache
from agent_infra.actions.loading import ActionFiles
from agent_infra.actions.tools import Tool, ToolRegistry
from agent_infra.config import Project
from agent_infra.errors import ContractErrors

GREET = """\
template: polite
tool: say
effects: none
---
name: greet
use: polite
params: {text: "${state.nodes.user_intnet.city}"}
preconditions: ["state.nodes.user_intent.city != null"]
"""
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
SCHEMAS = PlainSchemas({"user_intent": {"type": "object"}})


def tool(**changes) -> Tool:
    return Tool(**{"name": "say", "input_schema": TEXT, "output_schema": None, "run": lambda **_: {}} | changes)


@pytest.fixture
def tools() -> ToolRegistry:
    registry = ToolRegistry()
    registry.register(tool(effects="none"))
    return registry


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "问候.yaml"
    path.write_text(GREET, "utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many documents each compilation had; a load from the cache is none."""
    counts: list[int] = []
    really: Callable = language.compile_actions

    def counted(documents, *rest):
        counts.append(len(documents))
        return really(documents, *rest)

    monkeypatch.setattr("agent_infra.actions.loading.compile_actions", counted)
    return counts


def load(file: Path | str, folder: Path | None, tools: ToolRegistry, schemas=SCHEMAS, **known) -> list[Contract]:
    files = ActionFiles(tools, schemas, folder and ProgramCache(folder))
    return files.load(file, known.get("contracts", {}), known.get("templates", {})).contracts


def entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_the_second_load_compiles_nothing(tools, file, folder, compilations):
    first, second = load(file, folder, tools), load(file, folder, tools)
    assert compilations == [2]
    assert first == second
    assert second[0].file == str(file)
    bindings = {"state": {"nodes": {"user_intnet": {"city": "北京"}, "user_intent": {"city": "x"}}}}
    assert second[0].resolve(bindings, {}) == ({"text": "北京"}, [])
    assert second[0].preconditions[0].evaluate(bindings).holds
    assert len(entries(folder)) == 1


def test_warnings_are_said_again(tools, file, folder, caplog):
    for _ in range(2):
        caplog.clear()
        load(file, folder, tools)
        assert [record for record in caplog.records if "NameUnknown" in record.getMessage()]


def test_templates_come_with_it(tools, file, folder):
    for _ in range(2):
        templates = ActionFiles(tools, SCHEMAS, ProgramCache(folder)).load(file, {}, {}).templates
        assert templates["polite"].file == str(file)
    other = "name: other\nuse: polite\nparams: {text: x}\n"
    assert load(other, folder, tools, templates=templates)[0].effects == "none"


@pytest.mark.parametrize(
    "change",
    [
        {"version": "1.0.1"},
        {"input_schema": TEXT | {"additionalProperties": False}},
        {"output_schema": {"type": "object"}},
        {"effects": "none", "resources": {"gpu": 1}},
        {"effects": "none", "description": "other"},
    ],
)
def test_another_tool_makes_it_stale(tools, file, folder, compilations, change):
    load(file, folder, tools)
    other = ToolRegistry()
    other.register(tool(**{"effects": "none"} | change))
    load(file, folder, other)
    assert len(compilations) == 2
    load(file, folder, other)
    assert len(compilations) == 2
    assert load(file, folder, other)[0].tool_version == change.get("version", "1.0.0")


def test_other_content_makes_it_stale(tools, file, folder, compilations):
    load(file, folder, tools)
    file.write_text(GREET + "# a comment\n", "utf-8")
    load(file, folder, tools)
    assert len(compilations) == 2


def test_other_node_types_make_it_stale(tools, file, folder):
    load(file, folder, tools)
    closed = PlainSchemas({"user_intent": {"type": "object", "additionalProperties": False}})
    with pytest.raises(ContractErrors) as caught:
        load(file, folder, tools, closed)
    assert [each.code for each in caught.value.problems] == ["FieldUnknown"]


def test_another_release_makes_it_stale(tools, file, folder, compilations, monkeypatch):
    load(file, folder, tools)
    monkeypatch.setattr(cache, "__version__", "99.0")
    load(file, folder, tools)
    assert len(compilations) == 2


def test_an_absent_tool_is_still_told(tools, file, folder):
    load(file, folder, tools)
    with pytest.raises(Exception, match="no tool is called 'say'"):
        load(file, folder, ToolRegistry())


def test_what_is_wrong_is_never_kept(tools, file, folder):
    file.write_text(GREET.replace("effects", "efects"), "utf-8")
    for _ in range(2):
        with pytest.raises(ContractErrors):
            load(file, folder, tools)
    assert not folder.exists()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda _: b"",
        lambda raw: raw[:20],
        lambda raw: raw[:-1],
        lambda raw: raw + b"\0",
        lambda raw: raw[:40] + bytes([raw[40] ^ 1]) + raw[41:],
        lambda raw: raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:],
        lambda raw: bytes([raw[0] ^ 1]) + raw[1:],
        lambda _: b"name: greet\n" * 50,
    ],
)
def test_what_is_damaged_is_written_anew(tools, file, folder, compilations, spoil):
    contract = load(file, folder, tools)
    (entry,) = entries(folder)
    whole = entry.read_bytes()
    entry.write_bytes(spoil(whole))
    assert load(file, folder, tools) == contract
    assert len(compilations) == 2
    assert entry.read_bytes() == whole


def test_an_entry_under_another_ones_name_isnt_used(tools, file, folder, compilations):
    load(file, folder, tools)
    (entry,) = entries(folder)
    file.write_text(GREET.replace("name: greet", "name: other"), "utf-8")
    load(file, folder, tools)
    (other,) = set(entries(folder)) - {entry}
    other.write_bytes(entry.read_bytes())
    assert load(file, folder, tools)[0].name == "other"
    assert len(compilations) == 3


def test_a_folder_that_cant_be_written_costs_time_only(tools, file, tmp_path, caplog):
    (tmp_path / "blocked").write_text("a file")
    files = ActionFiles(tools, SCHEMAS, ProgramCache(tmp_path / "blocked"))
    for _ in range(2):
        assert files.load(file, {}, {}).contracts[0].name == "greet"
    assert len([each for each in caplog.records if "action_cache_unwritable" in each.getMessage()]) == 1


def test_the_folder_stays_small(tools, folder, monkeypatch):
    monkeypatch.setattr(cache, "MOST", 3)
    for number in range(6):
        load(f"name: a{number}\ntool: say\nparams: {{text: x}}\n", folder, tools)
    assert len(entries(folder)) == 3
    assert not [each for each in entries(folder) if each.name.startswith(".writing")]


# -- where it is -----------------------------------------------------------------------------------


def opened(tmp_path: Path) -> None:
    with Infra.open(tmp_path / "家", project=Project(root=tmp_path), durability="os") as infra:
        infra.tools.register(tool(effects="none"))
        infra.actions.load(GREET)


def test_in_the_home_unless_a_folder_is_named(tmp_path, monkeypatch):
    opened(tmp_path)
    assert len(list((tmp_path / "家" / "cache" / "actions").iterdir())) == 1
    monkeypatch.setenv("ACTION_DSL_CACHE_DIR", str(tmp_path / "别处"))
    opened(tmp_path)
    assert len(list((tmp_path / "别处").iterdir())) == 1
    assert len(list((tmp_path / "家" / "cache" / "actions").iterdir())) == 1
    assert os.environ["ACTION_DSL_CACHE_DIR"]


def test_what_one_process_has_read_it_holds_ready_until_a_tool_changes(tools, file, folder, compilations):
    files = ActionFiles(tools, SCHEMAS, ProgramCache(folder))
    first = [files.load(file, {}, {}).contracts for _ in range(3)]
    for entry in entries(folder):
        entry.unlink()
    assert files.load(file, {}, {}).contracts == first[0]
    assert compilations == [2]
    tools.register(tool(effects="none", version="1.0.1"))
    assert files.load(file, {}, {}).contracts[0].tool_version == "1.0.1"
    assert compilations == [2, 2]
