"""House rules that no linter knows: sizes, docstrings, and that a room is entered by its door.

    python tools/check_house.py src/agent_infra

Prints each breach as `file:line: what`; the exit status is 1 if there is one.
"""

# ruff: noqa: T201 - a command, its output is for people
from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MODULE_LINES = 800
FUNCTION_LINES = 60

Function = ast.FunctionDef | ast.AsyncFunctionDef
Breach = tuple[int, str]


def breaches(path: Path, package: Path) -> Iterator[Breach]:
    """(line, what) of each breach in a module of the package."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    yield from _sizes(tree, text)
    yield from _docstrings(tree)
    yield from _doors(tree, path, package)


def _sizes(tree: ast.Module, text: str) -> Iterator[Breach]:
    lines = text.count("\n")
    if lines > MODULE_LINES:
        yield 1, f"{lines} lines; a module has at most {MODULE_LINES}, split it by subject"
    for node in ast.walk(tree):
        if isinstance(node, Function):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > FUNCTION_LINES:
                yield node.lineno, f"`{node.name}` has {size} lines; a function has at most {FUNCTION_LINES}"


def _docstrings(tree: ast.Module) -> Iterator[Breach]:
    if ast.get_docstring(tree) is None:
        yield 1, "no docstring; a package's tells what lives there, a module's what it is about"
    for node in tree.body:
        if isinstance(node, ast.ClassDef | Function) and _is_public(node) and ast.get_docstring(node) is None:
            yield node.lineno, f"`{node.name}` is public and has no docstring"


def _is_public(node: ast.ClassDef | Function) -> bool:
    overload = any(isinstance(mark, ast.Name) and mark.id == "overload" for mark in node.decorator_list)
    return not node.name.startswith("_") and not overload


def _doors(tree: ast.Module, path: Path, package: Path) -> Iterator[Breach]:
    """Another room's modules are its own business: only what its packages export is for others."""
    own = path.relative_to(package).parts[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package.name}."):
            name = node.module or ""
            room, *inner = name.split(".")[1:]
            if room != own and inner and not package.joinpath(room, *inner).is_dir():
                yield node.lineno, f"reaches into `{name}`; import from the package `{package.name}.{room}`"


def main(folder: str) -> int:
    """Check every module below a package's folder; the exit status."""
    package = Path(folder)
    modules = [path for path in sorted(package.rglob("*.py")) if "template" not in path.parts]  # users' own files
    found = [f"{path}:{line}: {what}" for path in modules for line, what in breaches(path, package)]
    print("\n".join(found) or f"{len(modules)} modules keep them")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
