"""Reading YAML texts and files into documents, or into all the problems that they have."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import yaml

from agent_infra.content import JsonValue
from agent_infra.documents.document import Document, DocumentNode, Position, Text
from agent_infra.errors import DocumentErrors, FileMissing, Problem

_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_REFERENCE = re.compile(r"\$?([^\W\d]\w*(\.\w+)+)")
_MAX_DEPTH: Final = 100
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_events = cast("Callable[..., Iterator[yaml.Event]]", yaml.parse)  # pyright: ignore[reportUnknownMemberType]


def parse_documents(text: str, file: str | None = None) -> list[Document]:
    """All documents of a text, empty ones left out. Raises DocumentErrors with every problem found."""
    documents, problems = survey_documents(text, file)
    if problems:
        raise DocumentErrors(problems)
    return documents


def read_documents(path: str | Path) -> list[Document]:
    """All documents of a UTF-8 file. Raises FileMissing, DocumentErrors."""
    return parse_documents(read_text(path), str(path))


def read_text(path: str | Path) -> str:
    """A UTF-8 file's text, without a byte order mark. Raises FileMissing, DocumentErrors."""
    try:
        raw = Path(path).read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise FileMissing(path) from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"the file is not UTF-8: byte 0x{raw[error.start]:02x}"
        raise DocumentErrors([Problem("NotYaml", message, str(path), line, hint="save it as UTF-8")]) from error


def survey_documents(text: str, file: str | None = None) -> tuple[list[Document], list[Problem]]:
    """What can be read of a text, and its problems: for a compiler that wants to add its own before it raises.

    The parts that problems stand at hold stand-in values.
    """
    whole = Text(text, file)
    reader = _Reader(text, whole)
    found: list[Problem] = []
    while (readable := reader.read()) is not None:
        found += reader.problems
        reader = _Reader(readable, whole)
    problems = sorted(set(found + reader.problems), key=lambda problem: (problem.line or 0, problem.column or 0))
    return reader.documents, problems


@dataclass(slots=True)
class _Frame:
    """A mapping or sequence that is being read."""

    node: DocumentNode
    is_mapping: bool
    key: str | None = None
    key_end: int = 0
    awaits_key: bool = True
    is_key: bool = False


