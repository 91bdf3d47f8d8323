"""Shell: Requests to the leaders of `__remote_log_metadata`, over the brokers' listener.

A partition that this broker leads itself is read and written like any other, so the guarantees for
producers and consumers hold for it. Leaders are those of the metadata image. Each gets a connection
for writes, one for reads and one for catch-up reads: responses come in the order of requests, and a
read may wait for records while a write must not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from broker.metadata.cache import MetadataCache
from broker.peers.peer import Peer
from broker.peers.pool import PeerPool
from protocol.batch.header import iter_checked
from protocol.batch.records import Record, build_batch, read_batch
from protocol.errors import ApiError, ErrorCode, ProtocolError
from protocol.ids import TopicId
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.produce import ProduceRequest
from storage.log.epochs import NO_EPOCH, EpochEntry
from storage.tiered.records import METADATA_TOPIC

ANSWER_TIMEOUT_MS: Final = 10_000.0
PRODUCE_TIMEOUT_MS: Final = 8_000
READ_WAIT_MS: Final = 500
CATCH_UP_WAIT_MS: Final = 20
"""How long a leader waits for records in a catch-up read. A partition that was just taken on waits
for the answer to the previous read at most this long."""
READ_BYTES: Final = 1 << 20
PARTITION_READ_BYTES: Final = 256 << 10
LATEST: Final = -1
EARLIEST: Final = -2
ACKS_ALL: Final = -1

FAILURES: Final = (ApiError, ProtocolError, OSError)
"""Exceptions of a request that may succeed later: no leader, no connection, no answer, or an error
code."""


class MetadataTopic(NamedTuple):
    """One incarnation of the topic."""

    topic_id: TopicId
    partitions: int


class ReadFrom(NamedTuple):
    """Position from which to read one of the topic's partitions.

    `epoch` is the leader epoch of the record before, -1 if unknown. With it, the leader detects
    that it does not have the records that were read before.
    """

    offset: int
    epoch: int = NO_EPOCH


class MetadataRead(NamedTuple):
    """The result of reading one of the topic's partitions."""

    number: int
    asked_offset: int
    records: list[tuple[int, bytes | None]]
    """Offset and value."""
    next_offset: int
    """The offset behind all that was read, including batches without records."""
    error: ErrorCode = ErrorCode.NONE
    epochs: Sequence[EpochEntry] = ()
    """The leader epochs of the batches, each with its first offset in this read."""
    diverges: bool = False
    """The leader does not have what was read before: its log has lost its end."""


class MetadataLink(Protocol):
    """The topic as the journal uses it. All coroutines raise `FAILURES` and do not retry."""

    def topic(self) -> MetadataTopic | None:
        """Return the topic of the newest image, or None if it has none."""

    def leader(self, number: int) -> int:
        """Return the leader of one of its partitions, or -1 if none with a known address exists."""

    async def append(self, number: int, value: bytes, timestamp_ms: int) -> int:
        """Write a record with acks=all and return its offset. After a failure it may be written
        nevertheless."""

    async def read(
        self, leader: int, offsets: Mapping[int, ReadFrom], *, catching_up: bool = False
    ) -> list[MetadataRead]:
        """Read from these offsets in partitions of one leader; wait for the first record.

        `catching_up` is for partitions that must not wait behind another read that waits for news.
        """

    async def bound(self, number: int, timestamp: int) -> int:
        """Return the offset of LATEST (committed) or EARLIEST."""

    def published(self) -> None:
        """Process a new metadata image."""

    async def close(self) -> None:
        """Close all connections to leaders."""


