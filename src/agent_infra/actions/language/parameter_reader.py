"""Reading an action's `params:` against its tool's input schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import jsonschema_rs

from agent_infra.actions.language.parameters import (
    DOMAIN_KEYWORDS,
    Given,
    Open,
    Parameter,
    narrow,
    property_schemas,
    rest_schema,
    schema_problems,
)
from agent_infra.content import JsonValue
from agent_infra.documents import Fields, did_you_mean
from agent_infra.errors import ExpressionError
from agent_infra.expressions import Template, compile_template, problems_at

_VARIABLES = ("state", "agent", "now")


class ParameterReader:
    """Reads the parameters of one document; what is wrong goes to its fields' problems."""

    def __init__(self, fields: Fields, input_schema: Mapping[str, Any]) -> None:
        self._fields = fields
        self._schemas = property_schemas(input_schema)
        self._rest = rest_schema(input_schema)
        self._required = cast("list[str]", input_schema.get("required", []))
        self._input_schema = dict(input_schema)

    def read(self) -> dict[str, Parameter]:
        """The parameters by name."""
        written = self._fields.mapping("params") if self._fields.has("params") else {}
        if written is None:
            return {}
        params: dict[str, Parameter] = {}
        for name, value in written.items():
            schema = self._schemas.get(name, self._rest)
            if schema is None:
                hint = did_you_mean(name, self._schemas)
                self._fields.report(
                    "ParamUnknown", f"the tool has no parameter `{name}`", "params", name, key=True, hint=hint
                )
                continue
            is_open = isinstance(value, dict) and list(value) == ["open"]
            parameter = self._open(name, schema) if is_open else self._given(name, schema, value)
            if parameter is not None:
                params[name] = parameter
        self._check_required(written)
        return params

    def _check_required(self, written: Mapping[str, JsonValue]) -> None:
        for name in self._required:
            if name not in written:
                path = ("params",) if self._fields.has("params") else ("tool",)
                hint = f"write `{name}: …`, or `{name}: {{open: {{}}}}` to leave it to the policy"
                self._fields.report(
                    "ParamMissing", f"the tool needs the parameter `{name}`", *path, key=True, hint=hint
                )

    # -- given values --------------------------------------------------------------------------------------------------

    def _given(self, name: str, schema: Mapping[str, Any], value: JsonValue) -> Given | None:
        path = ("params", name)
        value = self._as_written(value, schema, path)
        template = self._template(value, path)
        if template is None:
            return None
        if not template.is_reference:
            self._check_value(name, value, path)
        elif template.is_text and not self._may_be_text(schema):
            message = f"a text with `${{…}}` in it is a text, and the tool takes none for `{name}`"
            hint = "write nothing but the reference, so that it keeps its value's type"
            self._fields.report("ParamType", message, *path, hint=hint)
        return Given(template)

    def _template(self, value: JsonValue, path: tuple[str | int, ...]) -> Template | None:
        try:
            return compile_template(value, _VARIABLES)
        except ExpressionError as error:
            self._fields.problems += problems_at(error, self._fields.document, *path)
            return None

    def _check_value(self, name: str, value: JsonValue, path: tuple[str | int, ...]) -> None:
        """A fixed value by the tool's own schema, as one call would be checked."""
        validator = jsonschema_rs.validator_for(self._input_schema, offline=True, validate_formats=True)
        for error in validator.iter_errors({name: value}):
            if error.instance_path[:1] == [name]:
                hint = "write {open: {…}} to leave it to the policy" if "open" in str(value) else None
                self._fields.report("ParamType", error.message, *path, *error.instance_path[1:], hint=hint)

    def _may_be_text(self, schema: Mapping[str, Any]) -> bool:
        types = schema.get("type", "string")
        return "string" in (cast("list[str]", types) if isinstance(types, list) else [types])

    def _as_written(self, value: JsonValue, schema: Mapping[str, Any], path: tuple[str | int, ...]) -> JsonValue:
        """The value, with scalars that only fit as text kept as they are written: `1.10` under a text stays `1.10`."""
        if isinstance(value, dict):
            parts = cast("dict[str, Any]", schema.get("properties", {}))
            return {
                name: self._as_written(item, _schema(parts.get(name)), (*path, name)) for name, item in value.items()
            }
        if isinstance(value, list):
            items = _schema(schema.get("items"))
            return [self._as_written(item, items, (*path, index)) for index, item in enumerate(value)]
        raw = self._fields.document.raw(*path)
        if value is None or isinstance(value, str) or raw is None or not schema_problems(schema, value):
            return value
        return value if schema_problems(schema, raw) else raw

    # -- open ones -----------------------------------------------------------------------------------------------------

    def _open(self, name: str, schema: Mapping[str, Any]) -> Open | None:
        fields, path = self._fields, ("params", name, "open")
        written = fields.mapping(*path, known=DOMAIN_KEYWORDS)
        if written is None or any(word not in DOMAIN_KEYWORDS for word in written):
            return None
        domain = dict(written)
        if "enum" in domain and "choices" in domain:
            fields.report(
                "BadDomain", "`enum` and `choices` both say what may be chosen", *path, hint="keep one of them"
            )
            return None
        if self._template(domain, path) is None:
            return None
        word = "choices" if "choices" in domain else "enum"
        if word in domain:
            domain[word] = self._choices(name, schema, domain[word], (*path, word))
        self._check_domain(schema, domain, path)
        renamed = {"enum" if key == "choices" else key: value for key, value in domain.items()}
        return Open(schema, compile_template(renamed, _VARIABLES), name in self._required)

    def _choices(
        self, name: str, schema: Mapping[str, Any], choices: JsonValue, path: tuple[str | int, ...]
    ) -> JsonValue:
        """The choices as the tool takes them; each must be a value that it takes."""
        if isinstance(choices, str) and "${" in choices:
            return choices
        if not isinstance(choices, list) or not choices:
            word = path[-1]
            self._fields.report("BadDomain", f"`{word}` must be a list of values", *path, hint=f'or {word}: "${{…}}"')
            return choices
        written = [self._as_written(item, schema, (*path, index)) for index, item in enumerate(choices)]
        for index, item in enumerate(written):
            self._check_value(name, item, (*path, index))
        return cast("JsonValue", written)

    def _check_domain(
        self, schema: Mapping[str, Any], domain: Mapping[str, JsonValue], path: tuple[str | int, ...]
    ) -> None:
        """Every keyword that holds no reference must be good JSON Schema."""
        for word, value in domain.items():
            if word in ("enum", "choices") or "${" in str(value):
                continue
            try:
                narrow(schema, {word: value})
            except (jsonschema_rs.ValidationError, ValueError) as error:
                self._fields.report("BadDomain", f"`{word}`: {_message(error)}", *path, word)


def _schema(schema: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", schema) if isinstance(schema, dict) else {}


def _message(error: Exception) -> str:
    return error.message if isinstance(error, jsonschema_rs.ValidationError) else str(error)
