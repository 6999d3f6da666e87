"""Secrets: `secret://NAME` in a tool's settings, put in where the tool runs and taken out of everything that is written.

A secret's value stands in the environment as AGENT_INFRA_SECRET_<NAME>, or in the file `<home>/secrets/<NAME>`, which
nobody but its owner may read. It is never stored in the graph, in evidence or in a contract: those hold `secret://NAME`.
Whatever a call leaves behind (parameters, output, error, printed text, conditions) is searched for the values that are
known, in the forms in which they usually get around: as they are, escaped in JSON or in Python's quotes, URL-encoded,
base64-encoded alone or in the middle of a longer text, and line by line.
"""

from __future__ import annotations

import base64
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote, quote_plus

from agent_infra.config import SECRET
from agent_infra.errors import SecretMissing, SecretUnusable
from agent_infra.observability import get_logger

SCHEME: Final = "secret://"
SHORTEST: Final = 6
"""Characters that a secret has at least: a shorter one could not be told from ordinary text."""
_NAME: Final = re.compile(r"[A-Za-z0-9_]{1,128}")
_LINE: Final = 12
"""Characters from which a line of a longer secret is hidden by itself."""
_CUT: Final = 4
"""Characters of a secret's end by which it is named where a text was cut off before them; fewer are taken out without."""
_log = get_logger(__name__)


