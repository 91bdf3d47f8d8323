"""`CoordinatorLog` over this broker's replicas: appends wait for the high watermark."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from broker.auto_topics_driver import TopicCreator
from broker.coordinators.log import CoordinatorListener
from broker.metadata_cache import MetadataCache
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from protocol.batch.header import iter_batches
from protocol.batch.records import Record, build_batch, read_records
from protocol.compression import Codec
from protocol.errors import ApiError, ErrorCode

READ_BYTES: Final = 256 * 1024
"""One slice of loading: a few milliseconds of decoding."""


class _Commit:
    """Hands the outcome of one append to its future."""

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
        creator: TopicCreator,
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

    async def read_all(
        self, partition: int
    ) -> AsyncIterator[tuple[int, bytes | None, bytes | None]]:
        replica = self._led(partition)
        epoch, log = replica.leader_epoch, replica.log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            read = await log.read_cold(offset, READ_BYTES, max_offset=log.log_end_offset)
            if not replica.is_leader or replica.leader_epoch != epoch:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
            for record in read_records(read.data):
                if record.offset >= offset:
                    yield record.offset, record.key, record.value
            following = _end_of(read.data, offset)
            if following <= offset:
                return  # nothing whole is left; the end has been cut since
            offset = following
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if replica.wait_for_commit(offset, _COMMIT, committed):
            await committed

    def add_listener(self, listener: CoordinatorListener) -> None:
        self._replicas.add_leadership_listener(self._topic, listener)

    def _led(self, index: int) -> Partition:
        partition = self._replicas.find(self._topic, index)
        partition.require_leader()
        return partition


def _end_of(data: bytes, offset: int) -> int:
    """The offset behind the last whole batch, control batches included."""
    for header, _ in iter_batches(data):
        offset = max(offset, header.next_offset)
    return offset
