"""Shell: connections to the brokers of a cluster, and requests to whom they concern.

A request goes to any broker, to one by its id, to the leader of a partition or to the coordinator
of a group; where it is tried again, `retries.py` has the rule. There are no transactions, and no
batching: callers bring whole batches. A `produce` that is tried again after a lost connection may
be written twice; `producer.py` has one whose retries write nothing twice.

A refusal that names a newer leader (KIP-951) is followed at once, without asking for metadata; one
that names nobody newer is met with a pause and fresh metadata.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Self, TypeVar

from client.addresses import Address, parse_addresses
from client.errors import LeaderMoved, Refused, check, error_codes
from client.leaders import Leader, LeaderCache, TopicPartition
from client.retries import may_pass, retrying
from protocol.errors import ApiError, ErrorCode
from protocol.ids import ZERO_UUID
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.schema import Buffer, Request, Response
from protocol.transport.client import DEFAULT_TIMEOUT_MS, Connection, ConnectionLost

R = TypeVar("R", bound=Response)
T = TypeVar("T")

REQUEST_TIMEOUT_MS = 10_000.0
CONNECT_TIMEOUT_MS = 5_000.0

EARLIEST = -2
LATEST = -1
"""Timestamps that stand for the first offset of a log, and for the one that comes next."""

_MOVING = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class Fetched(NamedTuple):
    """What a fetch of one partition brought.

    `records` are whole record batches, the last of which may be cut off; the first may begin below
    the offset that was asked for. `aborted` are the aborted transactions among them, as producer id
    and first offset.
    """

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
    """The answer of ListOffsets. Offset -1: no record is that young; the timestamp is in ms."""

    offset: int
    timestamp: int
    leader_epoch: int


class ClusterClient:
    """Connections to the brokers of one cluster. Make it with `connect`, end it with `close`, or
    with the end of an `async with` block.

    Every `timeout_ms` is the time for the whole call, retries included. `cache` is what the client
    knows of brokers and leaders; it grows with every answer that tells of them.
    """

    def __init__(self, bootstrap: Sequence[Address], client_id: str | None) -> None:
        self.cache = LeaderCache()
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._connections: dict[Address, asyncio.Task[Connection]] = {}
        self._failures: dict[Address, float] = {}
        self._told: dict[Address, int] = {}
        """Who answered Metadata, by the turn in which it last did."""
        self._turns = itertools.count(1)
        self._coordinators: dict[str, int] = {}
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def connect(
        cls,
        bootstrap: str | Sequence[Address],
        client_id: str | None = "kraftbox",
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
    ) -> ClusterClient:
        """Connect to the first node that answers and learn the brokers.

        Args:
            bootstrap: `host:port,...` or pairs of host and port.
            client_id: what the cluster's logs, metrics and quotas call this client.

        Raises OSError when no node answers in time, BadAddress.
        """
        if isinstance(bootstrap, str):
            bootstrap = parse_addresses(bootstrap)
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

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
        leads, for as long as somebody asks it. `create` lets the brokers create topics that are not
        there (auto.create.topics.enable).

        Raises OSError when no broker answers in time.
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
        answer_ms: float = REQUEST_TIMEOUT_MS,
    ) -> R:
        """Send a request to any broker that can be reached; its errors are the caller's to read.

        `version` where the request has the shape of one; otherwise the highest both sides know.
        `answer_ms`: how long one broker may take before another is asked.
        Raises OSError when no broker answers in time, ApiError(UNSUPPORTED_VERSION), EncodeError,
        ProtocolError.
        """
        return await self._request_some(message, timeout_ms, version, None, answer_ms)

    async def _request_some(
        self,
        message: Request[R],
        timeout_ms: float,
        version: int | None,
        doubting: int | None,
        answer_ms: float = REQUEST_TIMEOUT_MS,
    ) -> R:
        async def attempt(left_ms: float) -> R:
            failure: Exception | None = None
            for address in self._addresses(doubting):
                try:
                    answer = await self._request(address, message, left_ms, version, answer_ms)
                    if isinstance(message, MetadataRequest):
                        self._told[address] = next(self._turns)
                    return answer
                except OSError as error:
                    self._failures[address] = self._loop.time()
                    failure = error
            raise failure if failure is not None else ConnectionLost("no bootstrap address")

        return await retrying(timeout_ms, attempt)

    async def request_broker(
        self,
        node_id: int,
        message: Request[R],
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        *,
        version: int | None = None,
    ) -> R:
        """Send a request to one broker, once; its errors are the caller's to read.

        Raises OSError, ApiError(BROKER_NOT_AVAILABLE) for a broker that is not in the cache, and as
        `request_any`.
        """
        address = self.cache.brokers.get(node_id)
        if address is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {node_id} is not known")
        return await self._request(address, message, timeout_ms, version)

    async def find_broker(self, node_id: int, timeout_ms: float = DEFAULT_TIMEOUT_MS) -> None:
        """Ask for the brokers if this one is not in the cache. Raises OSError."""
        if node_id not in self.cache.brokers:
            await self.metadata([], timeout_ms)

    async def topic(
        self,
        name: str,
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        *,
        create: bool = False,
        is_new: bool = False,
    ) -> MetadataResponse.MetadataResponseTopic:
        """A topic with a leader for every partition, which are waited for.

        A topic that the broker does not know is waited for if it `is_new`, made a moment ago, or if
        the brokers may `create` it. Raises Refused, OSError.
        """

        def again(error: Exception) -> bool:
            if not isinstance(error, ApiError):
                return may_pass(error)
            absent = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return error.code is ErrorCode.LEADER_NOT_AVAILABLE or (absent and (create or is_new))

        async def attempt(left_ms: float) -> MetadataResponse.MetadataResponseTopic:
            found = (await self.metadata([name], left_ms, create=create)).topics[0]
            leaderless = (one.error_code for one in found.partitions if one.leader_id < 0)
            check(found.error_code or next(leaderless, 0), f"topic {name}")
            return found

        return await retrying(timeout_ms, attempt, again)

    # --- coordinators --------------------------------------------------------------------------

    async def coordinator(self, group: str, timeout_ms: float = DEFAULT_TIMEOUT_MS) -> int:
        """The id of the broker that coordinates a group; waits while the offsets topic is created.

        Raises Refused, OSError.
        """

        async def attempt(left_ms: float) -> int:
            request = FindCoordinatorRequest(coordinator_keys=[group])
            found = (await self.request_any(request, left_ms)).coordinators[0]
            check(found.error_code, f"group {group}", found.error_message)
            return found.node_id

        return await retrying(timeout_ms, attempt)

    async def request_coordinator(
        self,
        group: str,
        message: Request[R],
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        *,
        version: int | None = None,
    ) -> R:
        """Send a request to the coordinator of a group, and again while that moves or loads.

        Its other errors are the caller's to read. Raises Refused, OSError, ApiError as
        `request_any`.
        """

        async def attempt(left_ms: float) -> R:
            # Known only after an answer that did not say that it has moved.
            node_id = self._coordinators.pop(group, None)
            if node_id is None:
                node_id = await self.coordinator(group, left_ms)
            await self.find_broker(node_id, left_ms)
            answer = await self.request_broker(node_id, message, left_ms, version=version)
            for code in _MOVING & set(error_codes(answer)):
                raise Refused(group, code)
            self._coordinators[group] = node_id
            return answer

        return await retrying(timeout_ms, attempt)

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

        return await retrying(timeout_ms, self._on_leader(topic, partition, attempt))

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

        return await retrying(timeout_ms, self._on_leader(topic, partition, attempt))

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

        return await retrying(timeout_ms, self._on_leader(topic, partition, attempt))

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
        self,
        address: Address,
        message: Request[R],
        left_ms: float,
        version: int | None,
        answer_ms: float = REQUEST_TIMEOUT_MS,
    ) -> R:
        connection = await self._connection(address, left_ms)
        return await connection.request(message, min(left_ms, answer_ms), version)

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

    def take_hint(
        self,
        partition: TopicPartition,
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
