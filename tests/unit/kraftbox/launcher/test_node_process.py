"""A node as a process: its reports to the supervisor, and its commands."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kraftbox.launcher import frames, node_process
from kraftbox.process import lifetime


def test_unexpected_error_of_node_is_reported_to_its_starter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(config: object, tied: object) -> int:
        raise AttributeError("no such thing")

    monkeypatch.setattr(lifetime, "run", broken)
    monkeypatch.setattr(lifetime, "configure_log", lambda config, sink: None)
    monkeypatch.setattr(node_process, "name_process", lambda node_id: None)
    ours, theirs = socket.socketpair()
    properties = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:1",
        "log.dirs": str(tmp_path / "data"),
    }
    with ours, theirs:
        with pytest.raises(AttributeError, match="no such thing"):
            node_process.run(
                {"id": 1, "properties": properties, "cluster_id": "kraftbox-kraftbox-0001"}, theirs
            )
        (told,) = frames.Decoder().feed(ours.recv(1 << 16))
    assert told == {
        "event": "refused",
        "error": "AttributeError('no such thing'); see the node's log",
    }


class Loop:
    """A loop that records its commands."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def cut_off(self) -> None:
        self.done.append("cut-off")

    def reconnect(self) -> None:
        self.done.append("reconnect")


def test_obey_carries_out_commands_however_they_are_cut() -> None:
    """Regression: each read had a decoder of its own, so a command split over two reads was
    lost."""
    ours, theirs = socket.socketpair()
    loop = Loop()
    commands = frames.Decoder()
    stream = b"".join(frames.encode({"do": one}) for one in ("cut-off", "dance", "reconnect"))
    with ours, theirs:
        for at in range(0, len(stream), 5):
            node_process.obey(theirs, commands, loop, stream[at : at + 5])  # type: ignore[arg-type]
        told = frames.Decoder().feed(ours.recv(1 << 16))
    assert loop.done == ["cut-off", "reconnect"]
    assert [one["error"] for one in told] == [None, "unknown command 'dance'", None]
