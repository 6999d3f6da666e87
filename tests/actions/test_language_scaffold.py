"""Scaffolds: a tool's implied contract as a file, with what is known of it, that means the same when it is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_infra.actions.language import compile_contracts, implied_contract, scaffold
from agent_infra.actions.tools import Tool, ToolRegistry
from agent_infra.documents import parse_documents
from agent_infra.testing.strategies import json_values, texts

SCHEMA = {
    "type": "object",
    "properties": {
        "file_id": {"type": "string", "description": "which document\nby its id"},
        "pages": {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2},
        "格式": {"enum": ["markdown", "text"], "default": "markdown"},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    },
    "required": ["file_id"],
}


def read(tool: Tool):
    registry = ToolRegistry()
    registry.register(tool)
    (contract,) = compile_contracts(parse_documents(scaffold(tool), "scaffold.yaml"), registry)
    return contract


def made(**changes) -> Tool:
    return Tool(**{"name": "pdf", "input_schema": SCHEMA, "output_schema": None, "run": lambda **_: {}} | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"effects": "none"},
        {"effects": "idempotent", "resources": {"gpu": 1, "cpu": 2}},
        {"input_schema": {"type": "object"}},
    ],
)
def test_it_means_what_is_implied(changes):
    tool = made(**changes)
    assert read(tool) == implied_contract(tool)


def test_it_tells_what_is_known_of_each_part():
    text = scaffold(made(description="解析 PDF。", version="2.1.0", effects="none", resources={"gpu": 1}))
    for line in (
        "# 解析 PDF。",
        'tool: "pdf"   # version 2.1.0',
        "  # which document",
        "  # by its id",
        '  "file_id": {open: {}}   # string, required',
        '  "pages": {open: {}}   # array of (integer, minimum 1), minItems 2, optional',
        '  "格式": {open: {}}   # one of "markdown", "text", default "markdown", optional',
        '  "limit": {open: {}}   # integer or null, optional',
        "effects: none",
        "# resources: {gpu: 1}   (the tool's own, in force unless said otherwise)",
    ):
        assert line in text.splitlines()


def test_undeclared_effects_are_written_out_with_the_reason():
    lines = scaffold(made()).splitlines()
    assert "effects: once" in lines
    assert "doesn't say whether a repeated call does harm" in lines[lines.index("effects: once") - 2]
    assert "doesn't say" not in scaffold(made(effects="once"))


@given(
    st.dictionaries(
        texts(), st.fixed_dictionaries({"description": texts(40)}, optional={"default": json_values()}), max_size=4
    ),
    texts(40),
)
def test_no_name_and_no_description_can_break_it(properties, description):
    tool = made(input_schema={"type": "object", "properties": properties}, description=description, effects="none")
    contract = read(tool)
    assert list(contract.params) == list(properties)
    assert contract == implied_contract(tool)
