"""Shell: connections to the brokers of a cluster, its leaders, and requests to whom they concern.

It knows brokers and leaders from Metadata, sends each request to the leader it concerns, and tries
again after retriable errors until the caller's time is over. It has no groups, no transactions, no
batching: callers bring whole batches. A `produce` that is tried again after a lost connection may
be written twice; `producer.py` has one whose retries write nothing twice.

Leaders are cached with their epoch. A newer answer is one with a higher epoch, not one that arrived
later: brokers learn of elections at different times, and following an older answer would send the
client back to a deposed leader (KIP-320). Only another topic id starts the count again.

A refusal that names a newer leader (KIP-951) is followed at once, without asking for metadata; one
that names nobody newer is met with a pause and fresh metadata. Where a hint said a leader can be
reached is kept when metadata that does not know that node yet comes in.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from protocol.errors import ApiError, ErrorCode
from protocol.ids import ZERO_UUID
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.schema import Buffer, Request, Response
from protocol.transport.client import DEFAULT_TIMEOUT_MS, Connection, ConnectionLost

R = TypeVar("R", bound=Response)
T = TypeVar("T")
Address: TypeAlias = tuple[str, int]
Partition: TypeAlias = tuple[str, int]

RETRY_WAIT_MS = 50.0
REQUEST_TIMEOUT_MS = 10_000.0
CONNECT_TIMEOUT_MS = 5_000.0

EARLIEST = -2
LATEST = -1


class LeaderMoved(ApiError):
    """A refusal that named a newer leader: to be tried there at once."""


class Leader(NamedTuple):
    """Who leads a partition, as far as this client knows; -1 is nobody."""

    node_id: int
    epoch: int


class Fetched(NamedTuple):
    """What a fetch of one partition brought; `records` may end in a cut batch."""

    records: Buffer
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[tuple[int, int]]


class Produced(NamedTuple):
    """Where a batch went; -1 for what acks=0 does not tell."""

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


class FoundOffset(NamedTuple):
    """The answer of ListOffsets; offset -1: no record has such a timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


class LeaderCache:
    """Brokers, topic ids and leaders, from Metadata and from hints in other responses."""

    def __init__(self) -> None:
        self.brokers: dict[int, Address] = {}
        self.leaders: dict[Partition, Leader] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.cluster_id: str | None = None

    def learn(self, answer: MetadataResponse) -> None:
        """Take over an answer to Metadata."""
        self.cluster_id = answer.cluster_id
        known = self.brokers
        self.brokers = {one.node_id: (one.host, one.port) for one in answer.brokers}
        for topic in answer.topics:
            if topic.error_code or topic.name is None:
                continue
            if self.topic_ids.get(topic.name, topic.topic_id) != topic.topic_id:
                self.forget(topic.name)
            if topic.topic_id != ZERO_UUID:
                self.topic_ids[topic.name] = topic.topic_id
            for one in topic.partitions:
                self.advance(
                    (topic.name, one.partition_index), Leader(one.leader_id, one.leader_epoch)
                )
        # The answer may be staler than a hint: who leads by what we know stays reachable.
        for leader in self.leaders.values():
            if leader.node_id not in self.brokers and leader.node_id in known:
                self.brokers[leader.node_id] = known[leader.node_id]

    def advance(self, partition: Partition, leader: Leader) -> bool:
        """Take a leader if its epoch is newer than the known one (or there are no epochs)."""
        known = self.leaders.get(partition)
        if known is not None and leader.epoch >= 0 and leader.epoch <= known.epoch:
            return False
        self.leaders[partition] = leader
        return True

    def hint(self, partition: Partition, leader: Leader, address: Address | None) -> bool:
        """A leader that another response named (KIP-951); True if it is newer than the known one
        and can be reached. `address` replaces what was known of that node."""
        if address is None:
            address = self.brokers.get(leader.node_id)
        if leader.epoch < 0 or address is None or not self.advance(partition, leader):
            return False
        self.brokers[leader.node_id] = address
        return True

    def forget(self, topic: str) -> None:
        """The topic was deleted or made anew."""
        self.topic_ids.pop(topic, None)
        for partition in [one for one in self.leaders if one[0] == topic]:
            del self.leaders[partition]


