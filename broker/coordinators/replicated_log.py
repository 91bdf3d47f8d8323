"""Shell: `CoordinatorLog` over this broker's replicas: appends wait for the high watermark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

from broker.coordinators.coordinator_log import CoordinatorListener, TopicCreation
from broker.coordinators.log_entries import EndOfTransaction, LogEntry, LogRecord
from broker.metadata.cache import MetadataCache
from broker.replication.partition.partition import Partition
from broker.replication.replicas.replica_manager import ReplicaManager
from protocol.batch.control import ControlType, read_control_type, read_end_txn_marker
from protocol.batch.header import CODEC_MASK, NO_PRODUCER_ID, BatchHeader, iter_checked
from protocol.batch.records import (
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

    def append(
        self, partition: int, records: Sequence[tuple[bytes, bytes | None]], timestamp_ms: int
    ) -> asyncio.Future[None]:
        replica = self._led(partition)
        batch = build_batch(
            [
                Record(offset, timestamp_ms, key, value)
                for offset, (key, value) in enumerate(records)
            ],
            compression=self._codec,
        )
        info = self._replicas.append_own(replica, batch, now_ms=timestamp_ms)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not replica.wait_for_commit(info.last_offset + 1, _COMMIT, future):
            future.set_result(None)
        return future

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


async def _unpacked(files: Files, data: bytes, pos: int, header: BatchHeader) -> bytes:
    """Return the uncompressed records of the batch at `pos`, in a worker if it is compressed: the
    size is not known before."""
    if header.attributes & CODEC_MASK:
        return await files.run(records_payload, data, pos, header)
    return records_payload(data, pos, header)


def _entries(payload: bytes, header: BatchHeader) -> Iterator[LogEntry]:
    """Yield the records and transaction markers of one batch."""
    producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
    for record in decode_payload(payload, header):
        if not header.is_control:
            yield LogRecord(record.offset, record.key, record.value, producer_id)
        elif read_control_type(record.key) in (ControlType.ABORT, ControlType.COMMIT):
            committed, _ = read_end_txn_marker(record)
            yield EndOfTransaction(record.offset, header.producer_id, committed)
