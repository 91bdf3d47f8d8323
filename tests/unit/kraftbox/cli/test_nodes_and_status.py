"""`status` for given answers and `logs` for given files, without a cluster."""

import asyncio
import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from client.admin import ExplainedPartition
from kraftbox.cli import cluster_view, status
from kraftbox.cli.cluster_view import Answers, BrokerAnswer, addresses, ask_nodes, assemble
from kraftbox.cli.main import main as cli
from kraftbox.cli.node_logs import Line, Tail, time_of, write
from kraftbox.cli.status import headline, process_lines, rows, topic_rows, waiting_lines
from kraftbox.documents.others import Status
from kraftbox.launcher import control
from kraftbox.launcher.place import ClusterPlace
from protocol.messages.describe_cluster import DescribeClusterResponse
from protocol.messages.describe_quorum import DescribeQuorumResponse
from protocol.messages.metadata import MetadataResponse


def node(node_id, roles, state="running", **more):
    return {
        "id": node_id,
        "roles": roles,
        "rack": None,
        "state": state,
        "ready": True,
        "pid": 1000 + node_id,
        "exitCode": None,
        "error": None,
        "cutOff": False,
        "http": "127.0.0.1:3",
        "listeners": "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2",
        **more,
    }


KNOWN = {
    "dir": "/d",
    "clusterId": "c",
    "pid": 1,
    "nodes": [node(1, "broker"), node(2, "broker", "killed", pid=None), node(101, "controller")],
}
State = DescribeQuorumResponse.ReplicaState
QUORUM = DescribeQuorumResponse.PartitionData(
    leader_id=101,
    leader_epoch=3,
    high_watermark=10,
    current_voters=[State(replica_id=101, log_end_offset=12)],
    observers=[State(replica_id=2, log_end_offset=-1), State(replica_id=1, log_end_offset=10)],
)
Broker = DescribeClusterResponse.DescribeClusterBroker
CLUSTER = DescribeClusterResponse(
    brokers=[Broker(broker_id=1), Broker(broker_id=2, is_fenced=True)]
)
Partition = MetadataResponse.MetadataResponsePartition
METADATA = MetadataResponse(
    topics=[
        MetadataResponse.MetadataResponseTopic(
            name="t",
            partitions=[
                Partition(partition_index=0, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1]),
                Partition(partition_index=1, leader_id=-1, replica_nodes=[2], isr_nodes=[2]),
            ],
        )
    ]
)


NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def seen(quorum=None, cluster=None, metadata=None, waiting=(), known=KNOWN):
    broker = cluster and BrokerAnswer(1, ("h", 1), cluster, metadata)
    return assemble(known, Answers(quorum, broker, waiting), NOW)


def test_everything_that_was_answered_is_put_together():
    found = seen(QUORUM, CLUSTER, METADATA)
    assert found["partitions"] == {
        "total": 2,
        "leaderless": 1,
        "underReplicated": 1,
        "waiting": [],
    }
    assert [(v["id"], v["lag"]) for v in found["quorum"]["observers"]] == [(1, 2), (2, None)]
    Status.model_validate(found)
    Status.model_validate(seen())
    first, second, third = found["nodes"]
    assert (first["leaders"], first["replicas"], first["inSync"], first["fenced"]) == (1, 1, 1, 0)
    assert (second["leaders"], second["replicas"], second["inSync"], second["fenced"]) == (
        *(0, 2, 1),
        True,
    )
    assert "leaders" not in third
    shown = rows(found)
    assert shown[0][:9:3] == ["1", "1001", "1"]
    assert shown[1][2:5] == ["killed", None, None]
    assert shown[2][1] == "controller *"
    assert "leader 101, epoch 3" in headline(found)
    assert "1 under-replicated, 1 without leader" in headline(found)


def test_status_names_awaited_event_of_leaderless_partitions():
    explained = ExplainedPartition(
        topic="t", partition=1, waits="clean-candidate", waits_for=[2], since_ms=-1
    )
    found = seen(QUORUM, CLUSTER, METADATA, [explained])
    (told,) = found["partitions"]["waiting"]
    assert [told[key] for key in ("topic", "partition", "waits", "waitsFor", "sinceMs")] == [
        *("t", 1),
        *("clean-candidate", [2], None),
    ]
    line = "t-1 waits for broker 2 to return: no other broker is in the ISR or ELR"
    assert waiting_lines(found) == [line]
    found["partitions"]["leaderless"] = 4
    assert waiting_lines(found) == [line, "and 3 more without leader"]
    assert waiting_lines(seen()) == []