class ClusterClient:
    """Connections to the brokers of one cluster. Make it with `connect`, end it with `close`."""

    def __init__(self, bootstrap: Sequence[Address], client_id: str | None) -> None:
        self.cache = LeaderCache()
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._connections: dict[Address, asyncio.Task[Connection]] = {}
        self._failures: dict[Address, float] = {}
        self._told: dict[Address, int] = {}
        """Who answered Metadata, by the turn in which it last did."""
        self._turns = itertools.count(1)
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def connect(
        cls,
        bootstrap: Sequence[Address],
        client_id: str | None = "kraftbox",
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
    ) -> ClusterClient:
        """Connect to the first node that answers and learn the brokers.

        Raises ConnectionLost when none does in time.
        """
        client = cls(bootstrap, client_id)
        try:
            await client.metadata([], timeout_ms)
        except BaseException:
            await client.close()
            raise
        return client

    async def close(self) -> None:
        """Close all connections."""
        tasks = list(self._connections.values())
        self._connections.clear()
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Connection):
                await result.close()

    # --- any broker ----------------------------------------------------------------------------

    async def metadata(
        self,
        topics: Iterable[str] | None = None,
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        *,
        create: bool = False,
        doubting: int | None = None,
    ) -> MetadataResponse:
        """Ask for these topics (None: all) and keep what the answer says about leaders.

        Errors of single topics are left in the answer. `doubting` is a broker that did not do what
        a leader does (-1: nobody led): it is asked last, and of the others who was asked longest
        ago is first. A broker that is cut off from the controllers alone goes on saying that it
        leads, for as long as somebody asks it.
        """
        asked = None
        if topics is not None:
            asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=create)
        answer = await self._request_some(request, timeout_ms, None, doubting)
        self.cache.learn(answer)
        return answer

    async def request_any(
        self,
        message: Request[R],
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        *,
        version: int | None = None,
    ) -> R:
        """Send a request to any broker that can be reached; its errors are the caller's to read.

        `version` where the request has the shape of one; otherwise the highest both sides know.
        """
        return await self._request_some(message, timeout_ms, version, None)

    async def _request_some(
        self, message: Request[R], timeout_ms: float, version: int | None, doubting: int | None
    ) -> R:
        async def attempt(left_ms: float) -> R:
            failure: Exception | None = None
            for address in self._addresses(doubting):
                try:
                    answer = await self._request(address, message, left_ms, version)
                    if isinstance(message, MetadataRequest):
                        self._told[address] = next(self._turns)
                    return answer
                except OSError as error:
                    self._failures[address] = self._loop.time()
                    failure = error
            raise failure if failure is not None else ConnectionLost("no bootstrap address")

        return await self._until(timeout_ms, attempt)

    async def request_broker(
        self,
        node_id: int,
        message: Request[R],
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        *,
        version: int | None = None,
    ) -> R:
        """Send a request to one broker, once. Raises ConnectionLost, other OSError, ApiError."""
        address = self.cache.brokers.get(node_id)
        if address is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not known")
        return await self._request(address, message, timeout_ms, version)

    # --- leaders -------------------------------------------------------------------------------

    async def produce(
        self,
        topic: str,
        partition: int,
        batch: Buffer,
        *,
        acks: int = -1,
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        transactional_id: str | None = None,
    ) -> Produced:
        """Append one batch (`protocol.batch.build_batch`) and return where it went.

        Raises ApiError for an error that is not retriable, or the last one when time is over.
        """

        async def attempt(left_ms: float) -> Produced:
            connection = await self.leader(topic, partition, left_ms)
            request, version = self.produce_request(
                connection, topic, partition, batch, acks, left_ms, transactional_id
            )
            if acks == 0:
                connection.send_unanswered(request, version)
                return Produced(-1, -1, -1)
            answer = await connection.request(request, left_ms, version)
            return self.produced(topic, partition, answer)

        return await self._until(timeout_ms, self._on_leader(topic, partition, attempt))

    def produce_request(
        self,
        connection: Connection,
        topic: str,
        partition: int,
        batch: Buffer,
        acks: int,
        wait_ms: float,
        transactional_id: str | None = None,
    ) -> tuple[ProduceRequest, int]:
        """A request with one batch, and the version to send it in on this connection."""
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=max(1, int(wait_ms)),
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=topic,
                    topic_id=self.cache.topic_ids.get(topic, ZERO_UUID),
                    partition_data=[
                        ProduceRequest.PartitionProduceData(index=partition, records=batch)
                    ],
                )
            ],
        )
        version = connection.version_for(ProduceRequest)
        if version >= 13 and topic not in self.cache.topic_ids:
            version = 12
        return request, version

    def produced(self, topic: str, partition: int, answer: ProduceResponse) -> Produced:
        """What the answer to `produce_request` says; takes its hint about the leader (KIP-951).

        Raises ApiError.
        """
        one = answer.responses[0].partition_responses[0]
        moved = self.take_hint((topic, partition), one.current_leader, answer.node_endpoints)
        _raise_for(one.error_code, one.error_message, moved=moved)
        return Produced(one.base_offset, one.log_append_time_ms, one.log_start_offset)

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        read_committed: bool = False,
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
    ) -> Fetched:
        """Read from `offset` on. Raises ApiError as `produce` does."""

        async def attempt(left_ms: float) -> Fetched:
            connection = await self.leader(topic, partition, left_ms)
            version = connection.version_for(FetchRequest)
            if version >= 13 and topic not in self.cache.topic_ids:
                version = 12
            request = FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                isolation_level=int(read_committed),
                topics=[
                    FetchRequest.FetchTopic(
                        topic=topic,
                        topic_id=self.cache.topic_ids.get(topic, ZERO_UUID),
                        partitions=[
                            FetchRequest.FetchPartition(
                                partition=partition,
                                current_leader_epoch=self.cache.leaders[topic, partition].epoch,
                                fetch_offset=offset,
                                partition_max_bytes=max_bytes,
                            )
                        ],
                    )
                ],
            )
            answer = await connection.request(request, left_ms + max_wait_ms, version)
            _raise_for(answer.error_code)
            one = answer.responses[0].partitions[0]
            moved = self.take_hint((topic, partition), one.current_leader, answer.node_endpoints)
            _raise_for(one.error_code, moved=moved)
            return _fetched(one)

        return await self._until(timeout_ms, self._on_leader(topic, partition, attempt))

    async def list_offset(
        self,
        topic: str,
        partition: int,
        timestamp: int = LATEST,
        *,
        read_committed: bool = False,
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
    ) -> FoundOffset:
        """The offset for a timestamp or a special one (EARLIEST, LATEST, ...)."""

        async def attempt(left_ms: float) -> FoundOffset:
            connection = await self.leader(topic, partition, left_ms)
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(read_committed),
                timeout_ms=max(1, int(left_ms)),
                topics=[
                    ListOffsetsRequest.ListOffsetsTopic(
                        name=topic,
                        partitions=[
                            ListOffsetsRequest.ListOffsetsPartition(
                                partition_index=partition, timestamp=timestamp
                            )
                        ],
                    )
                ],
            )
            answer = await connection.request(request, left_ms)
            one = answer.topics[0].partitions[0]
            _raise_for(one.error_code)
            return FoundOffset(one.offset, one.timestamp, one.leader_epoch)

        return await self._until(timeout_ms, self._on_leader(topic, partition, attempt))

    # --- inside --------------------------------------------------------------------------------

    def _addresses(self, doubting: int | None) -> list[Address]:
        """Live connections first, then known brokers, then the bootstrap list; those that failed
        last, the longest ago first: a node that hangs must not be asked first every time.
        `doubting`: see `metadata`."""
        live = [
            address
            for address, task in self._connections.items()
            if task.done() and not task.cancelled() and task.exception() is None
        ]
        known = dict.fromkeys([*live, *self.cache.brokers.values(), *self._bootstrap])
        doubted = None if doubting is None else self.cache.brokers.get(doubting)

        def key(address: Address) -> tuple[float, bool, int]:
            turn = 0 if doubting is None else self._told.get(address, 0)
            return self._failures.get(address, 0.0), address == doubted, turn

        return sorted(known, key=key)

    async def _connection(self, address: Address, timeout_ms: float) -> Connection:
        """The connection to an address; callers that come while it is made share it."""
        task = self._connections.get(address)
        if task is not None and task.done():
            failed = task.cancelled() or task.exception() is not None
            if failed or task.result().is_closed:
                task = None
        if task is None:
            task = self._loop.create_task(
                Connection.connect(*address, self._client_id, min(timeout_ms, CONNECT_TIMEOUT_MS))
            )
            self._connections[address] = task
        # One caller that gives up must not cancel the others' connection.
        return await asyncio.shield(task)

    async def _request(
        self, address: Address, message: Request[R], left_ms: float, version: int | None
    ) -> R:
        connection = await self._connection(address, left_ms)
        return await connection.request(message, min(left_ms, REQUEST_TIMEOUT_MS), version)

    async def leader(self, topic: str, partition: int, left_ms: float) -> Connection:
        """A connection to the partition's leader. Raises ApiError (retriable) without one."""
        leader = self.cache.leaders.get((topic, partition))
        address = self.cache.brokers.get(leader.node_id) if leader is not None else None
        if address is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return await self._connection(address, left_ms)

    def _on_leader(
        self, topic: str, partition: int, attempt: Callable[[float], Awaitable[T]]
    ) -> Callable[[float], Awaitable[T]]:
        """`attempt`, with fresh metadata before the first try and after each failed one that did
        not say who leads now."""
        stale = (topic, partition) not in self.cache.leaders
        doubting: int | None = None

        async def run(left_ms: float) -> T:
            nonlocal stale, doubting
            if stale:
                answer = await self.metadata([topic], left_ms, doubting=doubting)
                for one in answer.topics:
                    _raise_for(one.error_code)
            stale = True
            leader = self.cache.leaders.get((topic, partition))
            doubting = -1 if leader is None else leader.node_id
            try:
                return await attempt(left_ms)
            except LeaderMoved:
                stale = False
                raise

        return run

    async def _until(self, timeout_ms: float, attempt: Callable[[float], Awaitable[T]]) -> T:
        """Repeat `attempt` after retriable failures; the last one is raised when time is over.

        Every LeaderMoved has a higher epoch than the one before, so trying at once has an end.
        """
        deadline_s = self._loop.time() + timeout_ms / 1000.0
        while True:
            left_ms = (deadline_s - self._loop.time()) * 1000.0
            try:
                return await attempt(max(left_ms, 1.0))
            except LeaderMoved:
                if self._loop.time() >= deadline_s:
                    raise
                continue
            except (ApiError, OSError) as error:
                if isinstance(error, ApiError) and not error.code.retriable:
                    raise
                if self._loop.time() + RETRY_WAIT_MS / 1000.0 >= deadline_s:
                    raise
            await asyncio.sleep(RETRY_WAIT_MS / 1000.0)

    def take_hint(
        self,
        partition: Partition,
        leader: ProduceResponse.LeaderIdAndEpoch | FetchResponse.LeaderIdAndEpoch,
        endpoints: Sequence[ProduceResponse.NodeEndpoint] | Sequence[FetchResponse.NodeEndpoint],
    ) -> bool:
        """Believe a response about who leads; True if that is news."""
        address = next(
            ((one.host, one.port) for one in endpoints if one.node_id == leader.leader_id), None
        )
        return self.cache.hint(partition, Leader(leader.leader_id, leader.leader_epoch), address)


def _fetched(one: FetchResponse.PartitionData) -> Fetched:
    records = one.records
    if isinstance(records, list):
        records = b"".join(records)
    return Fetched(
        records if records is not None else b"",
        one.high_watermark,
        one.last_stable_offset,
        one.log_start_offset,
        [(each.producer_id, each.first_offset) for each in one.aborted_transactions or ()],
    )


def _raise_for(error_code: int, message: str | None = None, *, moved: bool = False) -> None:
    if error_code:
        known = error_code in ErrorCode._value2member_map_
        code = ErrorCode(error_code) if known else ErrorCode.UNKNOWN_SERVER_ERROR
        error = LeaderMoved if moved else ApiError
        raise error(code, message if known else f"error {error_code}")
