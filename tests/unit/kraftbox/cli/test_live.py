"""The live view: its state, expiry of old values, drawing, and requests to nodes."""

import asyncio
import fcntl
import os
import pty
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftbox.cli.live import asking
from kraftbox.cli.live.asking import Asking, address_of
from kraftbox.cli.live.drawing import fitting, lines, shares
from kraftbox.cli.live.facts import (
    DRAW_MS,
    FRESH_MS,
    Board,
    ClusterReport,
    Groups,
    Partition,
    Quorum,
)
from kraftbox.launcher import control, frames
from kraftbox.launcher.place import ClusterPlace
from protocol.errors import ErrorCode
from protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def node(node_id, roles="broker", state="running", **more):
    return {
        "id": node_id,
        "roles": roles,
        "rack": None,
        "state": state,
        "error": None,
        "cutOff": False,
        "listeners": f"PLAINTEXT://h:{node_id},CONTROLLER://h:{1000 + node_id}",
        **more,
    }


NODES = [node(1), node(2), node(101, "controller")]
ORDERS = [
    Partition("orders", 0, 1, 5, (1, 2), (1, 2)),
    Partition("orders", 1, 2, 5, (2, 1), (2,), (1,)),
]


def board_at(now_ms, nodes=NODES, partitions=ORDERS):
    board = Board(0.0)
    board.take_nodes(now_ms, nodes)
    for one in nodes:
        board.set_requested(one["id"], 0.0, requested=address_of(one, one["roles"]) is not None)
    board.take_answer(1, "broker", now_ms)
    board.take_report(1, ClusterReport(now_ms, frozenset({2}), tuple(partitions)))
    board.take_answer(101, "controller", now_ms)
    board.take_quorum(101, Quorum(now_ms, 101, 3, 90, {101: 100, 1: 98, 2: -1}))
    return board


def told(seen):
    return [event.text for event in seen.events]


def test_node_state_comes_from_supervisor_then_from_cluster():
    nodes = [node(1), node(2), node(3, cutOff=True), node(4, state="paused")]
    rows = board_at(1000.0, nodes).look(1100.0).nodes
    assert [row.state for row in rows] == ["running", "fenced", "cut off", "paused"]
    first, second, *others = rows
    assert (first.leads, first.in_sync, first.replicas, first.behind) == (1, 1, 2, 2)
    assert (second.leads, second.in_sync, second.replicas, second.behind) == (1, 2, 2, None)
    assert first.age_ms == 100.0 and first.silent_ms is None
    assert second.age_ms is None and second.silent_ms == 1100.0
    # These nodes get no requests.
    assert [row.silent_ms for row in others] == [None, None]


def test_board_hides_values_that_are_too_old():
    board = board_at(1000.0)
    just = board.look(1000.0 + FRESH_MS)
    assert just.partitions is not None and just.quorum is not None
    assert just.supervisor_silent_ms is None and just.age_ms == FRESH_MS
    late = board.look(1001.0 + FRESH_MS)
    assert late.partitions is None and late.quorum is None and late.topics == []
    assert [row.state for row in late.nodes] == [None, None, None]
    assert late.supervisor_silent_ms == 1.0 + FRESH_MS and late.age_ms == 0.0
    assert late.nodes[0].silent_ms == 1.0 + FRESH_MS and late.nodes[0].leads is None
    # It stays on the screen until the next one is drawn.
    assert FRESH_MS + DRAW_MS <= 1000.0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["nodes", "answer", "told", "quorum", "groups", "ends", "look"]),
            st.integers(0, 2000),
        )
    )
)
def test_nothing_that_is_shown_is_older_than_what_counts_as_fresh(steps):
    board, now_ms = Board(0.0), 0.0
    for what, after_ms in steps:
        now_ms += after_ms
        if what == "nodes":
            board.take_nodes(now_ms, NODES)
        elif what == "answer":
            board.take_answer(1, "broker", now_ms)
        elif what == "told":
            board.take_report(1, ClusterReport(now_ms, frozenset(), tuple(ORDERS)))
        elif what == "quorum":
            board.take_quorum(101, Quorum(now_ms, 101, 3, 90, {}))
        elif what == "groups":
            board.take_groups(1, Groups(now_ms, {"g": "Stable"}, {"g": {("orders", 0): 1}}))
        elif what == "ends":
            board.take_ends(now_ms, {("orders", 0): 10})
        seen = board.look(now_ms + 300.0)
        assert 0.0 <= seen.age_ms <= FRESH_MS
        ages = [row.age_ms for row in seen.nodes if row.age_ms is not None]
        assert max(ages, default=0.0) <= seen.age_ms


