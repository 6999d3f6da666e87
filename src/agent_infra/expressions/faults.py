"""Compile errors of expressions, in words that help: the engine's own messages read and told."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

from agent_infra.documents import Document
from agent_infra.errors import ExpressionError, Problem

_ERROR = re.compile(r"^(?:INVALID_ARGUMENT: )?ERROR: <input>:(-?\d+):(-?\d+): (.*)$", re.MULTILINE)
_UNKNOWN_NAME = re.compile(r"undeclared reference to '(.*?)'")
_NO_OVERLOAD = re.compile(r"found no matching overload for '(.*?)' applied to '(?:(.*)\.)?\((.*)\)'")
_BAD_TOKEN = re.compile(r"token recognition error at: '(.*)'", re.DOTALL)
_UNEXPECTED = re.compile(r"(?:mismatched|extraneous) input '(.*?)'|no viable alternative at input '(.*?)'")
_PYTHON_WORDS: Final = {
    "and": "&&", "or": "||", "not": "!", "is": "==", "if": "condition ? a : b", "True": "true", "False": "false",
    "None": "null", "null": "null", "len": "size",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong at `offset` (in characters, from 0) of an expression or template.

    `path` leads to the text inside a template that is a list or object.
    """

    code: str
    message: str
    source: str
    offset: int
    hint: str | None = None
    path: tuple[str | int, ...] = ()


def expression_error(faults: Sequence[Fault]) -> ExpressionError:
    """The error that names all faults of an expression."""
    first = faults[0]
    problems: list[dict[str, Any]] = []
    for fault in faults:
        before = fault.source[: fault.offset]
        place = {"line": before.count("\n") + 1, "column": fault.offset - before.rfind("\n")}
        problems.append(asdict(fault) | {"path": list(fault.path)} | place)
    return ExpressionError(
        first.message if len(faults) == 1 else f"{first.message}, and {len(faults) - 1} more",
        where=f"`{first.source}`, line {problems[0]['line']}, column {problems[0]['column']}",
        mend=first.hint and f"{first.hint[0].upper()}{first.hint[1:]}{'' if first.hint.endswith('?') else '.'}",
        facts=problems[0] | {"problems": problems},
    )


def faults_of(error: ExpressionError) -> list[Fault]:
    """The faults that an ExpressionError names."""
    problems = cast("list[dict[str, Any]]", error.facts["problems"])
    return [
        Fault(each["code"], each["message"], each["source"], each["offset"], each["hint"], tuple(each["path"]))
        for each in problems
    ]


def problems_at(error: ExpressionError, document: Document, *path: str | int) -> list[Problem]:
    """An expression's faults as problems of the document that holds the expression or template at `path`."""
    return [
        document.problem(fault.code, fault.message, *path, *fault.path, hint=fault.hint, offset=fault.offset)
        for fault in faults_of(error)
    ]


def engine_faults(message: str, source: str, variables: Iterable[str]) -> list[Fault]:
    """What the engine's error text says, leaving out what isn't an error here: int and double in one operation."""
    starts = [0, *(found.end() for found in re.finditer("\n", source))]
    faults: list[Fault] = []
    for line, column, text in _ERROR.findall(message):
        row = max(0, min(int(line), len(starts)) - 1)
        offset = max(0, min(starts[row] + int(column) - 1, len(source)))
        fault = _fault(text.removesuffix(" [INVALID_ARGUMENT]"), source, offset, tuple(variables))
        if fault is not None:
            faults.append(fault)
        if fault is not None and fault.code == "ExpressionSyntax":
            break  # what follows a syntax error is its echo
    if not faults and not _ERROR.search(message):
        faults.append(_syntax(message, source, 0))
    return faults


def _fault(text: str, source: str, offset: int, variables: tuple[str, ...]) -> Fault | None:
    if unknown := _UNKNOWN_NAME.search(text):
        return _unknown_name(unknown[1], source, offset, variables)
    if overload := _NO_OVERLOAD.search(text):
        function, receiver, arguments = overload.groups()
        if _differ_in_numbers_only(arguments):
            return None
        types = ", ".join(
            _plain_type(name) for name in _split(arguments if not receiver else f"{receiver}, {arguments}")
        )
        return Fault("ExpressionType", f"{operator(function)} can't be applied to ({types})", source, offset)
    return _syntax(text.removeprefix("Syntax error: "), source, offset)


