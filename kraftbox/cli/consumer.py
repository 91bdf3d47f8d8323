"""A plain consumer for `kraftbox consume`: fetches what it is assigned, partition by partition."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from kraftbox.cli.client import Client, check
from kraftbox.cli.offsets import EARLIEST, LATEST, Partition, end_offsets
from kraftbox.cli.output import say_error
from protocol.batch.header import iter_checked
from protocol.batch.records import read_batch
from protocol.errors import ApiError, ErrorCode
from protocol.ids import ZERO_UUID
from protocol.messages.fetch import FetchRequest, FetchResponse

WAIT_MS = 500
FETCH_BYTES = 8 << 20
PARTITION_BYTES = 1 << 20
RETRY_S = 0.1
PATIENCE_S = 30.0
"""How long a leader that does not answer is waited for, or its successor."""

_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
# Fetches name topics by id from version 13 on.
_BY_NAME_MAX = 12


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
        self._stale: set[Partition] = set()
        self._failing_since_s: float | None = None

    def assign(self, positions: Mapping[Partition, int]) -> None:
        self.positions = dict(positions)
        self._stale = set(positions)

    def reached(self, ends: Mapping[Partition, int]) -> bool:
        return all(self.positions[key] >= end for key, end in ends.items())

    async def poll(self, sink: Sink) -> int:
        """Fetch once from every leader; returns how many records were given to `sink`.

        A leader that moved is followed where the broker named the new one (KIP-951); where it did
        not, or does not answer, there is a pause and fresh metadata. Raises OSError when that has
        not helped for half a minute.
        """
        await self._find_leaders()
        cache = self._client.cluster.cache
        by_node: dict[int, list[Partition]] = defaultdict(list)
        for key in self.positions:
            by_node[cache.leaders[key].node_id].append(key)
        taken = 0
        for node, keys in by_node.items():
            try:
                reply = await self._fetch(node, keys)
            except (OSError, ApiError) as error:
                self._failed(keys, error)
                continue
            self._failing_since_s = None
            for topic, partition in _each(reply, keys, cache.topic_ids):
                count, more = await self._take(topic, partition, reply, sink)
                taken += count
                if not more:
                    return taken
        return taken

    async def _fetch(self, node: int, keys: Sequence[Partition]) -> FetchResponse:
        ids = self._client.cluster.cache.topic_ids
        version = None if all(name in ids for name, _ in keys) else _BY_NAME_MAX
        reply = await self._client.send(self._request(keys), node=node, version=version)
        if reply.error_code in _MOVED:
            raise ApiError(ErrorCode(reply.error_code))
        check(reply.error_code, f"fetch from node {node}")
        return reply

    def _failed(self, keys: Sequence[Partition], error: Exception) -> None:
        """No answer from a leader: look again who leads, for a while."""
        if isinstance(error, ApiError) and not error.code.retriable:
            raise error
        now_s = asyncio.get_running_loop().time()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        elif now_s - self._failing_since_s > PATIENCE_S:
            raise error
        self._stale.update(keys)

    async def _find_leaders(self) -> None:
        leaders = self._client.cluster.cache.leaders
        unknown = {key for key in self.positions if key not in leaders}
        if not unknown and not self._stale:
            return
        if not unknown:
            await asyncio.sleep(RETRY_S)
        for name in sorted({name for name, _ in unknown | self._stale}):
            await self._client.topic(name)
        self._stale.clear()

    def _request(self, keys: Sequence[Partition]) -> FetchRequest:
        cache = self._client.cluster.cache
        topics: dict[str, list[FetchRequest.FetchPartition]] = defaultdict(list)
        for name, index in keys:
            topics[name].append(
                FetchRequest.FetchPartition(
                    partition=index,
                    current_leader_epoch=cache.leaders[name, index].epoch,
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
                FetchRequest.FetchTopic(
                    topic=name,
                    topic_id=cache.topic_ids.get(name, ZERO_UUID),
                    partitions=entries,
                )
                for name, entries in topics.items()
            ],
        )

    async def _take(
        self, topic: str, data: FetchResponse.PartitionData, reply: FetchResponse, sink: Sink
    ) -> tuple[int, bool]:
        key = (topic, data.partition_index)
        if data.error_code in _MOVED:
            cluster = self._client.cluster
            if not cluster.take_hint(key, data.current_leader, reply.node_endpoints):
                self._stale.add(key)
            return 0, True
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._come_back(key)
            return 0, True
        check(data.error_code, f"{topic}-{data.partition_index}")
        taken = 0
        for received in self._records(key, data):
            taken += 1
            self.positions[key] = received.offset + 1
            if not sink(received):
                return taken, False
        return taken, True

    async def _come_back(self, key: Partition) -> None:
        """Goes on where the log begins if the position was deleted, and where it ends if it was cut
        off: never at its other end, which would repeat or skip what is there."""
        low = (await end_offsets(self._client, [key], EARLIEST))[key]
        high = (await end_offsets(self._client, [key], LATEST))[key]
        asked = self.positions[key]
        self.positions[key] = min(max(asked, low), max(low, high))
        if self.positions[key] != asked:
            say_error(
                f"{key[0]}-{key[1]} has no offset {asked} any more: it begins at {low} and ends at"
                f" {high}, reading goes on at {self.positions[key]}"
            )

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


def _each(
    reply: FetchResponse, keys: Sequence[Partition], topic_ids: Mapping[str, bytes]
) -> Iterator[tuple[str, FetchResponse.PartitionData]]:
    """The partitions of an answer, by the names of their topics."""
    names = {topic_ids[name]: name for name, _ in keys if name in topic_ids}
    for topic in reply.responses:
        for partition in topic.partitions:
            yield topic.topic or names[topic.topic_id], partition