def test_the_broker_that_has_most_of_the_metadata_is_believed():
    board = board_at(1000.0)
    behind = [one._replace(leader=-1) for one in ORDERS]
    board.take_report(2, ClusterReport(1000.0, frozenset(), tuple(behind)))
    assert board.look(1000.0).partitions[0].leader == 1
    board.take_quorum(101, Quorum(1000.0, 101, 3, 90, {101: 100, 1: 98, 2: 99}))
    assert board.look(1000.0).partitions[0].leader == -1


def test_the_newest_epoch_wins_and_who_leads_no_more_is_forgotten():
    board = board_at(1000.0)
    board.take_quorum(102, Quorum(1000.0, 102, 4, 95, {}))
    assert board.look(1000.0).quorum.leader == 102
    board.take_quorum(102, None)
    assert board.look(1000.0).quorum.leader == 101


def test_a_node_of_two_roles_is_as_old_as_the_one_that_is_silent():
    board = Board(0.0)
    board.take_nodes(5000.0, [node(1, "broker,controller")])
    board.set_requested(1, 0.0, requested=True)
    board.take_answer(1, "broker", 5000.0)
    assert board.look(5000.0).nodes[0].silent_ms == 5000.0
    board.take_answer(1, "controller", 1000.0)
    assert board.look(5000.0).nodes[0].silent_ms == 4000.0
    board.take_answer(1, "controller", 5000.0)
    assert board.look(5000.0).nodes[0].age_ms == 0.0


def test_rates_and_lag():
    board = board_at(0.0)
    for at_ms, end in ((0.0, 100), (1000.0, 300), (2000.0, 500), (3000.0, 700), (4500.0, 1000)):
        board.take_ends(at_ms, {("orders", 0): end, ("orders", 1): 7})
    board.take_nodes(4500.0, NODES)
    board.take_report(1, ClusterReport(4500.0, frozenset(), tuple(ORDERS)))
    committed = {("orders", 0): 900, ("orders", 1): 9, ("gone", 0): 1}
    board.take_groups(2, Groups(4500.0, {"g": "Stable", "h": "Empty"}, {"g": committed}))
    seen = board.look(4600.0)
    assert seen.topics == [("orders", 2, 0, 1, 200.0)]
    assert [row.per_s for row in seen.nodes] == [200.0, 0.0, None]
    # A commit beyond the end offset, which was read before it, is no negative lag.
    assert seen.groups == [("g", "Stable", 100, 1), ("h", "Empty", 0, 0)]
    board.take_ends(4700.0, {("orders", 0): 3})
    assert board.look(4700.0).topics[0].per_s == 0.0, "a log that begins anew has no rate yet"
    late = board.look(6000.0)
    assert [row.lag for row in late.groups] == [None, None]
    assert late.groups[0].state == "coordinator not answering"


