"""What is in a bundle: everything that is known of an execution, success or not."""

from __future__ import annotations

import platform
import sys
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from agent_infra import CallContext, Infra, StateGraph, background
from agent_infra.actions.evidence.bundle import measured
from agent_infra.actions.executors import Outcome
from agent_infra.config import Project
from agent_infra.platform import RecordedProbe

GPU = {"index": 0, "uuid": "GPU-1", "model": "NVIDIA H200", "memory_mb": 143771}
EXTRACT = """\
name: extract
tool: extract
params: {file_id: "${state.nodes.pdf_report.id}", pages: {open: {}}}
preconditions: ['state.nodes.pdf_report.status == "ready"', 'state.nodes.user_intent.confidence > 0.5']
effects: none
"""


@pytest.fixture
def extracting(infra: Infra) -> Infra:
    @infra.tools.tool(effects="none", version="2.1.0", settings={"dpi": 300})
    def extract(file_id: str, pages: list[str]) -> dict[str, int]:
        """Count pages; none is an error."""
        if not pages:
            raise ValueError("没有页")
        return {"pages": len(pages)}

    infra.actions.load(EXTRACT)
    return infra


def run(infra: Infra, graph: StateGraph, pages: list[str]) -> dict[str, Any]:
    result = infra.actions.execute({"tool": "extract", "params": {"pages": pages}}, graph)
    return infra.evidence.get(result.evidence_cid)


def ready(graph: StateGraph) -> tuple[Any, Any]:
    intent = graph.add_node("user_intent", {"query": "净利润", "confidence": 0.9})
    return intent, graph.add_node("document", {"status": "ready"}, key="pdf_report")


def test_what_was_read_is_named_with_the_versions_that_wrote_it(extracting: Infra, graph: StateGraph) -> None:
    intent, report = ready(graph)
    wrote = {node: each.id for each in graph.history() for node in each.nodes}
    started = str(graph.version)
    bundle = run(extracting, graph, ["1"])
    assert bundle["version"] == started
    assert bundle["references"] == {"file_id": "${state.nodes.pdf_report.id}"}
    assert bundle["params"] == {"file_id": report.id, "pages": ["1"]}
    assert bundle["inputs"] == {
        "pdf_report": {
            "node": report.id,
            "type": "document",
            "key": "pdf_report",
            "step": 2,
            "version": wrote[report.id],
            "schema": "document@1",
        },
        "user_intent": {
            "node": intent.id,
            "type": "user_intent",
            "key": None,
            "step": 1,
            "version": wrote[intent.id],
            "schema": "user_intent@1",
        },
    }


def test_an_input_from_before_a_fork_names_the_parents_version(extracting: Infra, graph: StateGraph) -> None:
    ready(graph)
    fork = graph.fork("分支")
    fork.add_node("note", {"text": "x"})
    bundle = run(extracting, fork, ["1"])
    assert bundle["inputs"]["pdf_report"]["version"] == graph.history()[1].id
    assert bundle["session"] == "分支"


def test_every_kind_of_end_has_the_same_fields(extracting: Infra, graph: StateGraph) -> None:
    refused = run(extracting, graph, ["1"])
    ready(graph)
    done, failed = run(extracting, graph, ["1", "2"]), run(extracting, graph, [])
    assert [each["status"] for each in (refused, done, failed)] == ["refused", "succeeded", "failed"]
    assert refused.keys() == done.keys() == failed.keys()
    assert (refused["executor"], refused["seconds"], refused["started_at"], refused["cpu_seconds"]) == (None,) * 4
    assert (done["executor"], failed["executor"]) == ("local", "local")
    assert (done["output"], failed["output"]) == ({"pages": 2}, None)
    assert "没有页" in failed["error"]["traceback"]
    assert [entry["values"] for entry in done["conditions"]] == [
        {"state.nodes.pdf_report.status": "ready"},
        {"state.nodes.user_intent.confidence": 0.9},
    ]
    assert done["tool"] == {"name": "extract", "version": "2.1.0", "settings": {"dpi": 300}}
    assert done["contract"] == extracting.actions.get("extract").hash
    assert (done["effects"], done["attempt"], done["agent"]) == ("none", 1, "planner")


