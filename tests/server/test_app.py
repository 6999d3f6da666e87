"""The HTTP API as any client sees it: curl, a browser, a program in another language."""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.responses import Response

from agent_infra import Infra, StateGraph, __version__, errors
from agent_infra.server import socket_of
from agent_infra.server.app import create_app


@pytest.fixture
def http(owned: Infra) -> Iterator[httpx.Client]:
    transport = httpx.HTTPTransport(uds=str(socket_of(owned.home)))
    with httpx.Client(transport=transport, base_url="http://home", trust_env=False, timeout=60) as client:
        yield client


def step(**fields: Any) -> dict[str, Any]:
    return {"session": "天气_001", "nodes": [{"id": "01ARZ3NDEKTSV4RRFFQ69G5FAV", "type": "note", "data": {}}]} | fields


def test_info_says_who_owns_the_home(owned: Infra, http: httpx.Client) -> None:
    told = http.get("/api/info").json()
    assert (told["version"], told["pid"], told["home"]) == (__version__, os.getpid(), str(owned.home))
    assert told["settings"]["durability"] == "os"
    assert http.get("/api/health").json() == {"ok": True}


def test_a_step_in_plain_json(owned: Infra, http: httpx.Client) -> None:
    answer = http.post("/api/state/steps", json=step(agent="curl"))
    assert answer.status_code == 200
    graph = owned.session("天气_001")
    assert answer.json()["version"]["id"] == graph.version
    assert graph.nodes()[0].owner == "curl"
    told = http.get("/api/state/nodes", params={"session": "天气_001", "type": "note"}).json()
    assert told["nodes"][0]["id"] == graph.nodes()[0].id


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ("{", 422, "RequestInvalid"),
        (json.dumps({"nodes": []}), 422, "RequestInvalid"),
        (json.dumps(step(nodes=[{"id": "1", "type": "note", "data": []}])), 422, "RequestInvalid"),
        (json.dumps(step(nodes=[{"id": "1", "type": "note", "data": {}}])), 422, "InvalidNode"),
        (json.dumps(step(session="_control")), 422, "InvalidSessionId"),
        (json.dumps(step(session="天气_001/rewards")), 422, "InvalidSessionId"),
        (json.dumps(step(expect={"version": "天气_001.7.0123456789abcdef"})), 409, "VersionConflict"),
    ],
)
def test_a_refused_step_says_why_and_writes_nothing(
    owned: Infra, http: httpx.Client, body: str, status: int, code: str
) -> None:
    answer = http.post("/api/state/steps", content=body)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    problem = answer.json()
    assert (problem["code"], problem["title"], problem["status"]) == (code, code, status)
    assert problem["what"]
    assert owned.sessions() == []


def test_an_id_is_never_used_twice(owned: Infra, http: httpx.Client) -> None:
    body = step()
    assert http.post("/api/state/steps", json=body).status_code == 200
    before = owned.session("天气_001").version
    again = http.post("/api/state/steps", json=body)
    twice = http.post(
        "/api/state/steps", json=step(nodes=[{"id": "01BX5ZZKBKACTAV9WEVGEMMVRZ", "type": "note", "data": {}}] * 2)
    )
    assert (again.status_code, again.json()["code"]) == (409, "DuplicateConflict")
    assert (twice.status_code, twice.json()["code"]) == (409, "DuplicateConflict")
    assert owned.session("天气_001").version == before


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/nothing", 404),
        ("DELETE", "/api/info", 405),
        ("GET", "/api/state/head", 422),
        ("GET", "/api/state/nodes?session=s&limit=many", 422),
        ("GET", "/api/state/node?session=s&id=x", 404),
        ("GET", "/api/blobs?cid=x", 404),
        ("POST", "/api/blobs/values", 422),
    ],
)
def test_what_is_not_there_is_told_as_a_problem(http: httpx.Client, method: str, path: str, status: int) -> None:
    answer = http.request(method, path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.json()["status"] == status


def test_a_bug_is_told_without_its_traceback(
    owned: Infra, http: httpx.Client, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(where: str | None = None) -> list[str]:
        raise RuntimeError("broken")

    monkeypatch.setattr(owned, "sessions", broken)
    answer = http.get("/api/state/sessions")
    assert (answer.status_code, answer.json()["code"]) == (500, "InternalError")
    assert "Traceback" not in answer.text
    assert http.get("/api/health").status_code == 200


def test_a_ledger_can_be_read(owned: Infra, client: Infra) -> None:
    ledger = StateGraph.of_system(owned.backend, "天气_001/rewards")
    node = ledger.add_node("note", {"n": 1})
    assert StateGraph.of_system(client.backend, "天气_001/rewards").nodes() == [node]


def test_an_upload_leaves_nothing_behind(owned: Infra, http: httpx.Client) -> None:
    before = {path.name for path in owned.home.iterdir()}
    content = os.urandom(300_000)
    told = http.post("/api/blobs", params={"media_type": "image/png"}, content=content).json()
    assert owned.blobs.get(told["$cid"]) == content
    assert {path.name for path in owned.home.iterdir()} <= before | {"blobs"}
    assert http.get("/api/blobs", params={"cid": told["$cid"]}).content == content
    assert http.head("/api/blobs", params={"cid": told["$cid"]}).status_code == 200


@pytest.fixture
def url(owned: Infra) -> Iterator[str]:
    """The same application on loopback, where an API key is asked for."""
    listening = socket.create_server(("127.0.0.1", 0))
    app = create_app(owned)

    @app.middleware("http")
    async def check(request: Any, call_next: Any) -> Any:
        known = request.headers.get("authorization") == "Bearer key"
        return await call_next(request) if known else Response("who are you?", status_code=401)

    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    server.should_exit = True
    thread.join()


def test_a_home_is_used_over_http_too(owned: Infra, url: str) -> None:
    with Infra.connect(url + "/", api_key="key") as infra:
        node = infra.session("天气_001").add_node("note", {"n": 1})
        assert infra.home == owned.home
    assert owned.session("天气_001").node(node.id) == node
    with pytest.raises(errors.OwnerUnreachable, match="401"):
        Infra.connect(url)


def test_nobody_there_is_told(tmp_path: Path) -> None:
    for target in (tmp_path, tmp_path / "nothing.sock", f"unix://{tmp_path}/x.sock", "http://127.0.0.1:9"):
        with pytest.raises(errors.OwnerUnreachable, match="doesn't answer"):
            Infra.connect(target)


def test_the_api_describes_itself(http: httpx.Client) -> None:
    paths = http.get("/api/openapi.json").json()["paths"]
    assert {"/api/info", "/api/state/steps", "/api/state/watch", "/api/blobs", "/api/schemas"} <= set(paths)


def test_damaged_content_is_noticed_by_the_reader(owned: Infra, client: Infra) -> None:
    cid = str(owned.blobs.put(os.urandom(100_000), "image/png")["$cid"])
    file = next(Path(owned.home, "blobs").rglob(cid))
    file.chmod(stat.S_IRUSR | stat.S_IWUSR)
    file.write_bytes(b"changed")
    with pytest.raises(Exception, match="EvidenceDamaged"):
        client.blobs.get(cid)
    check = client.evidence.verify(cid)
    assert not check.ok
    assert "changed" in check.problems[0]
