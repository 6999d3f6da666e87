"""Domains: what an open parameter may be chosen from, as JSON Schema keywords on top of the tool's own schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import jsonschema_rs

from agent_infra.actions.schemas import pointer_of
from agent_infra.content import JsonValue

LOWER: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems")
UPPER: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems")
_OTHER: Final = ("multipleOf", "pattern", "format", "uniqueItems")
KEYWORDS: Final = ("enum", "choices", "description", "items", "properties", *LOWER, *UPPER, *_OTHER)
"""`choices` is `enum` by another name; `items` and `properties` hold domains of a list's items and an object's fields."""
_KEPT: Final = 1024
_validators: Final[dict[int, tuple[Mapping[str, Any], jsonschema_rs.Validator]]] = {}
_OWN: Final = ("enum", "description", "default")
_PAIRS: Final = (("minimum", "maximum"), ("minLength", "maxLength"), ("minItems", "maxItems"))


def narrow(schema: Mapping[str, Any], domain: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that both a tool's and a contract's keywords hold for.

    A contract's `enum`, `description` and `default` replace the tool's: its choices are checked one by one. Of bounds
    that stand in both, the narrower is left; of other keywords that do, both hold. Raises ValidationError where the
    result is no schema, ValueError where nothing is left to choose from.
    """
    merged = _merged(schema, domain)
    if not isinstance(merged.get("enum", []), list):
        raise ValueError(f"the choices must be a list, not {merged['enum']!r}")
    jsonschema_rs.validator_for(merged, offline=True)
    _check_choice(merged)
    return merged


def fitting(schema: Mapping[str, Any], domain: Mapping[str, Any]) -> dict[str, Any]:
    """A domain without the choices that the tool doesn't take."""
    fitted = dict(domain)
    if isinstance(fitted.get("enum"), list):
        fitted["enum"] = [choice for choice in fitted["enum"] if not schema_problems(schema, choice)]
    if isinstance(fitted.get("items"), dict) and isinstance(schema.get("items"), dict):
        fitted["items"] = fitting(schema["items"], fitted["items"])
    return fitted


def schema_problems(schema: Mapping[str, Any], value: JsonValue) -> list[str]:
    """What is wrong with a value under a schema: `<pointer>: <reason>` each."""
    validator = validator_of(schema)
    if validator.is_valid(value):
        return []
    return [f"{_pointer(error.instance_path)}: {error.message}" for error in validator.iter_errors(value)]


def validator_of(schema: Mapping[str, Any]) -> jsonschema_rs.Validator:
    """A schema's validator; that of a schema that was asked for lately is kept. Schemas are never changed in place."""
    known = _validators.get(id(schema))
    if known is None or known[0] is not schema:
        if len(_validators) >= _KEPT:
            _validators.clear()
        made = jsonschema_rs.validator_for(dict(schema), offline=True, validate_formats=True)
        known = _validators[id(schema)] = (schema, made)
    return known[1]


def _pointer(path: list[str | int]) -> str:
    return pointer_of(path) if path else ""


def _merged(schema: Mapping[str, Any], domain: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(schema)
    both: dict[str, Any] = {}
    for word, value in domain.items():
        known = schema.get(word)
        if word in _OWN or word not in schema or known == value:
            merged[word] = value
        elif word in LOWER + UPPER and _is_number(known) and _is_number(value):
            merged[word] = max(known, value) if word in LOWER else min(known, value)
        elif word == "items" and isinstance(known, dict) and isinstance(value, dict) and "prefixItems" not in schema:
            merged[word] = _merged(cast("dict[str, Any]", known), cast("dict[str, Any]", value))
        elif word == "properties" and isinstance(known, dict) and isinstance(value, dict):
            merged[word] = _merged_fields(cast("dict[str, Any]", known), cast("dict[str, Any]", value))
        else:
            both[word] = value
    if both:
        merged["allOf"] = [*schema.get("allOf", []), both]
    return merged


def _merged_fields(known: Mapping[str, Any], domains: Mapping[str, Any]) -> dict[str, Any]:
    fields = dict(known)
    for name, domain in domains.items():
        field = known.get(name)
        both = isinstance(field, dict) and isinstance(domain, dict)
        fields[name] = _merged(cast("dict[str, Any]", field), cast("dict[str, Any]", domain)) if both else domain
    return fields


def _check_choice(schema: Mapping[str, Any]) -> None:
    """That something is left to choose, as far as the keywords alone tell."""
    if schema.get("enum") == []:
        raise ValueError("there is nothing to choose from")
    for low, high in _PAIRS:
        if low in schema and high in schema and schema[low] > schema[high]:
            raise ValueError(f"there is nothing to choose from: {low} {schema[low]} is over {high} {schema[high]}")
    if isinstance(schema.get("items"), dict) and schema.get("minItems", 0) > 0:
        _check_choice(schema["items"])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
