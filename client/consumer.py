"""Shell: A consumer without a group, which fetches its assigned partitions.

If a broker names the new leader (KIP-951), the consumer goes there at once. Otherwise, or without
an answer, it waits and refreshes its metadata. A partition without an answering leader does not
hold up the others: they are fetched before it. A position outside the log is reset to the nearest
end: to the log start if its records were deleted, to the log end if the log was truncated. The
other end would repeat or skip existing records.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from client.cluster_client import EARLIEST, LATEST, ClusterClient
from client.errors import check
from client.leaders import TopicPartition
from client.offsets import offsets_at
from client.retries import RETRY_WAIT_MS, Deadline, may_pass
from client.visible_records import Received, visible_records
from protocol.errors import ApiError, ErrorCode
from protocol.ids import ZERO_UUID
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.transport.client import DEFAULT_TIMEOUT_MS

REQUEST_TIMEOUT_MS = 30_000.0
FETCH_WAIT_MS = 500
START_TIMEOUT_MS = 2_000.0
"""How long one partition's leader may take for its log start or end before others are fetched."""
FETCH_BYTES = 8 << 20
PARTITION_BYTES = 1 << 20

NOTICE_MS = 2_000.0
"""How long a partition waits for a leader's answer before `on_waiting` reports it."""

_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
# From version 13 on, Fetch identifies topics by ID.
_BY_NAME_MAX = 12


class PositionReset(NamedTuple):
    """A reset of a position outside the log: the old position, the log's range, the new
    position.
    """

    topic: str
    partition: int
    requested_offset: int
    log_start_offset: int
    log_end_offset: int
    position: int


