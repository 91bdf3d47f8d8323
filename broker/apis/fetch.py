"""Fetch (key 1), versions 4-19: the last is only for brokers of this implementation.

Behaviour: reads each requested partition up to the reader's limit: for a follower the log end, for
a consumer the high watermark, or with read_committed the last stable offset. In all it returns at
least one whole batch. It answers at once when `min_bytes` are available, when any partition has an
error or a divergence, or when no partition is requested. Otherwise it waits for bytes, for an
interruption (leadership, deletion) or for `max_wait_ms`, and reads again. Data far behind the log
end is first brought into memory by a worker.

A follower that requests an offset below the local log start gets OFFSET_MOVED_TO_TIERED_STORAGE.
With it and with OFFSET_OUT_OF_RANGE the response contains the log start (KIP-405).

Versions: 5 log start, 7 sessions (KIP-227), 9 leader epochs (KIP-320), 10 zstd, 11 rack, 12
divergence instead of a separate OffsetForLeaderEpoch, 13 topic ids, 15 replica state with broker
epoch (KIP-903), 16 leaders (KIP-951), 17 directory ids, 18 the follower's high watermark
(KIP-1166), 19 the follower's local log (KIP-1303). Batches are sent as they are stored at every
version: like Kafka since 4.0, a broker converts no batch and does not check its codec. Clients that
request version 4 may well read zstd (aiokafka before 0.14).

Authorisation: a request that names a replica id must come from that replica. The id must be among
the partition's replicas and registered, otherwise the answer is NOT_LEADER_OR_FOLLOWER. Only
requests with the broker's current epoch move its state (B32).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from itertools import islice
from typing import Final, cast

from broker.apis.follower_fetch import FollowerFetch
from broker.apis.leader_hints import LeaderHints
from broker.apis.running_fetch import FetchShared, PartitionData, RunningFetch, Wanted, failure
from broker.context import BrokerContext
from broker.replication.replicas.replica_manager import ReplicaManager
from broker.replication.sessions.fetch_session import NO_REPLICA, PartitionKey
from protocol.api_keys import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.private_numbers import PRIVATE_VERSIONS
from protocol.transport.dispatch import Body, HandlerTable, Reply, RequestContext, is_body
from protocol.transport.long_requests import WEIGHT_MAX, encoded_in_slices
from protocol.transport.own_names import Own

MIN_VERSION: Final = 4
MAX_VERSION: Final = 18
OWN_MAX_VERSION: Final = PRIVATE_VERSIONS[ApiKey.FETCH]
TOPIC_IDS_SINCE: Final = 13
REPLICA_STATE_SINCE: Final = 15


LONG: Final = 1_000
"""A request with more partitions is processed in several event-loop iterations."""
STEPS_PER_PARTITION: Final = 2
"""Weight of a partition in a slice."""

_Refused = dict[str | bytes, dict[int, PartitionData]]


def register(table: HandlerTable, broker: BrokerContext) -> None:
    api = FetchApi(broker)
    table.register(
        ApiKey.FETCH,
        api.handle,
        min_version=MIN_VERSION,
        max_version=MAX_VERSION,
        own_max_version=OWN_MAX_VERSION,
        own=Own.BROKER,
    )
    table.entries[ApiKey.FETCH].count_apart(("FetchConsumer", "FetchFollower"), _is_follower)


class FetchApi:
    """The handler; a plain function per request, which may return a future."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._shared = FetchShared(
            broker=broker,
            hints=LeaderHints(broker.metadata, broker.settings),
            response_bytes_max=broker.static.fetch_bytes_max,
            rack_aware=broker.static.rack_aware,
            local_log_aware=broker.static.local_log_aware,
        )

    def handle(self, context: RequestContext, request: FetchRequest) -> Reply:
        topics, left = request.topics, request.forgotten_topics_data
        if (
            len(topics) + len(left) > LONG
            or sum([len(topic.partitions) for topic in topics]) > LONG
            or (left and sum([len(topic.partitions) for topic in left]) > LONG)
        ):
            return self._long(context, request)
        by_id = context.api_version >= TOPIC_IDS_SINCE
        wanted = _wanted(request, by_id)
        known = self._broker.replicas.known
        absent = {key for key in wanted if known(*key) is None}
        return self._begin(context, request, wanted, _forgotten(request, by_id), absent)

    def _long(self, context: RequestContext, request: FetchRequest) -> Reply:
        served: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        context.connection.hold_until(served)
        return self._in_slices(context, request, served)

    async def _in_slices(
        self, context: RequestContext, request: FetchRequest, served: asyncio.Future[None]
    ) -> Body:
        """Answer a request that names too many partitions for one event-loop iteration. Partitions
        without a replica here are refused in slices. The others are read as usual, as their number
        is bounded by this broker's replicas."""
        slices = self._broker.slices
        by_id = context.api_version >= TOPIC_IDS_SINCE
        try:
            await slices.turn()
            here, refused = await self._sorted(request, by_id)
            forgotten = await self._forgotten(request, by_id)
        except ApiError as error:
            return FetchResponse(error_code=error.code)
        finally:
            if not served.done():
                served.set_result(None)
        if refused:
            request.max_wait_ms = 0
        # One of them stands for all: the session only has to know that there are some.
        absent = {(name, -1) for name in islice(refused, 1)}
        reply = self._begin(context, request, here, forgotten, absent)
        body = reply if is_body(reply) else await cast("Awaitable[Body]", reply)
        if not isinstance(body, FetchResponse):
            return body
        await slices.turn()
        if not body.error_code and not body.throttle_time_ms:
            for name, those in refused.items():
                body.responses.append(_topic(name, those))
                await slices.breathe()
        return await encoded_in_slices(slices, body, context.api_version)

    async def _sorted(
        self, request: FetchRequest, by_id: bool
    ) -> tuple[dict[PartitionKey, Wanted], _Refused]:
        """The partitions that have a replica here, and the answers to the others. Raises ApiError
        for more than one request may name."""
        replicas = self._broker.replicas
        here: dict[PartitionKey, Wanted] = {}
        refused: _Refused = {}
        named = 0
        for topic in request.topics:
            name: str | bytes = topic.topic_id if by_id else topic.topic
            named += max(len(topic.partitions), 1)
            if named > WEIGHT_MAX:
                raise ApiError(ErrorCode.INVALID_REQUEST, None)
            await self._broker.slices.breathe()
            for each in topic.partitions:
                index = each.partition
                if replicas.known(name, index) is None:
                    code = _why_absent(replicas, name, index)
                    refused.setdefault(name, {})[index] = failure(index, code)
                else:
                    each.unknown_tags = None
                    here[(name, index)] = each
                await self._broker.slices.breathe(STEPS_PER_PARTITION)
        return here, refused

    async def _forgotten(self, request: FetchRequest, by_id: bool) -> list[PartitionKey]:
        """The partitions that leave the session; ApiError as above."""
        forgotten: list[PartitionKey] = []
        for topic in request.forgotten_topics_data:
            name: str | bytes = topic.topic_id if by_id else topic.topic
            forgotten += [(name, index) for index in topic.partitions]
            if len(forgotten) > WEIGHT_MAX:
                raise ApiError(ErrorCode.INVALID_REQUEST, None)
            await self._broker.slices.breathe()
        return forgotten

    def _begin(
        self,
        context: RequestContext,
        request: FetchRequest,
        wanted: dict[PartitionKey, Wanted],
        forgotten: list[PartitionKey],
        absent: Collection[PartitionKey],
    ) -> Reply:
        replica_id, broker_epoch = _replica(context, request)
        try:
            plan = self._broker.sessions.begin(
                session_id=request.session_id,
                session_epoch=request.session_epoch,
                wanted=list(wanted.items()),
                forgotten=forgotten,
                privileged=replica_id >= 0,
                uses_topic_ids=context.api_version >= TOPIC_IDS_SINCE,
                now_ms=self._broker.clock.monotonic_ms(),
                replica_id=max(replica_id, NO_REPLICA),
                absent=absent,
            )
        except ApiError as error:
            return FetchResponse(error_code=error.code)
        kind = FollowerFetch if replica_id >= 0 else RunningFetch
        return kind(self._shared, context, request, plan, replica_id, broker_epoch).start()


