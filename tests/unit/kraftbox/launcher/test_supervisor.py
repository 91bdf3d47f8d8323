"""The supervisor: requests of its control socket, events of the fork server."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftbox.launcher import frames
from kraftbox.launcher.callers import Caller, RequestRefused
from kraftbox.launcher.place import ClusterPlace
from kraftbox.launcher.plan import ONE_NODE, Ports, node_plans, planned_nodes
from kraftbox.launcher.supervisor import ForkServerProcess, Supervisor
from runtime.errors import StartupRefused


class FakeForkServer:
    """A fork server that records commands, with events from the test."""

    pid = 1

    def __init__(self) -> None:
        self.commands: list[tuple[Any, ...]] = []
        self.events: list[dict[str, Any]] | None | Exception = []

    def start(self, plan: Any, _cluster_id: str) -> None:
        self.commands.append(("start", plan.node.node_id))

    def signal(self, node_id: int, number: int) -> None:
        self.commands.append(("signal", node_id, int(number)))

    def tell(self, node_id: int, action: str) -> None:
        self.commands.append(("tell", node_id, action))

    def read(self) -> list[dict[str, Any]] | None:
        if isinstance(self.events, Exception):
            raise self.events
        return self.events


def one_plan(tmp_path: Path, **settings: str) -> Any:
    (plan,) = node_plans(planned_nodes(ONE_NODE), str(tmp_path), {1: Ports(1, 2, 3)}, settings)
    return plan


@pytest.fixture
def fork_server() -> FakeForkServer:
    return FakeForkServer()


@pytest.fixture
def supervisor(tmp_path: Path, fork_server: FakeForkServer) -> Supervisor:
    """Return a supervisor of a cluster with one running node."""
    made = Supervisor(
        ClusterPlace(tmp_path),
        fork_server,  # type: ignore[arg-type]
        [one_plan(tmp_path)],
        "cluster",
        on_ready=lambda _: None,
        say=lambda _: None,
    )
    made._do(made.cluster.start_all())
    made.cluster.started(1, 100)
    made.cluster.ready(1, {})
    fork_server.commands.clear()
    return made


@pytest.fixture
def caller() -> Iterator[Caller]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Caller(ours)


MALFORMED: list[dict[Any, Any]] = [
    {},
    {"do": None},
    {"do": ["node"]},
    {"do": {"do": "status"}},
    {"do": "x" * 900_000},
    {"do": "node"},
    {"do": "node", "action": "kill", "id": "x"},
    {"do": "node", "action": "kill", "id": "9" * 5000},
    {"do": "node", "action": "kill", "id": 10**18},
    {"do": "node", "action": "kill", "id": [1]},
    {"do": "node", "action": "kill", "id": float("nan")},
    {"do": "node", "action": "x" * 900_000, "id": 1},
    {"do": "node", "action": {}, "id": 1},
    {"do": "node", "id": 1},
]


@pytest.mark.parametrize("request_", MALFORMED, ids=lambda one: repr(one)[:60])
def test_malformed_request_is_refused_and_changes_nothing(
    supervisor: Supervisor, fork_server: FakeForkServer, caller: Caller, request_: Any
) -> None:
    with pytest.raises(RequestRefused) as refused:
        supervisor._on_request(caller, request_)
    assert len(str(refused.value)) < 300
    assert fork_server.commands == []
    assert not caller.tokens


def test_status_with_a_huge_error_of_a_node_fits_into_a_frame(
    supervisor: Supervisor, caller: Caller
) -> None:
    supervisor._on_event({"event": "refused", "id": 1, "error": "\U0001f600" * 1_000_000})
    answer = supervisor._on_request(caller, {"do": "status"})
    assert answer is not None
    assert len(frames.encode(answer)) < 100_000


def test_caller_that_has_gone_is_not_answered(
    supervisor: Supervisor, fork_server: FakeForkServer, caller: Caller
) -> None:
    assert supervisor._on_request(caller, {"do": "node", "action": "stop", "id": 1}) is None
    assert [one[0] for one in fork_server.commands] == ["signal", "signal"]
    supervisor._lost(caller)
    assert supervisor.cluster.exited(1, 0) == []


def test_actions_and_ends_of_nodes_are_journaled(
    supervisor: Supervisor, caller: Caller, tmp_path: Path
) -> None:
    """First hours, fault 7: `node kill` and `pause` by hand were written nowhere."""
    supervisor._on_request(caller, {"do": "node", "action": "kill", "id": 1})
    with pytest.raises(RequestRefused):
        supervisor._on_request(caller, {"do": "node", "action": "pause", "id": 2})
    supervisor._on_event({"event": "exited", "id": 1, "code": -9})
    entries = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [(one["event"], one["node"]) for one in entries] == [("kill", 1), ("exited", 1)]
    assert entries[1]["expected"] is True


def test_terminal_that_is_gone_does_not_end_the_cluster(supervisor: Supervisor) -> None:
    def gone(_: str) -> None:
        raise BrokenPipeError

    supervisor._say = gone
    supervisor._tell("news")


@pytest.mark.parametrize("events", [None, frames.FrameError("checksum does not match")])
def test_fork_server_that_ends_or_sends_garbage_ends_the_run(
    supervisor: Supervisor, fork_server: FakeForkServer, events: Any
) -> None:
    fork_server.events = events
    supervisor._read_events()
    assert supervisor._done and supervisor._failed


class Unread:
    """A process with pipes that it does not read."""

    def __init__(self) -> None:
        commands, ours = os.pipe()
        self.stdin = os.fdopen(ours, "wb", 0)
        self.other_end = os.fdopen(commands, "rb", 0)
        self.stdout = self.other_end

    def wait(self) -> int:
        return 0


@pytest.fixture
def silent() -> Iterator[ForkServerProcess]:
    made = ForkServerProcess(Unread())  # type: ignore[arg-type]
    yield made
    made.end()


def test_commands_beyond_the_pipe_wait_without_blocking(silent: ForkServerProcess) -> None:
    """Each end writes while the other one does, so neither may wait for the other."""
    assert silent.unsent_to is None
    for _ in range(5_000):
        silent.tell(1, "cut-off")
    assert silent.unsent_to is not None
    decoder = frames.Decoder()
    received = 0
    while silent.unsent_to is not None:
        received += len(decoder.feed(os.read(silent.fileno(), 1 << 16)))
        silent.send()
    received += len(decoder.feed(os.read(silent.fileno(), 1 << 16)))
    assert received == 5_000


def test_settings_larger_than_a_frame_refuse_the_start(
    silent: ForkServerProcess, tmp_path: Path
) -> None:
    plan = one_plan(tmp_path, **{"log.dirs": "x" * 2_000_000})
    with pytest.raises(StartupRefused, match="node 1: invalid settings: frame body too large"):
        silent.start(plan, "cluster")