def test_events_are_what_is_different():
    board = board_at(1000.0)
    assert board.look(1000.0).events == []
    board.take_nodes(1500.0, [node(1), node(2, state="failed", error="disk full"), NODES[2]])
    board.take_quorum(101, Quorum(1500.0, 102, 4, 95, {}))
    moved = [
        Partition("orders", 0, 2, 6, (1, 2), (2,)),
        Partition("orders", 1, -1, 6, (2, 1), ()),
        Partition("new", 0, 1, 0, (1,), (1,)),
    ]
    board.take_report(1, ClusterReport(1500.0, frozenset(), tuple(moved)))
    seen = board.look(1500.0)
    assert told(seen) == [
        "node 2: fenced -> failed: disk full",
        "controller 101 -> 102, epoch 4",
        "new topic: new",
        "leader 1 -> 2: orders-0",
        "leader 2 -> none: orders-1",
        "broker 1 left the ISR of orders-0",
        "broker 2 left the ISR of orders-1",
    ]
    assert [event.is_bad for event in seen.events] == [True, *[False] * 3, True, False, False]
    # A broker that is behind reports an earlier epoch.
    board.take_report(1, ClusterReport(1600.0, frozenset(), (*ORDERS, moved[2])))
    assert len(board.look(1600.0).events) == 7
    board.take_report(1, ClusterReport(1700.0, frozenset(), tuple(moved[:2])))
    assert told(board.look(1700.0))[7:] == ["gone topic: new"]
    # Silence of a node is an event, but no change of the state that only it reports.
    assert told(board.look(9000.0)) == told(seen) + ["gone topic: new"]
    board.take_nodes(9000.0, NODES)
    assert told(board.look(9000.0))[8:] == [
        "node 1 stopped answering",
        "node 2: failed -> running",
        "node 101 stopped answering",
    ]


def test_silence_is_an_event_once_and_its_end_too():
    board = board_at(1000.0)
    board.look(1000.0)
    for now_ms in (2000.0, 2100.0):
        board.take_nodes(now_ms, NODES)
        texts = told(board.look(now_ms))
    # No node reports whether 2 is still fenced; its silence has lasted since the start.
    assert texts == [f"node {number} stopped answering" for number in (1, 101)]
    board.take_answer(1, "broker", 2200.0)
    assert told(board.look(2200.0))[2:] == ["node 1 answers again"]


def test_an_event_of_many_partitions_is_one_line():
    many = [Partition("t", number, 1, 0, (1, 2), (1, 2)) for number in range(50)]
    board = board_at(1000.0, partitions=many)
    board.look(1000.0)
    after = [one._replace(leader=2, leader_epoch=1) for one in many]
    board.take_report(1, ClusterReport(1100.0, frozenset({2}), tuple(after)))
    assert told(board.look(1100.0)) == ["leader 1 -> 2: t-0, t-1, t-10 and 47 more"]


# --- drawing ------------------------------------------------------------------------------------


def drawn(seen, width, height):
    return [line.plain.rstrip() for line in lines(seen, "/data", NOW, width, height)]


def test_sixty_columns_show_all_that_matters():
    board = board_at(1000.0)
    board.take_ends(900.0, {("orders", 0): 1})
    board.take_ends(1000.0, {("orders", 0): 101})
    board.take_groups(1, Groups(1000.0, {"g": "Stable"}, {"g": {("orders", 0): 1}}))
    shown = drawn(board.look(1100.0), 60, 40)
    assert max(map(len, shown)) <= 60
    assert shown[:5] == [
        "12:00:00 UTC  data at most 0.1 s old  /data",
        "nodes 3: 2 running, 1 fenced (2)",
        "not answering: 2 (1.1 s)",
        "quorum: leader 101, epoch 3, high watermark 90",
        "partitions 2: 0 without leader, 1 lack replicas, 1 with ELR",
    ]
    assert shown[6].split() == ["NODE", "ROLES", "STATE", "AGE", "LEADS", "IN", "SYNC", "REC/S"]
    assert shown[7].split() == ["1", "broker", "running", "0.1", "s", "1", "1/2", "1,000"]
    assert shown[11:13] == [
        "LACKING   LEADER  ISR  ELR  REPLICAS",
        "orders-1  2       2    1    2,1",
    ]
    assert "g      Stable  100" in shown
    wide = drawn(board.look(1100.0), 120, 40)
    assert wide[6].split()[-3:] == ["BEHIND", "RACK", "ADDRESS"]


def test_board_without_answers_reports_silence():
    shown = drawn(Board(0.0).look(3000.0), 60, 20)
    assert shown[1:] == [
        "no answer from the supervisor for 3.0 s",
        "nodes 0:",
        "quorum: no answer from a leader",
        "partitions: no answer from a broker",
    ]