def test_large_parameters_and_outputs_are_blocks_of_their_own(extracting: Infra, graph: StateGraph) -> None:
    ready(graph)
    pages = ["长" * 30_000]
    result = extracting.actions.execute({"tool": "extract", "params": {"pages": pages}}, graph)
    bundle = extracting.evidence.get(result.evidence_cid)
    assert bundle["apart"] == ["params"]
    assert set(bundle["params"]) == {"$cid", "bytes", "media_type"}
    assert extracting.evidence.part(bundle, "params")["pages"] == pages
    assert extracting.evidence.verify(result.evidence_cid, chain=False).blocks == 3
    refused = extracting.actions.execute({"tool": "extract", "params": {"pages": [1, *pages]}}, graph)
    assert refused.status == "refused"
    assert extracting.evidence.get(refused.evidence_cid)["apart"] == ["params"]


def test_what_any_executor_measures_is_told(infra: Infra) -> None:
    outcome = Outcome(
        "failed", None, {"code": "WorkerDied"}, 1_000_000, 3_500_000, "process", "出", "错", -9, 0.25, 512.5, 2
    )
    told = measured(outcome)
    assert told | {"image_digest": None, "gpu_memory_mb": None} == told
    assert (told["stdout_tail"], told["stderr_tail"], told["exit_code"]) == ("出", "错", -9)
    assert (told["cpu_seconds"], told["peak_memory_mb"], told["leaked_processes"]) == (0.25, 512.5, 2)
    assert (told["started_at"], told["finished_at"]) == (
        "1970-01-01T00:00:01+00:00",
        "1970-01-01T00:00:03.500000+00:00",
    )
    assert len(measured(None)) == len(told) >= len(fields(Outcome)) - 5 + 2


def test_an_attempt_after_an_interruption_is_counted(extracting: Infra, graph: StateGraph) -> None:
    ready(graph)
    run(extracting, graph, ["1"])
    (call,) = graph.nodes(type="call")
    again = background.wait_for(extracting.actions.aexecute("extract", graph, repeat=call), twin="aexecute")
    bundle = extracting.evidence.get(again.evidence_cid)
    assert bundle["attempt"] == 2
    assert bundle["idempotency_key"] == call.data["idempotency_key"]


def test_a_bundle_of_the_first_format_is_still_read(infra: Infra) -> None:
    apart = infra.blobs.put_value("长" * 40_000)
    old = {
        "kind": "agent_infra/evidence",
        "format": 1,
        "output": apart,
        "output_apart": True,
        "environment": {"host": "h"},
    }
    cid = infra.evidence.write(old)["$cid"]
    assert infra.evidence.output(cid) == "长" * 40_000
    assert infra.evidence.environment(cid) == {"host": "h"}
    assert infra.evidence.verify(cid).ok


# -- the environment -------------------------------------------------------------------------------


def test_the_environment_is_stored_once_and_referred_to(extracting: Infra, graph: StateGraph) -> None:
    ready(graph)
    bundles = [run(extracting, graph, ["1"]) for _ in range(3)]
    assert len({bundle["environment"]["$cid"] for bundle in bundles}) == 1
    told = extracting.blobs.get_value(bundles[0]["environment"]["$cid"])
    assert told["python"] == platform.python_version() == sys.version.split()[0]
    assert told["host"] == platform.node()
    assert told["packages"]["msgspec"] == version("msgspec")
    assert list(told["packages"]) == sorted(told["packages"], key=lambda name: (len(name), name)), "canonical order"
    assert told["gpu"] is None
    assert told["gpu_reason"]


def test_gpus_come_with_the_versions_of_driver_and_cuda(tmp_path: Path) -> None:
    recorded = RecordedProbe({"gpus": [GPU], "reason": None, "driver": "570.86.15", "cuda": "12.8"})
    with Infra.open(tmp_path / "家", project=Project(root=tmp_path), durability="os", gpus=recorded) as infra:

        @infra.tools.tool(effects="none")
        def nothing(context: CallContext) -> None:
            """Nothing."""

        result = infra.actions.execute("nothing", infra.session("会话"))
        told = infra.evidence.environment(result.evidence_cid)
    assert told["gpu"] == {"driver": "570.86.15", "cuda": "12.8", "devices": [GPU]}
    assert told["gpu_reason"] is None