class _Reader:
    """Builds nodes from PyYAML's events; no aliases are followed, so no text can grow beyond its size."""

    def __init__(self, readable: str, whole: Text) -> None:
        self._readable = readable
        self._whole = whole
        self._stack: list[_Frame] = []
        self._root: DocumentNode | None = None
        self._start = 0
        self.documents: list[Document] = []
        self.problems: list[Problem] = []

    def read(self) -> str | None:
        """Read all events. Returns a text to read instead, where an unquoted reference made this one unreadable."""
        try:
            for event in _events(self._readable, Loader=_LOADER):
                self._take(event)
        except (yaml.YAMLError, UnicodeEncodeError) as error:
            return self._unreadable(error)
        return None

    def _take(self, event: yaml.Event) -> None:
        if isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self._close()
            return
        if not isinstance(event, yaml.NodeEvent):
            self._take_boundary(event)
            return
        at: int = event.start_mark.index
        node = DocumentNode(at, Position(event.start_mark.line + 1, event.start_mark.column + 1))
        self._refuse_sharing(event, node.position)
        if isinstance(event, yaml.ScalarEvent):
            node.raw, node.style = event.value, event.style or None
            node.data = event.value if event.style else self._resolve(event.value, node)
            self._place(node, event.end_mark.index)
        elif isinstance(event, yaml.AliasEvent):
            node.raw = ""
            self._place(node, event.end_mark.index)
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(self._stack) == _MAX_DEPTH:
                raise yaml.MarkedYAMLError(problem=f"nested over {_MAX_DEPTH} deep", problem_mark=event.start_mark)
            self._open(node, isinstance(event, yaml.MappingStartEvent), bool(event.flow_style))

    def _take_boundary(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._start = event.start_mark.index
        elif isinstance(event, yaml.DocumentEndEvent) and self._root is not None:
            self.documents.append(Document(self._root, self._whole, self._start, event.end_mark.index))

    def _refuse_sharing(self, event: yaml.NodeEvent, position: Position) -> None:
        if event.anchor is not None:
            sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
            message = f"`{sign}{event.anchor}`: anchors and aliases are refused"
            self._report("AliasRefused", message, position, hint="write the value out where it is used")
        tag: str | None = getattr(event, "tag", None)
        if tag is not None:
            shown = tag.replace("tag:yaml.org,2002:", "!!")
            hint = 'leave the tag out; quote a value that shall be text, as in "5"'
            self._report("TagRefused", f"`{shown}`: tags are refused", position, hint=hint)

    # -- collections ---------------------------------------------------------------------------------------------------

    def _open(self, node: DocumentNode, is_mapping: bool, flow: bool) -> None:
        node.data = {} if is_mapping else []
        node.flow = flow
        is_key = bool(self._stack) and self._stack[-1].is_mapping and self._stack[-1].awaits_key
        self._stack.append(_Frame(node, is_mapping, is_key=is_key))

    def _close(self) -> None:
        frame = self._stack.pop()
        if frame.is_key:
            self._report("KeyNotText", "a key must be text", frame.node.position, hint="write the key as a plain word")
            self._stack[-1].key = None
            self._stack[-1].awaits_key = False
        else:
            self._place(frame.node, frame.node.at)

    def _place(self, node: DocumentNode, end: int) -> None:
        """Put a finished value where it belongs: a key or value of a mapping, an item of a sequence, or a root."""
        if not self._stack:
            self._root = None if node.raw == "" and node.style is None else node
            return
        frame = self._stack[-1]
        if not frame.is_mapping:
            if frame.node.flow:
                self._check_parentheses(node)
            frame.node.parts[len(frame.node.parts)] = node
            cast("list[JsonValue]", frame.node.data).append(node.data)
        elif frame.awaits_key:
            frame.key = self._key(frame.node, node)
            frame.key_end = end
            frame.awaits_key = False
        else:
            frame.awaits_key = True
            if frame.key is not None:
                self._place_value(frame, node)

    def _place_value(self, frame: _Frame, node: DocumentNode) -> None:
        parent, key = frame.node, frame.key or ""
        if parent.flow:
            if node.raw == "" and node.style is None and not self._whole.full[frame.key_end :].lstrip().startswith(":"):
                self._flow_trap(frame, parent.keys[key])
            else:
                self._check_parentheses(node)
        parent.parts[key] = node
        cast("dict[str, JsonValue]", parent.data)[key] = node.data

    def _key(self, parent: DocumentNode, node: DocumentNode) -> str | None:
        """A key's text, or None for one whose value is to be left out."""
        text = node.raw or ""
        if not isinstance(node.data, str):
            hint = f'write "{text}" in quotes' if text else "write a word before the colon"
            self._report("KeyNotText", f"the key `{text}` is not text", node.position, hint=hint)
        if text in parent.keys:
            first, second = parent.keys[text].line, node.position.line
            message = f"the key `{text}` stands twice in one mapping, in lines {first} and {second}"
            self._report("DuplicateKey", message, node.position, hint="keep one of the two")
            return None
        parent.keys[text] = node.position
        return text

    # -- scalars -------------------------------------------------------------------------------------------------------

    def _resolve(self, text: str, node: DocumentNode) -> JsonValue:
        """A plain scalar's value under the YAML 1.2 core schema."""
        if text in _NULLS:
            return None
        if text in _BOOLEANS:
            return _BOOLEANS[text]
        number = _number(text)
        if number is None:
            return text
        if isinstance(number, float) and not math.isfinite(number):
            reason = "not a finite number"
        elif isinstance(number, int) and not -(2**63) <= number < 2**63:
            reason = "over 64 bits"
        else:
            return number
        hint = f'write "{text}" in quotes if it shall be text'
        self._report("NotJson", f"`{text}` is {reason}", node.position, hint=hint)
        return None

    # -- traps ---------------------------------------------------------------------------------------------------------

    def _flow_trap(self, frame: _Frame, position: Position) -> None:
        """A key without a colon inside `{}`: a reference spelled wrongly, or the rest of a value that held a comma."""
        key = frame.key or ""
        reference = _REFERENCE.fullmatch(key)
        if reference and not frame.node.parts:
            nested = any(outer.node.flow for outer in self._stack[:-1])
            right = "${" + reference.group(1) + "}"
            start = frame.node.position
            message = f"`{{{key}}}` is a mapping in YAML, not a reference"
            self._report(
                "ReferenceSpelling", message, start, hint=f'write `"{right}"`' if nested else f"write `{right}`"
            )
            return
        if self.problems and self.problems[-1].code == "FlowComma" and self.problems[-1].line == position.line:
            return  # the value before it, cut short by the same comma, has been reported
        message = f"`{key}` became a key of its own, without a value"
        hint = "a comma inside {} begins a new key: put quotes round the whole value that holds the comma"
        self._report("FlowComma", message, position, hint=hint)

    def _check_parentheses(self, node: DocumentNode) -> None:
        text = node.raw or ""
        if node.style is None and text.count("(") > text.count(")"):
            hint = "a comma inside {} or [] ends an unquoted value: put quotes round the whole value"
            self._report("FlowComma", f"the value `{text}` ends before its parenthesis does", node.position, hint=hint)

    def _unreadable(self, error: yaml.YAMLError | UnicodeEncodeError) -> str | None:
        """Report a syntax error. For an unquoted `${…}` in flow style, returns the text with it masked, to read on."""
        mark: yaml.Mark | None = getattr(error, "problem_mark", None)
        at: int = mark.index if mark else self._offset(error)
        span = _unquoted_reference(self._readable, at)
        if span is None:
            reason: str | None = getattr(error, "problem", None) or getattr(error, "reason", None)
            hint = "a text that holds `: ` or ` #` needs quotes" if reason and "mapping values" in reason else None
            self._report("NotYaml", reason or str(error), self._whole.position(at), hint=hint)
            return None
        start, end = span
        text = self._whole.full[start:end]
        position, right = self._whole.position(start), f"'{text}'" if '"' in text else f'"{text}"'
        self._report("UnquotedReference", f"`{text}` inside {{}} or [] needs quotes", position, hint=f"write `{right}`")
        return self._readable[:start] + "_" * len(text) + self._readable[end:]

    def _offset(self, error: Exception) -> int:
        """Where a character is that can't be read: in characters, while the parser counts bytes."""
        if isinstance(error, UnicodeEncodeError):
            return error.start
        found: int = getattr(error, "position", 0)
        if _LOADER is yaml.SafeLoader:
            return found
        return len(self._readable.encode(errors="replace")[:found].decode(errors="ignore"))

    def _report(self, code: str, message: str, position: Position, *, hint: str | None = None) -> None:
        self.problems.append(self._whole.problem(code, message, position, hint))


def _number(text: str) -> int | float | None:
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) < 25 else 2**64
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEXADECIMAL.fullmatch(text):
        return int(text[2:], 16)
    if _FLOAT.fullmatch(text):
        return float(text)
    return math.nan if _NOT_FINITE.fullmatch(text) else None


def _unquoted_reference(text: str, at: int) -> tuple[int, int] | None:
    """Where the unquoted value that holds a `${…}` begins and ends, if the `{` at `at` is such a one's, on one line."""
    if text[at - 1 : at + 1] != "${":
        return None
    start, end, depth = at - 1, at, 0
    while start and text[start - 1] not in " \t\r\n{[,":
        start -= 1
    while end < len(text) and (depth or text[end] not in " \t\r\n}],"):
        if text[end] in "\r\n":
            return None
        depth += (text[end] == "{") - (text[end] == "}")
        end += 1
    return None if depth else (start, end)
