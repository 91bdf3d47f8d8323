"""Shell: Connections to the brokers of a cluster, with routing and retries of requests.

A request goes to any broker, to one by its ID, to the leader of a partition or to the coordinator
of a group. `retries.py` has the rule of retries. There are no transactions and there is no
batching: callers pass whole batches. A `produce` that is retried after a lost connection may write
its batch twice; the producer in `producer.py` does not.

After an error that names a newer leader (KIP-951), the request goes there at once, without a
Metadata request. After other retriable errors, the client waits and refreshes its metadata.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Self, TypeVar

from client.addresses import Address, parse_addresses
from client.connections import ConnectionPool, opened
from client.errors import LeaderMoved, Refused, check, error_codes
from client.leaders import Leader, LeaderCache, TopicPartition
from client.retries import Deadline, may_pass, retrying
from protocol.errors import ApiError, ErrorCode
from protocol.ids import ZERO_UUID
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import ProduceRequest, ProduceResponse
from protocol.schema import Buffer, Request, Response
from protocol.transport.client import DEFAULT_TIMEOUT_MS, Connection, ConnectionLost
from protocol.transport.node_identity import NO_NODE, NodeIdentity

R = TypeVar("R", bound=Response)
T = TypeVar("T")

REQUEST_TIMEOUT_MS = 10_000.0

EARLIEST = -2
LATEST = -1
"""Special timestamps: the first offset of a log, and its end offset."""

_MOVING = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class Rebootstrapped(ConnectionLost):
    """A node of another cluster answered; the client begins again with its bootstrap addresses."""


class Fetched(NamedTuple):
    """The result of a fetch from one partition.

    `records` are record batches. The last one may be incomplete, and the first one may begin below
    the requested offset. `aborted` are the aborted transactions among them, as (producer ID, first
    offset).
    """

    records: Buffer
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[tuple[int, int]]


class Produced(NamedTuple):
    """The position of an appended batch; -1 for values that acks=0 does not return."""

    base_offset: int
    log_append_time_ms: int
    log_start_offset: int


class FoundOffset(NamedTuple):
    """The result of ListOffsets; `timestamp` is in ms.

    Offset -1: no record has such a timestamp.
    """

    offset: int
    timestamp: int
    leader_epoch: int


class ClusterClient:
    """Connections to the brokers of one cluster.

    Create it with `connect` and close it with `close` or an `async with` block. Every `timeout_ms`
    is the time for the whole call, including retries. `cache` has the known brokers and leaders;
    every response with metadata updates it.
    """

    def __init__(
        self, bootstrap: Sequence[Address], client_id: str | None, *, check_cluster: bool = True
    ) -> None:
        self.cache = LeaderCache()
        self._bootstrap = list(bootstrap)
        self._check_cluster = check_cluster
        self._connections = ConnectionPool(client_id)
        self._failures: dict[Address, float] = {}
        self._answer_order: dict[Address, int] = {}
        """The sequence number of each node's last Metadata response."""
        self._turns = itertools.count(1)
        self._coordinators: dict[str, int] = {}
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def connect(
        cls,
        bootstrap: str | Sequence[Address],
        client_id: str | None = "kraftbox",
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        *,
        check_cluster: bool = True,
    ) -> ClusterClient:
        """Connect to the first node that answers and learn the brokers.

        Args:
            bootstrap: `host:port,...` or pairs of host and port.
            client_id: the name of this client in the cluster's logs, metrics and quotas.
            check_cluster: as `metadata.cluster.check.enable` of Kafka's clients (KIP-1242): a
                connection to a known broker names the cluster and the broker. If another cluster
                has taken over the address, the client closes its connections, discards its cache
                and begins again with `bootstrap`.

        Raises OSError if no node answers in time, BadAddress.
        """
        if isinstance(bootstrap, str):
            bootstrap = parse_addresses(bootstrap)
        client = cls(bootstrap, client_id, check_cluster=check_cluster)
        try:
            await client.metadata([], timeout_ms)
        except BaseException:
            await client.close()
            raise
        return client

    async def close(self) -> None:
        """Close all connections, including those being opened. Later calls raise ClientClosed."""
        await self._connections.close()

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
        """Request the metadata of these topics (None: all) and update the cache.

        Errors of single topics are left in the response. `doubting` is a broker that failed to act
        as the leader (-1: no leader was known). It is tried last, and the others in the order of
        their last responses, oldest first. A broker that is cut off only from the controllers keeps
        reporting itself as leader, so other brokers must be tried too. `create` allows the
        brokers to create missing topics (auto.create.topics.enable).

        Raises OSError if no broker answers in time.
        """
        entries = None
        if topics is not None:
            entries = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=entries, allow_auto_topic_creation=create)
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
        """Send a request to any reachable broker; the caller handles error codes in the response.

        `version` is needed if the request has the fields of one version; the default is the highest
        common one. `answer_ms` is how long one broker may take before another is tried. Raises
        OSError if no broker answers in time, ApiError(UNSUPPORTED_VERSION), EncodeError,
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
            deadline = Deadline(left_ms)
            for address in self._addresses(doubting):
                try:
                    answer = await self._request(
                        address, message, deadline.left_ms, version, answer_ms
                    )
                    if isinstance(message, MetadataRequest):
                        self._answer_order[address] = next(self._turns)
                    return answer
                except Rebootstrapped:
                    raise
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
        answer_ms: float = REQUEST_TIMEOUT_MS,
    ) -> R:
        """Send a request to one broker, once; the caller handles error codes in the response.

        Raises OSError, ApiError(BROKER_NOT_AVAILABLE) for a broker that is not in the cache, and
        the errors of `request_any`.
        """
        address = self.cache.brokers.get(node_id)
        if address is None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"unknown broker {node_id}")
        return await self._request(address, message, timeout_ms, version, answer_ms)

    async def find_broker(self, node_id: int, timeout_ms: float = DEFAULT_TIMEOUT_MS) -> None:
        """Refresh the metadata if this broker is not in the cache. Raises OSError."""
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
        """Return a topic, also if some of its partitions have no leader.

        `create` lets the brokers create an unknown topic and waits until it is known; `is_new`
        waits until a topic just created has all its leaders. Raises Refused, OSError.
        """

        def again(error: Exception) -> bool:
            if not isinstance(error, ApiError):
                return may_pass(error)
            absent = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return error.code is ErrorCode.LEADER_NOT_AVAILABLE or (absent and (create or is_new))

        async def attempt(left_ms: float) -> MetadataResponse.MetadataResponseTopic:
            found = (await self.metadata([name], left_ms, create=create)).topics[0]
            leaderless = (one.error_code for one in found.partitions if one.leader_id < 0)
            check(found.error_code or (next(leaderless, 0) if is_new else 0), f"topic {name}")
            return found

        return await retrying(timeout_ms, attempt, again)

    # --- coordinators --------------------------------------------------------------------------

    async def coordinator(self, group: str, timeout_ms: float = DEFAULT_TIMEOUT_MS) -> int:
        """Return the coordinator's broker ID; wait while the cluster creates the offsets topic.

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
        answer_ms: float = REQUEST_TIMEOUT_MS,
    ) -> R:
        """Send a request to the coordinator of a group; retry while the coordinator moves or loads.

        `answer_ms` is how long the coordinator may take for one attempt.

        The caller handles other error codes. Raises Refused, OSError, ApiError as `request_any`
        does.
        """

        async def attempt(left_ms: float) -> R:
            deadline = Deadline(left_ms)
            # Cached again only after a response without an error about the coordinator.
            node_id = self._coordinators.pop(group, None)
            if node_id is None:
                node_id = await self.coordinator(group, deadline.left_ms)
            await self.find_broker(node_id, deadline.left_ms)
            answer = await self.request_broker(
                node_id, message, deadline.left_ms, version=version, answer_ms=answer_ms
            )
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
        """Append one batch (`protocol.batch.build_batch`) and return its position.

        Raises ApiError for an error that is not retriable, or the last error at the timeout.
        """

        async def attempt(left_ms: float) -> Produced:
            deadline = Deadline(left_ms)
            connection = await self.leader(topic, partition, left_ms)
            request, version = self.produce_request(
                connection, topic, partition, batch, acks, deadline.left_ms, transactional_id
            )
            if acks == 0:
                connection.send_unanswered(request, version)
                return Produced(-1, -1, -1)
            answer = await connection.request(request, deadline.left_ms, version)
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
        """Return a request with one batch, and its version on this connection."""
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
        """Return the result in the response to `produce_request`; apply its leader hint (KIP-951).

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
            deadline = Deadline(left_ms)
            connection = await self.leader(topic, partition, left_ms)
            leader = self.cache.leaders.get((topic, partition))
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
                                current_leader_epoch=-1 if leader is None else leader.epoch,
                                fetch_offset=offset,
                                partition_max_bytes=max_bytes,
                            )
                        ],
                    )
                ],
            )
            answer = await connection.request(request, deadline.left_ms + max_wait_ms, version)
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
        """Return the offset for a timestamp or a special one (EARLIEST, LATEST, ...)."""

        async def attempt(left_ms: float) -> FoundOffset:
            deadline = Deadline(left_ms)
            connection = await self.leader(topic, partition, left_ms)
            request = ListOffsetsRequest(
                replica_id=-1,
                isolation_level=int(read_committed),
                timeout_ms=max(1, int(deadline.left_ms)),
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
            answer = await connection.request(request, deadline.left_ms)
            one = answer.topics[0].partitions[0]
            _raise_for(one.error_code)
            return FoundOffset(one.offset, one.timestamp, one.leader_epoch)

        return await retrying(timeout_ms, self._on_leader(topic, partition, attempt))

    # --- internal ------------------------------------------------------------------------------

    def _addresses(self, doubting: int | None) -> list[Address]:
        """Return the addresses to try: live connections, known brokers, then the bootstrap list.

        Addresses that failed come last, the oldest failure first, so that a hanging node is not
        tried first every time. For `doubting` see `metadata`.
        """
        known = dict.fromkeys(
            [*self._connections.live(), *self.cache.brokers.values(), *self._bootstrap]
        )
        doubted = None if doubting is None else self.cache.brokers.get(doubting)

        def key(address: Address) -> tuple[float, bool, int]:
            turn = 0 if doubting is None else self._answer_order.get(address, 0)
            return self._failures.get(address, 0.0), address == doubted, turn

        return sorted(known, key=key)

    async def _connection(self, address: Address, timeout_ms: float) -> Connection:
        """Return the connection to an address; callers share a connection that is being opened."""
        connecting = self._connections.begin(address, self._expected(address))
        try:
            return await opened(connecting, timeout_ms)
        except ApiError as error:
            if error.code is not ErrorCode.REBOOTSTRAP_REQUIRED:
                raise
            if self._connections.has(connecting):
                self._rebootstrap()
            raise Rebootstrapped(
                f"{address[0]}:{address[1]} belongs to another cluster or broker now"
            ) from None

    def _expected(self, address: Address) -> NodeIdentity | None:
        """Return the broker that is known at an address; None if none is, or without the check."""
        cluster_id = self.cache.cluster_id
        if not self._check_cluster or cluster_id is None:
            return None
        at_address = (node_id for node_id, known in self.cache.brokers.items() if known == address)
        node_id = next(at_address, NO_NODE)
        return None if node_id < 0 else NodeIdentity(cluster_id, node_id)

    def _rebootstrap(self) -> None:
        """Discard all that is known of the cluster; the bootstrap addresses remain (KIP-899)."""
        self._connections.discard()
        self.cache = LeaderCache()
        self._coordinators.clear()
        self._failures.clear()
        self._answer_order.clear()

    async def _request(
        self,
        address: Address,
        message: Request[R],
        left_ms: float,
        version: int | None,
        answer_ms: float = REQUEST_TIMEOUT_MS,
    ) -> R:
        deadline = Deadline(left_ms)
        connection = await self._connection(address, left_ms)
        return await connection.request(message, min(deadline.left_ms, answer_ms), version)

    async def leader(self, topic: str, partition: int, left_ms: float) -> Connection:
        """Return a connection to the partition's leader.

        Raises ApiError (retriable) without a leader.
        """
        leader = self.cache.leaders.get((topic, partition))
        address = self.cache.brokers.get(leader.node_id) if leader is not None else None
        if address is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return await self._connection(address, left_ms)

    def _on_leader(
        self, topic: str, partition: int, attempt: Callable[[float], Awaitable[T]]
    ) -> Callable[[float], Awaitable[T]]:
        """Wrap `attempt` with metadata refreshes.

        It refreshes before the first attempt without a known leader, and after each failure that
        did not name a newer leader.
        """
        stale = (topic, partition) not in self.cache.leaders
        doubting: int | None = None

        async def run(left_ms: float) -> T:
            nonlocal stale, doubting
            deadline = Deadline(left_ms)
            if stale:
                answer = await self.metadata([topic], left_ms, doubting=doubting)
                for one in answer.topics:
                    _raise_for(one.error_code)
            stale = True
            leader = self.cache.leaders.get((topic, partition))
            doubting = -1 if leader is None else leader.node_id
            try:
                return await attempt(deadline.left_ms)
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
        """Apply a response's leader hint; return True if it is newer than the known leader."""
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
