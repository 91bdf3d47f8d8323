"""The tests' proxies: frames, cut links, held requests, and no open socket left behind."""

from __future__ import annotations

import gc
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from protocol.api_keys import ApiKey
from testkit.processes.log_info_holds import LogInfoProxies, Seen, Stage
from testkit.processes.reply_cuts import ReplyCuts
from testkit.processes.waiting import until
from testkit.processes.wire_proxy import WireProxies

WAIT_S = 10.0


def frame(client_id: bytes = b"", key: int = 3, body: bytes = b"") -> bytes:
    """Return a request with correlation id 7, as far as the proxies read it."""
    header = key.to_bytes(2, "big") + bytes(2) + b"\0\0\0\7" + len(client_id).to_bytes(2, "big")
    content = header + client_id + body
    return len(content).to_bytes(4, "big") + content


REPLY = (8).to_bytes(4, "big") + b"\0\0\0\7" + b"body"


class Ends:
    """A target, and clients that connect to it through a proxy."""

    def __init__(self, opened: ExitStack) -> None:
        self._opened = opened
        self.target = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        self.target.settimeout(WAIT_S)

    def connect(self, port: int) -> socket.socket:
        client = self._opened.enter_context(socket.create_connection(("127.0.0.1", port)))
        client.settimeout(WAIT_S)
        return client

    def accept(self) -> socket.socket:
        node = self._opened.enter_context(self.target.accept()[0])
        node.settimeout(WAIT_S)
        return node


@pytest.fixture
def ends() -> Iterator[Ends]:
    with ExitStack() as opened:
        yield Ends(opened)


def received(end: socket.socket, size: int) -> bytes:
    """Return `size` bytes, fewer at the end of the connection."""
    data = b""
    try:
        while len(data) < size and (more := end.recv(size - len(data))):
            data += more
    except ConnectionError:
        pass
    return data


def test_wire_proxies_at_their_end_close_open_connections(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[BaseException | None] = []
    with WireProxies() as proxies:
        port = proxies.add(1, ends.target.getsockname())
        for _ in range(5):
            ends.connect(port).sendall(frame())
            ends.accept()
    with monkeypatch.context() as patched:
        patched.setattr(sys, "unraisablehook", lambda found: left.append(found.exc_value))
        gc.collect()
    assert left == []


def test_wire_proxies_forward_frames_that_arrive_in_pieces(ends: Ends) -> None:
    with WireProxies() as proxies:
        client = ends.connect(proxies.add(1, ends.target.getsockname()))
        request = frame(b"broker-4-heartbeat", body=bytes(100_000))
        client.sendall(request[:3])
        client.sendall(request[3:70_000])
        client.sendall(request[70_000:])
        node = ends.accept()
        assert received(node, len(request)) == request
        node.sendall(REPLY)
        assert received(client, len(REPLY)) == REPLY


def test_wire_proxies_with_a_cut_link_hang_that_source_alone(ends: Ends) -> None:
    with WireProxies() as proxies:
        port = proxies.add(1, ends.target.getsockname())
        cut, other = ends.connect(port), ends.connect(port)
        cut.sendall(frame(b"broker-4-heartbeat"))
        ends.accept()
        proxies.cut(4, 1)
        assert received(cut, 1) == b"", "the cut ends the connection"
        other.sendall(frame(b"broker-5-heartbeat"))
        ends.accept()
        again = ends.connect(port)
        again.sendall(frame(b"broker-4-fetcher"))
        ends.target.settimeout(0.05)
        with pytest.raises(TimeoutError):
            ends.accept()
        ends.target.settimeout(WAIT_S)
        proxies.heal()
        assert received(ends.accept(), 8) == frame(b"broker-4-fetcher")[:8]


def test_reply_cuts_armed_drop_the_reply_at_which_they_cut(ends: Ends) -> None:
    cuts = ReplyCuts(seed=1, replies_min=2, replies_max=2)
    cuts.arm(1)
    with WireProxies(cuts) as proxies:
        port = proxies.add(1, ends.target.getsockname())
        for replies in (1, 3):
            client = ends.connect(port)
            client.sendall(frame())
            node = ends.accept()
            node.sendall(3 * REPLY)
            assert received(client, replies * len(REPLY)) == replies * REPLY
            if replies == 1:
                assert received(client, 1) == b""
    assert cuts.made == 1


def test_log_info_proxies_hold_requests_and_responses_until_released(ends: Ends) -> None:
    request = frame(b"controller-101-recovery", ApiKey.GET_REPLICA_LOG_INFO)
    with LogInfoProxies() as proxies:
        client = ends.connect(proxies.add(2, ends.target.getsockname()))
        proxies.hold(Stage.REQUEST, [2])
        proxies.hold(Stage.RESPONSE, [2])
        client.sendall(request)
        node = ends.accept()
        until("the request is seen", lambda: bool(proxies.seen), WAIT_S)
        assert proxies.passed == []
        proxies.release(Stage.REQUEST, [2])
        assert received(node, len(request)) == request
        node.sendall(REPLY)
        until("the response is seen", lambda: len(proxies.seen) == 2, WAIT_S)
        assert proxies.passed == [Seen(101, 2, Stage.REQUEST)]
        proxies.release(Stage.RESPONSE, [2])
        assert received(client, len(REPLY)) == REPLY
    assert proxies.passed == [Seen(101, 2, Stage.REQUEST), Seen(101, 2, Stage.RESPONSE)]
