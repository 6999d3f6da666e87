"""Texts in quotes and numbers, as Java writes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from lark.lexer import Token

from agent_infra.rewards.rules.drl.unreadable import Unreadable

_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)")
_ESCAPES: Final[Mapping[str, str]] = {
    "n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\\": "\\", '"': '"', "'": "'",
}  # fmt: skip


def text_of(token: Token) -> str:
    """What a text in quotes says. Raises Unreadable for an escape that there is none of."""

    def meant(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code not in _ESCAPES:
            hint = 'write one of \\n \\t \\" \\\\ \\u4e2d; a backslash of a regular expression is written twice'
            raise Unreadable(token, "BadText", f"{token} has an escape that is not known: `\\{code}`", hint)
        return _ESCAPES[code]

    units = _ESCAPE.sub(meant, str(token)[1:-1]).encode("utf-16", "surrogatepass")
    try:
        return units.decode("utf-16")
    except UnicodeDecodeError:
        raise Unreadable(token, "BadText", f"{token} holds half a character", "write the character itself") from None


def number_of(token: Token) -> str:
    """A number as CEL writes it: without Java's letter for its type."""
    return str(token).rstrip("fFdDlLB")
