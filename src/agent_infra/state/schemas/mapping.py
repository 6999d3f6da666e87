"""Migrations as data: what to drop, rename, set and fill in, on the way from one schema version to another.

    drop:    [note, /address/fax]                 fields that go
    rename:  {title: name, /address/town: /city}  fields that move, all at once, so that two can change places
    set:     {full_name: "${data.first} ${data.last}"}   fields that get a value, whatever they held
    default: {confidence_score: 0.5}              fields that get a value where there is none

They are done in this order. A path is a field's name, or a JSON pointer into objects; objects on the way to a new field
are made. `${…}` is CEL over `data`, which is the data as it came in. What is not there can't be renamed or dropped, and
that is no mistake: fields may be optional.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from agent_infra.content import json_copy
from agent_infra.errors import ExpressionError, MigrationInvalid
from agent_infra.expressions import Template, compile_template

Path: TypeAlias = tuple[str, ...]
Data: TypeAlias = "dict[str, Any]"
_PARTS: Final = ("drop", "rename", "set", "default")
_ABSENT: Final = object()


class DeclaredMapping:
    """A compiled mapping. `source` is the JSON that it was made from.

    Raises MigrationInvalid with everything that is wrong with the source.
    """

    def __init__(self, source: Mapping[str, Any], where: str) -> None:
        self.source: Data = json_copy(dict(source), where=where)[1]
        self._problems: list[str] = []
        unknown = sorted(self.source.keys() - set(_PARTS))
        self._problems += [f"{name!r} is none of {', '.join(_PARTS)}" for name in unknown]
        self._drop = [_path(text) for text in self._list("drop")]
        self._rename = {
            _path(old): _path(new) for old, new in self._object("rename").items() if self._is_text(old, new)
        }
        self._set = {_path(name): self._template(name, value) for name, value in self._object("set").items()}
        self._default = {_path(name): self._template(name, value) for name, value in self._object("default").items()}
        if len(set(self._rename.values())) < len(self._rename):
            self._problems.append("two fields are renamed to one")
        if self._problems:
            raise MigrationInvalid(
                f"{where} can't be used",
                why="; ".join(self._problems),
                mend="A mapping holds drop (a list), rename, set and default (objects), by field name or JSON pointer.",
                facts={"problems": self._problems},
            )

    def __call__(self, data: Data) -> Data:
        """The data mapped; what was given stays as it is. Raises ValueError saying why it can't be done."""
        made: Data = json_copy(data)[1]
        for path in self._drop:
            _take(made, path)
        moved = [(new, _take(made, old)) for old, new in self._rename.items()]
        for path, value in moved:
            if value is not _ABSENT:
                if _value_at(made, path) is not _ABSENT:
                    raise ValueError(f"there is something at {_pointer(path)} already, which a rename would overwrite")
                _put(made, path, value)
        for path, template in self._set.items():
            _put(made, path, _resolved(template, data, path))
        for path, template in self._default.items():
            if _value_at(made, path) is _ABSENT:
                _put(made, path, _resolved(template, data, path))
        return made

    # -- reading the source ----------------------------------------------------------------------------------------------

    def _object(self, part: str) -> Data:
        found = self.source.get(part, {})
        if isinstance(found, dict):
            return cast("Data", found)
        self._problems.append(f"{part!r} is an object of paths")
        return {}

    def _list(self, part: str) -> list[str]:
        found = self.source.get(part, [])
        if isinstance(found, list) and all(isinstance(each, str) for each in cast("list[Any]", found)):
            return cast("list[str]", found)
        self._problems.append(f"{part!r} is a list of paths")
        return []

    def _is_text(self, old: str, new: Any) -> bool:
        if not isinstance(new, str):
            self._problems.append(f"{old!r} is renamed to a path, not to {new!r}")
        return isinstance(new, str)

    def _template(self, name: str, value: Any) -> Template:
        try:
            return compile_template(value, ["data"])
        except ExpressionError as error:
            self._problems.append(f"{name!r}: {error.why or error.what}")
            return compile_template(None, [])


def _path(text: str) -> Path:
    if not text.startswith("/"):
        return (text,)
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))


def _pointer(path: Path) -> str:
    return "/" + "/".join(part.replace("~", "~0").replace("/", "~1") for part in path)


def _resolved(template: Template, data: Data, path: Path) -> Any:
    found = template.resolve({"data": data})
    if not found.ok:
        raise ValueError(f"{_pointer(path)} can't be set: {found.error}")
    return json_copy(found.value)[1]


def _holder(data: Data, path: Path) -> Data | None:
    """The object that holds the last part of a path, or None."""
    found: Any = data
    for part in path[:-1]:
        found = cast("Data", found).get(part) if isinstance(found, dict) else None
    return cast("Data", found) if isinstance(found, dict) else None


def _value_at(data: Data, path: Path) -> Any:
    holder = _holder(data, path)
    return _ABSENT if holder is None else holder.get(path[-1], _ABSENT)


def _take(data: Data, path: Path) -> Any:
    """Remove what is at a path, and give it; `_ABSENT` where nothing is."""
    holder = _holder(data, path)
    return _ABSENT if holder is None else holder.pop(path[-1], _ABSENT)


def _put(data: Data, path: Path, value: Any) -> None:
    for length in range(1, len(path)):
        holder = cast("Data", _holder(data, path[:length]))
        inner = holder.setdefault(path[length - 1], {})
        if not isinstance(inner, dict):
            raise ValueError(f"{_pointer(path[:length])} is no object, so {_pointer(path)} can't be put into it")
    cast("Data", _holder(data, path))[path[-1]] = value
