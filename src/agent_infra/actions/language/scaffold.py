"""Tools without an action file: their implied contract, and that written out to begin a file with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from agent_infra.actions.language.compiling import compile_contracts
from agent_infra.actions.language.contract import Contract
from agent_infra.actions.language.domains import LOWER, UPPER
from agent_infra.actions.language.parameters import property_schemas
from agent_infra.actions.tools import Tool
from agent_infra.documents import parse_documents

_WIDTH = 100


def implied_contract(tool: Tool) -> Contract:
    """The contract of a tool that no action file describes: all its parameters are open, nothing else is asked."""
    (contract,) = compile_contracts(parse_documents(_bare(tool)), _Just(tool))
    return contract


def scaffold(tool: Tool) -> str:
    """An action file for a tool, to begin with: its implied contract written out, with what is known of each part."""
    return "".join(f"{line}\n" for line in _lines(tool))


class _Just:
    """One tool, whatever name is asked for."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    def get(self, name: str) -> Tool:  # noqa: ARG002
        return self._tool


def _bare(tool: Tool) -> str:
    lines = [f"name: {_quoted(tool.name)}", f"tool: {_quoted(tool.name)}"]
    names = list(cast("dict[str, Any]", tool.input_schema.get("properties", {})))
    if names:
        lines += ["params:", *(f"  {_quoted(name)}: {{open: {{}}}}" for name in names)]
    return "\n".join(lines) + "\n"


def _lines(tool: Tool) -> Iterator[str]:
    yield from _comment(tool.description)
    yield f"name: {_quoted(tool.name)}"
    yield f"tool: {_quoted(tool.name)}   # version {_plain(tool.version)}"
    schemas = property_schemas(tool.input_schema)
    required = set(cast("list[str]", tool.input_schema.get("required", [])))
    if schemas:
        yield "params:"
    for name, schema in schemas.items():
        yield from _comment(schema.get("description"), "  ")
        need = "required" if name in required else "optional"
        yield f"  {_quoted(name)}: {{open: {{}}}}   # {_plain(_kind(schema))}, {need}"
    if tool.effects is None:
        yield "# The tool doesn't say whether a repeated call does harm, so it counts as `once`: never repeated by itself."
        yield "# Say `none` or `idempotent`, here and in the tool, if it does no harm."
    yield f"effects: {tool.effects_in_force}"
    if tool.resources:
        amounts = ", ".join(f"{name}: {amount:g}" for name, amount in tool.resources.items())
        yield f"# resources: {{{amounts}}}   (the tool's own, in force unless said otherwise)"
    yield '# preconditions: ["state.nodes.<name>.<field> == …"]'
    yield '# postconditions: ["result.<field> != null"]'
    yield "# result: {type: <node type>, key: <name>}"


def _kind(schema: Mapping[str, Any]) -> str:
    """What a parameter is, in a few words."""
    types: Any = schema.get("type", "any")
    kind = types if isinstance(types, str) else " or ".join(map(str, types))
    if isinstance(schema.get("enum"), list):
        kind = "one of " + ", ".join(json.dumps(value, ensure_ascii=False) for value in schema["enum"])
    elif isinstance(schema.get("anyOf"), list):
        kind = " or ".join(_kind(part) for part in cast("list[dict[str, Any]]", schema["anyOf"]))
    elif isinstance(schema.get("items"), dict):
        items = _kind(schema["items"])
        kind += f" of ({items})" if ", " in items else f" of {items}"
    parts = [kind, *(f"{word} {schema[word]}" for word in (*LOWER, *UPPER) if word in schema)]
    if "default" in schema:
        parts.append(f"default {json.dumps(schema['default'], ensure_ascii=False)}")
    return ", ".join(parts)


def _comment(text: Any, indent: str = "") -> Iterator[str]:
    for line in text.splitlines() if isinstance(text, str) else ():
        if _plain(line).strip():
            yield f"{indent}# {_plain(line).strip()}"


def _plain(text: str) -> str:
    """A text that can't end a comment's line."""
    kept = "".join(char if char.isprintable() else " " for char in text)
    return kept if len(kept) <= _WIDTH * 3 else f"{kept[: _WIDTH * 3]}…"


def _quoted(text: str) -> str:
    """A text as YAML's double quotes hold it."""
    return "".join(char if char.isprintable() else _escaped(char) for char in json.dumps(text, ensure_ascii=False))


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
