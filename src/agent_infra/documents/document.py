"""A YAML document with positions: what every problem points at."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent_infra.content import JsonValue
from agent_infra.errors import Problem

_LINE_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a text. Lines and columns count from 1, columns in characters."""

    line: int
    column: int


class Text:
    """A text that documents are read from, with the file it is from."""

    __slots__ = ("file", "full", "lines")

    def __init__(self, full: str, file: str | None) -> None:
        self.full = full
        self.file = file
        self.lines = _LINE_BREAK.split(full)

    def position(self, at: int) -> Position:
        """Where the character at the offset `at` stands."""
        line, start = 1, 0
        for found in _LINE_BREAK.finditer(self.full, 0, at):
            line, start = line + 1, found.end()
        return Position(line, at - start + 1)

    def problem(self, code: str, message: str, position: Position, hint: str | None = None) -> Problem:
        """A problem at a position, with the line that it stands in."""
        source = self.lines[position.line - 1] if position.line <= len(self.lines) else None
        return Problem(code, message, self.file, position.line, position.column, hint, source)


@dataclass(slots=True)
class DocumentNode:
    """One value of a document with where it stands; `raw` is a scalar's text as written."""

    at: int
    position: Position
    data: JsonValue = None
    raw: str | None = None
    style: str | None = None
    flow: bool = False
    keys: dict[str, Position] = field(default_factory=dict[str, Position])
    parts: dict[str | int, DocumentNode] = field(default_factory=dict[str | int, "DocumentNode"])


class Document:
    """One YAML document: its data, and where in its text each part of it stands.

    `text` is the document's own part of the file; parsed again, it gives an equal document.
    """

    __slots__ = ("_root", "_whole", "data", "file", "text")

    def __init__(self, root: DocumentNode, whole: Text, start: int, end: int) -> None:
        self._root = root
        self._whole = whole
        self.data: JsonValue = root.data
        self.text = whole.full[start:end]
        self.file = whole.file

    def position(self, *path: str | int, key: bool = False) -> Position:
        """Where the value at `path` stands, or its key; for an absent path the nearest enclosing part that exists."""
        node = self._root
        key_position = node.position
        for name in path:
            part = node.parts.get(name)
            if part is None:
                break
            key_position = node.keys.get(name, part.position) if isinstance(name, str) else part.position
            node = part
        return key_position if key else node.position

    def raw(self, *path: str | int) -> str | None:
        """A scalar's text as written, quotes removed, so that `NO` or `1.10` under a text field can stay text.

        None where there is no scalar.
        """
        node = self._at(path)
        return node.raw if node else None

    def problem(
        self,
        code: str,
        message: str,
        *path: str | int,
        key: bool = False,
        hint: str | None = None,
        offset: int | None = None,
    ) -> Problem:
        """A problem at the value (or key) at `path`, or at the character `offset` of a scalar's text."""
        position = self.position(*path, key=key)
        node = self._at(path)
        if node and node.raw and offset is not None and not key:
            position = self._inside(node, offset)
        return self._whole.problem(code, message, position, hint)

    def _at(self, path: tuple[str | int, ...]) -> DocumentNode | None:
        node: DocumentNode | None = self._root
        for name in path:
            node = node.parts.get(name) if node else None
        return node

    def _inside(self, node: DocumentNode, offset: int) -> Position:
        """Where the character at `offset` of a scalar's value stands, past quotes, headers and line ends."""
        text, at = self._whole.full, node.at
        if node.style in ("|", ">"):
            at = text.find("\n", at) + 1
        for char in (node.raw or "")[: offset + 1]:
            if char.isspace():
                while at < len(text) and text[at].isspace():
                    at += 1
            else:
                found = text.find(char, at)
                if found < 0:
                    return node.position
                at = found + 1
        past_end = offset >= len(node.raw or "")
        return self._whole.position(at if past_end else max(at - 1, node.at))


class LayeredDocument(Document):
    """A document that takes what it lacks from others, the nearest first; each part stands where it is written.

    A mapping that several of them have holds the keys of all: of one key, the nearest document's value. All other
    values are the nearest document's as a whole. `text` holds all of them, as documents of one stream.
    """

    __slots__ = ("_layers",)

    def __init__(self, layers: Sequence[Document]) -> None:
        own = layers[0]
        super().__init__(own._root, own._whole, 0, 0)
        self._layers = tuple(layers)
        self.text = "\n---\n".join(layer.text for layer in layers)
        self.data = _merged([layer.data for layer in layers])

    def position(self, *path: str | int, key: bool = False) -> Position:
        return self._layer(path).position(*path, key=key)

    def raw(self, *path: str | int) -> str | None:
        return self._layer(path).raw(*path)

    def problem(
        self,
        code: str,
        message: str,
        *path: str | int,
        key: bool = False,
        hint: str | None = None,
        offset: int | None = None,
    ) -> Problem:
        return self._layer(path).problem(code, message, *path, key=key, hint=hint, offset=offset)

    def _layer(self, path: tuple[str | int, ...]) -> Document:
        """The document that the value at a path is from; the nearest one for what none has."""
        found = self._layers[0]
        for depth in range(1, min(len(path), 2) + 1):
            found = next((layer for layer in self._layers if layer._at(path[:depth]) is not None), found)
        return found


def _merged(layers: Sequence[JsonValue]) -> JsonValue:
    whole: dict[str, JsonValue] = {}
    for layer in reversed(layers):
        for name, value in layer.items() if isinstance(layer, dict) else ():
            below = whole.get(name)
            whole[name] = {**below, **value} if isinstance(below, dict) and isinstance(value, dict) else value
    return whole
