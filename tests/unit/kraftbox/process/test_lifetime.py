"""A node as a process, bound to the process that started it."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from kraftbox.process import lifetime
from runtime.config import NodeConfig
from runtime.tasks import Supervisor

CONFIG = NodeConfig.parse(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:0",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    }
)


class Tied:
    """The other end of a node's lifeline."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fails: bool) -> None:
        self.told: list[str] = []
        self.ours, self.theirs = socket.socketpair()

        async def start() -> None:
            if fails:
                self.node.failed.set_result(("replication", ValueError("torn")))

        async def stop() -> None:
            self.told.append("stopped")

        def build(*_: Any, **__: Any) -> Any:
            failed = asyncio.get_running_loop().create_future()
            supervisor = Supervisor(lambda name, error: None)
            self.node = SimpleNamespace(
                start=start, stop=stop, failed=failed, supervisor=supervisor, files=None
            )
            return self.node

        monkeypatch.setattr(lifetime, "build_node", build)
        monkeypatch.setattr(lifetime.descriptors, "raise_limit", lambda: None)

    def run(self) -> int:
        def ready(_: object) -> None:
            self.told.append("ready")
            self.ours.close()

        with self.theirs:
            return lifetime.run(
                CONFIG,
                lifetime.Lifeline(self.theirs.fileno(), lambda *_: None, ready, self.told.append),
            )


def test_failed_node_reports_reason_to_its_starter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tied = Tied(monkeypatch, fails=True)
    assert tied.run() == 1
    reason = "the node stopped after an error: replication: ValueError('torn')"
    assert tied.told[-1] == reason
    assert capsys.readouterr().err == f"kraftbox: {reason}\n"


def test_node_stops_cleanly_with_its_starter(monkeypatch: pytest.MonkeyPatch) -> None:
    tied = Tied(monkeypatch, fails=False)
    assert tied.run() == 0
    assert tied.told == ["ready", "stopped"]
