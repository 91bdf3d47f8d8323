"""Shell: `CoordinatorLog` over this broker's replicas: appends wait for the high watermark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Final

from broker.coordinators.coordinator_log import Appended, CoordinatorListener, TopicCreation
from broker.coordinators.log_entries import (
    EndMarker,
    EndOfTransaction,
    LogBatch,
    LogEntry,
    LogRecord,
    PlainBatch,
)
from broker.metadata.cache import MetadataCache
from broker.replication.partition.partition import Partition
from broker.replication.replicas.replica_manager import ReplicaManager
from protocol.batch.control import (
    ControlType,
    build_end_txn_marker,
    read_control_type,
    read_end_txn_marker,
)
from protocol.batch.header import (
    CODEC_MASK,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    BatchHeader,
    iter_checked,
)
from protocol.batch.records import (
    NO_PRODUCER,
    Producer,
    Record,
    build_batch,
    decode_payload,
    records_payload,
)
from protocol.compression import Codec
from protocol.errors import ApiError, ErrorCode
from storage.files import Files

READ_BYTES: Final = 256 * 1024
"""Bytes per read while loading: a few milliseconds of decoding."""


class _Commit:
    """A waiter that passes the outcome of one append to its future."""

    __slots__ = ()

    def resolved(self, slot: asyncio.Future[None], error: ErrorCode) -> None:
        if slot.done():
            return
        if error is ErrorCode.NONE:
            slot.set_result(None)
        else:
            slot.set_exception(ApiError(error, None))


_COMMIT: Final[_Commit] = _Commit()


class ReplicatedCoordinatorLog:
    """The partitions of one internal topic. See `CoordinatorLog` for the contract."""

    def __init__(
        self,
        topic: str,
        *,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        creator: TopicCreation,
        codec: Codec = Codec.NONE,
    ) -> None:
        self._topic = topic
        self._replicas = replicas
        self._metadata = metadata
        self._creator = creator
        self._codec = codec

    def partition_count(self) -> int | None:
        topic = self._metadata.topic(self._topic)
        return None if topic is None else len(topic.partitions)

    async def ensure_topic(self) -> None:
        await self._creator.ensure(self._topic)

    def append(self, partition: int, batch: LogBatch, timestamp_ms: int) -> Appended:
        replica = self._led(partition)
        data = _encoded(batch, timestamp_ms, self._codec)
        info = self._replicas.append_own(replica, data, now_ms=timestamp_ms)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not replica.wait_for_commit(info.last_offset + 1, _COMMIT, future):
            future.set_result(None)
        return Appended(info.first_offset, future)

    def leader_epoch(self, partition: int) -> int | None:
        replica = self._replicas.get(self._topic, partition)
        return replica.leader_epoch if replica is not None and replica.is_leader else None

    async def read_all(self, partition: int) -> AsyncIterator[LogEntry]:
        replica = self._led(partition)
        epoch, log = replica.leader_epoch, replica.log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = await log.read_cold(offset, READ_BYTES, max_offset=log.log_end_offset)
            _require_led(replica, epoch)
            following = offset
            for header, pos in iter_checked(data):
                payload = await _unpacked(log.files, data, pos, header)
                for entry in _entries(payload, header):
                    if entry.offset >= offset:
                        yield entry
                following = max(following, header.next_offset)
            if following <= offset:
                return  # no whole batch is left; the log has been truncated since
            offset = following
        _require_led(replica, epoch)
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if replica.wait_for_commit(offset, _COMMIT, committed):
            await committed

    def add_listener(self, listener: CoordinatorListener) -> None:
        self._replicas.add_leadership_listener(self._topic, listener)

    def _led(self, index: int) -> Partition:
        partition = self._replicas.find(self._topic, index)
        partition.require_leader()
        return partition


def _require_led(replica: Partition, epoch: int) -> None:
    """Raise ApiError unless this broker leads the partition in that leader epoch."""
    if not replica.leads_in(epoch):
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)


def _encoded(batch: LogBatch, timestamp_ms: int, codec: Codec) -> bytes:
    """Return the bytes of a batch. A batch of a transaction has no sequence number: the client's
    own numbers belong to the partitions that it writes to."""
    if isinstance(batch, EndMarker):
        return build_end_txn_marker(
            batch.producer_id,
            batch.producer_epoch,
            commit=batch.committed,
            coordinator_epoch=batch.coordinator_epoch,
            timestamp_ms=timestamp_ms,
        )
    producer = NO_PRODUCER
    if not isinstance(batch, PlainBatch):
        producer = Producer(batch.producer_id, batch.producer_epoch, transactional=True)
    records = [Record(at, timestamp_ms, *record) for at, record in enumerate(batch.records)]
    return build_batch(records, compression=codec, producer=producer)


async def _unpacked(files: Files, data: bytes, pos: int, header: BatchHeader) -> bytes:
    """Return the uncompressed records of the batch at `pos`, in a worker if it is compressed: the
    size is not known before."""
    if header.attributes & CODEC_MASK:
        return await files.run(records_payload, data, pos, header)
    return records_payload(data, pos, header)


def _entries(payload: bytes, header: BatchHeader) -> Iterator[LogEntry]:
    """Yield the records and transaction markers of one batch."""
    producer = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
    if header.is_transactional:
        producer = header.producer_id, header.producer_epoch
    for record in decode_payload(payload, header):
        if not header.is_control:
            yield LogRecord(record.offset, record.key, record.value, *producer)
        elif read_control_type(record.key) in (ControlType.ABORT, ControlType.COMMIT):
            committed, coordinator_epoch = read_end_txn_marker(record)
            yield EndOfTransaction(
                record.offset,
                header.producer_id,
                header.producer_epoch,
                committed,
                coordinator_epoch,
            )
