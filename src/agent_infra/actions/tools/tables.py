"""Reading the tables of agent_infra.toml that declare tools: every problem of all tables is said at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from agent_infra.documents import did_you_mean
from agent_infra.errors import ToolInvalid


class Reader:
    """Reads tables of one section and collects what is wrong. What can't be read comes back empty until `finish`."""

    def __init__(self, section: str) -> None:
        self._section = section
        self._problems: list[str] = []

    def wrong(self, name: str, what: str) -> None:
        """Note a problem of a table; no name: of the section's own."""
        place = f"{self._section}.{name}" if name else self._section
        self._problems.append(f"[{place}] {what}")

    def table(self, name: str, value: object) -> dict[str, Any] | None:
        """A value as a table."""
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        self.wrong(name, "is no table")
        return None

    def known(self, name: str, table: Mapping[str, Any], keys: Sequence[str]) -> None:
        """Note the keys that mean nothing here."""
        for key in table:
            if key not in keys:
                self.wrong(name, f"has an unknown key {key}; {did_you_mean(key, keys)}")

    def text(self, name: str, table: Mapping[str, Any], key: str) -> str:
        """A text that has to be there."""
        value = table.get(key)
        if isinstance(value, str) and value:
            return value
        self.wrong(name, f"needs {key} as a text")
        return ""

    def words(self, name: str, table: Mapping[str, Any], key: str, *, needed: bool = False) -> tuple[str, ...]:
        """A list of texts."""
        value = table.get(key, [])
        items = cast("list[object]", value) if isinstance(value, list) else [None]
        if all(isinstance(item, str) for item in items) and (items or not needed):
            return tuple(cast("list[str]", items))
        self.wrong(name, f'needs {key} as a list of texts, such as ["program", "argument"]')
        return ()

    def texts(
        self, name: str, table: Mapping[str, Any], key: str, *, allowed: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """A table of texts, each one of `allowed` where that is given."""
        value = table.get(key, {})
        entries = cast("dict[str, object]", value) if isinstance(value, dict) else {"": None}
        for inner, item in entries.items():
            if not isinstance(item, str):
                self.wrong(name, f"needs {key} as a table of texts")
                return {}
            if allowed is not None and item not in allowed:
                self.wrong(name, f"has {key}.{inner} = {item!r}; {did_you_mean(item, allowed)}")
        return dict(entries)

    def flag(self, name: str, table: Mapping[str, Any], key: str) -> bool:
        """True or false, false unless said."""
        value = table.get(key, False)
        if isinstance(value, bool):
            return value
        self.wrong(name, f"needs {key} as true or false")
        return False

    def whole(self, name: str, table: Mapping[str, Any], key: str) -> int | None:
        """A whole number above 0, None unless said."""
        value = table.get(key)
        if value is None or (type(value) is int and value > 0):
            return value
        self.wrong(name, f"needs {key} as a whole number above 0")
        return None

    def finish(self, mend: str) -> None:
        """Raise ToolInvalid with every problem, if there is one."""
        if self._problems:
            count = len(self._problems)
            raise ToolInvalid(
                f"{count} problem{'s' if count != 1 else ''} in the declared tools",
                where=f"[{self._section}] of agent_infra.toml",
                why="; ".join(self._problems),
                mend=mend[0].upper() + mend[1:] + ".",
                facts={"problems": list(self._problems)},
            )
