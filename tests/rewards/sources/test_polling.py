"""The polling source against a real server on 127.0.0.1: values, not yet, errors, and never a made up value."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agent_infra import background
from agent_infra.errors import SourceInvalid
from agent_infra.rewards import Event, PollingSource
from agent_infra.testing.desk import Desk


class Service:
    """A server that gives one prepared answer after another, and the last one for ever."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, bytes]] = []
        self.asked: list[str] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service.asked.append(self.path)
                status, body = service.answers[min(len(service.asked), len(service.answers)) - 1]
                self.send_response(status)
                if status != 204:
                    self.send_header("content-length", str(len(body)))
                self.end_headers()
                if status != 204:
                    self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=[0.01])
        self.thread.start()

    def will_answer(self, *answers: Any) -> None:
        self.answers = [
            (answer, b"")
            if isinstance(answer, int)
            else (200, answer if isinstance(answer, bytes) else json.dumps(answer, ensure_ascii=False).encode())
            for answer in answers
        ]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def started(desk: Desk) -> Iterator[Callable[..., PollingSource]]:
    sources: list[PollingSource] = []

    def start(url: str, value: str = "answer.score", **options: Any) -> PollingSource:
        source = PollingSource("satisfaction", url, value, first_delay=0.01, longest_delay=0.05, **options)
        source.start(desk.sink)
        sources.append(source)
        return source

    yield start
    for source in sources:
        background.wait_for(source.stop(), twin="source.stop")
        assert not source.health.running


EVENT = Event("01M8QB9J0CXY3NX7QRFC4JN3GP", "会话 1", 0)


def test_it_asks_until_there_is_a_value(service: Service, desk: Desk, started: Any, until: Any) -> None:
    service.will_answer(
        404, 204, {}, {"answer": None}, {"answer": {"score": None}}, {"answer": {"score": 0, "文": "好"}}
    )
    source = started(service.url + "/s?event=${event.id}&session=${event.session_id}")
    source.watch(EVENT)
    source.watch(EVENT)
    until(lambda: source.health.delivered)
    (signal,) = desk.signals
    assert (signal.source, signal.value, signal.event_id, signal.session_id) == ("satisfaction", 0, EVENT.id, "会话 1")
    assert service.asked == [f"/s?event={EVENT.id}&session=%E4%BC%9A%E8%AF%9D%201"] * 6
    assert (source.health.ok, source.health.pending, source.cursor) == (True, 0, [])


def test_the_answer_is_the_evidence_as_it_came(service: Service, desk: Desk, started: Any, until: Any) -> None:
    body = '{ "answer":{"score":0.5}, "评语":"不错" }'
    service.will_answer(body.encode())
    source = started(service.url + "/${env.TENANT}", environment={"TENANT": "s3cret"})
    source.watch(EVENT)
    until(lambda: source.health.delivered)
    evidence = desk.signals[0].evidence
    assert isinstance(evidence, dict)
    assert (evidence["body"], evidence["status"]) == (body, 200)
    assert evidence["url"] == service.url + "/${env.TENANT}"
    assert service.asked == ["/s3cret"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (500, "status 500"),
        (403, "status 403"),
        (301, "status 301"),
        (b"<html>", "no JSON"),
        (b"\xff", "no JSON"),
        (b'{"answer": {"score": NaN}}', "no JSON"),
        ({"answer": {"score": "0.5"}}, "'0.5'"),
        ({"answer": {"score": True}}, "no number"),
        ({"answer": {"score": [1]}}, "no number"),
        (b" " * (1 << 20), "bytes"),
    ],
)
def test_what_is_no_value_is_told_and_asked_again(
    service: Service, desk: Desk, started: Any, answer: Any, told: str, until: Any
) -> None:
    service.will_answer(answer)
    source = started(service.url)
    source.watch(EVENT)
    until(lambda: source.health.last_error)
    assert told in source.health.last_error
    assert (source.health.ok, source.health.pending, desk.signals) == (False, 1, [])
    service.will_answer(*[answer] * len(service.asked), {"answer": {"score": 0.5}})
    until(lambda: source.health.delivered)
    assert (source.health.ok, desk.signals[0].value) == (True, 0.5)


