"""What every test stands on: two tiers, a printed seed, and an environment of its own.

`make test` runs the default tier with small counts; `make test-full` sets AGENT_INFRA_TEST_TIER=full, which adds the
tests marked `full` and raises the counts of property tests. One seed is drawn a run, for all workers alike, and
printed on top: `pytest --hypothesis-seed=N` repeats a run.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

TIER = os.environ.get("AGENT_INFRA_TEST_TIER", "default")

# No deadlines: on a busy machine they fail a test for the machine's sake. No example database: only the seed decides.
_common = settings(deadline=None, database=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("default", _common, max_examples=25, stateful_step_count=20)
settings.register_profile("full", _common, max_examples=1000, stateful_step_count=50)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the counts and the seed, before Hypothesis reads its options and before workers start."""
    if TIER not in ("default", "full"):
        raise pytest.UsageError(f"AGENT_INFRA_TEST_TIER is {TIER!r}; it can be `default` or `full`")
    settings.load_profile(config.option.hypothesis_profile or TIER)
    if config.option.hypothesis_seed is None:
        given = getattr(config, "workerinput", {}).get("hypothesis_seed")
        config.option.hypothesis_seed = given or str(random.SystemRandom().getrandbits(32))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand the seed to an xdist worker."""
    node.workerinput["hypothesis_seed"] = node.config.option.hypothesis_seed


def pytest_report_header(config: pytest.Config) -> str:
    """The tier, and how to repeat this run."""
    return f"tier: {TIER}; repeat with --hypothesis-seed={config.option.hypothesis_seed}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of the full tier out of the default one."""
    if TIER == "full":
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    if left_out:
        items[:] = [item for item in items if not item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left_out)


@pytest.fixture(autouse=True)
def own_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the developer's settings, and none writes a home into the working directory."""
    for name in list(os.environ):
        if name.startswith("AGENT_INFRA_") and name != "AGENT_INFRA_TEST_TIER":
            monkeypatch.delenv(name)
    monkeypatch.setenv("AGENT_INFRA_HOME", str(tmp_path / "home"))
