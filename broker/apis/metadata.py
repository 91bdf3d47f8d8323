"""Metadata (key 3), versions 0-13.

Behaviour: brokers that are alive on the client's listener, a broker for admin requests, and the
requested topics. Null requests all topics (version 0: an empty list), an empty list no topic. An
unknown topic is UNKNOWN_TOPIC_OR_PARTITION. If the client and `auto.create.topics.enable` allow it,
its creation is started and the client finds it with its next request. An illegal name is
INVALID_TOPIC_EXCEPTION, an unknown id UNKNOWN_TOPIC_ID. A request for partitions of a leader that
has just died waits a short time for the next leader, and is then answered LEADER_NOT_AVAILABLE
(`broker/metadata/lost_brokers.py`).

Versions: 4 may forbid creation, 5 offline replicas, 7 leader epochs, 8 authorised operations, 9
flexible, 10 topic ids, 12 requests by id, 13 a top-level error. Before 12 a request with ids is
refused (INVALID_REQUEST): its meaning was never defined.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

from broker.admin.auto_topics import TopicCreator
from broker.context import BrokerContext
from broker.metadata.topic_view import (
    FLEXIBLE_SINCE,
    OPERATIONS_SINCE,
    TopicBlobs,
    encode_topic,
    split_response,
)
from metalog.image.values import BrokerImage, Endpoint, TopicImage
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.ids import ZERO_UUID
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.topic_name import is_internal_topic, topic_name_problem
from protocol.transport.dispatch import Body, EncodedReply, HandlerTable, Reply, RequestContext
from protocol.varint import encode_uvarint
from serving.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS

MIN_VERSION: Final = 0
MAX_VERSION: Final = 13
IDS_SINCE: Final = 12
AT_ONCE_MAX: Final = 250
"""Maximum number of topics answered in one event-loop iteration: a few milliseconds."""
STEPS_PER_TOPIC: Final = 4
"""Weight of a topic in a slice, so that a slice has that number of topics."""

_Found: TypeAlias = TopicImage | MetadataResponse.MetadataResponseTopic
"""A topic, or the entry with the reason why it is missing."""
_Item = TypeVar("_Item")
_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def register(table: HandlerTable, broker: BrokerContext, creator: TopicCreator) -> None:
    api = MetadataApi(broker, creator)
    table.register(ApiKey.METADATA, api.handle, min_version=MIN_VERSION, max_version=MAX_VERSION)


class MetadataApi:
    """The handler. Everything is in memory, so it waits only to let other work run, and for the
    next leader after a leader has just died."""

    def __init__(self, broker: BrokerContext, creator: TopicCreator) -> None:
        self._metadata = broker.metadata
        self._creator = creator
        self._clock = broker.clock
        self._lost = broker.lost
        self._slices = broker.slices
        self._blobs = TopicBlobs(broker.metadata)

    def handle(self, context: RequestContext, request: MetadataRequest) -> Reply:
        if request.topics is not None and len(request.topics) > AT_ONCE_MAX:
            return self._many(context, request)
        if self._lost and self._hold_ms(context, request) > 0.0:
            return self._decided(context, request)
        return self._answer(context, request)

    async def _decided(self, context: RequestContext, request: MetadataRequest) -> Body:
        """Return the answer once the metadata has the next leader, or the wait is over."""
        loop = asyncio.get_running_loop()
        while (hold_ms := self._hold_ms(context, request)) > 0.0:
            changed: asyncio.Future[None] = loop.create_future()
            self._lost.when_changed(lambda changed=changed: _resolve(changed))  # type: ignore[misc]
            await asyncio.wait([changed], timeout=hold_ms / 1000.0)
        reply = self._answer(context, request)
        return await reply if isinstance(reply, Awaitable) else reply

    def _hold_ms(self, context: RequestContext, request: MetadataRequest) -> float:
        """Return how long the answer may wait for a decision about the requested leaders, in
        milliseconds."""
        by_name = self._metadata.image.topics.by_name
        found: Iterable[_Found] = by_name.values()
        if not _wants_all(context, request):
            wanted = request.topics or []
            found = [self._find(t.name, t.topic_id, context.api_version) for t in wanted]
        topics = (topic for topic in found if isinstance(topic, TopicImage))
        leaders = {partition.leader for topic in topics for partition in topic.partitions.values()}
        return self._lost.hold_ms(leaders, self._clock.monotonic_ms())

    async def _many(self, context: RequestContext, request: MetadataRequest) -> Body:
        """Return the answer to a request that names too many topics for one event-loop iteration.
        It does not wait for a decision about leaders that have just died."""
        slices, version = self._slices, context.api_version
        await slices.turn()
        keys: dict[tuple[str | None, bytes], None] = {}
        for topic in request.topics or ():
            keys[topic.name, topic.topic_id] = None
            await slices.breathe()
        found: list[_Found] = []
        unknown: list[_Found] = []
        wanted = list(keys)
        del keys
        for key in _taken(wanted):
            one = self._find(*key, version)
            (unknown if _may_be_created(one) else found).append(one)
            await slices.breathe()
        if unknown and request.allow_auto_topic_creation:
            names = (topic.name for topic in unknown if topic.name)
            self._creator.create_soon(names, context)
        found += unknown
        del unknown, one
        entries = self._entries(_taken(found), context, request)
        return await self._in_slices(self._head(context, request), entries, version)

    def _answer(self, context: RequestContext, request: MetadataRequest) -> Reply:
        version = context.api_version
        metadata = self._metadata
        response = self._head(context, request)
        topics: Sequence[_Found]
        if _wants_all(context, request):
            by_name = metadata.image.topics.by_name
            topics = [by_name[name] for name in metadata.topic_names()]
        else:
            topics = self._named(request.topics or [], context, request)
        entries = self._entries(topics, context, request)
        if len(topics) > AT_ONCE_MAX:
            return self._in_slices(response, entries, version)
        return _reply(response, list(entries), version)

    def _head(self, context: RequestContext, request: MetadataRequest) -> MetadataResponse:
        """Return the response without topics."""
        listener, metadata = context.listener, self._metadata
        return MetadataResponse(
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
                for broker, endpoint in self._listed(listener)
            ],
            cluster_id=metadata.cluster_id,
            controller_id=metadata.controller_hint(listener),
            cluster_authorized_operations=(
                CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
            ),
        )

    def _listed(self, listener: str) -> Sequence[tuple[BrokerImage, Endpoint]]:
        """Return the brokers in the response, by id."""
        alive = self._metadata.alive_brokers(listener)
        if not self._lost:
            return alive
        dead = self._metadata.endpoints(
            self._lost.still_listed(self._clock.monotonic_ms()), listener
        )
        return sorted([*alive, *dead], key=lambda each: each[0].id)

    def _entries(
        self, topics: Iterable[_Found], context: RequestContext, request: MetadataRequest
    ) -> Iterator[bytes]:
        """Return the encoded topics, all as of now, however long the caller takes to read them."""
        version, listener = context.api_version, context.listener
        gone = self._lost.gone(self._clock.monotonic_ms())
        reachable = self._blobs.reachable(listener, gone)
        operations = request.include_topic_authorized_operations
        return (
            self._blobs.get(topic, reachable, listener, version, operations)
            if isinstance(topic, TopicImage)
            else _failed(topic, version, operations)
            for topic in topics
        )

    async def _in_slices(
        self, response: MetadataResponse, entries: Iterator[bytes], version: int
    ) -> Body:
        """Encode the topics in slices: thousands that are not cached yet take a tenth of a
        second."""
        await self._slices.turn()
        taken = []
        for entry in entries:
            taken.append(entry)
            await self._slices.breathe(STEPS_PER_TOPIC)
        return _reply(response, taken, version)

    def _named(
        self,
        wanted: Iterable[MetadataRequest.MetadataRequestTopic],
        context: RequestContext,
        request: MetadataRequest,
    ) -> list[_Found]:
        """Return the requested topics, each once; unknown names come last and may be created."""
        found: list[_Found] = []
        unknown: list[str] = []
        for key in dict.fromkeys((topic.name, topic.topic_id) for topic in wanted):
            topic = self._find(*key, context.api_version)
            if _may_be_created(topic) and topic.name:
                unknown.append(topic.name)
            else:
                found.append(topic)
        if unknown and request.allow_auto_topic_creation:
            self._creator.create_soon(unknown, context)
        return found + [_failure(name, ZERO_UUID, _UNKNOWN) for name in unknown]

    def _find(self, name: str | None, topic_id: bytes, version: int) -> _Found:
        """Return the topic, or the entry with the reason why it is missing."""
        if topic_id == ZERO_UUID and name is not None:
            topic = self._metadata.topic(name)
            if topic is not None:
                return topic
            legal = topic_name_problem(name) is None
            return _failure(
                name, ZERO_UUID, _UNKNOWN if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
            )
        if version < IDS_SINCE:
            return _failure(name or "", topic_id, ErrorCode.INVALID_REQUEST)
        return self._metadata.topic_by_id(topic_id) or _failure(
            None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID
        )


def _may_be_created(found: _Found) -> bool:
    """Return whether it is the entry of a legal name that no topic has."""
    return not isinstance(found, TopicImage) and found.error_code == _UNKNOWN and bool(found.name)


def _wants_all(context: RequestContext, request: MetadataRequest) -> bool:
    return request.topics is None or (context.api_version == 0 and not request.topics)


def _taken(items: list[_Item]) -> Iterator[_Item]:
    """Take all items from a list, in their order. Each is freed when its user is done with it: all
    at once, 100,000 take 20 ms."""
    items.reverse()
    while items:
        yield items.pop()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _reply(response: MetadataResponse, topics: list[bytes], version: int) -> EncodedReply:
    """Insert the encoded topics into `response`, which has none."""
    head, tail = split_response(response, version)
    if version >= FLEXIBLE_SINCE:
        count = encode_uvarint(len(topics) + 1)
    else:
        count = len(topics).to_bytes(4, "big")
    return EncodedReply([b"".join((head, count, *topics, tail))])


def _failed(topic: MetadataResponse.MetadataResponseTopic, version: int, operations: bool) -> bytes:
    """Encode a failed topic. As in Kafka, its operations are included even if the topic does not
    exist."""
    if operations and version >= OPERATIONS_SINCE and topic.topic_id == ZERO_UUID:
        topic.topic_authorized_operations = TOPIC_OPERATIONS
    return encode_topic(topic, version)


def _failure(
    name: str | None, topic_id: bytes, error: ErrorCode
) -> MetadataResponse.MetadataResponseTopic:
    return MetadataResponse.MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=topic_id,
        is_internal=name is not None and is_internal_topic(name),
    )