def _is_follower(request: FetchRequest) -> bool:
    """Return whether a follower sent the fetch: Kafka counts consumers' and followers' fetches
    separately."""
    return request.replica_id >= 0 or request.replica_state.replica_id >= 0


def _replica(context: RequestContext, request: FetchRequest) -> tuple[int, int]:
    """Return (replica id, broker epoch) of the sender; (-1, -1) for a consumer."""
    if context.api_version >= REPLICA_STATE_SINCE:
        state = request.replica_state
        return state.replica_id, state.replica_epoch
    return request.replica_id, -1


def _topic(
    name: str | bytes, partitions: dict[int, PartitionData]
) -> FetchResponse.FetchableTopicResponse:
    answered = FetchResponse.FetchableTopicResponse(partitions=list(partitions.values()))
    if isinstance(name, bytes):
        answered.topic_id = name
    else:
        answered.topic = name
    return answered


def _why_absent(replicas: ReplicaManager, name: str | bytes, index: int) -> ErrorCode:
    try:
        if isinstance(name, bytes):
            replicas.find_by_id(name, index)
        else:
            replicas.find(name, index)
    except ApiError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _wanted(request: FetchRequest, by_id: bool) -> dict[PartitionKey, Wanted]:
    wanted: dict[PartitionKey, Wanted] = {}
    for topic in request.topics:
        name: str | bytes = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            # A session keeps this object, and unknown tags may have any size.
            partition.unknown_tags = None
            wanted[(name, partition.partition)] = partition
    return wanted


def _forgotten(request: FetchRequest, by_id: bool) -> list[PartitionKey]:
    return [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