def test_status_without_answers_reports_silence():
    found = seen()
    assert found["quorum"] is None and found["partitions"] is None
    assert (
        headline(found) == "quorum: no answer from a leader   partitions: no answer from a broker"
    )
    assert rows(found)[0][4] is None
    assert rows(found)[0][8:] == ["127.0.0.1:1,127.0.0.1:2", "127.0.0.1:3"]
    assert found["topics"] is None and topic_rows(found) == []


def test_a_fenced_broker_is_called_so():
    fenced = DescribeClusterResponse(brokers=[Broker(broker_id=1, is_fenced=True)])
    assert rows(seen(QUORUM, fenced, METADATA))[0][2] == "fenced"


def test_status_prefers_supervisor_state_to_cluster_state():
    cut_off = node(2, "broker", cutOff=True)
    failed = node(3, "broker", "failed", error="the disk is full")
    crashed = node(4, "broker", "failed", exitCode=-9)
    nodes = [node(1, "broker"), cut_off, failed, crashed, node(101, "controller")]
    found = seen(QUORUM, CLUSTER, METADATA, known={**KNOWN, "nodes": nodes})
    assert [row[2] for row in rows(found)] == [
        *("running", "cut off", "failed", "failed"),
        "running",
    ]
    assert process_lines(found) == [
        "2026-05-01T12:00:00.000+00:00   nodes: 2 running, 1 cut off (2), 2 failed (3,4)",
        "node 3 failed: the disk is full",
        "node 4 failed: exit code -9",
    ]


def test_a_line_for_each_topic():
    found = seen(QUORUM, CLUSTER, METADATA)
    assert found["topics"] == [
        {"name": "t", "internal": False, "total": 2, "leaderless": 1, "underReplicated": 1}
    ]
    assert topic_rows(found) == [["t", "2", "1", "1"]]


class Silent:
    """Listeners that accept connections without answering; `all_connected` is set when each has
    one.

    with_end: they then close the connections.
    """

    def __init__(self, count, *, with_end):
        self.left = count
        self.with_end = with_end
        self.all_connected = asyncio.Event()
        self.servers = []
        self.writers = []
        self.tasks = set()

    async def nodes(self):
        made = []
        for number in range(1, self.left + 1):
            server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            made.append(node(number, "controller", listeners=f"CONTROLLER://127.0.0.1:{port}"))
            self.servers.append(server)
        return made

    def _connected(self, reader, writer):
        # Not a coroutine: one that never started would leave its connection open when the loop
        # ends.
        self.writers.append(writer)
        self.tasks.add(asyncio.create_task(self._taken(reader, writer)))

    async def _taken(self, reader, writer):
        self.left -= 1
        if self.left == 0:
            self.all_connected.set()
        await self.all_connected.wait()
        while not self.with_end and await reader.read(100):
            pass
        writer.close()

    async def close(self):
        for server in self.servers:
            server.close()
        for writer in self.writers:
            writer.transport.abort()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def asked(count, answer_ms, *, with_end):
    silent = Silent(count, with_end=with_end)
    try:
        return await ask_nodes(await silent.nodes(), answer_ms)
    finally:
        await silent.close()


def test_status_requests_all_nodes_at_once():
    """Each node closes only when all are connected: one after the other would take minutes."""
    answers = asyncio.run(asyncio.wait_for(asked(3, 60_000, with_end=True), 30))
    assert answers == Answers()


def test_status_waits_for_silent_nodes_until_timeout():
    answers = asyncio.run(asyncio.wait_for(asked(3, 50, with_end=False), 30))
    assert answers == Answers()


def test_the_newest_epoch_and_the_broker_that_has_most_are_believed(monkeypatch):
    """A node may still answer that has been cut off without being noticed."""
    old = DescribeQuorumResponse.PartitionData(leader_id=102, leader_epoch=2)
    quorums = {("127.0.0.1", 2): QUORUM, ("127.0.0.1", 4): old, ("127.0.0.1", 6): None}
    others = [
        node(2, "broker", listeners="PLAINTEXT://127.0.0.1:3,CONTROLLER://127.0.0.1:4"),
        node(3, "broker", listeners="PLAINTEXT://127.0.0.1:5,CONTROLLER://127.0.0.1:6"),
    ]

    async def quorum(address, answer_ms):
        return quorums[address]

    async def broker(broker_id, address, answer_ms):
        return BrokerAnswer(broker_id, address, CLUSTER, MetadataResponse())

    monkeypatch.setattr(cluster_view, "_ask_quorum", quorum)
    monkeypatch.setattr(cluster_view, "_ask_broker", broker)
    answers = asyncio.run(ask_nodes([*others, node(1, "broker")], 30_000))
    assert answers.quorum is QUORUM
    assert answers.broker.broker_id == 1


