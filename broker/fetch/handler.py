"""Shell: Handler of Fetch requests: the session of a request, its reads, and requests that name too
many partitions for one event-loop iteration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection
from itertools import islice
from typing import Final, cast

from broker.context import BrokerContext
from broker.fetch.consumer import Consumer
from broker.fetch.follower import Follower
from broker.fetch.request import (
    TOPIC_IDS_SINCE,
    Wanted,
    forgotten_partitions,
    is_long,
    sender_of,
    wanted_partitions,
)
from broker.fetch.requester import AddHints, FetchShared, find
from broker.fetch.response import PartitionData, failure, topic_response
from broker.fetch.running import RunningFetch
from broker.replication.replicas.replica_manager import ReplicaManager
from broker.replication.sessions.fetch_session import NO_REPLICA, PartitionKey
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.transport.dispatch import Body, Reply, RequestContext, is_body
from protocol.transport.long_requests import WEIGHT_MAX, encoded_in_slices

STEPS_PER_PARTITION: Final = 2
"""Weight of a partition in a slice."""

_Refused = dict[str | bytes, dict[int, PartitionData]]


class FetchHandler:
    """The handler; a plain function per request, which may return a future."""

    def __init__(self, broker: BrokerContext, add_hints: AddHints) -> None:
        self._broker = broker
        self._shared = FetchShared(
            broker=broker,
            add_hints=add_hints,
            response_bytes_max=broker.static.fetch_bytes_max,
            rack_aware=broker.static.rack_aware,
            local_log_aware=broker.static.local_log_aware,
        )

    def handle(self, context: RequestContext, request: FetchRequest) -> Reply:
        if is_long(request):
            return self._long(context, request)
        by_id = context.api_version >= TOPIC_IDS_SINCE
        wanted = wanted_partitions(request, by_id=by_id)
        known = self._broker.replicas.known
        absent = {key for key in wanted if known(*key) is None}
        forgotten = forgotten_partitions(request, by_id=by_id)
        return self._begin(context, request, wanted, forgotten, absent)

    def _begin(
        self,
        context: RequestContext,
        request: FetchRequest,
        wanted: dict[PartitionKey, Wanted],
        forgotten: list[PartitionKey],
        absent: Collection[PartitionKey],
    ) -> Reply:
        replica_id, broker_epoch = sender_of(request, context.api_version)
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
        shared = self._shared
        if replica_id < 0:
            consumer = Consumer(shared, context, request, plan)
            due = consumer.first_due()
            return RunningFetch(shared, context, request, plan, consumer, due).start()
        follower = Follower(shared, context, request, plan, replica_id, broker_epoch)
        follower.begin()
        due = follower.first_due()
        fetch = RunningFetch(shared, context, request, plan, follower, due)
        rests = not fetch.is_answered and follower.rests(due)
        reply = fetch.rest() if rests else fetch.start()
        follower.note_time()
        return reply

    # --- long requests ------------------------------------------------------------------------

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
                body.responses.append(topic_response(name, list(those.values())))
                await slices.breathe()
        return await encoded_in_slices(slices, body, context.api_version)

    async def _sorted(
        self, request: FetchRequest, by_id: bool
    ) -> tuple[dict[PartitionKey, Wanted], _Refused]:
        """Return the partitions that have a replica here, and the answers to the others.

        Raises:
            ApiError: INVALID_REQUEST if the request names more than one request may.
        """
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
                    code = _why_absent(replicas, (name, index))
                    refused.setdefault(name, {})[index] = failure(index, code)
                else:
                    each.unknown_tags = None
                    here[(name, index)] = each
                await self._broker.slices.breathe(STEPS_PER_PARTITION)
        return here, refused

    async def _forgotten(self, request: FetchRequest, by_id: bool) -> list[PartitionKey]:
        """Return the partitions that leave the session; raises ApiError as `_sorted`."""
        forgotten: list[PartitionKey] = []
        for topic in request.forgotten_topics_data:
            name: str | bytes = topic.topic_id if by_id else topic.topic
            forgotten += [(name, index) for index in topic.partitions]
            if len(forgotten) > WEIGHT_MAX:
                raise ApiError(ErrorCode.INVALID_REQUEST, None)
            await self._broker.slices.breathe()
        return forgotten


def _why_absent(replicas: ReplicaManager, key: PartitionKey) -> ErrorCode:
    try:
        find(replicas, key)
    except ApiError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
