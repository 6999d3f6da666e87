"""A contract's parameters: given ones, and open ones with the domain that a policy may choose from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

import jsonschema_rs

from agent_infra.actions.language.domains import fitting, narrow, schema_problems
from agent_infra.content import JsonValue, json_bytes
from agent_infra.expressions import Evaluation, Template

_KEPT: Final = 64
"""Domains of one parameter whose schemas are kept."""


@dataclass(frozen=True, slots=True)
class Given:
    """A parameter whose value the contract gives: fixed, or by references."""

    template: Template

    @property
    def templates(self) -> tuple[Template, ...]:
        """All that is resolved for it."""
        return (self.template,)


@dataclass(frozen=True, slots=True)
class Open:
    """A parameter that is left to the policy.

    schema     the tool's own schema of it
    template   what the contract narrows that to, as JSON Schema keywords; may hold references
    required   whether a policy must choose: the tool can't do without it, and there is no default
    default    what it is where the policy leaves it out; may hold references. Recorded like a chosen value
    """

    schema: Mapping[str, Any]
    template: Template
    required: bool
    default: Template | None = None
    _known: dict[bytes, tuple[dict[str, Any] | None, str | None]] = field(
        default_factory=dict[bytes, "tuple[dict[str, Any] | None, str | None]"], init=False, repr=False, compare=False
    )

    @property
    def templates(self) -> tuple[Template, ...]:
        """All that is resolved for it."""
        return (self.template,) if self.default is None else (self.template, self.default)

    def narrowed(self, bindings: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
        """The schema of what may be chosen on these bindings; or None and the reason why there is none.

        Equal domains give the same schema, which is not to be changed.
        """
        found = self.template.resolve(bindings)
        if found.error is not None:
            return None, found.error
        domain = cast("dict[str, Any]", found.value)
        default = self.default.resolve(bindings) if self.default is not None else None
        if default is not None and default.error is None:
            domain = {**domain, "default": default.value}
        key = json_bytes(domain)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            known = self._known[key] = self._narrow(domain)
        return known

    def _narrow(self, domain: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str | None]:
        try:
            return narrow(self.schema, fitting(self.schema, domain)), None
        except (jsonschema_rs.ValidationError, ValueError) as error:
            return None, f"its domain {domain!r} is no schema: {error}"

    def problems(self, value: JsonValue, bindings: Mapping[str, Any]) -> list[str]:
        """What is wrong with a chosen value, each reason after the pointer inside the value that it is for."""
        schema, reason = self.narrowed(bindings)
        return [f": {reason}"] if schema is None else schema_problems(schema, value)

    def default_on(self, bindings: Mapping[str, Any]) -> Evaluation | None:
        """The default on these bindings, or why it can't be used; None where there is none."""
        if self.default is None:
            return None
        found = self.default.resolve(bindings)
        if found.error is not None:
            return Evaluation(error=f"its default has no value: {found.error}")
        wrong = self.problems(found.value, bindings)
        return Evaluation(error=f"its default {found.value!r} can't be used{wrong[0]}") if wrong else found


Parameter: TypeAlias = Given | Open


def equal_json(a: JsonValue, b: JsonValue) -> bool:
    """Equality as JSON has it: 1 is 1.0, and true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(equal_json(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal_json(value, b[name]) for name, value in a.items())
    return a == b


def property_schemas(input_schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The schema of each parameter that a tool names, readable by itself: local `$ref`s are put in."""
    properties = cast("dict[str, Any]", input_schema.get("properties", {}))
    return {name: _standalone(schema, input_schema) for name, schema in properties.items()}


def rest_schema(input_schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The schema of parameters that a tool doesn't name; None where it says nothing of any: then there are none."""
    rest: Any = input_schema.get("additionalProperties", False)
    return None if rest is False else _standalone(rest, input_schema)


def _standalone(schema: Any, root: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {} if schema is True else {"not": {}}
    return cast("dict[str, Any]", _inlined(schema, root, ()))


def _inlined(schema: Any, root: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    if isinstance(schema, list):
        return [_inlined(item, root, inside) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = {
        name: item if name in ("enum", "const", "default", "examples") else _inlined(item, root, inside)
        for name, item in cast("dict[str, Any]", schema).items()
    }
    target = fields.get("$ref")
    if not isinstance(target, str):
        return fields
    del fields["$ref"]
    if target in inside:
        return fields  # a schema within itself: the tool's own validator judges that deep
    found: Any = _inlined(_target(root, target), root, (*inside, target))
    return {**cast("dict[str, Any]", found), **fields} if isinstance(found, dict) else fields


def _target(root: Mapping[str, Any], pointer: str) -> Any:
    value: Any = root
    for part in pointer.lstrip("#").strip("/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        if not part:
            continue
        if isinstance(value, list):
            value = cast("list[Any]", value)[int(name)]
        else:
            value = cast("Mapping[str, Any]", value).get(name, {})
    return value
