"""What a client's step and watch promise although nothing is held at the owner: no update is lost, no move is missed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from agent_infra import Infra, errors


@pytest.fixture
def pair(tmp_path: Path) -> Any:
    """A home as its owner has it, and as a client of it has."""
    with Infra.open(tmp_path / "home", project=tmp_path) as owner, Infra.connect(tmp_path / "home") as client:
        yield owner, client


def test_an_update_of_what_was_read_in_the_step_is_not_lost(pair: Any) -> None:
    owner, client = pair
    graph, here = client.session("计数"), owner.session("计数")
    here.add_node("counter", {"n": 0}, key="c")
    with pytest.raises(errors.VersionConflict, match="has moved"), graph.step() as step:
        n = graph.latest("c").data["n"]
        here.add_node("counter", {"n": n + 1}, key="c")
        step.add_node("counter", {"n": n + 1}, key="c")
    assert here.latest("c").data["n"] == 1
    with graph.step() as step:
        step.add_node("counter", {"n": graph.latest("c").data["n"] + 1}, key="c")
    assert here.latest("c").data["n"] == 2


def test_a_step_that_read_nothing_is_appended(pair: Any) -> None:
    owner, client = pair
    with client.session("甲").step() as step:
        owner.session("甲").add_node("note", {"n": 1})
        step.add_node("note", {"n": 2})
    assert [node.data["n"] for node in owner.session("甲").nodes(type="note")] == [2, 1]


def test_reading_after_the_step_is_no_part_of_it(pair: Any) -> None:
    owner, client = pair
    graph = client.session("甲")
    graph.add_node("note", {"n": 1})
    assert graph.latest("note").data["n"] == 1
    owner.session("甲").add_node("note", {"n": 2})
    graph.add_node("note", {"n": 3})


@pytest.mark.parametrize("which", [0, 1], ids=["owner", "client"])
def test_a_watch_begins_when_it_is_asked_for(pair: Any, which: int) -> None:
    graph = pair[which].session("甲")
    graph.add_node("note", {"n": 1})
    watch = graph.watch(timeout=0.5)
    graph.add_node("note", {"n": 2})
    assert [change.kind for change in watch] == ["step"]


@pytest.mark.parametrize("which", [0, 1], ids=["owner", "client"])
def test_a_version_that_a_step_or_a_rollback_gave_notices_a_commit_and_a_rollback_in_between(
    pair: Any, which: int
) -> None:
    graph = pair[which].session("甲")
    with graph.step() as step:
        step.add_node("note", {"n": 1})
    graph.add_node("note", {"n": 2})
    back = graph.rollback()
    for seen in (step.version, back):
        if seen == back:
            graph.add_node("note", {"n": 3})
            graph.rollback()
        with pytest.raises(errors.VersionConflict), graph.step(expect=seen) as late:
            late.add_node("note", {"n": 4})
    with graph.step(expect=graph.version) as fine:
        fine.add_node("note", {"n": 5})


@pytest.mark.parametrize("which", [0, 1], ids=["owner", "client"])
def test_what_is_no_version_and_no_number_of_steps_is_refused(pair: Any, which: int) -> None:
    graph = pair[which].session("甲")
    graph.add_node("note", {"n": 1})
    head = graph.version
    with graph.step() as empty:
        pass
    with pytest.raises(errors.VersionUnknown, match="is no version id"):
        graph.at(empty.version)
    for steps in (0.5, True, "1"):
        with pytest.raises(errors.InvalidNode, match="whole number"):
            graph.rollback(steps=steps)
    with pytest.raises(errors.InvalidNode, match="not both"):
        graph.rollback(2, to=head)
    assert graph.version == head


def test_a_forked_child_that_closes_leaves_the_owner_its_socket(tmp_path: Path) -> None:
    with Infra.open(tmp_path / "home", project=tmp_path) as owner:
        owner.session("甲").add_node("note", {"n": 1})
        child = os.fork()
        if child == 0:
            try:
                owner.close()
            except BaseException:
                os._exit(1)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with Infra.connect(tmp_path / "home") as client:
            assert client.session("甲").latest("note").data["n"] == 1
