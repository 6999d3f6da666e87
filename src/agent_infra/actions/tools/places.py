"""Where a tool's function is defined, and how another process finds it again.

A worker process is told a `Place`, never sent code: it imports the module by its name, or runs the project's
`tools.py` by its path, and takes the function by its qualified name. So a function that only exists inside one
process (in `__main__`, a lambda, a closure) can't be a worker's tool; it is refused here, by name, before
anything is started.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

from agent_infra.errors import ContractDrift, FileMissing, ToolInvalid

_PREFIX = "agent_infra_project_"
_loading = threading.RLock()
_digests: dict[str, str | None] = {}
"""By module: the hash of the source that this process has loaded it from."""


@dataclass(frozen=True, slots=True)
class Place:
    """A function's address: its module's name, its file where the module was loaded by path, its qualified name.

    digest  hash of the source as this process loaded it: another process must find the same. None: unknown
    """

    module: str
    file: str | None
    qualname: str
    digest: str | None = None

    def __str__(self) -> str:
        return f"{self.file or self.module}:{self.qualname}"


def place_of(function: Callable[..., Any], name: str) -> Place:
    """The address of a function. Raises ToolInvalid, naming the tool, for one that no other process could find."""
    module, qualname = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str):
        raise _unreachable(name, f"it is an object of type {type(function).__name__}, not a function of a module")
    if "<lambda>" in qualname:
        raise _unreachable(name, "it is a lambda")
    if "<locals>" in qualname:
        raise _unreachable(name, f"it is defined inside the function {qualname.split('.<locals>')[0]!r}")
    if module == "__main__":
        raise _unreachable(name, "it is defined in __main__, the script that was started")
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None) if module.startswith(_PREFIX) else None
    return Place(module, file, qualname, _digest(module))


def check_place(function: Callable[..., Any], name: str) -> Place:
    """The address of a function, and that it is really this function that stands there. Raises ToolInvalid."""
    place = place_of(function, name)
    found: Any = sys.modules.get(place.module)
    for part in place.qualname.split("."):
        found = getattr(found, part, None)
    if found is not function:
        raise _unreachable(name, f"{place} is another object than the one that was registered")
    return place


def find(place: Place) -> Callable[..., Any]:
    """The function at an address, its module imported if need be.

    Raises FileMissing, ToolInvalid, ContractDrift where the source is another one than the address says, and whatever
    the module raises while it is imported by name.
    """
    found: Any = load_file(place.file) if place.file else importlib.import_module(place.module)
    here = _digest(found.__name__)
    if place.digest is not None and here != place.digest:
        raise ContractDrift(
            f"{place.file or place.module} is not the source that the tool was registered from",
            why=f"it hashes to {(here or 'nothing')[:12]} in the worker, and to {place.digest[:12]} where it was registered",
            mend="Load it again with infra.tools.reload(), or start the process that registered it anew.",
            facts={"tool": place.qualname, "registered": place.digest, "here": here},
        )
    for part in place.qualname.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ToolInvalid(
            f"{place} is not there", mend="The file was changed since the tool was registered; load it again."
        )
    return found


def _digest(module: str) -> str | None:
    """The hash of a module's source, as it was when this process first asked; None where it has none."""
    if module not in _digests:
        file = getattr(sys.modules.get(module), "__file__", None)
        _digests[module] = source_hash(Path(file)) if file else None
    return _digests[module]


def source_hash(file: Path) -> str | None:
    """The hash of what a file holds now; None where it can't be read."""
    try:
        return sha256(file.read_bytes()).hexdigest()
    except OSError:
        return None


def changed(path: str | Path) -> bool:
    """Whether a tool file holds another source than the one that this process has loaded from it."""
    file = Path(path).resolve()
    loaded = next((each for each in _loaded_from(file)), None)
    return loaded is not None and source_hash(file) != _digest(loaded.__name__)


def reload_file(path: str | Path) -> ModuleType:
    """Run a file anew, in the place of the module that was loaded from it. Where it can't be run, that one stays.

    Raises FileMissing, ToolInvalid.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise FileMissing(path, what="tool module")
    with _loading:
        old = next((each for each in _loaded_from(file)), None)
        return load_file(file) if old is None else _run(file, old.__name__)


def _loaded_from(file: Path) -> list[ModuleType]:
    modules = list(sys.modules.values())
    return [each for each in modules if each.__name__ != "__main__" and getattr(each, "__file__", None) == str(file)]


def load_file(path: str | Path) -> ModuleType:
    """Run a project's Python file as a module, once a process.

    A module that was already imported from this file is used as it is, so that it isn't there twice. The file's
    folder is put at the end of `sys.path`, so that it may import its neighbours.

    Raises FileMissing, and ToolInvalid with file and line for whatever the file raises.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise FileMissing(path, what="tool module")
    with _loading:
        for module in _loaded_from(file):
            return module
        if str(file.parent) not in sys.path:
            sys.path.append(str(file.parent))
        return _run(file)


def _run(file: Path, name: str | None = None) -> ModuleType:
    """Run a file as a module, or as another one's successor."""
    name = name or f"{_PREFIX}{file.stem}_{sha256(str(file).encode()).hexdigest()[:8]}"
    before, digest = sys.modules.get(name), source_hash(file)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ToolInvalid(f"{file} is not a Python file", where=str(file), mend="A tool module's name ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
            raise
        raise ToolInvalid(
            f"the tool module {file.name} can't be loaded",
            where=_position(error, file),
            why=f"{type(error).__name__}: {error}",
            mend="Mend the file; `python -c 'import …'` of it must work.",
            facts={"file": str(file)},
        ) from error
    _digests[name] = digest
    return module


def _position(error: BaseException, file: Path) -> str:
    """file:line of the deepest place inside the file that an error passed through."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file}:{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"{file}:{lines[-1]}" if lines else str(file)


def _unreachable(name: str, why: str) -> ToolInvalid:
    return ToolInvalid(
        f"the tool {name!r} can't run in a worker process",
        why=why,
        mend="Move the function to the top level of a module, such as the project's tools.py.",
        facts={"tool": name},
    )
