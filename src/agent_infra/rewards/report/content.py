"""What a report says, apart from how it looks: titles, paragraphs, tables and lists of pieces.

Every text that came from outside (a name, a quote, a flag) is a `Code` piece, so that whatever renders it can keep it from
passing for markup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Final, Literal, TypeAlias

from agent_infra.errors import ReportUnknown
from agent_infra.rewards.report.words import WORDS


@dataclass(frozen=True, slots=True)
class Plain:
    """Words of the report itself."""

    text: str


@dataclass(frozen=True, slots=True)
class Strong:
    """Words of the report itself, to be seen first."""

    text: str


@dataclass(frozen=True, slots=True)
class Code:
    """Text from outside."""

    text: str


@dataclass(frozen=True, slots=True)
class Shade:
    """A text from outside with a share of a value, from -1 to 1: shown by its colour, and by a number."""

    text: str
    share: float


Piece: TypeAlias = Plain | Strong | Code | Shade
Line: TypeAlias = list[Piece]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One line of running text."""

    line: Line


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list."""

    lines: Sequence[Line]


@dataclass(frozen=True, slots=True)
class Table:
    """A table; `numbers` are the places of columns that hold numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Line]]
    numbers: frozenset[int] = frozenset()


Block: TypeAlias = Paragraph | Bullets | Table


@dataclass(frozen=True, slots=True)
class Section:
    """A title and what stands under it."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Content:
    """A whole report. `lead` is what a reader in a hurry reads."""

    title: str
    lead: Sequence[Line]
    sections: Sequence[Section] = field(default_factory=tuple)
    language: str = "en"


class Words:
    """The words of one language. Raises ReportUnknown for a language that there is none of."""

    def __init__(self, language: str) -> None:
        words = WORDS.get(language)
        if words is None:
            raise ReportUnknown(
                f"there is no report in the language {language!r}",
                mend=f"Languages are {', '.join(sorted(WORDS))}.",
                facts={"language": language},
            )
        self.language = language
        self._words: Mapping[str, str] = words

    def text(self, word: str, **values: object) -> str:
        """A phrase as plain text."""
        return self._words[word].format(**values)

    def line(self, word: str, **values: Piece | Line | str) -> Line:
        """A phrase with pieces in its places; a text in a place is plain."""
        line: Line = []
        for text, name, _, _ in Formatter().parse(self._words[word]):
            line += [Plain(text)] if text else []
            value = values[name] if name else []
            line += [Plain(value)] if isinstance(value, str) else value if isinstance(value, list) else [value]
        return line

    def join(self, lines: Sequence[Line], by: Literal["list", "semicolon"] = "list") -> Line:
        """Several lines as one."""
        joined: Line = []
        for place, line in enumerate(lines):
            joined += [Plain(self._words[by]), *line] if place else line
        return joined

    def codes(self, names: Sequence[str]) -> Line:
        """Texts from outside as a list."""
        return self.join([[Code(name)] for name in names])


MICRO: Final = 1_000_000


def micro_text(micro: int, *, sign: bool = True) -> str:
    """Micro-units as an exact decimal."""
    whole, part = divmod(abs(micro), MICRO)
    mark = "-" if micro < 0 else "+" if sign and micro else ""
    return f"{mark}{whole}.{part:06d}"


def span_text(ends: Sequence[float]) -> str:
    """The ends of a range."""
    return f"[{ends[0]:g}, {ends[1]:g}]"
