"""A function is found again by its address, in this process and in others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_infra.actions.tools import places
from agent_infra.errors import FileMissing, ToolInvalid


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder for modules; sys.path is put back."""
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before


def test_a_function_of_a_file_is_found_by_the_file(folder: Path) -> None:
    path = folder / "工具.py"
    path.write_text("class Group:\n    @staticmethod\n    def inner(): return 1\ndef outer(): return 2\n")
    module = places.load_file(path)
    for function, qualname in ((module.outer, "outer"), (module.Group.inner, "Group.inner")):
        place = places.check_place(function, "t")
        assert (place.file, place.qualname) == (str(path), qualname)
        assert places.find(place) is function


def test_a_function_of_a_package_is_found_by_its_name() -> None:
    place = places.check_place(places.load_file, "t")
    assert (place.module, place.file) == ("agent_infra.actions.tools.places", None)
    assert places.find(place) is places.load_file


def test_a_file_runs_once_and_a_module_imported_from_it_is_the_same(folder: Path) -> None:
    (folder / "imported_before.py").write_text("")
    sys.path.insert(0, str(folder))
    import imported_before  # type: ignore[import-not-found]

    assert places.load_file(folder / "imported_before.py") is imported_before
    (folder / "alone.py").write_text("")
    assert places.load_file(folder / "alone.py") is places.load_file(folder / "." / "alone.py")


def test_a_file_that_failed_runs_again_once_mended(folder: Path) -> None:
    path = folder / "mended.py"
    path.write_text("1 / 0\n")
    with pytest.raises(ToolInvalid):
        places.load_file(path)
    path.write_text("fine = '好'\n")
    assert places.load_file(path).fine == "好"


def test_a_function_that_was_replaced_in_its_module_is_refused(folder: Path) -> None:
    path = folder / "replaced.py"
    path.write_text("def run(): return 1\nold = run\ndef run(): return 2\n")
    module = places.load_file(path)
    with pytest.raises(ToolInvalid, match="another object"):
        places.check_place(module.old, "old")


def test_a_place_that_is_empty_is_said(folder: Path) -> None:
    (folder / "empty.py").write_text("here = 1\n")
    for name in ("gone", "here"):
        with pytest.raises(ToolInvalid, match="is not there"):
            places.find(places.Place("x", str(folder / "empty.py"), name))
    with pytest.raises(FileMissing):
        places.load_file(folder / "none.py")
    (folder / "text.txt").write_text("")
    with pytest.raises(ToolInvalid, match=r"ends in \.py"):
        places.load_file(folder / "text.txt")
