"""The package with the leaderboard's data, where it is installed: `make .cache/bfcl` puts it into the project's cache.

It isn't a dependency: its own would bring in forty packages, torch among them, and nothing here needs one of these.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / ".cache" / "bfcl"


@pytest.fixture(scope="session")
def package() -> Iterator[Path]:
    """The package's folder; it can be imported meanwhile. Without it the full tier fails, and the other leaves out."""
    if importlib.util.find_spec("bfcl_eval") is None and not FOLDER.is_dir():
        absent = pytest.fail if os.environ.get("AGENT_INFRA_TEST_TIER") == "full" else pytest.skip
        absent("bfcl-eval isn't here: run `make .cache/bfcl`")
    before, loaded = list(sys.path), set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    yield Path(str(importlib.import_module("bfcl_eval").__file__)).parent
    sys.path[:] = before
    for name in set(sys.modules) - loaded:
        if name.partition(".")[0] in ("bfcl_eval", "mpmath"):
            del sys.modules[name]


@pytest.fixture(scope="session")
def data(package: Path) -> Path:
    """The folder of its data files."""
    return package / "data"


@pytest.fixture(scope="session")
def their_checker(package: Path) -> types.ModuleType:
    """The package's checker of single calls. It asks one table of models whether dots in names are underscores, and that
    table imports the clients of all of them: a table of one stands in.
    """
    table = types.ModuleType("bfcl_eval.constants.model_config")
    table.__dict__["MODEL_CONFIG_MAPPING"] = {"ours": types.SimpleNamespace(underscore_to_dot=False)}
    sys.modules[table.__name__] = table
    return importlib.import_module("bfcl_eval.eval_checker.ast_eval.ast_checker")