class Sealed:
    """A tool's settings on their way to an executor, which opens them. Printed, they show references, not values."""

    __slots__ = ("_values", "settings")

    def __init__(self, settings: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        self.settings = settings
        self._values = values

    def open(self) -> dict[str, Any]:
        """The settings with the secrets' values. For executors only."""
        return dict(self._values)

    def __repr__(self) -> str:
        return f"Sealed({dict(self.settings)!r})"


NO_SETTINGS: Final = Sealed({}, {})


class Secrets:
    """The secrets of one home. `folder` holds one file a secret; None: the environment only.

    What stands in the environment and the folder as this is made is known from then on, and whatever is asked for later.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._names: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        self._know_all()

    # -- in: where a tool runs ---------------------------------------------------------------------

    def seal(self, settings: Mapping[str, Any]) -> Sealed:
        """A tool's settings with the secrets that they name. Raises SecretMissing, SecretUnusable."""
        return Sealed(settings, cast("dict[str, Any]", self.resolve(dict(settings)))) if settings else NO_SETTINGS

    def resolve(self, value: Any) -> Any:
        """A value with each text `secret://NAME` in it replaced by that secret. Raises SecretMissing, SecretUnusable."""
        if isinstance(value, str):
            return self.get(value.removeprefix(SCHEME)) if value.startswith(SCHEME) else value
        if isinstance(value, Mapping):
            return {name: self.resolve(each) for name, each in cast("Mapping[str, Any]", value).items()}
        if isinstance(value, list):
            return [self.resolve(each) for each in cast("list[Any]", value)]
        return value

    def get(self, name: str) -> str:
        """A secret's value. Raises SecretMissing, and SecretUnusable for a name, file or value that can't be one."""
        if not _NAME.fullmatch(name):
            raise SecretUnusable(
                f"{name!r} can't be a secret's name",
                why="it is 1 to 128 letters of a to z, digits and `_`",
                mend="Write secret://SEARCH_KEY, say.",
            )
        value = os.environ.get(SECRET + name)
        if value is None:
            value = self._read(name, strict=True)
        if value is None:
            places = f"{SECRET}{name} is not set" + (f" and {self._folder / name} is not there" if self._folder else "")
            raise SecretMissing(
                f"there is no secret {name}",
                why=places,
                mend=f"Export {SECRET}{name}, or write it to that file with mode 0600.",
                facts={"secret": name},
            )
        self._check(name, value)
        self._know(name, value)
        return value

    def _read(self, name: str, *, strict: bool) -> str | None:
        """What a secret's file holds, without the line's end behind it; None where there is none."""
        if self._folder is None:
            return None
        path = self._folder / name
        try:
            with path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                content = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SecretUnusable(f"the file of secret {name} can't be read", where=str(path), why=str(error)) from error
        if strict and mode & 0o077:
            raise SecretUnusable(
                f"others may read the file of secret {name}",
                where=str(path),
                why=f"its mode is {mode:04o}",
                mend=f"chmod 600 {path}, and change the secret if somebody else could have read it.",
                facts={"secret": name, "mode": f"{mode:04o}"},
            )
        try:
            return content.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise SecretUnusable(
                f"the file of secret {name} is not text",
                where=str(path),
                why=f"byte {error.start} is no UTF-8",
                mend="Store it base64-encoded, and let the tool decode it.",
            ) from None

    def _check(self, name: str, value: str) -> None:
        if len(value) < SHORTEST:
            raise SecretUnusable(
                f"secret {name} has {len(value)} characters",
                why=f"under {SHORTEST} it could not be told from ordinary text, and so not be kept out of what is recorded",
                mend="Use a longer one.",
                facts={"secret": name},
            )

    # -- out: of everything that is written --------------------------------------------------------

    def clean(self, value: Any) -> Any:
        """A JSON value with every known secret replaced by its `secret://NAME`; the value itself where it holds none."""
        return value if self._pattern is None else self._clean(value, self._pattern)

    def clean_tail(self, text: str) -> str:
        """`clean` for the end of a longer text, which may have been cut off in the middle of a secret."""
        if self._pattern is None or not text:
            return text
        head, mark, rest = text.partition("\n") if text.startswith("… ") else ("", "", text)
        rest = rest.lstrip("\ufffd")  # what the cut left of a character
        longest, whose = max((_overlap(needle, rest), name) for needle, name in self._names.items())
        if longest >= _CUT:
            rest = f"…{SCHEME}{whose}{rest[longest:]}"
        elif longest and mark:
            rest = f"…{rest[longest:]}"
        return head + mark + self._pattern.sub(self._reference, rest)

    def _clean(self, value: Any, pattern: re.Pattern[str]) -> Any:
        if isinstance(value, str):
            return pattern.sub(self._reference, value) if pattern.search(value) else value
        if isinstance(value, dict):
            mapping = cast("dict[str, Any]", value)
            pairs = [(self._clean(name, pattern), self._clean(each, pattern)) for name, each in mapping.items()]
            same = all(a is name and b is each for (a, b), (name, each) in zip(pairs, mapping.items(), strict=True))
            return mapping if same else dict(pairs)
        if isinstance(value, list | tuple):
            items = cast("list[Any]", value)
            parts = [self._clean(each, pattern) for each in items]
            return items if all(a is b for a, b in zip(parts, items, strict=True)) else parts
        return value

    def _reference(self, found: re.Match[str]) -> str:
        return SCHEME + self._names[found[0]]

    def _know_all(self) -> None:
        """Learn what stands in the environment and in the folder, usable or not: all of it is to be hidden."""
        found = {name.removeprefix(SECRET): value for name, value in os.environ.items() if name.startswith(SECRET)}
        files = sorted(self._folder.iterdir()) if self._folder is not None and self._folder.is_dir() else []
        for path in files:
            try:
                value = self._read(path.name, strict=False)
            except SecretUnusable as error:
                _log.warning("secret.unreadable", file=str(path), why=error.why)
                continue
            if value is not None:
                self._know(path.name, value)
        for name, value in found.items():
            self._know(name, value)

    def _know(self, name: str, value: str) -> None:
        """Hide a value from now on. One that is too short to be hidden is refused when it is asked for."""
        if len(value) < SHORTEST or self._names.get(value) == name:
            return
        names = dict(self._names)
        names |= {form: name for form in _forms(value) if form not in names} | {value: name}
        longest_first = sorted(names, key=len, reverse=True)
        self._names, self._pattern = names, re.compile("|".join(map(re.escape, longest_first)))


def _overlap(needle: str, text: str) -> int:
    """How many characters at a text's beginning are the end of a secret whose own beginning was cut off."""
    return next((len(needle) - start for start in range(1, len(needle)) if text.startswith(needle[start:])), 0)


def _forms(value: str) -> set[str]:
    """The texts by which a secret is recognised."""
    lines = {line.strip() for line in value.splitlines() if len(line.strip()) >= _LINE} if "\n" in value else set[str]()
    return {form for text in {value} | lines for form in _encoded(text)}


def _encoded(text: str) -> Iterator[str]:
    raw = text.encode("utf-8", "surrogateescape")
    yield text
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield json.dumps(text)[1:-1]
    yield repr(text)[1:-1]
    yield repr(raw)[2:-1]
    for url in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        yield url
        yield re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), url)
    for shift in range(3):
        form = _base64_inside(raw, shift)
        if len(form) >= SHORTEST:
            yield form
            yield form.replace("+", "-").replace("/", "_")


def _base64_inside(raw: bytes, shift: int) -> str:
    """What of the base64 form of a longer text is the secret's alone, where it begins at a byte that is `shift` over a
    multiple of 3.
    """
    encoded = base64.b64encode(bytes(shift) + raw).decode()
    first = (0, 2, 3)[shift]  # the characters before hold bits of what stands before it
    whole = (shift + len(raw)) * 8 // 6  # the one behind holds bits of what follows
    return encoded[first:whole]
