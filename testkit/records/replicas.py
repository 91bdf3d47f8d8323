"""Brokers' log directories and a clients' history, for the audit's tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from audit.findings.sink import Sink
from audit.planning.partitions import PartitionWork, plan_partitions
from audit.reading.client_history import acknowledged
from audit.reading.replicas import find_replicas
from audit.tasks.partition import audit_partition
from kraftbox.chaos.history import Fault, History, Process, Send, SendOutcome, Topic, save
from protocol.batch.header import parse_header
from protocol.batch.records import Record, build_batch
from protocol.ids import uuid_to_text

PROCESS = 1
TOPIC_ID = bytes(range(16))


def value(number: int) -> int:
    return PROCESS << 32 | number


def batch(number: int, epoch: int = 0, *values: int) -> bytes:
    ids = values or (value(number),)
    records = [Record(timestamp=1, value=b"%d|....." % one) for one in ids]
    return build_batch(records, number, leader_epoch=epoch)


class Brokers:
    """Replicas of topic t, partition 0, on three brokers."""

    def __init__(self, folder: Path, topic_id: bytes = TOPIC_ID) -> None:
        self.folder = folder
        self.topic_id = topic_id
        self.logs = {n: [batch(i) for i in range(5)] for n in (1, 2, 3)}
        self.rolled: dict[int, int] = {}
        """Number of batches in the first of two segments."""
        self.at_rest = {1, 2, 3}
        """Brokers that stopped cleanly."""
        self.log_starts: dict[int, int] = {}
        self.high_watermarks = dict.fromkeys((1, 2, 3), 5)
        self.epochs = dict.fromkeys((1, 2, 3), "0\n1\n0 0\n")
        self.sends = [send(i, i) for i in range(5)]
        self.faults: list[Fault] = []
        self.result: dict[str, Any] = {
            "partitions": [
                {
                    "topic": "t",
                    "topic_id": uuid_to_text(topic_id),
                    "partition": 0,
                    "leader": 1,
                    "leader_epoch": 0,
                    "replicas": [1, 2, 3],
                    "compacted": False,
                }
            ],
            "elections": [],
            "elections_left_out": 0,
            "leadership": [[0, 0, "t", 0, None, 1, 0, "created"]],
            "leadership_left_out": 0,
        }

    def write(self) -> Path:
        """Write the brokers' directories and the clients' history. Returns: the path of the
        history."""
        for node, batches in self.logs.items():
            log_dir = self.folder / f"broker-{node}"
            place = log_dir / "t-0"
            place.mkdir(parents=True)
            (log_dir / "meta.properties").write_text(f"version=1\nnode.id={node}\n")
            (log_dir / "replication-offset-checkpoint").write_text(
                f"0\n1\nt 0 {self.high_watermarks[node]}\n"
            )
            if node in self.log_starts:
                (log_dir / "log-start-offset-checkpoint").write_text(
                    f"0\n1\nt 0 {self.log_starts[node]}\n"
                )
            if node in self.at_rest:
                (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
            rolled = self.rolled.get(node, len(batches))
            segments = [s for s in (batches[:rolled], batches[rolled:]) if s]
            for segment in segments:
                base = parse_header(segment[0]).base_offset
                (place / f"{base:020d}.log").write_bytes(b"".join(segment))
            (place / "leader-epoch-checkpoint").write_text(self.epochs[node])
            (place / "partition.metadata").write_text(
                f"version: 0\ntopic_id: {uuid_to_text(self.topic_id)}\n"
            )
        history = self.folder / "history.kbxh"
        save(
            history,
            History(
                topics=[Topic("t", self.topic_id, 1, 3, 2)],
                processes=[Process(PROCESS, "producer", "test")],
                sends=self.sends,
                faults=self.faults,
            ),
        )
        return history

    def work(self) -> list[PartitionWork]:
        history = self.write()
        return plan_partitions(find_replicas([self.folder]), acknowledged([history]), self.result)

    def messages(self) -> list[str]:
        """Return the findings as `check: message`."""
        sink = Sink()
        for one in self.work():
            audit_partition(one, sink)
        assert all(finding.severity == "error" for finding in sink.findings)
        return [f"{finding.check}: {finding.message}" for finding in sink.findings]

    def found(self) -> list[str]:
        return sorted({message.split(":")[0] for message in self.messages()})

    def led(self, *epochs: int, leader: int = 1) -> None:
        """Let a broker be the leader of these epochs."""
        self.partition["leader_epoch"] = max(epochs)
        self.result["leadership"] = [[0, 0, "t", 0, None, leader, e, "created"] for e in epochs]

    @property
    def partition(self) -> dict[str, Any]:
        found: dict[str, Any] = self.result["partitions"][0]
        return found

    def only(self, node: int) -> None:
        """Remove the other replicas' directories."""
        self.logs = {node: self.logs[node]}


def send(number: int, offset: int, order: int | None = None) -> Send:
    at = number if order is None else order
    return Send(PROCESS, 0, 0, value(number), 0, 1, SendOutcome.OK, offset, at)
