"""Contracts as people and programs look at them: a text, JSON, a diagram."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

from agent_infra.actions import Contract
from agent_infra.actions.language import Open

_MANY = 8


def contract_data(contract: Contract) -> dict[str, Any]:
    """All that a contract says, as JSON values."""
    rule, result, undo = contract.confidence, contract.result, contract.compensation
    retries = contract.retries
    return {
        "name": contract.name,
        "hash": contract.hash,
        "file": contract.file,
        "tool": {"name": contract.tool, "version": contract.tool_version},
        "description": contract.description,
        "params": {name: _param_data(contract, name) for name in contract.params},
        "preconditions": [condition.source for condition in contract.preconditions],
        "postconditions": [condition.source for condition in contract.postconditions],
        "confidence": rule and {"min": rule.min, "below": rule.below, "fallback": rule.fallback},
        "resources": dict(contract.resources),
        "effects": contract.effects,
        "timeout": {"idle": contract.timeout.idle, "total": contract.timeout.total},
        "retries": retries and {"times": retries.times, "wait": retries.wait, "on": list(retries.on)},
        "compensation": undo and {"action": undo.action, "with": undo.fill.source},
        "result": result and {"type": result.type, "key": result.key and result.key.source, "ttl": result.ttl},
        "refers": {kind: template.source for kind, template in contract.refers.items()},
    }


def _param_data(contract: Contract, name: str) -> dict[str, Any]:
    parameter = contract.params[name]
    if not isinstance(parameter, Open):
        return {
            "kind": "referenced" if parameter.template.is_reference else "fixed",
            "value": parameter.template.source,
        }
    default = {} if parameter.default is None else {"default": parameter.default.source}
    domain = {"domain": parameter.template.source, "schema": dict(parameter.schema), "required": parameter.required}
    return {"kind": "open"} | domain | default


def contract_text(contract: Contract) -> str:
    """A contract in lines for people; what it leaves unsaid is left out."""
    return "\n".join(_lines(contract))


def _lines(contract: Contract) -> Iterator[str]:
    data = contract_data(contract)
    yield f"{contract.name}  (contract {contract.hash})"
    if contract.description:
        yield f"  {contract.description}"
    yield f"  tool         {contract.tool} {contract.tool_version}"
    yield f"  file         {contract.file or 'none: the implied contract of its tool'}"
    for index, (name, said) in enumerate(data["params"].items()):
        yield f"  {'params' if index == 0 else '':12} {name}: {_param_text(said)}"
    for word in ("preconditions", "postconditions"):
        for index, source in enumerate(data[word]):
            yield f"  {word[:-10] + 'conditions' if index == 0 else '':12} {source}"
    for word in ("confidence", "resources", "effects", "timeout", "retries", "compensation", "result", "refers"):
        said = _said(data[word])
        if said:
            yield f"  {word:12} {said}"


def _param_text(said: dict[str, Any]) -> str:
    if said["kind"] != "open":
        return f"{said['kind']}, {_json(said['value'])}"
    schema, domain = said["schema"], said["domain"]
    parts = ["open", "required" if said["required"] else "optional"]
    parts += [_kind(schema)] if _kind(schema) else []
    parts += [f"{word} {_json(value)}" for word, value in domain.items()]
    parts += [f"{word} {schema[word]}" for word in ("minimum", "maximum") if word in schema and word not in domain]
    return ", ".join(parts + ([f"default {_json(said['default'])}"] if "default" in said else []))


def _kind(schema: dict[str, Any]) -> str:
    if isinstance(schema.get("enum"), list):
        values = schema["enum"]
        return "one of " + ", ".join(map(_json, values[:_MANY])) + (", …" if len(values) > _MANY else "")
    types: Any = schema.get("type", "")
    return types if isinstance(types, str) else " or ".join(types)


def _said(value: Any) -> str:
    if isinstance(value, dict):
        parts = {name: item for name, item in cast("dict[str, Any]", value).items() if item not in (None, {}, [])}
        return ", ".join(f"{name} {_json(item)}" for name, item in parts.items())
    return "" if value is None else str(value)


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# -- a diagram -------------------------------------------------------------------------------------


def mermaid(contracts: Iterable[Contract]) -> str:
    """Actions with their tools, and the nodes that they read and write, as a Mermaid flowchart."""
    drawing = _Drawing()
    for contract in contracts:
        action = drawing.box("action", contract.name)
        drawing.arrow(drawing.box("tool", contract.tool), "---", action)
        for name in sorted({path[2] for each in _readings(contract) for path in each.reads if _is_node(path)}):
            drawing.arrow(drawing.box("node", name), "-->", action)
        if contract.result is not None:
            key = contract.result.key
            drawing.arrow(action, "-->", drawing.box("node", str(key.source) if key else contract.result.type))
        if contract.compensation is not None:
            undo = drawing.box("action", contract.compensation.action)
            drawing.arrow(action, "-. undone by .->", undo)
    return drawing.text()


def _readings(contract: Contract) -> list[Any]:
    undo = [contract.compensation.fill] if contract.compensation is not None else []
    return [*contract.readings, *contract.postconditions, *undo]


def _is_node(path: tuple[str, ...]) -> bool:
    return path[:2] == ("state", "nodes") and len(path) > 2


class _Drawing:
    """Boxes, each once, and arrows between them."""

    _SHAPES = {"action": ('["', '"]'), "tool": ('[["', '"]]'), "node": ('(["', '"])')}  # noqa: RUF012

    def __init__(self) -> None:
        self._boxes: dict[tuple[str, str], str] = {}
        self._arrows: dict[str, None] = {}

    def box(self, kind: str, name: str) -> str:
        """The id of a box."""
        return self._boxes.setdefault((kind, name), f"{kind}{len(self._boxes) + 1}")

    def arrow(self, source: str, line: str, target: str) -> None:
        """Join two boxes."""
        self._arrows[f"  {source} {line} {target}"] = None

    def text(self) -> str:
        """The whole diagram."""
        boxes = [
            f"  {id}{self._SHAPES[kind][0]}{_label(name)}{self._SHAPES[kind][1]}"
            for (kind, name), id in self._boxes.items()
        ]
        return "\n".join(["flowchart LR", *boxes, *self._arrows])


def _label(text: str) -> str:
    """A text inside the quotes of a label, where Mermaid knows no escapes but entities."""
    return "".join(char if char.isprintable() and char not in '"&#<>`' else f"#{ord(char)};" for char in text)