def _unknown_name(name: str, source: str, offset: int, variables: tuple[str, ...]) -> Fault:
    is_function = source[offset : offset + 1] == "("
    name, _, field = name.partition(".")
    if is_function or field:  # the engine points at the parenthesis or the dot behind the name
        offset = max(0, source.rfind(name, 0, offset))
    if name in _PYTHON_WORDS:
        return Fault(
            "ExpressionName", f"`{name}` is not a name in CEL", source, offset, f"write `{_PYTHON_WORDS[name]}`"
        )
    if is_function:
        return Fault("ExpressionName", f"there is no function `{name}`", source, offset)
    near = difflib.get_close_matches(name, variables, 1)
    hint = f"did you mean `{near[0]}`?" if near else f"the names here are {', '.join(variables)}"
    return Fault("ExpressionName", f"there is no `{name}` here", source, offset, hint)


def _syntax(text: str, source: str, offset: int) -> Fault:
    if "recursion" in text:
        hint = "split it: at most 32 levels, and 31 operators of one kind in a row"
        return Fault("ExpressionSyntax", "the expression is nested too deeply", source, 0, hint)
    bad = _BAD_TOKEN.search(text)
    if bad and not bad[1][:1].isascii():
        word = re.match(r"\w+", source[offset:])
        hint = f'write a key that is not a plain ASCII word in brackets: ["{word[0] if word else bad[1]}"]'
        return Fault("ExpressionSyntax", f"`{bad[1]}` can't stand here", source, offset, hint)
    if bad:
        hint = "write `==` to compare" if bad[1].startswith("=") else "a text ends with the quote that it began with"
        return Fault("ExpressionSyntax", f"`{bad[1].strip()}` can't stand here", source, offset, hint)
    unexpected = _UNEXPECTED.search(text)
    if unexpected:
        word = (unexpected[1] or unexpected[2] or "").strip()
        if word in ("<EOF>", ""):
            return Fault("ExpressionSyntax", "the expression ends too early", source, offset)
        hint = f"write `{_PYTHON_WORDS[word]}`" if word in _PYTHON_WORDS else None
        return Fault("ExpressionSyntax", f"`{word}` can't stand here", source, offset, hint)
    return Fault("ExpressionSyntax", text, source, offset)


# -- names of operators and types --------------------------------------------------------------------------------------


_TYPES: Final = {
    "int": "number", "uint": "number", "double": "number", "string": "text", "dyn": "any",
    "int64": "integer of 2^53 or more",  # in an evaluation, any smaller one is a double
}  # fmt: skip


def operator(function: str) -> str:
    """An operator's or function's name as one writes it."""
    known = {"_?_:_": "`? :`", "_[_]": "`[ ]`", "@in": "`in`", "!_": "`!`", "-_": "`-`"}
    return known.get(function) or f"`{function.strip('_')}`"


def _plain_type(name: str) -> str:
    return _TYPES.get(name, name.replace("_type", ""))


def plain_types(names: str) -> str:
    """Type names of the engine, separated by commas, in this project's words."""
    return ", ".join(_plain_type(name) for name in _split(names))


def _split(names: str) -> list[str]:
    return re.split(r", (?![^(]*\))", names)


def _differ_in_numbers_only(arguments: str) -> bool:
    """Whether an operation would be well typed if int and double were one type, as they are here."""
    if "double" not in arguments or "int" not in arguments:
        return False
    types = [name.replace("uint", "double").replace("int", "double") for name in _split(arguments)]
    types = [name for name in types if name != "dyn"]
    if types[0] == "bool":
        types = types[1:]  # the condition of `? :`
    first, last = types[0], types[-1]
    return len(set(types)) <= 1 or (len(types) == 2 and (last == f"list({first})" or first.startswith("list(")))