class TopicLink:
    """The topic over connections to its leaders. See `MetadataLink`."""

    def __init__(self, metadata: MetadataCache, *, listener: str) -> None:
        self._metadata = metadata
        self._peers = PeerPool(metadata, listener=listener)

    def topic(self) -> MetadataTopic | None:
        topic = self._metadata.topic(METADATA_TOPIC)
        return None if topic is None else MetadataTopic(TopicId(topic.id), len(topic.partitions))

    def leader(self, number: int) -> int:
        partition = self._metadata.partition(METADATA_TOPIC, number)
        if partition is None or self._peers.registration(partition.leader) is None:
            return -1
        return partition.leader

    async def append(self, number: int, value: bytes, timestamp_ms: int) -> int:
        batch = build_batch([Record(0, timestamp_ms, None, value)])
        topic = ProduceRequest.TopicProduceData(
            name=METADATA_TOPIC,
            topic_id=self._topic_id(),
            partition_data=[ProduceRequest.PartitionProduceData(index=number, records=batch)],
        )
        request = ProduceRequest(acks=ACKS_ALL, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[topic])
        answer = await self._leading(number).request(request, ANSWER_TIMEOUT_MS)
        result = answer.responses[0].partition_responses[0]
        _check(result.error_code, result.error_message)
        return result.base_offset

    async def read(
        self, leader: int, offsets: Mapping[int, ReadFrom], *, catching_up: bool = False
    ) -> list[MetadataRead]:
        wait_ms = CATCH_UP_WAIT_MS if catching_up else READ_WAIT_MS
        partitions = [
            FetchRequest.FetchPartition(
                partition=number,
                current_leader_epoch=self._leader_epoch(number),
                fetch_offset=begin.offset,
                last_fetched_epoch=begin.epoch,
                partition_max_bytes=PARTITION_READ_BYTES,
            )
            for number, begin in offsets.items()
        ]
        topic = FetchRequest.FetchTopic(
            topic=METADATA_TOPIC, topic_id=self._topic_id(), partitions=partitions
        )
        request = FetchRequest(
            max_wait_ms=wait_ms, min_bytes=1, max_bytes=READ_BYTES, topics=[topic]
        )
        peer = self._peers.peer(leader, "tier-catch-up" if catching_up else "tier-read")
        answer = await peer.request(request, wait_ms + ANSWER_TIMEOUT_MS)
        _check(answer.error_code, None)
        return [
            _read_of(data, offsets[data.partition_index].offset)
            for topic_data in answer.responses
            for data in topic_data.partitions
            if data.partition_index in offsets
        ]

    async def bound(self, number: int, timestamp: int) -> int:
        partition = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=number,
            current_leader_epoch=self._leader_epoch(number),
            timestamp=timestamp,
        )
        topic = ListOffsetsRequest.ListOffsetsTopic(name=METADATA_TOPIC, partitions=[partition])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        answer = await self._leading(number).request(request, ANSWER_TIMEOUT_MS)
        result = answer.topics[0].partitions[0]
        _check(result.error_code, None)
        return result.offset

    def published(self) -> None:
        self._peers.published()

    async def close(self) -> None:
        self._peers.close()

    # Leaders ---------------------------------------------------------------------------------

    def _topic_id(self) -> bytes:
        topic = self.topic()
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{METADATA_TOPIC} is not there")
        return topic.topic_id

    def _leader_epoch(self, number: int) -> int:
        partition = self._metadata.partition(METADATA_TOPIC, number)
        return -1 if partition is None else partition.leader_epoch

    def _leading(self, number: int) -> Peer:
        leader = self.leader(number)
        if leader < 0:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, None)
        return self._peers.peer(leader, "tier-write")


def _check(error_code: int, message: str | None) -> None:
    if error_code:
        raise ApiError(ErrorCode(error_code), message)


def _read_of(data: FetchResponse.PartitionData, asked_offset: int) -> MetadataRead:
    """Convert a Fetch response of a partition. Raises ProtocolError for records that cannot be
    parsed."""
    number = data.partition_index
    if data.error_code:
        error = ErrorCode(data.error_code)
        return MetadataRead(number, asked_offset, [], asked_offset, error)
    if data.diverging_epoch.epoch >= 0:
        return MetadataRead(number, asked_offset, [], asked_offset, diverges=True)
    records: list[tuple[int, bytes | None]] = []
    epochs: list[EpochEntry] = []
    next_offset = asked_offset
    assert not isinstance(data.records, list), "that is for answers that are sent"
    content = data.records or b""
    for header, at in iter_checked(content):
        next_offset = max(next_offset, header.next_offset)
        if not epochs or epochs[-1].epoch != header.leader_epoch:
            epochs.append(EpochEntry(header.leader_epoch, max(header.base_offset, asked_offset)))
        if not header.is_control:
            found = read_batch(content, at, header)
            records += ((one.offset, one.value) for one in found if one.offset >= asked_offset)
    return MetadataRead(number, asked_offset, records, next_offset, epochs=epochs)
