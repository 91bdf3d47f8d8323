"""A metadata log of any length, as of a cluster in endless rolling restarts.

In each turn one broker is fenced (it leaves its ISRs, leaders move), comes back, rejoins the ISRs,
and the preferred leaders are elected again. Batches have the sizes of a controller's: one large
batch for a fenced broker, small ones for ISR changes. A snapshot is written at the beginning of
each segment, as in the log of a busy controller.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from protocol.batch.header import HEADER, HEADER_BYTES, LENGTH_OVERHEAD_BYTES, MAGIC, write_crc
from protocol.batch.records import varint
from protocol.control import (
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    encode_control_value,
)
from protocol.metadata import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    encode_record,
)

BROKERS = 12
RACKS = 3
PARTITIONS_PER_TOPIC = 50
EPOCH = 1
BATCH_MS = 20
_CHANGE_TAIL = 23
_frame = struct.Struct(">3Bi16s")
_KEY = struct.Struct(">hh")


class Size(NamedTuple):
    """The size of the log: records in total, segments, partitions."""

    records: int
    segments: int
    partitions: int = 10_000


class _Partition:
    __slots__ = ("epoch", "index", "isr", "leader", "partition_epoch", "replicas", "topic_id")

    def __init__(self, topic_id: bytes, index: int, replicas: tuple[int, ...]) -> None:
        self.topic_id = topic_id
        self.index = index
        self.replicas = replicas
        self.isr = replicas
        self.leader = replicas[0]
        self.epoch = 0
        self.partition_epoch = 0


class LogWriter:
    """Writes batches into segments, and a snapshot at the beginning of each later segment."""

    def __init__(self, folder: Path, size: Size, start_ms: int) -> None:
        self.folder = folder
        self.size = size
        self.offset = 0
        self.now_ms = start_ms
        self.cluster: list[bytes] = []
        self.fenced = -1
        self.partitions: list[_Partition] = []
        self._tails: dict[tuple[object, ...], bytes] = {}
        self._per_segment = max(1, size.records // size.segments)
        self._next_roll = 0
        self._file = (folder / "unused").open("wb")

    def batch(self, values: Iterable[bytes]) -> None:
        """Append one batch. `values` may be a generator: a snapshot is taken before it runs."""
        if self.offset >= self._next_roll:
            self._roll()
        count, data = build(values, self.offset, self.now_ms)
        self._file.write(data)
        self.offset += count
        self.now_ms += BATCH_MS

    def control(self, control_type: int, value: bytes) -> None:
        if self.offset >= self._next_roll:
            self._roll()
        self._file.write(control(control_type, value, self.offset, self.now_ms))
        self.offset += 1

    def _roll(self) -> None:
        self._file.close()
        (self.folder / "unused").unlink(missing_ok=True)
        if self.offset:
            self.snapshot()
        self._file = (self.folder / f"{self.offset:020d}.log").open("wb")
        self._next_roll = self.offset + self._per_segment

    def snapshot(self) -> None:
        path = self.folder / f"{self.offset:020d}-{EPOCH:010d}.checkpoint"
        head = SnapshotHeaderRecord(last_contained_log_timestamp=self.now_ms - BATCH_MS)
        with path.open("wb") as out:
            out.write(control(3, encode_control_value(head), 0, self.now_ms))
            at = 1
            brokers = [_registration(b, fenced=b == self.fenced) for b in range(BROKERS)]
            values = [*brokers, *self.cluster, *(whole(p) for p in self.partitions)]
            for begin in range(0, len(values), 1000):
                count, data = build(values[begin : begin + 1000], at, self.now_ms)
                out.write(data)
                at += count
            out.write(control(4, encode_control_value(SnapshotFooterRecord()), at, self.now_ms))

    def close(self) -> None:
        self._file.close()

    def change(self, partition: _Partition, isr: tuple[int, ...], leader: int) -> bytes:
        """Apply this ISR and leader to `partition`; return the framed change."""
        moved = leader != partition.leader
        key = (isr if isr != partition.isr else None, leader if moved else None)
        tail = self._tails.get(key)
        if tail is None:
            record = PartitionChangeRecord(
                isr=list(isr) if isr != partition.isr else None, leader=leader if moved else -2
            )
            tail = self._tails[key] = encode_record(record, 2)[_CHANGE_TAIL:]
        partition.isr = isr
        partition.partition_epoch += 1
        if moved:
            partition.leader = leader
            partition.epoch += 1
        return _frame.pack(1, 5, 2, partition.index, partition.topic_id) + tail


def build(values: Iterable[bytes], base_offset: int, now_ms: int) -> tuple[int, bytearray]:
    """Return the number of records and the batch."""
    out = bytearray(HEADER_BYTES)
    count = 0
    for value in values:
        body = b"\x00\x00" + varint(count) + b"\x01" + varint(len(value)) + value + b"\x00"
        out += varint(len(body))
        out += body
        count += 1
    return count, _finish(out, base_offset, count, now_ms, 0)


def control(control_type: int, value: bytes, base_offset: int, now_ms: int) -> bytearray:
    out = bytearray(HEADER_BYTES)
    key = _KEY.pack(0, control_type)
    body = b"\x00\x00\x00" + varint(4) + key + varint(len(value)) + value + b"\x00"
    out += varint(len(body)) + body
    return _finish(out, base_offset, 1, now_ms, 0x20)


def _finish(
    out: bytearray, base_offset: int, count: int, now_ms: int, attributes: int
) -> bytearray:
    length = len(out) - LENGTH_OVERHEAD_BYTES
    fields = (base_offset, length, EPOCH, MAGIC, 0, attributes, count - 1, now_ms, now_ms)
    HEADER.pack_into(out, 0, *fields, -1, -1, -1, count)
    write_crc(out, 0, len(out))
    return out


def whole(partition: _Partition) -> bytes:
    """Return the framed record with the whole state of a partition."""
    return encode_record(
        PartitionRecord(
            partition_id=partition.index,
            topic_id=partition.topic_id,
            replicas=list(partition.replicas),
            isr=list(partition.isr),
            leader=partition.leader,
            leader_epoch=partition.epoch,
            partition_epoch=partition.partition_epoch,
            directories=[bytes([9]) * 16] * len(partition.replicas),
        ),
        2,
    )


def write_log(folder: Path, size: Size, start_ms: int = 1_790_000_000_000) -> int:
    """Fill `folder` (a `__cluster_metadata-0`); return the log end offset."""
    folder.mkdir(parents=True, exist_ok=True)
    log = LogWriter(folder, size, start_ms)
    log.control(2, encode_control_value(LeaderChangeMessage(leader_id=100)))
    log.batch(_begin(log))
    for broker in range(BROKERS):
        log.batch([_registration(broker)])
        log.batch([_unfence(broker)])
    _topics(log)
    turns = _turns(log)
    while log.offset < size.records:
        next(turns)
    log.close()
    return log.offset


def _begin(log: LogWriter) -> list[bytes]:
    log.cluster += [
        encode_record(FeatureLevelRecord(name="metadata.version", feature_level=29), 0),
        encode_record(
            ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"),
            0,
        ),
    ]
    return list(log.cluster)


def _registration(broker: int, *, fenced: bool = True) -> bytes:
    record = RegisterBrokerRecord(
        broker_id=broker, broker_epoch=broker, rack=f"rack-{broker % RACKS}", fenced=fenced
    )
    return encode_record(record, 3)


def _unfence(broker: int) -> bytes:
    return encode_record(
        BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=broker, fenced=-1), 1
    )


def _fence(broker: int) -> bytes:
    return encode_record(
        BrokerRegistrationChangeRecord(broker_id=broker, broker_epoch=broker, fenced=1), 1
    )


def _topics(log: LogWriter) -> None:
    for number in range(log.size.partitions // PARTITIONS_PER_TOPIC):
        topic_id = struct.pack(">qq", 7, number)
        values = [encode_record(TopicRecord(name=f"topic-{number:05d}", topic_id=topic_id), 0)]
        log.cluster.append(values[0])
        for index in range(PARTITIONS_PER_TOPIC):
            first = (number * 7 + index) % BROKERS
            replicas = (first, (first + 1) % BROKERS, (first + 5) % BROKERS)
            partition = _Partition(topic_id, index, replicas)
            log.partitions.append(partition)
            values.append(whole(partition))
        log.batch(values)


def _turns(log: LogWriter) -> Iterator[None]:
    """Write one batch per step, without end."""
    while True:
        for broker in range(BROKERS):
            mine = [p for p in log.partitions if broker in p.replicas]
            log.batch(_leave(log, broker, mine))
            log.fenced = broker
            yield
            log.batch([_unfence(broker)])
            log.fenced = -1
            for chunk in _chunks(mine, 20):
                log.batch(log.change(p, (*p.isr, broker), p.leader) for p in chunk)
                yield
            for chunk in _chunks([p for p in mine if p.replicas[0] == broker], 100):
                log.batch(log.change(p, p.isr, broker) for p in chunk)
                yield


def _leave(log: LogWriter, broker: int, partitions: list[_Partition]) -> Iterator[bytes]:
    """Yield the records with which Kafka fences a broker, all in one batch: ISR changes, then
    the fencing.
    """
    for partition in partitions:
        isr = tuple(r for r in partition.isr if r != broker)
        leader = partition.leader
        if leader == broker:
            leader = next(r for r in partition.replicas if r in isr)
        yield log.change(partition, isr, leader)
    yield _fence(broker)


def _chunks(items: list[_Partition], size: int) -> Iterator[list[_Partition]]:
    for begin in range(0, len(items), size):
        yield items[begin : begin + size]
