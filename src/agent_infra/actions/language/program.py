"""A contract as a program: compact bytes from which an equal contract is made without reading YAML or checking again.

Expressions are kept as their source and what checking has found out about them; the engine plans each when it is first
evaluated. A program says nothing of who wrote it: whoever keeps one (`cache.py`) checks that it is the one it kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from agent_infra.actions.language.contract import (
    AFTER,
    BEFORE,
    GIVEN,
    Compensation,
    ConfidenceRule,
    Contract,
    Effects,
    ResultNode,
    Retries,
    Timeout,
)
from agent_infra.actions.language.parameters import Given, Open, Parameter
from agent_infra.errors import ContractDrift
from agent_infra.expressions import Expression, Template

FORMAT: Final = 1
"""Of programs. Another one is another file in the cache, and never read."""
_VARIABLES: Final = (GIVEN, BEFORE, AFTER)


class _Record(msgspec.Struct, array_like=True, gc=False):
    pass


class _Condition(_Record):
    source: str
    variables: int
    reads: tuple[tuple[str, ...], ...]
    boolean: bool
    is_path: bool


class _Value(_Record):
    source: Any
    variables: int
    is_reference: bool = False
    is_text: bool = False
    reads: tuple[tuple[str, ...], ...] = ()
    paths: tuple[tuple[tuple[str | int, ...], tuple[str, ...]], ...] = ()


class _Param(_Record):
    value: _Value
    schema: dict[str, Any] | None = None
    required: bool = False
    default: _Value | None = None


class _Result(_Record):
    type: str
    key: _Value | None
    ttl: float | None


class _Program(_Record):
    format: int
    name: str
    tool: str
    tool_version: str
    description: str
    input_schema: dict[str, Any]
    params: dict[str, _Param]
    preconditions: tuple[_Condition, ...]
    postconditions: tuple[_Condition, ...]
    confidence: tuple[float, Literal["ask_human", "reject", "fallback"], str | None] | None
    resources: dict[str, float]
    effects: Effects
    timeout: tuple[float | None, float | None]
    result: _Result | None
    refers: dict[str, _Value]
    hash: str
    source: str
    file: str | None
    retries: tuple[int, float, tuple[str, ...]] | None
    compensation: tuple[str, _Value] | None


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Program)


def write_program(contract: Contract) -> bytes:
    """A contract's program."""
    rule, result, retries, undo = contract.confidence, contract.result, contract.retries, contract.compensation
    return _encoder.encode(
        _Program(
            format=FORMAT,
            name=contract.name,
            tool=contract.tool,
            tool_version=contract.tool_version,
            description=contract.description,
            input_schema=dict(contract.input_schema),
            params={name: _param(parameter) for name, parameter in contract.params.items()},
            preconditions=_conditions(contract.preconditions),
            postconditions=_conditions(contract.postconditions),
            confidence=(rule.min, rule.below, rule.fallback) if rule else None,
            resources=dict(contract.resources),
            effects=contract.effects,
            timeout=(contract.timeout.idle, contract.timeout.total),
            result=_Result(result.type, result.key and _value(result.key), result.ttl) if result else None,
            refers={kind: _value(template) for kind, template in contract.refers.items()},
            hash=contract.hash,
            source=contract.source,
            file=contract.file,
            retries=(retries.times, retries.wait, retries.on) if retries else None,
            compensation=(undo.action, _value(undo.fill)) if undo else None,
        )
    )


def read_program(program: bytes) -> Contract:
    """The contract that a program was written from. Raises ContractDrift for bytes that are none of this format."""
    try:
        read = _decoder.decode(program)
        if read.format != FORMAT:
            raise ValueError(f"it is of format {read.format}")
        return _contract(read)
    except (msgspec.MsgspecError, ValueError, IndexError) as error:
        raise ContractDrift(
            "these bytes are no action program of this version",
            why=str(error),
            mend="Compile the action again from its source.",
        ) from error


def _contract(read: _Program) -> Contract:
    result, undo = read.result, read.compensation
    return Contract(
        name=read.name,
        tool=read.tool,
        tool_version=read.tool_version,
        description=read.description,
        input_schema=read.input_schema,
        params={name: _parameter(param) for name, param in read.params.items()},
        preconditions=tuple(_expression(each) for each in read.preconditions),
        postconditions=tuple(_expression(each) for each in read.postconditions),
        confidence=ConfidenceRule(*read.confidence) if read.confidence else None,
        resources=read.resources,
        effects=read.effects,
        timeout=Timeout(*read.timeout),
        result=ResultNode(result.type, result.key and _template(result.key), result.ttl) if result else None,
        refers=_templates(read.refers),
        hash=read.hash,
        source=read.source,
        file=read.file,
        retries=Retries(*read.retries) if read.retries else None,
        compensation=Compensation(undo[0], _template(undo[1])) if undo else None,
    )


def _conditions(conditions: Iterable[Expression]) -> tuple[_Condition, ...]:
    return tuple(
        _Condition(each.source, _VARIABLES.index(each.variables), each.reads, each.boolean, each.path is not None)
        for each in conditions
    )


def _expression(read: _Condition) -> Expression:
    variables = _VARIABLES[read.variables]
    return Expression(read.source, variables, read.reads, boolean=read.boolean, is_path=read.is_path)


def _value(template: Template) -> _Value:
    variables = _VARIABLES.index(template.variables)
    if not template.is_reference:
        return _Value(template.source, variables, is_text=template.is_text)
    return _Value(template.source, variables, True, template.is_text, template.reads, template.paths)


def _template(read: _Value) -> Template:
    return Template.known(
        read.source,
        _VARIABLES[read.variables],
        is_reference=read.is_reference,
        is_text=read.is_text,
        reads=read.reads,
        paths=read.paths,
    )


def _templates(read: Mapping[str, _Value]) -> dict[str, Template]:
    return {kind: _template(value) for kind, value in read.items()}


def _param(parameter: Parameter) -> _Param:
    if isinstance(parameter, Given):
        return _Param(_value(parameter.template))
    default = parameter.default and _value(parameter.default)
    return _Param(_value(parameter.template), dict(parameter.schema), parameter.required, default)


def _parameter(read: _Param) -> Parameter:
    if read.schema is None:
        return Given(_template(read.value))
    return Open(read.schema, _template(read.value), read.required, read.default and _template(read.default))
