"""The tests' proxies, which leave no open socket behind: it would fail a later test."""

from __future__ import annotations

import gc
import socket
import sys
from contextlib import ExitStack

import pytest

from testkit.processes.link_proxy import LinkProxies

FRAME = (20).to_bytes(4, "big") + bytes(20)


def test_open_connections_end_with_the_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[BaseException | None] = []
    with ExitStack() as opened:
        target = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        with LinkProxies() as proxies:
            port = proxies.add(1, target.getsockname())
            for _ in range(5):
                client = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
                client.sendall(FRAME)
                opened.enter_context(target.accept()[0])
        with monkeypatch.context() as patched:
            patched.setattr(sys, "unraisablehook", lambda told: left.append(told.exc_value))
            gc.collect()
    assert left == []
