"""What stops the reading of one rule."""

from __future__ import annotations

from typing import TypeAlias

from lark import Tree
from lark.lexer import Token

Part: TypeAlias = "Tree[Token] | Token"


class Unreadable(Exception):
    """A part that means nothing here: where, and why."""

    def __init__(self, part: Part, code: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.part = part
        self.code = code
        self.message = message
        self.hint = hint