@pytest.mark.parametrize("height", [0, 1, 5, 12, 20])
@pytest.mark.parametrize("width", [1, 20, 60])
def test_no_screen_is_too_small(width, height):
    many = [Partition("t", number, 1, 0, (1, 2), (1,)) for number in range(500)]
    board = board_at(1000.0, [node(number) for number in range(1, 100)], many)
    board.look(1000.0)
    board.take_report(1, ClusterReport(1001.0, frozenset(), tuple(many[:400])))
    shown = drawn(board.look(1001.0), width, height)
    assert len(shown) <= height and all(len(line) <= width for line in shown)
    if height == 20 and width == 60:
        assert any("more: t-1" in line for line in shown)


def test_the_height_is_shared():
    assert shares([3, 100, 0, 2], 9) == [3, 4, 0, 2]
    assert shares([3, 1], 100) == [3, 1]
    assert shares([3, 3], 1) == [1, 0]
    assert shares([3], -1) == [0] and shares([], 5) == []
    assert fitting([5, 5, 5], 12) == [0, 1] and fitting([50], 10) == [0]


# --- requests -------------------------------------------------------------------------------------

ANSWERS = {
    DescribeClusterRequest: DescribeClusterResponse(
        brokers=[DescribeClusterResponse.DescribeClusterBroker(broker_id=2, is_fenced=True)]
    ),
    DescribeTopicPartitionsRequest: DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
                name="orders",
                partitions=[
                    DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition(
                        partition_index=0,
                        leader_id=1,
                        leader_epoch=5,
                        replica_nodes=[1, 2],
                        isr_nodes=[1],
                        eligible_leader_replicas=[2],
                    )
                ],
            )
        ]
    ),
    ListGroupsRequest: ListGroupsResponse(
        groups=[ListGroupsResponse.ListedGroup(group_id="g", group_state="Stable")]
    ),
    ListOffsetsRequest: ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name="orders",
                partitions=[
                    ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, offset=50)
                ],
            )
        ]
    ),
    OffsetFetchRequest: OffsetFetchResponse(
        groups=[
            OffsetFetchResponse.OffsetFetchResponseGroup(
                group_id="g",
                topics=[
                    OffsetFetchResponse.OffsetFetchResponseTopics(
                        name="orders",
                        partitions=[
                            OffsetFetchResponse.OffsetFetchResponsePartitions(
                                partition_index=0, committed_offset=20
                            )
                        ],
                    )
                ],
            )
        ]
    ),
    DescribeQuorumRequest: DescribeQuorumResponse(
        topics=[
            DescribeQuorumResponse.TopicData(
                partitions=[
                    DescribeQuorumResponse.PartitionData(
                        leader_id=101, leader_epoch=3, high_watermark=9
                    )
                ]
            )
        ]
    ),
}


class Fake:
    """A connection to a node that answers at once, or never."""

    is_closed = False
    silent_ports = frozenset()
    connects = []

    def __init__(self, port):
        self.port = port

    @classmethod
    async def connect(cls, host, port, *_):
        cls.connects.append(port)
        return cls(port)

    async def request(self, message, *_, **__):
        if self.port in self.silent_ports:
            await asyncio.Event().wait()
        return ANSWERS[type(message)]

    def abort(self):
        self.is_closed = True


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    """Return a board, filled by a cluster without processes; the test sets the nodes."""
    known = {"nodes": NODES}
    monkeypatch.setattr(Fake, "connects", [])
    monkeypatch.setattr(asking, "Connection", Fake)
    monkeypatch.setattr(asking, "ASK_MS", 20.0)
    monkeypatch.setattr(control, "status", lambda *_: known)
    return known, ClusterPlace(tmp_path)


async def asked_until(place, met):
    """Send requests on a fake clock until `met(board)`."""
    board = Board(0.0)
    task = asyncio.create_task(Asking(place, board, lambda: 1.0).run())
    async with asyncio.timeout(30):
        while not met(board):
            await asyncio.sleep(0)
            assert not task.done()
    task.cancel()
    await asyncio.wait([task])
    return board


