"""What of the container executor needs no engine: what printed text means, what is accepted, whose a container is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent_infra.actions import Tool
from agent_infra.actions.executors import Call, ContainerExecutor, ExecutorPool
from agent_infra.actions.executors import container_output as output
from agent_infra.actions.executors.cgroups import Group, groups_named, remove_groups
from agent_infra.actions.executors.container_output import Printed
from agent_infra.actions.executors.owners import abandoned, tag_is_gone, this_process
from agent_infra.actions.tools.elsewhere import InContainer, OnMcpServer
from agent_infra.errors import HomeClosed, ToolInvalid

IN_IMAGE = Tool("t", {}, {}, InContainer("image", ("run",)), effects="none")


def frame(text: str | bytes, stream: int = 1) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


def printed(*frames: bytes, heard: list[Any] | None = None) -> Printed:
    made = Printed((heard if heard is not None else []).append)
    for each in frames:
        made.feed(each)
    return made


# -- what is printed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_frames_may_be_cut_anywhere(size: int) -> None:
    heard: list[Any] = []
    stream = frame('前\n::progress 0.5\n{"城') + frame("警告\n", 2) + frame('市": "北京"}\n\n')
    made = printed(*(stream[at : at + size] for at in range(0, len(stream), size)), heard=heard)
    assert made.result(0) == ({"城市": "北京"}, None)
    assert heard == [0.5]
    assert made.stdout == '前\n::progress 0.5\n{"城市": "北京"}\n\n'
    assert made.stderr == "警告\n"


def test_the_last_line_that_says_something_is_the_result() -> None:
    assert printed(frame("1\n2\n \n\n")).result(0) == (2, None)
    assert printed(frame("1")).result(0) == (1, None), "a line need not end"
    assert printed(frame("null\n")).result(0) == (None, None)
    assert printed(frame("[1]\n::progress done\n")).result(0) == ([1], None)
    assert printed(frame("[1]"), frame("no result", 2)).result(0) == ([1], None)
    assert printed(frame("[1]\r\n")).result(0) == ([1], None)


def test_progress_is_a_fraction_or_words() -> None:
    heard: list[Any] = []
    lines = (
        "::progress 0\n::progress 1.0\n::progress 1.5\n::progress nan\n::progress 第 3 页 \n ::progress \n::progress\n"
    )
    _, error = printed(frame(lines), heard=heard).result(0)
    assert heard == [0.0, 1.0, "1.5", "nan", "第 3 页"]
    assert "'::progress'" in (error or {})["what"], "without words it is text like any other"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it printed no result"),
        ("\n  \n", "it printed no result"),
        ("1\nsunny\n", "is not a JSON value: 'sunny'"),
        ("{'a': 1}", "is not a JSON value"),
        ("[NaN]", "is not a JSON value"),
        (b"\xff\xfe", "is not a JSON value"),
        ("[" * 100_000, "is not a JSON value"),
    ],
)
def test_what_is_no_result_is_bad_output(text: str | bytes, said: str) -> None:
    value, error = printed(frame(text)).result(0)
    assert value is None
    assert (error or {})["code"] == "BadOutput"
    assert said in (error or {})["what"]


def test_a_line_that_is_too_long_is_no_result_and_one_behind_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MAX_LINE", 10)
    parts = [frame("12345"), frame("678"), frame("9012")]
    _, error = printed(*parts).result(0)
    assert (error or {})["code"] == "BadOutput"
    assert "is over" in (error or {})["what"]
    assert printed(*parts, frame("\n7\n")).result(0) == (7, None)
    assert printed(frame("1234567890")).result(0) == (1234567890, None), "so long a line may be"


def test_a_failure_is_told_by_its_own_words_else_by_the_last_line_of_standard_error() -> None:
    assert printed(frame("17\n"), frame("一\n 二 \n\n", 2)).result(3)[1] == {
        "code": "ToolFailed",
        "what": "it exited with code 3: 二",
        "exit_code": 3,
    }
    assert printed().result(1) == (None, {"code": "ToolFailed", "what": "it exited with code 1", "exit_code": 1})
    words = '{"error": {"what": "没钱", "type": "NoMoney", "traceback": 5, "code": "Mine"}}\n'
    spoken = {"code": "ToolFailed", "what": "没钱", "type": "NoMoney", "exit_code": 1}
    assert printed(frame(words)).result(1)[1] == spoken
    for other in ("[1]", '{"error": "text"}', '{"error": null}', "{"):
        assert (printed(frame(other)).result(1)[1] or {})["what"] == "it exited with code 1"


def test_a_signal_is_a_death_unless_the_command_found_words() -> None:
    error = printed(frame("17\n")).result(128 + 9)[1]
    assert error is not None
    assert (error["code"], error["signal"], error["exit_code"]) == ("WorkerDied", "SIGKILL", 137)
    assert (printed().result(255)[1] or {})["code"] == "ToolFailed", "no signal has that number"
    assert (printed(frame('{"error": {"what": "x"}}')).result(137)[1] or {})["code"] == "ToolFailed"


def test_only_the_end_of_what_was_printed_is_kept() -> None:
    made = printed(frame("x" * 20_000 + "\n"), frame("明" * 10_000, 2), frame("1"))
    assert made.stdout.startswith(f"… {20_002 - 16 * 1024} bytes before …\n")
    assert made.stdout.endswith("xx\n1")
    assert made.stderr.endswith("明明")
    assert made.result(0) == (1, None)


# -- what is accepted ----------------------------------------------------------------------------------------------


def test_only_commands_in_images_are_accepted() -> None:
    executor = ContainerExecutor()
    assert executor.accepts(IN_IMAGE) is None
    for run in (lambda: 1, OnMcpServer("server", "tool")):
        stray = Tool("stray", {}, {}, run, effects="none")
        assert executor.accepts(stray) == "the tool is no command in an image"

        async def execute(stray: Tool = stray) -> None:
            with pytest.raises(ToolInvalid, match="no command in an image"):
                await executor.execute(Call(stray, {}, "c", "k"))

        asyncio.run(execute())


def test_before_a_start_nothing_runs() -> None:
    async def body() -> None:
        executor = ContainerExecutor()
        with pytest.raises(HomeClosed):
            await executor.execute(Call(IN_IMAGE, {}, "c", "k"))
        with pytest.raises(HomeClosed):
            await executor.discover("image")
        await executor.stop()

    asyncio.run(body())


@pytest.mark.parametrize(
    ("engine", "asked", "said"),
    [
        (None, {"memory_mb": 10**9}, "it asks for 1e+09 memory_mb, and there are"),
        ("unix:///nobody.sock", {"memory_mb": 10**9}, "it asks for 1e+09 memory_mb"),
        ("tcp://elsewhere:2375", {"gpu": 1}, "it asks for 1 gpu, and there are 0"),
        ("tcp://elsewhere:2375", {"memory_mb": 10**9}, None),
    ],
)
def test_what_it_could_never_hold_is_refused_with_the_reason(
    engine: str | None, asked: dict[str, float], said: str | None
) -> None:
    async def body() -> str | None:
        pool = ExecutorPool([ContainerExecutor(engine=engine)])
        try:
            await pool.execute(Call(IN_IMAGE, {}, "c", "k", resources=asked))
        except ToolInvalid as refused:
            return refused.why
        finally:
            await pool.stop()
        return None

    if said is None:
        assert "memory_mb" not in ContainerExecutor(engine=engine).resources, "another machine's memory isn't known"
    else:
        assert said in (asyncio.run(body()) or "")


# -- whose it is ---------------------------------------------------------------------------------------------------


def test_what_a_living_process_made_is_its_own() -> None:
    owner = this_process("家")
    labels = owner.labels("call-1", 1000.0)
    assert labels["agent_infra.home"] == "家"
    assert labels["agent_infra.call"] == "call-1"
    assert not abandoned(labels, 1000.0)
    assert abandoned(labels, 1001.0), "past its time"
    assert not abandoned(owner.labels("call-1", None), 10**12)
    assert not tag_is_gone(f"{owner.tag}-1")


@pytest.mark.parametrize(
    ("changed", "gone"),
    [
        ({"started": "1"}, True),  # the number went to another process
        ({"pid": "4194305"}, True),  # above what Linux gives
        ({"pid": "4194305", "host": "another machine"}, False),
        ({"pid": "many"}, False),
        ({"pid": "4194305", "host": None}, False),
    ],
)
def test_what_a_process_that_is_gone_made_is_abandoned(changed: dict[str, str | None], gone: bool) -> None:
    labels = this_process("家").labels("call-1", None)
    for name, value in changed.items():
        if value is None:
            del labels[f"agent_infra.{name}"]
        else:
            labels[f"agent_infra.{name}"] = value
    assert abandoned(labels, 0.0) is gone


@pytest.mark.parametrize(
    ("name", "gone"),
    [("agent-infra-4194305-1-x", True), ("agent-infra-", False), ("system.slice", False), ("4-5", False)],
)
def test_a_group_is_told_by_its_name(name: str, gone: bool) -> None:
    assert tag_is_gone(name) is gone


# -- control groups, in a folder that stands for them --------------------------------------------------------------


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_figures_of_version_2(tmp_path: Path) -> None:
    write(tmp_path, cgroup__controllers="memory cpu")
    group = Group.around("ours", tmp_path)
    assert group is not None
    group.look()
    assert (group.peak_mb, group.cpu_seconds, group.oom_kills) == (None, None, 0)
    write(tmp_path / "ours", memory__peak=f"{3 << 20}\n", cpu__stat="usage_usec 2500000\nuser_usec 1\n",
          memory__events="low 0\noom 1\noom_kill 2\n")  # fmt: skip
    group.look()
    assert (group.peak_mb, group.cpu_seconds, group.oom_kills) == (3.0, 2.5, 2)
    write(tmp_path / "ours", memory__peak="1\n")
    group.look()
    assert group.peak_mb == 3.0, "figures only grow"


def test_figures_of_version_1_with_the_kills_of_the_inner_group(tmp_path: Path) -> None:
    write(tmp_path / "memory" / "ours", memory__max_usage_in_bytes=f"{5 << 20}\n", memory__oom_control="oom_kill 0\n")
    write(tmp_path / "memory" / "ours" / "inner", memory__oom_control="oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    write(tmp_path / "cpuacct" / "ours", cpuacct__usage="1500000000\n")
    group = Group.around("ours", tmp_path)
    assert group is not None
    group.look()
    assert (group.peak_mb, group.cpu_seconds, group.oom_kills) == (5.0, 1.5, 1)


def test_the_group_of_a_process(tmp_path: Path) -> None:
    root, proc = tmp_path / "root", tmp_path / "proc"
    write(proc / "7", cgroup="4:memory:/a/b\n2:cpuacct,cpu:/c\n0::/\n")
    write(root / "memory" / "a" / "b", memory__max_usage_in_bytes=f"{1 << 20}")
    write(proc / "8", cgroup="0::/d\n")
    write(root / "d", memory__peak=f"{2 << 20}")
    for pid, peak in ((7, 1.0), (8, 2.0)):
        group = Group.of_process(pid, root, proc)
        assert group is not None
        group.look()
        assert group.peak_mb == peak
    assert Group.of_process(9, root, proc) is None
    assert Group.of_process(0, root, proc) is None


def test_groups_are_found_and_removed_by_name(tmp_path: Path) -> None:
    for controller in ("memory", "cpuacct"):
        (tmp_path / controller / "agent-infra-1-2-x" / "inner").mkdir(parents=True)
        (tmp_path / controller / "others").mkdir()
    assert groups_named("agent-infra-", tmp_path) == {"agent-infra-1-2-x"}
    assert remove_groups("agent-infra-1-2-x", tmp_path)
    assert groups_named("", tmp_path) == {"others"}
