"""Brokers' logs beside each other, the metadata, and what clients saw (H1-H12, P4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from audit.data.client_history import acknowledged
from audit.data.files import find_replicas
from audit.data.partition import PartitionWork, audit_partition
from audit.data.plan import plan_partitions
from audit.logs import UnreadableInput
from audit.sink import Sink
from protocol.batch.header import write_crc
from protocol.batch.records import Record, build_batch
from runtime.history import History, Outcome, Process, Send, Topic, save

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

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs = {n: [batch(i) for i in range(5)] for n in (1, 2, 3)}
        self.high_watermarks = dict.fromkeys((1, 2, 3), 5)
        self.epochs = dict.fromkeys((1, 2, 3), "0\n1\n0 0\n")
        self.sends = [send(i, i) for i in range(5)]
        self.result: dict[str, Any] = {
            "partitions": [
                {
                    "topic": "t",
                    "topic_id": "AAECAwQFBgcICQoLDA0ODw",
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

    def work(self) -> list[PartitionWork]:
        for node, batches in self.logs.items():
            log_dir = self.folder / f"broker-{node}"
            place = log_dir / "t-0"
            place.mkdir(parents=True)
            (log_dir / "meta.properties").write_text(f"version=1\nnode.id={node}\n")
            (log_dir / "replication-offset-checkpoint").write_text(
                f"0\n1\nt 0 {self.high_watermarks[node]}\n"
            )
            (place / f"{0:020d}.log").write_bytes(b"".join(batches))
            (place / "leader-epoch-checkpoint").write_text(self.epochs[node])
            (place / "partition.metadata").write_text(
                "version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
            )
        history = self.folder / "history.kbxh"
        save(
            history,
            History(
                topics=[Topic("t", TOPIC_ID, 1, 3, 2)],
                processes=[Process(PROCESS, "producer", "test")],
                sends=self.sends,
            ),
        )
        return plan_partitions(find_replicas([self.folder]), acknowledged([history]), self.result)

    def found(self) -> list[str]:
        sink = Sink()
        for one in self.work():
            audit_partition(one, sink)
        return sorted({finding.check for finding in sink.findings})


def send(number: int, offset: int, order: int | None = None) -> Send:
    at = number if order is None else order
    return Send(PROCESS, 0, 0, value(number), 0, 1, Outcome.OK, offset, at)


@pytest.fixture
def brokers(tmp_path: Path) -> Brokers:
    return Brokers(tmp_path)


def test_equal_replicas_and_kept_promises(brokers: Brokers) -> None:
    assert brokers.found() == []


def test_replicas_are_found_with_what_they_wrote_down(brokers: Brokers) -> None:
    brokers.work()
    first = find_replicas([brokers.folder])[0]
    assert (first.topic, first.partition, first.broker) == ("t", 0, 1)
    assert (first.high_watermark, first.epochs) == (5, ((0, 0),))


def test_replicas_that_differ_below_the_high_watermark(brokers: Brokers) -> None:
    damaged = bytearray(brokers.logs[3][2])
    damaged[-3] ^= 1
    write_crc(damaged, 0, len(damaged))
    brokers.logs[3][2] = bytes(damaged)
    assert brokers.found() == ["replicas-equal"]


def test_replicas_may_differ_above_it(brokers: Brokers) -> None:
    brokers.logs[3][4] = batch(4, 0, value(77))
    brokers.high_watermarks[3] = 4
    assert brokers.found() == []


def test_a_flipped_bit_in_a_replica(brokers: Brokers) -> None:
    damaged = bytearray(brokers.logs[2][4])
    damaged[-3] ^= 1
    brokers.logs[2][4] = bytes(damaged)
    brokers.high_watermarks[2] = 4
    assert brokers.found() == ["replica-damage"]


def test_a_cut_tail_of_a_replica_is_no_finding(brokers: Brokers) -> None:
    brokers.logs[2][4] = brokers.logs[2][4][:-4]
    brokers.high_watermarks[2] = 4
    assert brokers.found() == []


def test_an_epoch_that_the_metadata_does_not_know(brokers: Brokers) -> None:
    for node in (1, 2, 3):
        brokers.logs[node][4] = batch(4, 7)
        brokers.epochs[node] = "0\n2\n0 0\n7 4\n"
    assert brokers.found() == ["leader-epochs"]


def test_a_checkpoint_that_lacks_an_epoch(brokers: Brokers) -> None:
    for node in (1, 2, 3):
        brokers.logs[node][4] = batch(4, 1)
        brokers.epochs[node] = "0\n2\n0 0\n1 4\n" if node < 3 else "0\n1\n0 0\n"
    brokers.result["partitions"][0]["leader_epoch"] = 1
    assert brokers.found() == ["leader-epochs"]


def test_a_lost_acknowledged_record(brokers: Brokers) -> None:
    brokers.sends.append(send(5, 5))
    assert brokers.found() == ["acknowledged-lost"]


def test_an_acknowledged_record_replaced_by_another(brokers: Brokers) -> None:
    for node in (1, 2, 3):
        brokers.logs[node][3] = batch(3, 0, value(99))
    assert brokers.found() == ["acknowledged-lost"]


def test_a_record_twice(brokers: Brokers) -> None:
    for node in (1, 2, 3):
        brokers.logs[node].append(batch(5, 0, value(2)))
    assert brokers.found() == ["acknowledged-twice"]


def test_records_in_another_order(brokers: Brokers) -> None:
    brokers.sends = [send(0, 0, 1), send(1, 1, 0), *brokers.sends[2:]]
    assert brokers.found() == ["acknowledged-order"]


def test_an_unknown_outcome_is_no_promise(brokers: Brokers) -> None:
    unknown = send(5, -1)._replace(outcome=Outcome.UNKNOWN)
    brokers.sends.append(unknown)
    assert brokers.found() == []


def test_a_broken_history_is_refused(brokers: Brokers) -> None:
    brokers.work()
    history = brokers.folder / "history.kbxh"
    data = bytearray(history.read_bytes())
    data[9] ^= 1
    history.write_bytes(bytes(data))
    with pytest.raises(UnreadableInput, match="its CRC does not fit"):
        acknowledged([history])
