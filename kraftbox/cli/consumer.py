"""A plain consumer for `kraftbox consume`: fetches what it is assigned, partition by partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from kraftbox.cli.client import Client, check
from kraftbox.cli.offsets import EARLIEST, Partition, end_offsets
from protocol.batch.header import iter_checked
from protocol.batch.records import read_batch
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.metadata import MetadataResponse

# The last version that names topics.
FETCH_BY_NAME = 12
WAIT_MS = 500
FETCH_BYTES = 8 << 20
PARTITION_BYTES = 1 << 20

_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.LEADER_NOT_AVAILABLE,
)


class Received(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


Sink: TypeAlias = Callable[[Received], bool]
"""Takes a record; False when it wants no more."""


class Consumer:
    """Positions of the assigned partitions, and the fetching from there."""

    def __init__(self, client: Client, *, read_committed: bool = False) -> None:
        self.positions: dict[Partition, int] = {}
        self._client = client
        self._isolation = 1 if read_committed else 0
        self._leaders: dict[Partition, int] = {}

    def assign(self, positions: Mapping[Partition, int]) -> None:
        self.positions = dict(positions)
        self._leaders.clear()

    def reached(self, ends: Mapping[Partition, int]) -> bool:
        return all(self.positions[key] >= end for key, end in ends.items())

    async def poll(self, sink: Sink) -> int:
        """Fetch once from every leader; returns how many records were given to `sink`."""
        await self._find_leaders()
        by_node: dict[int, list[Partition]] = defaultdict(list)
        for key in self.positions:
            by_node[self._leaders[key]].append(key)
        taken = 0
        for node, keys in by_node.items():
            reply = await self._client.send(self._request(keys), node=node, version=FETCH_BY_NAME)
            check(reply.error_code, f"fetch from node {node}")
            for topic in reply.responses:
                for partition in topic.partitions:
                    count, more = await self._take(topic.topic, partition, sink)
                    taken += count
                    if not more:
                        return taken
        return taken

    async def _find_leaders(self) -> None:
        if all(key in self._leaders for key in self.positions):
            return
        topics: dict[str, MetadataResponse.MetadataResponseTopic] = {}
        for name, index in self.positions:
            if name not in topics:
                topics[name] = await self._client.topic(name)
            for partition in topics[name].partitions:
                if partition.partition_index == index:
                    self._leaders[name, index] = partition.leader_id

    def _request(self, keys: Sequence[Partition]) -> FetchRequest:
        topics: dict[str, list[FetchRequest.FetchPartition]] = defaultdict(list)
        for name, index in keys:
            topics[name].append(
                FetchRequest.FetchPartition(
                    partition=index,
                    fetch_offset=self.positions[name, index],
                    partition_max_bytes=PARTITION_BYTES,
                )
            )
        return FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=self._isolation,
            topics=[
                FetchRequest.FetchTopic(topic=name, partitions=entries)
                for name, entries in topics.items()
            ],
        )

    async def _take(
        self, topic: str, data: FetchResponse.PartitionData, sink: Sink
    ) -> tuple[int, bool]:
        key = (topic, data.partition_index)
        if data.error_code in _MOVED:
            self._leaders.pop(key, None)
            return 0, True
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.positions.update(await end_offsets(self._client, [key], EARLIEST))
            return 0, True
        check(data.error_code, f"{topic}-{data.partition_index}")
        taken = 0
        for received in self._records(key, data):
            taken += 1
            self.positions[key] = received.offset + 1
            if not sink(received):
                return taken, False
        return taken, True

    def _records(self, key: Partition, data: FetchResponse.PartitionData) -> list[Received]:
        buffer = data.records or b""
        assert not isinstance(buffer, list), "a received record set is one buffer"
        aborted = sorted(
            ((t.first_offset, t.producer_id) for t in data.aborted_transactions or ()),
        )
        hidden: set[int] = set()
        found = []
        start = self.positions[key]
        for header, pos in iter_checked(buffer):
            while aborted and aborted[0][0] <= header.last_offset:
                hidden.add(aborted.pop(0)[1])
            if header.is_control:
                hidden.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in hidden):
                for record in read_batch(buffer, pos, header):
                    if record.offset >= start:
                        found.append(
                            Received(
                                *key,
                                record.offset,
                                record.timestamp,
                                record.key,
                                record.value,
                                record.headers,
                            )
                        )
            self.positions[key] = max(self.positions[key], header.next_offset)
        return found