def test_status_requests_only_nodes_that_can_answer():
    nodes = [
        node(1, "broker"),
        node(2, "broker", "paused"),
        node(3, "broker", "failed"),
        node(4, "broker", cutOff=True),
    ]
    assert addresses(nodes, controllers=False) == [("127.0.0.1", 1)]
    assert addresses(nodes, controllers=True) == [("127.0.0.1", 2)]
    single = [node(1, "broker", listeners="A://[::1]:5,CONTROLLER://127.0.0.1:0")]
    assert addresses(single, controllers=False) == [("::1", 5)]
    assert addresses(single, controllers=True) == []


def test_a_log_is_shown_in_whole_lines(tmp_path):
    path = tmp_path / "node.log"
    tail = Tail(1, path)
    assert tail.last(2) == []
    path.write_bytes(b"a\nb\nc\nhal")
    assert [line.text for line in tail.last(2)] == [b"b\n", b"c\n"]
    with open(path, "ab") as file:
        file.write(b"f\nd\n")
    assert [line.text for line in tail.new()] == [b"half\n", b"d\n"]
    assert tail.new() == []
    tail.close()


AT = 1_795_906_187_150
FIRST, TRACE = b"[2026-11-28 22:49:47,150] INFO a (x)\n", b"    at y\n"
SECOND = b'{"event":"b","timestamp":"2026-11-28T22:49:47.152Z"}\n'


def test_logs_of_nodes_are_merged_by_time(tmp_path):
    """First hours, fault 7: logs were sorted by node."""
    (tmp_path / "1").write_bytes(FIRST + TRACE)
    (tmp_path / "2").write_bytes(b"[2026-11-28 22:49:47,149] INFO z (x)\n" + SECOND)
    tails = [Tail(1, tmp_path / "1"), Tail(2, tmp_path / "2")]
    out = io.BytesIO()
    write([line for tail in tails for line in tail.last(10)], True, out)
    assert [line[:14] for line in out.getvalue().splitlines()] == [
        b"  2 | [2026-11",
        b"  1 | [2026-11",
        b"  1 |     at y",
        b'  2 | {"event"',
    ]
    for tail in tails:
        tail.close()


def test_line_without_time_has_that_of_the_line_before(tmp_path):
    (tmp_path / "1").write_bytes(FIRST + TRACE + SECOND)
    tail = Tail(1, tmp_path / "1")
    assert tail.last(10, lambda line: line.time_ms <= AT) == [
        Line(AT, 1, FIRST),
        Line(AT, 1, TRACE),
    ]
    tail.close()
    assert time_of(SECOND) == AT + 2
    assert time_of(b"[2026-13-28 22:49:47,150] x") is time_of(TRACE) is None


def test_a_directory_without_a_cluster(tmp_path):
    place = ClusterPlace(tmp_path / "nothing")
    assert not place.is_taken and place.node_logs() == {}
    with pytest.raises(control.NotRunning):
        control.status(place)
    assert control.down(place) is False


def test_a_long_path_still_has_a_control_address(tmp_path):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    with ClusterPlace(deep).control_address() as address:
        assert len(address) < 100


def test_start_of_all_starts_the_nodes_that_are_down(monkeypatch, tmp_path, capsys):
    """Controllers come first: a broker can only register with one."""
    nodes = [
        node(1, "broker", "killed"),
        node(2, "broker"),
        node(3, "broker", "failed"),
        node(101, "controller", "stopped"),
    ]
    started = []
    monkeypatch.setattr(control, "status", lambda *_: {"nodes": nodes})
    monkeypatch.setattr(control, "act", lambda _, action, id_, __: started.append((action, id_)))
    assert cli(["node", "start", "--all", "--dir", str(tmp_path)]) == 0
    assert started == [("start", 101), ("start", 1), ("start", 3)]
    nodes[:] = [node(2, "broker")]
    capsys.readouterr()
    assert cli(["node", "start", "--all", "--dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "no node is down\n"
    assert cli(["node", "start", "--dir", str(tmp_path)]) == 2
    assert cli(["node", "start", "1", "--all", "--dir", str(tmp_path)]) == 2


@pytest.mark.parametrize(("width", "last"), [(80, "ADDRESS"), (100, "HTTP")])
def test_status_drops_a_column_instead_of_folding(width, last):
    """First hours, fault 17: at 80 columns an address was folded into two lines."""
    known = {"dir": "/c", "clusterId": "x", "pid": 1}
    brokers = [node(1, "broker", listeners="PLAINTEXT://127.0.0.1:26098")]
    found = assemble({**known, "nodes": brokers}, Answers(), datetime.now(UTC))
    out = io.StringIO()
    Console(file=out, width=width).print(status.drawn(found, topics=False, width=width))
    head, row = out.getvalue().splitlines()[-2:]
    assert head.split()[-1] == last
    assert "127.0.0.1:26098" in row