def test_a_server_that_is_not_there_and_secrets_that_do_not_leak(desk: Desk, started: Any, until: Any) -> None:
    source = started("http://127.0.0.1:9/${env.KEY}", environment={"KEY": "s3cret"})
    source.watch(EVENT)
    until(lambda: source.health.last_error)
    assert "ConnectError" in source.health.last_error
    assert "s3cret" not in source.health.last_error
    assert desk.signals == []


def test_a_variable_that_is_not_set_is_told(started: Any, until: Any) -> None:
    source = started("http://127.0.0.1:9/${env.NO_SUCH_KEY}", environment={})
    source.watch(EVENT)
    until(lambda: source.health.last_error)
    assert "NO_SUCH_KEY" in source.health.last_error


def test_a_signal_that_is_refused_is_told_and_not_sent_again(
    service: Service, desk: Desk, started: Any, until: Any
) -> None:
    desk.refuse = "out of range"
    service.will_answer({"answer": {"score": 7}})
    source = started(service.url)
    source.watch(EVENT)
    until(lambda: source.health.refused)
    assert (source.health.refused, source.health.pending, len(service.asked)) == (1, 0, 1)
    assert "out of range" in source.health.last_error


def test_it_gives_up_when_it_is_too_late(service: Service, started: Any, until: Any) -> None:
    service.will_answer(404)
    source = started(service.url)
    source.watch(Event(EVENT.id, "s", 0, until=1))
    until(lambda: source.health.given_up)
    assert (source.health.given_up, source.health.pending, len(service.asked)) == (1, 0, 1)


def test_another_process_goes_on_from_the_cursor(service: Service, desk: Desk, started: Any, until: Any) -> None:
    service.will_answer(404)
    first = started(service.url)
    first.watch(EVENT)
    cursor = json.loads(json.dumps(first.cursor))
    background.wait_for(first.stop(), twin="source.stop")
    service.will_answer({"answer": {"score": 1}})
    second = started(service.url)
    second.replay(cursor)
    until(lambda: second.health.delivered)
    assert [signal.event_id for signal in desk.signals] == [EVENT.id]


def test_items_of_lists_have_numbers(service: Service, desk: Desk, started: Any, until: Any) -> None:
    service.will_answer([{"scores": []}], [{"scores": [0.1, 0.2]}])
    source = started(service.url, "0.scores.1")
    source.watch(EVENT)
    until(lambda: source.health.delivered)
    assert desk.signals[0].value == 0.2


@pytest.mark.parametrize(
    ("url", "value"),
    [("http://x/${event.id", "a"), ("http://x/${evnt.id}", "a"), ("http://x", "a..b"), ("http://x", "")],
)
def test_what_cannot_be_polled_is_refused(url: str, value: str) -> None:
    with pytest.raises(SourceInvalid, match="satisfaction"):
        PollingSource("satisfaction", url, value)


def test_before_start_nothing_can_be_watched() -> None:
    with pytest.raises(SourceInvalid, match="not started"):
        PollingSource("satisfaction", "http://x", "a").watch(EVENT)


def test_a_stopped_source_goes_on_when_it_is_started_again(
    service: Service, desk: Desk, started: Any, until: Any
) -> None:
    service.will_answer(404)
    source = started(service.url)
    source.watch(EVENT)
    until(lambda: service.asked)
    background.wait_for(source.stop(), twin="source.stop")
    asked = len(service.asked)
    assert (source.health.running, source.health.pending) == (False, 1)
    with pytest.raises(SourceInvalid, match="not started"):
        source.watch(EVENT)
    service.will_answer(*[404] * asked, {"answer": {"score": 1}})
    source.start(desk.sink)
    until(lambda: source.health.delivered)
    assert len(desk.signals) == 1
