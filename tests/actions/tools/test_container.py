"""Tools that are commands in images, as a project or an image's label declares them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_infra.actions.tools.container import LABEL, container_tool, containers_from_config, tools_of_image
from agent_infra.actions.tools.elsewhere import InContainer
from agent_infra.errors import ToolInvalid

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def declared(**table: Any) -> dict[str, Any]:
    return {"image": "example/text:1", "command": ["count"], "input_schema": SCHEMA} | table


def test_a_tool_is_read_with_all_that_a_table_can_say(tmp_path: Path) -> None:
    (tmp_path / "counts.json").write_text('{"type": "integer"}')
    full = declared(
        output_schema="counts.json",
        effects="idempotent",
        version="7",
        description="数字符",
        env={"TOKEN": "secret://NAME"},
        mounts={"data": "/data", "/abs": "/abs"},
        memory_mb=64,
        pids=9,
        network=True,
        pull=True,
    )
    table = {"engine": "unix:///x", "memory_mb": 300, "pids": 50, "images": ["a"], "tools": {"count": full}}
    settings = containers_from_config(table, tmp_path)
    assert (settings.engine, settings.memory_mb, settings.pids, settings.images) == ("unix:///x", 300, 50, ("a",))
    (tool,) = settings.tools
    mounts = {f"{tmp_path}/data": "/data", "/abs": "/abs"}
    environment = {"TOKEN": "secret://NAME"}
    assert tool.run == InContainer("example/text:1", ("count",), environment, mounts, 64, 9, True, True)
    assert (tool.name, tool.version, tool.effects, tool.isolation) == ("count", "7", "idempotent", "container")
    assert tool.resources == {"memory_mb": 64}
    assert tool.output_schema == {"type": "integer"}
    assert tool.description == "数字符"


def test_nothing_has_to_be_said(tmp_path: Path) -> None:
    settings = containers_from_config({}, tmp_path)
    assert (settings.engine, settings.memory_mb, settings.pids, settings.images, settings.tools) == (
        None,
        None,
        None,
        (),
        (),
    )
    (tool,) = containers_from_config({"tools": {"count": declared()}}, tmp_path).tools
    assert tool.run == InContainer("example/text:1", ("count",))
    assert tool.resources == {}
    assert tool.effects is None, "unsaid, which is treated as once"


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    table = {
        "engin": "x",
        "memory_mb": -1,
        "images": "one",
        "tools": {
            "a": declared(comand=["x"], effects="twice", pids=True, network="yes", env={"A": 1}),
            "b": {"image": 5, "command": "count", "input_schema": "absent.json"},
            "c": declared(input_schema={"type": "integr"}, output_schema=7, mounts=["x"]),
            "城市": declared(),
            "e": "text",
        },
    }
    with pytest.raises(ToolInvalid) as caught:
        containers_from_config(table, tmp_path)
    problems = "\n".join(caught.value.facts["problems"])
    for part in (
        "[containers] has an unknown key engin;",
        "needs memory_mb as a whole number above 0",
        "needs images as a list of texts",
        "[containers.tools.a] has an unknown key comand;",
        "[containers.tools.a] has effects = 'twice'; known are none, idempotent, once",
        "[containers.tools.a] needs pids as a whole number above 0",
        "[containers.tools.a] needs network as true or false",
        "[containers.tools.a] needs env as a table of texts",
        "[containers.tools.b] needs image as a text",
        "[containers.tools.b] needs command as a list of texts",
        "[containers.tools.b] input_schema: ",
        "absent.json",
        "[containers.tools.c] needs output_schema as a table or a JSON file",
        "[containers.tools.c] needs mounts as a table of texts",
        "integr",
        "[containers.tools.城市] ",
        "[containers.tools.e] is no table",
    ):
        assert part in problems, part
    assert caught.value.where == "[containers] of agent_infra.toml"


def label(*entries: Any) -> dict[str, str]:
    return {LABEL: json.dumps(entries), "other": "x"}


def test_an_images_label_lists_tools() -> None:
    one = {"name": "count", "command": ["count"], "input_schema": SCHEMA, "effects": "none", "memory_mb": 64}
    first, second = tools_of_image("example@sha256:1", label(one, one | {"name": "more", "env": {"LANG": "C.UTF-8"}}))
    assert first.run == InContainer("example@sha256:1", ("count",), memory_mb=64)
    assert (first.name, first.effects) == ("count", "none")
    assert second.run.environment == {"LANG": "C.UTF-8"}  # type: ignore[attr-defined]
    assert tools_of_image("i", label()) == ()


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({}, "is not there"),
        ({LABEL: "{"}, "is not JSON"),
        ({LABEL: '{"name": "count"}'}, "is no list"),
        ({LABEL: "null"}, "is no list"),
        ({LABEL: ""}, "is no list"),
    ],
)
def test_a_label_that_is_no_list_is_named(labels: dict[str, str], said: str) -> None:
    with pytest.raises(ToolInvalid, match="example") as caught:
        tools_of_image("example", labels)
    assert said in str(caught.value)
    assert LABEL in str(caught.value)


def test_all_that_is_wrong_in_a_label_is_said_at_once() -> None:
    wrong = {"name": "count", "input_schema": "counts.json", "mounts": {"/": "/host"}, "image": "other", "pull": True}
    with pytest.raises(ToolInvalid) as caught:
        tools_of_image("example", label(wrong, {"input_schema": SCHEMA}, 5))
    problems = "\n".join(caught.value.facts["problems"])
    for part in (
        "unknown key mounts",  # an image may not ask for this machine's files
        "unknown key image",
        "unknown key pull",
        "needs input_schema as a table",
        ".1] needs name as a text",
        ".2] is no table",
    ):
        assert part in problems, part
    assert "example" in str(caught.value.where)


def test_the_version_follows_how_it_is_run_and_its_schemas() -> None:
    def version(run: InContainer, schema: dict[str, Any] = SCHEMA, **options: Any) -> str:
        return container_tool("t", run, schema, None, **options).version

    plain = InContainer("image:1", ("count",))
    assert version(plain) == version(InContainer("image:1", ("count",)))
    others = [
        InContainer("image:2", ("count",)),
        InContainer("image:1", ("other",)),
        InContainer("image:1", ("count",), {"A": "b"}),
    ]
    assert len({version(plain), *map(version, others), version(plain, SCHEMA | {"title": "x"})}) == 5
    assert version(plain, version="3") == "3"