class Consumer:
    """A consumer of assigned partitions, with its positions.

    Args:
        read_committed: skip aborted and unfinished transactions (KIP-98).
        leader_timeout_ms: how long to wait for an answering leader or its successor; infinity
            reads the other partitions for as long as one has none.
        on_reset: called for each position outside the log that is reset.
        on_waiting: called once for partitions without an answer for 2 s, with the ID of the
            silent leader, or -1 if there is no leader.
    """

    def __init__(
        self,
        client: ClusterClient,
        *,
        read_committed: bool = False,
        leader_timeout_ms: float = DEFAULT_TIMEOUT_MS,
        on_reset: Callable[[PositionReset], None] | None = None,
        on_waiting: Callable[[Sequence[TopicPartition], int], None] | None = None,
    ) -> None:
        self.positions: dict[TopicPartition, int] = {}
        """The offset of the next record to return, by partition; EARLIEST or LATEST until a leader
        has answered."""
        self._client = client
        self._isolation = 1 if read_committed else 0
        self._leader_timeout_ms = leader_timeout_ms
        self._on_reset = on_reset
        self._on_waiting = on_waiting
        self._reported: set[TopicPartition] = set()
        """Partitions that `on_waiting` has reported and that still wait."""
        self._refreshed_s = -inf
        self._stale: set[TopicPartition] = set()
        self._failing_since_s: dict[TopicPartition, float] = {}
        """Since when the leaders of a partition have not answered. Time between two calls of
        `poll` does not count."""
        self._left_s: float | None = None

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions, from these offsets on, and no others.

        EARLIEST and LATEST stand for the log start and the log end once a leader answers.
        """
        self.positions = dict(positions)
        self._stale = set(positions)
        self._refreshed_s = -inf
        self._failing_since_s.clear()
        self._reported.clear()

    async def poll(
        self, records_max: int | None = None, timeout_ms: float = DEFAULT_TIMEOUT_MS
    ) -> list[Received]:
        """Fetch once from every leader; wait up to half a second for the first record.

        Afterwards the positions follow the returned records; records beyond `records_max` are
        fetched again. `timeout_ms` limits the waiting for silent leaders. Raises Refused, and
        OSError or ApiError if the leaders of a partition have not answered for `leader_timeout_ms`.
        """
        loop = asyncio.get_running_loop()
        if self._left_s is not None and self._failing_since_s:
            away_s = loop.time() - self._left_s
            self._failing_since_s = {
                key: since_s + away_s for key, since_s in self._failing_since_s.items()
            }
        try:
            return await self._poll(records_max, Deadline(timeout_ms))
        finally:
            self._left_s = loop.time()
            self._report_waiting()

    async def _poll(self, records_max: int | None, deadline: Deadline) -> list[Received]:
        # Positions advance only at the return, so that a cancelled or failed call loses no record.
        found: list[Received] = []
        after: dict[TopicPartition, int] = {}
        try:
            await self._find_leaders(deadline)
            await self._find_starts(deadline)
            for node_id, keys in self._by_leader():
                wait_ms = 0 if found else min(FETCH_WAIT_MS, int(deadline.left_ms / 2))
                reply = await self._fetch(node_id, keys, wait_ms, deadline)
                for key, data in self._each(reply, keys):
                    if records_max is None or len(found) < records_max:
                        new, after[key] = await self._take(key, data, reply)
                        found += new
        except (ApiError, OSError):
            # The error recurs in the next call; the records found before must not be lost.
            if not found:
                raise
        if records_max is not None and len(found) > records_max:
            del found[records_max:]
            after[found[-1].topic, found[-1].partition] = found[-1].offset + 1
        self.positions.update(after)
        return found

    def _by_leader(self) -> list[tuple[int, list[TopicPartition]]]:
        """Return the partitions to fetch by leader, silent leaders last.

        Raises ApiError if a partition has had no leader for `leader_timeout_ms`.
        """
        by_node: dict[int, list[TopicPartition]] = defaultdict(list)
        leaderless = []
        for key, position in self.positions.items():
            if not self._client.cache.is_led(key):
                leaderless.append(key)
            elif position not in (EARLIEST, LATEST) and key not in self._stale:
                by_node[self._client.cache.leaders[key].node_id].append(key)
        if leaderless:
            topic, partition = leaderless[0]
            error = ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
            self._failed(leaderless, error)
        failing = self._failing_since_s.keys()
        return sorted(by_node.items(), key=lambda entry: not failing.isdisjoint(entry[1]))

    async def _fetch(
        self, node_id: int, keys: Sequence[TopicPartition], wait_ms: int, deadline: Deadline
    ) -> FetchResponse:
        """Return the leader's response, empty after an error that may pass.

        Raises Refused, ApiError, OSError.
        """
        client = self._client
        version = None if all(name in client.cache.topic_ids for name, _ in keys) else _BY_NAME_MAX
        request = self._request(keys, wait_ms)
        loop = asyncio.get_running_loop()
        notice = loop.call_later(NOTICE_MS / 1000.0, self._report, keys)
        try:
            await client.find_broker(node_id, deadline.left_ms)
            limit_ms = min(REQUEST_TIMEOUT_MS, deadline.left_ms)
            reply = await client.request_broker(node_id, request, limit_ms, version=version)
            if reply.error_code in _MOVED:
                raise ApiError(ErrorCode(reply.error_code))
        except (OSError, ApiError) as error:
            self._failed(keys, error)
            return FetchResponse()
        finally:
            notice.cancel()
        self._answered(keys)
        check(reply.error_code, f"fetch from node {node_id}")
        return reply

    def _answered(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            self._failing_since_s.pop(key, None)
            self._reported.discard(key)

    def _failed(self, keys: Sequence[TopicPartition], error: OSError | ApiError) -> None:
        """Mark the partitions for a metadata refresh.

        Raises the error once one of them has had no answer for `leader_timeout_ms`.
        """
        if not may_pass(error):
            raise error
        now_s = asyncio.get_running_loop().time()
        since_s = min(self._failing_since_s.setdefault(key, now_s) for key in keys)
        self._stale.update(keys)
        if (now_s - since_s) * 1000.0 > self._leader_timeout_ms:
            raise error

    def _report_waiting(self) -> None:
        """Report the partitions whose leaders have not answered for NOTICE_MS."""
        before_s = asyncio.get_running_loop().time() - NOTICE_MS / 1000.0
        by_node: dict[int, list[TopicPartition]] = defaultdict(list)
        for key, since_s in self._failing_since_s.items():
            if since_s <= before_s:
                leader = self._client.cache.leaders.get(key)
                by_node[-1 if leader is None else leader.node_id].append(key)
        for keys in by_node.values():
            self._report(keys)

    def _report(self, keys: Sequence[TopicPartition]) -> None:
        new = [key for key in keys if key not in self._reported]
        if not new or self._on_waiting is None:
            return
        self._reported.update(new)
        leader = self._client.cache.leaders.get(new[0])
        self._on_waiting(new, -1 if leader is None else leader.node_id)

    async def _find_leaders(self, deadline: Deadline) -> None:
        """Refresh the leaders of stale partitions, at most once per retry backoff.

        While other partitions can be fetched, the backoff passes without a wait.
        """
        leaders = self._client.cache.leaders
        unknown = {key for key in self.positions if key not in leaders}
        if not unknown and not self._stale:
            return
        loop = asyncio.get_running_loop()
        wait_s = self._refreshed_s + RETRY_WAIT_MS / 1000.0 - loop.time()
        if wait_s > 0:
            if any(key not in self._stale and key not in unknown for key in self.positions):
                return
            await asyncio.sleep(wait_s)
        self._refreshed_s = loop.time()
        for name in sorted({name for name, _ in unknown | self._stale}):
            await self._client.topic(name, deadline.left_ms)
        self._stale.clear()

    async def _find_starts(self, deadline: Deadline) -> None:
        """Replace EARLIEST and LATEST by offsets where a leader answers."""
        unknown = [key for key, at in self.positions.items() if at in (EARLIEST, LATEST)]
        for key in sorted(unknown, key=self._failing_since_s.__contains__):
            position = self.positions[key]
            if key in self._stale or not self._client.cache.is_led(key):
                continue
            limit_ms = min(START_TIMEOUT_MS, deadline.left_ms)
            try:
                found = await offsets_at(self._client, [key], position, timeout_ms=limit_ms)
            except (ApiError, OSError) as error:
                # Other partitions may be fetched before the next one is tried.
                self._failed([key], error)
                return
            self._answered([key])
            self.positions[key] = found[key]

    def _request(self, keys: Sequence[TopicPartition], wait_ms: int) -> FetchRequest:
        cache = self._client.cache
        topics: dict[str, list[FetchRequest.FetchPartition]] = defaultdict(list)
        for name, index in keys:
            # A rebootstrap may have emptied the cache since the leaders were grouped.
            leader = cache.leaders.get((name, index))
            topics[name].append(
                FetchRequest.FetchPartition(
                    partition=index,
                    current_leader_epoch=-1 if leader is None else leader.epoch,
                    fetch_offset=self.positions[name, index],
                    partition_max_bytes=PARTITION_BYTES,
                )
            )
        return FetchRequest(
            max_wait_ms=wait_ms,
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

    def _each(
        self, reply: FetchResponse, keys: Sequence[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, FetchResponse.PartitionData]]:
        """Yield the partitions of a response, with topic names."""
        topic_ids = self._client.cache.topic_ids
        names = {topic_ids[name]: name for name, _ in keys if name in topic_ids}
        for topic in reply.responses:
            name = topic.topic or names.get(topic.topic_id)
            if name is not None:
                for data in topic.partitions:
                    yield (name, data.partition_index), data

    async def _take(
        self, key: TopicPartition, data: FetchResponse.PartitionData, reply: FetchResponse
    ) -> tuple[list[Received], int]:
        """Return the new records of a partition, and the position after them. Raises Refused."""
        if data.error_code in _MOVED:
            if not self._client.take_hint(key, data.current_leader, reply.node_endpoints):
                self._stale.add(key)
            return [], self.positions[key]
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return [], await self._nearest(key)
        check(data.error_code, f"{key[0]}-{key[1]}")
        buffer = data.records or b""
        assert not isinstance(buffer, list), "a received record set is one buffer"
        aborted = [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()]
        return visible_records(key, buffer, self.positions[key], aborted)

    async def _nearest(self, key: TopicPartition) -> int:
        """Return the nearest position within the log; report the reset."""
        low = (await offsets_at(self._client, [key], EARLIEST))[key]
        high = (await offsets_at(self._client, [key], LATEST))[key]
        offset = self.positions[key]
        position = min(max(offset, low), max(low, high))
        if position != offset and self._on_reset is not None:
            self._on_reset(PositionReset(*key, offset, low, high, position))
        return position
