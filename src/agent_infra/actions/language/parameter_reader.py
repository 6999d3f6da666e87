"""Reading an action's `params:` against its tool's input schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

import jsonschema_rs

from agent_infra.actions.language.contract import GIVEN
from agent_infra.actions.language.domains import KEYWORDS, fitting, narrow, schema_problems
from agent_infra.actions.language.parameters import Given, Open, Parameter, property_schemas, rest_schema
from agent_infra.content import JsonValue
from agent_infra.documents import Fields, did_you_mean
from agent_infra.errors import ExpressionError
from agent_infra.expressions import Template, compile_template, problems_at

Path: TypeAlias = tuple[str | int, ...]


class ParameterReader:
    """Reads the parameters of one document; what is wrong goes to its fields' problems.

    `templates` are those that it has read, each with its place in the document and the schema of what stands there.
    """

    def __init__(self, fields: Fields, input_schema: Mapping[str, Any]) -> None:
        self.templates: list[tuple[Template, Path, Mapping[str, Any]]] = []
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
        self.templates.append((template, path, schema))
        return Given(template)

    def _template(self, value: JsonValue, path: Path) -> Template | None:
        try:
            return compile_template(value, GIVEN)
        except ExpressionError as error:
            self._fields.problems += problems_at(error, self._fields.document, *path)
            return None

    def _check_value(self, name: str, value: JsonValue, path: Path) -> None:
        """A fixed value by the tool's own schema, as one call would be checked."""
        validator = jsonschema_rs.validator_for(self._input_schema, offline=True, validate_formats=True)
        for error in validator.iter_errors({name: value}):
            if error.instance_path[:1] == [name]:
                hint = "write {open: {…}} to leave it to the policy" if "open" in str(value) else None
                self._fields.report("ParamType", error.message, *path, *error.instance_path[1:], hint=hint)

    def _may_be_text(self, schema: Mapping[str, Any]) -> bool:
        types = schema.get("type", "string")
        return "string" in (cast("list[str]", types) if isinstance(types, list) else [types])

    def _as_written(self, value: JsonValue, schema: Mapping[str, Any], path: Path) -> JsonValue:
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
        path, before = ("params", name, "open"), len(self._fields.problems)
        written = self._fields.mapping(*path, known=(*KEYWORDS, "default"))
        if written is None:
            return None
        default = self._default(name, schema, written["default"]) if "default" in written else None
        words = {word: written[word] for word in written if word != "default"}
        template = self._template(words, path)
        domain = self._domain(words, schema, path) if template is not None else None
        if template is None or domain is None or len(self._fields.problems) > before:
            return None
        self.templates.append((template, path, schema))
        if not template.is_reference:
            self._check_static(name, _narrowed(schema, domain), default)
        plain = _by_one_name(domain)
        if plain != words:
            template = compile_template(plain, GIVEN)
        return Open(schema, template, name in self._required and default is None, default)

    def _default(self, name: str, schema: Mapping[str, Any], value: JsonValue) -> Template | None:
        """What the parameter is where the policy leaves it out."""
        path = ("params", name, "open", "default")
        value = self._as_written(value, schema, path)
        template = self._template(value, path)
        if template is not None and not template.is_reference:
            self._check_value(name, value, path)
        if template is not None:
            self.templates.append((template, path, schema))
        return template

    def _check_static(self, name: str, narrowed: dict[str, Any] | str, default: Template | None) -> None:
        """That a domain without references leaves something to choose, and that the default is in it."""
        path = ("params", name, "open")
        if isinstance(narrowed, str):
            self._fields.report("BadDomain", f"`{name}`: {narrowed}", *path)
        elif default is not None and not default.is_reference:
            for reason in schema_problems(narrowed, default.source)[:1]:
                self._fields.report("BadDefault", f"the default can't be chosen{reason}", *path, "default")

    def _domain(
        self, written: Mapping[str, JsonValue], schema: Mapping[str, Any], path: Path
    ) -> dict[str, JsonValue] | None:
        """A domain as the tool takes it; None where it holds what isn't one."""
        if any(word not in KEYWORDS for word in written):
            return None
        domain = dict(written)
        if "enum" in domain and "choices" in domain:
            message = "`enum` and `choices` both say what may be chosen"
            self._fields.report("BadDomain", message, *path, hint="keep one of them")
            return None
        for word in ("enum", "choices"):
            if word in domain:
                domain[word] = self._choices(schema, domain[word], (*path, word))
        if "items" in domain:
            inner = self._fields.mapping(*path, "items", known=KEYWORDS)
            domain["items"] = inner and self._domain(inner, _schema(schema.get("items")), (*path, "items"))
        if "properties" in domain:
            domain["properties"] = self._properties(schema, (*path, "properties"))
        if not self._check_words(schema, domain, path) or None in (domain.get("items", 0), domain.get("properties", 0)):
            return None
        return domain

    def _properties(self, schema: Mapping[str, Any], path: Path) -> dict[str, JsonValue] | None:
        """The domains of an object's fields."""
        known = cast("dict[str, Any]", schema.get("properties", {}))
        found: dict[str, JsonValue] = {}
        for name in self._fields.mapping(*path) or ():
            if name not in known and schema.get("additionalProperties") is False:
                hint = did_you_mean(name, known)
                self._fields.report("ParamUnknown", f"there is no field `{name}`", *path, name, key=True, hint=hint)
                continue
            inner = self._fields.mapping(*path, name, known=KEYWORDS)
            found[name] = None if inner is None else self._domain(inner, _schema(known.get(name)), (*path, name))
        return None if None in found.values() else found

    def _choices(self, schema: Mapping[str, Any], choices: JsonValue, path: Path) -> JsonValue:
        """The choices as the tool takes them; each must be a value that it takes."""
        if isinstance(choices, str) and "${" in choices:
            return choices
        if not isinstance(choices, list) or not choices:
            word = path[-1]
            self._fields.report("BadDomain", f"`{word}` must be a list of values", *path, hint=f'or {word}: "${{…}}"')
            return choices
        written = [self._as_written(item, schema, (*path, index)) for index, item in enumerate(choices)]
        validator = jsonschema_rs.validator_for(dict(schema), offline=True, validate_formats=True)
        for index, item in enumerate(written):
            for error in () if "${" in str(item) else validator.iter_errors(item):
                self._fields.report("ParamType", error.message, *path, index, *error.instance_path)
        return cast("JsonValue", written)

    def _check_words(self, schema: Mapping[str, Any], domain: Mapping[str, JsonValue], path: Path) -> bool:
        """Whether every keyword that holds no reference is good JSON Schema on top of the tool's."""
        right = True
        for word, value in domain.items():
            if word in ("enum", "choices", "items", "properties") or "${" in str(value):
                continue
            found = _narrowed(schema, {word: value})
            if isinstance(found, str):
                self._fields.report("BadDomain", f"`{word}`: {found}", *path, word)
                right = False
        return right


def _narrowed(schema: Mapping[str, Any], domain: Mapping[str, Any]) -> dict[str, Any] | str:
    """A tool's schema with a domain on top of it; or what is wrong with that."""
    plain = _by_one_name(domain)
    try:
        return narrow(schema, fitting(schema, plain))
    except jsonschema_rs.ValidationError as error:
        return error.message
    except ValueError as error:
        return str(error)


def _by_one_name(domain: Mapping[str, Any]) -> dict[str, Any]:
    """A domain whose `choices` are called `enum`, as JSON Schema calls them."""
    plain = {"enum" if word == "choices" else word: value for word, value in domain.items()}
    if isinstance(plain.get("items"), dict):
        plain["items"] = _by_one_name(plain["items"])
    if isinstance(plain.get("properties"), dict):
        plain["properties"] = {name: _by_one_name(inner) for name, inner in plain["properties"].items()}
    return plain


def _schema(schema: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", schema) if isinstance(schema, dict) else {}
