"""A watch through the socket: every change once and in order, however often the connection breaks."""

from __future__ import annotations

import random
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_infra import Infra, errors
from agent_infra.server import socket_of
from agent_infra.server.events import EventReader
from agent_infra.state import Change

if TYPE_CHECKING:
    from tests.server.conftest import Owner


class Cutter:
    """A socket before another one, whose connections break after some bytes of answer."""

    def __init__(self, path: Path, behind: Path, seed: int) -> None:
        self.cuts = 0
        self._behind = behind
        self._random = random.Random(seed)
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._carry, args=(near, self._random.randint(300, 1500)), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _carry(self, near: socket.socket, left: int) -> None:
        with near, socket.socket(socket.AF_UNIX) as far:
            far.connect(str(self._behind))
            while left > 0:
                ready, _, _ = select.select([near, far], [], [])
                for end, other in ((near, far), (far, near)):
                    if end in ready:
                        chunk = end.recv(left if end is far else 65536)
                        if not chunk:
                            return
                        other.sendall(chunk)
                        left -= len(chunk) if end is far else 0
        self.cuts += 1

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(30)


@pytest.fixture
def cutter(owned: Infra, tmp_path: Path) -> Iterator[Cutter]:
    cutter = Cutter(tmp_path / "cutter.sock", socket_of(owned.home), seed=7)
    yield cutter
    cutter.close()


def test_broken_connections_lose_and_repeat_nothing(owned: Infra, cutter: Cutter, tmp_path: Path) -> None:
    from agent_infra.server import RemoteBackend
    from agent_infra.server.client import Client

    graph = owned.session("天气_001")
    with Infra.connect(owned.home):  # the server is imported before anybody counts connections
        pass
    client = Client(tmp_path / "cutter.sock")
    found: list[Change] = []

    def follow() -> None:
        for change in RemoteBackend(client).watch("天气_001", 0, None):
            found.append(change)
            if change.seq == 200:
                return

    follower = threading.Thread(target=follow)
    follower.start()
    for n in range(200):
        if n % 10 == 9:
            graph.rollback()
        else:
            graph.add_node("note", {"n": n})
    follower.join(120)
    client.close()
    assert [change.seq for change in found] == list(range(1, 201))
    assert found == list(graph.watch(since=0, timeout=0))
    assert cutter.cuts >= 5


def test_a_watch_goes_on_with_the_next_owner(owner: Owner, start_owner: Callable[..., Owner]) -> None:
    write = "infra.session('天气_001').add_node('note', {})"
    owner.run("\n".join([write] * 3))
    with Infra.connect(owner.home) as client:
        watch = client.session("天气_001").watch(since=0)
        seen = [next(watch).seq for _ in range(3)]
        owner.kill()
        with pytest.raises(errors.OwnerUnreachable):
            next(watch)
    second = start_owner(owner.home)
    second.run("\n".join([write] * 3))
    with Infra.connect(owner.home) as client:
        watch = client.session("天气_001").watch(since=seen[-1])
        seen += [next(watch).seq for _ in range(3)]
    assert seen == [1, 2, 3, 4, 5, 6]


def test_last_event_id_goes_before_since(owned: Infra) -> None:
    for n in range(3):
        owned.session("天气_001").add_node("note", {"n": n})
    transport = httpx.HTTPTransport(uds=str(socket_of(owned.home)))
    with httpx.Client(transport=transport, base_url="http://home", trust_env=False, timeout=60) as http:
        params = {"session": "天气_001", "since": "0", "timeout": "0.05"}
        answer = http.get("/api/state/watch", params=params, headers={"Last-Event-ID": "2"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = answer.text.splitlines()
    assert [line for line in lines if line.startswith(("event", "id"))] == [
        "event: from",
        "id: 2",
        "event: change",
        "id: 3",
        "event: end",
    ]


def test_many_watch_at_once(owned: Infra, client: Infra) -> None:
    owned.session("天气_001").add_node("note", {"n": 0})
    found: list[list[int]] = [[] for _ in range(20)]

    def follow(mine: list[int]) -> None:
        for change in client.session("天气_001").watch(since=0):
            mine.append(change.seq)
            if change.seq == 10:
                return

    threads = [threading.Thread(target=follow, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for n in range(1, 10):
        owned.session("天气_001").add_node("note", {"n": n})
    for thread in threads:
        thread.join(60)
    assert found == [list(range(1, 11))] * 20


@given(st.lists(st.text(), max_size=5), st.data())
def test_events_are_read_however_they_are_cut(texts: list[str], data: st.DataObject) -> None:
    plain = [text.replace("\n", "").replace("\r", "").lstrip() for text in texts]
    sent = "".join(f"event: change\nid: 1\ndata: {text}\n\n:\n\n" for text in plain).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=6)))
    reader = EventReader()
    events = [
        event
        for start, end in zip([0, *cuts], [*cuts, len(sent)], strict=True)
        for event in reader.feed(sent[start:end])
    ]
    assert [event.data for event in events] == [text for text in plain if text]
