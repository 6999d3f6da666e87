"""The tool registry: the tools of one home by name, and where they were looked for."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Final, cast, overload

from agent_infra.actions.tools.definition import MARK, Effects, Function, Isolation, Tool, make_tool
from agent_infra.actions.tools.elsewhere import Elsewhere
from agent_infra.actions.tools.places import changed, load_file, place_of, reload_file
from agent_infra.errors import ToolInvalid, ToolUnknown
from agent_infra.observability import get_logger

ENTRY_POINTS: Final = "agent_infra.tools"
_log = get_logger(__name__)


class ToolRegistry:
    """The tools of one home, by name. `searched` says where tools were looked for and what was found there; `revision`
    grows with every change. `unasked` says, by what their tools' names begin with, which servers and images couldn't be
    asked for theirs, and why.
    """

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}
        self._files: dict[Path, list[str]] = {}
        self._listeners: list[Callable[[], None]] = []
        self.revision = 0
        self.searched: list[str] = []
        self.unasked: dict[str, str] = {}

    def register(self, tool: Tool) -> Tool:
        """Add a tool. The same function again replaces its older definition; ToolInvalid for another of that name."""
        if tool.isolation == "process":
            place_of(tool.run, tool.name)
        known = self._tools.get(tool.name)
        if known is not None and _origin(known) != _origin(tool):
            raise ToolInvalid(
                f"two tools are called {tool.name!r}",
                why=f"one is {_origin(known)}, the other {_origin(tool)}",
                mend="Give one of them another `name=`.",
                facts={"tool": tool.name},
            )
        if tool.effects is None:
            _log.warning("tool.effects_undeclared", tool=tool.name, treated_as="once", mend="say effects='none', say")
        self._tools[tool.name] = tool
        self._changed()
        return tool

    def _changed(self) -> None:
        self.revision += 1
        for listener in list(self._listeners):
            listener()

    def watch(self, listener: Callable[[], None]) -> None:
        """Call a function after every change of the registry."""
        self._listeners.append(listener)

    def reload(self) -> list[str]:
        """Load the tool files anew that were changed since they were loaded; the names of the tools that they define now.

        Workers that had loaded the older source are replaced at their next call. A file that can't be run leaves what it
        defined before in force. Raises FileMissing, ToolInvalid.
        """
        found: list[str] = []
        for path, before in list(self._files.items()):
            if changed(path):
                tools = _collect(reload_file(path))
                for name in set(before) - {tool.name for tool in tools}:
                    del self._tools[name]
                    _log.warning("tool.removed", tool=name, file=str(path))
                self._files[path] = [self.register(tool).name for tool in tools]
                found += self._files[path]
                self._changed()
        return sorted(found)

    def remove(self, name: str) -> None:
        """Forget a tool, such as one that its server no longer has. Harmless where there is none of that name."""
        if self._tools.pop(name, None) is not None:
            self._changed()

    @overload
    def tool(self, function: Function) -> Function: ...

    @overload
    def tool(
        self,
        *,
        name: str | None = None,
        version: str = "1.0.0",
        effects: Effects | None = None,
        resources: Mapping[str, float] | None = None,
        isolation: Isolation = "none",
        settings: Mapping[str, Any] | None = None,
    ) -> Callable[[Function], Function]: ...

    def tool(self, function: Any = None, **options: Any) -> Any:
        """Decorator: register a typed function, with the options of `make_tool`. The function stays as it is."""

        def add(target: Function) -> Function:
            self.register(make_tool(target, **options))
            return target

        return add if function is None else add(function)

    def get(self, name: str) -> Tool:
        """The tool of that name. Raises ToolUnknown, which says where it was looked for and what is called alike."""
        found = self._tools.get(name)
        if found is None:
            alike = difflib.get_close_matches(name, self._tools, n=1)
            looked = "; ".join(self.searched) or "nowhere: no tool module is named and none is installed"
            hint = f"Did you mean {alike[0]!r}? " if alike else ""
            mend = "Name its module under `tools` in agent_infra.toml, or register it with `infra.tools`."
            if self.awaited(name) is not None:
                mend = "See to it that what was not asked can be, and call `infra.refresh_tools()`."
            raise ToolUnknown(
                f"no tool is called {name!r}",
                why=f"looked in: {looked}",
                mend=f"{hint}{mend}",
                facts={"tool": name, "searched": list(self.searched), "known": self.names()},
            )
        return found

    def find(self, name: str) -> Tool | None:
        """The tool of that name, if there is one."""
        return self._tools.get(name)

    def awaited(self, name: str) -> str | None:
        """Why a tool that isn't there may yet come: its server, or an image, couldn't be asked."""
        return next((why for start, why in self.unasked.items() if name.startswith(start)), None)

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter([self._tools[name] for name in self.names()])

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def load_module(self, path: str | Path) -> list[Tool]:
        """Run a Python file and register the marked functions and Tool objects at its top level.

        Raises FileMissing, and ToolInvalid with file and line for a file that can't be run; `searched` tells too.
        """
        self.searched.append(f"{path} (not loaded)")
        found = [self.register(each) for each in _collect(load_file(path))]
        self._files[Path(path).resolve()] = [tool.name for tool in found]
        self.searched[-1] = f"{path} ({_count(found)})"
        return found

    def load_entry_points(self, group: str = ENTRY_POINTS) -> list[Tool]:
        """Register the tools of installed packages. An entry point names a module, a marked function or a Tool.

        One broken package doesn't take the others with it: it is logged, and `searched` tells.
        """
        found: list[Tool] = []
        for entry in entry_points(group=group):
            found += self._load_entry(entry)
        self.searched.append(f"installed packages, entry points {group!r} ({_count(found)})")
        return found

    def _load_entry(self, entry: EntryPoint) -> list[Tool]:
        try:
            target: object = entry.load()
            tools = _collect(target) if isinstance(target, ModuleType) else [_as_tool(target, entry.value)]
            return [self.register(each) for each in tools]
        except Exception as error:  # noqa: BLE001 - importing runs a stranger's code
            _log.warning("tool.entry_point_failed", entry_point=entry.value, error=str(error))
            self.searched.append(f"entry point {entry.value} (failed: {type(error).__name__}: {error})")
            return []


def _collect(module: ModuleType) -> list[Tool]:
    """The tools at a module's top level, in the order written; what it imported from elsewhere counts too."""
    unique = {id(value): value for value in vars(module).values() if isinstance(value, Tool) or _marked(value)}
    return [_as_tool(value, module.__name__) for value in unique.values()]


def _marked(value: object) -> bool:
    return inspect.isroutine(value) and hasattr(value, MARK)


def _as_tool(value: object, where: str) -> Tool:
    if isinstance(value, Tool):
        return value
    if not callable(value):
        raise ToolInvalid(f"{where} names a {type(value).__name__}", mend="Name a module, a function or a Tool.")
    return make_tool(value, **cast("dict[str, Any]", getattr(value, MARK, {})))


def _origin(tool: Tool) -> str:
    run = tool.run
    if isinstance(run, Elsewhere):
        return str(run)
    module = getattr(run, "__module__", None) or type(run).__module__
    return f"{module}.{getattr(run, '__qualname__', type(run).__qualname__)}"


def _count(tools: list[Tool]) -> str:
    return f"{len(tools)} tool{'' if len(tools) == 1 else 's'}"
