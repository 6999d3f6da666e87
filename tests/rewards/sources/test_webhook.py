"""Signed callbacks: what is genuine comes in once, what is not is refused by name, over HTTP as well."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks.webhooks import Webhook

from agent_infra import Infra, background
from agent_infra.config import Project
from agent_infra.errors import SignalRefused, SourceInvalid
from agent_infra.rewards import Places, WebhookSource, sources_from_config
from agent_infra.testing.desk import Desk

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PLACES = Places("data.score", event="data.call", refs={"ticket": "data.ticket"}, at="time", priority="data.priority")


def signed(body: bytes, id: str = "msg_1", secret: str = SECRET, age: float = 0, **more: str) -> dict[str, str]:
    moment = datetime.now(UTC) - timedelta(seconds=age)
    signature = Webhook(secret).sign(id, moment, body.decode(errors="replace"))
    stamp = str(int(moment.timestamp()))
    return {"webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": signature, **more}


def body(score: Any = -0.4, **fields: Any) -> bytes:
    data = {"score": score, "call": "e1", "priority": "high"} | fields
    return json.dumps({"time": "2026-01-01T00:00:00+00:00", "data": data}, ensure_ascii=False).encode()


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def source(desk: Desk) -> Iterator[WebhookSource]:
    made = WebhookSource("compliance_api", [SECRET], PLACES)
    made.start(desk.sink)
    yield made
    background.wait_for(made.stop(), twin="source.stop")


def reason(source: WebhookSource, headers: dict[str, str], content: bytes) -> str:
    with pytest.raises(SignalRefused) as raised:
        source.receive(headers, content)
    return str(raised.value.facts["reason"])


def test_a_genuine_callback_is_a_signal(source: WebhookSource, desk: Desk) -> None:
    content = body(ticket="T-8841", 备注="投诉")
    assert source.receive(signed(content), content).status == "accepted"
    (signal,) = desk.signals
    assert (signal.source, signal.value, signal.event_id, signal.priority) == ("compliance_api", -0.4, "e1", "high")
    assert (signal.refs, signal.key, signal.at) == ({"ticket": "T-8841"}, "msg_1", datetime(2026, 1, 1, tzinfo=UTC))
    assert signal.evidence["data"]["备注"] == "投诉"
    assert source.receive(signed(content), content).status == "duplicate"
    assert (source.health.delivered, source.health.ok) == (2, True)


@pytest.mark.parametrize(
    "spoil",
    [
        {"webhook-signature": "v1,AAAA"},
        {"webhook-signature": "v1"},
        {"webhook-signature": "v1,%%%"},
        {"webhook-signature": "v2,AAAA"},
        {"webhook-signature": ""},
        {"webhook-id": "msg_2"},
        {"webhook-timestamp": "0"},
        {"webhook-timestamp": "soon"},
    ],
    ids=str,
)
def test_what_is_forged_is_refused_and_kept_nowhere(source: WebhookSource, desk: Desk, spoil: dict[str, str]) -> None:
    content = body()
    assert reason(source, signed(content) | spoil, content) == "forged_signature"
    assert (desk.signals, desk.letters) == ([], [])
    assert source.health.refused == 1


def test_a_changed_body_another_secret_and_an_old_message_are_forged(source: WebhookSource, desk: Desk) -> None:
    content = body()
    assert reason(source, signed(content), body(score=1)) == "forged_signature"
    assert reason(source, signed(content, secret="whsec_" + "A" * 32), content) == "forged_signature"
    assert reason(source, signed(content, age=3600), content) == "forged_signature"
    assert reason(source, {}, b"\xff") == "forged_signature"
    assert desk.signals == []


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"{", "no_json"),
        (b"[]", "no_value"),
        (body(score="0.5"), "no_value"),
        (body(score=None), "no_value"),
        (body(score=True), "no_value"),
        (body().replace(b"2026-01-01T", b"yesterday "), "bad_time"),
    ],
)
def test_a_genuine_one_that_is_no_signal_is_a_dead_letter(
    source: WebhookSource, desk: Desk, content: bytes, word: str
) -> None:
    assert reason(source, signed(content), content) == word
    assert desk.letters == [(word, content)]


def test_zero_is_a_value(source: WebhookSource, desk: Desk) -> None:
    content = body(score=0)
    source.receive(signed(content), content)
    assert [signal.value for signal in desk.signals] == [0]


def test_what_is_too_large_is_refused_before_it_is_looked_at(desk: Desk) -> None:
    source = WebhookSource("compliance_api", [SECRET], PLACES, limit=50)
    source.start(desk.sink)
    assert reason(source, signed(body()), body()) == "callback_too_large"


def test_two_secrets_while_one_is_changed(desk: Desk) -> None:
    other = "whsec_" + "B" * 32
    source = WebhookSource("compliance_api", [other, SECRET], PLACES)
    assert reason(source, signed(body()), body()) == "not_running"
    source.start(desk.sink)
    for number, secret in enumerate((SECRET, other)):
        source.receive(signed(body(), id=f"m{number}", secret=secret), body())
    assert len(desk.signals) == 2


def test_cloud_events_in_both_modes(source: WebhookSource, desk: Desk) -> None:
    event = {"specversion": "1.0", "id": "c1", "source": "/合规", "type": "score", "time": "2026-01-02T00:00:00Z"}
    whole = json.dumps(event | {"data": {"score": -1, "call": "e1"}}, ensure_ascii=False).encode()
    source.receive(signed(whole, **{"content-type": "application/cloudevents+json; charset=utf-8"}), whole)
    data = json.dumps({"score": 1, "call": "e2"}).encode()
    source.receive(signed(data, id="m2", **{"ce-id": "c2", "ce-time": "2026-01-03T00:00:00Z"}), data)
    assert [(each.value, each.event_id, each.at and each.at.day) for each in desk.signals] == [
        (-1, "e1", 2),
        (1, "e2", 3),
    ]


@pytest.mark.parametrize(
    ("secrets", "places"),
    [
        ([], PLACES),
        (["whsec_"], PLACES),
        (["whsec_ä"], PLACES),
        ([SECRET], Places("a")),
        ([SECRET], Places("a..b", "e")),
    ],
)
def test_what_cannot_be_used_is_refused_at_once(secrets: list[str], places: Places) -> None:
    with pytest.raises(SourceInvalid):
        WebhookSource("x", secrets, places)


# -- as a project declares it, over HTTP -------------------------------------------------------------------------------

RULES = "version: 1\nsources: {compliance_api: {range: [-1, 1], weight: 1}}\n"


@pytest.fixture
def infra(tmp_path: Path) -> Iterator[Infra]:
    (tmp_path / "rules.yaml").write_text(RULES, encoding="utf-8")
    table = {
        "webhook": "secret://合规_KEY",
        "value": "data.score",
        "event": "data.call",
        "join": {"ticket": "data.ticket"},
    }
    (tmp_path / "home" / "secrets").mkdir(parents=True)
    (tmp_path / "home" / "secrets").chmod(0o700)
    secret = tmp_path / "home" / "secrets" / "HEGUI_KEY"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    table["webhook"] = "secret://HEGUI_KEY"
    project = Project(root=tmp_path, rules=tmp_path / "rules.yaml", sources={"compliance_api": table})
    with Infra.open(tmp_path / "home", project=project) as opened:
        yield opened


@pytest.fixture
def client(infra: Infra) -> Any:
    from agent_infra.server.app import create_app

    transport = httpx.ASGITransport(create_app(infra))

    def post(content: bytes, headers: dict[str, str], source: str = "compliance_api") -> httpx.Response:
        async def send() -> httpx.Response:
            async with httpx.AsyncClient(transport=transport, base_url="http://home") as http:
                return await http.post(f"/api/webhooks/{source}", content=content, headers=headers)

        return background.wait_for(send(), twin="send")

    return post


def test_a_callback_over_http_is_answered_once_it_is_in(infra: Infra, client: Any) -> None:
    goal = infra.session("客服").add_node("goal", {"name": "g", "goal_id": "g", "definition": {}, "status": "running"})
    content = body(call=goal.id)
    first = client(content, signed(content))
    assert (first.status_code, first.json()["status"]) == (200, "accepted")
    assert infra.weaver.weave(goal.id).value == -0.4
    again = client(content, signed(content))
    assert (again.status_code, again.json()["status"]) == (200, "duplicate")
    changed = body(score=0.9, call=goal.id)
    replayed = client(changed, signed(changed))
    assert (replayed.status_code, replayed.json()["code"]) == (409, "DuplicateConflict")
    assert infra.weaver.weave(goal.id).value == -0.4


@pytest.mark.parametrize(
    ("content", "headers", "source", "status", "said"),
    [
        (body(), {"webhook-id": "x"}, "compliance_api", 401, "forged_signature"),
        (body(), None, "nobody", 404, "SourceInvalid"),
        (b"x" * ((1 << 20) + 1), None, "compliance_api", 413, "SignalRefused"),
        (b"x" * 300_000, None, "compliance_api", 413, "callback_too_large"),
        (body(call="01M8RTW8CJ5D4CVERPKS0Q8TER"), None, "compliance_api", 422, "unknown_event"),
        (body(score=5), None, "compliance_api", 422, "out_of_range"),
        (b"{", None, "compliance_api", 422, "no_json"),
    ],
    ids=["forged", "no source", "far too large", "too large", "no event", "out of range", "no JSON"],
)
def test_what_is_refused_over_http_says_why(
    client: Any, content: bytes, headers: dict[str, str] | None, source: str, status: int, said: str
) -> None:
    refused = client(content, signed(content) if headers is None else headers, source)
    assert refused.status_code == status, refused.text
    assert refused.headers["content-type"] == "application/problem+json"
    assert said in refused.text


def test_what_was_refused_waits_to_be_tried_again(infra: Infra, client: Any) -> None:
    content = body(score=5, call="01M8RTW8CJ5D4CVERPKS0Q8TER")
    client(content, signed(content))
    assert [letter.reason for letter in infra.weaver.dead_letters()] == ["out_of_range"]


@pytest.mark.parametrize(
    "table",
    [
        {"webhook": SECRET, "value": "a", "event": "b"},
        {"webhook": "secret://X", "value": "a"},
        {"webhook": "secret://X", "value": "a", "event": "b", "join": "ticket"},
        {"webhook": "secret://X", "value": "a", "evnet": "b"},
    ],
)
def test_tables_that_cannot_be_used(table: dict[str, Any]) -> None:
    with pytest.raises(SourceInvalid):
        sources_from_config({"x": table}, secret=lambda _: SECRET)