async def test_silent_node_does_not_delay_other_nodes(cluster, monkeypatch):
    _, place = cluster
    monkeypatch.setattr(Fake, "silent_ports", frozenset({2}))

    def met(board):
        return Fake.connects.count(2) > 2 and board.look(1.0).quorum and board.look(1.0).groups

    seen = (await asked_until(place, met)).look(1.0)
    assert seen.partitions == (Partition("orders", 0, 1, 5, (1, 2), (1,), (2,)),)
    assert seen.groups == [("g", "Stable", 30, 0)]
    assert seen.quorum.leader == 101
    assert [row.state for row in seen.nodes] == ["running", "fenced", "running"]
    assert [row.age_ms for row in seen.nodes] == [0.0, None, 0.0]
    # Those that answer keep their connections.
    assert Fake.connects.count(1) == Fake.connects.count(1101) == 1


async def test_nodes_that_cannot_answer_get_no_request(cluster):
    known, place = cluster
    known["nodes"] = [node(1, state="paused"), node(2, cutOff=True), node(3, state="killed")]
    known["nodes"].append(node(101, "controller"))
    board = await asked_until(place, lambda board: board.look(1.0).quorum)
    assert set(Fake.connects) == {1101}
    assert [row.silent_ms for row in board.look(10_000.0).nodes[:3]] == [None] * 3


async def test_a_controller_that_does_not_lead_answers_all_the_same(cluster, monkeypatch):
    _, place = cluster
    told = DescribeQuorumResponse.PartitionData(
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=102
    )
    answer = DescribeQuorumResponse(topics=[DescribeQuorumResponse.TopicData(partitions=[told])])
    monkeypatch.setitem(ANSWERS, DescribeQuorumRequest, answer)

    def met(board):
        nodes = board.look(1.0).nodes
        return bool(nodes) and nodes[2].age_ms is not None

    board = await asked_until(place, met)
    assert board.look(1.0).quorum is None


def test_address_of_node_depends_on_role_and_state():
    assert address_of(node(1), "broker") == ("h", 1)
    assert address_of(node(1), "controller") == ("h", 1001)
    assert address_of(node(1, listeners="CONTROLLER://[::1]:5"), "controller") == ("::1", 5)
    assert address_of(node(1, listeners="CONTROLLER://:0"), "controller") is None
    assert address_of(node(1, state="paused"), "broker") is None


# --- the terminal -------------------------------------------------------------------------------


class Supervisor(threading.Thread):
    """A responder to `status` on the control socket of a directory."""

    def __init__(self, place, nodes):
        super().__init__(daemon=True)
        self._listener = socket.socket(socket.AF_UNIX)
        with place.control_address() as address:
            self._listener.bind(address)
        self._listener.listen()
        self._known = {"dir": "d", "clusterId": "c", "pid": 1, "nodes": nodes}

    def run(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                if connection.recv(1 << 16):
                    connection.sendall(frames.encode(self._known))

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def read_until(fd, words):
    """Read a terminal's output until it contains these words."""
    data = b""
    while not all(word in data for word in words):
        assert select.select([fd], [], [], 30)[0], data
        data += os.read(fd, 1 << 16)
    return data


@pytest.mark.parametrize("ending", [b"q", signal.SIGTERM])
def test_on_a_terminal_it_takes_the_screen_and_gives_it_back(tmp_path, ending):
    place = ClusterPlace(tmp_path)
    supervisor = Supervisor(place, [node(1, state="paused"), node(2, state="failed", error="disk")])
    supervisor.start()
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    before = termios.tcgetattr(follower)
    process = subprocess.Popen(
        [sys.executable, "-m", "kraftbox", "top", "--dir", str(tmp_path)],
        stdin=follower,
        stdout=follower,
        stderr=subprocess.PIPE,
        # As in a shell that exported them before its window was resized.
        env={**os.environ, "TERM": "xterm", "COLUMNS": "20", "LINES": "5"},
    )
    try:
        shown = read_until(
            leader, [b"paused (1)", b"node 2 failed: disk", b"no answer from a broker"]
        )
        assert b"\x1b[?1049h" in shown
        if isinstance(ending, bytes):
            os.write(leader, ending)
        else:
            process.send_signal(ending)
        read_until(leader, [b"\x1b[?1049l"])
        assert process.wait(30) == 0
        assert process.stderr.read() == b""
        assert termios.tcgetattr(follower) == before
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
        supervisor.close()
        os.close(leader)
        os.close(follower)
