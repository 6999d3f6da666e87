"""Business keys lead to the steps that refer to them: over all sessions, after import, and not after they are gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agent_infra import Infra
from agent_infra.state import export_session, import_session, referring


def said(infra: Any, kind: str, value: str) -> list[tuple[str, int]]:
    return [(each.session, len(each.nodes)) for each in referring(infra.engine, kind, value)]


def test_steps_of_all_sessions_newest_first(tmp_path: Path) -> None:
    with Infra.open(tmp_path / "home", project=tmp_path) as infra:
        for name, count in (("甲", 1), ("乙", 2)):
            with infra.session(name).step() as step:
                for number in range(count):
                    step.add_node("note", {"n": number})
                step.refer("ticket", "T-8841")
        with infra.session("甲").step() as step:
            step.refer("ticket", "T-8841/2")
            step.refer("客户", "王")
        assert said(infra, "ticket", "T-8841") == [("乙", 2), ("甲", 1)]
        assert said(infra, "客户", "王") == [("甲", 0)]
        assert said(infra, "ticket", "T-884") == said(infra, "客户", "T-8841") == []
        infra.session("乙").rollback()
        assert said(infra, "ticket", "T-8841") == [("乙", 2), ("甲", 1)], (
            "evidence may still come for what was abandoned"
        )
    with Infra.open(tmp_path / "home", project=tmp_path) as infra:
        assert said(infra, "ticket", "T-8841") == [("乙", 2), ("甲", 1)]


def test_what_is_collected_refers_to_nothing(tmp_path: Path) -> None:
    with Infra.open(tmp_path / "home", project=tmp_path) as infra:
        graph = infra.session("甲")
        graph.add_node("note", {"n": 0})
        with graph.step() as step:
            step.add_node("note", {"n": 1})
            step.refer("ticket", "T-1")
        graph.rollback()
        graph.gc(abandoned_after=0.0)
        assert said(infra, "ticket", "T-1") == []


def test_it_travels_with_the_session(tmp_path: Path) -> None:
    with Infra.open(tmp_path / "a", project=tmp_path) as infra, Infra.open(tmp_path / "b", project=tmp_path) as other:
        with infra.session("甲").step() as step:
            step.add_node("note", {"n": 1})
            step.refer("ticket", "T-1")
        with (tmp_path / "甲.jsonl").open("wb") as file:
            export_session(infra.engine, "甲", file)
        import_session(other.engine, tmp_path / "甲.jsonl")
        assert said(other, "ticket", "T-1") == [("甲", 1)]
