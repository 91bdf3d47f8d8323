"""Connections to a control socket, none of which may block or end the answering process."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftbox.launcher import frames
from kraftbox.launcher.callers import (
    CALLERS_MAX,
    REQUESTS_MAX,
    UNREAD_BYTES_MAX,
    Caller,
    Callers,
    RequestRefused,
)


class Served:
    """A socket with callers, and a select loop that the test advances."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(200)
        self.selector = selectors.DefaultSelector()
        self.lost: list[Caller] = []
        self.waiting: list[Caller] = []
        self.callers = Callers(self.selector, self.listener, self._take, self.lost.append)
        self.clients: list[socket.socket] = []

    def _take(self, caller: Caller, request: dict[str, Any]) -> frames.Message | None:
        match request["do"]:
            case "echo":
                return request
            case "refuse":
                raise RequestRefused("no")
            case "large":
                return {"value": bytes(request["bytes"])}
            case "later":
                caller.tokens.add(1)
                self.waiting.append(caller)
                return None
        raise ValueError("boom")

    def client(self, *requests: frames.Message) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(self.path)
        made.setblocking(False)
        self.clients.append(made)
        for request in requests:
            made.send(frames.encode(request))
        return made

    def turn(self) -> None:
        """Do all work that is possible without waiting."""
        for _ in range(2000):
            ready = self.selector.select(0)
            if not ready:
                return
            for key, _ in ready:
                key.data()

    def ask(self, *requests: frames.Message) -> list[dict[str, Any]]:
        client = self.client(*requests)
        self.turn()
        return frames.Decoder().feed(client.recv(1 << 16))

    def close(self) -> None:
        self.callers.close()
        self.listener.close()
        self.selector.close()
        for client in self.clients:
            client.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "control")
    yield made
    made.close()


def is_closed(client: socket.socket) -> bool:
    try:
        while client.recv(1 << 20):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
    return True


def test_failing_request_is_answered_and_the_next_one_served(served: Served, capsys: Any) -> None:
    """Regression: a node id that is not a number ended the supervisor and its cluster."""
    answers = served.ask({"do": "boom"}, {}, {"do": "refuse"}, {"do": "echo", "a": 1})
    assert [sorted(one) for one in answers] == [["error"], ["error"], ["error"], ["a", "do"]]
    assert "boom" in answers[0]["error"]
    assert answers[2]["error"] == "no"
    assert "ValueError: boom" in capsys.readouterr().err


def test_answer_larger_than_a_frame_becomes_an_error(served: Served) -> None:
    (answer,) = served.ask({"do": "large", "bytes": frames.BODY_BYTES_MAX})
    assert "too large" in answer["error"]


def test_silent_callers_hold_up_no_other_one(served: Served) -> None:
    served.client()
    half = served.client()
    half.send(frames.encode({"do": "echo"})[:-1])
    assert served.ask({"do": "echo"}) == [{"do": "echo"}]


def test_caller_that_breaks_the_protocol_is_disconnected_alone(served: Served) -> None:
    good = served.client()
    bad = served.client()
    bad.send(b"GET / HTTP/1.1")
    served.turn()
    assert is_closed(bad)
    assert not is_closed(good)
    assert len(served.lost) == 1


def test_caller_that_does_not_read_is_disconnected_once_too_much_waits(served: Served) -> None:
    client = served.client()
    asked = 0
    while not served.lost and asked < 100:
        client.send(frames.encode({"do": "large", "bytes": 1_000_000}))
        asked += 1
        served.turn()
        assert all(len(one.unread) <= UNREAD_BYTES_MAX for one in served.callers)
    assert len(served.lost) == 1
    assert served.ask({"do": "echo"}) == [{"do": "echo"}]


def test_slow_reader_gets_every_answer(served: Served) -> None:
    client = served.client(*({"do": "large", "bytes": 1_000_000} for _ in range(3)))
    decoder = frames.Decoder()
    answers: list[dict[str, Any]] = []
    for _ in range(200):
        served.turn()
        try:
            answers += decoder.feed(client.recv(1 << 16))
        except BlockingIOError:
            break
    assert answers == [{"value": bytes(1_000_000)}] * 3
    # The socket is writable all the time: without this the loop would never wait.
    assert served.selector.select(0) == []


def test_caller_with_too_many_requests_is_disconnected(served: Served) -> None:
    many = served.client(*({"do": "echo"} for _ in range(REQUESTS_MAX + 1)))
    served.turn()
    assert is_closed(many)
    waiting = served.client()
    for _ in range(REQUESTS_MAX):
        waiting.send(frames.encode({"do": "echo"}))
        served.turn()
    assert not is_closed(waiting)


def test_caller_above_the_places_takes_that_of_the_longest_idle_one(served: Served) -> None:
    later = served.client({"do": "later"})
    served.turn()
    clients = [served.client() for _ in range(CALLERS_MAX - 1)]
    served.turn()
    clients[0].send(frames.encode({"do": "echo"}))
    served.turn()
    assert served.ask({"do": "echo"}) == [{"do": "echo"}]
    assert len(served.callers) == CALLERS_MAX
    assert is_closed(clients[1])
    assert not is_closed(clients[0])
    served.callers.reply(served.waiting[0], {"done": True})
    assert frames.Decoder().feed(later.recv(1 << 16)) == [{"done": True}]


def test_late_answer_to_a_caller_that_has_gone_is_dropped(served: Served) -> None:
    client = served.client({"do": "later"})
    served.turn()
    client.close()
    served.turn()
    assert served.lost == served.waiting
    served.callers.reply(served.waiting[0], {"done": True})
